"""What the benchmarks compare is the same computation, and their figures are what they say."""

import json
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import (
    checkouts,
    children,
    goals,
    machine,
    recurrent_training,
    report,
    summarization,
    temporal,
)
from benchmarks.children import (
    TOLERANCE,
    BenchmarkError,
    Measurement,
    check_agreement,
    deviation,
    deviation_with_kinks,
    disagreement,
)
from benchmarks.contenders import INEXACT, contenders_for, find
from benchmarks.problems import (
    ATTENTIONS,
    DECODERS,
    INNER,
    POINTERS,
    SELF_ATTENTIONS,
    TRANSFORMERS,
    Problem,
    Size,
    make_inputs,
)
from benchmarks.transformer_problem import make_ids
from benchmarks.worker import prepare

LAYERS = (*DECODERS, *ATTENTIONS, *SELF_ATTENTIONS, *INNER, *POINTERS)
KINDS = (*LAYERS, *TRANSFORMERS)
TINY = Size(3, 5, 7, 11)
EVEN = Size(3, 5, 7, 12)  # two heads share the width of a Transformer

PEERS = [
    (kind, contender.name)
    for kind in KINDS
    for contender in contenders_for(kind)
    if contender.side not in ("ours", "gru") and not contender.compiled
]


@cache
def results_of(kind, name):
    problem = Problem(kind, TINY if kind in LAYERS else EVEN)
    return prepare(find(kind, name), problem)[2]


@pytest.mark.parametrize(("kind", "name"), PEERS)
@pytest.mark.by_default(kind=LAYERS)  # a whole Transformer takes as long as all of them
def test_peers_give_our_outputs_and_gradients(kind, name):
    if name == "torch":
        pytest.importorskip("torch")
    results = results_of(kind, name)
    worst, array = deviation(results, results_of(kind, "ours"))
    assert worst < 1e-5, array
    assert all(np.any(value != 0) for value in results.values())


def test_the_yardstick_reads_the_inputs_and_not_the_query():
    results = results_of("inner-word", "gru")
    assert not np.any(results["gradient value"])
    assert all(np.any(value != 0) for key, value in results.items() if key != "gradient value")
    assert set(results) - {"gradient value"} < set(results_of("inner-word", "ours"))


TRANSLATORS = [c.name for c in contenders_for("translation") if not c.compiled]


@pytest.mark.parametrize("name", [name for name in TRANSLATORS if name != "ours"])
@pytest.mark.by_default(*{*TRANSLATORS} - {"half"})
def test_translators_find_our_words(name):
    if name.startswith(("engine", "litert")):
        pytest.importorskip("ctranslate2")
    results, expected = results_of("translation", name), results_of("translation", "ours")
    assert expected["beam"].shape == (3, 5) and expected["beam"].min() >= 4
    assert np.unique(expected["beam"], axis=0).shape[0] > 1
    assert np.any(expected["beam"] != expected["greedy"])
    assert results["beam"].shape == results["greedy"].shape == (3, 5)
    if find("translation", name).side not in INEXACT:
        assert disagreement(results, expected) == (0.0, "greedy")


def test_disagreement_is_the_share_of_other_translations():
    reference = {"greedy": np.array([[1, 2], [3, 4]]), "beam": np.array([[1, 2], [3, 5]])}
    assert disagreement(reference, reference) == (0.0, "greedy")
    changed = {**reference, "beam": np.array([[1, 2], [3, 4]])}
    assert disagreement(changed, reference) == (0.5, "beam")


def test_some_memory_is_masked_and_none_wholly():
    masks = [make_inputs(Problem(kind, TINY))["mask"] for kind in LAYERS]
    for mask in [*masks, make_ids(Problem("transformer", EVEN))["source"] != 0]:
        assert not mask.all() and mask.any(axis=1).all()


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


def test_the_faster_variant_of_each_side_is_compared():
    def measured(name, forward, train):
        peaks = {"forward_peak_mb": 10.0 * forward[0], "train_peak_mb": 100.0}
        return Measurement(find("additive", name), peaks, {"forward": forward, "train": train})

    results = report.comparisons(
        [
            measured("ours", [4.0, 4.0, 4.0], [1.0, 1.0, 1.0]),
            measured("ours-xla", [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]),
            measured("keras", [6.0, 5.0, 8.0], [9.0, 9.0, 9.0]),
            measured("keras-xla", [7.0, 7.0, 7.0], [2.0, 2.0, 2.0]),
        ]
    )
    forward, train = results
    assert (forward["ours"], forward["peer"]) == ("ours-xla", "keras")
    assert forward["times_faster"] == 3.0 and forward["times_faster_range"] == [2.5, 4.0]
    assert forward["memory_share"] == pytest.approx(20 / 60)
    assert (train["ours"], train["peer"], train["times_faster"]) == ("ours", "keras-xla", 2.0)


def test_translations_are_told_in_tokens_a_second():
    def measured(name, deviation, *seconds):
        firsts = {f"{search}_first_seconds": 1.0 for search in ("greedy", "beam")}
        peaks = {f"{search}_peak_mb": 1.0 for search in ("greedy", "beam")}
        rounds = {"greedy": [seconds[0]] * 2, "beam": [seconds[1]] * 2}
        found = Measurement(find("translation", name), {**firsts, **peaks}, rounds)
        found.deviation = deviation
        return found

    problem = Problem("translation", Size(2, 30, 20, 512))
    rows = [measured("ours", 0, 0.1, 0.3), measured("half", 0.5, 0.05, 0.1)]
    text = report.table(problem, [*rows, measured("engine", 0.0, 0.2, 0.15)])
    assert "Batch 2, 20 tokens to 30, 512 units." in text
    assert "| Transformer | 600 | 200 | 100% | 2.0 |" in text
    assert "| bfloat16 | 1200 | 600 | 50% | 2.0 |" in text
    assert "greedy: 2.00 times as fast as CTranslate2 in float32 (2.00 to 2.00 by round) (" in text
    assert "beam 4: 1.50 times as fast as CTranslate2 in float32" in text
    assert json.loads(json.dumps(report.to_json(problem, rows)))["kind"] == "translation"


def figures_of(kind, size, *comparisons, load=0.1, others=0.01):
    """A run's figures with comparisons `(our side, peer side, pass, times as fast)`."""
    keys = ("ours_side", "peer_side", "pass", "times_faster")
    sizes = dict(zip(("batch", "steps", "memory_steps", "units"), size, strict=True))
    found = [dict(zip(keys, each, strict=True)) for each in comparisons]
    facts = {"load_before": load, "cores": 2, "others": others}
    return {"machine": facts, "problems": [{"kind": kind, **sizes, "comparisons": found}]}


def test_goals_are_met_or_missed_where_the_machine_was_quiet():
    found = [
        ("ours", "engine", "greedy", 1.0),
        ("ours", "engine", "beam", 0.99),
        ("ours", "engine-int8", "beam", 9.0),  # no goal
        ("ours-by-engine", "engine", "greedy", 0.96),
    ]
    text = goals.table(figures_of("translation", (320, 30, 20, 512), *found))
    rows = [line.split(" | ") for line in text.splitlines()[2:]]
    assert [row[2:4] + row[5:] for row in rows] == [
        ["ours", "CTranslate2 in float32", "1", "met |"],
        ["ours", "CTranslate2 in float32", "1", "**missed** |"],
        ["translate(engine=)", "CTranslate2 in float32", "0.95", "met |"],
    ]
    few = goals.table(figures_of("translation", (32, 30, 20, 512), *found))
    assert few == "None of these problems has a goal at this size."
    for busy in ({"load": 1.5}, {"others": 0.06}):
        text = goals.table(figures_of("translation", (320, 30, 20, 512), *found, **busy))
        assert text.startswith("This run was not quiet: ")
        assert text.count("not claimed") == 3 and "met |" not in text and "missed" not in text


def test_every_goal_is_of_sides_that_are_compared():
    for kind, wanted in goals.GOALS.items():
        sides = {contender.side for contender in contenders_for(kind)}
        for goal in wanted:
            assert goal.own in sides and goal.peer in report.COMPARED[goal.own]
            assert goal.peer in sides


def test_the_watch_counts_what_others_have_worked(monkeypatch):
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    for name, values in (("_busy_seconds", [100.0, 130.0]), ("_own_seconds", [5.0, 31.0])):
        monkeypatch.setattr(machine, name, iter(values).__next__)
    monkeypatch.setattr(machine.time, "monotonic", iter([50.0, 60.0]).__next__)
    assert machine.Watch().share_of_others() == pytest.approx((30 - 26) / (10 * 4))


def test_an_unknown_program_is_named(tmp_path, capsys):
    options = ["--only", "attention", "--program", "keras", "--program", "theano"]
    assert command.main([*options, "--output", str(tmp_path / "f.json")]) == 2
    assert "no program is called theano" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [(), ("--backend", "jax", "--precision", "mixed_bfloat16")],
    ids=["tensorflow", "jax"],
)
def test_the_command_measures_and_keeps_figures(options, tmp_path, monkeypatch, capsys):
    def two(kind, *_):
        return [find(kind, "ours"), find(kind, "keras")]

    if options:
        pytest.importorskip("jax")
    else:  # on JAX these are all
        monkeypatch.setattr(children, "contenders_for", two)
    output = tmp_path / "folder" / "figures.json"
    options = [*options, "--quick", "--rounds", "1", "--output", str(output)]
    assert command.main(["--only", "attention", *options]) == 0
    assert "times as fast as plain Keras" in capsys.readouterr().out
    (problem,) = json.loads(output.read_text())["problems"]
    assert [program["name"] for program in problem["programs"]] == ["ours", "keras"]
    assert all(program["seconds"]["train"] > 0 for program in problem["programs"])
    assert all(program["forward_peak_mb"] > 0 for program in problem["programs"])


def test_a_contender_that_fails_ends_the_command_with_one_line(tmp_path, monkeypatch, capsys):
    # no such size of batch in the worker's reading: it ends at once, before any framework
    monkeypatch.setattr(Size, "__str__", lambda size: "0x0x0x0")
    options = ["--only", "attention", "--quick", "--output", str(tmp_path / "figures.json")]
    assert command.main(options) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: BahdanauAttention failed: ValueError: A size is")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "3x4"], "A size is BATCHxSTEPSxMEMORYxUNITS. Received: '3x4'"),
        (["--rounds", "0"], "expected a positive number. Received: '0'"),
        (["--seconds", "soon"], "expected a positive number. Received: 'soon'"),
        (["--only", "pooling"], "invalid choice: 'pooling'"),
        (["--only", "attention", "--torch-compile"], "is of what has a loop"),
        (["--only", "multi-head", "--torch-compile"], "Received: --only multi-head"),
        (["--only", "translation", "--torch-compile"], "Received: --only translation"),
        (["--precision", "mixed_bfloat16"], "--precision needs --backend jax"),
        (["--backend", "jax", "--torch-compile"], "--torch-compile needs --backend tensorflow"),
    ],
)
def test_wrong_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(options)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_missing_peer_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command.machine, "installed", lambda package: None)
    assert command.main(["--only", "bahdanau", "--output", str(tmp_path / "f.json")]) == 2
    assert "PyTorch is missing" in capsys.readouterr().err
    assert command.main(["--only", "translation", "--output", str(tmp_path / "f.json")]) == 2
    assert "CTranslate2 is missing" in capsys.readouterr().err
    assert command.main(["--backend", "jax", "--output", str(tmp_path / "f.json")]) == 2
    assert "JAX is missing" in capsys.readouterr().err


def test_a_peer_is_needed_only_by_the_programs_that_are_asked_for(tmp_path, monkeypatch, capsys):
    def measure(*args):
        raise command.BenchmarkError("It was measured.")

    monkeypatch.setattr(command.machine, "installed", lambda package: None)
    monkeypatch.setattr(command, "measure", measure)
    options = ["--only", "bahdanau", "--output", str(tmp_path / "f.json")]
    assert command.main([*options, "--program", "keras-rnn"]) == 2
    assert "It was measured." in capsys.readouterr().err
    assert command.main([*options, "--program", "keras-rnn", "--program", "torch"]) == 2
    assert "PyTorch is missing" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_on_jax_our_programs_and_those_of_keras_are_measured(kind):
    names = [each.name for each in contenders_for(kind, backend="jax")]
    assert names[0] == "ours"
    assert not any("torch" in name or "xla" in name or "engine" in name for name in names)


def test_a_checkout_without_an_environment_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        checkouts.main([str(tmp_path)])
    assert ended.value.code == 2
    assert "expected a checkout with its own .venv. Received: " in capsys.readouterr().err


def test_training_of_two_checkouts_takes_turns(monkeypatch, tmp_path):
    rates, order = {"here": iter([130, 120, 140]), "there": iter([90, 100, 110])}, []

    def train(architecture, checkout, folder):
        order.append("there" if checkout == tmp_path else "here")
        return next(rates[order[-1]])

    monkeypatch.setattr(checkouts, "train", train)
    cells = checkouts.compare_training("luong", tmp_path, 3)
    assert order == ["here", "there", "there", "here", "here", "there"]
    assert cells == ["130, 120, 140", "90, 100, 110", "1.30"]


def test_what_is_said_and_read_again_is_counted():
    summary = SimpleNamespace(
        source=[["a", "b"], ["c"], ["d"]],
        tokens=["x", "y", ".", "z", ".", "x", "y", ".", "w", "."],
        sentence_weights=np.eye(3)[[0, 0, 2, 1, 2, 0, 0, 2, 0, 2]],
    )
    found = summarization.repetition([summary])
    assert found == {"said_again": 25.0, "read_again": 50.0, "said_and_read_again": 100.0}
    assert summarization.repetition([])["said_again"] is None
    steps = [(np.arange(4.0) + 10 * step, np.eye(4)[1]) for step in range(10)]
    begun = list(temporal.beginnings(summary, steps, urgent=(0, 1)))
    assert [kind for kind, *_ in begun] == [
        *("read before", "urgent, not read", "others"),
        *("read before", "read before", "others") * 2,
    ]
    assert begun[0][1:] == (31.0, 1.0) and begun[1][1:] == (32.0, 0.0)


@pytest.mark.parametrize("name", recurrent_training.MODELS)
def test_a_recurrent_model_trains_as_it_is_timed(name, monkeypatch, capsys):
    for size, value in {"WORDS": 17, "UNITS": 6, "BATCH": 3, "LENGTH": 5}.items():
        monkeypatch.setattr(recurrent_training, size, value)
    step, weights = recurrent_training.our_step(name)
    losses = [step() for _ in range(5)]
    assert losses[-1] < losses[0] and weights > 17 * 6
    monkeypatch.setattr("sys.argv", ["recurrent_training", "--python", "nowhere"])
    with pytest.raises(SystemExit, match="2"):
        recurrent_training.main()
    assert "a Python that has joeynmt. Received: nowhere" in capsys.readouterr().err
