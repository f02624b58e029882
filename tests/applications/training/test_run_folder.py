"""The run folder: it appears whole, is never overwritten, and says what is wrong with it."""

import errno
import io
import json
import os
import zipfile

import numpy as np
import pytest

from keras_attention.applications.base import train as tasks
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config, save_config
from keras_attention.applications.store.files import MOST_READ, checksum, replacing, write_text
from keras_attention.applications.store.weights import load_weights
from keras_attention.applications.training.run_folder import (
    Checkpoint,
    Checkpoints,
    MetricsLog,
    RunFolder,
    _about,
    read_checkpoint,
    read_metrics,
    refuse_existing,
    writing,
)
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.config import (
    DataConfig,
    TrainingConfig,
    TranslationConfig,
)
from tests.applications.small_training import fit, make_run


def test_a_prepared_folder_can_be_opened(tmp_path):
    run = make_run(tmp_path / "deep" / "run")
    assert run.task == "translation"
    assert run.checkpoints.is_dir()
    assert [path.name for path in run.path.parent.iterdir()] == ["run"]


def test_a_separator_is_no_path(tmp_path):
    data = {"label_separator": "/", "train": str(tmp_path)}
    assert set(_about({"data": data}, "classification", tmp_path)["inputs"]) == {"data.train"}


def test_an_empty_folder_may_become_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    make_run(tmp_path / "run")


def test_a_run_folder_needs_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"needs a name. Received: \."):
        make_run(".")
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_preparation_that_failed(tmp_path):
    with pytest.raises(KeyError), RunFolder.prepare(tmp_path / "run", "translation") as folder:
        (folder / "config.yaml").write_text("")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_preparation_that_was_killed_is_no_obstacle(tmp_path):
    left = tmp_path / ".run.0123456789abcdef.preparing"
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


ABOUT = {"format": 1, "task": "translation", "package": "1", "keras": "3"}
ABOUT |= {"config": {}, "inputs": {}}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "no run folder"),
        ({}, "is not a run folder: it has no FORMAT file"),
        ({"thesis.txt": ""}, "is not a run folder"),
        ({"config.yaml": ""}, "half-written run folder: its FORMAT file is missing"),
        ({"FORMAT": json.dumps(ABOUT)}, "half-written: it has no config.yaml"),
        ({"FORMAT": '{"format": 1, "task": "translation"}'}, "FORMAT is damaged: `package`"),
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
    with pytest.raises(UserError, match="has no weights.*--resume"):
        load_weights(None, run.best_weights)


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path):
    run = make_run(tmp_path / "run")
    with writing(run), pytest.raises(UserError, match="another process is training"), writing(run):
        pytest.fail("locked twice")
    with writing(run):
        pass


def test_a_run_that_cannot_be_locked_says_why(tmp_path):
    run = make_run(tmp_path / "run")
    (run.path / "LOCK").mkdir()  # as on a read-only disk, nothing can write it
    with pytest.raises(UserError, match="LOCK could not be written: Is a dir"), writing(run):
        pytest.fail("locked")


def test_logs_that_cannot_be_written_are_named(tmp_path):
    (run := make_run(tmp_path / "run")).tensorboard.write_text("no folder")
    with pytest.raises(UserError, match=r"tensorboard could not be written \(File exists\): mend"):
        fit(run, epochs=1, tensorboard=True)


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
    resumed.append({"step": 9, "epoch": 4})  # an epoch without an update
    MetricsLog(path, step=9, epoch=3)
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


def test_a_checkpoint_that_cannot_be_written_says_why_and_what_is_kept(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    checkpoints = Checkpoints(tmp_path)
    for count, kept in enumerate(("There is none yet", "The last good one is kept")):
        with monkeypatch.context() as patched, pytest.raises(UserError) as caught:
            patched.setattr(np, "savez", full)
            checkpoints.save(Checkpoint(count, [np.ones(2)], {}))
        said = f"npz could not be written (No space left on device). {kept}: make room"
        assert said in str(caught.value)
        checkpoints.save(Checkpoint(count, [np.ones(2)], {}))


def test_the_newest_checkpoint_is_that_of_most_steps(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (99_999_998, 99_999_999, 100_000_000):
        checkpoints.save(checkpoint(step))
    assert [path.name for path in checkpoints.paths()] == [
        "step-99999999.npz",
        "step-100000000.npz",
    ]
    assert checkpoints.latest()[0].step == 100_000_000


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
    assert about["format"] == 1 and about["package"] and about["keras"]


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "LOCK"])
def test_training_does_not_write_through_a_link(tmp_path, name):
    run = make_run(tmp_path / "run")
    outside = tmp_path / "outside"
    outside.mkdir()
    part = run.path / name
    if part.exists():
        part.rmdir()
    part.symlink_to(outside)
    with pytest.raises(UserError, match=f"{name} is a symbolic link"), writing(run):
        pytest.fail("held")
    assert not list(outside.iterdir())


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    run = make_run(tmp_path / "run")
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (run.checkpoints / ".partial-00-step-1.npz").write_text("half")
    (run.path / ".partial-00-config.yaml").symlink_to(outside)
    with writing(run):
        assert not list(run.path.rglob(".partial-*"))
    assert outside.read_text() == "mine"


def test_a_removed_checkpoint_is_named(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20):
        checkpoints.save(checkpoint(step))
    checkpoints.paths()[-1].unlink()
    latest, problems = checkpoints.latest()
    assert_same(latest, checkpoint(10))
    assert "step-00000020.npz was removed" in problems[0]
    checkpoints.paths()[-1].unlink()
    with pytest.raises(UserError, match="was removed.*was removed.*No checkpoint is left"):
        checkpoints.latest()


def claims_more(path):
    """An array that says that it has a terabyte."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**38,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("00000.npy", header.getvalue())


def inflates(path):
    np.savez_compressed(path, state=np.zeros(10**7, np.uint8))


def unpickles(path):
    np.savez(path, state=np.array([print], dtype=object))


def no_state(path):
    np.savez(path, state=np.frombuffer(b"[1, 2]", np.uint8))


@pytest.mark.parametrize("make", [claims_more, inflates, unpickles, no_state, os.mkfifo])
def test_a_hostile_checkpoint_is_refused_at_once(tmp_path, make):
    path = tmp_path / "step-00000001.npz"
    make(path)
    with pytest.raises(UserError, match="step-00000001.npz is damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("name", ["FORMAT", "config.yaml", "CHECKSUMS", "metrics.jsonl"])
def test_a_pipe_in_a_run_folder_is_refused_at_once(tmp_path, name):
    path = tmp_path / "run"
    make_run(path)
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(UserError, match=name):
        RunFolder(path)
        read_metrics(path / "metrics.jsonl")


def test_a_configuration_without_end_is_refused_at_once(tmp_path):
    run = make_run(tmp_path / "run")
    with open(run.config, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="config.yaml should have at most 1,048,576 bytes"):
        RunFolder(run.path)


@pytest.fixture
def translation(tmp_path, monkeypatch):
    """A run folder with data of its own, before training, which is not done here."""
    monkeypatch.setattr(tasks, "_fit", lambda *_, on_start: on_start() or "trained")
    (tmp_path / "train.tsv").write_text("a\tb\n")
    config = TranslationConfig(
        data=DataConfig(train=str(tmp_path / "train.tsv"), dev=str(tmp_path / "train.tsv")),
        training=TrainingConfig(learning_rate=0.01),
    )
    with RunFolder.prepare(tmp_path / "run", "translation") as folder:
        save_config(config, folder / "config.yaml")
        (folder / "preprocessor.json").write_text("{}")
    return RunFolder(tmp_path / "run")


def resumed(run, *overrides, accept=False):
    config = load_config(TranslationConfig, [run.config], overrides)
    return tasks.resume_task(Translator, config, run.path, accept)


def test_an_untouched_run_goes_on(translation):
    assert resumed(translation) == "trained"
    assert resumed(translation, "--training.epochs=77") == "trained"
    assert resumed(RunFolder(translation.path)) == "trained"
    assert load_config(TranslationConfig, [translation.config]).training.epochs == 77


def test_other_data_are_named_and_recorded_once_accepted(translation, tmp_path):
    (tmp_path / "train.tsv").write_text("a\tc\n")
    with pytest.raises(UserError, match="data.train: the contents of .* are others.*accept-ch"):
        resumed(translation)
    assert resumed(translation, accept=True) == "trained"
    assert resumed(translation) == "trained"
    record = json.loads((translation.path / "FORMAT").read_text())["accepted"]
    assert len(record) == 1 and len(record[0]["changes"]) == 2


ABSENT = object()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("accepted", 7, "`accepted` is not what a run has there. Received: 7"),
        ("accepted", [{"after": "x", "changes": 7}], "`accepted` is not"),
        ("inputs", {"data.train": ["/", 7]}, "`inputs` is not"),
        ("inputs", {"data.train": ["/", "00"]}, "'data.train' is '/', and its `config` d"),
        ("inputs", {"x" * 10**5: ["/dev/zero", "00"]}, "'xxxx.*its `config` does not"),
        ("given", [1], "`given` is not"),
        ("package", ["0"], "`package` is not"),
        ("keras", None, "`keras` is not"),
        ("keras", ABSENT, "`keras` is not what a run has there. Received: None"),
        ("config", 1e308, "`config` is not"),
        ("task", "summarization", "is a run of task 'summarization'. Expected: translation"),
    ],
)
def test_a_format_from_elsewhere_is_checked_field_by_field(translation, field, value, message):
    about = json.loads((translation.path / "FORMAT").read_text()) | {field: value}
    if value is ABSENT:
        del about[field]
    (translation.path / "FORMAT").write_text(json.dumps(about))
    config = load_config(TranslationConfig, [translation.config])
    with pytest.raises(UserError, match=message) as caught:
        tasks.resume_task(Translator, config, translation.path, True)
    assert len(str(caught.value)) < 600


def test_a_folder_of_data_that_is_none_is_refused_at_once(translation, tmp_path, monkeypatch):
    """A configuration from elsewhere may name the root of the file system."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text("")
    whole = checksum(folder)
    with monkeypatch.context() as patch:
        patch.setitem(MOST_READ, "files", 2)
        with pytest.raises(UserError, match="folder has more than 2 files"):
            checksum(folder)
    os.mkfifo(folder / "pipe")
    (folder / "device").symlink_to("/dev/zero")
    assert checksum(folder) == whole
    with open(folder / "d", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match="folder has more than the 68,719,476,736 bytes"):
        checksum(folder)


def test_another_version_is_named(translation):
    about = json.loads((translation.path / "FORMAT").read_text())
    about["package"] = "0.1.7"
    (translation.path / "FORMAT").write_text(json.dumps(about))
    with pytest.raises(UserError, match="package is .*, and was 0.1.7"):
        resumed(RunFolder(translation.path))
    assert resumed(translation, accept=True) == "trained"


def test_an_edited_configuration_is_refused_by_key(translation):
    text = translation.config.read_text()
    translation.config.write_text(text.replace("learning_rate: 0.01", "learning_rate: 0.5"))
    with pytest.raises(UserError, match="config.yaml was cut or edited .*: training.learning_rate"):
        RunFolder(translation.path)
    with pytest.raises(UserError, match="cannot be continued with another training.learning_rate"):
        resumed(translation, accept=True)
    translation.config.write_text("# a comment\n" + text)
    RunFolder(translation.path)


def test_an_edited_key_that_hangs_on_nothing_can_be_accepted(translation):
    text = translation.config.read_text()
    translation.config.write_text(text.replace("beam_size: 5", "beam_size: 7"))
    assert resumed(translation, accept=True) == "trained"
    assert (
        load_config(TranslationConfig, [RunFolder(translation.path).config]).decoding.beam_size == 7
    )


def test_every_cut_of_a_configuration_is_refused(translation):
    text = translation.config.read_text()
    for line in range(0, text.count("\n"), 7):
        translation.config.write_text("\n".join(text.split("\n")[:line]))
        with pytest.raises(UserError, match="config.yaml was cut or edited"):
            RunFolder(translation.path)


def test_a_changed_vocabulary_is_refused(translation):
    translation.verify_parts()
    (translation.path / "preprocessor.json").write_text("{ }")
    with pytest.raises(UserError, match="preprocessor.json is damaged or was changed"):
        translation.verify_parts()
