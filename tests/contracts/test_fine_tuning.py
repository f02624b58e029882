"""Fine-tuning of every task: frozen layers, other vocabularies and labels, batches from Python."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.applications.base.network import Network
from keras_attention.applications.classification import Labels, PairClassifier, TextClassifier
from keras_attention.applications.text import WordTokenizer
from keras_attention.applications.translation import (
    Ensemble,
    RNNSearch,
    Transformer,
    TranslationPreprocessor,
    Translator,
)
from tests.contracts.tasks import LABELS, PAIRS, SIZES, TASKS, TEXTS, translator

TOKENIZERS = ("tokenizer", "source_tokenizer", "target_tokenizer")
array = ops.convert_to_numpy


def layers_of(task):
    return task.backbone._flatten_layers(include_self=False)


def state_of(task):
    """What is frozen, layer by layer and weight by weight."""
    weights = [weight.trainable for weight in task.backbone.weights]
    return task.backbone.trainable, [each.trainable for each in layers_of(task)], weights


def read_back(task, folder):
    """The task out of a preset, a file and its configuration."""
    task.save_to_preset(folder / "preset")
    task.save(folder / "task.keras")
    network = type(task.backbone).from_config(task.backbone.get_config())
    return (
        type(task).from_preset(folder / "preset"),
        keras.saving.load_model(folder / "task.keras"),
        type(task)(network, task.preprocessor),
    )


# ---- Frozen layers.


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("Translator", "TextClassifier")
def test_layers_that_are_frozen_stay_frozen(name, tmp_path, traced_nowhere):
    """One layer, those inside of another, and all but one."""
    task = TASKS[name].make()
    with_weights = [each for each in layers_of(task) if each.weights]
    nested = next(each for each in with_weights if any(x.weights for x in each._layers))
    for number, frozen in enumerate(([with_weights[-1]], [nested], with_weights[:2])):
        task.backbone.trainable = True
        for each in frozen:
            each.trainable = False
        expected, count = state_of(task), len(task.trainable_variables)
        assert not all(expected[1]) and count < len(task.backbone.weights)
        (tmp_path / str(number)).mkdir()
        for again in read_back(task, tmp_path / str(number)):
            assert state_of(again) == expected
            assert len(again.trainable_variables) == count

    task.trainable = False
    with_weights[-1].trainable = True
    (tmp_path / "thawed").mkdir()
    for again in read_back(task, tmp_path / "thawed"):
        assert state_of(again) == state_of(task)


def test_what_a_constructor_freezes_may_be_trained_later(tmp_path):
    task = TASKS["AnswerRanker"].make(trainable_vectors=False)
    assert not task.backbone.embedding.trainable
    task.backbone.embedding.trainable = True
    for again in read_back(task, tmp_path):
        assert state_of(again) == state_of(task)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_quantized_and_adapted_tasks_keep_what_is_frozen(tmp_path, traced_nowhere):
    for number, change in enumerate(
        (lambda task: task.quantize("int8"), lambda task: task.backbone.enable_lora(2))
    ):
        task = TASKS["TextClassifier"].make()
        task.backbone.encoder.vectors.embedding.trainable = False
        flags = state_of(task)[:2]
        change(task)
        assert state_of(task)[:2] == flags
        (tmp_path / str(number)).mkdir()
        for again in read_back(task, tmp_path / str(number))[:2]:
            assert state_of(again)[:2] == flags
            assert not again.backbone.encoder.vectors.embedding.weights[0].trainable


def test_a_frozen_network_that_learns_with_lora_is_frozen_again(tmp_path, traced_nowhere):
    task = TASKS["TextClassifier"].make()
    task.backbone.trainable = False
    task.backbone.enable_lora(2)
    assert all("lora_" in each.name for each in task.backbone.trainable_weights)
    for again in read_back(task, tmp_path)[:2]:
        assert not again.backbone.trainable and not again.trainable_variables
        again.backbone.enable_lora(2)
        assert len(again.trainable_variables) == len(task.trainable_variables)


def test_a_file_of_what_was_trained_with_lora_is_read_back(tmp_path, traced_nowhere):
    """Its optimizer has variables for LoRA alone, and the task that is read back has no LoRA."""
    task = TASKS["TextClassifier"].make()
    task.backbone.enable_lora(2)
    task.compile()
    task.fit(TEXTS, LABELS, verbose=0)
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    assert TASKS["TextClassifier"].use(again) == TASKS["TextClassifier"].use(task)
    again.fit(TEXTS, LABELS, verbose=0)
    task.fit(TEXTS, LABELS, verbose=0)


def test_a_file_keeps_the_optimizer_of_what_is_trained(tmp_path, traced_nowhere):
    task = TASKS["TextClassifier"].make()
    task.backbone.encoder.trainable = False
    task.compile()
    task.fit(TEXTS, LABELS, verbose=0)
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    pairs = zip(task.optimizer.variables, again.optimizer.variables, strict=True)
    for own, other in pairs:
        np.testing.assert_array_equal(array(own), array(other))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="a run trains on two backends")
def test_a_run_goes_on_with_its_frozen_layers(tmp_path, traced_nowhere):
    """It ended in "expected 63 variables, received 49"."""
    task = TextClassifier.from_texts(TEXTS, LABELS, units=4)
    training = type(task.config_class().training)(tensorboard=False)
    settings = {"validation_data": (TEXTS, LABELS), "verbose": 0, "training": training}
    task.backbone.encoder.trainable = False
    before = task.backbone.encoder.get_weights()
    task.fit(TEXTS, LABELS, run=tmp_path / "run", epochs=1, **settings)
    again = TextClassifier.from_preset(tmp_path / "run")
    assert state_of(again) == state_of(task)
    outcome = again.fit(TEXTS, LABELS, run=tmp_path / "run", epochs=2, **settings)
    assert outcome.epoch == 2
    for own, other in zip(before, again.backbone.encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)
    again.backbone.encoder.trainable = True
    with pytest.raises(ValueError, match="trains other layers than this task"):
        again.fit(TEXTS, LABELS, run=tmp_path / "run", epochs=3, **settings)


# ---- Other vocabularies.


def in_other_order(preprocessor):
    """A preprocessor that knows the same words by other indices."""
    config = preprocessor.get_config()
    for name in TOKENIZERS:
        if (own := getattr(preprocessor, name, None)) is not None:
            words = own.vocabulary[:3:-1]
            config[name] = WordTokenizer(words, own.lowercase, own.split).get_config()
    return type(preprocessor).from_config(config)


@pytest.mark.parametrize("name", TASKS)
def test_another_order_of_the_same_words_changes_nothing(name, tmp_path, traced_nowhere):
    """Silently, each word had the vector of another where the vocabularies were of one size."""
    task = TASKS[name].make()
    for weight in task.backbone.weights:
        if "float" in str(weight.dtype):
            weight.assign(np.random.normal(scale=0.3, size=weight.shape))
    task.save_to_preset(tmp_path / name)
    again = type(task).from_preset(tmp_path / name, preprocessor=in_other_order(task.preprocessor))
    assert TASKS[name].use(again) == TASKS[name].use(task)
    assert again.preset_folder is None


@pytest.mark.parametrize("network", [*SIZES, "tied", "ensemble"], ids=str)
@pytest.mark.by_default("tied", str(RNNSearch), str(Transformer))
def test_words_that_stay_keep_their_weights(network, tmp_path, capsys, traced_nowhere):
    if network == "ensemble":
        tasks = [translator(), translator(Transformer)]
        task = Translator(Ensemble([each.backbone for each in tasks]), tasks[0].preprocessor)
    else:
        tied = {"tie_embeddings": True} if network == "tied" else {}
        task = translator(RNNSearch if tied else network, **tied)
    for weight in task.backbone.weights:
        weight.assign(np.random.normal(size=weight.shape))
    task.save_to_preset(tmp_path / "preset")
    sources, targets = [*TEXTS, "zebra", "yak"], [each.replace("dog", "cat") for each in TEXTS]
    new = TranslationPreprocessor.adapt(sources, targets[::-1] + ["ox"] * 2, kind="words")
    again = Translator.from_preset(tmp_path / "preset", preprocessor=new)
    assert again.preprocessor is new
    said = capsys.readouterr().err
    for side, count in (("source", 2), ("target", 2)):
        old = getattr(task.preprocessor, f"{side}_tokenizer").vocabulary
        words = getattr(new, f"{side}_tokenizer").vocabulary
        kept = [(old.index(word), words.index(word)) for word in words if word in old]
        assert f"{side.capitalize()} vocabulary: {len(kept)} of {len(words)}" in said
        assert len(words) - len(kept) == count and f"({count} new)" in said
        before, after = np.array(kept).T
        for own, other in zip(parts_of(task.backbone), parts_of(again.backbone), strict=True):
            own, other = ({k: array(v) for k, v in each[side].items()} for each in (own, other))
            for part, axis in (("table", 0), ("kernel", 1), ("bias", 0)):
                if part in own:
                    assert other[part].shape[axis] == len(words)
                    np.testing.assert_array_equal(
                        other[part].take(after, axis), own[part].take(before, axis)
                    )
            # A new word does not have the weights of an old one.
            table = other["table"]
            assert len(np.unique(table.round(6), axis=0)) == len(table)
    for own, other in zip(task.backbone.weights, again.backbone.weights, strict=True):
        if "embedding" not in own.path and "word_logits" not in own.path:
            np.testing.assert_array_equal(array(own), array(other))
    again.fit(sources[:4], targets[:4], verbose=0)


def parts_of(network):
    """The weights of words, by side, of a network or of each one in an ensemble."""
    for each in getattr(network, "networks", [network]):
        target = {"table": each.target_embedding.embeddings, "bias": each.word_logits.bias}
        if not each.tie_embeddings:
            target["kernel"] = each.word_logits.kernel
        yield {"source": {"table": each.source_embedding.embeddings}, "target": target}


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
def test_a_vocabulary_that_a_network_cannot_have_is_refused(tmp_path, traced_nowhere):
    shared = TranslationPreprocessor.adapt(TEXTS, TEXTS, kind="words", shared=True)
    sizes = [shared.source_vocabulary_size] * 2
    task = Translator(Transformer(*sizes, **SIZES[Transformer], share_embeddings=True), shared)
    task.save_to_preset(tmp_path / "shared")
    other = TranslationPreprocessor.adapt(TEXTS, [*TEXTS[1:], "ox"], kind="words")
    with pytest.raises(ValueError, match="share their embeddings.*shared=True"):
        Translator.from_preset(tmp_path / "shared", preprocessor=other)
    both = TranslationPreprocessor.adapt(TEXTS, [*TEXTS[1:], "ox"], kind="words", shared=True)
    again = Translator.from_preset(tmp_path / "shared", preprocessor=both)
    assert again.backbone.source_embedding is again.backbone.target_embedding

    task = translator()
    task.quantize("int8")
    task.save_to_preset(tmp_path / "quantized")
    with pytest.raises(ValueError, match="quantized network keeps its vocabulary"):
        Translator.from_preset(tmp_path / "quantized", preprocessor=other)

    with pytest.raises(ValueError, match="cannot be given another vocabulary_size"):
        Network().with_entries({"vocabulary_size": [0, 1]})


# ---- Other labels.


def test_a_new_head_keeps_the_labels_that_stay(tmp_path, capsys, traced_nowhere):
    task = TextClassifier.from_texts(TEXTS, LABELS, units=4)
    task.fit(TEXTS, LABELS, verbose=0)
    task.save_to_preset(tmp_path / "two")
    again = TextClassifier.from_preset(tmp_path / "two", labels=["mixed", "yes", "no"])
    assert "Labels: 2 of 3 entries keep their weights (1 new)." in capsys.readouterr().err
    assert again.preprocessor.labels.names == ("mixed", "yes", "no")
    inputs = task.preprocessor(TEXTS)
    own, other = array(task.backbone(inputs)), array(again.backbone(inputs))
    assert task.preprocessor.labels.names == ("no", "yes") and other.shape[1] == 3
    np.testing.assert_allclose(other[:, [2, 1]], own, atol=1e-6)
    again.fit(TEXTS, ["mixed", *LABELS[1:]], verbose=0)

    again = TextClassifier.from_preset(tmp_path / "two", labels=Labels("many", ("yes", "no")))
    assert type(again.loss) is keras.losses.BinaryCrossentropy
    assert "Labels: 0 of 2 entries keep their weights (2 new)." in capsys.readouterr().err
    again.fit(TEXTS, [(each,) for each in LABELS], verbose=0)
    again.save_to_preset(tmp_path / "many")
    again = TextClassifier.from_preset(tmp_path / "many", labels=["no", "a"])
    assert again.preprocessor.labels == Labels("many", ("no", "a"))


def test_numbers_and_pairs_get_a_new_head_too(tmp_path, traced_nowhere):
    numbers = TextClassifier.from_texts(TEXTS, [float(i) for i in range(12)], units=4)
    numbers.save_to_preset(tmp_path / "numbers")
    again = TextClassifier.from_preset(tmp_path / "numbers", labels=["low", "high"])
    assert again.preprocessor.labels == Labels("one", ("low", "high"))
    assert again.classify(TEXTS[0]).label in ("low", "high")
    pairs = PairClassifier.from_texts(PAIRS, LABELS, units=4)
    pairs.save_to_preset(tmp_path / "pairs")
    again = PairClassifier.from_preset(tmp_path / "pairs", labels=["yes", "no", 3])
    again.fit(PAIRS, [3, *LABELS[1:]], verbose=0)
    same = PairClassifier.from_preset(tmp_path / "pairs", labels=["no", "yes"])
    found = (each.classify(PAIRS[0]).probabilities for each in (same, pairs))
    assert next(found) == next(found)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("yes", "list of strings .* labels='yes'"),
        (3, "list of strings .* labels=3"),
        (["yes"], "at least two"),
        ([], "at least two"),
        (["yes", "yes"], "each once"),
        ([1, "1"], "each once"),
        ([0.5, 1.0], "strings or whole numbers"),
    ],
)
def test_labels_that_are_none_are_refused(labels, message, two_labels):
    with pytest.raises(ValueError, match=message):
        TextClassifier.from_preset(two_labels, labels=labels)


def test_a_misspelt_argument_of_a_preset_is_known(two_labels):
    with pytest.raises(ValueError, match="Did you mean 'labels'"):
        TextClassifier.from_preset(two_labels, lables=["yes", "no"])


@pytest.fixture(scope="module")
def two_labels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels") / "two"
    TextClassifier.from_texts(TEXTS, LABELS, units=4).save_to_preset(folder)
    return folder


# ---- Batches that Python makes.


class Source(keras.utils.PyDataset):
    """Batches of texts, as a user writes them."""

    def __init__(self, batches, **options):
        super().__init__(**options)
        self.batches, self.ends = batches, 0

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]

    def on_epoch_end(self):
        self.ends += 1


def batches_of(name):
    """The data of a task in batches of lists, of which the first two have the same lengths."""
    if name == "AnswerRanker":
        asked, candidates, labels = zip(*TASKS[name].data[0], strict=True)
        rows = [slice(0, 2), slice(2, 4), slice(4, 6)]
        x = [{"question": asked[row], "candidates": list(candidates[row])} for row in rows]
        return [(each, list(labels[row])) for each, row in zip(x, rows, strict=True)]
    x, y = TASKS[name].data
    rows = [slice(0, 4), slice(0, 4), slice(4, 12)]
    return [(x[row], y[row]) for row in rows]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.by_default("Translator")
def test_batches_from_python_are_trained_on(name, traced_nowhere):
    """On TensorFlow, Keras would fix the lengths of the first two batches."""
    task, batches, seen = TASKS[name].make(), batches_of(name), []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: seen.append(1))
    for workers in (1, 2):
        source = Source(batches, workers=workers)
        seen.clear()
        history = task.fit(
            source, epochs=2, validation_data=Source(batches), callbacks=[note], verbose=0
        ).history
        # Keras itself calls it once more on PyTorch.
        assert len(seen) == 6 and source.ends in (2, 3)
        assert np.isfinite([*history["loss"], *history["val_loss"]]).all()
    x = [each for each, _ in batches]
    weighted = [(*each, [1.0] * len(each[1])) for each in batches]
    same = task.evaluate(Source(weighted), verbose=0)
    np.testing.assert_allclose(task.evaluate(Source(batches), verbose=0), same, rtol=1e-5)
    if name in ("AnswerRanker", "TextClassifier", "PairClassifier"):
        found = task.predict(Source([(each,) for each in x]), verbose=0)
        parts = [array(task.backbone(task.preprocessor(each))) for each in x]
        np.testing.assert_allclose(found, np.concatenate(parts), atol=1e-5)

    seen.clear()
    task.fit((each for each in batches), callbacks=[note], verbose=0)
    assert len(seen) == 3
    endless = itertools.cycle(batches)
    task.fit(endless, epochs=2, steps_per_epoch=2, callbacks=[note], verbose=0)
    assert len(seen) == 7


def test_batches_that_are_none_are_refused(traced_nowhere):
    task, batches = TASKS["TextClassifier"].make(), batches_of("TextClassifier")
    with pytest.raises(ValueError, match="gone through once: give `steps_per_epoch`"):
        task.fit(iter(batches), epochs=2)
    with pytest.raises(ValueError, match="`validation_data` should be .*iterator of"):
        task.fit(TEXTS, LABELS, validation_data=iter(batches))
    with pytest.raises(ValueError, match=r"A batch should be `\(x, y\)`"):
        task.fit(Source([each for each, _ in batches]), verbose=0)
    with pytest.raises(ValueError, match="`run` needs texts"):
        task.fit(Source(batches), run="run")
    with pytest.raises(ValueError, match="`run` needs texts"):
        task.fit(iter(batches), run="run")
