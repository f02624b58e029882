"""The decoder's whole loop, with gradients derived from the score, equals the loop of steps."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    AttentionDecoder,
    BahdanauAttention,
    CoverageAttention,
    LocalAttention,
    LuongAttention,
    ScoredAttention,
    TemporalAttention,
)
from keras_attention.layers.attention.attention_steps import AttentionSteps
from keras_attention.layers.recurrent import attention_decoder
from keras_attention.ops import scores as scores_module
from keras_attention.ops.loops import where_real
from tests.contracts.backend import (
    BACKEND,
    at_once,
    gradients_of,
    random,
    tensors_of,
    to_numpy,
    weighted_sum,
)
from tests.contracts.kinds import randomise

B, T, S, E, V, C, U = 3, 4, 7, 2, 13, 3, 17
MASK = np.arange(S) < np.array([7, 4, 0])[:, None]
ARRAYS = {"x": random(1, B, T, E), "value": random(2, B, S, V)}

CELLS = {
    "gru": lambda: keras.layers.GRUCell(C),
    "gru-no-bias": lambda: keras.layers.GRUCell(C, use_bias=False),
    "gru-reset-before": lambda: keras.layers.GRUCell(C, reset_after=False),
    "gru-reset-before-no-bias": lambda: keras.layers.GRUCell(C, reset_after=False, use_bias=False),
    "lstm": lambda: keras.layers.LSTMCell(C),
    "lstm-no-bias": lambda: keras.layers.LSTMCell(C, use_bias=False),
    "lstm-stack": lambda: [keras.layers.LSTMCell(5), keras.layers.LSTMCell(C)],
    "mixed-stack": lambda: [
        keras.layers.GRUCell(5, reset_after=False),
        keras.layers.LSTMCell(11, use_bias=False),
        keras.layers.GRUCell(C),
    ],
}


class CosineAttention(ScoredAttention):
    """A user's score, with a factor that is learned."""

    def build_score(self, query_size, key_size):
        self.kernel = self.add_weight((query_size, key_size), name="kernel")
        self.factor = self.add_weight((), initializer="ones", name="factor")

    def project_query(self, query):
        return ops.normalize(ops.matmul(query, self.cast(self.kernel)), axis=-1)

    def project_key(self, key):
        return ops.normalize(key, axis=-1)

    def score(self, query, key, positions):
        return self.cast(self.factor) * ops.matmul(query, ops.swapaxes(key, 1, 2))


OUTSIDE = keras.Variable(0.7, name="outside")


class RememberingAttention(CosineAttention):
    """A user's state: how much was read, how many steps; variables in the score and the update."""

    def build_score(self, query_size, key_size):
        super().build_score(query_size, key_size)
        self.price = self.add_weight((), initializer="ones", name="price")
        self.decay = self.add_weight((), initializer="ones", name="decay")

    def initial_state(self, memory):
        read = ops.zeros_like(memory["value"][:, :, 0])
        return {"read": read, "steps": ops.zeros_like(read[:, 0], dtype="int32")}

    def score(self, query, key, positions, state):
        near = OUTSIDE * ops.cast(positions - ops.expand_dims(state["steps"], 2), query.dtype)
        price = self.cast(self.price) * state["read"]
        return super().score(query, key, positions) - price - ops.tanh(near)

    def update(self, state, scores, weights):
        read = self.cast(self.decay) * state["read"] + weights * weights + 0.1 * ops.tanh(scores)
        return {"read": read, "steps": state["steps"] + 1}


class PricedAttention(BahdanauAttention):
    """A user's score over the hidden layer of another."""

    def score(self, query, key, positions):
        return 0.5 * super().score(query, key, positions) ** 2


MECHANISMS = {
    "additive": lambda **options: BahdanauAttention(U, use_bias=True, **options),
    "coverage": lambda **options: CoverageAttention(U, use_bias=True, **options),
    "general": lambda **options: LuongAttention("general", **options),
    "concat": lambda **options: LuongAttention("concat", units=U, **options),
    "location": lambda **options: LuongAttention("location", max_length=6, **options),
    "temporal": lambda **options: TemporalAttention(**options),
    "cosine": lambda **options: CosineAttention(**options),
    "remembering": lambda **options: RememberingAttention(**options),
    "priced": lambda **options: PricedAttention(U, **options),
}
ORDERS = {
    "previous": {},
    "previous-vector": {"attention_size": 7},
    "current": {"query": "current"},
    "feeding": {"query": "current", "attention_size": 7, "input_feeding": True},
    "linear": {
        "query": "current",
        "attention_size": 7,
        "input_feeding": True,
        "attention_activation": None,
    },
    "previous-linear": {"attention_size": 7, "attention_activation": "linear"},
}


def results_and_gradients(make, training=False):
    """Everything that a call gives, and the gradients of a weighted sum of all of it."""
    layer = make()
    layer.build((None, None, E), (None, None, V))
    randomise(layer)
    sizes = keras.tree.flatten(layer.cell.state_size)
    states = [random(5 + i, B, size) for i, size in enumerate(sizes)]

    def call(x, value, *states):
        sequences = layer(
            x,
            value,
            initial_state=list(states),
            value_mask=ops.convert_to_tensor(MASK),
            return_context=True,
            return_attention_scores=True,
            return_state=True,
            training=training,
        )
        return keras.tree.flatten(sequences)

    def loss(*tensors):
        results = call(*tensors)
        return sum(
            weighted_sum(result, random(20 + i, *result.shape)) for i, result in enumerate(results)
        )

    arrays = [*ARRAYS.values(), *states]
    results = at_once(lambda tensors: call(*tensors))([*map(ops.convert_to_tensor, arrays)])
    return [to_numpy(result) for result in results] + gradients_of(loss, *arrays, layer=layer)


def step_by_step(monkeypatch):
    """Makes every decoder take the loop of steps."""
    monkeypatch.setattr(attention_decoder, "whole_loop", lambda *args: None)


def assert_both_agree(monkeypatch, make, training=False, **options):
    taken = []
    loop = attention_decoder.whole_loop
    monkeypatch.setattr(
        attention_decoder,
        "whole_loop",
        lambda *args: taken.append(loop(*args)) or taken[-1],
    )
    results = results_and_gradients(make, training)
    assert taken and None not in taken, "the decoder did not take the whole loop"
    step_by_step(monkeypatch)
    expected = results_and_gradients(make, training)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


# The order does not know the mechanism: by default, a few of both.
@pytest.mark.by_default(
    "coverage-feeding", "concat-feeding", "coverage-current", "temporal-previous", "cosine-linear"
)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_loops_agree_for_every_mechanism_and_order(monkeypatch, mechanism, order):
    cell = {"previous": "gru", "previous-vector": "lstm", "current": "gru"}.get(order, "lstm-stack")
    assert_both_agree(
        monkeypatch,
        lambda: AttentionDecoder(CELLS[cell](), MECHANISMS[mechanism](), **ORDERS[order]),
    )


# The stack has both kinds, without a bias and with the reset gate before the product.
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.by_default("gru", "lstm", "mixed-stack")
def test_loops_agree_for_every_cell(monkeypatch, cell):
    options = ORDERS["feeding"]
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(CELLS[cell](), MECHANISMS["general"](), **options)
    )


@pytest.mark.parametrize("mechanism", ["additive", "coverage", "general", "cosine"])
def test_loops_agree_with_dropout_of_the_weights(monkeypatch, mechanism):
    assert_both_agree(
        monkeypatch,
        lambda: AttentionDecoder(CELLS["gru"](), MECHANISMS[mechanism](dropout=0.4, seed=3)),
        training=True,
    )


@pytest.mark.parametrize("order", ["previous", "feeding"])
def test_loops_agree_with_dropout_in_cells(monkeypatch, order):
    def make():
        cells = [keras.layers.GRUCell(5, dropout=0.4, seed=1)]
        cells += [keras.layers.LSTMCell(C, dropout=0.3, seed=2)]
        return AttentionDecoder(cells, MECHANISMS["general"](), **ORDERS[order])

    assert_both_agree(monkeypatch, make, training=True)


def test_loops_agree_for_a_dot_score(monkeypatch):
    """Queries and keys of one size, and no weight between them."""
    assert_both_agree(
        monkeypatch, lambda: AttentionDecoder(keras.layers.GRUCell(V), LuongAttention("dot"))
    )


class SharpAttention(BahdanauAttention):
    """A user's subclass, with a score of its own."""

    def score(self, query, key, positions):
        return 3.0 * super().score(query, key, positions) + ops.cast(positions, query.dtype)


class NamedAttention(BahdanauAttention):
    """A user's subclass, which scores as its parent does."""

    def get_config(self):
        return super().get_config()


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has graphs with and without")
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("mechanism", ["additive", "coverage", "general"])
def test_a_training_step_is_the_same_compiled(mechanism, jit):
    """Gradients of keys are added up in the loop, or come from one VJP after it."""
    import tensorflow as tf

    layer = AttentionDecoder(CELLS["gru"](), MECHANISMS[mechanism]())
    layer.build((None, None, E), (None, None, V))
    randomise(layer)

    def gradients(x, value):
        with tf.GradientTape() as tape:
            tape.watch([x, value])
            loss = tf.reduce_sum(layer(x, value, training=True) ** 2)
        weights = [weight.value for weight in layer.trainable_weights]
        return tape.gradient(loss, [*weights, x, value])

    tensors = list(tensors_of(ARRAYS).values())
    found = tf.function(gradients, jit_compile=jit)(*tensors)
    for one, wanted in zip(found, gradients(*tensors), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has graphs with and without")
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_an_additive_score_in_blocks_of_queries_is_the_same_compiled(monkeypatch, jit):
    """The gradients of whole sequences are those of one block of queries after the other."""
    import tensorflow as tf

    monkeypatch.setattr(scores_module, "BLOCK_NUMBERS", 2 * B * S * U)
    layer = MECHANISMS["additive"]()
    layer.build((None, None, E), (None, None, V))
    randomise(layer)

    def gradients(x, value):
        with tf.GradientTape() as tape:
            tape.watch([x, value])
            loss = tf.reduce_sum(layer(x, value) ** 2)
        weights = [weight.value for weight in layer.trainable_weights]
        return tape.gradient(loss, [*weights, x, value])

    tensors = list(tensors_of(ARRAYS).values())
    found = tf.function(gradients, jit_compile=jit)(*tensors)
    for one, wanted in zip(found, gradients(*tensors), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "is_added_up"),
    [
        (MECHANISMS["additive"], True),
        (MECHANISMS["coverage"], True),
        (MECHANISMS["concat"], True),
        (MECHANISMS["priced"], True),
        (MECHANISMS["general"], False),
        (MECHANISMS["temporal"], False),
        (MECHANISMS["cosine"], False),
    ],
    ids=["additive", "coverage", "concat", "a user's", "general", "temporal", "cosine"],
)
def test_gradients_of_keys_are_added_up_where_pairs_have_a_hidden_layer(make, is_added_up):
    """That layer is at hand in each step; a product of all steps is faster for the others."""
    mechanism = make()
    mechanism.build((None, None, E), (None, None, V))
    memory = mechanism.prepare_memory(ops.convert_to_tensor(ARRAYS["value"]))
    steps = AttentionSteps(mechanism, memory, mechanism.initial_state(memory))
    assert bool(steps.first_sums(steps.given)) is is_added_up


@pytest.mark.parametrize("order", ["previous", "feeding"])
@pytest.mark.parametrize("mechanism", ["cosine", "remembering", "priced"])
def test_gradients_of_a_users_mechanism_are_those_of_the_steps(monkeypatch, mechanism, order):
    """To 1e-5 of the largest: the whole loop is derived from the score, with no declaration."""

    def run():
        return results_and_gradients(
            lambda: AttentionDecoder(CELLS["gru"](), MECHANISMS[mechanism](), **ORDERS[order])
        )

    found = run()
    step_by_step(monkeypatch)
    for result, wanted in zip(found, run(), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


def test_a_variable_outside_of_the_layer_gets_its_gradient(monkeypatch):
    """The score reads it, and no weight of the layer is it."""
    layer = AttentionDecoder(CELLS["gru"](), RememberingAttention())
    layer.build((None, None, E), (None, None, V))
    randomise(layer)
    factors = random(9, B, T, C)

    def loss(value):
        OUTSIDE.assign(value)
        return float(to_numpy(weighted_sum(layer(*tensors_of(ARRAYS).values()), factors)))

    slope = (loss(0.7 + 1e-2) - loss(0.7 - 1e-2)) / 2e-2
    OUTSIDE.assign(0.7)
    holder = keras.layers.Layer()
    holder.outside = OUTSIDE
    (gradient,) = gradients_of(
        lambda: weighted_sum(layer(*tensors_of(ARRAYS).values()), factors), layer=holder
    )
    np.testing.assert_allclose(gradient, slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("cell", ["gru", "simple"])
def test_whole_sequences_and_steps_of_a_state_agree(cell):
    """In a call of the mechanism alone, in the loop of a known cell, and in that of any other."""
    cells = {"gru": keras.layers.GRUCell, "simple": keras.layers.SimpleRNNCell}
    attention = RememberingAttention()
    decoder = AttentionDecoder(cells[cell](C), attention, query="current")
    x, value = tensors_of(ARRAYS).values()
    real = np.array([[True, True, True, True], [True, False, True, False], [False] * 4])
    decoder.build(x.shape, value.shape)
    randomise(decoder)
    masks = {"inputs_mask": real, "value_mask": MASK}
    _, state = decoder(x, value, return_state=True, **masks)
    hidden = random(31, B, T, C)
    context, scores = attention(
        hidden, value, query_mask=real, value_mask=MASK, return_attention_scores=True
    )
    memory = attention.prepare_memory(value, mask=ops.convert_to_tensor(MASK))
    before = attention.initial_state(memory)
    steps = np.zeros(B, "int32")
    for t in range(T):
        read, weights, after = attention.step(ops.convert_to_tensor(hidden[:, t]), memory, before)
        for found, wanted in ((context, read), (scores, weights)):
            wanted = np.where(real[:, t, None], to_numpy(wanted), 0)
            np.testing.assert_allclose(to_numpy(found)[:, t], wanted, atol=1e-5)
        before = where_real(ops.convert_to_tensor(real[:, t]), after, before)
        steps += real[:, t]
    np.testing.assert_array_equal(to_numpy(before["steps"]), steps)
    np.testing.assert_array_equal(to_numpy(state["attention"]["steps"]), steps)


class NoisyAttention(CosineAttention):
    """A user's score that draws random numbers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = keras.layers.Dropout(0.5, seed=3)

    def score(self, query, key, positions):
        return super().score(self.drop(query, training=True), key, positions)


class OnlyFirst(LuongAttention):
    """A user's subclass, with a mask of its own."""

    def score_mask(self, positions):
        return positions < 1


class SigmoidAttention(LuongAttention):
    """A user's subclass, whose weights are no softmax."""

    def __init__(self, **kwargs):
        super().__init__("general", **kwargs)

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        weights = ops.sigmoid(self.score(self.queries(query), memory["key"], None))
        return self.read(weights, memory), weights, state


class DoublingCell(keras.layers.GRUCell):
    """A user's subclass, with a step of its own."""

    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2.0 * output, states


@pytest.mark.parametrize(
    ("cell", "attention", "is_fast"),
    [
        (keras.layers.GRUCell, lambda: NamedAttention(U), True),
        (keras.layers.GRUCell, lambda: OnlyFirst("general"), True),
        (keras.layers.GRUCell, lambda: SharpAttention(U), True),
        (keras.layers.GRUCell, CosineAttention, True),
        (keras.layers.GRUCell, SigmoidAttention, False),
        (keras.layers.GRUCell, lambda: LocalAttention(2, score="general"), False),
        (DoublingCell, lambda: BahdanauAttention(U), False),
    ],
    ids=["inherits", "mask", "score", "user", "attend", "local", "cell"],
)
def test_a_subclass_gives_its_own_result_and_takes_the_whole_loop(
    monkeypatch, cell, attention, is_fast
):
    """Every mechanism takes it whose weights are the softmax of its score, with no declaration."""
    taken, loop = [], attention_decoder.whole_loop
    monkeypatch.setattr(
        attention_decoder, "whole_loop", lambda *args: taken.append(loop(*args)) or taken[-1]
    )
    layer = AttentionDecoder(cell(C), attention(), query="current")
    x, value = tensors_of(ARRAYS).values()
    layer.build(x.shape, value.shape)
    outputs, scores = randomise(layer)(x, value, return_attention_scores=True)
    assert (taken[-1] is not None) == is_fast
    memory = layer.prepare_memory(value)
    state = layer.initial_state(memory)
    for t in range(T):
        output, weights, state = layer.step(x[:, t], memory, state)
        np.testing.assert_allclose(to_numpy(output), to_numpy(outputs)[:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(weights), to_numpy(scores)[:, t], atol=1e-5)


def test_a_score_that_draws_random_numbers_takes_the_loop_of_steps():
    """Drawn again in a backward pass, they would be others."""
    layer = AttentionDecoder(CELLS["gru"](), NoisyAttention())
    x, value = tensors_of(ARRAYS).values()
    layer(x, value)
    memory = layer.prepare_memory(value)
    loop = attention_decoder.whole_loop
    assert loop(layer.cell, layer.attention, memory, layer.initial_state(memory)) is None


class NoisyRememberingAttention(RememberingAttention):
    """A user's score with a state that draws random numbers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.drop = keras.layers.Dropout(0.5, seed=3)

    def score(self, query, key, positions, state):
        return super().score(self.drop(query, training=True), key, positions, state)


def test_a_score_with_a_state_that_draws_random_numbers_has_the_gradient_of_what_it_drew():
    layer = NoisyRememberingAttention()
    query, value = random(41, B, T, C), ARRAYS["value"]
    layer.build(query.shape, value.shape)
    randomise(layer)
    first = [to_numpy(seed.value) for seed in layer.drop.non_trainable_variables]
    factors = random(42, B, T, S)

    def loss(query):
        for seed, value_of_it in zip(layer.drop.non_trainable_variables, first, strict=True):
            seed.assign(value_of_it)
        _, scores = layer(query, value, query_mask=MASK[:, :T], return_attention_scores=True)
        return weighted_sum(scores, factors)

    direction = random(43, B, T, C)
    (gradient,) = gradients_of(loss, query)
    ahead, behind = (
        float(to_numpy(loss(ops.convert_to_tensor(query + step * direction))))
        for step in (1e-2, -1e-2)
    )
    slope = (ahead - behind) / 2e-2
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("mechanism", ["general", "coverage", "temporal", "cosine"])
def test_loops_agree_in_half_precision_with_queries_beyond_its_range(monkeypatch, mechanism, dtype):
    """Large projected queries are clipped on both paths alike."""
    keras.config.set_dtype_policy(dtype)

    def run():
        layer = AttentionDecoder(CELLS["lstm"](), MECHANISMS[mechanism](), query="current")
        layer.build((None, None, E), (None, None, V))
        randomise(layer)
        for weight in layer.attention.weights:
            if weight.name == "query_kernel":
                weight.assign(ops.ones_like(weight) * 6e4)
        x, value = tensors_of(ARRAYS).values()
        return [to_numpy(part) for part in layer(x, value, return_attention_scores=True)]

    found = run()
    step_by_step(monkeypatch)
    for result, wanted in zip(found, run(), strict=True):
        assert np.all(np.isfinite(np.float32(result)))
        np.testing.assert_allclose(np.float32(result), np.float32(wanted), atol=3e-2)


def test_numbers_that_are_none_in_padding_reach_no_gradient():
    layer = AttentionDecoder(CELLS["lstm-stack"](), MECHANISMS["additive"](), query="current")
    layer.build((None, None, E), (None, None, V))
    randomise(layer)
    poisoned = np.where(MASK[..., None], ARRAYS["value"], np.float32(np.nan))
    factors = random(9, B, T, C)

    def gradients(value):
        def loss(x, value):
            outputs = layer(x, value, value_mask=ops.convert_to_tensor(MASK))
            return weighted_sum(outputs, factors)

        return gradients_of(loss, ARRAYS["x"], value)

    for poison, clean in zip(gradients(poisoned), gradients(ARRAYS["value"]), strict=True):
        np.testing.assert_array_equal(poison, clean)


def test_an_attentional_vector_of_another_activation_takes_the_loop_of_steps():
    """The whole loop knows the derivatives of tanh and of no activation."""
    layer = AttentionDecoder(
        CELLS["gru"](), MECHANISMS["general"](), query="current", attention_activation="relu"
    )
    layer.build((None, None, E), (None, None, V))
    memory = layer.attention.prepare_memory(ops.convert_to_tensor(ARRAYS["value"]))
    parts = layer.cell, layer.attention, memory, {"attention": {}}
    assert attention_decoder.whole_loop(*parts, layer.attention_activation) is None
    assert attention_decoder.whole_loop(*parts, keras.activations.linear) is not None
