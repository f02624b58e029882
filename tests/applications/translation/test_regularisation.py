"""What a translator trains with against overfitting: pieces drawn at random."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention.applications.base.train import average_tasks
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.text import SentencePieceTokenizer
from keras_attention.applications.translation import (
    Transformer,
    TranslationPreprocessor,
    Translator,
)
from keras_attention.applications.translation.config import (
    TokenizerConfig,
    TrainingConfig,
    TranslationConfig,
)
from keras_attention.losses import (
    MaskedSparseCategoricalCrossentropy,
)
from tests.applications.commands import assert_same_training
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES

LINES = [*SOURCE_LINES, *TARGET_LINES] * 5


COUNT = len(SOURCE_LINES)


def make_task(variants=1, width=6, **options):
    keras.utils.set_random_seed(3)
    preprocessor = TranslationPreprocessor.adapt(
        SOURCE_LINES * 5, TARGET_LINES * 5, vocabulary_size=60, shared=True, variants=variants
    )
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    network = Transformer(*sizes, width, layers=1, feed_forward_size=8, heads=2, dropout=0.5)
    search = {"max_length": 4}
    return Translator(network, preprocessor, search, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task(variants=0), "`variants` .* whole number from 1 to 1000. Received: 0"),
        (lambda: make_task(variants=1001), "whole number from 1 to 1000. Received: 1001"),
        (lambda: make_task(variants=2.5), "whole number from 1 to 1000. Received: 2.5"),
        (lambda: make_task(variants=True), "whole number from 1 to 1000. Received: True"),
        (lambda: TokenizerConfig(variants=2.5), r"tokenizer.variants must.*Received: 2.5"),
        (lambda: TokenizerConfig(variants=1001), r"tokenizer.variants must.*Received: 1001"),
        (lambda: TokenizerConfig(sampling=1.5), r"tokenizer.sampling must.*Received: 1.5"),
        (lambda: adapt(sampling=-0.1), "^`sampling` must be a finite number from 0 to 1. Received"),
        (lambda: adapt(vocabulary_size=3), "^`vocabulary_size` must be at least 5. Received: 3"),
        (lambda: adapt(min_count=2), "^`min_count` goes with `kind` words only"),
        (lambda: adapt(kind="words", model_type="bpe"), "^`model_type` goes with kind='sentencep"),
    ],
)
def test_what_is_out_of_range_is_refused_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def adapt(**options):
    return TranslationPreprocessor.adapt(SOURCE_LINES, TARGET_LINES, **options)


def test_a_task_that_is_not_compiled_gives_logits():
    task = make_task(compile=False)
    inputs, _ = task.preprocessor(SOURCE_LINES, y=TARGET_LINES)
    size = task.preprocessor.target_vocabulary_size
    assert task(inputs, training=True).shape[::2] == (COUNT, size)


def test_a_loss_of_another_sum_or_padding_takes_the_logits():
    task = make_task()
    inputs, labels = task.preprocessor(SOURCE_LINES, y=TARGET_LINES)
    for options in ({"reduction": "sum"}, {"ignore_index": None}):
        loss = MaskedSparseCategoricalCrossentropy(0.2, **options)
        task.compile(loss=loss)
        logits = task(inputs, training=True)
        received = ops.convert_to_numpy(task.compute_loss(inputs, labels, logits))
        np.testing.assert_allclose(received, ops.convert_to_numpy(loss(labels, logits)), rtol=1e-5)


IN_A_RUN = {"validation_split": 0.2, "batch_size": 2, "accumulate": 2, "verbose": 0}


def fit(path, epochs, **options):
    task = make_task(variants=3, label_smoothing=0.2)
    data = SOURCE_LINES * 2, TARGET_LINES * 2
    return task.fit(*data, run=path, epochs=epochs, **IN_A_RUN, **options)


def test_a_run_has_no_other_loss_than_its_task(tmp_path):
    message = (
        "task's own, label_smoothing=0.2: give it to Translator.*Received: label_smoothing=0.0"
    )
    for options in ({"label_smoothing": 0.0}, {"training": TrainingConfig(label_smoothing=0.0)}):
        with pytest.raises(ValueError, match=message):
            fit(tmp_path / "none", 1, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_has_the_loss_of_its_task_and_goes_on_exactly(tmp_path):
    assert fit(tmp_path / "whole", 3).step == 6  # 8 pairs, 4 batches an epoch, 2 of them an update
    config = load_config(TranslationConfig, [tmp_path / "whole" / "config.yaml"]).training
    assert config.label_smoothing == 0.2
    fit(tmp_path / "parts", 1, label_smoothing=0.2)
    fit(tmp_path / "parts", 3)
    assert_same_training(tmp_path / "whole", tmp_path / "parts")
    task = make_task(variants=2, label_smoothing=0.2)
    with pytest.raises(ValueError, match="another preprocessor than this task"):
        task.fit(SOURCE_LINES * 2, TARGET_LINES * 2, run=tmp_path / "whole", **IN_A_RUN)


@pytest.mark.slow
def test_what_only_training_reads_does_not_keep_networks_apart(tmp_path):
    tasks = make_task(), make_task(variants=3)
    assert Translator.ensemble(tasks).backbone.count_params() > 0
    for name, task in zip("ab", tasks, strict=True):
        task.save_to_preset(tmp_path / name)
    average_tasks(Translator, [tmp_path / "a", tmp_path / "b"], tmp_path / "mean")


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sampled_pieces_spell_the_text_and_depend_on_the_seed(model_type):
    tokenizer = SentencePieceTokenizer.train(LINES, 60, model_type)
    found = [tokenizer.sample(LINES, 0.3, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    plain = tokenizer.encode(LINES)
    assert found[0] != plain and tokenizer.decode(found[0]) == tokenizer.decode(plain)
    with pytest.raises(ValueError, match="Received: alpha=1.5"):
        tokenizer.sample(LINES, 1.5, 0)
    counts = [sum(map(len, tokenizer.sample(LINES, alpha, 1))) for alpha in (0.0, 0.3, 1.0)]
    if model_type == "bpe":
        letters = sum(len(line.replace(" ", "")) + len(line.split()) for line in LINES)
        assert sum(map(len, plain)) == counts[0] < counts[1] < counts[2] == letters
    else:
        assert sum(map(len, plain)) < counts[2] < counts[1] < counts[0]


def test_each_pair_is_there_in_all_variants(traced_nowhere):
    task = make_task(variants=3)
    corpus = task.read_columns(SOURCE_LINES, TARGET_LINES, np.arange(len(SOURCE_LINES)) + 1.0)
    plain, encoded = task.encode(corpus), task.encode_to_train(corpus)
    assert len(encoded) == len(plain) == COUNT and len(encoded["source"]) == 3 * COUNT
    assert list(encoded.weights) == list(plain.weights) * 3
    for side, tokenizer in zip(("source", "target"), task.preprocessor.tokenizers, strict=True):
        texts = tokenizer.decode(list(encoded[side]))
        assert texts == tokenizer.decode(list(plain[side])) * 3
        pieces = [tuple(row) for row in encoded[side]]
        assert len(set(pieces)) > len(set(texts))
    again = task.encode_to_train(corpus)
    assert again["source"] == encoded["source"]
    for shuffle in (True, False):
        batches = task.make_batches(encoded, 2, shuffle=shuffle)
        for epoch in range(4):  # each pair once, with its weight, in the way of the epoch
            rows = [(each, *row) for batch in batches.epoch(epoch) for each, *row in rows_of(batch)]
            ways = range(epoch % 3 * COUNT, (epoch % 3 + 1) * COUNT)
            columns = encoded.weights, encoded["source"], encoded["target"]
            assert sorted(rows) == sorted(tuple(each[row] for each in columns) for row in ways)
        again = task.make_batches(encoded, 2, shuffle=shuffle).stream(len(batches) + 1)
        inputs, *_ = next(again)
        np.testing.assert_array_equal(inputs["source"], batches.batch(1, 1)[0]["source"])
    task.fit(SOURCE_LINES, TARGET_LINES, batch_size=3, epochs=1, verbose=0, shuffle=False)
    assert task.optimizer.iterations == 2  # the steps of the plain pairs
    dataset = tf.data.Dataset.from_tensor_slices((SOURCE_LINES, TARGET_LINES)).batch(2)
    with pytest.raises(ValueError, match="give lists, or .*variants=1. Received: .*variants=3"):
        task.fit(dataset)


def rows_of(batch):
    inputs, labels, weights = batch
    for source, target, weight in zip(inputs["source"], labels, weights, strict=True):
        if weight:
            yield weight, [each for each in source if each], [each for each in target if each > 3]


@pytest.mark.parametrize("on_too_long", ["skip", "truncate"])
def test_pieces_beyond_the_longest_length_are_the_likeliest_ones(on_too_long):
    task = make_task(variants=4)
    corpus = task.read_columns(SOURCE_LINES, TARGET_LINES, np.arange(COUNT) + 1.0)
    lengths = [len(ids) for ids in task.encode(corpus)["target"]]
    limit = sorted(lengths)[-2]
    corpus = dataclasses.replace(corpus, max_length=limit).handled(too_long=on_too_long)
    plain, encoded = task.encode(corpus), task.encode_to_train(corpus)
    assert len(plain) == COUNT - (on_too_long == "skip") and len(encoded) == len(plain)
    assert list(encoded.weights) == list(plain.weights) * 4
    assert list(encoded.rows) == list(plain.rows) * 4
    for side, tokenizer in zip(("source", "target"), task.preprocessor.tokenizers, strict=True):
        ids = list(encoded[side])
        assert max(map(len, ids)) <= limit
        assert tokenizer.decode(ids) == tokenizer.decode(list(plain[side])) * 4


def test_words_have_no_variants():
    with pytest.raises(ValueError, match="`variants` goes with `kind` sentencepiece only"):
        TranslationPreprocessor.adapt(SOURCE_LINES, TARGET_LINES, kind="words", variants=2)
    with pytest.raises(
        UserError, match=r"tokenizer\.variants goes with tokenizer\.kind sentencepiece"
    ):
        load_config(TranslationConfig, [], ["--tokenizer.kind=words", "--tokenizer.variants=2"])
