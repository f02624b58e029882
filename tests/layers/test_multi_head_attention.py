"""MultiHeadAttention beside `keras.layers.MultiHeadAttention`, and each option by its oracle."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import MultiHeadAttention
from tests import attention_oracle
from tests.contracts.backend import (
    BACKEND,
    gradients_of,
    random,
    to_numpy,
    weight_gradients,
    weighted_sum,
)
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
        listed = {k: v for k, v in call.items() if k not in ("value_mask", "key_mask")}
        listed["mask"] = [None, given.get("value_mask"), given.get("key_mask")]
        alone = layer(list(inputs), **listed)
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


def test_kernels_of_queries_keys_and_values_start_small():
    """A post-norm Transformer trains with these scales, and not with larger ones: ADR 9."""
    width, heads, size = 512, 8, 64
    layer = MultiHeadAttention(heads, size, use_gate=True)
    layer.build((None, None, width))
    names = ("query", "key", "value", "gate")
    expected = dict.fromkeys(names, np.sqrt(2 / (width * (heads + size))))
    expected["output"] = np.sqrt(2 / (heads * size + width))
    for name, wanted in expected.items():
        spread = np.std(to_numpy(getattr(layer, f"{name}_kernel").value))
        np.testing.assert_allclose(spread, wanted, rtol=0.02)
    assert not np.allclose(to_numpy(layer.query_kernel.value), to_numpy(layer.key_kernel.value))


@pytest.mark.parametrize("axes", [None, (1, 2), (1,), 2], ids=str)
def test_parity_with_keras_over_several_axes_and_with_a_gate(axes):
    shape = (BATCH, 3, 4, QUERY)
    attended = {None: (1, 2), 2: (2,)}.get(axes, axes)
    free = tuple(shape[a] for a in (1, 2) if a not in attended)
    steps = tuple(shape[a] for a in attended)
    has_gate = "use_gate" in inspect.signature(keras.layers.MultiHeadAttention).parameters
    options = {"attention_axes": axes} | ({"use_gate": True} if has_gate else {})  # not in 3.12
    theirs, layer = pair(shapes=[shape] * 2, num_heads=HEADS, key_dim=SIZE, **options)
    x, value = random(1, *shape), random(2, *shape)
    masks = [np.random.default_rng(n).random((BATCH, *free, *steps, *steps)) < 0.8 for n in (3, 4)]
    for mask in (None, masks[0], masks[1][:, : 1 if free else None][0, 0] if free else None):
        call = {"attention_mask": mask, "return_attention_scores": True}
        expected, weights = theirs(x, value, **call)
        output, scores = layer(x, value, **call)
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected), atol=2e-5)
        np.testing.assert_allclose(to_numpy(scores), to_numpy(weights), atol=1e-6)
    symbols = keras.Input(shape[1:]), keras.Input(shape[1:])
    made = layer(*symbols, return_attention_scores=True)
    assert made[0].shape == (None, *shape[1:]) and made[1].shape[1:] == scores.shape[1:]


def test_inputs_come_as_a_list():
    layer = MultiHeadAttention(HEADS, SIZE)
    query, value, key = memory_inputs()
    layer.build([query.shape, value.shape, key.shape])
    randomise(layer)
    masks = [MASKS["query_mask"], MASKS["value_mask"]]
    expected = to_numpy(layer(query, value, key, query_mask=masks[0], value_mask=masks[1]))
    listed = layer([query, value, key], mask=masks)
    np.testing.assert_allclose(to_numpy(listed), expected, atol=1e-6)
    symbols = [keras.Input(x.shape[1:]) for x in (query, value, key)]
    model = keras.Model(symbols, layer(symbols))
    output = to_numpy(model([query, value, key]))
    np.testing.assert_allclose(output, to_numpy(layer(query, value, key)), atol=1e-6)
    for inputs, beside in (
        ([query, value], {"value": key}),
        ([query, value], {"key": key}),
        ([query, value, key, key], {}),
        ([], {}),
    ):
        with pytest.raises(ValueError, match="A list of inputs is"):
            layer(inputs, **beside)


def test_rotary_positions_are_given_scaled_and_partial():
    x = random(1, BATCH, STEPS, QUERY)
    sizes = {"num_heads": HEADS, "key_dim": SIZE, "positions": "rotary"}
    layer = MultiHeadAttention(**sizes)
    layer.build(x.shape)
    randomise(layer)
    plain = to_numpy(layer(x))
    places = np.arange(STEPS) + np.array([[0], [9]])  # a shift of all places changes nothing
    np.testing.assert_allclose(to_numpy(layer(x, query_positions=places)), plain, atol=2e-5)
    apart = np.arange(STEPS) * np.array([[1], [2]])
    moved = to_numpy(layer(x, query_positions=apart))
    np.testing.assert_allclose(moved[0], plain[0], atol=2e-5)
    keys = layer(x, query_positions=places, key_positions=places[:, :1] + np.arange(STEPS))
    np.testing.assert_allclose(to_numpy(keys), plain, atol=2e-5)
    assert not np.allclose(to_numpy(layer(x, key_positions=places + 1))[0], plain[0], atol=1e-3)
    assert not np.allclose(moved[1], plain[1], atol=1e-3)
    scaled = MultiHeadAttention(**sizes, rotary_scaling=0.5)
    scaled.build(x.shape)
    scaled.set_weights(layer.get_weights())
    np.testing.assert_allclose(to_numpy(scaled(x))[1], moved[1], atol=2e-5)
    partial = MultiHeadAttention(**sizes, rotary_dim=4)
    partial.build(x.shape)
    partial.set_weights(layer.get_weights())
    weights = weights_by_name(partial)

    def turned(name):
        heads = np.einsum("btd,dhk->bthk", np.float64(x), weights[f"{name}_kernel"])
        heads += weights[f"{name}_bias"]
        first = attention_oracle.rotated(heads[..., :4])
        return np.concatenate([first, heads[..., 4:]], axis=-1).swapaxes(1, 2)

    scores = turned("query") @ turned("key").swapaxes(2, 3) / np.sqrt(SIZE)
    expected = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    received = partial(x, return_attention_scores=True)[1]
    np.testing.assert_allclose(to_numpy(received), expected, atol=1e-5)
    with pytest.raises(ValueError, match="belong to positions='rotary'"):
        MultiHeadAttention(HEADS, SIZE)(x, query_positions=places)


def test_the_shape_of_the_output():
    layer = MultiHeadAttention(HEADS, SIZE, output_shape=(2, 5))
    shapes = (None, STEPS, QUERY), (None, LENGTH, VALUE)
    assert layer.compute_output_shape(*shapes) == (None, STEPS, 2, 5)
    symbol = keras.Input((3, STEPS, QUERY))
    repeated = keras.layers.TimeDistributed(MultiHeadAttention(HEADS, SIZE))
    assert repeated(symbol).shape == (None, 3, STEPS, QUERY)


def test_sliding_window_is_another_name_of_window():
    assert MultiHeadAttention(2, 4, sliding_window=3).window == 3
    with pytest.raises(ValueError, match="another name of `window`"):
        MultiHeadAttention(2, 4, window=2, sliding_window=3)
    for name in ("window", "sliding_window"):
        with pytest.raises(ValueError, match=f"`{name}` must be .* Received: {name}=0"):
            MultiHeadAttention(2, 4, **{name: 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_shape": 8.0}, "`output_shape` must be a positive integer"),
        ({"output_shape": ()}, "`output_shape` must be a positive integer"),
        ({"dropout": "a"}, "`dropout` must be a number"),
        ({"seed": "nope"}, "`seed` must be an integer"),
        ({"num_heads": True}, "`num_heads` must be a positive integer"),
        ({"attention_axes": "all"}, "`attention_axes` must be an integer"),
        ({"positions": "rotary", "rotary_dim": 3}, "must be even"),
        ({"rotary_dim": 2}, "`rotary_dim` belongs to positions='rotary'"),
        ({"score_mod": 3}, "`score_mod` must be a function"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError) as error:
        MultiHeadAttention(**{"num_heads": 2, "key_dim": 4, **options})
    assert message in str(error.value)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_has_the_exact_zero_gradient_of_one_memory_place(dtype):
    layer = MultiHeadAttention(HEADS, SIZE, dtype=f"mixed_{dtype}")
    x, value = random(1, 8, STEPS, QUERY, scale=3.0), random(2, 8, 1, QUERY, scale=3.0)
    layer.build(x.shape, value.shape)
    randomise(layer)
    upstream = random(3, 8, STEPS, QUERY)
    gradients = weight_gradients(layer, lambda: weighted_sum(layer(x, value), upstream))
    by_name = dict(zip([w.name for w in layer.trainable_weights], gradients, strict=True))
    assert np.abs(by_name["value_kernel"]).max() > 10
    for name in ("query_kernel", "key_kernel"):
        assert np.all(by_name[name] == 0), np.abs(by_name[name]).max()


@pytest.mark.parametrize("positions", [None, "alibi", "relative"])
@pytest.mark.parametrize("sizes", [(0, 4, 5), (2, 0, 5), (2, 4, 0), (2, 0, 0)], ids=str)
def test_empty_inputs_with_masks(sizes, positions):
    batch, steps, length = sizes
    layer = MultiHeadAttention(HEADS, SIZE, positions=positions)
    layer.build((None, None, QUERY))
    randomise(layer)
    masks = {
        "query_mask": np.ones((batch, steps), bool),
        "value_mask": np.ones((batch, length), bool),
    }
    x, value = np.ones((batch, steps, QUERY), "float32"), np.ones((batch, length, QUERY), "float32")
    output, scores = layer(x, value, **masks, return_attention_scores=True)
    assert output.shape == x.shape and scores.shape == (batch, HEADS, steps, length)
    alone = to_numpy(layer(x, value, **masks))
    np.testing.assert_allclose(alone, np.broadcast_to(to_numpy(layer.output_bias), x.shape))


@pytest.mark.parametrize("content", [np.nan, np.inf, -np.inf])
def test_what_masked_memory_holds_reaches_no_result_or_gradient(content):
    layer = MultiHeadAttention(HEADS, SIZE)
    layer.build((None, None, QUERY))
    randomise(layer)
    x, value = random(1, BATCH, STEPS, QUERY), random(2, BATCH, LENGTH, QUERY)
    mask, upstream = MASKS["value_mask"], random(3, BATCH, STEPS, QUERY)
    hidden = np.where(mask[..., None], value, content).astype("float32")
    results = (to_numpy(layer(x, each, value_mask=mask)) for each in (hidden, value))
    np.testing.assert_array_equal(*results)

    def loss(x, value):
        return weighted_sum(layer(x, value, value_mask=mask), upstream)

    both = (gradients_of(loss, x, each, layer=layer) for each in (hidden, value))
    for given, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-6)


@pytest.mark.by_default("int8-1.05")
@pytest.mark.parametrize(("mode", "most"), [("int8", 1.05), ("int4", 1.25)])
def test_quantized_kernels_are_as_close_as_those_of_keras(mode, most):
    width = 128
    theirs, layer = pair(shapes=[(None, None, width)] * 2, num_heads=4, key_dim=32)
    x = random(1, 2, 9, width)
    for made in (theirs, layer):  # weights as they start, not as large as `pair` makes them
        made.set_weights(
            [0.1 * w for w in layer.get_weights()] if made is theirs else theirs.get_weights()
        )
    expected = to_numpy(theirs(x, x))
    for dense in (theirs.query_dense, theirs.key_dense, theirs.value_dense, theirs.output_dense):
        dense.quantize(mode)
    layer.quantize(mode)
    errors = [np.abs(to_numpy(made(x, x)) - expected).mean() for made in (layer, theirs)]
    assert errors[0] <= most * errors[1]
    assert layer.query_kernel.dtype == "int8"
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(layer(x, x)), atol=1e-5)


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


@pytest.mark.parametrize("dtype", ["int64", "int16", "uint8"])
@pytest.mark.parametrize("positions", [None, "rotary", "alibi", "relative"])
def test_an_index_may_be_any_integer(positions, dtype):
    layer = MultiHeadAttention(2, 4, positions=positions, window=3)
    x = np.random.default_rng(5).normal(size=(2, 5, 7)).astype("float32")
    expected = ops.convert_to_numpy(layer(x, use_causal_mask=True))
    for make in (
        lambda index: ops.convert_to_tensor(np.array(index, dtype)),
        lambda index: np.array(index, dtype),
        np.dtype(dtype).type,
    ):
        state = layer.initial_state(2, 5)
        for index in range(5):
            output, _, state = layer.step(x[:, index], None, state, make(index))
            np.testing.assert_allclose(ops.convert_to_numpy(output), expected[:, index], atol=1e-5)


def test_steps_that_do_not_fit_are_refused():
    layer = MultiHeadAttention(HEADS, SIZE)
    with pytest.raises(ValueError, match="Received: a layer without weights"):
        layer.prepare_memory(random(1, BATCH, STEPS, QUERY))
    layer.build((None, None, QUERY))
    state, x = layer.initial_state(BATCH, 3), random(1, BATCH, QUERY)
    for index in (3, -1):
        with pytest.raises(ValueError, match=f"3 positions.*Received: index={index}"):
            layer.step(x, None, state, index)
    with pytest.raises(ValueError, match="`attention_mask` must be boolean"):
        layer.step(x, None, state, 0, attention_mask=np.ones((BATCH, 4), bool))
    with pytest.raises(ValueError, match="built for a query of 13 features"):
        layer.step(x[:, 1:], None, state, 0)
    with pytest.raises(ValueError, match="need an `attention_mask`"):
        layer.step(x, None, layer.initial_state(1, 3), 0, copies=BATCH)
    far = MultiHeadAttention(HEADS, SIZE, positions="alibi")
    far.build((None, None, QUERY))
    with pytest.raises(ValueError, match="depend on no distance"):
        far.step(x, far.prepare_memory(random(1, 1, STEPS, QUERY)), {}, 0, copies=BATCH)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="compiles for TensorFlow")
@pytest.mark.slow
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
