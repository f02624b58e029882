"""Sinks of the softmax, on every way to compute attention, against the oracle and its slopes."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_attention import mods
from keras_attention.ops.bound_functions import BoundFunction
from keras_attention.ops.dot_product import block_sparse, blocks, chunks
from keras_attention.ops.dot_product.attention import attention, attention_with_scores
from keras_attention.ops.dot_product.blocks import BlockPlan, WeightOptions
from keras_attention.ops.normalizers import softmax1
from tests import attention_oracle as oracle
from tests.contracts.backend import at_once, input_gradients, random, to_numpy, weighted_sum
from tests.ops.test_dot_product import HEADS, SPECS, STEPS, arrays, attend, bias_of, biases, spec_of

SINKS = np.linspace(-1.5, 2.0, HEADS).astype("float32")
PLAN = BlockPlan(1, 1, True)
WAYS = {
    "kept": (blocks, BlockPlan(3, 1, True)),
    "groups": (blocks, BlockPlan(4, 2, False)),
    "chunks": (chunks, None),
    "sparse": (block_sparse, PLAN),
}


def context_by(way, options, with_bias, sinks, query, key, value, bias=None):
    """The context by one way, from its tensors; no sinks are softmax off by one."""
    module, plan = WAYS[way]
    options = dataclasses.replace(
        options,
        spec=options.spec.for_queries(query),
        has_sink=sinks is not None,
        zero_distance=STEPS - 1 if with_bias else None,
    )
    tensors = [query, key, value]
    tensors += [] if sinks is None else [ops.expand_dims(sinks, 1)]
    tensors += [bias] if with_bias else []
    return attend(module, tensors, options, plan)


@pytest.mark.parametrize("name", ["all", "sinks-masks", "nothing-seen", "causal-by-head"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.by_default(
    "True-kept-sinks-masks",
    "True-groups-all",
    "False-groups-causal-by-head",
    "True-chunks-sinks-masks",
    "True-sparse-sinks-masks",
    "False-sparse-all",
    "True-sparse-nothing-seen",
    "False-kept-nothing-seen",
)
def test_every_way_agrees_with_the_oracle_and_its_gradients_with_the_whole(way, name, learned):
    given, with_bias = arrays(2), way != "sparse"
    extra = [SINKS] if learned else []
    extra += [biases()] if with_bias else []
    spec, upstream = spec_of(SPECS[name]), random(5, *given[0].shape[:3], given[2].shape[3])
    options = WeightOptions(spec, "softmax1")

    def parts(*tensors):
        sinks = tensors[3] if learned else None
        rest = tensors[4:] if learned else tensors[3:]
        context = context_by(way, options, with_bias, sinks, *tensors[:3], *rest)
        return weighted_sum(context, upstream)

    def whole(*tensors):
        sinks = {"sink": tensors[3]} if learned else {}
        bias = tensors[-1] if with_bias else None
        found = attention_with_scores(*tensors[:3], spec, bias, "softmax1", **sinks)
        return weighted_sum(found[0], upstream)

    distances = {"bias": bias_of(np.float64(biases()))} if with_bias else {}
    expected, weights = oracle.attend(
        *given,
        **distances,
        **SPECS[name],
        normalizer="softmax1",
        sinks=SINKS if learned else None,
    )
    assert weights.sum(axis=-1).max() < 1
    value = at_once(lambda x: parts(*x))([ops.convert_to_tensor(x) for x in (*given, *extra)])
    np.testing.assert_allclose(to_numpy(value), np.sum(expected * upstream), rtol=1e-5, atol=1e-4)
    found = input_gradients(parts, *given, *extra)
    wanted = input_gradients(whole, *given, *extra)
    for one, other in zip(found, wanted, strict=True):
        assert np.std(other) > 0 or name == "nothing-seen"
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_a_score_mod_beside_sinks(monkeypatch):
    """Long sequences skip blocks; a query that sees nothing has a context of zeros."""
    monkeypatch.setattr(blocks, "KEPT_PAIRS", 1)
    monkeypatch.setattr(block_sparse, "MIN_POSITIONS", 4)
    query, key, value = arrays(2, 16, 16)
    cap = BoundFunction.of(mods.softcap(0.5), ops.zeros((1, 1, 1, 1)))
    hidden = {"query_mask": np.arange(16)[None] != np.array([[3], [9]])}
    spec = spec_of({"causal": True, **hidden})
    spec = dataclasses.replace(spec, mask_mod=BoundFunction.of(mods.sliding_window(5)))
    upstream = random(5, *query.shape[:3], value.shape[3])

    def of_blocks(*tensors):
        context = attention(*tensors[:3], spec, None, "softmax1", score_mod=cap, sink=tensors[3])
        return weighted_sum(context, upstream)

    def whole(*tensors):
        options = {"score_mod": cap, "sink": tensors[3]}
        found = attention_with_scores(*tensors[:3], spec, None, "softmax1", **options)
        return weighted_sum(found[0], upstream)

    given = [query, key, value, SINKS]
    values = [to_numpy(f(*map(ops.convert_to_tensor, given))) for f in (of_blocks, whole)]
    np.testing.assert_allclose(*values, rtol=1e-5)
    pairs = zip(input_gradients(of_blocks, *given), input_gradients(whole, *given), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_the_normalizer():
    np.testing.assert_allclose(to_numpy(softmax1(ops.zeros((1, 2)))), [[1 / 3, 1 / 3]])
    scores = np.array([[1e4, 1e4], [-1e4, -2e4], [3.0, 1.0]], "float32")
    mask = np.array([[True, True], [True, True], [False, False]])
    np.testing.assert_allclose(to_numpy(softmax1(scores, mask)), [[0.5, 0.5], [0, 0], [0, 0]])
    row = softmax1(np.array([[0.5, -1.0, 2.0]], "float32"), np.array([[True, False, True]]), 0.25)
    wanted = np.exp([0.5, 2.0]) / (np.exp(0.25) + np.exp([0.5, 2.0]).sum())
    np.testing.assert_allclose(to_numpy(row)[0, [0, 2]], wanted, rtol=1e-6)
    (gradient,) = input_gradients(lambda x: ops.sum(softmax1(x, mask) ** 2), scores)
    assert np.all(np.isfinite(gradient)) and not gradient[2].any()
