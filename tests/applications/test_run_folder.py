"""The run folder: it appears whole, is never overwritten, and says what is wrong with it."""

import json

import numpy as np
import pytest

from keras_attention.applications.common.checkpoints import Checkpoint, Checkpoints
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import replacing, write_text
from keras_attention.applications.common.metrics_log import MetricsLog, read_metrics
from keras_attention.applications.common.run_folder import RunFolder, refuse_existing, writing


def make_run(path):
    with RunFolder.prepare(path, "translation") as folder:
        (folder / "config.yaml").write_text("data: {}\n")
    return RunFolder(path)


def test_a_prepared_folder_can_be_opened(tmp_path):
    run = make_run(tmp_path / "deep" / "run")
    assert run.task == "translation"
    assert run.checkpoints.is_dir() and run.tokenizers.is_dir()
    assert [path.name for path in run.path.parent.iterdir()] == ["run"]


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    make_run(tmp_path / "run")


def test_nothing_is_left_of_a_preparation_that_failed(tmp_path):
    with pytest.raises(KeyError), RunFolder.prepare(tmp_path / "run", "translation") as folder:
        (folder / "config.yaml").write_text("")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_preparation_that_was_killed_is_no_obstacle(tmp_path):
    left = tmp_path / ".run.preparing"
    left.mkdir()
    (left / "config.yaml").write_text("half")
    make_run(tmp_path / "run")
    assert not left.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"FORMAT": "{}"}, "already holds a run. .* --resume"),
        ({"thesis.txt": "years of work"}, "already exists"),
    ],
)
def test_an_existing_folder_is_not_overwritten(tmp_path, content, message):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with (
        pytest.raises(UserError, match=message),
        RunFolder.prepare(tmp_path, "translation"),
    ):
        pytest.fail("prepared over an existing folder")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == content


def test_a_file_is_not_overwritten(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="already exists"):
        refuse_existing(tmp_path / "run")


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "run"
    with (
        pytest.raises(UserError, match="already exists"),
        RunFolder.prepare(path, "translation") as folder,
    ):
        (folder / "config.yaml").write_text("")
        path.mkdir()
        (path / "other").write_text("kept")
    assert [child.name for child in tmp_path.rglob("*")] == ["run", "other"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "no run folder"),
        ({}, "is not a run folder: it has no FORMAT file"),
        ({"thesis.txt": ""}, "is not a run folder"),
        ({"config.yaml": ""}, "half-written run folder: its FORMAT file is missing"),
        ({"FORMAT": '{"format": 1, "task": "translation"}'}, "half-written: it has no config.yaml"),
        ({"FORMAT": '{"format": 2, "task": "translation"}'}, r"newer .*format 2; .* up to 1"),
        ({"FORMAT": '{"format": 1}', "config.yaml": ""}, "FORMAT is damaged"),
        ({"FORMAT": '{"form', "config.yaml": ""}, "FORMAT is damaged"),
        ({"FORMAT": "[1]", "config.yaml": ""}, "FORMAT is damaged"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path, files, message):
    path = tmp_path / "run"
    if files is not None:
        path.mkdir()
        for name, text in files.items():
            (path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        RunFolder(path)


def test_a_run_without_weights_says_so(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match="no weights yet.*--resume"):
        run.require_weights()
    run.best_weights.write_text("")
    assert run.require_weights() == run.best_weights


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    run = make_run(tmp_path / "run")
    with writing(run), pytest.raises(UserError, match="another process is training"), writing(run):
        pytest.fail("locked twice")
    with writing(run):
        pass


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.weights.h5"
    write_text(path, "old")
    with pytest.raises(KeyError), replacing(path) as temporary:
        assert temporary.name.endswith(".weights.h5")
        temporary.write_text("new, but hal")
        raise KeyError
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in (3, 6, 9):
        log.append({"step": step, "loss": 1 / step})
    assert [line["step"] for line in read_metrics(path)] == [3, 6, 9]
    resumed = MetricsLog(path, step=6)
    assert [line["step"] for line in read_metrics(path)] == [3, 6]
    resumed.append({"step": 9, "loss": 0.1})
    assert read_metrics(path)[-1] == {"step": 9, "loss": 0.1}
    path.write_text(path.read_text()[:-9])
    with pytest.raises(UserError, match="metrics.jsonl is damaged"):
        MetricsLog(path, step=9)


def checkpoint(step):
    generator = np.random.default_rng(step)
    arrays = [
        generator.normal(size=(2, 3)).astype("float32"),
        np.asarray(step, "int64"),
        generator.integers(0, 2**32, size=2, dtype="uint32"),
    ]
    return Checkpoint(step, arrays, {"epoch": step // 10, "callbacks": {"best": {"best": 0.1}}})


def assert_same(one, other):
    assert (one.step, one.state) == (other.step, other.state)
    for a, b in zip(one.arrays, other.arrays, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_checkpoints_come_back_and_the_newest_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.latest() == (None, [])
    for step in (10, 20, 110):
        checkpoints.save(checkpoint(step))
    assert [path.name for path in checkpoints.paths()] == ["step-00000020.npz", "step-00000110.npz"]
    latest, problems = checkpoints.latest()
    assert_same(latest, checkpoint(110))
    assert problems == []


def cut_short(content):
    return content[: len(content) // 2]


def altered(content):
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut_short, altered, lambda content: b""])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(tmp_path, damage):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        newest = checkpoints.save(checkpoint(step))
    newest.write_bytes(damage(newest.read_bytes()))
    latest, problems = checkpoints.latest()
    assert_same(latest, checkpoint(10))
    assert len(problems) == 1 and "step-00000020.npz is damaged" in problems[0]


def test_with_every_checkpoint_damaged_training_does_not_start_anew(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        checkpoints.save(checkpoint(step)).write_bytes(b"PK")
    with pytest.raises(UserError, match="00000020.npz .*00000010.npz .*No checkpoint is left"):
        checkpoints.latest()


def test_format_names_the_package(tmp_path):
    run = make_run(tmp_path / "run")
    about = json.loads((run.path / "FORMAT").read_text())
    assert about["format"] == 1 and about["package"]
