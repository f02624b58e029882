"""Attention by heads: the whole form against an oracle, the parts against the whole form."""

import dataclasses
from functools import partial

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.ops.dot_product import blocks, chunks
from keras_attention.ops.dot_product.attention import attention, attention_with_scores
from keras_attention.ops.dot_product.blocks import BlockPlan, WeightOptions, plan_for
from keras_attention.ops.dot_product.mask_spec import MaskSpec
from keras_attention.ops.vjp import with_gradient
from tests import attention_oracle as oracle
from tests.contracts.backend import (
    BACKEND,
    at_once,
    input_gradients,
    random,
    to_numpy,
    weighted_sum,
)

BATCH, HEADS, STEPS, LENGTH, SIZE, VALUE = 2, 6, 11, 13, 5, 3
RNG = np.random.default_rng(7)
MASKS = {
    "query_mask": np.arange(STEPS) < np.array([[STEPS], [7]]),
    "value_mask": np.arange(LENGTH) < np.array([[LENGTH], [5]]),
    "attention_mask": RNG.random((BATCH, 1, STEPS, LENGTH)) < 0.7,
}
MASKS["attention_mask"][0, :, 3] = False
NOTHING_SEEN = {"value_mask": np.array([[False] * LENGTH, [True] * LENGTH])}
BY_QUERY = {"attention_mask": RNG.random((BATCH, 1, STEPS, 1)) < 0.7}
BY_HEAD = {"attention_mask": RNG.random((BATCH, HEADS, STEPS, LENGTH)) < 0.6}

SPECS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": 3},
    "causal-window": {"causal": True, "window": 4},
    "sinks": {"causal": True, "window": 3, "num_sinks": 2},
    "sinks-both-ways": {"window": 2, "num_sinks": 1},
    "masks": MASKS,
    "causal-masks": {"causal": True, **MASKS},
    "sinks-masks": {"causal": True, "window": 3, "num_sinks": 2, **MASKS},
    "sinks-by-query": {"causal": True, "window": 3, "num_sinks": 2, **BY_QUERY},
    "nothing-seen": NOTHING_SEEN,
    "causal-by-head": {"causal": True, **BY_HEAD},
}
PLANS = [BlockPlan(3, 1, True), BlockPlan(4, 2, False)]


def arrays(groups=HEADS, steps=STEPS, length=LENGTH):
    return (
        random(1, BATCH, HEADS, steps, SIZE),
        random(2, BATCH, groups, length, SIZE),
        random(3, BATCH, groups, length, VALUE),
    )


def biases(steps=STEPS, length=LENGTH):
    return random(4, HEADS, steps + length - 1)


def bias_of(table, steps=STEPS):
    return lambda head, distance: table[head, distance + steps - 1]


def attend(way, tensors, options, plan=None):
    """The context by `blocks` or `chunks`, with the gradient that it writes out."""

    def with_backward(*tensors):
        context, saved = way.forward(tensors, options, plan)
        given = (tensors, options, plan, context, saved)
        return context, lambda d_context: way.backward(*given, d_context)

    return with_gradient(with_backward, lambda *x: way.differentiable(x, options, plan))(*tensors)


def attend_by_plan(query, key, value, options, bias, plan):
    """The context in blocks."""
    zero = None if bias is None else query.shape[2] - 1
    spec = options.spec.for_queries(query)
    options = dataclasses.replace(options, spec=spec, zero_distance=zero)
    tensors = (query, key, value, *([] if bias is None else [bias]))
    return attend(blocks, tensors, options, plan)


def context_of(given, options, bias, plan):
    """The context of three arrays in blocks, which JAX compiles whole."""
    attend = at_once(lambda inputs: attend_by_plan(*inputs, options, bias, plan))
    return attend([ops.convert_to_tensor(x) for x in given])


def spec_of(options):
    given = {k: ops.convert_to_tensor(v) if "mask" in k else v for k, v in options.items()}
    return MaskSpec(**given)


# How many heads share a key matters to few specifications: those with masks, one of them by head.
@pytest.mark.parametrize(
    ("name", "groups"),
    [(name, 2) for name in SPECS]
    + [(name, groups) for name in ("all", "sinks-masks", "causal-by-head") for groups in (6, 1)],
)
def test_the_whole_form_against_the_oracle(name, groups):
    given, bias = arrays(groups), biases()
    for normalizer in oracle.NORMALIZERS if groups == 2 else ("softmax",):
        context, weights = attention_with_scores(
            *map(ops.convert_to_tensor, given), spec_of(SPECS[name]), bias, normalizer
        )
        expected = oracle.attend(*given, bias=bias_of(bias), normalizer=normalizer, **SPECS[name])
        np.testing.assert_allclose(to_numpy(context), expected[0], atol=1e-5)
        np.testing.assert_allclose(to_numpy(weights), expected[1], atol=1e-5)
        assert np.all((to_numpy(weights) == 0) >= (expected[1] == 0))


def weighted_context(spec, upstream, query, key, value, bias=None, normalizer="softmax"):
    """A scalar of the whole form's context."""
    context, _ = attention_with_scores(query, key, value, spec, bias, normalizer)
    return weighted_sum(context, upstream)


def compare_with_whole(given, options, plans, bias=None, normalizer="softmax", atol=2e-5):
    """The context and all gradients of some plans against those of the whole form."""
    upstream = random(5, BATCH, HEADS, given[0].shape[2], VALUE)
    spec = spec_of(options)
    options = WeightOptions(spec, normalizer)

    def parts(plan, query, key, value, bias=None):
        context = attend_by_plan(query, key, value, options, bias, plan)
        return weighted_sum(context, upstream)

    given = given if bias is None else (*given, bias)
    expected = attention_with_scores(
        *map(ops.convert_to_tensor, given[:3]), spec, bias, normalizer
    )[0]
    whole = partial(weighted_context, spec, upstream, normalizer=normalizer)
    wanted = input_gradients(whole, *given)
    for plan in plans:
        context = context_of(given[:3], options, bias, plan)
        np.testing.assert_allclose(
            to_numpy(context), to_numpy(expected), atol=atol, err_msg=str(plan)
        )
        gradients = input_gradients(partial(parts, plan), *given)
        for gradient, want in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(gradient, want, atol=atol, err_msg=str(plan))


@pytest.mark.parametrize("name", SPECS)
def test_parts_agree_with_the_whole(name):
    compare_with_whole(arrays(2), SPECS[name], PLANS)


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
@pytest.mark.parametrize("name", ["causal", "sinks-masks"])
@pytest.mark.by_default("sinks-masks-softmax", "causal-sparsemax", "sinks-masks-entmax15")
def test_parts_with_biases_and_shared_keys(name, normalizer):
    for groups, plan in (
        (3, BlockPlan(3, 3, False)),
        (2, BlockPlan(4, 1, True)),
        (1, BlockPlan(2, 1, False)),
    ):
        compare_with_whole(arrays(groups), SPECS[name], [plan], biases(), normalizer)


@pytest.mark.parametrize("name", ["causal", "window", "sinks", "causal-window"])
@pytest.mark.by_default(name=["sinks", "causal-window"])
@pytest.mark.parametrize(("steps", "length"), [(19, 3), (2, 17), (1, 7), (7, 1)])
def test_unequal_lengths(name, steps, length):
    plans = BlockPlan(min(3, steps), 2, False), BlockPlan(1, 1, True)
    bias = biases(steps, length)
    compare_with_whole(arrays(2, steps, length), SPECS[name], plans, bias)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    given, options = arrays(2), SPECS["sinks-masks"]
    spec, bias = spec_of(options), biases()
    upstream = random(5, BATCH, HEADS, STEPS, VALUE)

    def loss(plan, query, key, value, bias):
        half = [ops.cast(x, dtype) for x in (query, key, value)]
        return weighted_sum(attend_by_plan(*half, WeightOptions(spec), bias, plan), upstream)

    def exact(query, key, value, bias):
        return weighted_sum(attention_with_scores(query, key, value, spec, bias)[0], upstream)

    half = [ops.cast(x, dtype) for x in given]
    tolerance = 0.01 if dtype == "float16" else 0.08
    expected = oracle.attend(*given, bias=bias_of(bias), **options)[0]
    wanted = input_gradients(exact, *given, bias)
    for plan in (BlockPlan(1, 1, True), BlockPlan(3, 2, False)):
        context = context_of(half, WeightOptions(spec), bias, plan)
        assert keras.backend.standardize_dtype(context.dtype) == dtype
        np.testing.assert_allclose(to_numpy(context), expected, atol=tolerance)
        assert np.all(to_numpy(context)[0, :, 3] == 0)
        gradients = input_gradients(partial(loss, plan), *given, bias)
        for gradient, want in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(gradient, want, atol=5 * tolerance)


def test_dropout_is_the_same_in_both_passes():
    given = arrays(2)
    upstream = random(5, BATCH, HEADS, STEPS, VALUE)
    seed = keras.random.SeedGenerator(3).next()
    options = WeightOptions(MaskSpec(causal=True), dropout=0.4, seed=seed)
    for plan in (BlockPlan(1, 1, True), BlockPlan(3, 1, True), BlockPlan(3, 2, False)):

        def loss(query, key, value, plan=plan):
            return weighted_sum(attend_by_plan(query, key, value, options, None, plan), upstream)

        gradients = input_gradients(loss, *given)
        value_of = at_once(lambda inputs, loss=loss: loss(*inputs))
        for place, gradient in enumerate(gradients):
            direction = random(8 + place, *given[place].shape)
            values = []
            for side in (0.02, -0.02):
                moved = list(given)
                moved[place] = moved[place] + np.float32(side) * direction
                values.append(float(value_of([ops.convert_to_tensor(x) for x in moved])))
            slope = (values[0] - values[1]) / 0.04
            np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=0.02, atol=0.05)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
def test_gradients_of_dropout_over_dynamic_lengths(monkeypatch):
    """The last of the parts begins early: rows of two parts have the dropout of the first."""
    import tensorflow as tf

    monkeypatch.setattr(blocks, "KEPT_PAIRS", 100)
    monkeypatch.setattr(chunks, "CHUNK_NUMBERS", 4 * BATCH * HEADS * LENGTH)
    monkeypatch.setattr(chunks, "MIN_QUERIES", 1)
    given, up = [tf.constant(x) for x in arrays(3)], random(5, BATCH, HEADS, STEPS, VALUE)
    seed = tf.constant([5, 0], "uint32")

    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            options = WeightOptions(MaskSpec(), dropout=0.5, seed=seed)
            context = attend(chunks, tensors, options)
            loss = tf.reduce_sum(context * up)
        return loss, tape.gradient(loss, tensors)

    signature = [tf.TensorSpec((BATCH, *x.shape[1:2], None, x.shape[3])) for x in given]
    run = tf.function(run, input_signature=signature)
    for place, gradient in enumerate(run(*given)[1]):
        direction = random(9 + place, *given[place].shape)
        sides = [list(given), list(given)]
        for moved, side in zip(sides, (0.01, -0.01), strict=True):
            moved[place] = moved[place] + side * direction
        slope = (float(run(*sides[0])[0]) - float(run(*sides[1])[0])) / 0.02
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=0.01, atol=0.05)


def test_dropout_drops_that_share_and_keeps_the_mean():
    ones = np.ones((3, 4, 50, 1), "float32")
    zeros = np.zeros((3, 4, 50, 2), "float32")
    options = WeightOptions(MaskSpec(), dropout=0.3, seed=keras.random.SeedGenerator(5).next())
    given = [ops.convert_to_tensor(x) for x in (zeros, zeros, ones)]
    sums = [to_numpy(attend_by_plan(*given, options, None, BlockPlan(n, n, False))) for n in (1, 2)]
    for context in sums:
        assert abs(context.mean() - 1) < 0.02
        # each of 50 weights of 1 / 50 is 0 or 1 / 35: the sum of a row is a multiple of that
        kept = context * 35
        np.testing.assert_allclose(kept, np.round(kept), atol=1e-3)
        assert 0.5 < kept.std() / np.sqrt(50 * 0.3 * 0.7) < 1.5
    assert not np.allclose(sums[0][:, :2], sums[0][:, 2:])  # heads and parts drop their own
    assert not np.allclose(sums[1][:, :2], sums[1][:, 2:])
    assert not np.allclose(sums[1][:, :, :25], sums[1][:, :, 25:])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves lengths open")
@pytest.mark.parametrize("name", ["all", "causal", "sinks", "sinks-masks"])
@pytest.mark.parametrize("xla", [False, True], ids=["graph", "xla"])
@pytest.mark.by_default("graph-causal")
def test_dynamic_lengths(name, xla, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(blocks, "KEPT_PAIRS", 100)
    options = SPECS[name]
    upstream = random(5, BATCH, HEADS, STEPS, VALUE)
    masks = {k: v for k, v in options.items() if "mask" in k}
    places = {k: v for k, v in options.items() if "mask" not in k}

    def run(query, key, value, bias, upstream, masks):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value, bias])
            context = attention(query, key, value, MaskSpec(**places, **masks), bias)
            loss = tf.reduce_sum(context * upstream)
        return context, tape.gradient(loss, [query, key, value, bias])

    open_sizes = (BATCH, STEPS, LENGTH, STEPS + LENGTH - 1)

    def open_axes(array):
        shape = [None if size in open_sizes else size for size in array.shape]
        return tf.TensorSpec(shape, array.dtype)

    given = (*arrays(3), biases(), upstream, masks)
    signature = tf.nest.map_structure(open_axes, list(given))
    compiled = tf.function(run, input_signature=signature, jit_compile=xla)
    for steps, length in ((STEPS, LENGTH), (3, 5)):  # more pairs than are kept, and fewer
        cut = [x[:, :, : (steps, length, length)[i]] for i, x in enumerate(given[:3])]
        bias = given[3][:, STEPS - steps : STEPS + length - 1]
        up = upstream[:, :, :steps]
        cuts = {"query_mask": (np.s_[:, :steps]), "value_mask": np.s_[:, :length]}
        some = {k: v[cuts.get(k, np.s_[:, :, :steps, :length])] for k, v in masks.items()}
        context, gradients = compiled(*cut, bias, up, some)
        expected = oracle.attend(*cut, bias=bias_of(bias, steps), **places, **some)[0]
        np.testing.assert_allclose(context, expected, atol=2e-5)
        spec = spec_of({**places, **some})
        wanted = input_gradients(partial(weighted_context, spec, up), *cut, bias)
        for gradient, want in zip(gradients, wanted, strict=True):
            np.testing.assert_allclose(gradient, want, atol=2e-5)


def test_the_plan_goes_by_the_lengths():
    def plan(steps, length, batch=2, heads=8, **spec):
        return plan_for((batch, heads, steps, 64), (batch, heads, length, 64), MaskSpec(**spec))

    assert plan(32, 32) == plan(32, 32, causal=True) == BlockPlan(1, 1, True)
    assert plan(1024, 1024) == BlockPlan(1, 1, True)
    assert plan(1024, 1024, causal=True) == BlockPlan(8, 1, True)
    assert plan(1025, 1024) == BlockPlan(5, 4, False)
    assert plan(4096, 4096, 1, causal=True) == BlockPlan(8, 8, False)
    assert plan(16384, 16384, 1, causal=True).blocks == 16
    assert plan(None, 512) is None and plan(512, None) is None


@pytest.mark.parametrize("name", ["all", "causal", "causal-window", "masks", "nothing-seen"])
@pytest.mark.parametrize("groups", [6, 2, 1])
def test_the_choice_of_the_backend_agrees_with_the_oracle(name, groups):
    given = arrays(groups)
    context = attention(*map(ops.convert_to_tensor, given), spec_of(SPECS[name]))
    expected = oracle.attend(*given, **SPECS[name])[0]
    np.testing.assert_allclose(to_numpy(context), expected, atol=1e-5)


@pytest.mark.skipif(BACKEND != "jax", reason="cuDNN's kernel is asked for on JAX")
def test_a_gpu_gets_even_lengths_alone(monkeypatch):
    """Of odd ones the kernel has no gradient; Keras prints an error and goes another way."""
    kernel, asked = ops.dot_product_attention, []

    def counted(query, *others, **options):
        asked.append(query.shape[1])
        return kernel(query, *others, **options)

    monkeypatch.setattr(ops, "dot_product_attention", counted)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: ["gpu:0"])
    for steps, length in ((12, 14), (11, 14), (12, 13)):
        given = [ops.cast(x, "bfloat16") for x in arrays(HEADS, steps, length)]
        given[2] = ops.concatenate([given[2], given[2][..., :2]], axis=-1)  # as wide as a key
        context = attention(*given, MaskSpec())
        expected = oracle.attend(*(to_numpy(ops.cast(x, "float32")) for x in given))[0]
        np.testing.assert_allclose(to_numpy(ops.cast(context, "float32")), expected, atol=0.05)
    assert asked == [12]
