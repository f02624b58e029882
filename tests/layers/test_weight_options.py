"""Regularizers and constraints of the mechanisms, and masks of batch 1."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import layers
from keras_attention.losses import coverage_loss
from tests.contracts.backend import random, to_numpy

# Each layer, its options, and the weights that each kind of option is of.
LAYERS = {
    "bahdanau": (
        layers.BahdanauAttention,
        {"units": 5, "use_bias": True},
        {"kernel": ["query_kernel", "key_kernel"], "bias": ["bias"], "score": ["score_vector"]},
    ),
    "coverage": (
        layers.CoverageAttention,
        {"units": 5},
        {"kernel": ["query_kernel", "key_kernel"], "coverage": ["coverage_vector"]},
    ),
    "general": (layers.LuongAttention, {"score": "general"}, {"kernel": ["score_kernel"]}),
    "local": (
        layers.LocalAttention,
        {"alignment": "predictive", "score": "location", "max_length": 7},
        {"kernel": ["location_kernel", "position_kernel", "position_vector"]},
    ),
    "temporal": (layers.TemporalAttention, {}, {"kernel": ["score_kernel"]}),
    "intra-decoder": (layers.IntraDecoderAttention, {}, {"kernel": ["score_kernel"]}),
    "pooling": (
        layers.AttentionPooling,
        {"units": 5},
        {"kernel": ["kernel"], "bias": ["bias"], "context": ["context_vector"]},
    ),
    "crf": (
        layers.CRF,
        {"num_tags": 6, "transitions_initializer": "ones", "boundary_initializer": "ones"},
        {"transitions": ["transitions"], "boundary": ["start", "end"]},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_each_weight_has_a_regularizer_and_a_constraint(name):
    kind, options, groups = LAYERS[name]
    given = {f"{group}_regularizer": keras.regularizers.L2(0.5) for group in groups}
    given |= {f"{group}_constraint": keras.constraints.NonNeg() for group in groups}
    layer = kind.from_config(kind(**options, **given).get_config())
    x = random(1, 3, 7, 6)
    layer(x)
    weights = [getattr(layer, weight) for names in groups.values() for weight in names]
    expected = sum(0.5 * np.sum(np.square(to_numpy(weight.value))) for weight in weights)
    np.testing.assert_allclose(to_numpy(sum(layer.losses)), expected, rtol=1e-4)
    assert all(isinstance(weight.constraint, keras.constraints.NonNeg) for weight in weights)
    assert not kind(**options).built and not keras.tree.flatten(kind(**options).losses)


def test_pointer_generator_has_them_too():
    layer = layers.PointerGenerator(kernel_regularizer="l2", bias_constraint="non_neg")
    layer.build((2, 3, 5), (2, 3, 4), (2, 4), (2, 3, 6), (2, 3, 7), (2, 3, 8))
    assert len(layer.losses) == 3 and layer.bias.constraint is not None


def test_a_layer_refuses_the_options_of_weights_that_it_has_not():
    with pytest.raises((ValueError, TypeError), match="coverage_regularizer"):
        layers.BahdanauAttention(4, coverage_regularizer="l2")


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.BahdanauAttention(5),
        lambda: layers.CoverageAttention(5, loss_weight=1.0),
        lambda: layers.TemporalAttention(),
        lambda: layers.LocalAttention(1, "predictive"),
        lambda: layers.HierarchicalAttention(layers.LuongAttention(), layers.LuongAttention()),
        lambda: layers.MultiHeadAttention(2, 3),
        lambda: layers.AttentionDecoder(keras.layers.GRUCell(6), layers.BahdanauAttention(5)),
    ],
)
def test_masks_of_batch_one_serve_all_rows(make):
    layer = make()
    x, memory = random(1, 3, 5, 6), random(2, 3, 7, 6)
    masks = np.array([[True, True, True, True, False]]), np.arange(7)[None] < 4
    names = ("query_mask", "value_mask")
    if isinstance(layer, layers.HierarchicalAttention):
        memory, names = memory[:, None], ("query_mask", "word_mask")
        masks = masks[0], masks[1][:, None]
    if isinstance(layer, layers.AttentionDecoder):
        names = ("inputs_mask", "value_mask")
    flag = {"return_attention_scores": True}
    found = layer(x, memory, **dict(zip(names, masks, strict=True)), **flag)
    losses = [to_numpy(loss) for loss in layer.losses]
    full = [np.repeat(mask, 3, axis=0) for mask in masks]
    expected = layer(x, memory, **dict(zip(names, full, strict=True)), **flag)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)
    np.testing.assert_allclose(losses, [to_numpy(loss) for loss in layer.losses], rtol=1e-6)


def test_a_prepared_memory_has_a_mask_for_each_row():
    layer = layers.BahdanauAttention(5)
    memory = random(2, 3, 7, 6)
    layer(memory)
    prepared = layer.prepare_memory(memory, mask=np.arange(7)[None] < 4)
    assert tuple(prepared["mask"].shape) == (3, 7)


def test_coverage_loss_of_a_mask_of_batch_one():
    scores = ops.softmax(random(1, 3, 5, 7))
    mask = np.array([[True, True, True, False, False]])
    expected = to_numpy(coverage_loss(scores, np.repeat(mask, 3, axis=0)))
    np.testing.assert_allclose(to_numpy(coverage_loss(scores, mask)), expected, rtol=1e-6)
