"""Linear attention, latent attention and gated delta networks: their forms, extremes and origins.

The contracts hold them to their oracles; here are longer sequences, and numbers that the code of
their origin gives. `recorded_since_2017.json` holds the outputs of

- `naive_recurrent_linear_attn` and `naive_recurrent_gated_delta_rule` of flash-linear-attention,
- `DeepseekV2Attention` and `Qwen3NextGatedDeltaNet` of transformers 5.24,

for the inputs and weights that are drawn here. The slow tests run the latter two again.
"""

import functools
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import GatedDeltaNet, LinearAttention, MultiHeadLatentAttention
from keras_attention.ops.linear_attention import delta_rule_step, gated_delta_rule, linear_attention
from tests.contracts.backend import BACKEND, gradients_of, random, to_numpy
from tests.contracts.kinds import randomise, weight_of
from tests.since_2017_oracle import delta_net, latent_attention
from tests.since_2017_oracle import linear_attention as linear_oracle

RECORDED = json.loads((Path(__file__).parent / "recorded_since_2017.json").read_text())
STEPS = 131


def close(result, expected, tolerance=1e-5):
    """A result is near, in the dtype's own measure."""
    np.testing.assert_allclose(to_numpy(result), expected, atol=tolerance, rtol=tolerance)


def weights_of(layer):
    """The weights of a layer in float64, by name."""
    return {weight.name: np.float64(to_numpy(weight)) for weight in layer.weights}


def heads(seed, size, steps=STEPS):
    """Random heads `(B, T, H, d)`."""
    return random(seed, 2, steps, 3, size)


# ---- Long sequences.


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras takes float64 for float32 there")
@pytest.mark.parametrize("chunk_size", [1, 7, 64, 200])
def test_forms_of_float64_agree_with_the_oracle(chunk_size):
    """Chunks, steps and the oracle, of more steps than a chunk has."""
    keras.config.set_dtype_policy("float64")
    x = np.float64(random(1, 2, STEPS, 7))
    mask = np.arange(STEPS) < np.array([STEPS, 90])[:, None]
    options = {"num_heads": 2, "key_dim": 3, "value_dim": 5, "chunk_size": chunk_size}
    causal = functools.partial(linear_oracle, causal=True)
    for kind, oracle in ((LinearAttention, causal), (GatedDeltaNet, delta_net)):
        layer = kind(**options)
        layer.build(x.shape)
        randomise(layer)
        arrays = {"query": x, "query_mask": mask}
        expected = oracle(weights_of(layer), options, arrays)["outputs"]
        result = layer(x, query_mask=ops.convert_to_tensor(mask), use_causal_mask=True)
        close(result, expected, 1e-9)
        if chunk_size == 1:
            state = layer.initial_state(2)
            for t in range(90):
                output, state = layer.step(x[:, t], state)
                close(output, expected[:, t], 1e-9)


@pytest.mark.parametrize(("steps", "length"), [(131, 70), (70, 131), (64, 65), (0, 5), (5, 0)])
def test_causal_queries_and_keys_may_differ_in_number(steps, length):
    query, key, value = abs(heads(1, 4, steps)), abs(heads(2, 4, length)), heads(3, 5, length)
    found = to_numpy(
        linear_attention(*map(ops.convert_to_tensor, (query, key, value)), causal=True)
    )
    products = np.einsum("bthd,bshd->bhts", query, key) * np.tri(steps, length)
    total = products.sum(axis=-1, keepdims=True)
    expected = np.einsum("bhts,bshd->bthd", products / np.where(total == 0, 1, total), value)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_known_answers():
    """Over one step, linear attention gives its value; over equal keys, the mean."""
    value = heads(1, 5, 4)
    ones = ops.ones((2, 4, 3, 2))
    close(linear_attention(ones, ones, value, causal=True)[:, 0], value[:, 0])
    close(linear_attention(ones, ones, value)[:, 2], value.mean(axis=1))
    # A strength of 1 without decay: the key's value is what was written last.
    key = ops.convert_to_tensor(np.eye(4, dtype="float32")[[0, 1, 0, 2]][None, :, None])
    value, ones = heads(2, 5, 4)[:1, :, :1], ops.ones((1, 4, 1))
    found = gated_delta_rule(key, key, value, 0 * ones, ones)
    close(found, value)
    first = ops.repeat(key[:, :1], 4, axis=1)
    close(gated_delta_rule(first, key, value, 0 * ones, ones)[:, :, 0], value[:, [0, 0, 2, 2], 0])


# ---- Extremes.


def test_features_of_zero_give_zeros_and_finite_gradients():
    layer = LinearAttention(2, 3, feature_map="relu", use_bias=False)
    x = random(1, 2, 9, 5)
    layer.build(x.shape)
    layer.key_kernel.assign(np.zeros(layer.key_kernel.shape))
    assert not np.any(to_numpy(layer(x, use_causal_mask=True)))
    loss = lambda x: ops.sum((layer(x, use_causal_mask=True) - 1) ** 2)  # noqa: E731
    assert all(np.all(np.isfinite(each)) for each in gradients_of(loss, x, layer=layer))


def test_features_far_below_zero_do_not_vanish():
    """In float32 `elu(-30) + 1` is 0, and the query would read nothing."""
    layer = LinearAttention(1, 2, use_bias=True)
    x = random(1, 1, 5, 3)
    layer.build(x.shape)
    expected = to_numpy(layer(x))
    for name in ("query_bias", "key_bias"):
        weight_of(layer, name).assign([[-30.0, -30.0]])
    assert not np.allclose(to_numpy(layer(x)), 0, atol=1e-3) and expected.any()


@pytest.mark.parametrize(("decay", "strength"), [(0.0, 1.0), (-200.0, 0.5), (-1e-6, 2.0)])
def test_the_delta_rule_is_stable_for_equal_keys_and_any_decay(decay, strength):
    """Powers of the matrix that the chunks invert would overflow for equal keys."""
    steps = 128
    key = ops.convert_to_tensor(np.full((1, steps, 1, 4), 0.5, "float32"))
    value = random(3, 1, steps, 1, 5)
    ones = np.ones((1, steps, 1), "float32")
    given = (key, key, value, decay * ones, strength * ones)

    def loss(key, value):
        return ops.sum(gated_delta_rule(key, key, value, *given[3:]) ** 2)

    state = ops.zeros((1, 1, 4, 5))
    found = to_numpy(gated_delta_rule(*given))
    for t in range(steps):
        context, state = delta_rule_step(*(each[:, t] for each in given), state)
        np.testing.assert_allclose(found[:, t], to_numpy(context), atol=2e-3)
    gradients = gradients_of(loss, to_numpy(key), value)
    assert all(np.all(np.isfinite(each)) for each in gradients)


@pytest.mark.slow
def test_long_sequences_end_in_the_state_of_their_steps():
    """65,536 steps in one call; the state of the steps stays of one size."""
    steps, layer = 65_536, GatedDeltaNet(1, 4, value_dim=2)
    x = random(1, 1, steps, 3)
    layer.build(x.shape)
    found = to_numpy(layer(x))
    assert found.shape == (1, steps, 3) and np.all(np.isfinite(found))
    near = to_numpy(layer(x[:, -4096:]))  # decays have forgotten what was before
    np.testing.assert_allclose(found[:, -64:], near[:, -64:], atol=1e-3)
    sizes = {name: each.shape for name, each in layer.initial_state(1).items()}
    assert sizes == {"memory": (1, 1, 4, 2), "conv": (1, 3, 10)}


def test_a_delta_net_is_causal_alone():
    with pytest.raises(ValueError, match="is causal.*Received: use_causal_mask=False"):
        GatedDeltaNet(2, 3)(random(1, 2, 5, 7), use_causal_mask=False)


# ---- The cache of latent attention.


def test_a_cache_of_latent_attention_holds_the_short_vectors_alone():
    layer = MultiHeadLatentAttention(4, 8, latent_dim=6, rotary_dim=2, value_dim=5)
    x = random(1, 3, 7, 11)
    mask = np.arange(7) >= np.array([0, 2, 5])[:, None]  # padding before the words
    expected = to_numpy(layer(x, query_mask=mask, use_causal_mask=True))
    state = layer.initial_state(3, 7)
    assert layer.cache_size == 8
    assert {name: tuple(each.shape) for name, each in state.items()} == {"key": (3, 1, 7, 8)}
    for t in range(7):
        output, state = layer.step(x[:, t], state, t, mask=ops.convert_to_tensor(mask))
        real = mask[:, t]
        np.testing.assert_allclose(to_numpy(output)[real], expected[:, t][real], atol=1e-5)
    with pytest.raises(ValueError, match="7 positions of the state.*Received: index=7"):
        layer.step(x[:, 0], state, 7)
    beyond = layer.step(x[:, 0], state, ops.convert_to_tensor(7))[0]
    assert np.all(np.isnan(to_numpy(beyond)))


def test_weights_of_latent_attention_are_those_of_the_oracle():
    layer = latent_layer(random(1, 2, 7, 8))
    x, mask = random(1, 2, 7, 8), np.arange(7) < np.array([7, 3])[:, None]
    options = {"use_causal_mask": True, "return_attention_scores": True}
    output, scores = layer(x, query_mask=ops.convert_to_tensor(mask), **options)
    given = {"query": x, "query_mask": mask}
    expected = latent_attention(weights_of(layer), {**DEEPSEEK, "latent_norm": True}, given)
    close(output, expected["outputs"])
    close(scores, expected["scores"])
    assert not np.any(to_numpy(scores)[1, :, :, 3:])


def test_the_rotated_part_is_half_of_the_head_by_default():
    sizes = {size: MultiHeadLatentAttention(1, size, latent_dim=2).rotary_dim for size in (1, 4, 6)}
    assert sizes == {1: 2, 4: 2, 6: 4}
    assert MultiHeadLatentAttention(1, 128, latent_dim=512).rotary_dim == 64


# ---- Their origins.


def test_linear_attention_is_that_of_flash_linear_attention():
    query, key, value = (random(i, 1, 5, 2, size) for i, size in ((1, 3), (2, 3), (3, 2)))
    given = [ops.elu(query) + 1, ops.elu(key) + 1, ops.convert_to_tensor(value)]
    close(linear_attention(*given, causal=True), RECORDED["linear"])


def test_the_delta_rule_is_that_of_flash_linear_attention():
    query, key, value = (random(i, 1, 5, 2, size) for i, size in ((1, 3), (2, 3), (3, 2)))
    key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    decay, beta = -abs(random(4, 1, 5, 2)), abs(np.tanh(random(5, 1, 5, 2)))
    found = gated_delta_rule(*map(ops.convert_to_tensor, (query, key, value, decay, beta)))
    close(found, RECORDED["delta"])


DEEPSEEK = {"num_heads": 2, "key_dim": 4, "latent_dim": 6, "value_dim": 5, "rotary_dim": 4}
QWEN = {"num_heads": 2, "key_dim": 3, "value_dim": 5, "num_value_heads": 4}


def randomised(layer, x):
    """A layer with random weights; gains near 1."""
    layer.build(x.shape)
    randomise(layer)
    for weight in layer.weights:
        if "gain" in weight.name:
            weight.assign(weight + 1)
    return layer


def latent_layer(x, **options):
    """DeepSeek-V2's attention."""
    options = {**DEEPSEEK, "latent_norm": True, **options}
    return randomised(MultiHeadLatentAttention(**options), x)


def delta_layer(x):
    """The mixer of Qwen3-Next, which divides queries by the root of their size."""
    return randomised(GatedDeltaNet(**QWEN, norm_eps=1e-6 * QWEN["key_dim"]), x)


@pytest.mark.parametrize("query_latent_dim", [None, 8])
def test_latent_attention_is_that_of_transformers(query_latent_dim):
    x = random(1, 1, 5, 8)
    found = latent_layer(x, query_latent_dim=query_latent_dim)(x, use_causal_mask=True)
    close(found, RECORDED[f"latent {query_latent_dim}"])


def test_the_delta_net_is_that_of_transformers():
    x = random(1, 1, 5, 8)
    close(delta_layer(x)(x), RECORDED["delta net"])


def deepseek(layer, x):
    """The output of transformers' module with a layer's weights."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("transformers", reason="needs transformers")
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as theirs

    w = {name: np.float32(value) for name, value in weights_of(layer).items()}
    order = np.argsort([*range(0, layer.rotary_dim, 2), *range(1, layer.rotary_dim, 2)])
    config = theirs.DeepseekV2Config(
        hidden_size=x.shape[-1],
        num_attention_heads=layer.num_heads,
        num_key_value_heads=layer.num_heads,
        q_lora_rank=layer.query_latent_dim,
        kv_lora_rank=layer.latent_dim,
        qk_rope_head_dim=layer.rotary_dim,
        qk_nope_head_dim=layer.key_dim,
        v_head_dim=layer.value_dim,
        head_dim=layer.rotary_dim,
        attn_implementation="eager",
    )
    module = theirs.DeepseekV2Attention(config, 0).eval()
    query = np.concatenate([w["query_kernel"], w["query_rotary_kernel"][..., order]], axis=-1)
    name = "q_proj.weight" if layer.query_latent_dim is None else "q_b_proj.weight"
    state = {name: query.reshape(len(query), -1).T}
    if layer.query_latent_dim is not None:
        state["q_a_proj.weight"] = w["query_latent_kernel"].T
        state["q_a_layernorm.weight"] = w["query_latent_gain"]
    down = np.concatenate([w["latent_kernel"], w["key_rotary_kernel"][:, order]], axis=-1)
    up = np.concatenate([w["key_kernel"], w["value_kernel"]], axis=-1)
    state |= {
        "kv_a_proj_with_mqa.weight": down.T,
        "kv_a_layernorm.weight": w["latent_gain"],
        "kv_b_proj.weight": up.reshape(len(up), -1).T,
        "o_proj.weight": w["output_kernel"].reshape(-1, x.shape[-1]).T,
    }
    return run_module(torch, module, state, x, theirs.DeepseekV2RotaryEmbedding(config))


def run_module(torch, module, state, x, rotary=None):
    """Load the weights of a module, all of them, and call it."""
    state = {name: torch.tensor(np.ascontiguousarray(value)) for name, value in state.items()}
    module.load_state_dict(state, strict=True)
    inputs = torch.tensor(x)
    with torch.no_grad():
        if rotary is None:
            return module(inputs).numpy()
        angles = rotary(inputs, torch.arange(x.shape[1])[None])
        mask = torch.triu(torch.full((x.shape[1],) * 2, float("-inf")), 1)[None, None]
        return module(inputs, attention_mask=mask, position_embeddings=angles)[0].numpy()


def qwen(layer, x):
    """The output of transformers' module with a layer's weights."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("transformers", reason="needs transformers")
    from transformers.models.qwen3_next import modeling_qwen3_next as theirs

    w = {name: np.float32(value) for name, value in weights_of(layer).items()}
    config = theirs.Qwen3NextConfig(
        hidden_size=x.shape[-1],
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=layer.num_heads,
        linear_num_value_heads=layer.num_value_heads,
        linear_key_head_dim=layer.key_dim,
        linear_value_head_dim=layer.value_dim,
        linear_conv_kernel_dim=layer.conv_size,
        rms_norm_eps=1e-6,
    )
    module = theirs.Qwen3NextGatedDeltaNet(config, 0).eval()
    size, groups = x.shape[-1], layer.num_heads

    def grouped(*names):
        return np.concatenate([w[name].reshape(size, groups, -1) for name in names], axis=-1)

    qkvz = grouped("query_kernel", "key_kernel", "value_kernel", "gate_kernel")
    conv = [w[f"{name}_conv"].reshape(layer.conv_size, -1) for name in ("query", "key", "value")]
    state = {
        "in_proj_qkvz.weight": qkvz.reshape(size, -1).T,
        "in_proj_ba.weight": grouped("beta_kernel", "decay_kernel").reshape(size, -1).T,
        "conv1d.weight": np.concatenate(conv, axis=-1).T[:, None],
        "A_log": w["a_log"],
        "dt_bias": w["dt_bias"],
        "norm.weight": w["norm_gain"],
        "out_proj.weight": w["output_kernel"].reshape(-1, size).T,
    }
    return run_module(torch, module, state, x)


@pytest.mark.slow
@pytest.mark.parametrize("query_latent_dim", [None, 8])
def test_latent_attention_beside_transformers(query_latent_dim):
    x = random(2, 3, 37, 8)
    layer = latent_layer(x, query_latent_dim=query_latent_dim)
    close(layer(x, use_causal_mask=True), deepseek(layer, x))


@pytest.mark.slow
def test_the_delta_net_beside_transformers():
    x = random(2, 3, STEPS, 8)
    layer = delta_layer(x)
    close(layer(x), qwen(layer, x))


# ---- A user's feature map.


def test_a_feature_map_keeps_all_axes_but_the_last():
    layer = LinearAttention(2, 3, feature_map=lambda x: ops.sum(x, axis=-1))
    with pytest.raises(ValueError, match="`feature_map` must keep all axes but the last"):
        layer(random(1, 2, 5, 7))
    with pytest.raises(ValueError, match="`feature_map` must keep all axes but the last"):
        layer.initial_state(2)


@pytest.mark.parametrize("function", [functools.partial(ops.elu, alpha=0.5), np.square])
def test_a_function_that_cannot_be_saved_says_how_it_can(function):
    layer = LinearAttention(2, 3, feature_map=function)
    with pytest.raises(ValueError, match="`feature_map` cannot be saved.*register_keras_ser"):
        layer.get_config()
