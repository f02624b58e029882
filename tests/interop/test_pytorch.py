"""Layers of PyTorch give the same outputs here; where PyTorch is not installed, recorded ones."""

import itertools
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.interop import from_pytorch, load_pytorch
from keras_attention.layers import MultiHeadAttention, TransformerDecoder, TransformerEncoder
from tests.contracts.backend import random, to_numpy

B, T, S, H, D, F, DK, DV = 3, 5, 7, 2, 14, 11, 3, 13
RECORDED = Path(__file__).with_name("recorded")
# True = attend, as here; PyTorch's masks of padding are the opposite. Padding before the words too.
T_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], "bool")
AFTER = np.sort(T_MASK)[:, ::-1]  # the same lengths, with padding behind the words alone
S_MASK = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]], "bool")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="needs the extra `torch`")


def randomised(torch, module):
    """Return a module for inference whose weights are all random, biases and gains too."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.4)
    return module.eval()


def expected(torch, module, *arrays, batch_first=True, **masks):
    """Call a module on batch-first arrays, in the order of axes that it takes."""
    order = (lambda x: x) if batch_first else (lambda x: np.ascontiguousarray(x.swapaxes(0, 1)))
    tensors = [torch.from_numpy(order(array)) for array in arrays]
    masks = {name: torch.as_tensor(mask) for name, mask in masks.items()}
    with torch.no_grad():
        output = module(*tensors, **masks)
    output = output[0] if isinstance(output, tuple) else output
    return order(output.numpy())


def assert_same(result, wanted, real=None):
    real = np.ones(result.shape[:2], "bool") if real is None else real
    np.testing.assert_allclose(to_numpy(result)[real], wanted[real], rtol=1e-5, atol=2e-6)


def causal(torch, steps):
    return torch.triu(torch.ones(steps, steps, dtype=torch.bool), diagonal=1)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [{}, {"kdim": DK, "vdim": DV}], ids=["one-size", "sizes"])
def test_multi_head_attention(torch, sizes, bias, batch_first):
    module = torch.nn.MultiheadAttention(
        D, H, dropout=0.3, bias=bias, batch_first=batch_first, **sizes
    )
    layer = from_pytorch(randomised(torch, module))
    assert isinstance(layer, MultiHeadAttention) and layer.dropout == 0.3
    query = random(1, B, T, D)
    key, value = random(2, B, S, module.kdim), random(3, B, S, module.vdim)
    pairs = np.random.default_rng(4).random((T, S)) < 0.7
    pairs[:, 2:4] = True  # each query sees something
    wanted = expected(
        torch,
        module,
        query,
        key,
        value,
        batch_first=batch_first,
        key_padding_mask=~S_MASK,
        attn_mask=~pairs,
    )
    result = layer(
        query,
        value,
        key,
        value_mask=ops.convert_to_tensor(S_MASK),
        attention_mask=ops.convert_to_tensor(pairs),
    )
    assert_same(result, wanted)


def test_the_scores_of_each_head(torch):
    module = randomised(torch, torch.nn.MultiheadAttention(D, H, batch_first=True))
    x = torch.from_numpy(random(1, B, T, D))
    with torch.no_grad():
        _, wanted = module(x, x, x, average_attn_weights=False)
    _, scores = from_pytorch(module)(x.numpy(), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(scores), wanted.numpy(), atol=2e-6)


OPTIONS = [
    {"norm_first": norm_first, "activation": activation, "bias": bias, "batch_first": batch_first}
    for norm_first, activation, bias, batch_first in itertools.product(
        (False, True), ("relu", "gelu"), (True, False), (True, False)
    )
]


@pytest.mark.parametrize("options", OPTIONS[::3], ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_blocks(torch, kind, options):
    options = {"dim_feedforward": F, "layer_norm_eps": 1e-3, "dropout": 0.2, **options}
    first = {"batch_first": options["batch_first"]}
    x, memory = random(1, B, T, D), random(2, B, S, D)
    x_mask, memory_mask = ops.convert_to_tensor(T_MASK), ops.convert_to_tensor(S_MASK)
    if kind == "encoder":
        module = randomised(torch, torch.nn.TransformerEncoderLayer(D, H, **options))
        wanted = expected(torch, module, x, src_key_padding_mask=~T_MASK, **first)
        layer = from_pytorch(module)
        result = layer(x, inputs_mask=x_mask)
    else:
        module = randomised(torch, torch.nn.TransformerDecoderLayer(D, H, **options))
        layer = from_pytorch(module)
        masks = {"tgt_key_padding_mask": ~T_MASK, "memory_key_padding_mask": ~S_MASK}
        masks["tgt_mask"] = causal(torch, T)
        wanted = expected(torch, module, x, memory, **masks, **first)
        result = layer(x, memory, inputs_mask=x_mask, value_mask=memory_mask)
    assert layer.dropout == layer.attention_dropout == 0.2
    assert layer.norm == ("pre" if options["norm_first"] else "post")
    # PyTorch gives NaN where a padded position before the words sees nothing.
    assert_same(result, wanted, T_MASK)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


def test_an_encoder_layer_under_a_mask_of_pairs(torch):
    module = torch.nn.TransformerEncoderLayer(D, H, F, batch_first=True)
    module, x = randomised(torch, module), random(1, B, T, D)
    wanted = expected(torch, module, x, src_mask=causal(torch, T))
    pairs = ops.convert_to_tensor(np.tril(np.ones((T, T), "bool")))
    assert_same(from_pytorch(module)(x, attention_mask=pairs), wanted)


@pytest.mark.parametrize("norm", [True, False])
def test_stacks(torch, norm):
    options = {"dim_feedforward": F, "batch_first": True, "norm_first": True}
    last = [torch.nn.LayerNorm(D, eps=1e-4) if norm else None for _ in "ab"]
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(D, H, **options), 2, last[0], enable_nested_tensor=False
    )
    decoder = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(D, H, **options), 2, last[1]
    )
    encoder, decoder = randomised(torch, encoder), randomised(torch, decoder)
    x, memory = random(1, B, T, D), random(2, B, S, D)
    wanted = expected(torch, encoder, x, src_key_padding_mask=~T_MASK)
    ours = from_pytorch(encoder)
    assert_same(ours(x, mask=ops.convert_to_tensor(T_MASK)), wanted, T_MASK)
    # In a stack, PyTorch's NaN at causal padding before the words reaches all positions.
    masks = {"tgt_key_padding_mask": ~AFTER, "memory_key_padding_mask": ~S_MASK}
    wanted = expected(torch, decoder, x, memory, tgt_mask=causal(torch, T), **masks)
    both = [ops.convert_to_tensor(AFTER), ops.convert_to_tensor(S_MASK)]
    assert_same(from_pytorch(decoder)([x, memory], mask=both), wanted, AFTER)


def test_a_whole_transformer_is_saved_and_read_again(torch, tmp_path):
    module = torch.nn.Transformer(D, H, 2, 1, F, activation="gelu", batch_first=True)
    module = randomised(torch, module)
    source, target = random(1, B, S, D), random(2, B, T, D)
    masks = {"src_key_padding_mask": ~S_MASK, "memory_key_padding_mask": ~S_MASK}
    masks |= {"tgt_key_padding_mask": ~AFTER, "tgt_mask": causal(torch, T)}
    wanted = expected(torch, module, source, target, **masks)
    model = from_pytorch(module)
    both = [ops.convert_to_tensor(S_MASK), ops.convert_to_tensor(AFTER)]
    assert_same(model([source, target], mask=both), wanted, AFTER)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.supports_masking = True  # Keras does not keep it
    assert_same(again([source, target], mask=both), wanted, AFTER)


def test_activations(torch):
    def own(x):
        return x * x

    x = random(1, B, T, D)
    squared = keras.ops.square
    for given, ours in [(torch.nn.SiLU(), None), (torch.tanh, None), (own, squared)]:
        module = torch.nn.TransformerEncoderLayer(D, H, F, activation=given, batch_first=True)
        module = randomised(torch, module)
        layer = from_pytorch(module, activation=ours)
        assert_same(layer(x), expected(torch, module, x))
    for given in (own, torch.nn.GELU(approximate="tanh"), torch.nn.ELU(alpha=0.5)):
        module = torch.nn.TransformerEncoderLayer(D, H, F, activation=given)
        with pytest.raises(ValueError, match=r"The activation must be one of.*Received: "):
            from_pytorch(module)


def test_what_has_no_counterpart_is_refused(torch):
    nn = torch.nn
    module = nn.MultiheadAttention(D, H, add_bias_kv=True, add_zero_attn=True)
    with pytest.raises(ValueError, match=r"`add_bias_kv`.*; `add_zero_attn`.*Received: "):
        from_pytorch(module)
    module = nn.TransformerEncoderLayer(D, H, F)
    module.norm2, module.dropout1 = nn.LayerNorm(D, eps=0.1), nn.Dropout(0.7)
    with pytest.raises(ValueError, match=r"LayerNorms of one `eps`; .* one rate .*Received: "):
        from_pytorch(module)
    module = nn.TransformerDecoderLayer(D, H, F)
    module.multihead_attn = nn.MultiheadAttention(D, 7, add_zero_attn=True)
    with pytest.raises(ValueError, match=r"`add_zero_attn`.*; all attentions .*Received: "):
        from_pytorch(module)
    with pytest.raises(ValueError, match=r"must be those of `torch.nn`.*Received: "):
        from_pytorch(nn.Transformer(D, H, 1, 1, F, custom_encoder=nn.Linear(D, D)))
    stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, F), 1, nn.Linear(D, D))
    with pytest.raises(ValueError, match=r"must be a LayerNorm.*Received: "):
        from_pytorch(stack)
    for other in (nn.Linear(3, 5), keras.layers.MultiHeadAttention(H, 3), None):
        with pytest.raises(ValueError, match=r"`module` must be a MultiheadAttention.*Received: "):
            from_pytorch(other)


# Weights without their module, and outputs that PyTorch has recorded: `record.py`.


def built(kind):
    layer, shapes = {
        "attention": (MultiHeadAttention(H, D // H), [D, DV, DK]),
        "encoder": (TransformerEncoder(F, H, activation="gelu", norm="pre"), [D]),
        "decoder": (TransformerDecoder(F, H), [D, D]),
    }[kind]
    layer.build(*((None, None, size) for size in shapes))
    return layer


def recorded(kind):
    with np.load(RECORDED / f"{kind}.npz", allow_pickle=False) as file:
        arrays = dict(file)
    weights = {k.removeprefix("layer."): v for k, v in arrays.items() if k.startswith("layer.")}
    return arrays, weights


@pytest.mark.parametrize("kind", ["attention", "encoder", "decoder"])
def test_recorded_outputs(kind):
    arrays, weights = recorded(kind)
    layer = load_pytorch(built(kind), {f"model.{k}": v for k, v in weights.items()}, "model.")
    inputs = [arrays[name] for name in ("x", "value", "key") if name in arrays]
    assert_same(layer(*inputs), arrays["output"])


def test_weights_that_do_not_fit_are_refused():
    _, weights = recorded("encoder")
    with pytest.raises(ValueError, match=r"`layer` must be a MultiHeadAttention.*Received: Dense"):
        load_pytorch(keras.layers.Dense(3), weights)
    with pytest.raises(ValueError, match=r"has no weights yet.*Received: "):
        load_pytorch(TransformerEncoder(F, H), weights)
    with pytest.raises(ValueError, match=r"must map names to arrays.*Received: list"):
        load_pytorch(built("encoder"), list(weights))
    missing = {k: v for k, v in weights.items() if k != "linear2.bias"}
    with pytest.raises(ValueError, match=r"must hold `linear2.bias`. Received: linear1.bias"):
        load_pytorch(built("encoder"), missing)
    with pytest.raises(ValueError, match=r"no counterpart in it. Received: adapter.weight"):
        load_pytorch(built("encoder"), weights | {"adapter.weight": np.ones(3)})
    wide = weights | {"linear1.weight": np.ones((F + 1, D))}
    with pytest.raises(ValueError, match=r"`kernel` of feed_forward must have the shape.*Received"):
        load_pytorch(built("encoder"), wide)
    odd = weights | {"self_attn.in_proj_bias": np.ones(3 * D + 1)}
    with pytest.raises(ValueError, match=r"rows of queries, keys and values.*Received: "):
        load_pytorch(built("encoder"), odd)
    narrow = weights | {"self_attn.in_proj_weight": np.ones((3 * (D - 1), D))}
    with pytest.raises(ValueError, match=r"heads times `key_dim`.*Received: num_heads=2"):
        load_pytorch(built("encoder"), narrow)
    alone = TransformerDecoder(F, H)
    alone.build((None, None, D))
    with pytest.raises(ValueError, match=r"be built with a `value_shape`.*Received: .*no memory"):
        load_pytorch(alone, recorded("decoder")[1])
