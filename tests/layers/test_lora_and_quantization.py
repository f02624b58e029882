"""LoRA and quantization of every layer that has kernels."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import (
    SSRU,
    AttentionDecoder,
    AttentionPooling,
    BahdanauAttention,
    GatedDeltaNet,
    HierarchicalAttention,
    LinearAttention,
    LuongAttention,
    MultiHeadAttention,
    MultiHeadLatentAttention,
    TransformerDecoder,
    TransformerEncoder,
)
from keras_attention.layers.lora_and_quantization import AdaptableKernels
from keras_attention.layers.transformer.encoder import FeedForward
from tests.contracts.backend import random, to_numpy, weight_gradients

# Keras says of the input layer, as of every layer without kernels, that it cannot be quantized.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")

QUERY, VALUE = random(1, 3, 5, 11), random(2, 3, 7, 13)


@keras.saving.register_keras_serializable("keras_attention_tests")
class Heads(AdaptableKernels, keras.layers.Layer):
    """Kernels of three axes, as multi-head attention has them."""

    def kernels_to_adapt(self):
        return {"inner": 1, "outer": 2}

    def build(self, shape):
        self.inner = self.add_weight((shape[-1], 3, 5), name="inner")
        self.outer = self.add_weight((3, 5, 7), name="outer")
        self.restore_quantization()

    def call(self, inputs):
        heads = ops.einsum("bsd,dhe->bshe", inputs, self.cast(self.inner))
        return ops.einsum("bshe,hef->bsf", heads, self.cast(self.outer))


ALONE = {
    "pooling": lambda **options: AttentionPooling(17, **options),
    "heads": lambda **options: Heads(**options),
    "feed_forward": lambda **options: FeedForward(17, "swiglu", **options),
    "multi_head": lambda **options: MultiHeadAttention(2, 8, use_gate=True, **options),
    "ssru": lambda **options: SSRU(17, **options),
    "linear": lambda **options: LinearAttention(2, 8, **options),
    "latent": lambda **options: MultiHeadLatentAttention(2, 8, 6, query_latent_dim=7, **options),
    "delta": lambda **options: GatedDeltaNet(2, 8, **options),
}
PAIRED = {
    "bahdanau": lambda **options: BahdanauAttention(17, use_bias=True, dropout=0.1, **options),
    "luong": lambda **options: LuongAttention("general", kernel_initializer="he_normal", **options),
    "decoder": lambda **options: AttentionDecoder(
        keras.layers.GRUCell(5), BahdanauAttention(3), query="current", **options
    ),
}


def model_of(kind, **options):
    """A functional model around a layer of one kind, and its inputs."""
    query, value = keras.Input((None, 11)), keras.Input((None, 13))
    if kind in ALONE:
        layer = ALONE[kind](**options)
        return layer, keras.Model(value, layer(value)), VALUE
    layer = PAIRED[kind](**options)
    return layer, keras.Model([query, value], layer(query, value)), [QUERY, VALUE]


# Each saves and reads models: a mechanism and the layer of most kernels stand for the others.
every_kind = pytest.mark.parametrize("kind", ["bahdanau", "luong", *ALONE])


@pytest.mark.parametrize(
    ("mode", "block_size", "atol"),
    [("int8", None, 0.03), ("int4", None, 0.4), ("int4", 4, 0.4)],
    ids=["int8", "int4", "blocks"],
)
@every_kind
@pytest.mark.by_default("bahdanau-int8", "multi_head-blocks", "latent-int8", "delta-int8")
def test_a_quantized_model_is_close_and_small_and_reloads(kind, mode, block_size, atol, tmp_path):
    layer, model, inputs = model_of(kind)
    expected = to_numpy(model(inputs))
    kernels = layer.kernels_to_adapt()
    sizes = {k: np.prod(getattr(layer, k).shape) for k in kernels}
    if mode == "int8":
        model.quantize("int8")
    elif hasattr(keras.quantizers, "Int4QuantizationConfig"):
        model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=block_size))
    else:
        pytest.skip("Keras 3.13 brought blocks")
    assert all(keras.backend.standardize_dtype(getattr(layer, k).dtype) == "int8" for k in kernels)
    for k in kernels:  # a byte holds two numbers of four bits, and the last of an odd row is alone
        share = np.prod(getattr(layer, k).shape) / sizes[k]
        assert share == 1 if mode == "int8" else 0.5 <= share < 0.7
    result = to_numpy(model(inputs))
    atol *= 2 if kind == "delta" else 1  # a state adds up the errors of its steps
    np.testing.assert_allclose(result, expected, atol=atol * np.abs(expected).max())
    assert np.any(result != expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), result)


@pytest.mark.by_default("int8-None")
@pytest.mark.parametrize(
    ("mode", "autoregression"), [("int8", None), ("int4", "ssru"), ("int8", "self-attention")]
)
def test_a_quantized_block_reloads(mode, autoregression, tmp_path):
    options = {"intermediate_dim": 7, "num_heads": 2, "key_dim": 3}
    inputs, memory = keras.Input((None, 11)), keras.Input((None, 13))
    if autoregression is None:
        model, given = keras.Model(inputs, TransformerEncoder(**options)(inputs)), QUERY
    else:
        block = TransformerDecoder(**options, autoregression=autoregression)
        model, given = keras.Model([inputs, memory], block(inputs, memory)), [QUERY, VALUE]
    expected = to_numpy(model(given))
    model.quantize(mode)
    result = to_numpy(model(given))
    assert np.any(result != expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(given)), result)
    block = loaded.layers[-1]
    assert block.feed_forward.quantization_mode == mode
    assert type(block).from_config(block.get_config()).get_config() == block.get_config()


def test_int8_is_as_exact_as_that_of_keras():
    """Of a product with a kernel of width 512."""
    x, kernel = random(3, 2, 9, 512), random(4, 512, 15)
    own, dense = Heads(), keras.layers.Dense(15, use_bias=False)
    own.build(x.shape), dense.build(x.shape)
    own.inner.assign(kernel.reshape(512, 3, 5)), dense.kernel.assign(kernel)
    own.quantize("int8"), dense.quantize("int8")
    expected = x @ kernel
    of_own = x @ to_numpy(own.cast(own.inner)).reshape(512, 15)
    error = np.abs(of_own - expected).max()
    assert error <= np.abs(to_numpy(dense(x)) - expected).max()


@pytest.mark.parametrize("mode", [None, "int8", "int4"])
@every_kind
@pytest.mark.by_default("bahdanau-int4", "multi_head-None", "linear-None")
def test_lora_trains_only_its_own_weights_and_merges_back(kind, mode, tmp_path):
    layer, model, inputs = model_of(kind)
    names, kernels = [weight.name for weight in layer.weights], layer.kernels_to_adapt()
    if mode:
        model.quantize(mode)
    before = to_numpy(model(inputs))
    layer.enable_lora(2, lora_alpha=4)
    trained = {weight.name for weight in layer.trainable_weights}
    assert trained == {f"{k}_lora_{x}" for k in kernels for x in "ab"}
    np.testing.assert_allclose(to_numpy(model(inputs)), before, atol=1e-6)

    gradients = weight_gradients(layer, lambda: ops.sum(model(inputs) ** 2))
    assert any(np.any(gradient != 0) for gradient in gradients)
    for name in kernels:
        weight = getattr(layer, f"{name}_lora_b")
        weight.assign(random(5, *weight.shape, scale=0.3))
    changed = to_numpy(model(inputs))
    assert np.abs(changed - before).max() > 1e-3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    if mode is None:
        assert [w.name for w in loaded.get_layer(layer.name).weights] == names
    scale = np.abs(changed).max()
    tolerance = {None: 1e-6, "int8": 0.03, "int4": 0.5}[mode] * scale
    tolerance *= 2 if kind == "delta" else 1  # a state adds up the errors of its steps
    np.testing.assert_allclose(to_numpy(loaded(inputs)), changed, atol=tolerance)
    model.load_weights(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(model(inputs)), to_numpy(loaded(inputs)), atol=1e-5)


@pytest.mark.parametrize("kind", ["bahdanau", "pooling", "feed_forward", "multi_head", "decoder"])
@pytest.mark.by_default("bahdanau", "decoder")
def test_a_policy_map_quantizes_and_casts_the_layer_that_it_names(kind):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["scorer"] = keras.dtype_policies.get("mixed_bfloat16")
    layer, model, inputs = model_of(kind, name="scorer", dtype=policies)
    result = model(inputs)
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    layer.quantize("int8")
    assert layer.quantization_mode == "int8" and layer.compute_dtype == "bfloat16"
    assert policies.default_policy.name == "float32"
    np.testing.assert_allclose(to_numpy(model(inputs)), to_numpy(result), atol=0.05)


def test_of_hierarchical_attention_both_parts_adapt():
    words = random(6, 3, 2, 4, 13)
    layer = HierarchicalAttention(BahdanauAttention(17), LuongAttention("general"))
    before = to_numpy(layer(QUERY, words))
    layer.enable_lora(2)
    assert len(layer.trainable_weights) == 6
    layer.quantize("int8")
    assert layer.word_attention.quantization_mode == "int8"
    np.testing.assert_allclose(to_numpy(layer(QUERY, words)), before, atol=0.02)


def test_wrong_uses_are_refused():
    layer = BahdanauAttention(3)
    with pytest.raises(ValueError, match="build it first"):
        layer.enable_lora(2)
    layer(QUERY, VALUE)
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        layer.enable_lora(0)
    with pytest.raises(NotImplementedError, match="float8"):
        layer.quantize("float8")
    layer.enable_lora(2)
    with pytest.raises(ValueError, match="has LoRA already"):
        layer.enable_lora(2)
