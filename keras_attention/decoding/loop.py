"""The compiled loop of every search: its stretches, its buffers, its result."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attention.decoding.problem import Problem

# The batch shrinks when at most this part of it is still open: a step that is shorter by less
# would not pay for moving all that the loop carries.
OPEN, OF = 3, 4


class DecodingResult(NamedTuple):
    """Hypotheses of a search, best first.

    `B` sentences, `N` hypotheses of each, `L` the longest length allowed, `S` memory steps.

    A hypothesis is complete when it ends with the end token, or when it has as many tokens as it
    may have (then it may lack the end token, and its probability is that of these tokens). Where
    fewer than `N` hypotheses exist, the missing ones come last with score and log-probability
    `-inf`, length 0 and nothing but padding.

    Attributes:
        tokens: Integer tensor `(B, N, L)`: without the start token, the end token included, padding
            after it.
        lengths: Integer tensor `(B, N)`: the number of tokens, the end token counted.
        scores: Float32 tensor `(B, N)`: what the hypotheses are ranked by.
        log_probabilities: Float32 tensor `(B, N)`: the sum of the model's own log-probabilities of
            the tokens, whatever was blocked, cut off or divided by a penalty.
        attention: Tensor `(B, N, L, S)`: the attention weights of each token, zero after the last,
            or `None` where the search was not asked to keep them.
    """

    tokens: Any
    lengths: Any
    scores: Any
    log_probabilities: Any
    attention: Any = None


def run_loop(
    problem: Problem,
    unfinished: Callable,
    advance: Callable,
    loop: dict,
    fixed: dict,
    results: Callable,
    is_open: Callable,
    copies: int = 1,
) -> dict:
    """Run `advance` while `unfinished`: compiled on TensorFlow and JAX, in Python on PyTorch.

    Sizes change between stretches of the loop only: rooms are made when they are full, and what is
    finished leaves when there is much of it. The steps of a stretch need not ask, and write to
    tensors that nothing else holds. On JAX, whose loops have fixed sizes, it is one stretch.

    Args:
        problem: Tells which parts of the state grow, and whether the batch shrinks.
        unfinished: Callable from the loop's variables to a boolean scalar.
        advance: Callable from the loop's variables, and what is fixed, to the next: same names,
            shapes and dtypes.
        loop: Nested dictionary of tensors, the loop's variables.
        fixed: Nested dictionary of tensors, what no step changes.
        results: Callable from the loop's variables and what is fixed to a dictionary of tensors.
        is_open: Callable from the loop's variables to booleans, one for each of what leaves.
        copies: Integer, rows of the caller's state that leave together.

    Returns:
        The results of all, after the last step.
    """
    rooms = _Rooms(problem.growing_axes, problem.longest)
    departures = _Departures(is_open, copies) if problem.shrinks else None
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


class _Rooms:
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

        def part(key):
            room = self._room(state, key)
            return ops.cond(
                index >= room, lambda: self._widened(state, key, room), lambda: state[key]
            )

        return {**state, **{key: part(key) for key in self.axes}}

    def fits(self, state: dict, index):
        """Whether the state has a place for step `index`."""
        return ops.all(ops.stack([index < self._room(state, key) for key in self.axes]))

    def whole(self, state: dict) -> dict:
        """Return the state with a place for every step."""
        missing = {key: max(0, self.longest - self._room(state, key)) for key in self.axes}
        return {**state, **{key: self._widened(state, key, missing[key]) for key in self.axes}}

    def _room(self, state, key):
        return ops.shape(tree.flatten(state[key])[0])[self.axes[key]]

    def _widened(self, state, key, places):
        def widened(x):
            return ops.pad(
                x, [[0, places if axis == self.axes[key] else 0] for axis in range(len(x.shape))]
            )

        return tree.map_structure(widened, state[key])


class _Departures:
    """Shrinks what a loop carries to the hypotheses that are still open, between its stretches.

    The results of those that leave are written to their places among the results of all. Of the
    variables, `state`, `constants` and (on its second axis) `weights` have `copies` rows for each
    of what leaves as one, `index` and `results` have none, and all others have one.

    Args:
        is_open: Callable from the loop's variables to booleans, one for each of what leaves.
        copies: Integer, rows of the caller's state that leave together.
    """

    def __init__(self, is_open: Callable, copies: int = 1):
        self._is_open = is_open
        self._copies = copies

    def first(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and what is fixed, their numbers of rows unknown to a graph."""
        count = known_when_run(ops.shape(self._is_open(loop))[0])
        numbers = ops.arange(count, dtype="int32")
        fixed = {**fixed, "numbers": numbers}
        fixed["results"] = results(loop, fixed)
        return self._picked(loop, numbers), self._picked(fixed, numbers)

    def are_due(self, loop: dict):
        """Whether so many are finished that it pays to shrink the batch."""
        is_open = self._is_open(loop)
        return ops.sum(ops.cast(is_open, "int32")) * OF <= ops.shape(is_open)[0] * OPEN

    def made(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and what is fixed without what is finished, and its results noted.

        Those of what is still open are noted, too: as they are, if the loop ends here.
        """
        numbers = ops.expand_dims(fixed["numbers"], 1)
        noted = tree.map_structure(
            lambda every, some: ops.scatter_update(every, numbers, some),
            fixed["results"],
            results(loop, fixed),
        )
        (places,) = ops.nonzero(self._is_open(loop))
        places = ops.cast(places, "int32")
        return self._picked(loop, places), self._picked({**fixed, "results": noted}, places)

    def _picked(self, parts: dict, places) -> dict:
        rows = places[:, None] * self._copies + ops.arange(self._copies, dtype="int32")
        rows = ops.reshape(rows, (-1,))
        chosen = {"state": (rows, 0), "constants": (rows, 0), "weights": (rows, 1)}

        def picked(key, part):
            if key in ("index", "results"):
                return part
            numbers, axis = chosen.get(key, (places, 0))
            return tree.map_structure(lambda x: ops.take(x, numbers, axis=axis), part)

        return {key: picked(key, part) for key, part in parts.items()}


def known_when_run(number):
    """Return an integer out of a loop of no turns: TensorFlow's graphs hold it for unknown."""
    number = ops.convert_to_tensor(number, dtype="int32")
    (number,) = ops.while_loop(lambda i: i < 0, lambda i: (i + 1,), (number,))
    return number


def _with_shape_of(x, like):
    return ops.reshape(x, ops.shape(like))


def history_buffer(weights, length):
    """Return a buffer `(L, R, S)`: each step writes a block, and none moves when beams do."""
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
