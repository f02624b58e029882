"""Attention layers of Keras and KerasHub as layers of this package."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from ..layers import (
    BahdanauAttention,
    LearnedPositions,
    LuongAttention,
    MultiHeadAttention,
    PositionalEncoding,
    TransformerDecoder,
    TransformerEncoder,
)
from .arrays import assign, class_names

# Arguments of a config that mean the same in both.
OF_LAYER = ("name", "trainable", "dtype")
OF_KERNELS = (
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "kernel_constraint",
    "bias_constraint",
)
OF_HEADS = ("dropout", "use_bias", "use_gate", "sliding_window", "seed", *OF_KERNELS)
# The name of each weight here, and the end of its path there.
OF_ATTENTION = {
    "query": "query",
    "key": "key",
    "value": "value",
    "gate": "gate",
    "output": "attention_output",
}
FEED_FORWARD = {"feed_forward": ("", "feedforward_layer_norm")}


def from_keras(layer: keras.layers.Layer) -> Any:
    """Return a layer of this package with the weights and options of an attention layer of Keras.

    | `keras.layers` | returned |
    | --- | --- |
    | `MultiHeadAttention`, `GroupQueryAttention` | `MultiHeadAttention` |
    | `AdditiveAttention` | `BahdanauAttention`, whose kernels are the identity |
    | `Attention` | `LuongAttention`, by its `score_mode` |

    | `keras_hub.layers` | returned |
    | --- | --- |
    | `TransformerEncoder` | `TransformerEncoder` |
    | `TransformerDecoder` | `TransformerDecoder` |
    | `CachedMultiHeadAttention` | `MultiHeadAttention` |
    | `SinePositionEncoding` | `PositionalEncoding`, which adds itself to its inputs |
    | `PositionEmbedding` | `LearnedPositions`, which adds itself to its inputs |

    The identity kernels are ordinary weights: a model that is trained further learns a projection.
    `TransformerDecoder` is always causal. The dropout of `AdditiveAttention` and `Attention` falls
    here on the same memory positions for all queries of a sequence.

    Args:
        layer: A layer of the tables; built, if it has weights or its sizes come with its inputs.

    Returns:
        A layer with the same name, dtype policy and `trainable`, built if the given one is.

    Raises:
        ValueError: Where the layer is of another kind or not built.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention.interop import from_keras

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 8))
    theirs = keras.layers.AdditiveAttention()
    expected = theirs([states, memory])
    assert np.allclose(from_keras(theirs)(states, memory), expected, atol=1e-5)
    ```
    """
    kinds = class_names(layer, ["keras", "keras_hub", "keras_nlp"])
    hub = class_names(layer, ["keras_hub", "keras_nlp"])
    for name, convert in HUB.items():
        if name in hub:
            return convert(layer)
    for name, convert in KERAS.items():
        if name in kinds:
            return convert(layer)
    raise ValueError(
        f"`layer` must be one of {', '.join(KERAS)} of Keras, or {', '.join(HUB)} of KerasHub. "
        f"Received: {type(layer).__module__}.{type(layer).__name__}"
    )


def _shapes(layer: keras.layers.Layer) -> list[tuple]:
    """Return the shapes of the inputs that a layer was built for, with open batch and steps."""
    config = layer.get_build_config() if layer.built else None
    if not config:
        raise ValueError(
            f"{type(layer).__name__} must be built, as its sizes come with its inputs: call it "
            f"once, or load its model. Received: {layer.name}, not built"
        )
    given = config["shapes_dict"].values() if "shapes_dict" in config else [config["input_shape"]]
    given = [shape for shape in given if shape is not None]
    if isinstance(given[0][0], (list, tuple)):  # a list of inputs
        given = given[0]
    return [(*(None for _ in shape[:-1]), shape[-1]) for shape in given]


def _options(config: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: config[name] for name in (*OF_LAYER, *names) if name in config}


def _load_attention(
    ours: MultiHeadAttention, theirs: keras.layers.Layer, prefix: str = ""
) -> MultiHeadAttention:
    values = {}
    for name, source in OF_ATTENTION.items():
        if name != "gate" or ours.use_gate:
            values[f"{name}_kernel"] = _weight(theirs, f"{prefix}{source}/kernel")
            if ours.use_bias:
                values[f"{name}_bias"] = _weight(theirs, f"{prefix}{source}/bias")
    assign(ours, **values)
    return ours


def _weight(layer: keras.layers.Layer, path: str) -> np.ndarray:
    """Return the array of a layer's weight by the end of its path, such as `query/kernel`."""
    found = [weight for weight in layer.weights if f"/{weight.path}".endswith(f"/{path}")]
    adapted = [weight.path for weight in layer.weights if "lora" in weight.path.split("/")[-1]]
    if len(found) != 1 or adapted or "int" in keras.backend.standardize_dtype(found[0].dtype):
        raise ValueError(
            f"`layer` must have one weight `{path}`, which is neither quantized nor adapted by "
            "LoRA; save a quantized or adapted model, and load it into one that is not. Received: "
            f"{', '.join(weight.path for weight in layer.weights)}"
        )
    return np.asarray(ops.convert_to_numpy(found[0]))


def _multi_head(layer: keras.layers.Layer) -> MultiHeadAttention:
    config = layer.get_config()
    names = (*OF_HEADS, "num_heads", "key_dim", "value_dim", "output_shape", "attention_axes")
    ours = MultiHeadAttention(**_options(config, names))
    ours.build(*_shapes(layer))
    return _load_attention(ours, layer)


def _group_query(layer: keras.layers.Layer) -> MultiHeadAttention:
    config = layer.get_config()
    ours = MultiHeadAttention(
        config["num_query_heads"],
        config["head_dim"],
        num_key_value_heads=config["num_key_value_heads"],
        **_options(config, OF_HEADS),
    )
    ours.build(*_shapes(layer))
    return _load_attention(ours, layer)


def _additive(layer: keras.layers.Layer) -> BahdanauAttention:
    config = layer.get_config()
    shapes = _shapes(layer)
    size = shapes[0][-1]
    scale = ops.convert_to_numpy(layer.scale) if config["use_scale"] else np.ones(size)
    ours = BahdanauAttention(size, **_options(config, ("dropout", "seed")))
    ours.build(*shapes)
    kernels = {"query_kernel": np.eye(size), "key_kernel": np.eye(size)}
    assign(ours, **kernels, score_vector=scale)
    return ours


def _dot_or_concat(layer: keras.layers.Layer) -> LuongAttention:
    config = layer.get_config()
    shapes = _shapes(layer)
    size = shapes[0][-1]
    options = _options(config, ("dropout", "seed"))
    scale = float(ops.convert_to_numpy(layer.scale)) if config["use_scale"] else 1.0
    if config["score_mode"] == "concat":
        ours = LuongAttention("concat", units=size, **options)
        ours.build(*shapes)
        weight = float(ops.convert_to_numpy(layer.concat_score_weight))
        kernels = {"query_kernel": scale * np.eye(size), "key_kernel": scale * np.eye(size)}
        assign(ours, **kernels, score_vector=weight * np.ones(size))
        return ours
    ours = LuongAttention("general" if config["use_scale"] else "dot", **options)
    ours.build(*shapes)
    if config["use_scale"]:
        assign(ours, score_kernel=scale * np.eye(size))
    return ours


def _block(layer: keras.layers.Layer, kind: Any, parts: dict[str, tuple[str, str]]) -> Any:
    """Return a block; `parts` maps its sublayers to the names of them and of their norms there."""
    config = layer.get_config()
    shapes = _shapes(layer)
    names = ("dropout", "activation", "layer_norm_epsilon", "kernel_initializer")
    ours = kind(
        config["intermediate_dim"],
        config["num_heads"],
        key_dim=shapes[0][-1] // config["num_heads"],
        norm="pre" if config["normalize_first"] else "post",
        **_options(config, (*names, "bias_initializer")),
    )
    ours.build(*shapes)
    for name, (source, norm) in parts.items():
        if name != "feed_forward":
            _load_attention(getattr(ours, name), layer, f"{source}/")
        values = {part: _weight(layer, f"{norm}/{part}") for part in ("gamma", "beta")}
        assign(getattr(ours, f"{name}_norm"), **values)
    first, second = "feedforward_intermediate_dense", "feedforward_output_dense"
    assign(
        ours.feed_forward,
        kernel=_weight(layer, f"{first}/kernel"),
        bias=_weight(layer, f"{first}/bias"),
        output_kernel=_weight(layer, f"{second}/kernel"),
        output_bias=_weight(layer, f"{second}/bias"),
    )
    return ours


def _encoder(layer: keras.layers.Layer) -> TransformerEncoder:
    parts = {"self_attention": ("self_attention_layer", "self_attention_layer_norm")}
    return _block(layer, TransformerEncoder, parts | FEED_FORWARD)


def _decoder(layer: keras.layers.Layer) -> TransformerDecoder:
    parts = {"self_attention": ("self_attention", "self_attention_layer_norm")}
    if len(_shapes(layer)) > 1:
        parts["cross_attention"] = ("cross_attention", "cross_attention_layer_norm")
    return _block(layer, TransformerDecoder, parts | FEED_FORWARD)


def _sines(layer: keras.layers.Layer) -> PositionalEncoding:
    config = layer.get_config()
    return PositionalEncoding(config["max_wavelength"], **_options(config, ()))


def _learned(layer: keras.layers.Layer) -> LearnedPositions:
    config = layer.get_config()
    ours = LearnedPositions(
        config["sequence_length"],
        embeddings_initializer=config["initializer"],
        **_options(config, ()),
    )
    ours.build(*_shapes(layer))
    assign(ours, embeddings=_weight(layer, "embeddings"))
    return ours


KERAS: dict[str, Callable] = {
    "GroupedQueryAttention": _group_query,
    "MultiHeadAttention": _multi_head,
    "AdditiveAttention": _additive,
    "Attention": _dot_or_concat,
}
HUB: dict[str, Callable] = {
    "TransformerEncoder": _encoder,
    "TransformerDecoder": _decoder,
    "CachedMultiHeadAttention": _multi_head,
    "SinePositionEncoding": _sines,
    "PositionEmbedding": _learned,
}
