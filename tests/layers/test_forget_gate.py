"""Forget gates (Lin et al. 2025): sums of logarithms of gates in the scores of causal attention."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import mods
from keras_attention.layers import MultiHeadAttention
from keras_attention.ops.dot_product import block_sparse, blocks
from tests.contracts.backend import gradients_of, random, to_numpy
from tests.contracts.kinds import randomise

B, T, D, H = 2, 9, 7, 4
X = random(1, B, T, D)
MASK = np.array([[True] * T, [False, True, True, False, True, True, True, False, False]])
OPTIONS = {
    "plain": {},
    "grouped-sinks": {"num_key_value_heads": 2, "sink_logits": True, "use_bias": False},
    "window": {"window": 3, "num_sinks": 1, "positions": "alibi"},
    "softcap": {"score_mod": mods.softcap(0.7), "normalizer": "sparsemax"},
}


def layer_of(name, **options):
    layer = MultiHeadAttention(H, 3, use_forget_gate=True, **OPTIONS[name], **options)
    layer.build((None, None, D))
    return randomise(layer)


def expected(layer, x, mask):
    """The weights of the plain softmax over scores and sums, one pair at a time, in float64."""
    x = np.where(mask[:, :, None], np.float64(x), 0)
    weights = {each.name: np.float64(to_numpy(each)) for each in layer.weights}
    query, key = (
        np.einsum("btd,dhk->bhtk", x, weights[f"{name}_kernel"])
        + weights.get(f"{name}_bias", np.zeros(3))[..., None, :]
        for name in ("query", "key")
    )
    gate = 1 / (1 + np.exp(-(x @ weights["forget_kernel"] + weights.get("forget_bias", 0.0))))
    gate = np.where(mask[:, :, None], gate, 1.0)
    scores = np.full((B, H, T, T), -np.inf)
    groups = key.shape[1]
    for b, h, t, s in np.ndindex(B, H, T, T):
        if s <= t and mask[b, t] and mask[b, s]:
            product = query[b, h, t] @ key[b, h * groups // H, s] / np.sqrt(3)
            scores[b, h, t, s] = product + np.log(gate[b, s + 1 : t + 1, h]).sum()
    sink = weights.get("sink_logits")
    exponentials = np.exp(scores)
    total = exponentials.sum(axis=-1, keepdims=True)
    total = total + (0 if sink is None else np.exp(sink)[:, None, None])
    return exponentials / np.where(total > 0, total, 1)


@pytest.mark.parametrize("name", ["plain", "grouped-sinks"])
def test_weights_are_those_of_the_paper(name):
    layer = layer_of(name)
    for mask in (MASK, np.ones((B, T), bool)):
        options = {"query_mask": mask, "use_causal_mask": True, "return_attention_scores": True}
        _, scores = layer(X, **options)
        np.testing.assert_allclose(to_numpy(scores), expected(layer, X, mask), atol=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_blocks_and_steps_agree_with_the_whole(name, monkeypatch):
    layer = layer_of(name)
    options = {"use_causal_mask": True, "return_attention_scores": True}
    output, scores = (to_numpy(part) for part in layer(X, **options))
    np.testing.assert_allclose(to_numpy(layer(X, use_causal_mask=True)), output, atol=1e-5)
    state = layer.initial_state(B, T)
    for t in range(T):
        found, weights, state = layer.step(X[:, t], None, state, t)
        np.testing.assert_allclose(to_numpy(found), output[:, t], atol=1e-5)
        np.testing.assert_allclose(to_numpy(weights), scores[:, :, t], atol=1e-5)
    if "window" in OPTIONS[name]:
        state = layer.initial_state(B)
        for t in range(T):
            found, _, state = layer.step(X[:, t], None, state, t)
            np.testing.assert_allclose(to_numpy(found), output[:, t], atol=1e-5)
    monkeypatch.setattr(blocks, "KEPT_PAIRS", 1)
    monkeypatch.setattr(block_sparse, "MIN_POSITIONS", 4)
    np.testing.assert_allclose(to_numpy(layer(X, use_causal_mask=True)), output, atol=1e-5)

    def loss(x, **more):
        result = layer(x, use_causal_mask=True, query_mask=MASK, **more)
        return ops.sum((result[0] if more else result) ** 2)

    found = gradients_of(loss, X, layer=layer)
    wanted = gradients_of(lambda x: loss(x, return_attention_scores=True), X, layer=layer)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4, rtol=1e-3)
    kernel = [weight.name for weight in layer.trainable_weights].index("forget_kernel")
    assert any(np.shape(g) == (D, H) and np.abs(g).max() > 1e-3 for g in found) and kernel >= 0


def test_what_cannot_forget_is_refused():
    layer = layer_of("plain")
    with pytest.raises(ValueError, match="`use_forget_gate` needs .* Received: use_causal_mask=F"):
        layer(X)
    with pytest.raises(ValueError, match="`use_forget_gate` needs .* other keys or values"):
        layer(X, X + 1, use_causal_mask=True)
    with pytest.raises(ValueError, match="`use_forget_gate` belongs to self-attention"):
        layer.prepare_memory(X)


def test_half_precision_and_lora():
    layer = layer_of("plain", dtype="mixed_bfloat16")
    layer.enable_lora(2)
    assert keras.backend.standardize_dtype(layer(X, use_causal_mask=True).dtype) == "bfloat16"
    assert layer.initial_state(B, T)["forget"].shape == (B, H, T)


def test_gradients_reach_the_tensors_of_a_score_mod_beside_the_gates():
    layer = layer_of("plain")

    def scaled(factors, score, batch, head, query, key, scale):
        return score * mods.look_up(factors, head) * scale

    def loss(factors, scale, **options):
        mod = functools.partial(scaled, factors, scale=scale)
        result = layer(X, use_causal_mask=True, score_mod=mod, **options)
        return ops.sum((result[0] if options else result) ** 2)

    given = random(3, H), random(4)
    found = gradients_of(loss, *given)
    wanted = gradients_of(functools.partial(loss, return_attention_scores=True), *given)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
        assert np.all(one != 0)


@pytest.mark.parametrize(("rows", "steps"), [(0, T), (B, 0), (0, 0)])
def test_nothing_to_forget(rows, steps):
    layer = layer_of("plain")
    assert layer(X[:rows, :steps], use_causal_mask=True).shape == (rows, steps, D)
