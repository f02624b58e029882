"""`score_mod` and `mask_mod`: the blocked form against the dense one, the options as instances."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import MultiHeadAttention
from keras_attention.mods import (
    alibi,
    all_of,
    any_of,
    causal,
    document,
    look_up,
    sinks,
    sliding_window,
)
from keras_attention.ops.dot_product import block_sparse, blocks
from tests.contracts.backend import (
    BACKEND,
    gradients_of,
    input_gradients,
    random,
    to_numpy,
    weight_gradients,
    weighted_sum,
)
from tests.contracts.kinds import randomise

BATCH, STEPS, HEADS, SIZE, WIDTH = 2, 37, 4, 3, 7


@keras.saving.register_keras_serializable("tests")
class LearnedSlope(keras.layers.Layer):
    """A score that falls with the distance, as steeply as each head learns."""

    def build(self, score_shape, *places):
        self.slope = self.add_weight((score_shape[1],), initializer="ones", name="slope")

    def call(self, score, batch, head, query, key):
        distance = ops.cast(ops.abs(query - key), score.dtype)
        return score - look_up(self.slope, head) * distance


@keras.saving.register_keras_serializable("tests")
def tanh_capped(score, batch, head, query, key):
    """A function without weights."""
    return 3 * ops.tanh(score / 3)


def layer_of(steps=STEPS, **options):
    layer = MultiHeadAttention(HEADS, SIZE, **options)
    layer.build((None, steps, WIDTH))
    return randomise(layer)


def texts(batch, steps):
    """The document of each place: some long, some of one place."""
    starts = np.random.default_rng(5).random((batch, steps)) < 4 / steps
    return np.cumsum(starts, axis=1).astype("int32")


INSTANCES = {
    "causal": ({"use_causal_mask": True}, {}, {"mask_mod": causal}),
    "window": ({}, {"window": 5}, {"mask_mod": sliding_window(5)}),
    "sinks": (
        {"use_causal_mask": True},
        {"window": 5, "num_sinks": 2},
        {"mask_mod": all_of(causal, any_of(sliding_window(5), sinks(2)))},
    ),
    "alibi": ({}, {"positions": "alibi"}, {"score_mod": alibi(HEADS)}),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_options_are_instances(name):
    call, options, mods = INSTANCES[name]
    x, plain, by_option = random(1, BATCH, STEPS, WIDTH), layer_of(), layer_of(**options)
    by_option.set_weights(plain.get_weights())
    expected, weights = by_option(x, return_attention_scores=True, **call)
    output, scores = plain(x, return_attention_scores=True, **mods)
    np.testing.assert_allclose(to_numpy(output), to_numpy(expected), atol=1e-5)
    np.testing.assert_allclose(to_numpy(scores), to_numpy(weights), atol=1e-5)
    np.testing.assert_allclose(to_numpy(plain(x, **mods)), to_numpy(expected), atol=1e-5)


@pytest.fixture(params=["kept", "blocks", "groups"])
def form(request, monkeypatch):
    """The ways in which the blocked form works."""
    if request.param != "kept":
        monkeypatch.setattr(blocks, "KEPT_PAIRS", 10)
        monkeypatch.setattr(blocks, "MIN_QUERIES", 8)
        monkeypatch.setattr(block_sparse, "MIN_POSITIONS", 8)
    if request.param == "groups":
        monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 1000)
    return request.param


@pytest.mark.parametrize("normalizer", ["softmax", "entmax15"])
@pytest.mark.by_default("kept-softmax", "blocks-entmax15", "groups-softmax")
def test_blocks_equal_the_dense_form_forward_and_backward(form, normalizer):
    layer = layer_of(score_mod=LearnedSlope(), normalizer=normalizer)
    x, upstream = random(1, BATCH, STEPS, WIDTH), random(2, BATCH, STEPS, WIDTH)

    def may_see(batch, head, query, key):  # some queries see nothing
        return query % 9 != 4

    mask = all_of(causal, document(texts(BATCH, STEPS)), may_see)

    def dense(x):
        output, _ = layer(x, mask_mod=mask, return_attention_scores=True)
        return weighted_sum(output, upstream)

    def blocked(x):
        return weighted_sum(layer(x, mask_mod=mask), upstream)

    given, wanted = (gradients_of(each, x, layer=layer) for each in (blocked, dense))
    assert layer.trainable_weights[-1].name == "slope" and np.abs(wanted[-2]).min() > 1e-3
    for gradient, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(gradient, want, atol=2e-5)


def test_gradients_reach_the_tensors_of_a_partial(form):
    layer = layer_of()
    x, upstream = random(1, BATCH, STEPS, WIDTH), random(2, BATCH, STEPS, WIDTH)

    order = ops.convert_to_tensor(np.random.default_rng(4).permutation(STEPS).astype("int32"))

    def biased(score, batch, head, query, key, bias, order):  # integers have no gradient
        return score + look_up(bias, batch, look_up(order, key))

    def by_name(bias):
        return functools.partial(biased, bias=bias, order=order)

    def by_place(bias):
        return functools.partial(lambda bias, *given: biased(*given, bias, order), bias)

    def loss(bias, scores=False, partial=by_name):
        mods = {"score_mod": partial(bias), "use_causal_mask": True}
        if scores:
            return weighted_sum(layer(x, return_attention_scores=True, **mods)[0], upstream)
        return weighted_sum(layer(x, **mods), upstream)

    bias = random(3, BATCH, STEPS)
    dense = input_gradients(functools.partial(loss, scores=True), bias)[0]
    for partial in (by_name, by_place):
        gradient = input_gradients(functools.partial(loss, partial=partial), bias)[0]
        np.testing.assert_allclose(gradient, dense, atol=2e-5)


def test_long_lengths_equal_the_dense_form():
    steps = 1100  # more pairs than are kept
    layer = MultiHeadAttention(2, 4, score_mod=LearnedSlope())
    layer.build((None, steps, WIDTH))
    x, upstream = random(1, 1, steps, WIDTH), random(2, 1, steps, WIDTH, scale=0.1)
    mask = all_of(causal, document(texts(1, steps)))

    def loss(scores):
        result = layer(x, mask_mod=mask, return_attention_scores=scores)
        return weighted_sum(result[0] if scores else result, upstream)

    dense, blocked = (weight_gradients(layer, lambda s=s: loss(s)) for s in (True, False))
    for gradient, want in zip(blocked, dense, strict=True):
        np.testing.assert_allclose(gradient, want, atol=1e-5)
    outputs = [layer(x, mask_mod=mask, return_attention_scores=scores) for scores in (True, False)]
    np.testing.assert_allclose(to_numpy(outputs[1]), to_numpy(outputs[0][0]), atol=1e-5)


def test_a_block_that_a_mask_rules_out_is_not_computed(form):
    if form == "kept" or BACKEND == "jax":
        pytest.skip("every block is computed, or traced")
    rows = []

    def counted(score, batch, head, query, key):
        rows.append((int(query[0, 0, 0, 0]), int(key[0, 0, 0, 0])))
        return score

    halves = (np.arange(STEPS) >= 16).astype("int32")[None].repeat(BATCH, 0)
    layer_of()(random(1, BATCH, STEPS, WIDTH), score_mod=counted, mask_mod=document(halves))
    assert (0, 8) in rows and (32, 16) in rows
    assert not any((query >= 16) != (key >= 16) for query, key in rows)


def test_steps_apply_the_layer_s_functions():
    layer = layer_of(score_mod=LearnedSlope(), mask_mod=sliding_window(4))
    x = random(1, BATCH, STEPS, WIDTH)
    expected, state = layer(x, use_causal_mask=True), layer.initial_state(BATCH, STEPS)
    for t in range(9):
        output, _, state = layer.step(x[:, t], None, state, t)
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected[:, t]), atol=2e-5)


def test_functions_are_saved(tmp_path):
    inputs = keras.Input((STEPS, WIDTH))
    first = MultiHeadAttention(HEADS, SIZE, score_mod=LearnedSlope())
    second = MultiHeadAttention(HEADS, SIZE, score_mod=tanh_capped)
    model = keras.Model(inputs, second(first(inputs)))
    first.score_mod.slope.assign([0.5, 0.1, 0.2, 0.3])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = random(1, BATCH, STEPS, WIDTH)
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


@pytest.mark.parametrize(
    ("score_mod", "mask_mod"),
    [
        (alibi(HEADS), causal),
        (None, all_of(sinks(3), sliding_window(5))),
        (None, any_of(document(np.arange(STEPS)[None].repeat(BATCH, 0) // 7), sinks(2))),
    ],
)
def test_the_usual_functions_are_saved_and_cloned(score_mod, mask_mod, tmp_path):
    layer = MultiHeadAttention(HEADS, SIZE, score_mod=score_mod, mask_mod=mask_mod)
    model = keras.Sequential([keras.Input((STEPS, WIDTH)), layer])
    model.save(tmp_path / "model.keras")
    x = random(1, BATCH, STEPS, WIDTH)
    expected = to_numpy(model(x))
    assert np.any(expected != to_numpy(layer(x, mask_mod=sinks(1))))
    for again in (
        keras.models.load_model(tmp_path / "model.keras"),
        keras.models.clone_model(model),
        keras.models.model_from_json(model.to_json()),
    ):
        again.set_weights(model.get_weights())
        np.testing.assert_allclose(to_numpy(again(x)), expected, atol=1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.by_default(xla=[False])
@pytest.mark.parametrize("xla", [False, True])
def test_one_graph_serves_all_lengths(xla):
    import tensorflow as tf

    layer, traces = layer_of(None, score_mod=LearnedSlope()), []

    @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH))] * 2, jit_compile=xla)
    def gradients(x, upstream):
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, mask_mod=causal) * upstream)
        return tape.gradient(loss, layer.score_mod.slope.value)

    for steps in (STEPS, 11):
        x, upstream = random(1, BATCH, steps, WIDTH), random(2, BATCH, steps, WIDTH)

        def dense(x=x, upstream=upstream):
            output, _ = layer(x, mask_mod=causal, return_attention_scores=True)
            return weighted_sum(output, upstream)

        wanted = weight_gradients(layer, dense)[-1]
        np.testing.assert_allclose(gradients(x, upstream), wanted, rtol=1e-5, atol=2e-5)
    assert len(traces) == 1
