"""MultiHeadAttention beside `keras.layers.MultiHeadAttention`, and each option by its oracle."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import MultiHeadAttention
from tests import attention_oracle
from tests.contracts.backend import BACKEND, random, to_numpy
from tests.contracts.kinds import randomise

BATCH, STEPS, LENGTH, QUERY, VALUE, KEY = 2, 7, 5, 13, 11, 3
HEADS, SIZE = 4, 6
MASKS = {
    "query_mask": np.arange(STEPS) < np.array([[STEPS], [4]]),
    "value_mask": np.arange(LENGTH) < np.array([[3], [LENGTH]]),
    "key_mask": np.arange(LENGTH) < np.array([[4], [LENGTH]]),
    "attention_mask": np.random.default_rng(3).random((BATCH, STEPS, LENGTH)) < 0.8,
}


def pair(same_as=keras.layers.MultiHeadAttention, shapes=None, ours=None, **options):
    """Keras' layer and ours, with the same random weights."""
    shapes = shapes or [(None, None, size) for size in (QUERY, VALUE, KEY)]
    theirs = same_as(**options)
    layer = MultiHeadAttention(**(ours or options))
    theirs.build(*shapes)
    layer.build(*shapes)
    randomise(theirs)
    assert [w.shape for w in theirs.weights] == [w.shape for w in layer.weights]
    layer.set_weights(theirs.get_weights())
    return theirs, layer


def memory_inputs():
    return (
        random(1, BATCH, STEPS, QUERY),
        random(2, BATCH, LENGTH, VALUE),
        random(3, BATCH, LENGTH, KEY),
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"value_dim": 3}, {"use_bias": False}, {"output_shape": 9}, {"output_shape": (2, 5)}],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_parity_with_keras(options, causal):
    theirs, layer = pair(num_heads=HEADS, key_dim=SIZE, **options)
    inputs = memory_inputs()
    masks = {k: v for k, v in MASKS.items() if k != "query_mask"}
    for given in ({}, masks, {"attention_mask": MASKS["attention_mask"][:1, :, :]}):
        call = {**given, "use_causal_mask": causal}
        # Keras gives a query that sees nothing the mean of all values, and no gradient rule.
        seen = some_visible(given, causal)
        expected, weights = theirs(*inputs, return_attention_scores=True, **call)
        output, scores = layer(*inputs, return_attention_scores=True, **call)
        alone = layer(*inputs, **call)
        for result in (output, alone):
            np.testing.assert_allclose(to_numpy(result)[seen], to_numpy(expected)[seen], atol=2e-5)
        both = [np.moveaxis(to_numpy(x), 1, 2)[seen] for x in (scores, weights)]
        np.testing.assert_allclose(*both, atol=1e-6)


def some_visible(masks, causal):
    visible = np.ones((BATCH, STEPS, LENGTH), bool)
    for name, mask in masks.items():
        visible &= mask if name == "attention_mask" else mask[:, None]
    if causal:
        visible &= np.tril(np.ones((STEPS, LENGTH), bool))
    return visible.any(axis=-1)


def test_parity_with_implicit_masks_in_self_attention():
    tokens = np.array([[3, 1, 4, 1, 0], [5, 9, 2, 0, 0]])
    embed = keras.layers.Embedding(10, QUERY, mask_zero=True)
    theirs, layer = pair(shapes=[(None, None, QUERY)] * 2, num_heads=HEADS, key_dim=SIZE)
    x = embed(tokens)
    expected = to_numpy(theirs(x, x))[tokens > 0]
    for output in (layer(embed(tokens)), layer(embed(tokens), embed(tokens))):
        np.testing.assert_allclose(to_numpy(output)[tokens > 0], expected, atol=2e-5)
        np.testing.assert_allclose(to_numpy(output)[tokens == 0], [to_numpy(layer.output_bias)] * 3)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_parity_with_grouped_query_attention(groups):
    theirs, layer = pair(
        keras.layers.GroupQueryAttention,
        head_dim=SIZE,
        num_query_heads=HEADS,
        num_key_value_heads=groups,
        ours={"num_heads": HEADS, "key_dim": SIZE, "num_key_value_heads": groups},
    )
    inputs = memory_inputs()
    call = {"value_mask": MASKS["value_mask"], "use_causal_mask": True}
    expected = theirs(*inputs, **call)
    np.testing.assert_allclose(to_numpy(layer(*inputs, **call)), to_numpy(expected), atol=2e-5)


def test_a_window_is_that_of_keras():
    import inspect

    if "sliding_window" not in inspect.signature(keras.layers.MultiHeadAttention).parameters:
        pytest.skip("this Keras has no windows")
    theirs, layer = pair(
        shapes=[(None, None, QUERY)] * 2,
        num_heads=HEADS,
        key_dim=SIZE,
        sliding_window=3,
        ours={"num_heads": HEADS, "key_dim": SIZE, "window": 3},
    )
    x = random(1, BATCH, STEPS, QUERY)
    for causal in (False, True):
        expected = to_numpy(theirs(x, x, use_causal_mask=causal))
        np.testing.assert_allclose(to_numpy(layer(x, use_causal_mask=causal)), expected, atol=2e-5)


OPTIONS = {
    "plain": {},
    "rotary": {"positions": "rotary"},
    "rotary-grouped": {"positions": "rotary", "max_wavelength": 30, "num_key_value_heads": 2},
    "alibi": {"positions": "alibi", "num_key_value_heads": 1},
    "relative": {"positions": "relative", "num_buckets": 8, "max_distance": 6},
    "sinks": {"window": 2, "num_sinks": 1},
    "sparsemax": {"normalizer": "sparsemax", "window": 4},
    "entmax": {"normalizer": "entmax15", "positions": "alibi"},
    "norm": {"query_key_norm": True, "positions": "rotary"},
}


def weights_by_name(layer):
    return {w.name: to_numpy(w.value) for w in layer.weights}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_each_option_and_its_steps_against_the_oracle(name, causal):
    options = {"num_heads": HEADS, "key_dim": SIZE, **OPTIONS[name]}
    layer = MultiHeadAttention(**options)
    x = random(1, BATCH, STEPS, QUERY)
    mask = MASKS["query_mask"]
    layer.build(x.shape)
    randomise(layer)
    call = {"query_mask": mask, "use_causal_mask": causal}
    output, scores = layer(x, return_attention_scores=True, **call)
    arrays = {"query": x, "query_mask": mask}
    expected = attention_oracle.multi_head(weights_by_name(layer), options, arrays, causal)
    np.testing.assert_allclose(to_numpy(output), expected["outputs"], atol=2e-5)
    np.testing.assert_allclose(to_numpy(scores), expected["scores"], atol=1e-5)
    np.testing.assert_allclose(to_numpy(layer(x, **call)), expected["outputs"], atol=2e-5)
    if causal:
        state = layer.initial_state(BATCH, STEPS + 2)  # with room to spare
        for t in range(STEPS):
            step, weights, state = layer.step(x[:, t], None, state, t if t % 2 else ops.array(t))
            real = mask[:, t]
            np.testing.assert_allclose(
                to_numpy(step)[real], expected["outputs"][real, t], atol=2e-5
            )
            wanted = np.pad(expected["scores"][:, :, t], [(0, 0), (0, 0), (0, 2)])
            np.testing.assert_allclose(to_numpy(weights)[real], wanted[real], atol=1e-5)
    else:
        memory = layer.prepare_memory(x, mask=mask)
        for t in range(STEPS):
            step, weights, _ = layer.step(x[:, t], memory, {}, t)
            real = mask[:, t]
            np.testing.assert_allclose(
                to_numpy(step)[real], expected["outputs"][real, t], atol=2e-5
            )
            wanted = expected["scores"][real, :, t]
            np.testing.assert_allclose(to_numpy(weights)[real], wanted, atol=1e-5)


def test_scores_come_with_dropout_and_a_causal_mask():
    layer = MultiHeadAttention(HEADS, SIZE, dropout=0.5, seed=3)
    x = random(1, BATCH, STEPS, QUERY)
    call = {"return_attention_scores": True, "use_causal_mask": True}
    output, scores = layer(x, training=True, **call)
    quiet, expected = layer(x, **call)
    np.testing.assert_allclose(to_numpy(scores), to_numpy(expected), atol=1e-6)
    assert np.all(to_numpy(scores)[..., ~np.tril(np.ones((STEPS, STEPS), bool))] == 0)
    assert not np.allclose(to_numpy(output), to_numpy(quiet))
    alone = [to_numpy(layer(x, training=True, use_causal_mask=True)) for _ in range(2)]
    assert not np.allclose(*alone) and not np.allclose(alone[0], to_numpy(quiet))


def test_a_query_that_sees_nothing_gets_the_bias_alone():
    layer = MultiHeadAttention(HEADS, SIZE)
    x = random(1, BATCH, STEPS, QUERY)
    layer.build(x.shape)
    randomise(layer)
    hidden = np.zeros((BATCH, STEPS, STEPS), bool)
    output, scores = layer(x, attention_mask=hidden, return_attention_scores=True)
    assert np.all(to_numpy(scores) == 0)
    expected = np.broadcast_to(to_numpy(layer.output_bias), output.shape)
    for result in (output, layer(x, attention_mask=hidden)):
        np.testing.assert_allclose(to_numpy(result), expected, atol=1e-6)


def test_kernels_start_as_the_matrices_that_they_are():
    layer = MultiHeadAttention(8, 64)
    layer.build((None, None, 512))
    for name in ("query", "key", "value", "output"):
        spread = np.std(to_numpy(getattr(layer, f"{name}_kernel").value))
        np.testing.assert_allclose(spread, np.sqrt(2 / (512 + 512)), rtol=0.02)
    assert not np.allclose(to_numpy(layer.query_kernel.value), to_numpy(layer.key_kernel.value))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"key": random(0, 2, 5, 13)}, "A `key` needs its `value`"),
        ({"attention_mask": np.ones((2, 6, 7), bool)}, "`attention_mask` must be boolean"),
        ({"attention_mask": np.ones((2, 3, 7, 7), bool)}, "(B, H, T, S), here (2, 4, 7, 7)"),
        ({"attention_mask": np.ones((7,), bool)}, "Received: attention_mask of shape (7,)"),
        ({"attention_mask": np.zeros((7, 7), "float32")}, "dtype float32"),
        ({"value_mask": np.ones((2, 7, 7), bool)}, "`value_mask` must be boolean"),
        ({"query_mask": np.ones((2, 6), bool)}, "`query_mask` must be boolean"),
        ({"value": random(0, 2, 5, 12)}, "built for a value of 13 features"),
        ({"value": random(0, 3, 5, 13)}, "must have the same batch size"),
    ],
)
def test_calls_that_do_not_fit_are_refused(call, message):
    layer = MultiHeadAttention(HEADS, SIZE)
    layer.build((None, None, QUERY))
    with pytest.raises(ValueError) as error:
        layer(random(1, BATCH, STEPS, QUERY), **call)
    assert message in str(error.value)


def test_steps_that_do_not_fit_are_refused():
    layer = MultiHeadAttention(HEADS, SIZE)
    with pytest.raises(ValueError, match="has no weights yet"):
        layer.prepare_memory(random(1, BATCH, STEPS, QUERY))
    layer.build((None, None, QUERY))
    state, x = layer.initial_state(BATCH, 3), random(1, BATCH, QUERY)
    for index in (3, -1):
        with pytest.raises(ValueError, match=f"3 places of the state. Received: index={index}"):
            layer.step(x, None, state, index)
    with pytest.raises(ValueError, match="`attention_mask` must be boolean"):
        layer.step(x, None, state, 0, attention_mask=np.ones((BATCH, 4), bool))
    with pytest.raises(ValueError, match="built for a query of 13 features"):
        layer.step(x[:, 1:], None, state, 0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="compiles for TensorFlow")
def test_parts_of_long_sequences_compile_under_xla():
    """Compiling took minutes while the places of a part depended on what had been computed."""
    import tensorflow as tf

    layer = MultiHeadAttention(2, 8)
    x = tf.constant(random(3, 1, 1031, 7))
    layer.build(x.shape, x.shape)

    def gradients(x):
        with tf.GradientTape() as tape:
            y = layer(x, x, use_causal_mask=True)
            loss = tf.reduce_sum(y * y)
        return y, *tape.gradient(loss, [v.value for v in layer.trainable_variables])

    expected = tf.function(gradients)(x)
    received = tf.function(gradients, jit_compile=True)(x)
    largest = max(float(tf.reduce_max(tf.abs(each))) for each in expected)
    for a, b in zip(received, expected, strict=True):  # a key's bias has no gradient but rounding
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * largest)
