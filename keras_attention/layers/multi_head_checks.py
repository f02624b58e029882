"""What `MultiHeadAttention` refuses, each with what it expected and what it received."""

from keras import backend

from keras_attention.ops.dot_product import NORMALIZERS
from keras_attention.ops.masks import check_mask

POSITIONS = (None, "rotary", "alibi", "relative")


def check_arguments(layer):
    """Raise a ValueError where the layer's arguments are out of range or would be ignored."""
    positive = ("num_heads", "key_dim", "value_dim", "num_key_value_heads")
    for name in (*positive, "num_buckets", "max_distance"):
        _check_positive(name, getattr(layer, name))
    if layer.num_heads % layer.num_key_value_heads:
        raise ValueError(
            "`num_heads` must be a multiple of `num_key_value_heads`, so that each key head serves "
            f"as many query heads. Received: num_heads={layer.num_heads}, "
            f"num_key_value_heads={layer.num_key_value_heads}"
        )
    if not 0 <= layer.dropout < 1:
        raise ValueError(f"`dropout` must lie in [0, 1). Received: dropout={layer.dropout}")
    if layer.normalizer not in NORMALIZERS:
        raise ValueError(
            f"`normalizer` must be one of {tuple(NORMALIZERS)}. "
            f"Received: normalizer={layer.normalizer!r}"
        )
    _check_positions(layer)
    _check_window(layer)


def check_shapes(layer, query, value, key):
    """Raise a ValueError where the inputs fit neither each other nor the layer."""
    shapes = f"Received: query {tuple(query)}, value {tuple(value)}, key {tuple(key)}"
    if not len(query) == len(value) == len(key) == 3:
        raise ValueError(
            f"Query, value and key must have the shape (batch, steps, features). {shapes}"
        )
    if None not in (value[1], key[1]) and value[1] != key[1]:
        raise ValueError(f"A memory needs as many keys as values. {shapes}")
    if len({shape[0] for shape in (query, value, key)} - {None}) > 1:
        raise ValueError(f"Query, value and key must have the same batch size. {shapes}")
    if None in (query[2], value[2], key[2]):
        raise ValueError(f"The last axis of query, value and key must be known. {shapes}")
    if layer.built:
        for name, shape in (("query", query), ("value", value), ("key", key)):
            check_features(layer, name, shape)


def check_features(layer, name, shape):
    """Raise a ValueError where an input is not as wide as the kernel that projects it."""
    expected = getattr(layer, f"{name}_kernel").shape[0]
    if shape[-1] != expected:
        raise ValueError(
            f"The layer was built for a {name} of {expected} features. "
            f"Received: {name} of shape {tuple(shape)}"
        )


def check_masks(layer, query, value, query_mask, value_mask, key_mask, attention_mask):
    """Raise a ValueError where a mask does not fit the sequences that it masks."""
    check_mask(query_mask, tuple(query.shape[:2]), "query_mask")
    check_mask(value_mask, tuple(value.shape[:2]), "value_mask")
    check_mask(key_mask, tuple(value.shape[:2]), "key_mask")
    if attention_mask is None:
        return
    steps = (query.shape[1], value.shape[1])
    shape = tuple(attention_mask.shape)
    full = (query.shape[0], layer.num_heads, *steps)
    expected = {2: full[2:], 3: (full[0], *full[2:]), 4: full}.get(len(shape))
    fits = expected is not None and all(
        given in (None, 1, size) or size is None
        for given, size in zip(shape, expected, strict=True)
    )
    dtype = backend.standardize_dtype(attention_mask.dtype)
    if not fits or backend.is_float_dtype(dtype):
        raise ValueError(
            "`attention_mask` must be boolean (True = attend) of shape (T, S), (B, T, S) or "
            f"(B, H, T, S), here {full}. Received: attention_mask of shape {shape} and dtype "
            f"{dtype}"
        )


def check_step_mask(mask, memory_shape, heads: int):
    """Raise a ValueError where a step's mask does not fit its memory `(B, G, S, d)`."""
    batch_size, _, length, _ = memory_shape
    by_head = len(mask.shape) == 3
    check_mask(
        mask, (batch_size, heads, length) if by_head else (batch_size, length), "attention_mask"
    )


def _check_positive(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value}")


def _check_positions(layer):
    if layer.positions not in POSITIONS:
        raise ValueError(
            f"`positions` must be one of {POSITIONS}. Received: positions={layer.positions!r}"
        )
    if layer.positions == "rotary" and layer.key_dim % 2:
        raise ValueError(
            "Rotary positions turn pairs of features: `key_dim` must be even. "
            f"Received: key_dim={layer.key_dim}"
        )
    if layer.max_wavelength <= 0:
        raise ValueError(
            f"`max_wavelength` must be positive. Received: max_wavelength={layer.max_wavelength}"
        )
    of_positions = {
        "rotary": {"max_wavelength": (layer.max_wavelength, 10000)},
        "relative": {
            "num_buckets": (layer.num_buckets, 32),
            "max_distance": (layer.max_distance, 128),
        },
    }
    for positions, options in of_positions.items():
        for name, (value, default) in options.items():
            if value != default and layer.positions != positions:
                raise ValueError(
                    f"`{name}` belongs to positions={positions!r} and would be ignored. "
                    f"Received: {name}={value}, positions={layer.positions!r}"
                )


def _check_window(layer):
    if layer.window is not None:
        _check_positive("window", layer.window)
    if not isinstance(layer.num_sinks, int) or layer.num_sinks < 0:
        raise ValueError(
            f"`num_sinks` must be 0 or a positive integer. Received: num_sinks={layer.num_sinks}"
        )
    if layer.num_sinks and layer.window is None:
        raise ValueError(
            "`num_sinks` keeps the first places in sight of a `window`; without one all are. "
            f"Received: num_sinks={layer.num_sinks}, window=None"
        )
