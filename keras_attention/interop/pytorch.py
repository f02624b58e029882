"""The attention layers of `torch.nn` as layers of this package. PyTorch itself is not imported."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from ..layers import MultiHeadAttention, TransformerDecoder, TransformerEncoder
from .arrays import Arrays, assign, class_names, refuse

# The names of functions and of modules in PyTorch, and Keras' names.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "silu": "silu",
    "elu": "elu",
    "selu": "selu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "mish": "mish",
}
STACKS = ("TransformerEncoder", "TransformerDecoder", "Transformer")
# The name of each sublayer here, and the names of its module and of its normalisation there.
ENCODER = {"self_attention": ("self_attn", "norm1"), "feed_forward": ("", "norm2")}
DECODER = {
    "self_attention": ("self_attn", "norm1"),
    "cross_attention": ("multihead_attn", "norm2"),
    "feed_forward": ("", "norm3"),
}


def from_pytorch(module: Any, activation: Any = None) -> Any:
    """Return a layer of this package with the weights and options of an attention layer of PyTorch.

    | `torch.nn` | returned |
    | --- | --- |
    | `MultiheadAttention` | `MultiHeadAttention` |
    | `TransformerEncoderLayer` | `TransformerEncoder` |
    | `TransformerDecoderLayer` | `TransformerDecoder` |
    | `TransformerEncoder` | `keras.Model` of `inputs` |
    | `TransformerDecoder` | `keras.Model` of `[inputs, memory]` |
    | `Transformer` | `keras.Model` of `[source, target]` |

    Outputs are equal under three conventions. Inputs here are `(batch, steps, features)`, whatever
    `batch_first` is. A boolean mask here is True where PyTorch's is False. A decoder here is always
    causal, as PyTorch's is with a causal `tgt_mask`. The models take masks of padding as Keras
    does: from an `Embedding(mask_zero=True)`, or `model(inputs, mask=...)` with as many masks as
    inputs.

    Dropout inside the feed-forward network has no counterpart; all other rates are kept. With
    `bias=False`, the normalisations here have biases that start at zero.

    Args:
        module: A module of the table, or of a subclass that computes the same.
        activation: Activation of the feed-forward networks, where that of the module is a function
            of your own; any Keras activation. Default: that of the module.

    Returns:
        A built layer or model.

    Raises:
        ValueError: Where the module is of another kind, or has options without a counterpart, such
            as `add_bias_kv`; all of them are named.

    Example:

    ```python
    import numpy as np
    import torch
    from keras_attention.interop import from_pytorch

    theirs = torch.nn.TransformerEncoderLayer(16, nhead=4, batch_first=True).eval()
    ours = from_pytorch(theirs)
    x = torch.randn(2, 5, 16)
    assert np.allclose(ours(x.numpy()), theirs(x).detach().numpy(), atol=1e-5)
    ```
    """
    kinds = class_names(module, ["torch"])
    if "MultiheadAttention" in kinds:
        return _attention(module)
    if "TransformerEncoderLayer" in kinds:
        return _encoder_layer(module, activation)
    if "TransformerDecoderLayer" in kinds:
        return _decoder_layer(module, activation)
    for kind in STACKS:
        if kind in kinds:
            return _stack(module, kind, activation)
    raise ValueError(
        "`module` must be a MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer, "
        "TransformerEncoder, TransformerDecoder or Transformer of `torch.nn`; for weights alone "
        f"there is `load_pytorch`. Received: {type(module).__module__}.{type(module).__name__}"
    )


def load_pytorch(layer: keras.layers.Layer, state_dict: Mapping[str, Any], prefix: str = "") -> Any:
    """Set the weights of a built layer from those of its counterpart in PyTorch, by their names.

    This is for weights without their module, such as a file of safetensors.

    Args:
        layer: A built `MultiHeadAttention`, `TransformerEncoder` or `TransformerDecoder`.
        state_dict: Arrays or tensors by PyTorch's names, as of `module.state_dict()`.
        prefix: What stands before the names of this layer, such as `"encoder.layers.0."`.

    Returns:
        The layer.

    Raises:
        ValueError: Where a weight is missing, is left over, or has another shape.

    Example:

    ```python
    import numpy as np
    from keras_attention.interop import load_pytorch
    from keras_attention.layers import MultiHeadAttention

    weights = {
        "in_proj_weight": np.random.normal(size=(3 * 8, 8)),
        "in_proj_bias": np.zeros(3 * 8),
        "out_proj.weight": np.random.normal(size=(8, 8)),
        "out_proj.bias": np.zeros(8),
    }
    layer = MultiHeadAttention(num_heads=2, key_dim=4)
    layer.build((None, None, 8))
    load_pytorch(layer, weights)
    assert np.allclose(layer.value_kernel[:, 1, 0], weights["in_proj_weight"][2 * 8 + 4], atol=1e-6)
    ```
    """
    if not isinstance(layer, (MultiHeadAttention, TransformerEncoder, TransformerDecoder)):
        raise ValueError(
            "`layer` must be a MultiHeadAttention, TransformerEncoder or TransformerDecoder of "
            f"keras_attention. Received: {type(layer).__name__}"
        )
    if not layer.built:
        raise ValueError(
            f"{type(layer).__name__} has no weights yet: call it once, or `build` it for its "
            f"shapes. Received: {layer.name}, not built"
        )
    weights = Arrays(state_dict, "state_dict")
    if isinstance(layer, MultiHeadAttention):
        _load_attention(layer, weights, prefix)
    else:
        parts = ENCODER if isinstance(layer, TransformerEncoder) else _parts_of_decoder(layer)
        for name, (source, norm) in parts.items():
            if source:
                _load_attention(getattr(layer, name), weights, f"{prefix}{source}.")
            _load_norm(getattr(layer, f"{name}_norm"), weights, f"{prefix}{norm}.")
        network = layer.feed_forward
        assign(
            network,
            kernel=weights[f"{prefix}linear1.weight"].T,
            bias=_bias(weights, f"{prefix}linear1.bias", network.use_bias),
            output_kernel=weights[f"{prefix}linear2.weight"].T,
            output_bias=_bias(weights, f"{prefix}linear2.bias", network.use_bias),
        )
    weights.check_all_read(prefix)
    return layer


def _parts_of_decoder(layer: TransformerDecoder) -> dict[str, tuple[str, str]]:
    if layer.autoregression != "self-attention" or layer.cross_attention is None:
        raise ValueError(
            "A TransformerDecoderLayer of PyTorch has a self-attention and a memory: the decoder "
            "must have autoregression='self-attention' and be built with a `value_shape`. "
            f"Received: autoregression={layer.autoregression!r}, "
            f"{'no' if layer.cross_attention is None else 'a'} memory"
        )
    return DECODER


def _bias(weights: Arrays, name: str, is_used: bool) -> np.ndarray | None:
    return weights[name] if is_used else None


def _load_attention(layer: MultiHeadAttention, weights: Arrays, prefix: str) -> None:
    """Set the kernels of `layer` from the matrices `(outputs, inputs)` of PyTorch."""
    if f"{prefix}in_proj_weight" in weights:
        matrices = _in_three(weights, f"{prefix}in_proj_weight")
    else:
        matrices = [weights[f"{prefix}{name}_proj_weight"] for name in "qkv"]
    values = {}
    for name, matrix in zip(("query", "key", "value"), matrices, strict=True):
        values[f"{name}_kernel"] = np.moveaxis(_by_head(layer, matrix, 0), 2, 0)
    values["output_kernel"] = np.moveaxis(
        _by_head(layer, weights[f"{prefix}out_proj.weight"], 1), 0, 2
    )
    if layer.use_bias:
        biases = _in_three(weights, f"{prefix}in_proj_bias")
        for name, bias in zip(("query", "key", "value"), biases, strict=True):
            values[f"{name}_bias"] = _by_head(layer, bias, 0)
        values["output_bias"] = weights[f"{prefix}out_proj.bias"]
    assign(layer, **values)


def _in_three(weights: Arrays, name: str) -> list[np.ndarray]:
    """Return the parts of queries, keys and values, which lie one below the other."""
    array = weights[name]
    if array.shape[0] % 3:
        raise ValueError(
            f"`{name}` must hold the rows of queries, keys and values, as many of each. Received: "
            f"an array of shape {array.shape}"
        )
    return np.split(array, 3)


def _by_head(layer: MultiHeadAttention, array: np.ndarray, axis: int) -> np.ndarray:
    """Split an axis into heads and their features."""
    heads = (layer.num_heads, layer.key_dim)
    if array.shape[axis] != layer.num_heads * layer.key_dim:
        raise ValueError(
            f"{layer.name} must have as many heads times `key_dim` as the weights have features. "
            f"Received: num_heads={layer.num_heads}, key_dim={layer.key_dim}, and an array of "
            f"shape {array.shape}"
        )
    return array.reshape(*array.shape[:axis], *heads, *array.shape[axis + 1 :])


def _load_norm(layer: keras.layers.Layer, weights: Arrays, prefix: str) -> None:
    assign(layer, gamma=weights[f"{prefix}weight"], beta=weights.get(f"{prefix}bias"))


def _attention(module: Any) -> MultiHeadAttention:
    refuse(module, _added_keys(module))
    layer = MultiHeadAttention(
        module.num_heads,
        module.head_dim,
        dropout=module.dropout,
        use_bias=module.in_proj_bias is not None,
    )
    sizes = (module.embed_dim, module.vdim, module.kdim)
    layer.build(*((None, None, size) for size in sizes))
    return load_pytorch(layer, module.state_dict())


def _added_keys(module: Any) -> list[str]:
    """Return what a MultiheadAttention adds to its memory, which no layer here does."""
    reasons = []
    if module.bias_k is not None:
        reasons.append("`add_bias_kv` adds a learned key and value to each memory")
    if module.add_zero_attn:
        reasons.append("`add_zero_attn` adds a key and value of zeros to each memory")
    return reasons


def _block(module: Any, kind: Any, activation: Any, shapes: list[tuple]) -> Any:
    attention = module.self_attn
    norms = [each for name, each in module.named_children() if name.startswith("norm")]
    epsilons = {norm.eps for norm in norms if hasattr(norm, "eps")}
    rates = {name: each.p for name, each in module.named_children() if name.startswith("dropout")}
    rates.pop("dropout", None)  # that inside the feed-forward network
    attentions = [each for _, each in module.named_children() if hasattr(each, "num_heads")]
    reasons = [reason for each in attentions for reason in _added_keys(each)]
    if len({each.num_heads for each in attentions}) > 1:
        reasons.append("all attentions must have as many heads")
    if len(epsilons) != 1 or any("LayerNorm" not in class_names(x, ["torch"]) for x in norms):
        reasons.append("the normalisations must be LayerNorms of one `eps`")
    if len(set(rates.values())) > 1:
        reasons.append(f"the sublayers must have one rate of dropout, and have {rates}")
    refuse(module, reasons)
    activation = _activation(module.activation) if activation is None else activation
    layer = kind(
        module.linear1.out_features,
        attention.num_heads,
        dropout=next(iter(rates.values())),
        attention_dropout=attention.dropout,
        activation=activation,
        norm="pre" if module.norm_first else "post",
        layer_norm_epsilon=epsilons.pop(),
        use_bias=module.linear1.bias is not None,
    )
    layer.build(*shapes)
    return load_pytorch(layer, module.state_dict())


def _encoder_layer(module: Any, activation: Any) -> TransformerEncoder:
    return _block(module, TransformerEncoder, activation, [_shape(module.self_attn.embed_dim)])


def _decoder_layer(module: Any, activation: Any) -> TransformerDecoder:
    shape = _shape(module.self_attn.embed_dim)
    memory = _shape(module.multihead_attn.kdim)
    return _block(module, TransformerDecoder, activation, [shape, memory])


def _shape(size: int) -> tuple[None, None, int]:
    return (None, None, size)


def _activation(given: Any) -> str:
    """Return Keras' name of an activation, given as a function or a module."""
    name = getattr(given, "__name__", type(given).__name__).lower()
    is_exact = getattr(given, "approximate", "none") == "none"
    if name not in ACTIVATIONS or not is_exact or getattr(given, "alpha", 1.0) != 1.0:
        raise ValueError(
            f"The activation must be one of {', '.join(ACTIVATIONS)}, or be given in Keras' form: "
            "`from_pytorch(module, activation=...)`. "
            f"Received: {given}"
        )
    return ACTIVATIONS[name]


def _stack(module: Any, kind: str, activation: Any) -> keras.Model:
    """Return a model of a stack of blocks, or of an encoder and a decoder."""
    if kind == "Transformer":
        source = keras.Input(_shape(module.d_model)[1:], name="source")
        target = keras.Input(_shape(module.d_model)[1:], name="target")
        memory = _run(module.encoder, [source], activation)
        return _model([source, target], _run(module.decoder, [target, memory], activation))
    size = module.layers[0].self_attn.embed_dim
    inputs = [keras.Input((None, size), name="inputs")]
    if kind == "TransformerDecoder":
        size = module.layers[0].multihead_attn.kdim
        inputs.append(keras.Input((None, size), name="memory"))
    return _model(inputs if inputs[1:] else inputs[0], _run(module, inputs, activation))


def _model(inputs: Any, outputs: Any) -> keras.Model:
    model = keras.Model(inputs, outputs)
    model.supports_masking = True  # its layers pass masks on; Keras would warn
    return model


def _run(stack: Any, inputs: list, activation: Any) -> Any:
    """Call the blocks of an encoder or a decoder, and the normalisation at its end."""
    if not class_names(stack, ["torch"]) & {"TransformerEncoder", "TransformerDecoder"}:
        refuse(stack, ["encoder and decoder must be those of `torch.nn`"])
    x, *memory = inputs
    for module in stack.layers:
        x = from_pytorch(module, activation)(x, *memory)
    if stack.norm is None:
        return x
    if "LayerNorm" not in class_names(stack.norm, ["torch"]):
        refuse(stack, ["the normalisation at the end must be a LayerNorm"])
    norm = keras.layers.LayerNormalization(epsilon=stack.norm.eps)
    norm.build(x.shape)
    _load_norm(norm, Arrays(stack.norm.state_dict(), "state_dict"), "")
    return norm(x)
