"""Boolean masks, True = attend."""

import functools
from collections.abc import Callable
from typing import Any

from keras import backend, ops

from .shapes import can_be_one
from .types import Tensor, accumulator_dtype, at_least_float32

RAGGED = ("RaggedTensor", "RaggedTensorValue")


def combine_masks(*masks: Tensor) -> Tensor:
    """Return the logical and of masks, broadcast; `None` where all of them are `None`."""
    given = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, given) if given else None


def attention_mask(query_mask: Tensor = None, value_mask: Tensor = None) -> Tensor:
    """Join masks `(B, T)` and `(B, S)` to `(B, T, S)`; a masked query attends to no position."""
    return combine_masks(
        None if query_mask is None else ops.expand_dims(query_mask, 2),
        None if value_mask is None else ops.expand_dims(value_mask, 1),
    )


def zero_masked(tensor: Tensor, mask: Tensor = None) -> Tensor:
    """Set the masked positions of `(B, S, ...)` to zero, as 0 times NaN or infinity is NaN."""
    if mask is None:
        return tensor
    mask = ops.cast(mask, "bool")
    mask = ops.expand_dims(mask, tuple(range(len(mask.shape), len(tensor.shape))))
    return ops.where(mask, tensor, ops.zeros_like(tensor))


def lengths(mask: Tensor, value: Tensor = None) -> Tensor:
    """Return the number of real positions of each row, `(B,)`; all positions without a mask.

    Its dtype is that of sums over `value`, `(B, S, ...)`, or float32 without a `value`.
    """
    dtype = "float32" if value is None else accumulator_dtype(value.dtype)
    if mask is not None:
        return ops.sum(ops.cast(mask, dtype), axis=1)
    batch_size, length = ops.shape(value)[0], ops.shape(value)[1]
    return ops.ones((batch_size,), dtype) * ops.cast(length, dtype)


def last_real(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last real step up to each step, int32 `(B, T)`, and whether there is one."""
    real = ops.cast(mask, "bool")
    steps = ops.shape(real)[1]
    order = ops.arange(steps, dtype="int32")
    found = ops.sort(ops.where(real, order, steps), axis=1)  # the real steps come first
    count = ops.cumsum(ops.cast(real, "int32"), axis=1)
    return ops.take_along_axis(found, ops.maximum(count - 1, 0), axis=1), count > 0


def check_dense(given: Any, name: str = "inputs") -> None:
    """Raise a ValueError if a tensor, or one in a list or dictionary, is ragged.

    Reshaping would silently cut the rows of a ragged tensor to equal parts.
    """
    if isinstance(given, (list, tuple)):
        for part in given:
            check_dense(part, name)
    elif isinstance(given, dict):
        for key, part in given.items():
            check_dense(part, f"{name}[{key!r}]")
    elif type(given).__name__ in RAGGED or getattr(given, "ragged", False) is True:
        raise ValueError(
            f"`{name}` must be a dense tensor with a mask of its real steps: x.to_tensor() and "
            "tf.sequence_mask(x.row_lengths()) make both. "
            f"Received: {name}, a ragged tensor of shape {tuple(given.shape)}"
        )


def for_batch(mask: Tensor, tensor: Tensor) -> Tensor:
    """Broadcast a mask `(1, S)` to the batch of a tensor; return any other mask as it is."""
    if mask is None or mask.shape[0] != 1 or tensor.shape[0] == 1:
        return mask
    return ops.broadcast_to(mask, (ops.shape(tensor)[0], *ops.shape(mask)[1:]))


def check_mask(mask: Tensor, expected: tuple, name: str) -> None:
    """Raise a ValueError unless a mask has the `expected` shape, where `None` fits any size.

    A mask of batch 1 is allowed: `for_batch` broadcasts it.
    """
    if mask is None:
        return
    check_dense(mask, name)
    shape = tuple(getattr(mask, "shape", ()))
    if shape[:1] == (1,):
        expected = (1, *expected[1:])
    dtype = dtype_of(mask)
    # Cast to boolean, an additive mask of 0 and -1e9 would be inverted: no floating point masks.
    if not can_be_one(shape, expected) or not ("bool" in dtype or "int" in dtype):
        raise ValueError(
            f"`{name}` must be boolean (True = attend), an array or tensor of shape "
            f"{tuple(expected)}. Received: {name} of shape {shape} and dtype {dtype}"
        )


def dtype_of(mask: Tensor) -> str:
    """Return the dtype of an array or tensor, or the name of the type of another object."""
    has_dtype = hasattr(mask, "dtype")
    return backend.standardize_dtype(mask.dtype) if has_dtype else type(mask).__name__


def real_tokens(target: Tensor, ignore_index: int | None) -> Tensor:
    """Return which target ids differ from `ignore_index`; all of them if that is `None`."""
    if ignore_index is None:
        return ops.ones_like(target, dtype="bool")
    return ops.not_equal(target, ignore_index)


def token_weights(
    target: Tensor, ignore_index: int | None = 0, sample_weight: Tensor = None
) -> Tensor:
    """Return the weight of each token in a mean over padded sequences, 0 for padding.

    The losses of this package divide by the sum of these weights.

    Args:
        target: Integer token ids of shape `(...)`, commonly `(B, T)`; the result has this shape.
        ignore_index: The id of the padding, or `None` to count every position.
        sample_weight: Weights `(B,)`, `(B, 1)` or `(B, T)`. Default: 1.

    Returns:
        Weights in float32, or in float64 if the sample weights are tensors of that dtype.

    Raises:
        ValueError: If the sample weights have more axes than the target.

    Example:

    >>> weights = token_weights([[5, 7, 0], [6, 0, 0]], sample_weight=[1.0, 0.5])
    >>> ops.convert_to_numpy(weights).tolist()
    [[1.0, 1.0, 0.0], [0.5, 0.0, 0.0]]
    """
    check_dense(target, "target")
    check_dense(sample_weight, "sample_weight")
    target = ops.convert_to_tensor(target)
    real = real_tokens(target, ignore_index)
    if sample_weight is None:
        return ops.cast(real, "float32")
    weights = at_least_float32(ops.convert_to_tensor(sample_weight))
    if len(weights.shape) > len(target.shape):
        raise ValueError(
            "`sample_weight` must have a weight for each example or for each target token. "
            f"Received: sample_weight of shape {tuple(weights.shape)} for targets of shape "
            f"{tuple(target.shape)}."
        )
    while len(weights.shape) < len(target.shape):
        weights = ops.expand_dims(weights, axis=-1)
    return ops.where(real, weights, ops.zeros_like(weights))


def token_values(
    target: Tensor,
    scores: Tensor,
    ignore_index: int | None,
    of_token: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return `of_token(ids (...), scores (..., V))` for each token, 0 for padding.

    `of_token` gets scores in at least float32.
    """
    check_dense(target, "target")
    check_dense(scores, "scores")
    scores = at_least_float32(ops.convert_to_tensor(scores))
    target = ops.cast(ops.convert_to_tensor(target), "int32")
    check_token_shapes(target, scores)
    real = real_tokens(target, ignore_index)
    # An ignored id may lie outside of the vocabulary, so that it must not reach a gather.
    values = of_token(ops.where(real, target, ops.zeros_like(target)), scores)
    # Padding may hold infinities, and 0 times infinity is NaN.
    return ops.where(real, values, ops.zeros_like(values))


def check_token_shapes(target: Tensor, logits: Tensor, name: str = "logits") -> None:
    """Raise a ValueError unless `logits`, `(..., V)`, belong to target ids `(...)`."""
    expected, received = tuple(logits.shape[:-1]), tuple(target.shape)
    if not can_be_one(expected, received):
        raise ValueError(
            f"The {name} must have the shape of the target ids and one last axis more. "
            f"Received: target of shape {received} and {name} of shape {tuple(logits.shape)}."
        )
