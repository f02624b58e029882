"""The processes of a comparison: what they compute agrees, and they fit into the memory."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.speed import children
from benchmarks.speed.children import (
    SHARE_OF_MEMORY,
    TOLERANCE,
    check_agreement,
    deviation,
    deviation_with_kinks,
    disagreement,
    measure,
)
from benchmarks.speed.problems import Problem, Size

PROBLEM = Problem("additive", Size(2, 3, 5, 7))
NAMES = ("ours", "ours-xla", "keras", "keras-xla")


def test_disagreement_is_the_share_of_other_translations():
    reference = {"greedy": np.array([[1, 2], [3, 4]]), "beam": np.array([[1, 2], [3, 5]])}
    assert disagreement(reference, reference) == (0.0, "greedy")
    changed = {**reference, "beam": np.array([[1, 2], [3, 4]])}
    assert disagreement(changed, reference) == (0.5, "beam")


def test_deviation_is_relative_and_sees_one_wrong_number():
    reference = {"a": np.array([10.0, -40.0]), "b": np.array([1.0])}
    close = {"a": np.array([10.0, -40.0]), "b": np.array([1.0])}
    assert deviation(close, reference) == (0.0, "")
    assert deviation({**close, "a": np.array([12.0, -40.0])}, reference) == (0.05, "a")
    worst, name = deviation({**close, "b": np.array([np.nan])}, reference)
    assert np.isnan(worst) and name == "b"


def test_deviation_of_what_has_vanished_is_relative_to_the_greatest_of_all():
    reference = {"a": np.array([100.0]), "b": np.array([1e-6])}
    worst, name = deviation({**reference, "b": np.array([3e-6])}, reference, negligible=1e-3)
    assert name == "b" and worst == pytest.approx(2e-6 / 0.1)


def test_deviation_with_kinks_sees_more_than_one_place():
    reference = {"a": np.ones((30, 40)), "b": np.full(3, 1e-6)}
    changed = reference["a"].copy()
    changed[4, 7] += 0.01  # one of 1,200
    gap, name = deviation_with_kinks({**reference, "a": changed}, reference)
    assert name == "a" and gap == pytest.approx(0.01 / 1200**0.5)
    changed[4] += 0.01  # a row of 30
    assert deviation_with_kinks({**reference, "a": changed}, reference)[0] > TOLERANCE


@pytest.mark.parametrize("kind", ["luong", "transformer"])
def test_in_16_bits_a_few_outputs_and_all_gradients_of_deep_networks_may_differ(tmp_path, kind):
    children = []
    for place, (output, gradient) in enumerate([(1.0, 1.0), (3.0, 9.0)]):
        outputs = np.ones((997, 2))
        outputs[5] = output
        file = tmp_path / f"{place}.npz"
        np.savez(file, **{"outputs": outputs, "gradient kernel": np.full(3, gradient)})
        contender = SimpleNamespace(side="keras", label=f"program {place}")
        measured = SimpleNamespace(deviation=0.0)
        children.append(SimpleNamespace(check_file=file, contender=contender, measurement=measured))
    problem = Problem(kind, Size(2, 3, 5, 7))
    with pytest.raises(BenchmarkError, match="differ in gradient kernel by 8"):
        check_agreement(children, problem)
    check_agreement(children, problem, "mixed_bfloat16")
    assert children[1].measurement.deviation == pytest.approx(2 * (2 / 1994) ** 0.5)
    np.savez(children[1].check_file, outputs=np.full((997, 2), 1.2))
    with pytest.raises(BenchmarkError, match="differ in outputs by 0.2"):
        check_agreement(children, problem, "mixed_bfloat16")


def test_deviation_refuses_missing_and_misshapen_results():
    reference = {"a": np.zeros(2)}
    with pytest.raises(BenchmarkError, match="Expected results"):
        deviation({}, reference)
    with pytest.raises(BenchmarkError, match="Shapes of a differ"):
        deviation({"a": np.zeros(3)}, reference)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Let fake workers be the programs of additive attention; return what makes them.

    That takes the free memory, or None, the megabytes of each, and further keys by name; it returns
    a function that returns the lines of the log.
    """
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("RESULTS", str(tmp_path / "results.npz"))
    np.savez(tmp_path / "results.npz", outputs=np.ones(3))
    worker = functools.partial(children.Child, worker="tests.benchmarks.speed.fake_worker")
    monkeypatch.setattr(children, "Child", worker)

    def make(free, megabytes, **more):
        fakes = {
            name: {"mb": size, **more.get(name.replace("-", "_"), {})}
            for name, size in zip(NAMES, megabytes, strict=True)
        }
        monkeypatch.setenv("FAKES", json.dumps(fakes))
        limit = None if free is None else free / SHARE_OF_MEMORY
        monkeypatch.setattr(children, "available_megabytes", lambda: limit)
        return lambda: (tmp_path / "log").read_text().splitlines()

    return make


def most_at_once(log, megabytes):
    """The most memory that the fakes have had at once, by the lines of their log."""
    sizes, alive, most = dict(zip(NAMES, megabytes, strict=True)), [], 0
    for line in log:
        event, name = line.split()
        if event == "start":
            alive.append(name)
        if event == "end":
            alive.remove(name)
        most = max(most, sum(sizes[each] for each in alive))
    return most


@pytest.mark.parametrize("free", [None, 1000])
def test_programs_that_fit_are_built_once_and_take_turns(fake, free):
    log = fake(free, (100, 200, 100, 100))
    found = measure(PROBLEM, 3, 0.1, tell=lambda line: None)
    assert [each.contender.name for each in found] == list(NAMES)
    assert all(each.rounds == {"forward": [0.5] * 3, "train": [0.5] * 3} for each in found)
    assert [line for line in log() if line.startswith("start")] == [f"start {n}" for n in NAMES]
    turns = [line.split()[1] for line in log() if line.startswith("turn")]
    assert turns == [*NAMES[::-1], *NAMES] * 3


def test_programs_that_do_not_fit_together_make_room(fake):
    sizes, told = (300, 400, 100, 500), []
    log = fake(1000, sizes)
    found = measure(PROBLEM, 3, 0.1, tell=told.append)
    assert all(each.rounds == {"forward": [0.5] * 3, "train": [0.5] * 3} for each in found)
    assert all(each.error is None for each in found)
    assert most_at_once(log(), sizes) <= 1000
    starts = [line for line in log() if line.startswith("start")]
    assert len(NAMES) < len(starts) < 6 * len(NAMES)
    assert told[0] == f"{PROBLEM}: its programs may take 1,000 MB of memory together"
    assert f"{PROBLEM}: Dense, AdditiveAttention, XLA needs 500 MB" in told
    assert f"{PROBLEM}: all together need 1,300 MB: some are built in each round" in told


def test_a_program_that_was_not_built_yet_may_need_half_of_the_memory(fake):
    sizes = (300, 300, 300, 500)
    log = fake(1000, sizes)
    measure(PROBLEM, 1, 0.1, tell=lambda line: None)
    assert log()[:4] == ["start ours", "start ours-xla", "end ours", "start keras"]


def test_a_program_that_needs_more_than_was_expected_has_the_room_before_its_turns(fake):
    log = fake(1000, (100, 100, 300, 900))
    measure(PROBLEM, 1, 0.1, tell=lambda line: None)
    assert log()[3:9] == [
        "start keras-xla",
        "end ours",
        "end ours-xla",
        "end keras",
        "turn keras-xla",
        "end keras-xla",
    ]


def test_a_program_alone_may_need_more_than_there_is(fake):
    fake(10, (20,) * 4)
    found = measure(PROBLEM, 1, 0.1, tell=lambda line: None)
    assert [each.error for each in found] == [None] * 4


@pytest.mark.parametrize("free", [None, 250])
def test_a_program_that_is_killed_is_named_and_the_others_go_on(fake, free, tmp_path, capsys):
    fake(free, (100, 100, 100, 100), keras={"dies": "train"})
    output = tmp_path / "figures.json"
    rest = ["--size", "2x3x5x7", "--rounds", "3", "--seconds", "0.1", "--output", str(output)]
    assert main(["layers", "--only", "attention", *rest]) == 2
    out, err = capsys.readouterr()
    why = "was ended by SIGKILL, as the system does where memory runs out (it needs 100 MB of"
    assert f"error: Dense, AdditiveAttention {why} memory); the others go on" in err
    last = err.splitlines()[-1]
    assert last.startswith("error: These programs were not measured to the end: additive 2x3x5x7")
    assert str(output) in last and "Broken pipe" not in err
    assert f"- Not measured to the end: Dense, AdditiveAttention {why}" in out
    assert "times as fast as plain Keras" in out  # by its form with XLA
    (problem,) = json.loads(output.read_text())["problems"]
    assert [each["name"] for each in problem["programs"]] == ["ours", "ours-xla", "keras-xla"]
    assert all(len(each["round_medians"]["train"]) == 3 for each in problem["programs"])
    (failed,) = problem["failed"]
    assert failed["name"] == "keras" and why in failed["error"]
    assert len(failed["round_medians"]["forward"]) == 3


def test_a_program_that_cannot_be_built_is_left_out(fake):
    fake(None, (100,) * 4, keras_xla={"dies": "build"})
    found = measure(PROBLEM, 1, 0.1, tell=lambda line: None)
    assert [each.error for each in found[:3]] == [None] * 3
    assert found[3].error == "Dense, AdditiveAttention, XLA failed: RuntimeError: no such kernel"
    assert found[3].rounds == {}


def test_without_the_first_program_there_is_nothing_to_compare_with(fake):
    fake(None, (100,) * 4, ours={"dies": "build"})
    with pytest.raises(BenchmarkError, match="^BahdanauAttention failed: RuntimeError"):
        measure(PROBLEM, 1, 0.1, tell=lambda line: None)
