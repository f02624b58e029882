"""TensorFlow Addons' `AttentionWrapper`, by its equations in float64: it no longer installs.

From `tensorflow_addons/seq2seq/attention_wrapper.py` at commit d208d752, its last: `_luong_score`,
`_bahdanau_score`, `_compute_attention` and `AttentionWrapper.call`.
"""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.interop import from_attention_wrapper
from keras_attention.layers.attention import monotonic
from tests.contracts.backend import BACKEND, random, to_numpy

B, T, S, E, M, C, A, U = 3, 5, 7, 2, 13, 11, 6, 17
X, MEMORY = random(1, B, T, E), random(2, B, S, M)
LENGTHS = np.array([7, 4, 1])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, states, weights, name):
    """Keras' LSTM cell: input, forget, candidate, output."""
    hidden, carry = states
    products = x @ weights[f"{name}kernel"] + hidden @ weights[f"{name}recurrent_kernel"]
    enter, forget, candidate, leave = np.split(products + weights[f"{name}bias"], 4, axis=-1)
    carry = sigmoid(forget) * carry + sigmoid(enter) * np.tanh(candidate)
    hidden = sigmoid(leave) * np.tanh(carry)
    return hidden, [hidden, carry]


def score(weights, query, keys):
    """`_luong_score` or `_bahdanau_score`, of one query a row."""
    if "attention_v" not in weights:
        return weights.get("attention_g", 1.0) * np.einsum("bu,bsu->bs", query, keys)
    vector = weights["attention_v"]
    query = (query @ weights["query_layer/kernel"])[:, None]
    if "attention_b" in weights:
        vector = weights["attention_g"] * vector / np.sqrt(np.sum(vector**2))
        return np.sum(vector * np.tanh(keys + query + weights["attention_b"]), axis=2)
    return np.sum(vector * np.tanh(keys + query), axis=2)


def wrapper(weights, names, function, output_attention):
    """`AttentionWrapper` over all steps: the outputs and the alignments."""
    real = np.arange(S) < LENGTHS[:, None]
    values = MEMORY * real[:, :, None]
    keys = values @ weights["memory_layer/kernel"]
    kernel = weights.get("attention_layer/kernel")
    states = [[np.zeros((B, C)), np.zeros((B, C))] for _ in names]
    attention = np.zeros((B, M if kernel is None else kernel.shape[1]))
    outputs, history = [], []
    for t in range(T):
        hidden = np.concatenate([X[:, t], attention], axis=-1)
        for i, name in enumerate(names):
            hidden, states[i] = lstm(hidden, states[i], weights, name)
        scores = np.where(real, score(weights, hidden, keys), -np.inf)
        alignments = np.exp(scores - scores.max(axis=1, keepdims=True))
        alignments /= alignments.sum(axis=1, keepdims=True)
        context = np.einsum("bs,bsm->bm", alignments, values)
        attention = context
        if kernel is not None:
            attention = function(np.concatenate([hidden, context], axis=1) @ kernel)
        outputs.append(attention if output_attention else hidden)
        history.append(alignments)
    return np.stack(outputs, axis=1), np.stack(history, axis=1)


def weights_of(mechanism, option, attention_size, cells=1):
    """Random weights by the names of a checkpoint; `option` is `normalize` or `scale`."""
    fed = M if attention_size is None else attention_size
    names = ["cell/"] if cells == 1 else [f"cell/cells/{i}/" for i in range(cells)]
    shapes = {}
    for i, name in enumerate(names):
        shapes[f"{name}kernel"] = (C if i else E + fed, 4 * C)
        shapes[f"{name}recurrent_kernel"] = (C, 4 * C)
        shapes[f"{name}bias"] = (4 * C,)
    shapes["memory_layer/kernel"] = (M, C if mechanism == "luong" else U)
    if mechanism == "bahdanau":
        shapes |= {"query_layer/kernel": (C, U), "attention_v": (U,)}
    if option:
        shapes["attention_g"] = ()
    if option and mechanism == "bahdanau":
        shapes["attention_b"] = (U,)
    if attention_size is not None:
        shapes["attention_layer/kernel"] = (C + M, attention_size)
    draw = np.random.default_rng(7)
    return {name: 0.5 * draw.normal(size=shape) for name, shape in shapes.items()}, names


def run(decoder):
    mask = ops.convert_to_tensor(np.arange(S) < LENGTHS[:, None])
    found = decoder(X, MEMORY, value_mask=mask, return_attention_scores=True)
    return [to_numpy(part) for part in found]


CASES = list(itertools.product(("luong", "bahdanau"), (False, True), (A, None), (True, False)))


@pytest.mark.parametrize(("mechanism", "option", "size", "output_attention"), CASES)
def test_the_wrapper(mechanism, option, size, output_attention):
    weights, names = weights_of(mechanism, option, size)
    decoder = from_attention_wrapper(
        keras.layers.LSTMCell(C), mechanism, weights, output_attention=output_attention
    )
    wanted, alignments = wrapper(weights, names, np.positive, output_attention)
    outputs, scores = run(decoder)
    outputs = outputs if output_attention else outputs[..., -C:]
    np.testing.assert_allclose(outputs, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, alignments, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("activation", "function"), [("tanh", np.tanh), (None, np.positive)])
def test_a_stack_and_an_activation(activation, function):
    weights, names = weights_of("luong", False, A, cells=2)
    cells = [keras.layers.LSTMCell(C), keras.layers.LSTMCell(C)]
    decoder = from_attention_wrapper(cells, "luong", weights, attention_activation=activation)
    wanted, alignments = wrapper(weights, names, function, True)
    outputs, scores = run(decoder)
    np.testing.assert_allclose(outputs, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, alignments, rtol=1e-5, atol=1e-6)
    again = type(decoder).from_config(decoder.get_config())
    assert again.get_config() == decoder.get_config()


@pytest.mark.parametrize("reset_after", [True, False])
def test_a_gru_cell_without_its_context_is_keras_layer(reset_after):
    """The cell's weights keep their order: with no fed rows, it is `keras.layers.GRU`."""
    weights, _ = weights_of("luong", False, None)
    draw = np.random.default_rng(5)
    bias = (2, 3 * C) if reset_after else (3 * C,)
    shapes = {"kernel": (E + M, 3 * C), "recurrent_kernel": (C, 3 * C), "bias": bias}
    weights |= {f"cell/{name}": draw.normal(size=shape) for name, shape in shapes.items()}
    weights["cell/kernel"][E:] = 0.0
    decoder = from_attention_wrapper(
        keras.layers.GRUCell(C, reset_after=reset_after), "luong", weights, output_attention=False
    )
    gru = keras.layers.GRU(C, reset_after=reset_after, return_sequences=True)
    gru.build((None, None, E))
    names = ("kernel", "recurrent_kernel", "bias")
    gru.set_weights([weights[f"cell/{name}"][: E if name == "kernel" else None] for name in names])
    np.testing.assert_allclose(run(decoder)[0][..., -C:], to_numpy(gru(X)), atol=1e-5)


# Means of outputs, of their argmax, of the last states h and c, of the last attention, of the last
# alignments and of all of them: the literal numbers of `attention_wrapper_test.py`.
LITERALS = {
    ("bahdanau", False, 6): (-0.003204414, 3.2, 0.40868404, 0.89017969, 0.041453815, 0.125, 0.125),
    ("bahdanau", True, 6): (-0.008089137, 2.8, 0.49166861, 1.01068615, 0.042427111, 0.125, 0.125),
    ("luong", False, 6): (-0.06124732, 2.7333333, 0.52021580, 1.0964939, -0.0318060, 0.125, 0.125),
    ("luong", True, 6): (-0.06124732, 2.7333333, 0.52021580, 1.0964939, -0.0318060, 0.125, 0.125),
    ("bahdanau", False, None): (
        *(0.078317143, 4.2, 0.89382392, 1.722382, 0.026356646, 0.125, 0.125),
    ),
    ("bahdanau_monotonic", False, 6): (
        *(-0.009921653, 3.1333333, 0.44612807, 0.95786464, 0.038682378, 0.09778417, 0.1026157960),
    ),
    ("bahdanau_monotonic", True, 6): (
        *(0.007140680, 3.26666666, 0.47012400, 1.0249618, 0.068432882, 0.0615656, 0.07909643),
    ),
    ("luong_monotonic", False, 6): (
        *(0.003664831, 3.06666666, 0.54318606, 1.12592840, 0.059128221, 0.05112994, 0.0699497386),
    ),
    ("luong_monotonic", True, 6): (
        *(0.003664831, 3.06666666, 0.54318606, 1.12592840, 0.059128221, 0.05112994, 0.0699497386),
    ),
}


def inputs_of_the_literals():
    """The inputs, the memory and the attention layer's kernel that Addons' tests draw."""
    import tensorflow as tf

    tf.random.set_seed(87654321)
    draw = np.random.RandomState(87654321)
    for shape in ((64, 10, 256), (64, 12, 128)):  # drawn first there, and not used
        draw.randn(*shape)
        draw.randint(1, high=10, size=64) if shape[1] == 10 else draw.randint(12, size=64)
    inputs, memory = draw.randn(5, 4, 7), draw.randn(5, 8, 10)
    limit = np.sqrt(6 / (9 + 10 + 6))
    return inputs[:, :3], memory, tf.random.uniform((19, 6), -limit, limit, seed=1337).numpy()


def as_addons_in_parallel(scores, before, mask, hard):
    """`monotonic_attention(mode="parallel")`, which clips what it divides by at 1e-10."""
    stop = ops.where(mask, ops.sigmoid(scores), 0.0)
    logs = ops.log(ops.clip(1 - stop, np.finfo("float32").tiny, 1))
    passed = ops.exp(ops.cumsum(logs, axis=-1) - logs)
    return stop * passed * ops.cumsum(before / ops.clip(passed, 1e-10, 1), axis=-1)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow drew the kernel")
@pytest.mark.parametrize("case", LITERALS)
def test_the_literal_numbers_of_addons_tests(case, monkeypatch):
    mechanism, option, size = case
    if mechanism == "luong_monotonic":
        # Its probabilities are near 1, where its parallel form is not exact; its `"recursive"` is.
        monkeypatch.setattr(monotonic, "monotonic_weights", as_addons_in_parallel)
    inputs, memory, kernel = inputs_of_the_literals()
    units = 9 if mechanism.startswith("luong") else 3
    weights = {
        "cell/kernel": np.ones((7 + (size or 10), 36)),
        "cell/recurrent_kernel": np.ones((9, 36)),
        "cell/bias": np.repeat([0.0, 1.0, 0.0, 0.0], 9),
        "memory_layer/kernel": np.ones((10, units)),
    }
    if mechanism.startswith("bahdanau"):
        weights |= {"query_layer/kernel": np.ones((9, units)), "attention_v": np.ones(units)}
        weights |= {"attention_b": np.zeros(units), "attention_g": units**-0.5} if option else {}
    elif option:
        weights["attention_g"] = 1.0
    if size:
        weights["attention_layer/kernel"] = kernel
    if mechanism.endswith("monotonic"):
        weights["attention_score_bias"] = 0.0
    weights = {name: np.asarray(array) for name, array in weights.items()}
    decoder = from_attention_wrapper(keras.layers.LSTMCell(9), mechanism, weights)
    mask = np.arange(8) < np.array([3, 2, 3, 1, 1])[:, None]
    outputs, scores, state = decoder(
        inputs, memory, value_mask=mask, return_attention_scores=True, return_state=True
    )
    outputs, scores = to_numpy(outputs), to_numpy(scores)
    found = [outputs, outputs.argmax(axis=-1), *map(to_numpy, state["cell"])]
    found = [np.mean(part) for part in (*found, outputs[:, -1], scores[:, -1], scores)]
    np.testing.assert_allclose(found, LITERALS[case], atol=2e-6)


def test_what_does_not_fit_is_refused():
    weights, _ = weights_of("luong", False, A)
    cell = keras.layers.LSTMCell(C)
    cases = [
        (r"`mechanism` must be one of", (cell, "monotonic", weights), {}),
        (r"`mode` must be", (cell, "luong_monotonic", weights), {"monotonic_mode": "parallel"}),
        (r"`cell` must be a GRUCell", (keras.layers.Dense(3), "luong", weights), {}),
        (r"`cell` must be a GRUCell", ([], "luong", weights), {}),
        (r"must map names to arrays", (cell, "luong", list(weights)), {}),
        (r"must hold `attention_v`", (cell, "bahdanau", weights), {}),
        (
            r"`attention_activation` must be None",
            (cell, "luong", weights),
            {"attention_activation": "tanh", "output_attention": False},
        ),
        (
            r"`cell/kernel` must have a row for each",
            (cell, "luong", weights | {"cell/kernel": np.ones((A, 4 * C))}),
            {},
        ),
        (
            r"no counterpart in it",
            (cell, "luong", weights | {"attention_layer/bias": np.ones(A)}),
            {},
        ),
        (
            r"`recurrent_kernel` of .* must have the shape",
            (cell, "luong", weights | {"cell/recurrent_kernel": np.ones((C + 1, 4 * C))}),
            {},
        ),
    ]
    for message, args, options in cases:
        with pytest.raises(ValueError, match=f"{message}.*Received: "):
            from_attention_wrapper(*args, **options)
