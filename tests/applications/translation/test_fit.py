"""Training a translator from Python: what `fit` takes, `compile`, runs, and what is refused."""

import sys
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import BahdanauAttention
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from keras_attention.applications.translation import (
    RNNSearch,
    TrainingConfig,
    Transformer,
    Translator,
)
from keras_attention.losses import MaskedSparseCategoricalCrossentropy
from tests.applications.commands import assert_same_training
from tests.applications.small_tasks import Column
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES, make_preprocessor

# Each task trains for a few steps: one test traces them.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
SOURCES, TARGETS = SOURCE_LINES * 2, TARGET_LINES[::-1] * 2
COUNT = len(SOURCES)


@pytest.fixture(scope="module")
def preprocessor():
    return make_preprocessor("words")


def make_task(preprocessor, **compile_with):
    """A translator with the same new weights each time, which `fit` does not change."""
    keras.utils.set_random_seed(2)
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    network = Transformer(*sizes, embedding_size=6, layers=1, feed_forward_size=8, heads=2)
    task = Translator(network, preprocessor, search={"max_length": 4}, label_smoothing=0.0)
    task.compile(**{"optimizer": keras.optimizers.SGD(0.0), **compile_with})
    return task


@pytest.fixture(scope="module")
def still(preprocessor):
    return make_task(preprocessor)


def figures(task, *data, **options):
    history = task.fit(*data, **{"batch_size": COUNT, "verbose": 0, **options}).history
    return {name: values[-1] for name, values in history.items()}


def mean_loss(task, sources, targets):
    """The mean negative log-likelihood of a token, from the logits."""
    inputs, labels = task.preprocessor(sources, y=targets)
    logits = np.asarray(task.backbone(inputs), np.float64)
    each = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, labels[..., None], 2)[..., 0]
    return each[labels > 0].mean()


@pytest.mark.slow
def test_strings_of_every_kind_train_alike(still):
    expected = pytest.approx(mean_loss(still, SOURCES, TARGETS), rel=1e-5)
    batches = tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS)).batch(COUNT)
    for data in (
        (SOURCES, TARGETS),
        (tuple(SOURCES), np.array(TARGETS, object)),
        (np.array(SOURCES), np.array([target.encode() for target in TARGETS])),
        (Column(*SOURCES), Column(*TARGETS)),
        (tf.constant(SOURCES), tf.constant(TARGETS)),
        (list(zip(SOURCES, TARGETS, strict=True)),),
        (batches,),
    ):
        size = {"batch_size": None if data[0] is batches else COUNT}
        assert figures(still, *data, **size)["loss"] == expected
        assert still.evaluate(*data, **size, verbose=0) == expected


@pytest.mark.slow
def test_some_examples_may_be_held_out_or_weighted(still):
    most, rest = (SOURCES[:7], TARGETS[:7]), (SOURCES[7:], TARGETS[7:])
    expected = pytest.approx((mean_loss(still, *most), mean_loss(still, *rest)), rel=1e-5)
    split = figures(still, SOURCES, TARGETS, validation_split=0.3)
    given = figures(still, *most, validation_data=rest)
    dataset = tf.data.Dataset.from_tensor_slices(rest).batch(3)
    assert (split["loss"], split["val_loss"]) == expected
    assert (given["loss"], given["val_loss"]) == expected
    batches = figures(still, *most, validation_data=dataset)
    assert batches["val_loss"] == pytest.approx(split["val_loss"], rel=0.02)  # mean of batches
    weights = [1.0] * 7 + [0.0] * 3
    for each in (weights, np.array(weights)[:, None]):
        weighted = figures(still, SOURCES, TARGETS, sample_weight=each)
        assert weighted["loss"] == pytest.approx(given["loss"], rel=1e-5)
    held_out = (SOURCES, TARGETS, [0.0] * 7 + [1.0] * 3)  # with weights, and training without
    judged = figures(still, *most, validation_data=held_out)
    assert judged["val_loss"] == pytest.approx(given["val_loss"], rel=1e-5)


def test_the_users_own_loss_and_metrics_leave_padding_out(preprocessor, still):
    """A metric wants logits, so that the loss which makes them itself gives way."""
    own = make_task(
        preprocessor,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["sparse_categorical_accuracy"],
    )
    measured = figures(own, SOURCES, TARGETS)
    assert measured["loss"] == pytest.approx(mean_loss(own, SOURCES, TARGETS), rel=1e-5)
    inputs, labels = preprocessor(SOURCES, y=TARGETS)
    right = np.asarray(own.backbone(inputs)).argmax(-1) == labels
    assert 0 < right[labels > 0].mean() != right.mean()
    accuracy = pytest.approx(right[labels > 0].mean())
    assert measured["sparse_categorical_accuracy"] == accuracy
    assert own(inputs).shape[-1] == preprocessor.target_vocabulary_size
    smoothed = make_task(preprocessor, loss=MaskedSparseCategoricalCrossentropy(0.2))
    with_metric = make_task(
        preprocessor, loss=MaskedSparseCategoricalCrossentropy(0.2), metrics=["accuracy"]
    )
    losses = [figures(each, SOURCES, TARGETS)["loss"] for each in (smoothed, with_metric)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(measured["loss"], rel=1e-4)


def test_weighted_metrics_count_tokens_by_the_weights_of_their_texts(preprocessor, still):
    own = make_task(preprocessor, weighted_metrics=["sparse_categorical_accuracy"])
    weights = np.arange(COUNT) % 3
    measured = figures(own, SOURCES, TARGETS, sample_weight=weights)
    inputs, labels = preprocessor(SOURCES, y=TARGETS)
    right = np.asarray(own.backbone(inputs)).argmax(-1) == labels
    expected = np.average(right, weights=(labels > 0) * weights[:, None])
    assert measured["sparse_categorical_accuracy"] == pytest.approx(expected)
    assert expected != pytest.approx(right[labels > 0].mean())


def test_float16_scales_the_loss(preprocessor):
    """Gradients of 1e-8 are 0 in float16."""
    keras.utils.set_random_seed(2)
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    options = {"embedding_size": 6, "layers": 1, "feed_forward_size": 8, "heads": 2}
    task = Translator(Transformer(*sizes, **options, dtype="mixed_float16"), preprocessor)
    loss = task.default_loss()
    task.compile(keras.optimizers.SGD(1e6), loss=lambda *given: 1e-7 * loss(*given))
    assert isinstance(task.optimizer, keras.optimizers.LossScaleOptimizer)
    before = task.backbone.get_weights()
    task.fit(SOURCES, TARGETS, batch_size=COUNT, verbose=0)
    after = task.backbone.get_weights()
    assert any(np.any(new != old) for new, old in zip(after, before, strict=True))
    task.compile("sgd", auto_scale_loss=False)
    assert not isinstance(task.optimizer, keras.optimizers.LossScaleOptimizer)


def test_predict_wants_targets_and_says_so(still):
    with pytest.raises(ValueError, match=r"`translate` writes new ones. Received: x=\["):
        still.predict(SOURCES[:2], verbose=0)
    assert still.predict((SOURCES[:2], TARGETS[:2]), verbose=0).shape[0] == 2


@pytest.mark.slow
def test_it_learns_with_swapped_parts_and_calls_the_users_callbacks(
    preprocessor, traced, monkeypatch
):
    """All its steps are traced once."""
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    cells = [keras.layers.LSTMCell(12), keras.layers.GRUCell(12)]
    network = RNNSearch(
        *sizes,
        embedding_size=12,
        units=12,
        attention=BahdanauAttention(9),
        cell=keras.layers.StackedRNNCells(cells),
    )
    task = Translator(network, preprocessor)
    task.compile(keras.optimizers.Adam(0.05))
    seen, traces, compute_loss = [], [], Translator.compute_loss
    monkeypatch.setattr(
        Translator,
        "compute_loss",
        lambda self, *given, **named: traces.append(1) or compute_loss(self, *given, **named),
    )
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    stop = keras.callbacks.EarlyStopping("loss", min_delta=10.0, patience=11)
    history = task.fit(
        *(SOURCE_LINES, SOURCE_LINES),
        epochs=30,
        batch_size=5,
        verbose=0,
        callbacks=[callback, stop],
    )
    assert len(seen) == len(history.history["loss"]) == 12
    assert len(traces) == 1
    assert history.history["loss"][-1] < 0.6 * history.history["loss"][0]
    cell = network.decoder.cell.cells[0]
    assert any(weight is cell.kernel for weight in task.trainable_weights)


@pytest.fixture(scope="module")
def run(module_traced_nowhere, preprocessor, tmp_path_factory):
    """A run of two epochs that Python trained at once."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    make_task(preprocessor).fit(SOURCES, TARGETS, run=path, epochs=2, **IN_A_RUN)
    return path


IN_A_RUN = {"validation_split": 0.2, "batch_size": 4, "seed": 3}
ONE_STEP = {**IN_A_RUN, "batch_size": COUNT}  # an epoch


@pytest.mark.slow
def test_a_run_goes_on_where_it_ended(preprocessor, run, tmp_path):
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    parts = tmp_path / "parts"
    for epochs, callbacks in ((1, [callback]), (2, callback)):
        task = make_task(preprocessor)
        outcome = task.fit(
            SOURCES, TARGETS, run=parts, epochs=epochs, callbacks=callbacks, **IN_A_RUN
        )
        assert outcome.epoch == epochs
    assert seen == [0, 1]
    assert_same_training(run, parts)


@pytest.mark.slow
def test_a_task_that_a_run_trained_is_saved_and_trains_another_run(
    preprocessor, tmp_path, traced_nowhere
):
    """`training` says how many epochs; its schedule and the count of tokens stay with the task."""
    task, training = make_task(preprocessor), TrainingConfig(schedule="cosine", epochs=2)
    options = {"training": training, "early_stopping": "loss", "label_smoothing": 0.0, **IN_A_RUN}
    assert task.fit(SOURCES, TARGETS, run=tmp_path / "one", **options).epoch == 2
    task.fit(SOURCES, TARGETS, run=tmp_path / "two", **{**options, "epochs": 1})
    task.save_to_preset(tmp_path / "preset")
    for folder in ("two", "preset"):
        assert Translator.from_preset(tmp_path / folder).backbone.count_params() > 0


@pytest.mark.slow
def test_a_callback_may_end_a_run(preprocessor, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    outcome = make_task(preprocessor).fit(
        SOURCES, TARGETS, run=tmp_path / "run", epochs=3, callbacks=[Stop()], **IN_A_RUN
    )
    assert (outcome.epoch, outcome.reason) == (1, "a callback ended it")


def test_keras_own_callbacks_work_in_a_run(preprocessor, tmp_path, traced_nowhere):
    """They join the number of the epoch to its figures themselves."""
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras", save_best_only=True),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    make_task(preprocessor).fit(
        SOURCES, TARGETS, run=tmp_path / "run", epochs=1, callbacks=callbacks, **ONE_STEP
    )
    assert keras.saving.load_model(tmp_path / "1.keras").backbone.count_params() > 0
    header, first = (tmp_path / "log.csv").read_text().splitlines()
    assert header.split(",").count("epoch") == 1 and first.startswith("0,")
    assert '"epoch": 1' in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.parametrize("judged_by", ["loss", "bleu"])
@pytest.mark.by_default("loss")
def test_a_run_trains_in_silence_and_encodes_each_text_once(
    judged_by, preprocessor, tmp_path, monkeypatch, capfd
):
    kind, encoded = type(preprocessor.source_tokenizer), []
    encode = kind.encode
    monkeypatch.setattr(
        kind, "encode", lambda self, texts: encoded.extend(texts) or encode(self, texts)
    )
    options = {"epochs": 2, "early_stopping": judged_by, "verbose": 0, **ONE_STEP}
    make_task(preprocessor).fit(SOURCES, TARGETS, run=tmp_path / "run", **options)
    searched = Counter(encoded) - Counter([*SOURCES, *TARGETS])  # once more, for all epochs
    assert set(encoded) == {*SOURCES, *TARGETS}
    assert set(searched) < set(SOURCES) and bool(searched) == (judged_by == "bleu")
    assert searched.total() == len(searched)
    assert capfd.readouterr().err == ""


def test_a_run_does_not_go_on_with_other_data(preprocessor, run):
    task = make_task(preprocessor)
    for data, options, message in (
        ((SOURCES, [*TARGETS[1:], "x"]), {}, "the data to train with are others; the data to jud"),
        ((SOURCES, TARGETS), {"sample_weight": [0.5] * COUNT}, "the data to train with are others"),
        (
            (SOURCES[:8], TARGETS[:8]),
            {"validation_data": (["a"], ["b"])},
            "it was: the data to judge",
        ),
    ):
        with pytest.raises(ValueError, match=f"{message}.*give another `run`"):
            task.fit(*data, run=run, epochs=3, **IN_A_RUN, **options)
    outcome = task.fit(np.array(SOURCES), tuple(TARGETS), run=run, epochs=2, **IN_A_RUN)
    assert outcome.epoch == 2


def test_a_run_does_not_go_on_with_another_network(preprocessor, run):
    task = make_task(preprocessor)
    network = Transformer.from_config({**task.backbone.get_config(), "dropout": 0.3})
    with pytest.raises(ValueError, match="has another network than this task: give another `run`"):
        Translator(network, preprocessor).fit(SOURCES, TARGETS, run=run, epochs=3, **IN_A_RUN)


def test_a_run_is_a_preset(preprocessor, run):
    task = Translator.from_preset(run)
    first, last = read_metrics(RunFolder(run).metrics)
    assert last["loss"] < first["loss"]
    # Training is judged by BLEU, and by the loss where that is the same.
    best = max(first, last, key=lambda row: (row["val_bleu"], -row["val_loss"]))
    perplexity = task.perplexity(SOURCES[8:], TARGETS[8:])
    assert np.log(perplexity) == pytest.approx(best["val_loss"], rel=1e-4)
    assert task.preprocessor.get_config() == {
        **preprocessor.get_config(),
        "name": task.preprocessor.name,
    }


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.fit(SOURCES, TARGETS[1:]), "equally many.*Received: 10 in x, 9 in y"),
        (lambda t: t.fit(["a", None], ["b", "c"]), r"`x` should hold strings.*x\[1\]=None"),
        (lambda t: t.fit(["a", "b"], ["b", float("nan")]), r"`y` should hold str.*y\[1\]=nan"),
        (lambda t: t.fit([[4, 5]], [[4, 5]]), r"the preprocessor makes the ids.*x\[0\]=\[4, 5\]"),
        (lambda t: t.fit(np.ones((2, 3)), np.ones((2, 3))), r"the preprocessor makes the ids.*x\["),
        (lambda t: t.fit("a b", "c d"), "sequence of strings.*Received: x='a b'"),
        (lambda t: t.fit({"a": "b"}, ["c"]), "sequence of strings.*Received: x={'a': 'b'}"),
        (lambda t: t.fit(["a", " "], ["b", "c"]), r"should have words. Received: x\[1\]=' '"),
        (lambda t: t.fit([], []), "at least one pair.*Received: none"),
        (lambda t: t.fit(SOURCES), r"as `fit\(x, y\)`, or pairs of strings.*Received: x=\['a man"),
        (lambda t: t.fit([("a", "b", "c")]), r"or pairs of strings.*Received: x=\[\('a', 'b', 'c'"),
        (lambda t: t.fit([1, 2]), "pairs of strings.*Received"),
        (lambda t: t.fit([("a", ["b", "c"])]), r"hold strings only.*y\[0\]=\['b', 'c'\]"),
        (lambda t: t.fit(None), "pairs of strings.*Received"),
        (
            lambda t: t.fit(SOURCES, TARGETS, sample_weight=[1.0]),
            "equally many.*Received: 10 in x, 10 in y, 1 in sample_weight",
        ),
        (lambda t: t.fit(SOURCES, TARGETS, sample_weight=0.5), "10 in y, 1 in sample_weight"),
        (
            lambda t: t.fit(["a", "b"], ["b", "c"], sample_weight=[None, 1.0]),
            r"`sample_weight` should hold numbers. Received: \[None, 1.0\]",
        ),
        (
            lambda t: t.fit(SOURCES[:1], TARGETS[:1], validation_split=0.5),
            "Too few sentence pairs to hold 0.5 of them out: give more, or a development set of "
            "your own. Received: 1",
        ),
        (
            lambda t: t.fit(SOURCES, TARGETS, validation_split=-0.5),
            "`validation_split` must be a finite number .*: -0.5",
        ),
        (lambda t: t.fit(SOURCES, TARGETS, batch_size=0), "`batch_size` must be .*Received: 0"),
        (lambda t: t.fit(SOURCES, TARGETS, steps_per_epoch=0), "`steps_per_epoch` must .*ved: 0"),
        (lambda t: t.evaluate(SOURCES, TARGETS, batch_size=0), "`batch_size` must be .*ved: 0"),
        (lambda t: t.fit(SOURCES, TARGETS, validation_data=(["a"], [None])), r"y\[0\]=None"),
        (lambda t: t.evaluate(SOURCES, TARGETS[1:]), "equally many.*Received: 10 in x, 9 in y"),
    ],
)
def test_what_cannot_be_trained_with_is_refused(still, call, message):
    with pytest.raises(ValueError, match=message):
        call(still)


def test_a_run_that_cannot_be_leaves_no_folder(still, tmp_path, monkeypatch):
    dataset = tf.data.Dataset.from_tensor_slices((SOURCES, TARGETS)).batch(2)
    for data, options, message in (
        ((SOURCES, TARGETS), {}, "give `validation_data` or `validation_split`"),
        ((dataset,), {}, "`run` needs texts.*give lists"),
        ((SOURCES, [None] * 10), {"validation_split": 0.2}, r"Received: y\[0\]=None"),
        (
            (SOURCES, TARGETS),
            {"validation_split": 0.2, "epochs": 0},
            "training.epochs must be at least 1",
        ),
        (
            (SOURCES, TARGETS),
            {"validation_split": 0.2, "workers": 2},
            "keys of a training section.*Received: workers",
        ),
        (
            (SOURCES, TARGETS),
            {"validation_split": 0.2, "training": {"epochs": 2}},
            "`training` should be a .*translation.config.TrainingConfig. Received: .*'epochs': 2",
        ),
        ((SOURCES, TARGETS), {"shuffle": False}, "shuffles its data. Received: shuffle=False"),
        (
            (SOURCES, TARGETS),
            {"validation_data": (SOURCES, TARGETS, [2.0] * COUNT)},
            "judged by figures without weights.*Received: sample_weight=",
        ),
        (
            (SOURCES, TARGETS),
            {"validation_split": 0.2, "tensorboard": False, "steps_per_execution": 7},
            "steps_per_execution must divide the .* batches of an epoch.*Received: 7",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            still.fit(*data, run=tmp_path / "run", **options)
    with pytest.raises(ValueError, match="TensorBoard logs need .* training.tensorboard to false"):
        monkeypatch.setitem(sys.modules, "tensorboard", None)  # as where it is not installed
        still.fit(SOURCES, TARGETS, run=tmp_path / "run", validation_split=0.2)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is not a run folder"):
        options = {"validation_split": 0.2, "tensorboard": False}
        still.fit(SOURCES, TARGETS, run=tmp_path / "file", **options)
