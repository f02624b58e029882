"""Score and mask functions of multi-head attention: its `score_mod` and `mask_mod`.

A `score_mod(score, batch, head, query, key)` returns another score, and a `mask_mod(batch, head,
query, key)` a boolean, True = attend. They take a whole block of pairs: `score` is `(B, H, rows,
columns)` in float32 (float64 under that policy). The others are int32 indices: `batch` `(B, 1, 1,
1)`, `head` `(1, H, 1, 1)`, `query` `(1, 1, rows, 1)` and `key` `(1, 1, 1, columns)`. The result
broadcasts to the shape of the block.

The interface is that of PyTorch's FlexAttention (Dong et al. 2024). All functions here can be saved
with a layer.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from .ops.positions import alibi_slopes
from .ops.types import Tensor, check_integer, check_number

__all__ = [
    "alibi",
    "all_of",
    "any_of",
    "causal",
    "document",
    "look_up",
    "prefix",
    "sinks",
    "sliding_window",
    "softcap",
]

register = keras.saving.register_keras_serializable("keras_attention")


@register
class Partial:
    """A function with its first arguments, as `functools.partial`, that Keras can save."""

    def __init__(self, function: Callable, *args: Any) -> None:
        self.function = function
        self.args = args

    def __call__(self, *given: Tensor) -> Tensor:
        return self.function(*self.args, *given)

    def get_config(self) -> dict:
        """Return the function and its arguments, serialized."""
        parts = {"function": self.function, "args": list(self.args)}
        return {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}

    @classmethod
    def from_config(cls, config: dict) -> "Partial":
        """Return the function with its arguments."""
        function, args = (
            keras.saving.deserialize_keras_object(config[name]) for name in ("function", "args")
        )
        return cls(function, *args)


@register
def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Mask function: a query attends to its own position and those before, `s <= t`.

    Args:
        batch: Index of the example.
        head: Index of the head.
        query: Position `t` of the query.
        key: Position `s` of the key.

    Returns:
        Boolean, True = attend.

    Reference:
        Vaswani et al. 2017, "Attention is all you need", section 3.2.3.

    Example:

    >>> from keras_attention.mods import causal
    >>> position = ops.arange(3)
    >>> ops.convert_to_numpy(causal(0, 0, position[:, None], position)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return key <= query


def sliding_window(size: int) -> Callable:
    """Mask function: a query attends to the positions less than `size` away, `|t - s| < size`.

    Args:
        size: Size of the window on each side, the query's own position included.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If `size` is not a positive integer.

    Reference:
        Beltagy et al. 2020, "Longformer", section 3.1.

    Example:

    >>> from keras_attention.mods import sliding_window
    >>> position = ops.arange(4)
    >>> shown = sliding_window(2)(0, 0, position[:, None], position)
    >>> ops.convert_to_numpy(shown).astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    return Partial(_near, check_integer("size", size))


@register
def _near(size: int, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ops.abs(query - key) < size


def sinks(count: int) -> Callable:
    """Mask function: all queries attend to the first `count` keys, `s < count`.

    `any_of(sliding_window(size), sinks(count))` is a window with attention sinks.

    Args:
        count: Number of keys.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If `count` is not a positive integer.

    Reference:
        Xiao et al. 2024, "Efficient streaming language models with attention sinks", section 3.

    Example:

    >>> from keras_attention.mods import all_of, any_of, causal, sinks, sliding_window
    >>> position = ops.arange(5)
    >>> mask = all_of(causal, any_of(sliding_window(2), sinks(1)))
    >>> shown = mask(0, 0, position[:, None], position)
    >>> ops.convert_to_numpy(shown).astype(int)[-1].tolist()
    [1, 0, 0, 1, 1]
    """
    return Partial(_first, check_integer("count", count))


@register
def _first(count: int, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key < count


def prefix(length: int | Tensor) -> Callable:
    """Mask function of a prefix language model: causal, and all queries attend to the prefix.

    `s <= t or s < length`

    Args:
        length: Length of the prefix: an integer, or integers `(B,)`, one for each example.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If `length` is neither a positive integer nor a vector.

    Reference:
        Raffel et al. 2020, "Exploring the limits of transfer learning", section 3.2.1, figure 3.

    Example:

    >>> from keras_attention.mods import prefix
    >>> position = ops.arange(4)
    >>> shown = prefix(2)(0, 0, position[:, None], position)
    >>> ops.convert_to_numpy(shown).astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    """
    shape = getattr(length, "shape", None)
    if isinstance(length, (list, tuple)) or (shape is not None and len(shape) == 1):
        return Partial(_prefixes, length)
    return any_of(causal, sinks(check_integer("length", length)))


@register
def _prefixes(lengths: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ops.logical_or(key <= query, ops.less(key, look_up(lengths, batch)))


def document(query_ids: Tensor, key_ids: Tensor = None) -> Callable:
    """Mask function of packed texts: a query attends to the keys of its own document.

    `d_t = d_s`, where `d` are the numbers of the documents.

    Args:
        query_ids: The document of each query, integers `(B, T)`.
        key_ids: The document of each key, integers `(B, S)`. Default: `query_ids`.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If the numbers do not have two axes.

    Reference:
        Krell et al. 2021, "Efficient sequence packing without cross-contamination", section 3.2.

    Example:

    ```python
    import numpy as np
    from keras_attention import MultiHeadAttention
    from keras_attention.mods import all_of, causal, document

    packed = np.array([[0, 0, 0, 1, 1, 2]])  # three texts in one row
    layer = MultiHeadAttention(num_heads=2, key_dim=4)
    _, scores = layer(
        np.random.normal(size=(1, 6, 8)),
        mask_mod=all_of(causal, document(packed)),
        return_attention_scores=True,
    )
    assert not np.any(np.asarray(scores)[0, :, 3:, :3])  # no text attends to another
    ```
    """
    key_ids = query_ids if key_ids is None else key_ids
    for name, ids in (("query_ids", query_ids), ("key_ids", key_ids)):
        shape = tuple(ops.convert_to_tensor(ids).shape)
        if len(shape) != 2:
            raise ValueError(
                f"`{name}` must hold the number of a document for each position, (batch, steps). "
                f"Received: {name} of shape {shape}"
            )
    return Partial(_same, query_ids, key_ids)


@register
def _same(
    query_ids: Tensor, key_ids: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    return ops.equal(look_up(query_ids, batch, query), look_up(key_ids, batch, key))


def all_of(*masks: Callable) -> Callable:
    """Mask function: the logical and of mask functions.

    Args:
        *masks: Mask functions.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If there is no mask function.

    Example:

    >>> from keras_attention.mods import all_of, causal, sliding_window
    >>> bool(all_of(causal, sliding_window(2))(0, 0, 5, 3))
    False
    """
    return Partial(_all, _given(masks))


@register
def _all(masks: Sequence[Callable], *given: Tensor) -> Tensor:
    return functools.reduce(ops.logical_and, [mask(*given) for mask in masks])


def any_of(*masks: Callable) -> Callable:
    """Mask function: the logical or of mask functions.

    Args:
        *masks: Mask functions.

    Returns:
        A `mask_mod`.

    Raises:
        ValueError: If there is no mask function.

    Example:

    >>> from keras_attention.mods import any_of, causal, sinks
    >>> bool(any_of(causal, sinks(4))(0, 0, 1, 3))
    True
    """
    return Partial(_any, _given(masks))


@register
def _any(masks: Sequence[Callable], *given: Tensor) -> Tensor:
    return functools.reduce(ops.logical_or, [mask(*given) for mask in masks])


def alibi(num_heads: int) -> Callable:
    """Score function: each head subtracts its slope times the distance, `e_ts - m_h |t - s|`.

    For `H` heads, a power of two, the slopes are `m_h = 2^(-8h/H)`, `h` from 1.

    Args:
        num_heads: Number of heads `H`.

    Returns:
        A `score_mod`.

    Raises:
        ValueError: If `num_heads` is not a positive integer.

    Reference:
        Press et al. 2022, "Train short, test long", section 3.

    Example:

    >>> from keras_attention.mods import alibi
    >>> head = ops.arange(2)
    >>> scores = alibi(2)(ops.zeros((2,)), 0, head, 5, 3)
    >>> ops.convert_to_numpy(scores).tolist()
    [-0.125, -0.0078125]
    """
    return Partial(_less_by_distance, check_integer("num_heads", num_heads))


@register
def _less_by_distance(
    num_heads: int, score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    dtype = keras.backend.standardize_dtype(score.dtype)
    slopes = look_up(alibi_slopes(num_heads, dtype), head)
    return score - slopes * ops.cast(ops.abs(query - key), score.dtype)


def softcap(cap: float) -> Callable:
    """Score function: bounds the scores smoothly to `(-cap, cap)`, `cap tanh(e_ts / cap)`.

    Args:
        cap: The bound; Gemma 2 uses 50.

    Returns:
        A `score_mod`.

    Raises:
        ValueError: If `cap` is not a positive number.

    Reference:
        Gemma Team 2024, "Gemma 2", section 2, after Bello et al. 2017.

    Example:

    >>> from keras_attention.mods import softcap
    >>> [round(float(softcap(2.0)(ops.convert_to_tensor(e), 0, 0, 0, 0)), 3) for e in (0.1, 9.0)]
    [0.1, 2.0]
    """
    return Partial(_capped, float(check_number("cap", cap, above=True)))


@register
def _capped(
    cap: float, score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    return cap * ops.tanh(score / cap)


def look_up(table: Tensor, *indices: Tensor) -> Tensor:
    """Return the entries of a table at indices, one tensor for each axis: `table[i, j]`.

    Args:
        table: Tensor or array.
        *indices: Integers that broadcast together. One outside of the table takes the nearest
            entry, and 0 where the table is empty.

    Returns:
        Tensor of the broadcast shape of the indices.

    Example:

    >>> from keras_attention.mods import look_up
    >>> table = ops.reshape(ops.arange(6), (2, 3))
    >>> ops.convert_to_numpy(look_up(table, ops.arange(2), ops.array([2, 7]))).tolist()
    [2, 5]
    """
    table = ops.convert_to_tensor(table)
    flat = 0
    for size, index in zip(ops.shape(table), indices, strict=True):
        flat = flat * size + ops.clip(index, 0, size - 1)
    if 0 in table.shape:  # backends differ in what they read of nothing
        return ops.zeros_like(flat, dtype=table.dtype)
    return ops.take(ops.reshape(table, (-1,)), flat)


def _given(masks: Sequence[Callable]) -> list:
    if not masks:
        raise ValueError("At least one mask function is expected. Received: none")
    return list(masks)
