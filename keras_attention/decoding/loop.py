"""The compiled loop of every search, and what its body needs on each backend."""

import functools
import operator
from collections.abc import Callable, Mapping

import keras
from keras import ops, tree

from keras_attention.decoding.departures import Departures, known_when_run


def run_loop(
    unfinished: Callable,
    advance: Callable,
    loop: dict,
    fixed: dict,
    results: Callable,
    rooms: "Rooms",
    departures: Departures | None = None,
) -> dict:
    """Run `advance` while `unfinished`: compiled on TensorFlow and JAX, in Python on PyTorch.

    Sizes change between stretches of the loop only: rooms are made when they are full, and what is
    finished leaves when there is much of it. The steps of a stretch need not ask, and write to
    tensors that nothing else holds. On JAX, whose loops have fixed sizes, it is one stretch.

    Args:
        unfinished: Callable from the loop's variables to a boolean scalar.
        advance: Callable from the loop's variables, and what is fixed, to the next: same names,
            shapes and dtypes.
        loop: Nested dictionary of tensors, the loop's variables.
        fixed: Nested dictionary of tensors, what no step changes.
        results: Callable from the loop's variables and what is fixed to a dictionary of tensors.
        rooms: The `Rooms` of `loop["state"]`.
        departures: The `Departures`, or `None` where what is finished stays.

    Returns:
        The results of all, after the last step.
    """
    if keras.backend.backend() == "jax":
        departures = None
        if rooms:
            loop, rooms = {**loop, "state": rooms.whole(loop["state"])}, None
    if not rooms and not departures:
        return results(_stretch(unfinished, advance, loop, fixed), fixed)

    def stretch(loop, fixed):
        if rooms:
            loop = {**loop, "state": rooms.grown(loop["state"], loop["index"])}

        def goes_on(variables):
            is_on = unfinished(variables)
            if departures:
                is_on = is_on & ~departures.are_due(variables)
            return is_on & rooms.fits(loop["state"], variables["index"]) if rooms else is_on

        loop = _stretch(goes_on, advance, loop, fixed)
        return departures.made(loop, fixed, results) if departures else (loop, fixed)

    if departures:
        loop, fixed = departures.first(loop, fixed, results)
    if rooms:
        # What comes of a branch has no static size on the axes that grow, and so none in the loop.
        index = known_when_run(loop["index"])
        loop = {**loop, "state": rooms.grown(loop["state"], index)}
    loop, fixed = ops.while_loop(lambda loop, fixed: unfinished(loop), stretch, (loop, fixed))
    return fixed["results"] if departures else results(loop, fixed)


def _stretch(goes_on, advance, loop, fixed):
    def body(variables):
        # TensorFlow holds a loop to the static sizes it began with, which a gather at indices of
        # unknown size loses. Reshaping states them again, and costs nothing.
        return (tree.map_structure(_with_shape_of, advance(variables, fixed), variables),)

    (loop,) = ops.while_loop(goes_on, body, (loop,))
    return loop


class Rooms:
    """The places for steps in a search's state, of which there are few at first.

    A cache with a place for every step that there may be is mostly empty, and yet read, and moved
    with the beams, at each step. Here it begins with the places that the caller gave it, and twice
    as many are made whenever they are full; all at once on JAX, whose loops have fixed sizes.

    Args:
        axes: For names of entries of the state, the axis of their tensors that steps write to.
        longest: Most steps.
    """

    def __init__(self, axes: Mapping[str, int], longest):
        self.axes = dict(axes)
        self.longest = longest

    def __bool__(self):
        return bool(self.axes)

    def grown(self, state: dict, index) -> dict:
        """Return the state with a place for step `index`."""
        return {
            key: self._grown(key, part, index) if key in self.axes else part
            for key, part in state.items()
        }

    def _grown(self, key, part, index):
        axis = self.axes[key]
        room = _places(part, axis)

        def double():
            return self._widened(part, axis, room)

        return ops.cond(index >= room, double, lambda: part)

    def fits(self, state: dict, index):
        """Whether the state has a place for step `index`."""
        return functools.reduce(
            operator.and_, (index < _places(state[key], axis) for key, axis in self.axes.items())
        )

    def whole(self, state: dict) -> dict:
        """Return the state with a place for every step."""
        state = dict(state)
        for key, axis in self.axes.items():
            missing = max(0, self.longest - _places(state[key], axis))
            state[key] = self._widened(state[key], axis, missing)
        return state

    def _widened(self, part, axis, places):
        def widened(x):
            return ops.pad(x, [[0, places if i == axis else 0] for i in range(len(x.shape))])

        return tree.map_structure(widened, part)


def _places(part, axis):
    return ops.shape(tree.flatten(part)[0])[axis]


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
