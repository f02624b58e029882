"""Hierarchical attention: products and not sums, empty sentences, disagreement, the decoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    LocalAttention,
    LuongAttention,
    TemporalAttention,
)
from keras_attention.layers.attention.hierarchical import reweight
from keras_attention.losses import coverage_loss
from keras_attention.ops.loops import flatten
from tests.contracts.backend import input_gradients, random, to_numpy
from tests.contracts.kinds import randomise

B, T, N, W, D = 2, 3, 3, 5, 7
WORDS = np.arange(W) < np.array([[5, 3, 0], [2, 5, 4]])[:, :, None]


def softmax(x):
    """Over the last axis."""
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def test_weights_are_multiplied_and_normalised_again():
    words, sentences = softmax(random(1, B, T, N * W)), softmax(random(2, B, T, N))
    joined = words.reshape(B, T, N, W) * sentences[..., None]
    expected = joined / joined.sum(axis=(2, 3), keepdims=True)
    result = to_numpy(reweight(words.reshape(B, T, N, W), sentences))
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_small_factors_do_not_vanish():
    """1e-25 times 1e-25 is nothing in float32; their share of the sum is not."""
    words = np.array([[[[1e-25, 3e-25], [0.0, 0.0]]]], "float32")
    sentences = np.array([[[1e-25, 1.0]]], "float32")
    np.testing.assert_allclose(to_numpy(reweight(words, sentences))[0, 0, 0], [0.25, 0.75], 1e-3)


def test_words_and_sentences_that_disagree_entirely_still_give_a_distribution():
    words = np.array([[[[1.0, 0.0], [0.0, 0.0]]]], "float32")
    sentences = np.array([[[0.0, 1.0]]], "float32")
    result = to_numpy(reweight(words, sentences))
    np.testing.assert_allclose(result.sum(), 1.0, rtol=1e-5)
    gradients = input_gradients(lambda *x: ops.sum(reweight(*x) ** 2), words, sentences)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_what_reads_nothing_stays_empty():
    """A window past the document's end has no weight: the joined weights have none either."""
    layer = HierarchicalAttention(LocalAttention(half_width=1), LuongAttention("dot"))
    scores = layer(
        random(3, B, 12, D), random(4, B, 2, 3, D), random(5, B, 2, D), return_attention_scores=True
    )[1]
    assert np.all(to_numpy(scores)[:, 8:] == 0.0)
    np.testing.assert_allclose(to_numpy(scores)[:, :7].sum(axis=(2, 3)), 1.0, atol=1e-5)


def test_a_sentence_without_words_takes_no_weight_from_the_others():
    layer = HierarchicalAttention(BahdanauAttention(5), TemporalAttention())
    query, words, sentences = random(6, B, T, D), random(7, B, N, W, D), random(8, B, N, 4)
    results = layer(query, words, sentences, word_mask=WORDS, return_attention_scores=True)
    shorter = layer(
        query[:1],
        words[:1, :2],
        sentences[:1, :2],
        word_mask=WORDS[:1, :2],
        return_attention_scores=True,
    )
    np.testing.assert_allclose(to_numpy(results[0])[:1], to_numpy(shorter[0]), atol=1e-5)
    np.testing.assert_allclose(to_numpy(results[1])[:1, :, :2], to_numpy(shorter[1]), atol=1e-6)
    assert np.all(to_numpy(results[1])[0, :, 2] == 0.0)


def test_multiplying_energies_would_be_another_thing():
    query, words, sentences = random(9, 1, T, D), random(10, 1, N, W, D), random(11, 1, N, D)
    layer = HierarchicalAttention(LuongAttention("dot"), LuongAttention("dot"))
    scores = to_numpy(layer(query, words, sentences, return_attention_scores=True)[1])
    of_words = np.einsum("btd,bnwd->btnw", query, words)
    of_sentences = np.einsum("btd,bnd->btn", query, sentences)[..., None]
    summed = softmax((of_words + of_sentences).reshape(1, T, -1)).reshape(scores.shape)
    np.testing.assert_allclose(scores, summed, rtol=1e-3)  # a product of softmaxes
    multiplied = softmax((of_words * of_sentences).reshape(1, T, -1)).reshape(scores.shape)
    assert np.abs(scores - multiplied).max() > 0.1


@pytest.fixture(scope="module")
def decoder_parts():
    """A decoder over a document, its inputs, and a functional model of it."""
    attention = HierarchicalAttention(CoverageAttention(5, loss_weight=1.0), BahdanauAttention(5))
    decoder = AttentionDecoder(keras.layers.GRUCell(4), attention, query="current")
    inputs = [keras.Input((None, 2)), keras.Input((None, None, D)), keras.Input((None, 4))]
    masks = [keras.Input((None, None), dtype="bool"), keras.Input((None,), dtype="bool")]
    results = decoder(
        inputs[0],
        {"words": inputs[1], "sentences": inputs[2]},
        value_mask={"words": masks[0], "sentences": masks[1]},
        return_attention_scores=True,
        return_context=True,
    )
    model = keras.Model([*inputs, *masks], results)
    randomise(decoder)
    arrays = random(12, B, T, 2), random(13, B, N, W, D), random(14, B, N, 4)
    return decoder, model, [*arrays, WORDS, WORDS.any(axis=2)]


def test_a_decoder_reads_a_document(decoder_parts, tmp_path):
    decoder, model, (inputs, words, sentences, word_mask, sentence_mask) = decoder_parts
    value = {"words": words, "sentences": sentences}
    mask = {"words": word_mask, "sentences": sentence_mask}
    assert model.output_shape == [(None, None, 4), (None, None, D), (None, None, None, None)]
    results = [to_numpy(x) for x in model([inputs, words, sentences, word_mask, sentence_mask])]
    memory = decoder.prepare_memory(
        keras.tree.map_structure(ops.convert_to_tensor, value),
        keras.tree.map_structure(ops.convert_to_tensor, mask),
    )
    state = decoder.initial_state(memory)
    for t in range(T):
        output, scores, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state)
        np.testing.assert_allclose(to_numpy(output), results[0][:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(state["context"]), results[1][:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(scores), results[2][:, t], atol=1e-5)
    assert np.all(results[2][0, :, 2] == 0.0)
    decoder(inputs, value, value_mask=mask)
    (loss,) = decoder.losses  # of the joined weights
    expected = coverage_loss(results[2].reshape(B, T, N * W))
    np.testing.assert_allclose(to_numpy(loss), to_numpy(expected), rtol=1e-4)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(
        again([inputs, words, sentences, *mask.values()]), results, strict=True
    ):
        np.testing.assert_allclose(to_numpy(ours), theirs, atol=1e-6)


def test_each_part_has_its_loss():
    parts = CoverageAttention(5, loss_weight=0.5), CoverageAttention(3, loss_weight=2.0)
    layer = HierarchicalAttention(*parts)
    given = random(3, B, T, 4), random(4, B, N, W, D), random(5, B, N, D)
    layer(*given)
    randomise(layer)
    real = np.arange(T) < np.array([[T], [1]])
    _, scores = layer(*given, query_mask=real, return_attention_scores=True)
    words, sentences = (to_numpy(loss) for loss in layer.losses)
    joined = ops.reshape(scores, (B, T, N * W))
    np.testing.assert_allclose(words, 0.5 * to_numpy(coverage_loss(joined, real)), rtol=1e-5)
    of_sentences = coverage_loss(ops.sum(scores, axis=3), real)
    np.testing.assert_allclose(sentences, 2 * to_numpy(of_sentences), rtol=1e-5)


@pytest.mark.parametrize("count", [None, N])
def test_a_symbolic_decoder_knows_the_shapes_of_its_state(count):
    attention = HierarchicalAttention(CoverageAttention(5), TemporalAttention())
    decoder = AttentionDecoder(keras.layers.GRUCell(4), attention, query="current")
    arrays = random(12, B, T, 2), random(13, B, N, W, D), random(14, B, N, 4)
    inputs, words, sentences = (
        keras.Input((T, 2)),
        keras.Input((count, count and W, D)),
        keras.Input((count, 4)),
    )
    of_symbols = decoder(inputs, {"words": words, "sentences": sentences}, return_state=True)
    value = {"words": arrays[1], "sentences": arrays[2]}
    results = decoder(arrays[0], value, return_state=True)
    for symbol, result in zip(flatten(of_symbols), flatten(results), strict=True):
        assert len(symbol.shape) == len(result.shape)
        for known, size in zip(symbol.shape, result.shape, strict=True):
            assert known in (None, size)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": WORDS}, "`value_mask` must be a dictionary"),
        ({"mask": {"letters": WORDS}}, "`value_mask` must be a dictionary"),
        ({"mask": {"words": WORDS[:, 1:]}}, r"`value_mask\['words'\]`"),
        ({"inputs": random(15, B + 1, T, 2)}, "same batch size"),
    ],
    ids=["no dictionary", "another part", "too short", "another batch"],
)
def test_a_decoder_refuses_what_does_not_fit(decoder_parts, change, message):
    decoder, _, (inputs, words, sentences, *_) = decoder_parts
    with pytest.raises(ValueError, match=f"{message}.*Received: "):
        decoder(
            change.get("inputs", inputs),
            {"words": words, "sentences": sentences},
            value_mask=change.get("mask"),
        )


def test_a_refusal_shows_the_shapes_of_the_parts(decoder_parts):
    decoder, _, (inputs, words, sentences, *_) = decoder_parts
    with pytest.raises(ValueError, match=rf"words of shape \({B - 1}, {N}, {W}, "):
        decoder(inputs, {"words": words[1:], "sentences": sentences})


def test_parts_must_be_two_mechanisms():
    one = BahdanauAttention(3)
    with pytest.raises(ValueError, match="Received: the same one"):
        HierarchicalAttention(one, one)
    with pytest.raises(ValueError, match="joined weights.*Received: word_attention with dropout"):
        HierarchicalAttention(BahdanauAttention(3, dropout=0.5), one)


def test_a_decoder_names_the_parts_of_a_document():
    attention = HierarchicalAttention(BahdanauAttention(3), BahdanauAttention(3))
    decoder = AttentionDecoder(keras.layers.GRUCell(2), attention)
    with pytest.raises(ValueError, match=r"'words' and 'sentences'. Received: \['words'\]"):
        decoder(random(16, 1, T, 2), {"words": random(17, 1, N, W, D)})


def test_the_masks_that_words_and_sentences_carry(tmp_path):
    layer = HierarchicalAttention(BahdanauAttention(3), LuongAttention("general"))
    query, words, sentences = random(21, B, T, D), random(22, B, N, W, D), random(23, B, N, D)
    words[0, :, 2:], words[:, 2], sentences[1, 2:] = 0.0, 0.0, 0.0
    inputs = [keras.Input(array.shape[1:]) for array in (query, words, sentences)]
    masking = keras.layers.Masking()
    outputs = layer(inputs[0], *map(masking, inputs[1:]), return_attention_scores=True)
    found = keras.Model(inputs, outputs).predict([query, words, sentences], verbose=0)
    masks = {"word_mask": words.any(-1), "sentence_mask": sentences.any(-1)}
    expected = layer(query, words, sentences, return_attention_scores=True, **masks)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, to_numpy(theirs), atol=1e-6)
    assert np.all(found[1][1, :, 2] == 0.0) and np.all(found[1][0, :, :, 2:] == 0.0)


def test_dropout_drops_words_in_training_only():
    layer = HierarchicalAttention(BahdanauAttention(3), BahdanauAttention(3), dropout=0.5, seed=3)
    words = np.eye(N * W, dtype="float32").reshape(1, N, W, N * W)  # the context is the weights
    query, sentences = random(16, 1, T, D), random(17, 1, N, D)
    quiet, scores = layer(query, words, sentences, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(quiet), to_numpy(scores).reshape(1, T, -1), atol=1e-6)
    dropped = to_numpy(layer(query, words, sentences, training=True))
    assert 0 < np.mean(dropped == 0.0) < 1
    kept = dropped != 0.0
    np.testing.assert_allclose(dropped[kept], 2 * to_numpy(quiet)[kept], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # which JAX has not
@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16", "float64"])
def test_parts_of_another_dtype_read_queries_in_their_own(dtype):
    layer = HierarchicalAttention(BahdanauAttention(3), LuongAttention("general"), dtype=dtype)
    plain = HierarchicalAttention(layer.word_attention, layer.sentence_attention)
    query, words = random(18, B, T, 5), random(19, B, N, 7, 6)
    expected = to_numpy(plain(query, words))
    np.testing.assert_allclose(to_numpy(layer(query, words)), expected, atol=0.02)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4), (2, 3, 4, 0)], ids=str)
@pytest.mark.parametrize("of_words", [BahdanauAttention, CoverageAttention])
@pytest.mark.parametrize("is_masked", [True, False])
def test_sizes_of_zero(of_words, is_masked, sizes):
    batch, steps, count, width = sizes
    layer = HierarchicalAttention(of_words(3), LuongAttention("general"))
    query = np.ones((batch, steps, 5), "float32")
    words = np.ones((batch, count, width, 6), "float32")
    options = {"word_mask": np.ones((batch, count, width), bool)} if is_masked else {}
    context, scores = layer(query, words, return_attention_scores=True, **options)
    assert tuple(context.shape) == (batch, steps, 6) and tuple(scores.shape) == sizes
    assert not np.any(to_numpy(context))
    if steps:  # else nothing depends on the queries
        (gradient,) = input_gradients(lambda x: ops.sum(layer(x, words, **options)), query)
        assert np.all(gradient == 0.0)
