"""The weights of monotonic attention (Raffel et al. 2017), exact and parallel along the memory."""

from keras import ops

from .shapes import size_of
from .types import Tensor, at_least_float32
from .vjp import custom_gradient


def monotonic_weights(
    scores: Tensor, before: Tensor, mask: Tensor = None, hard: bool = False
) -> Tensor:
    """The probability that a query stops at each position, in at least float32.

    The query goes on from where the one before it stopped, and stops at a position with the
    probability `p_s = sigmoid(e_s)`; with `hard` at the first with `p_s > 1/2`:

    `a_s = p_s q_s`, `q_s = (1 - p_(s-1)) q_(s-1) + a'_s`

    This is the paper's equation 10 without its quotient, so that it is exact where `p_s` is 0 or 1.
    The weights sum to less than 1 where the query may stop nowhere.

    Args:
        scores: Scores `e` `(..., S)`.
        before: The weights `a'` of the query before; of the first query 1 at position 0, else 0.
        mask: Boolean, broadcasts to the scores; a query passes the positions where it is False.
        hard: Whether probabilities are rounded to 0 and 1.
    """
    scores = at_least_float32(scores)
    if hard:
        stop = ops.relu(ops.sign(scores))  # 1 or 0, with a gradient of zeros
        go = 1 - stop
    else:
        stop, go = ops.sigmoid(scores), ops.sigmoid(-scores)
    if mask is not None:
        stop, go = ops.where(mask, stop, 0.0), ops.where(mask, go, 1.0)
    reached = linear_recurrence(_shifted(go, 1), ops.cast(before, scores.dtype))
    return stop * reached


def linear_recurrence(decay: Tensor, inputs: Tensor) -> Tensor:
    """`y_s = decay_s y_(s-1) + inputs_s` along the last axis, `y_(-1) = 0`.

    It takes `log2(S)` products of whole tensors. No number is divided, and decays in [0, 1] only
    shrink, so that rounding errors do not grow with the length.
    """
    if isinstance(decay.shape[-1], int):
        return _doubled(decay, inputs)

    def run(decay: Tensor, inputs: Tensor) -> tuple:
        return _doubled_in_loop(decay, inputs), gradient

    def gradient(tensors: list, upstream: Tensor) -> list:
        # TensorFlow cannot differentiate a loop in the gradient of another one.
        decay, inputs = tensors
        later = ops.flip(_shifted(ops.flip(decay, axis=-1), 1), axis=-1)
        d_inputs = linear_recurrence(ops.flip(later, axis=-1), ops.flip(upstream, axis=-1))
        d_inputs = ops.flip(d_inputs, axis=-1)
        return [d_inputs * _shifted(linear_recurrence(decay, inputs), 1), d_inputs]

    return custom_gradient(run, [decay, inputs])


def _doubled(decay: Tensor, inputs: Tensor) -> Tensor:
    """Join each position with that 1, 2, 4, ... before it (Hillis and Steele 1986)."""
    distance = 1
    while distance < decay.shape[-1]:
        inputs = inputs + decay * _shifted(inputs, distance)
        decay = decay * _shifted(decay, distance)
        distance *= 2
    return inputs


def _doubled_in_loop(decay: Tensor, inputs: Tensor) -> Tensor:
    """Compute what `_doubled` does, where only the graph knows the length."""
    length = size_of(decay, -1)
    positions = ops.arange(length, dtype="int32")

    def shifted(tensor: Tensor, distance: Tensor) -> Tensor:
        index = ops.maximum(positions - distance, 0)
        return ops.where(positions >= distance, ops.take(tensor, index, axis=-1), 0.0)

    def join(distance: Tensor, decay: Tensor, inputs: Tensor) -> tuple:
        inputs = inputs + decay * shifted(inputs, distance)
        return 2 * distance, decay * shifted(decay, distance), inputs

    # With a limit, XLA can compile the second derivative for open lengths.
    variables = (1, decay, inputs)
    _, _, joined = ops.while_loop(
        lambda distance, *_: distance < length, join, variables, maximum_iterations=31
    )
    return joined


def _shifted(tensor: Tensor, distance: int) -> Tensor:
    """Move a tensor to later positions; zeros enter."""
    zeros = ops.zeros_like(tensor[..., :distance])
    return ops.concatenate([zeros, tensor[..., :-distance]], axis=-1)
