"""Checks of the arguments that all searches share."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops


def check_integer(name: str, value, minimum: int) -> None:
    """Raise a ValueError unless `value` is an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise ValueError(
            f"`{name}` should be an integer of at least {minimum}. Received: {value!r}"
        )


class LengthLimits(NamedTuple):
    """Most tokens a hypothesis may have: `longest` sizes the buffers, `each` is `(B,)`."""

    longest: Any
    each: Any


def length_limits(
    max_length, min_length: int, batch_size, longest: int | None = None
) -> LengthLimits:
    """Return the limits as an `(B,)` tensor, and the largest: an int wherever its value is known.

    Raises:
        ValueError: where a limit is below 1 or below the minimum length, is not one integer for
            each sentence, or is a traced tensor on JAX, whose buffers need a known size, and
            `longest` is not given or below 1 or the minimum length.
    """
    check_integer("min_length", min_length, 0)
    if longest is not None:
        check_integer("longest", longest, max(1, min_length))
    known = _value(max_length)
    if known is None:
        each = ops.cast(max_length, "int32")
        each = each if longest is None else ops.minimum(each, longest)
        longest = _traced_longest(each, longest)
    else:
        _check_known_limits(known, min_length, batch_size)
        known = known if longest is None else np.minimum(known, longest)
        each, longest = ops.convert_to_tensor(known, dtype="int32"), int(known.max(initial=1))
    return LengthLimits(longest, ops.broadcast_to(each, (batch_size,)))


def _check_known_limits(limits: np.ndarray, min_length: int, batch_size) -> None:
    if not np.issubdtype(limits.dtype, np.integer) or (limits < 1).any():
        raise ValueError(
            "`max_length` should be an integer of at least 1, or one for each sentence. "
            f"Received: {limits.tolist()!r}"
        )
    if limits.size and limits.max() < min_length:
        raise ValueError(
            "`max_length` should be at least `min_length`. "
            f"Received: max_length={limits.tolist()!r}, min_length={min_length}"
        )
    fits = limits.ndim == 0 or (limits.ndim == 1 and len(limits) == batch_size)
    if isinstance(batch_size, int) and not fits:
        raise ValueError(
            f"`max_length` should have one entry for each of the {batch_size} sentences. "
            f"Received: shape {limits.shape}"
        )


def _traced_longest(each, longest):
    """Return the size of the buffers, where the limits of the sentences are traced."""
    if keras.backend.backend() == "tensorflow":
        return ops.max(each)
    if longest is None:
        raise ValueError(
            "`max_length` sets the size of the buffers, which has to be known when the search is "
            "traced: give an integer or a NumPy array, or `longest`, an integer, beside it. "
            "Received: a traced tensor."
        )
    return longest


def _value(limits) -> np.ndarray | None:
    """Return the limits as an array, or None where a graph is traced and they have no value yet."""
    if not ops.is_tensor(limits):
        return np.asarray(limits)
    try:
        return ops.convert_to_numpy(limits)
    except (AttributeError, NotImplementedError, TypeError):
        return None
