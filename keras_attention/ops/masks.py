"""Boolean masks. True means: attend. No other convention appears in the package."""

from keras import ops


def combine_masks(*masks):
    """Return the logical and of the masks that are given, broadcast together.

    Args:
        *masks: Boolean tensors that broadcast together, or `None`.

    Returns:
        A boolean tensor, or `None` where every mask is `None`.

    Example:

    >>> combine_masks(None, np.array([True, False]), np.array([True, True]))
    array([ True, False])
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        mask = ops.cast(mask, "bool")
        combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def attention_mask(query_mask=None, value_mask=None):
    """Join a mask over queries and a mask over memory to one over their pairs.

    A query that is itself padding attends to nothing: its row is all False.

    Args:
        query_mask: Boolean `(B, T)`, or `None`.
        value_mask: Boolean `(B, S)`, or `None`.

    Returns:
        Boolean tensor that broadcasts to `(B, T, S)`, or `None` where both are `None`.
    """
    return combine_masks(
        None if query_mask is None else ops.expand_dims(query_mask, 2),
        None if value_mask is None else ops.expand_dims(value_mask, 1),
    )


def zero_masked(tensor, mask=None):
    """Set the masked positions of `(B, S, D)` to zero, whatever they hold.

    Zero weights do not suffice: 0 times a NaN or an infinity is a NaN, and so is its gradient.

    Args:
        tensor: `(B, S, ...)`.
        mask: Boolean `(B, S)`, True = attend, or `None`.
    """
    if mask is None:
        return tensor
    mask = ops.cast(mask, "bool")
    mask = ops.reshape(mask, (*ops.shape(mask), *(1,) * (len(tensor.shape) - 2)))
    return ops.where(mask, tensor, ops.zeros_like(tensor))


def lengths(mask, value=None):
    """Return the number of real positions of every row, as float32 of shape `(B,)`.

    Args:
        mask: Boolean `(B, S)`, or `None` where every position of `value` is real.
        value: `(B, S, ...)`, asked for its shape where there is no mask.
    """
    if mask is not None:
        return ops.sum(ops.cast(mask, "float32"), axis=1)
    batch_size, length = ops.shape(value)[0], ops.shape(value)[1]
    return ops.ones((batch_size,), "float32") * ops.cast(length, "float32")


def check_mask(mask, expected, name: str):
    """Raise a ValueError where a mask does not fit the sequence that it masks.

    Args:
        mask: The mask, or `None`.
        expected: The shape that it must have; `None` fits any size.
        name: The argument's name, for the message.
    """
    if mask is None:
        return
    if not hasattr(mask, "shape") or not hasattr(mask, "dtype"):
        raise ValueError(
            f"`{name}` must be a boolean array or tensor (True = attend) of shape "
            f"{tuple(expected)}. Received: {name}={mask!r}"
        )
    shape = tuple(mask.shape)
    fits = len(shape) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(shape, expected, strict=True)
    )
    dtype = str(mask.dtype)
    # A mask of 0 and -1e9, cast to boolean, would hide what it shows: no floating point masks.
    if not fits or not ("bool" in dtype or "int" in dtype):
        raise ValueError(
            f"`{name}` must be boolean (True = attend) of shape {tuple(expected)}, one entry "
            f"for each position. Received: {name} of shape {shape} and dtype {dtype}"
        )
