"""The compiled loop of every search, and what its body needs on each backend."""

from collections.abc import Callable

from keras import ops, tree


def run_loop(unfinished: Callable, advance: Callable, loop: dict) -> dict:
    """Run `advance` while `unfinished`: compiled on TensorFlow and JAX, in Python on PyTorch.

    Args:
        unfinished: Callable from the loop's variables to a boolean scalar.
        advance: Callable from the loop's variables to the next: same names, shapes and dtypes.
        loop: Nested dictionary of tensors.
    """

    def body(variables):
        # TensorFlow holds a loop to the static sizes it began with, which a gather at indices of
        # unknown size loses. Reshaping states them again, and costs nothing.
        return (tree.map_structure(_with_shape_of, advance(variables), variables),)

    (loop,) = ops.while_loop(unfinished, body, (loop,))
    return loop


def _with_shape_of(x, like):
    return ops.reshape(x, ops.shape(like))


def history_buffer(weights, length):
    """Return a buffer `(L, R, S)` for what each step leaves of the shape `(R, S)`.

    Steps come first: each writes one block, and no hypothesis' past is moved when beams are.
    """
    return ops.zeros((length, *ops.shape(weights)), dtype=weights.dtype)


def write_step(buffer, index, weights):
    """Write one step's block into a `history_buffer`."""
    # One scattered block: `slice_update` is far slower on PyTorch, and no faster elsewhere.
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), weights[None])


def write_column(tokens, index, column):
    """Return `tokens (..., L)` with `column (...)` at place `index`."""
    here = ops.arange(ops.shape(tokens)[-1], dtype="int32") == index
    return ops.where(here, ops.expand_dims(column, -1), tokens)


def normalize(logits, normalizer):
    """Return log-probabilities; `-inf` also where a whole row, and so its normalizer, is `-inf`."""
    return ops.where(ops.isinf(logits), float("-inf"), logits - normalizer)


def pick(x, places):
    """Return `(R,)`: of each row of `(R, n)` the element at `places (R,)`."""
    rows, size = ops.shape(x)
    cells = ops.arange(rows, dtype="int32") * size + places
    return ops.take(ops.reshape(x, (-1,)), cells, axis=0)
