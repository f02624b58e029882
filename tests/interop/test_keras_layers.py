"""Layers of Keras and KerasHub give the same outputs here."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention.interop import from_keras
from keras_attention.layers import BahdanauAttention, LuongAttention, MultiHeadAttention
from tests.contracts.backend import random, to_numpy
from tests.contracts.kinds import randomise

B, T, S, H, D, F = 3, 5, 7, 2, 14, 11
X, MEMORY, KEYS = random(1, B, T, D), random(2, B, S, 13), random(3, B, S, 3)
SAME = random(4, B, S, D)  # a memory of the queries' size
T_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], "bool")
S_MASK = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], "bool")


def tensor(array):
    return ops.convert_to_tensor(array)


def assert_same(result, wanted, real=None):
    result, wanted = to_numpy(result), to_numpy(wanted)
    real = np.ones(result.shape[:2], "bool") if real is None else real
    np.testing.assert_allclose(result[real], wanted[real], rtol=1e-5, atol=2e-6)


ATTENTIONS = {
    "plain": lambda: layers.MultiHeadAttention(H, 3),
    "sizes": lambda: layers.MultiHeadAttention(H, 3, value_dim=5, use_bias=False, output_shape=17),
    "gate": lambda: layers.MultiHeadAttention(H, 3, use_gate=True, dropout=0.3, seed=5),
    "window": lambda: layers.MultiHeadAttention(H, 3, sliding_window=3),
    "groups": lambda: layers.GroupQueryAttention(3, 6, 2),
    "groups-gate": lambda: layers.GroupQueryAttention(3, 6, 2, use_bias=False, use_gate=True),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_multi_head_attention(name):
    theirs = ATTENTIONS[name]()
    # With scores: Keras' fused attention on JAX takes no values of another size than the keys.
    theirs(X, MEMORY, KEYS, return_attention_scores=True)
    randomise(theirs)
    ours = from_keras(theirs)
    assert isinstance(ours, MultiHeadAttention) and ours.name == theirs.name
    assert ours.dropout == theirs.get_config()["dropout"]
    pairs = tensor(np.tril(np.ones((T, S), "bool")))
    wanted, scores = theirs(X, MEMORY, KEYS, attention_mask=pairs, return_attention_scores=True)
    result, ours_scores = ours(X, MEMORY, KEYS, attention_mask=pairs, return_attention_scores=True)
    assert_same(result, wanted)
    assert_same(ours_scores, scores)
    assert ours.get_config()["name"] == theirs.name


def test_several_axes_and_a_policy():
    theirs = layers.MultiHeadAttention(H, 3, attention_axes=(2,), dtype="mixed_bfloat16")
    x = random(5, 2, 3, 5, 7)
    theirs(x, x)
    randomise(theirs)
    ours = from_keras(theirs)
    assert ours.dtype_policy.name == "mixed_bfloat16" and ours.attention_axes == (2,)
    wanted = to_numpy(ops.cast(theirs(x, x), "float32"))
    np.testing.assert_allclose(to_numpy(ops.cast(ours(x), "float32")), wanted, atol=0.05)


@pytest.mark.parametrize("use_scale", [True, False])
def test_additive_attention(use_scale):
    theirs = layers.AdditiveAttention(use_scale=use_scale, dropout=0.2)
    theirs([X, SAME])
    randomise(theirs)
    ours = from_keras(theirs)
    assert isinstance(ours, BahdanauAttention) and ours.dropout == 0.2
    masks = [tensor(T_MASK), tensor(S_MASK)]
    wanted, scores = theirs([X, SAME], mask=masks, return_attention_scores=True)
    result, found = ours([X, SAME], mask=masks, return_attention_scores=True)
    assert_same(result, wanted, T_MASK)
    assert_same(found, scores, T_MASK)


@pytest.mark.parametrize("use_scale", [True, False])
@pytest.mark.parametrize("mode", ["dot", "concat"])
def test_attention(mode, use_scale):
    theirs = layers.Attention(score_mode=mode, use_scale=use_scale, dropout=0.2, seed=3)
    theirs([X, SAME])
    randomise(theirs)
    ours = from_keras(theirs)
    assert isinstance(ours, LuongAttention) and (ours.dropout, ours.seed) == (0.2, 3)
    masks = [tensor(T_MASK), tensor(S_MASK)]
    keys = random(6, B, S, D)
    wanted = theirs([X, SAME, keys], mask=masks)
    assert_same(from_keras(theirs)([X, SAME, keys], mask=masks), wanted, T_MASK)


def test_a_layer_of_a_model_that_was_read_from_a_file(tmp_path):
    inputs = [keras.Input((None, D)), keras.Input((None, D))]
    model = keras.Model(inputs, layers.AdditiveAttention(name="attend")(inputs))
    randomise(model)
    model.save(tmp_path / "model.keras")
    theirs = keras.models.load_model(tmp_path / "model.keras").get_layer("attend")
    assert_same(from_keras(theirs)(X, SAME), model([X, SAME]))


# KerasHub.


@pytest.fixture(scope="module")
def hub():
    return pytest.importorskip("keras_hub")


@pytest.mark.parametrize("normalize_first", [True, False])
@pytest.mark.parametrize("width", [D, 13], ids=["even", "rounded-heads"])
def test_encoder_block(hub, width, normalize_first):
    theirs = hub.layers.TransformerEncoder(
        F,
        H,
        dropout=0.1,
        activation="gelu",
        layer_norm_epsilon=1e-3,
        normalize_first=normalize_first,
        name="block",
    )
    x = random(1, B, T, width)
    theirs(x)
    randomise(theirs)
    ours = from_keras(theirs)
    assert (ours.name, ours.dropout) == ("block", 0.1)
    pairs = tensor(np.tril(np.ones((B, T, T), "bool")))
    wanted = theirs(x, padding_mask=tensor(T_MASK), attention_mask=pairs)
    result = ours(x, inputs_mask=tensor(T_MASK), attention_mask=pairs)
    assert_same(result, wanted, T_MASK)


@pytest.mark.parametrize("has_memory", [True, False])
def test_decoder_block(hub, has_memory):
    theirs = hub.layers.TransformerDecoder(F, H, activation="silu", normalize_first=True)
    memory = [MEMORY] if has_memory else []
    theirs(X, *memory)
    randomise(theirs)
    ours = from_keras(theirs)
    masks = {"encoder_padding_mask": tensor(S_MASK)} if has_memory else {}
    wanted = theirs(X, *memory, decoder_padding_mask=tensor(T_MASK), **masks)
    masks = {"value_mask": tensor(S_MASK)} if has_memory else {}
    assert_same(ours(X, *memory, inputs_mask=tensor(T_MASK), **masks), wanted, T_MASK)


def test_a_cache_and_a_state(hub):
    theirs = hub.layers.CachedMultiHeadAttention(H, 3)
    theirs(X, X)
    randomise(theirs)
    ours = from_keras(theirs)
    cache = ops.zeros((B, 2, T, H, 3))
    state = ours.initial_state(batch_size=B, max_length=T)
    for index in range(T):
        x = tensor(X[:, index : index + 1])
        seen = tensor(np.arange(T)[None, None] <= index)
        wanted, cache = theirs(x, x, cache=cache, cache_update_index=index, attention_mask=seen)
        result, _, state = ours.step(x[:, 0], None, state, index)
        assert_same(result, wanted[:, 0])


@pytest.mark.parametrize("width", [D, 13])
def test_sines(hub, width):
    theirs = hub.layers.SinePositionEncoding(max_wavelength=500)
    x = tensor(random(1, B, T, width))
    assert_same(from_keras(theirs)(x, start_index=3), x + theirs(x, start_index=3))


def test_learned_positions(hub):
    theirs = hub.layers.PositionEmbedding(11)
    theirs(X)
    randomise(theirs)
    x = tensor(X)
    assert_same(from_keras(theirs)(x, start_index=4), x + theirs(x, start_index=4))


def test_what_cannot_be_turned_is_refused():
    for other in (layers.Dense(3), None, MultiHeadAttention(H, 3)):
        with pytest.raises(ValueError, match=r"`layer` must be one of .*Received: "):
            from_keras(other)
    for theirs in (layers.MultiHeadAttention(H, 3), layers.AdditiveAttention()):
        with pytest.raises(ValueError, match=r"must be built.*Received: .*, not built"):
            from_keras(theirs)


def test_an_adapted_layer_is_refused():
    theirs = layers.MultiHeadAttention(H, 3)
    theirs(X, X)
    next(each for each in theirs._flatten_layers() if each.name == "query").enable_lora(2)
    with pytest.raises(ValueError, match=r"neither quantized nor adapted by LoRA.*Received: "):
        from_keras(theirs)
