"""The ways to give inputs and masks to multi-head attention, and the checks of what is given."""

import keras
from keras import ops

from keras_attention.ops.axes import Axes
from keras_attention.ops.masks import check_mask


def in_three(query, value, key, of_shapes=False):
    """Return query, value and key of a call, or their shapes, whichever way they were given."""
    nested = isinstance(query, (list, tuple))
    if nested and (not of_shapes or isinstance(query[0], (list, tuple))):
        if value is not None or key is not None or not 1 <= len(query) <= 3:
            raise ValueError(
                "A list of inputs is [query, value] or [query, value, key], with no `value` or "
                f"`key` beside it. Received: a list of {len(query)}"
            )
        query, value, key = (*query, None, None)[:3]
    if value is None and key is not None:
        raise ValueError("A `key` needs its `value`. Received: a key, and value=None")
    value = query if value is None else value
    key = value if key is None else key
    return tuple(tuple(x) if of_shapes else x for x in (query, value, key))


def masks_of(mask, query, value, query_mask, value_mask):
    """Return the masks of queries and values, out of all ways to give them."""
    nested = isinstance(query, (list, tuple))
    of_query = []
    for given in (query_mask, mask):  # Keras hands over the masks of a list as a list
        first, *others = given if isinstance(given, (list, tuple)) else [given]
        of_query.append(first)
        value_mask = others[0] if others and value_mask is None else value_mask
    query_mask = of_query[1] if of_query[0] is None else of_query[0]
    alone = value is None and (not nested or len(query) == 1)
    return query_mask, query_mask if alone and value_mask is None else value_mask


def rank_4(mask):
    """Give an attention mask `(T, S)`, `(B, T, S)` or `(B, H, T, S)` four axes."""
    if mask is None or len(mask.shape) == 4:
        return mask
    return ops.expand_dims(mask, (0, 1) if len(mask.shape) == 2 else 1)


def axes_of(shape, attention_axes) -> Axes:
    """Return the axes that attend in inputs of a shape."""
    rank = len(shape)
    given = range(1, rank - 1) if attention_axes is None else attention_axes
    attended = tuple(sorted(axis + rank if axis < 0 else axis for axis in given))
    if rank < 3 or not attended or not all(0 < axis < rank - 1 for axis in attended):
        raise ValueError(
            "Query, value and key must have the shape (batch, steps, features), or several "
            "axes of steps, of which `attention_axes` name some. Received: inputs of shape "
            f"{tuple(shape)}, attention_axes={attention_axes}"
        )
    return Axes(rank, attended)


def differ(first, second) -> bool:
    """Whether two shapes cannot be one; an open size fits any."""
    return len(first) != len(second) or any(
        None not in pair and pair[0] != pair[1] for pair in zip(first, second, strict=True)
    )


def check_shapes(layer, query, value, key):
    """Raise a ValueError where the inputs fit neither each other nor the layer."""
    shapes = f"Received: query {tuple(query)}, value {tuple(value)}, key {tuple(key)}"
    axes = axes_of(query, layer.attention_axes)
    if not len(query) == len(value) == len(key):
        raise ValueError(f"Query, value and key must have as many axes. {shapes}")
    if differ(value[1:-1], key[1:-1]):
        raise ValueError(f"A memory needs as many keys as values. {shapes}")
    batches = [axes.sizes(shape)[0] for shape in (query, value, key)]
    if any(differ(a, b) for a, b in ((batches[0], batches[1]), batches[::2], batches[1:])):
        raise ValueError(f"Query, value and key must have the same batch size. {shapes}")
    if None in (query[-1], value[-1], key[-1]):
        raise ValueError(f"The last axis of query, value and key must be known. {shapes}")
    if layer.built:
        if axes != layer.axes:
            raise ValueError(f"The layer was built for {layer.axes.rank} axes. {shapes}")
        for name, shape in (("query", query), ("value", value), ("key", key)):
            layer.check_features(name, shape)


def check_call(layer, query, value, key, query_mask, value_mask, key_mask, attention_mask):
    """Raise a ValueError where inputs or masks do not fit."""
    check_shapes(layer, query.shape, value.shape, key.shape)
    check_mask(query_mask, tuple(query.shape[:-1]), "query_mask")
    check_mask(value_mask, tuple(value.shape[:-1]), "value_mask")
    check_mask(key_mask, tuple(value.shape[:-1]), "key_mask")
    if attention_mask is None:
        return
    axes = axes_of(query.shape, layer.attention_axes)
    full = axes.pairs_shape(query.shape, value.shape, layer.num_heads)
    pairs = 2 * len(axes.attended)
    shape, batch = tuple(getattr(attention_mask, "shape", ())), full[: -pairs - 1]
    leading = {pairs: (), pairs + 1: full[:1], pairs + len(batch): batch}
    leading[len(full)] = (*batch, layer.num_heads)
    expected = (*leading.get(len(shape), ()), *full[-pairs:])
    # One entry along an axis serves all of it.
    shown = tuple(e if s == 1 else s for s, e in zip(shape, expected, strict=False))
    shown = shown if len(shape) == len(expected) else shape
    has_dtype = hasattr(attention_mask, "dtype")
    dtype = keras.backend.standardize_dtype(attention_mask.dtype) if has_dtype else attention_mask
    if differ(shown, expected) or not ("bool" in str(dtype) or "int" in str(dtype)):
        raise ValueError(
            "`attention_mask` must be boolean (True = attend) of shape (T, S), (B, T, S) or "
            f"(B, H, T, S), here {full}. Received: attention_mask of shape {shape} and dtype "
            f"{dtype}"
        )
