"""The decoder beyond the contract: orders, feeding, forms of states and cells."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    IntraDecoderAttention,
    LocalAttention,
    LuongAttention,
    TemporalAttention,
)
from tests.contracts.backend import BACKEND, compiled, random, tensors_of, to_numpy
from tests.contracts.entries.decoders import LeakyCell
from tests.contracts.kinds import randomise

B, T, S, E, V, C, U = 3, 4, 7, 2, 13, 3, 17
X, VALUE = random(1, B, T, E), random(2, B, S, V)
MASK = np.arange(S) < np.array([7, 4, 2])[:, None]


def decoder(cell=None, attention=None, **options):
    """A decoder with random weights."""
    attention = BahdanauAttention(U) if attention is None else attention
    layer = AttentionDecoder(cell or keras.layers.GRUCell(C), attention, **options)
    layer.build((None, None, E), (None, None, V))
    return randomise(layer)


def run(layer, x=X, value=VALUE, initial_state=None, **options):
    """Outputs, contexts, scores as arrays, and the state."""
    state = initial_state
    if state is not None:
        state = tree.map_structure(ops.convert_to_tensor, state)
    *sequences, state = layer(
        ops.convert_to_tensor(x),
        ops.convert_to_tensor(value),
        initial_state=state,
        return_context=True,
        return_attention_scores=True,
        return_state=True,
        **options,
    )
    return [to_numpy(sequence) for sequence in sequences], state


def assert_same(results, expected, atol=1e-5):
    """Nested results are near, leaf by leaf."""
    results, expected = tree.flatten(results), tree.flatten(expected)
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=atol, rtol=1e-4)


@pytest.mark.parametrize("attention", [TemporalAttention, partial(CoverageAttention, U)])
def test_a_state_in_half_precision_goes_on(attention):
    """Keras hands the state over as halves, and sums are float32 in the loop."""
    layer = decoder(attention=attention(dtype="mixed_float16"), dtype="mixed_float16")
    expected, _ = run(layer)
    _, state = run(layer, X[:, :2])

    def rest(inputs):
        return layer(inputs["x"], inputs["value"], initial_state=state)

    arrays = {"x": X[:, 2:], "value": VALUE}
    result = compiled(rest, arrays)(tensors_of(arrays))
    np.testing.assert_allclose(to_numpy(result), expected[0][:, 2:], atol=5e-3)


@pytest.mark.parametrize(("query", "first_changed"), [("previous", 3), ("current", 2)])
def test_which_state_asks(query, first_changed):
    """The third input reaches the third state: Luong asks with it, Bahdanau one step later."""
    layer = decoder(query=query)
    changed = X.copy()
    changed[:, 2] += 1.0
    (_, _, before), _ = run(layer)
    (_, _, after), _ = run(layer, changed)
    np.testing.assert_allclose(after[:, :first_changed], before[:, :first_changed], atol=1e-7)
    assert np.all(np.any(after[:, first_changed:] != before[:, first_changed:], axis=2))


def test_the_first_state_asks_first_in_bahdanaus_order():
    layer = decoder()
    start = random(3, B, C)
    (_, contexts, scores), _ = run(layer, initial_state=start)
    context, weights = layer.attention(
        ops.convert_to_tensor(start[:, None]),
        ops.convert_to_tensor(VALUE),
        return_attention_scores=True,
    )
    assert_same([contexts[:, :1], scores[:, :1]], [context, weights])


@pytest.mark.parametrize(
    ("activation", "function"),
    [("tanh", np.tanh), (None, np.positive), ("relu", lambda x: np.maximum(x, 0.0))],
    ids=["tanh", "none", "relu"],
)
def test_luongs_output_is_the_attentional_vector_of_the_state_after_the_step(activation, function):
    options = {} if activation == "tanh" else {"attention_activation": activation}
    layer = decoder(keras.layers.LSTMCell(C), LuongAttention("general"), query="current", **options)
    (outputs, contexts, _), state = run(layer)
    rnn = keras.layers.RNN(layer.cell, return_sequences=True)
    hidden = to_numpy(rnn(ops.convert_to_tensor(X)))  # without feeding, the cell sees inputs alone
    joined = np.concatenate([contexts, hidden], axis=2)
    expected = function(joined @ to_numpy(layer.attentional_kernel.value))
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(state["cell"][0]), hidden[:, -1], atol=1e-5)


@pytest.mark.parametrize("kind", ["gru", "gru-reset-before", "lstm", "simple"])
def test_without_its_context_a_decoder_is_keras_layer(kind):
    """Rows of the kernel that read the context set to zero leave a plain recurrent layer."""
    cell, layer = {
        "gru": (keras.layers.GRUCell(C), keras.layers.GRU(C, return_sequences=True)),
        "gru-reset-before": (
            keras.layers.GRUCell(C, reset_after=False),
            keras.layers.GRU(C, reset_after=False, return_sequences=True),
        ),
        "lstm": (keras.layers.LSTMCell(C), keras.layers.LSTM(C, return_sequences=True)),
        "simple": (keras.layers.SimpleRNNCell(C), keras.layers.SimpleRNN(C, return_sequences=True)),
    }[kind]
    ours = decoder(cell)
    kernel = to_numpy(cell.kernel.value).copy()
    kernel[E:] = 0.0
    cell.kernel.assign(kernel)
    layer(ops.convert_to_tensor(X))
    layer.set_weights([kernel[:E], *(to_numpy(w.value) for w in cell.weights[1:])])
    np.testing.assert_allclose(
        run(ours)[0][0], to_numpy(layer(ops.convert_to_tensor(X))), atol=1e-5
    )


def test_input_feeding_feeds_the_attentional_vector_and_not_the_context():
    layer = decoder(query="current", attention_size=11, input_feeding=True)
    assert tuple(layer.cell.kernel.shape) == (E + 11, 3 * C)
    (outputs, _, _), state = run(layer)
    np.testing.assert_allclose(to_numpy(state["attentional"]), outputs[:, -1], atol=1e-6)
    memory = layer.prepare_memory(ops.convert_to_tensor(VALUE))
    first = layer.initial_state(memory)
    np.testing.assert_array_equal(to_numpy(first["attentional"]), np.zeros((B, 11)))
    inputs = ops.convert_to_tensor(X[:, 0])
    expected = layer.step(inputs, memory, first)[0]
    other_context = {**first, "context": first["context"] + 1.0}
    assert_same(layer.step(inputs, memory, other_context)[0], expected, atol=0)
    other_vector = {**first, "attentional": first["attentional"] + 1.0}
    assert np.any(to_numpy(layer.step(inputs, memory, other_vector)[0]) != to_numpy(expected))


CELLS = {
    "gru": lambda: keras.layers.GRUCell(C),
    "gru-reset-before-no-bias": lambda: keras.layers.GRUCell(C, reset_after=False, use_bias=False),
    "gru-no-bias": lambda: keras.layers.GRUCell(C, use_bias=False),
    "gru-relu": lambda: keras.layers.GRUCell(C, activation="relu"),
    "lstm": lambda: keras.layers.LSTMCell(C),
    "lstm-no-bias": lambda: keras.layers.LSTMCell(C, use_bias=False),
    "simple": lambda: keras.layers.SimpleRNNCell(C),
    "own": lambda: LeakyCell(C),
    "stack": lambda: keras.layers.StackedRNNCells([keras.layers.LSTMCell(5), LeakyCell(C)]),
}


@pytest.mark.parametrize("options", [{}, {"query": "current", "input_feeding": True}], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_any_cell_runs_as_its_own_call_says(cell, options):
    """Whatever path the whole sequence takes, `step` calls the cell itself."""
    layer = decoder(CELLS[cell](), **options)
    (outputs, contexts, scores), state = run(layer, value_mask=ops.convert_to_tensor(MASK))
    memory = layer.prepare_memory(ops.convert_to_tensor(VALUE), ops.convert_to_tensor(MASK))
    current = layer.initial_state(memory)
    for t in range(T):
        output, weights, current = layer.step(ops.convert_to_tensor(X[:, t]), memory, current)
        step = [output, current["context"], weights]
        assert_same(step, [outputs[:, t], contexts[:, t], scores[:, t]])
    tree.assert_same_structure(state, current)
    assert_same(state, current)


def test_first_states_in_every_form():
    layer = decoder(keras.layers.LSTMCell(C))
    zeros = np.zeros((B, C), "float32")
    assert_same(run(layer), run(layer, initial_state=[zeros, zeros]))
    h, c = random(4, B, C), random(5, B, C)
    assert np.any(run(layer, initial_state=[h, c])[0][0] != run(layer, initial_state=[c, h])[0][0])
    memory = layer.prepare_memory(ops.convert_to_tensor(VALUE))
    as_state = layer.initial_state(memory, [ops.convert_to_tensor(h), ops.convert_to_tensor(c)])
    assert_same(as_state["cell"], [h, c])
    assert_same(run(layer, initial_state=[h, c]), run(layer, initial_state=as_state))
    single = decoder()
    assert_same(run(single, initial_state=h), run(single, initial_state=[h]))
    stack = decoder([keras.layers.LSTMCell(5), keras.layers.GRUCell(C)])
    states = [random(6, B, 5), random(7, B, 5), random(8, B, C)]
    kept = stack.initial_state(memory, [ops.convert_to_tensor(state) for state in states])
    assert_same(kept["cell"], states)


@pytest.mark.parametrize(
    "states", [[], [(B, C)], [(B, C)] * 3, [(B, C), (B, C + 1)], [(B, C), (C,)], [(2, C), (2, C)]]
)
def test_first_states_that_do_not_fit_are_refused(states):
    layer = decoder(keras.layers.LSTMCell(C))
    with pytest.raises(ValueError, match=r"`initial_state` must hold 2 states.*Received: "):
        run(layer, initial_state=[np.zeros(shape, "float32") for shape in states])


@pytest.mark.parametrize(
    ("cell", "attention", "options"),
    [
        ("gru", lambda: BahdanauAttention(U), {}),
        ("lstm", lambda: LuongAttention("general"), {"query": "current", "input_feeding": True}),
        ("stack", lambda: LocalAttention(1, score="general"), {"query": "current"}),
    ],
    ids=["gru", "lstm-feeding", "stack-local"],
)
def test_a_sequence_may_be_run_in_parts(cell, attention, options):
    """The returned state is all that the next part needs, a mechanism's place among it."""
    layer = decoder(CELLS[cell](), attention(), **options)
    whole, last = run(layer)
    first, state = run(layer, X[:, :2])
    second, end = run(layer, X[:, 2:], initial_state=state)
    joined = [np.concatenate(parts, axis=1) for parts in zip(first, second, strict=True)]
    assert_same([joined, end], [whole, last])


def test_what_is_asked_for_comes_back_in_order():
    layer = decoder(query="current", attention_size=11)
    sizes = {"outputs": (B, T, 11), "contexts": (B, T, V), "scores": (B, T, S)}
    full, state = run(layer)
    assert [array.shape for array in full] == list(sizes.values())
    x, value = ops.convert_to_tensor(X), ops.convert_to_tensor(VALUE)
    outputs, scores = layer(x, value, return_attention_scores=True)
    assert_same([outputs, scores], [full[0], full[2]])
    outputs, contexts = layer(x, value, return_context=True)
    assert_same([outputs, contexts], full[:2])
    outputs, last = layer(x, value, return_state=True)
    assert_same([outputs, last], [full[0], state])


def test_step_runs_compiled_for_any_batch():
    layer = decoder(keras.layers.LSTMCell(C), query="current", input_feeding=True)

    def first_step(arrays):
        memory = layer.prepare_memory(arrays["value"])
        state = layer.initial_state(memory, [arrays["h"], arrays["c"]])
        output, scores, state = layer.step(arrays["x"], memory, state)
        return {"output": output, "scores": scores, "context": state["context"]}

    function = None
    for batch, length in ((B, S), (1, 3)):
        shapes = {"value": (batch, length, V), "h": (batch, C), "c": (batch, C), "x": (batch, E)}
        arrays = {name: random(9, *shape) for name, shape in shapes.items()}
        function = function or compiled(first_step, arrays)
        tensors = tensors_of(arrays)
        results, expected = function(tensors), first_step(tensors)
        for name in expected:
            assert_same(results[name], expected[name])


def test_a_policy_of_its_own_goes_with_parts_of_another():
    """Only the decoder is told bfloat16: it runs, and gives its own dtype."""
    layer = decoder(dtype="mixed_bfloat16")
    exact = decoder()
    exact.set_weights(layer.get_weights())
    (outputs, _, _), _ = run(layer)
    np.testing.assert_allclose(outputs, run(exact)[0][0], atol=0.1)
    result = layer(ops.convert_to_tensor(X), ops.convert_to_tensor(VALUE))
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"


@pytest.mark.parametrize("options", [{}, {"query": "current", "input_feeding": True}])
def test_a_call_knows_its_features_where_lengths_are_open(options):
    """What follows, a pointer or a checked input, is built for a number of features."""
    layer = decoder(keras.layers.GRUCell(C), **options)
    features = {}

    def call(arrays):
        outputs, contexts = layer(arrays["x"], arrays["value"], return_context=True)
        features.update(outputs=outputs.shape[-1], contexts=contexts.shape[-1])
        return {"outputs": outputs, "contexts": contexts}

    arrays = {"x": random(1, B, T, E), "value": random(2, B, S, V)}
    results = compiled(call, arrays)(tensors_of(arrays))
    assert features == {"outputs": layer.output_size, "contexts": V}
    assert results["contexts"].shape == (B, T, V)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has open lengths in a graph")
@pytest.mark.parametrize("cell", ["gru", "simple"])
@pytest.mark.by_default("gru")
def test_a_decoder_without_feeding_trains_and_exports_with_open_lengths(cell, tmp_path):
    import tensorflow as tf

    x, value = keras.Input((None, E)), keras.Input((None, V))
    layer = AttentionDecoder(CELLS[cell](), LuongAttention("general"), query="current")
    model = keras.Model([x, value], layer(x, value))
    model.compile("sgd", "mse")
    shapes = [(None, None, E), (None, None, V), (None, None, C)]
    x, value, y = (tf.TensorSpec(shape) for shape in shapes)
    batches = tf.data.Dataset.from_generator(
        lambda: iter([((X, VALUE), np.zeros((B, T, C)))]), output_signature=((x, value), y)
    )
    model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0)
    model.export(tmp_path / "served", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "served")  # which keeps the variables alive
    served = loaded.serve([X[:, :2], VALUE[:, :3]])
    np.testing.assert_allclose(served, model([X[:, :2], VALUE[:, :3]]), atol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has open lengths in a graph")
def test_additive_scores_in_a_window_have_gradients_with_open_lengths():
    """The branch for the length is inside the loop over the steps."""
    import tensorflow as tf

    layer = decoder(attention=LocalAttention(1, score="concat", units=U))

    def gradients(x, value):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, value) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    shapes = [tf.TensorSpec((None, None, size)) for size in (E, V)]
    x, value = tf.constant(X), tf.constant(VALUE)
    found = tf.function(gradients, input_signature=shapes)(x, value)
    for one, wanted in zip(found, gradients(x, value), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5)


def test_the_shape_of_the_output():
    layer = decoder(query="current", attention_size=11)
    assert layer.compute_output_shape((B, T, E), (B, S, V)) == (B, T, 11)
    assert layer.compute_output_shape((None, None, E)) == (None, None, 11)


@pytest.mark.parametrize("cell", ["gru", "simple"])
@pytest.mark.parametrize(("batch", "steps", "places"), [(0, T, S), (B, 0, S), (B, T, 0)])
def test_empty_batches_steps_and_memories(cell, batch, steps, places):
    layer = decoder(CELLS[cell](), query="current", input_feeding=True)
    (outputs, contexts, scores), state = run(
        layer,
        np.ones((batch, steps, E), "float32"),
        np.ones((batch, places, V), "float32"),
        value_mask=ops.ones((batch, places), "bool"),
    )
    assert outputs.shape == (batch, steps, C) and scores.shape == (batch, steps, places)
    assert np.all(np.isfinite(outputs)) and contexts.shape == (batch, steps, V)
    assert tuple(state["cell"][0].shape) == (batch, C)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention_size": True}, "`attention_size` must be a positive integer"),
        ({"query": 3}, "`query` must be one of"),
        ({"attention_activation": None}, "`attention_activation` belongs to an attentional vector"),
        ({"query": "current", "input_feeding": "yes"}, "`input_feeding` must be True or False"),
        ({"cell": []}, "`cell` must be a Keras RNN cell"),
        ({"cell": [3]}, "`cell` must be a Keras RNN cell"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    arguments = {"cell": keras.layers.GRUCell(C), "attention": BahdanauAttention(U)} | arguments
    with pytest.raises(ValueError, match=f"{message}.*Received: "):
        AttentionDecoder(**arguments)


@pytest.mark.parametrize("name", ["value_mask", "inputs_mask"])
def test_a_mask_that_is_no_array_is_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be.*Received: "):
        run(decoder(), **{name: "mask"})


def test_a_memory_brings_its_own_mask():
    """Keras hands the memory's mask to `value_mask`, in a graph and without one."""
    layer = decoder()
    blank = np.where(MASK[..., None], VALUE, np.float32(0))
    expected = run(layer, value=blank, value_mask=ops.convert_to_tensor(MASK))[0]
    x, value = keras.Input((None, E)), keras.Input((None, V))
    masked = keras.layers.Masking()
    model = keras.Model([x, value], layer(x, masked(value)))
    assert_same(model([X, blank]), expected[0])
    assert_same(layer(ops.convert_to_tensor(X), masked(ops.convert_to_tensor(blank))), expected[0])


def test_lora_and_int8_of_the_attentional_kernel():
    layer = decoder(query="current", input_feeding=True)
    exact = run(layer)[0][0]
    layer.enable_lora(2)
    np.testing.assert_allclose(run(layer)[0][0], exact, atol=1e-6)  # it begins unchanged
    names = {weight.name for weight in layer.trainable_weights}
    assert {"attentional_kernel_lora_a", "attentional_kernel_lora_b"} <= names
    assert "attentional_kernel" not in names
    layer.quantize("int8")
    assert keras.backend.standardize_dtype(layer.attentional_kernel.dtype) == "int8"
    np.testing.assert_allclose(run(layer)[0][0], exact, atol=0.05)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="XLA compiles every step on JAX")
def test_xla_compiles_the_training_of_a_loop_of_steps():
    """One program holds the loops of several mechanisms: each compiles, and learns."""
    mechanisms = [
        BahdanauAttention(U),
        LuongAttention("location", max_length=S),
        LocalAttention(1, "predictive", score="general"),
        IntraDecoderAttention(),
    ]
    inputs, value = keras.Input((None, E)), keras.Input((None, C))
    decoders = [AttentionDecoder(keras.layers.SimpleRNNCell(C), each) for each in mechanisms]
    outputs = keras.layers.Add()([each(inputs, value) for each in decoders])
    model = keras.Model([inputs, value], outputs)
    model.compile("sgd", "mse", jit_compile=True)
    before = model.get_weights()
    # `fit` leaves the size of the batch open.
    model.fit([X, VALUE[..., :C]], random(3, B, T, C), verbose=0)
    for weight, start in zip(model.get_weights(), before, strict=True):
        assert np.all(np.isfinite(weight)) and np.any(weight != start)
