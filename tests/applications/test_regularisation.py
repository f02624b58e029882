"""What a translator trains with against overfitting: R-Drop, and pieces drawn at random."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.training.config import load_config
from keras_attention.applications.translation import (
    Transformer,
    TranslationPreprocessor,
    Translator,
)
from keras_attention.applications.translation.config import TranslationConfig
from keras_attention.losses import masked_linear_crossentropy
from keras_attention.text import SentencePieceTokenizer
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES

LINES = [*SOURCE_LINES, *TARGET_LINES] * 5


def make_task(consistency=0.0, variants=1, dropout=0.5):
    preprocessor = TranslationPreprocessor.adapt(
        SOURCE_LINES * 5, TARGET_LINES * 5, vocabulary_size=60, shared=True, variants=variants
    )
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    network = Transformer(*sizes, 6, layers=1, feed_forward_size=8, heads=2, dropout=dropout)
    return Translator(network, preprocessor, {"max_length": 4}, consistency=consistency)


def test_a_batch_passes_twice_with_other_dropouts():
    keras.utils.set_random_seed(3)
    task = make_task(consistency=3.0)
    inputs, labels = task.preprocessor(SOURCE_LINES, y=TARGET_LINES)
    features = task(inputs, training=True)
    count = len(SOURCE_LINES)
    assert features.shape[0] == 2 * count
    passes = ops.convert_to_numpy(features).reshape(2, count, *features.shape[1:])
    assert not np.allclose(passes[0], passes[1])
    expected = masked_linear_crossentropy(
        labels, passes, *task.backbone.output_matrix(), 0.1, consistency=3.0
    )
    loss = ops.convert_to_numpy(task.compute_loss(inputs, labels, features))
    np.testing.assert_allclose(loss, ops.convert_to_numpy(expected), rtol=1e-5)
    weights = np.arange(1.0, count + 1)
    assert np.isfinite(
        task.fit(SOURCE_LINES, TARGET_LINES, sample_weight=weights, verbose=0).history["loss"]
    )
    # Validation and prediction pass once.
    assert task(inputs, training=False).shape[0] == count


def test_consistency_is_kept_and_refused_where_it_would_do_nothing():
    task = make_task(consistency=3.0)
    assert Translator.from_config(task.get_config()).consistency == 3.0
    with pytest.raises(ValueError, match="no metrics of logits.*Received: consistency=3.0"):
        task.compile(metrics=["sparse_categorical_accuracy"])
    with pytest.raises(ValueError, match="the default loss.*Received: consistency=3.0"):
        task.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(UserError, match="model.dropout above 0. Received: 5.0"):
        load_config(TranslationConfig, [], ["--training.consistency=5", "--model.dropout=0"])
    with pytest.raises(UserError, match="training.consistency"):
        load_config(TranslationConfig, [], ["--training.consistency=-1"])


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_sampled_pieces_spell_the_text_and_depend_on_the_seed(model_type):
    tokenizer = SentencePieceTokenizer.train(LINES, 60, model_type)
    found = [tokenizer.sample(LINES, 0.3, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    plain = tokenizer.encode(LINES)
    assert found[0] != plain and tokenizer.decode(found[0]) == tokenizer.decode(plain)
    with pytest.raises(ValueError, match="Received: strength=1.5"):
        tokenizer.sample(LINES, 1.5, 0)


def test_each_pair_is_there_in_all_variants():
    task = make_task(variants=3)
    corpus = task.read_columns(SOURCE_LINES, TARGET_LINES, np.arange(len(SOURCE_LINES)) + 1.0)
    plain, encoded = task.encode(corpus), task.encode_to_train(corpus)
    count = len(SOURCE_LINES)
    assert len(encoded) == 3 * count and len(plain) == count
    assert list(encoded.weights) == list(plain.weights) * 3
    for side, tokenizer in zip(("source", "target"), task.preprocessor.tokenizers, strict=True):
        texts = tokenizer.decode(list(getattr(encoded, side)))
        assert texts == tokenizer.decode(list(getattr(plain, side))) * 3
        pieces = [tuple(row) for row in getattr(encoded, side)]
        assert len(set(pieces)) > len(set(texts))
    again = task.encode_to_train(corpus)
    assert list(again.source) == list(encoded.source)
    batches = task.make_batches(encoded, 2)
    # An epoch goes as often through the data as without variants.
    assert task.steps_of_epoch(batches) == -(-len(batches) // 3)
    history = task.fit(SOURCE_LINES, TARGET_LINES, batch_size=2, verbose=0)
    assert task.optimizer.iterations == task.steps_of_epoch(batches) and history.history["loss"]


def test_words_have_no_variants():
    with pytest.raises(ValueError, match="kind 'sentencepiece'.*Received: variants=2"):
        TranslationPreprocessor.adapt(SOURCE_LINES, TARGET_LINES, kind="words", variants=2)
    with pytest.raises(
        UserError, match=r"tokenizer\.variants goes with tokenizer\.kind sentencepiece"
    ):
        load_config(TranslationConfig, [], ["--tokenizer.kind=words", "--tokenizer.variants=2"])
