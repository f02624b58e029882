"""`InnerAttentionGRU` beside Keras' GRU, and what it does as a recurrent layer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import InnerAttentionGRU, InnerAttentionGRUCell
from keras_attention.layers.recurrent.inner_attention_gru import stock_gru
from keras_attention.losses import occam_penalty
from tests.contracts import oracles_inner_attention as oracle
from tests.contracts.backend import (
    BACKEND,
    gradients_of,
    random,
    to_numpy,
    weight_gradients,
    weighted_sum,
)
from tests.contracts.kinds import randomise

B, T, D, Q, U = 3, 5, 7, 11, 13
KINDS = ("gate", "word", "context")
FORMS = [("gate", False), ("word", True), ("word", False), ("context", True), ("context", False)]
# Padding at the end, at both ends with a gap, and nothing but padding.
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [0] * 5], bool)


def built(attention="word", **options):
    """A layer with random weights, biases and all."""
    layer = InnerAttentionGRU(U, attention, **options)
    layer.build((B, T, D), (B, Q))
    return randomise(layer)


def arrays(seed=0):
    """Inputs, queries and first states."""
    return random(seed + 1, B, T, D), random(seed + 2, B, Q), random(seed + 3, B, U, scale=0.5)


def weights_of(layer):
    """The cell's weights in float64, by name."""
    own = [weight for weight in layer.cell.weights if "seed" not in weight.path]
    return {weight.path.split("/")[-1]: np.float64(to_numpy(weight)) for weight in own}


def close(result, expected, atol=1e-5):
    """Near, to float32's precision."""
    np.testing.assert_allclose(to_numpy(ops.convert_to_tensor(result)), expected, atol=atol)


def oracle_of(layer, inputs, query, state=None, mask=None):
    """The float64 results of a layer."""
    cell = layer.cell
    options = {"units": U, "attention": cell.attention, "reset_after": cell.reset_after}
    given = {"inputs": inputs, "query": query, "state": state, "mask": mask}
    given = {name: array for name, array in given.items() if array is not None}
    return oracle.sequence(weights_of(layer), options, given)


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize(("attention", "reset_after"), FORMS)
def test_states_and_weights_are_the_oracles(attention, reset_after, mask):
    layer = built(attention, reset_after=reset_after, return_sequences=True, return_state=True)
    inputs, query, state = arrays()
    want = attention != "gate"
    results = layer(inputs, query, mask=mask, initial_state=state, return_attention_scores=want)
    expected = oracle_of(layer, inputs, query, state, mask)
    for result, name in zip(results, ("outputs", "state", "scores"), strict=False):
        close(result, expected[name])
    assert len(results) == 2 + want


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize(("attention", "reset_after"), FORMS)
@pytest.mark.parametrize("training", [False, True], ids=["computed-again", "kept"])
@pytest.mark.by_default(masked=[True])
def test_gradients_are_those_of_the_cell_step_by_step(attention, reset_after, masked, training):
    """The loop's own gradient against the backend's, of outputs and weights both."""
    layer = built(attention, reset_after=reset_after, return_sequences=True)
    mask = MASK if masked else np.ones((B, T), bool)
    want = attention != "gate"
    factors, of_scores = random(20, B, T, U), random(21, B, T) * mask

    def whole(inputs, query, state):
        results = layer(
            inputs,
            query,
            mask=MASK if masked else None,
            initial_state=state,
            return_attention_scores=want,
            training=training,
        )
        if not want:
            return weighted_sum(results, factors)
        return weighted_sum(results[0], factors) + weighted_sum(results[1], of_scores)

    def stepwise(inputs, query, state):
        hidden, total = state, 0.0
        for t in range(T):
            results = layer.cell(inputs[:, t], [hidden], query, return_attention_scores=want)
            hidden = ops.where(mask[:, t, None], results[0], hidden)
            total = total + weighted_sum(hidden, factors[:, t])
            if want:
                total = total + weighted_sum(results[2], of_scores[:, t])
        return total

    names = [weight.path for weight in layer.trainable_weights] + ["inputs", "query", "state"]
    both = (gradients_of(loss, *arrays(), layer=layer) for loss in (whole, stepwise))
    for name, own, expected in zip(names, *both, strict=True):
        assert np.any(expected != 0.0), name
        np.testing.assert_allclose(own, expected, atol=3e-5, rtol=1e-4, err_msg=name)


def test_word_is_keras_gru_over_weighed_inputs():
    layer = built("word", return_sequences=True)
    inputs, query, state = arrays()
    stock = keras.layers.GRU(U, return_sequences=True)
    stock.build((B, T, D))
    stock.set_weights([layer.cell.kernel, layer.cell.recurrent_kernel, layer.cell.bias])
    outputs, scores = layer(inputs, query, initial_state=state, return_attention_scores=True)
    weights = weights_of(layer)
    asked = np.einsum("bd,btd->bt", query @ weights["attention_kernel"], inputs)
    close(scores, oracle.sigmoid(asked))
    weighed = (inputs * to_numpy(scores)[..., None]).astype("float32")
    close(outputs, to_numpy(stock(weighed, initial_state=state)))


def test_gate_is_keras_gru_that_reads_the_query_with_every_word():
    layer = built("gate", return_sequences=True)
    inputs, query, state = arrays()
    weights = weights_of(layer)
    # Keras' z says what is kept: ours negated. No row of the query leads to the candidate.
    sign = np.repeat([-1.0, 1.0, 1.0], U)
    rows = np.concatenate([weights["query_kernel"], np.zeros((Q, U))], axis=1)
    stock = keras.layers.GRU(U, return_sequences=True, reset_after=False)
    stock.build((B, T, D + Q))
    kernel = np.concatenate([weights["kernel"], rows]) * sign
    stock.set_weights([kernel, weights["recurrent_kernel"] * sign, weights["bias"] * sign])
    repeated = np.repeat(query[:, None], T, axis=1)
    expected = stock(np.concatenate([inputs, repeated], axis=2), initial_state=state)
    close(layer(inputs, query, initial_state=state), to_numpy(expected))


@pytest.mark.parametrize("attention", KINDS)
def test_without_a_query_the_mean_of_the_real_words_asks(attention):
    layer = InnerAttentionGRU(U, attention)
    inputs = random(1, B, T, D)
    layer(inputs)
    randomise(layer)
    counts = np.maximum(MASK.sum(axis=1, keepdims=True), 1)
    mean = (inputs * MASK[..., None]).sum(axis=1) / counts
    close(layer(inputs, mask=MASK), to_numpy(layer(inputs, mean.astype("float32"), mask=MASK)))
    assert layer.cell.query_size == D


@pytest.mark.parametrize("attention", KINDS)
def test_padding_may_hold_anything(attention):
    layer = built(attention, return_sequences=True)
    inputs, query, state = arrays()
    expected = to_numpy(layer(inputs, query, mask=MASK, initial_state=state))
    poisoned = np.where(MASK[..., None], inputs, np.float32(np.nan))
    close(layer(poisoned, query, mask=MASK, initial_state=state), expected, atol=0)
    longer = np.pad(poisoned, [(0, 0), (1, 2), (0, 0)], constant_values=1e30)
    results = layer(longer, query, mask=np.pad(MASK, [(0, 0), (1, 2)]), initial_state=state)
    close(results[:, 1:-2], expected)
    close(results[:, 0], state)  # a masked step keeps the state
    close(results[2], np.broadcast_to(state[2], (T + 3, U)))


@pytest.mark.parametrize("attention", KINDS)
def test_an_implicit_mask_counts_beside_a_query_and_a_state(attention):
    layer = built(attention)
    inputs, query, state = arrays()
    blank = np.where(MASK[..., None], inputs, np.float32(0))
    symbols = [keras.Input((T, D)), keras.Input((Q,)), keras.Input((U,))]
    words = keras.layers.Masking()(symbols[0])
    model = keras.Model(symbols, layer(words, symbols[1], initial_state=symbols[2]))
    expected = to_numpy(layer(inputs, query, mask=MASK, initial_state=state))
    close(model([blank, query, state]), expected)
    masked = keras.layers.Masking()(ops.convert_to_tensor(blank))
    close(layer(masked, query, initial_state=state), expected)
    close(layer([masked, query], initial_state=state), expected)


@pytest.mark.parametrize("attention", KINDS)
def test_backwards_is_the_reversed_sequence(attention):
    forward, backward = (
        built(attention, return_sequences=True, return_state=True, go_backwards=turned)
        for turned in (False, True)
    )
    inputs, query, state = arrays()
    want = attention != "gate"
    results = backward(inputs, query, mask=MASK, initial_state=state, return_attention_scores=want)
    expected = forward(
        inputs[:, ::-1],
        query,
        mask=MASK[:, ::-1],
        initial_state=state,
        return_attention_scores=want,
    )
    close(results[0], to_numpy(expected[0]))
    close(results[1], to_numpy(expected[1]))
    if want:  # weights belong to words: they come in the words' order
        close(results[2], to_numpy(expected[2])[:, ::-1])
        assert np.all(to_numpy(results[2])[~MASK] == 0.0)


@pytest.mark.parametrize("attention", KINDS)
def test_keras_bidirectional_takes_inputs_and_a_query_as_a_pair(attention, tmp_path):
    inputs, query, _ = arrays()
    symbols = [keras.Input((None, D)), keras.Input((Q,))]
    words = keras.layers.Masking()(symbols[0])
    both = keras.layers.Bidirectional(InnerAttentionGRU(U, attention, return_sequences=True))
    model = keras.Model(symbols, both([words, symbols[1]]))
    assert model.output_shape == (None, None, 2 * U)
    randomise(model)
    blank = np.where(MASK[..., None], inputs, np.float32(0))
    result = to_numpy(model([blank, query]))
    forward, backward = both.forward_layer, both.backward_layer
    reverse = oracle_of(backward, inputs[:, ::-1], query, mask=MASK[:, ::-1])["outputs"]
    parts = [oracle_of(forward, inputs, query, mask=MASK)["outputs"], reverse[:, ::-1]]
    # Keras' Bidirectional asks its layers for zeros where they are masked.
    close(result, np.where(MASK[..., None], np.concatenate(parts, axis=2), 0))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    close(loaded([blank, query]), result, atol=1e-6)


@pytest.mark.parametrize("attention", KINDS)
def test_stateful_goes_on_where_the_last_batch_ended(attention):
    layer = built(attention, stateful=True, return_sequences=True)
    inputs, query, _ = arrays()
    once = to_numpy(layer(inputs, query))
    layer.reset_state()
    halves = [to_numpy(layer(half, query)) for half in (inputs[:, :2], inputs[:, 2:])]
    close(np.concatenate(halves, axis=1), once)
    close(layer.states[0], once[:, -1])
    with pytest.raises(ValueError, match="row for each example.*Received"):
        layer(inputs[:2], query[:2])


@pytest.mark.parametrize("attention", KINDS)
def test_unrolled_is_the_same(attention):
    inputs, query, state = arrays()
    results = []
    for unroll in (False, True):
        layer = built(attention, unroll=unroll, return_sequences=True)
        outputs = layer(inputs, query, mask=MASK, initial_state=state)
        slopes = weight_gradients(
            layer, lambda layer=layer: ops.sum(layer(inputs, query, mask=MASK) ** 2)
        )
        results.append([to_numpy(outputs), *slopes])
    for rolled, unrolled in zip(*results, strict=True):
        np.testing.assert_allclose(unrolled, rolled, atol=2e-5)
    with pytest.raises(ValueError, match="known length.*Received"):
        layer(keras.Input((None, D)), keras.Input((Q,)))


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("dropout", ["dropout", "recurrent_dropout"])
def test_dropout_is_one_mask_a_sequence_and_the_cells_own(attention, dropout):
    layer = built(attention, return_sequences=True, seed=4, **{dropout: 0.5})
    inputs, query, state = arrays()
    still = to_numpy(layer(inputs, query, initial_state=state))
    close(still, oracle_of(layer, inputs, query, state)["outputs"])
    dropped = to_numpy(layer(inputs, query, initial_state=state, training=True))
    again = to_numpy(layer(inputs, query, initial_state=state, training=True))
    assert np.any(dropped != still) and np.any(dropped != again)
    # The cell on its own, with the same draw, step by step.
    layer.cell.seed_generator.state.assign(
        built(attention, seed=4, **{dropout: 0.5}).cell.seed_generator.state
    )
    for options, expected in (({"training": True}, dropped), ({}, still)):
        hidden, outputs = ops.convert_to_tensor(state), []
        for t in range(T):
            hidden, _ = layer.cell(ops.convert_to_tensor(inputs[:, t]), hidden, query, **options)
            outputs.append(to_numpy(hidden))
        np.testing.assert_allclose(expected, np.stack(outputs, axis=1), atol=1e-5)


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
def test_word_on_keras_own_loop_is_the_same(mask):
    """What cuDNN serves: sorted, since it knows masks only of padding at the end."""
    layer = built("word", return_sequences=True)
    inputs, query, state = arrays()
    outputs, scores = layer(
        inputs, query, mask=mask, initial_state=state, return_attention_scores=True
    )
    kept = np.ones((B, T), bool) if mask is None else mask
    weighed = np.where(kept[..., None], inputs * to_numpy(scores)[..., None], np.float32(0))
    tensors = (ops.convert_to_tensor(array) for array in (weighed.astype("float32"), state))
    on_stock = stock_gru(layer.cell, *tensors, mask, "auto")
    close(on_stock, to_numpy(outputs))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends need no cuDNN for it")
def test_cudnn_that_is_asked_for_and_not_there_is_said():
    if keras.distribution.list_devices("gpu"):
        pytest.skip("cuDNN may be there")
    inputs, query, _ = arrays()
    with pytest.raises(ValueError, match="cuDNN is not supported"):
        built("word", use_cudnn=True)(inputs, query)


@pytest.mark.parametrize("attention", ["word", "context"])
def test_occams_penalty_is_a_loss_that_teaches_its_price(attention, traced_nowhere):
    layer = built(attention, occam=True, occam_minimum=0.1)
    inputs, query, _ = arrays()
    _, scores = layer(inputs, query, mask=MASK, return_attention_scores=True)
    weights = weights_of(layer)
    price = np.maximum(query @ weights["occam_vector"], 0.1)
    assert np.any(price > 0.1) and np.any(price == 0.1)
    expected = np.mean(price * (to_numpy(scores) * MASK).sum(axis=1))
    assert len(layer.losses) == 1
    close(layer.losses[0], expected)
    pure = occam_penalty(scores, query, weights["occam_vector"].astype("float32"), 0.1, MASK)
    close(pure, expected)

    symbols = [keras.Input((None, D)), keras.Input((Q,))]
    model = keras.Model(symbols, layer(*symbols))
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    before = weights_of(layer)
    target = to_numpy(model([inputs, query]))  # the task's own loss is 0, and has no slope
    model.train_on_batch([inputs, query], target)
    after = weights_of(layer)
    for name in ("occam_vector", "attention_kernel"):
        assert np.any(after[name] != before[name]), name


def test_occams_penalty_knows_its_value_and_refuses_what_does_not_fit():
    scores = np.array([[0.5, 1.0, 0.25], [1.0, 1.0, 1.0]], "float32")
    query = np.array([[2.0, 1.0], [-1.0, 0.0]], "float32")
    vector = np.array([0.5, 1.0], "float32")
    # Prices 2 and the minimum 0.5; sums of weights 1.75 and 3.
    close(occam_penalty(scores, query, vector, 0.5), (2 * 1.75 + 0.5 * 3) / 2)
    mask = np.array([[True, True, False], [False] * 3])
    close(occam_penalty(scores, query, vector, 0.5, mask), 2 * 1.5 / 2)
    for wrong in (
        (scores, query, vector, 0.0, None),
        (scores, query[:1], vector, 0.5, None),
        (scores, query, vector[:1], 0.5, None),
        (scores, query, vector, 0.5, mask[:, 1:]),
    ):
        with pytest.raises(ValueError, match="Received: "):
            occam_penalty(*wrong)


@pytest.mark.parametrize("attention", KINDS)
def test_the_cell_serves_keras_own_loop(attention):
    """Asked by each word itself, since Keras' loop passes nothing else."""
    cell = InnerAttentionGRUCell(U, attention)
    loop = keras.layers.RNN(cell, return_sequences=True)
    inputs = random(1, B, T, D)
    loop(inputs)
    randomise(cell)
    hidden, outputs = ops.zeros((B, U)), []
    for t in range(T):
        word = ops.convert_to_tensor(inputs[:, t])
        hidden, _ = cell(word, hidden, word)
        outputs.append(to_numpy(hidden))
    close(loop(inputs), np.stack(outputs, axis=1))


def test_what_does_not_fit_is_refused():
    inputs, query, state = arrays()
    layer = built("gate")
    with pytest.raises(ValueError, match="weighs no word as a whole"):
        layer(inputs, query, return_attention_scores=True)
    with pytest.raises(ValueError, match="the mean of the inputs, since none was given"):
        layer(inputs)
    with pytest.raises(ValueError, match="must hold 1 state.*Received: 2"):
        layer(inputs, query, initial_state=[state, state])
    with pytest.raises(ValueError, match="a list of 2 and a query"):
        layer([inputs, query], query)
    with pytest.raises(ValueError, match="must have the same batch size.*Received"):
        layer.cell(inputs[:, 0], state, query[:2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": True}, "`units` must be a positive integer"),
        ({"dropout": "a"}, "`dropout` must be a number"),
        ({"seed": "nope"}, "`seed` must be an integer"),
        ({"occam_minimum": float("nan")}, "`occam_minimum` must be a finite number"),
        ({"return_sequences": 1}, "`return_sequences` must be True or False"),
    ],
)
def test_arguments_of_wrong_kinds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"{message}.*Received: "):
        InnerAttentionGRU(**{"units": U, **arguments})


@pytest.mark.parametrize(("batch", "steps"), [(0, T), (B, 0)])
def test_empty_batches_and_steps(batch, steps):
    layer = built("context", return_sequences=True, return_state=True)
    inputs, query = np.ones((batch, steps, D), "float32"), np.ones((batch, Q), "float32")
    mask = np.ones((batch, steps), bool)
    outputs, state, scores = layer(inputs, query, mask=mask, return_attention_scores=True)
    assert tuple(outputs.shape) == (batch, steps, U) and tuple(scores.shape) == (batch, steps)
    close(state, np.zeros((batch, U)))


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("backwards", [False, True])
def test_the_state_after_padding_is_that_after_the_last_real_word(attention, backwards):
    layer = built(attention, return_state=True, return_sequences=True, go_backwards=backwards)
    inputs, query, _ = arrays(3)
    real = np.array([1, 2, 4])
    padded = np.full((len(inputs), 9, inputs.shape[2]), np.nan, "float32")
    padded[:, real] = inputs[:, :3]
    mask = np.isin(np.arange(9), real)[None].repeat(len(inputs), 0)
    _, state = layer(padded, query, mask=mask)
    close(state, to_numpy(layer(inputs[:, :3], query)[1]))
