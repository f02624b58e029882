"""Training: exact resume, stopping, the learning rate, what is reported, and traces."""

import dataclasses
import errno
import io
import math
import shutil
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.errors import Preempted, TrainingDiverged, UserError
from keras_attention.applications.schema.training import TrainingConfig
from keras_attention.applications.store import files
from keras_attention.applications.training.callbacks import (
    HalveOnPlateau,
    KeepBest,
    SaveCheckpoint,
    TimeLimit,
    training_variables,
)
from keras_attention.applications.training.devices import DistributeConfig
from keras_attention.applications.training.fit import LearningRate, _resume, make_optimizer
from keras_attention.applications.training.judgement import Judge
from keras_attention.applications.training.reporting import Figures, Progress
from keras_attention.applications.training.run_folder import Checkpoints, RunFolder, read_metrics
from keras_attention.distribute import Workers
from tests.applications.small_training import (
    STEPS,
    assert_same_runs,
    batch,
    batches,
    fit,
    make_model,
    make_run,
    saved,
    terminate_at,
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("unbroken") / "run")
    keras.utils.set_random_seed(5)
    _, model = fit(run, schedule="halve", patience=3)
    return run, model


@pytest.fixture(scope="module")
def unbroken(trained):
    return trained[0]


@pytest.fixture
def copied(unbroken, tmp_path):
    """A copy of the unbroken run, which a test may damage or go on with."""
    return RunFolder(shutil.copytree(unbroken.path, tmp_path / "copied"))


@pytest.mark.parametrize("batch", [1, 7, 10])
@pytest.mark.by_default("7")
def test_a_signal_saves_and_the_run_continues_to_the_same_weights(
    unbroken, tmp_path, monkeypatch, batch
):
    run = make_run(tmp_path / "run")
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch, pytest.raises(Preempted, match="ended by SIGTERM") as end:
        patch.setattr(Progress, "on_train_batch_end", terminate_at(batch))
        fit(run, schedule="halve", patience=3)
    assert end.value.exit_status == 143 and signal.getsignal(signal.SIGTERM) is before
    assert f"step-{batch:08d}.npz is written" in str(end.value)
    fit(run, schedule="halve", patience=3)
    assert_same_runs(saved(run), saved(unbroken))


@pytest.mark.parametrize("fail_at", [1, 2, 4])
@pytest.mark.by_default("2")
def test_a_broken_run_continues_to_the_same_weights(unbroken, tmp_path, fail_at):
    run = make_run(tmp_path / "run")
    with pytest.raises(InterruptedError):
        fit(run, {"fail_at": fail_at}, schedule="halve", patience=3)
    outcome, _ = fit(run, schedule="halve", patience=3)
    assert outcome.step == 4 * STEPS
    assert_same_runs(saved(run), saved(unbroken))


def test_stopping_at_an_epoch_and_going_on_is_the_same_as_going_on(unbroken, tmp_path):
    run = make_run(tmp_path / "run")
    for epochs in (2, 4, 4):
        outcome, _ = fit(run, epochs=epochs, schedule="halve", patience=3)
        assert outcome.epoch == epochs
        assert outcome.reason == f"all {epochs} epochs are done"
    assert_same_runs(saved(run), saved(unbroken))


def test_a_finished_run_with_damaged_weights_is_refused(copied):
    files.write_checksums(copied.path)
    copied.best_weights.write_bytes(copied.best_weights.read_bytes()[:-1])
    with pytest.raises(UserError, match="is damaged or was changed"):
        fit(copied, schedule="halve", patience=3)


def test_a_damaged_checkpoint_is_passed_over_to_the_same_weights(unbroken, copied, capsys):
    newest = Checkpoints(copied.checkpoints).paths()[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    copied.best_weights.unlink()  # the last epoch is the best one
    fit(copied, schedule="halve", patience=3)
    assert f"checkpoint {newest} is damaged" in capsys.readouterr().err
    assert_same_runs(saved(copied), saved(unbroken))


def test_the_checkpoint_holds_all_that_training_changes(unbroken):
    _, model = fit(unbroken, schedule="halve", patience=3)  # nothing is left to do
    names = [variable.path for variable in training_variables(model)]
    assert sum("seed_generator" in name for name in names) == 2
    assert sum("momentum" in name for name in names) == len(model.trainable_variables)
    for variable, array in zip(training_variables(model), saved(unbroken)[1], strict=True):
        np.testing.assert_array_equal(np.asarray(variable), array)


def test_another_model_does_not_take_the_checkpoint(unbroken, monkeypatch):
    wider = keras.Sequential([keras.layers.Embedding(13, 6), keras.layers.Dense(13)])
    wider.build((None, None))
    monkeypatch.setattr("tests.applications.small_training.make_model", lambda: wider)
    with pytest.raises(UserError, match="step 20 does not fit the model: expected .* variables"):
        fit(unbroken, schedule="halve")


NAN_LOSS = {"values": (math.nan,)}


def spoilt_batches(spoilt_step):
    """The same batches, with a sample weight that is NaN from one step on."""

    def weighted(start_step):
        def weight(step, data):
            good = tf.cast(step + start_step < spoilt_step, tf.float32)
            return *data, tf.math.divide(good, good) * tf.ones_like(data[1], tf.float32)

        return batches(start_step).enumerate().map(weight)

    return weighted


@pytest.mark.parametrize("where", ["loss", "val_loss"])
def test_a_loss_that_is_no_number_stops_training_and_keeps_the_last_checkpoint(
    unbroken, copied, where, traced_nowhere
):
    if where == "loss":
        message, options = "^loss became nan at step 22", {"batches": spoilt_batches(21)}
    else:
        message, options = "^val_loss became nan at step 25", {"evaluate_options": NAN_LOSS}
    with pytest.raises(TrainingDiverged, match=message) as caught:
        fit(copied, epochs=5, schedule="halve", patience=3, **options)
    assert caught.value.exit_status == 3
    kept = "The last good checkpoint (step-00000020.npz) and the best weights are kept."
    assert kept in str(caught.value)
    assert_same_runs(saved(copied), saved(unbroken))


def test_a_loss_that_is_no_number_in_the_first_epoch_says_that_nothing_is_kept(
    tmp_path, traced_nowhere
):
    run = make_run(tmp_path / "run")
    with pytest.raises(TrainingDiverged, match="^loss became nan at step 3") as caught:
        fit(run, batches=spoilt_batches(2))
    message = str(caught.value)
    assert "There is no checkpoint yet." in message and "kept" not in message
    assert f"into another --output or after deleting {run.path}." in message
    assert not Checkpoints(run.checkpoints).paths() and not run.best_weights.exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: x / 0.0, "the output of layer spoilt became NaN or infinite after 0 batches"),
        # Its value is 0 and its gradient 0 times infinity.
        (lambda x: keras.ops.sqrt(0.0 * x), "the gradient at the input of layer spoilt became"),
    ],
)
def test_the_layer_where_a_value_became_bad_is_named(tmp_path, monkeypatch, spoil, message):
    layers = [keras.layers.Embedding(13, 6), keras.layers.Activation(spoil, name="spoilt")]
    model = keras.Sequential([*layers, keras.layers.Dense(13)])
    model.build((None, None))
    monkeypatch.setattr("tests.applications.small_training.make_model", lambda: model)
    with pytest.raises(TrainingDiverged, match=message) as caught:
        fit(make_run(tmp_path / "run"), check_numerics=True)
    assert "There is no checkpoint yet." in str(caught.value)


@pytest.mark.slow
def test_checking_layers_changes_nothing_else(unbroken, tmp_path):
    run = make_run(tmp_path / "run")
    fit(run, schedule="halve", patience=3, check_numerics=True)
    assert_same_runs(saved(run), saved(unbroken))


@pytest.mark.slow
def test_several_devices_resume_exactly(tmp_path):
    settings = {"distribute": DistributeConfig("mirrored", "CPU:0,CPU:1"), "epochs": 3}
    whole, parts = make_run(tmp_path / "whole"), make_run(tmp_path / "parts")
    fit(whole, **settings)
    with pytest.raises(InterruptedError):
        fit(parts, {"fail_at": 2}, **settings)
    fit(parts, **settings)
    assert_same_runs(saved(whole), saved(parts))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_16_bits_train_and_resume(tmp_path, precision):
    settings = {"precision": precision, "learning_rate": 0.02, "steps_per_execution": 5}
    whole, parts = make_run(tmp_path / "whole"), make_run(tmp_path / "parts")
    fit(whole, **settings)
    fit(parts, epochs=2, **settings)
    _, model = fit(parts, **settings)
    assert model.dtype_policy.name == precision and model.layers[-1].compute_dtype in precision
    assert_same_runs(saved(whole), saved(parts))
    losses = [line["loss"] for line in read_metrics(whole.metrics)]
    assert losses[-1] < losses[0] - 0.05


@pytest.mark.slow
def test_steps_of_one_execution_are_the_same_steps(unbroken, tmp_path):
    run = make_run(tmp_path / "run")
    fit(run, schedule="halve", patience=3, steps_per_execution=STEPS)
    assert_same_runs(saved(run), saved(unbroken))
    with pytest.raises(UserError, match="must divide the 5 batches .* to 4, say. Received: 2"):
        fit(make_run(tmp_path / "other"), steps_per_execution=2)


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_checkpoint(unbroken, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    fit(run, epochs=2, schedule="halve", patience=3)

    def full(file, **arrays):
        file.write(b"the beginning of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="step-00000015.*No space"):
        patch.setattr(np, "savez", full)
        fit(run, schedule="halve", patience=3)
    names = sorted(path.name[:5] for path in run.checkpoints.iterdir())
    assert names == ["NEWES", "step-", "step-"]
    fit(run, schedule="halve", patience=3)
    assert_same_runs(saved(run), saved(unbroken))


def test_training_stops_early_and_keeps_the_best_weights(tmp_path):
    run = make_run(tmp_path / "run")
    values = (3.0, 1.5, 2.0, 1.5, 1.0)  # as good as the best is no improvement
    after = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: after.append(keep.model.get_weights())
    )
    outcome, _ = fit(run, {"values": values}, epochs=9, patience=2, callbacks=[keep])
    assert (outcome.epoch, outcome.best_epoch, outcome.best) == (4, 2, 1.5)
    assert outcome.reason == "no better val_loss in 2 epochs"
    again, _ = fit(run, {"values": values}, epochs=9, patience=2)
    assert (again.epoch, again.best_epoch, again.reason) == (4, 2, outcome.reason)
    for a, b, worse in zip(saved(run)[3], after[1], after[2], strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.any(a != worse)


def test_without_early_stopping_all_epochs_are_trained(tmp_path):
    run = make_run(tmp_path / "run")
    settings = {"early_stopping": "none", "patience": 1, "epochs": 3}
    outcome, _ = fit(run, {"values": (1.0, 2.0, 3.0)}, **settings)
    assert (outcome.epoch, outcome.best_epoch) == (3, 1)


class Counting(keras.callbacks.Callback):
    """A user's callback with a state that resuming needs."""

    epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        assert "val_loss" in logs
        self.epochs += 1

    def get_state(self):
        return {"epochs": self.epochs}

    def set_state(self, state):
        self.epochs = state["epochs"]


def test_the_learning_rate_halves_on_a_plateau_and_the_users_callbacks_go_on(tmp_path):
    run = make_run(tmp_path / "run")
    values = (3.0, 4.0, 4.0, 2.0, 2.0)
    settings = {"schedule": "halve", "halve_after": 2, "learning_rate": 0.5, "patience": 9}
    fit(run, {"values": values[:2]}, epochs=2, callbacks=[Counting()], **settings)
    resumed = Counting()
    fit(run, {"values": values[2:]}, epochs=5, callbacks=[resumed], **settings)
    assert resumed.epochs == 5
    _, model = fit(run, epochs=5, **settings)
    assert float(model.optimizer.learning_rate) == 0.25
    rates = [line["learning_rate"] for line in read_metrics(run.metrics)]
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.slow
def test_time_that_is_over_stops_training_in_mid_epoch(tmp_path, traced_nowhere):
    run = make_run(tmp_path / "run")
    outcome, _ = fit(run, max_minutes=1e-9)
    assert (outcome.epoch, outcome.step) == (1, 1)
    assert outcome.reason == "1e-09 minutes are over"
    again, _ = fit(run, max_minutes=1e-9)
    assert again.step == 1
    longer, _ = fit(run, max_minutes=60, epochs=3)
    assert longer.step == 1 + 2 * STEPS


def test_steps_per_epoch_cuts_a_pass_into_epochs(tmp_path):
    run = make_run(tmp_path / "run")
    outcome, _ = fit(run, steps_per_epoch=2, epochs=3)
    assert [line["step"] for line in read_metrics(run.metrics)] == [2, 4, 6]
    whole = make_run(tmp_path / "whole")
    fit(whole, steps_per_epoch=6, epochs=1)
    assert saved(run)[0] == saved(whole)[0] == outcome.step
    for a, b in zip(saved(run)[1], saved(whole)[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_batches_of_many_shapes_are_traced_once(trained):
    assert trained[1].traces == 1


def test_what_is_reported_each_epoch(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    fit(run, epochs=2, tensorboard=True)
    first, second = read_metrics(run.metrics)
    assert (first["epoch"], second["epoch"], second["step"]) == (1, 2, 10)
    assert (
        first["loss"] > 0
        and first["val_loss"] > 0
        and math.isclose(first["learning_rate"], 1e-3, rel_tol=1e-6)
    )
    tokens = sum(np.count_nonzero(batch(step)[1]) for step in range(STEPS))
    np.testing.assert_allclose(
        first["tokens_per_second"] * first["train_seconds"], tokens, rtol=0.05
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\r" not in captured.err
    lines = [line for line in captured.err.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 2 and lines[1].startswith("epoch 2/2  loss ")
    assert read_summaries(run.tensorboard)["val_loss"] == [
        (5, pytest.approx(first["val_loss"])),
        (10, pytest.approx(second["val_loss"])),
    ]


def read_summaries(folder):
    found = {}
    for path in sorted(folder.iterdir()):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, []).append((event.step, number))
    return found


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "log"])
def test_progress_redraws_on_a_terminal_and_only_there(stream, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr", stream)
    progress = Progress(epochs=3, steps=100)
    progress.on_epoch_begin(1)
    for done in range(100):
        now[0] += 1.0
        progress.on_train_batch_end(done, {"loss": 2.5, "tokens": 1000.0 * (done + 1)})
    progress.on_epoch_end(1, {"loss": 2.5, "step": 200, "tokens_per_second": 1234.5})
    text = stream.getvalue()
    assert text.endswith("epoch 2/3  loss 2.5  step 200  tokens_per_second 1,234  1:40\n")
    if stream.isatty():
        assert text.count("\n") == 1 and text.count("\r") == 101
        assert "epoch 2/3  50/100  loss 2.5000  1,000 tokens/s  0:50 left" in text
    else:
        assert text.count("\n") == 4 and "\r" not in text and "\x1b" not in text


@pytest.mark.parametrize(
    ("decay", "warmup", "expected"),
    [
        ("constant", 4, lambda step: 1.0),
        ("inverse_sqrt", 4, lambda step: math.sqrt(4 / step)),
        ("cosine", 4, lambda step: (1 + math.cos(math.pi * min(1, (step - 4) / 16))) / 2),
        ("cosine", 0, lambda step: (1 + math.cos(math.pi * min(1, step / 20))) / 2),
    ],
)
def test_learning_rate_follows_its_formula(decay, warmup, expected):
    schedule = LearningRate(0.3, decay, warmup, total_steps=20)
    for step in range(1, 25):
        factor = step / warmup if step < warmup else expected(step)
        np.testing.assert_allclose(schedule(step - 1), 0.3 * factor, rtol=1e-5, atol=1e-7)
    again = LearningRate.from_config(schedule.get_config())
    assert again.get_config() == schedule.get_config()


def test_the_optimizer_is_as_configured():
    settings = {"optimizer": "sgd", "learning_rate": 0.5, "clip_norm": 2.0}
    optimizer = make_optimizer(TrainingConfig(**settings), 7)
    weight = keras.Variable([0.0, 0.0])
    optimizer.apply([keras.ops.convert_to_tensor([6.0, 8.0])], [weight])
    np.testing.assert_allclose(weight, [-0.6, -0.8], rtol=1e-6)  # cut from norm 10 to 2
    cosine = make_optimizer(TrainingConfig(schedule="cosine", epochs=3), 7)
    assert cosine.get_config()["learning_rate"]["config"]["total_steps"] == 21
    every_third = TrainingConfig(
        optimizer="sgd", schedule="cosine", epochs=2, warmup_steps=2, accumulate=3, clip_norm=None
    )
    rates, optimizer, weight = [], make_optimizer(every_third, 12), keras.Variable([0.0])
    for _ in range(24):  # batches, three of which are an update: 8 updates
        before = float(weight.numpy()[0])
        optimizer.apply([keras.ops.convert_to_tensor([1.0])], [weight])
        rates += [before - float(weight.numpy()[0])] if before != float(weight.numpy()[0]) else []
    of_updates = LearningRate(every_third.learning_rate, "cosine", 2, 8)
    np.testing.assert_allclose(rates, [of_updates(step) for step in range(7)], rtol=1e-4)
    free = make_optimizer(TrainingConfig(optimizer="adam", clip_norm=None), 7)
    assert free.global_clipnorm is None and free.beta_2 == keras.optimizers.Adam().beta_2
    assert make_optimizer(TrainingConfig(optimizer="adam", beta_2=0.98), 7).beta_2 == 0.98


@pytest.fixture(scope="module")
def saver(unbroken):
    """What restores checkpoints of the unbroken run, into a model of its own."""
    model = make_model()
    model.compile(make_optimizer(TrainingConfig(schedule="halve"), STEPS))
    model.optimizer.build(model.trainable_variables)
    best = KeepBest(None, Judge(), 3)
    stateful = {
        "best": best,
        "time": TimeLimit(None, Workers()),
        "figures": Figures(),
        "halve": HalveOnPlateau(best, 1),
    }
    saver = SaveCheckpoint(Checkpoints(unbroken.checkpoints), stateful, None, 64, STEPS)
    return saver, model


OF_BEST = {"figures": {"val_loss": 0.1}, "wait": 0, "epoch": 1, "step": 5}
OF_BEST |= {"measured_on": "", "told": False}
BEST = {"best": OF_BEST}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("within", 10**9),
        ("within", -1),
        ("within", "3"),
        ("epoch", None),
        ("epoch", True),
        ("batches", 1.5),
        ("metrics", 10**6),
        ("callbacks", []),
        ("callbacks", {"best": {**OF_BEST, "figures": {"val_loss": "0.1"}}}),
        ("callbacks", {"best": {**OF_BEST, "figures": None}}),
        ("callbacks", {"best": {**OF_BEST, "wait": None}}),
        ("callbacks", {"best": {**OF_BEST, "measured_on": 7}}),
        ("callbacks", {"best": {"best": "0.1", "wait": 0, "epoch": 1}}),
        ("callbacks", {"best": {"best": None, "wait": 0, "epoch": 1}}),
        ("callbacks", {}),
        ("callbacks", {**BEST, "time": {"seconds": float("inf")}}),
        ("callbacks", {**BEST, "time": 7}),
    ],
)
def test_a_checkpoint_whose_state_cannot_be_is_refused(saver, key, value):
    saver, model = saver
    checkpoint, _ = saver.checkpoints.latest()
    assert saver.restore(model, checkpoint) == 4
    state = {**checkpoint.state, key: value}
    with pytest.raises(UserError, match=f"step {checkpoint.step} is damaged: it holds .* as "):
        saver.restore(model, dataclasses.replace(checkpoint, state=state))


def test_a_checkpoint_of_longer_epochs_is_not_called_damaged(saver):
    saver, model = saver
    checkpoint, _ = saver.checkpoints.latest()
    longer = dataclasses.replace(checkpoint, state={**checkpoint.state, "within": STEPS})
    with pytest.raises(UserError, match="after 5 batches of .* Received: 5 batches an epoch"):
        saver.restore(model, longer)


def test_a_checkpoint_that_is_gone_is_told_of_once(saver, capsys):
    saver, model = saver
    with open(saver.checkpoints.folder / "NEWEST", "a") as listed:
        listed.write("step-99999999.npz\n")
    for told in (1, 0):
        assert _resume(saver, model)[0] == 4
        assert capsys.readouterr().err.count("step-99999999.npz was removed") == told
