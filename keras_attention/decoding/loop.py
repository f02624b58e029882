"""What all searches share: their result, the compiled loop, its buffers, the k largest of a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from ..ops.axes import reshaped, size_of, sizes_from
from ..ops.masks import sized_as
from ..ops.types import Tensor
from .problem import NEVER, Problem

# The batch shrinks when at most this part of it is open: moving what the loop carries costs too.
OPEN, OF = 3, 4
# Words in a chunk of `chunked_top_k`: measured with 8,000 and 32,000 words, its passes cost alike.
CHUNK = 32
# Steps that a cache gets room for when it is full: each step copies and reads the empty places too.
MORE_STEPS = 8


class DecodingResult(NamedTuple):
    """Hypotheses of a search, best first.

    `B` sentences, `N` hypotheses of each, `L` the longest length allowed, `S` memory steps.

    A hypothesis is complete when it ends with the end token, or has as many tokens as it may have.
    Where fewer than `N` exist, padding of length 0 and score `-inf` stands in the last places.

    Attributes:
        tokens: Integer tensor `(B, N, L)`: without the start token, the end token included, padding
            after it.
        lengths: Integer tensor `(B, N)`: the number of tokens, the end token counted.
        scores: Float32 tensor `(B, N)`: what the hypotheses are ranked by (of samples: see
            `sample`); NaN where all logits were NaN, and where a search would have gone on, but its
            `room` was too small.
        log_probabilities: Float32 tensor `(B, N)`: the sum of the model's own log-probabilities of
            the tokens.
        attention: Tensor `(B, N, L, S)`: the attention weights of each token, zero after the last,
            or `None` where the search was not asked to keep them.
        token_log_probabilities: Float32 tensor `(B, N, L)`: the model's own log-probability of each
            token, the end included; zero after the last. They sum to `log_probabilities`. `None`
            of an engine that does not give them.

    Example:

    >>> from keras_attention.decoding import greedy_search
    >>> def step(tokens, state, index):  # token 0, the end, is likelier than token 1
    ...     return ops.convert_to_tensor([[2.0, 1.0]]), state
    >>> result = greedy_search(step, {"row": ops.zeros((1, 1))}, start_id=1, end_id=0, max_length=4)
    >>> result.tokens.shape[-1], int(result.lengths[0, 0]), result.attention
    (4, 1, None)
    """

    tokens: Any
    lengths: Any
    scores: Any
    log_probabilities: Any
    attention: Any = None
    token_log_probabilities: Any = None


def run_loop(search: Any, copies: int = 1) -> dict:
    """Run the steps of a search, compiled on TensorFlow and JAX, and return its results.

    Of `search` it uses `problem`, `first()` (the variables, and what is fixed), `advance`,
    `is_open` (one for `copies` rows of the caller's state) and `results`. Sizes change between
    stretches of the loop only; JAX has fixed sizes, and one stretch.
    """
    problem: Problem = search.problem
    loop, fixed = search.first()

    def results(loop: dict, fixed: dict) -> dict:
        found = search.results(loop, fixed)
        if problem.room is not None:
            scores, is_open = found["scores"], search.is_open(loop)
            is_open = ops.reshape(is_open, (-1, *[1] * (len(scores.shape) - 1)))
            found["scores"] = ops.where(is_open, float("nan"), scores)
        return found

    def unfinished(loop: dict) -> Tensor:
        return ops.any(search.is_open(loop)) & (loop["index"] < problem.longest)

    rooms = _Rooms(problem) if problem.growing_axes else None
    if rooms and rooms.hold_all(loop["state"]):
        rooms = None
    departures = _Departures(problem, search.is_open, copies) if problem.shrinks else None
    if keras.backend.backend() == "jax":
        departures = None
        if rooms:
            loop, rooms = {**loop, "state": rooms.whole(loop["state"])}, None
    if not rooms and not departures:
        return results(_stretch(unfinished, search.advance, loop, fixed), fixed)

    def stretch(loop: dict, fixed: dict) -> tuple[dict, dict]:
        if rooms:
            loop = {**loop, "state": rooms.grown(loop["state"], loop["index"])}

        def goes_on(variables: dict) -> Tensor:
            is_on = unfinished(variables)
            if departures:
                is_on = is_on & ~departures.are_due(variables)
            return is_on & rooms.fits(loop["state"], variables["index"]) if rooms else is_on

        loop = _stretch(goes_on, search.advance, loop, fixed)
        return departures.made(loop, fixed, results) if departures else (loop, fixed)

    if departures:
        loop, fixed = departures.first(loop, fixed, results)
    if rooms:
        # What comes of a branch has no static size on the axes that grow, and so none in the loop.
        index = known_when_run(loop["index"])
        loop = {**loop, "state": rooms.grown(loop["state"], index)}
    loop, fixed = ops.while_loop(lambda loop, fixed: unfinished(loop), stretch, (loop, fixed))
    return fixed["results"] if departures else results(loop, fixed)


def _stretch(goes_on: Callable, advance: Callable, loop: dict, fixed: dict) -> dict:
    def body(variables: dict) -> tuple[dict]:
        return (tree.map_structure(sized_as, advance(variables, fixed), variables),)

    (loop,) = ops.while_loop(goes_on, body, (loop,))
    return loop


@dataclass(frozen=True)
class _Rooms:
    """Gives a cache few places for steps, and more when they are full: each step reads them all."""

    problem: Problem

    @property
    def axes(self) -> Mapping[str, int]:
        """The axis of the places, by the name of the entry."""
        return self.problem.growing_axes

    def grown(self, state: dict, index: Tensor) -> dict:
        """Return the state with a place for step `index`."""

        def part(key: str) -> Any:
            room = self._room(state, key)
            return ops.cond(
                index >= room, lambda: self._widened(state, key, MORE_STEPS), lambda: state[key]
            )

        return {**state, **{key: part(key) for key in self.axes}}

    def fits(self, state: dict, index: Tensor) -> Tensor:
        """Whether the state has a place for step `index`."""
        return ops.all(ops.stack([index < self._room(state, key) for key in self.axes]))

    def hold_all(self, state: dict) -> bool:
        """Whether it is known from the start that every step has a place."""
        rooms = [self._room(state, key) for key in self.axes]
        are_known = all(isinstance(size, int) for size in (*rooms, self.problem.longest))
        return are_known and min(rooms) >= self.problem.longest

    def whole(self, state: dict) -> dict:
        """Return the state with a place for every step."""
        missing = {key: max(0, self.problem.longest - self._room(state, key)) for key in self.axes}
        return {**state, **{key: self._widened(state, key, missing[key]) for key in self.axes}}

    def _room(self, state: dict, key: str) -> Tensor:
        places = size_of(tree.flatten(state[key])[0], self.axes[key])
        return places // self.problem.places_of_a_step(key)

    def _widened(self, state: dict, key: str, steps: Tensor) -> Any:
        places = steps * self.problem.places_of_a_step(key)

        def widened(x: Tensor) -> Tensor:
            return ops.pad(
                x, [[0, places if axis == self.axes[key] else 0] for axis in range(len(x.shape))]
            )

        return tree.map_structure(widened, state[key])


@dataclass(frozen=True)
class _Departures:
    """Shrinks what a loop carries to the hypotheses that are still open, between its stretches.

    `state`, `constants` and (on their second axis) `weights` have `copies` rows for each row of
    the other variables; `index` and `results` have none.
    """

    problem: Problem
    is_open: Callable
    copies: int

    def first(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and what is fixed, their numbers of rows unknown to a graph."""
        is_open = self.is_open(loop)
        count, is_known = size_of(is_open, 0), is_open.shape[0] is not None
        numbers = ops.arange(known_when_run(count) if is_known else count, dtype="int32")
        fixed = {**fixed, "numbers": numbers}
        fixed["results"] = results(loop, fixed)
        if is_known:
            return self._picked(loop, numbers), self._picked(fixed, numbers)
        return loop, fixed

    def are_due(self, loop: dict) -> Tensor:
        """Whether so many are finished that it pays to shrink the batch."""
        is_open = self.is_open(loop)
        return ops.sum(ops.cast(is_open, "int32")) * OF <= size_of(is_open, 0) * OPEN

    def made(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Note the results, also of what is still open, and drop what is finished."""
        numbers = ops.expand_dims(fixed["numbers"], 1)
        noted = tree.map_structure(
            lambda every, some: ops.scatter_update(every, numbers, some),
            fixed["results"],
            results(loop, fixed),
        )
        (places,) = ops.nonzero(self.is_open(loop))
        places = ops.cast(places, "int32")
        return self._picked(loop, places), self._picked({**fixed, "results": noted}, places)

    def _picked(self, parts: dict, places: Tensor) -> dict:
        rows = places[:, None] * self.copies + ops.arange(self.copies, dtype="int32")
        rows = ops.reshape(rows, (-1,))

        def of(numbers: Tensor, axis: int = 0) -> Callable:
            return lambda x: ops.take(x, numbers, axis=axis)

        def picked(key: str, part: Any) -> Any:
            if key in ("index", "results"):
                return part
            if key in ("state", "constants"):
                return self.problem.map_rows(of(rows), of(places), part)
            return tree.map_structure(of(rows, 1) if key == "weights" else of(places), part)

        return {key: picked(key, part) for key, part in parts.items()}


def known_when_run(number: Tensor) -> Tensor:
    """Return an integer out of a loop of no turns: TensorFlow's graphs hold it for unknown."""
    number = ops.convert_to_tensor(number, dtype="int32")
    (number,) = ops.while_loop(lambda i: i < 0, lambda i: (i + 1,), (number,))
    return number


def history_buffer(weights: Tensor, length: Tensor) -> Tensor:
    """Return a buffer `(L, R, S)`: each step writes a block, and none moves when beams do."""
    return ops.zeros((length, *sizes_from(weights, 0)), dtype=weights.dtype)


def write_step(buffer: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Write one step's block into a `history_buffer`."""
    # One scattered block: `slice_update` is far slower on PyTorch, and no faster elsewhere.
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), weights[None])


def write_column(tokens: Tensor, index: Tensor, column: Tensor) -> Tensor:
    """Return `tokens (..., L)` with `column (...)` at place `index`."""
    here = ops.arange(size_of(tokens, -1), dtype="int32") == index
    return ops.where(here, ops.expand_dims(column, -1), tokens)


def normalize(logits: Tensor, normalizer: Tensor) -> Tensor:
    """Return log-probabilities; `-inf` also where a whole row, and so its normalizer, is `-inf`.

    A row with a logit that is NaN has a normalizer that is NaN, and no probabilities: all are NaN.
    """
    is_never = ops.isinf(logits) & ~ops.isnan(normalizer)
    return ops.where(is_never, NEVER, logits - normalizer)


def pick(x: Tensor, places: Tensor) -> Tensor:
    """Return `(R,)`: of each row of `(R, n)` the element at `places (R,)`."""
    rows, size = sizes_from(x, 0)
    cells = ops.arange(rows, dtype="int32") * size + places
    return ops.take(ops.reshape(x, (-1,)), cells, axis=0)


def ordered_top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest of `(..., n)`, and their places; of equal ones the first wins."""
    if keras.backend.backend() != "torch":
        return ops.top_k(x, k)
    # PyTorch's `top_k` leaves open which of several equal values it takes.
    is_one = k == 1
    places = ops.argmax(x, -1, keepdims=True) if is_one else ops.argsort(-x, axis=-1)[..., :k]
    return ops.take_along_axis(x, places, axis=-1), ops.cast(places, "int32")


def chunked_top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Do as `ordered_top_k` for `(R, n)`, three times faster on a CPU where `k` is small.

    The `k` chunks of a row with the largest maxima hold its `k` largest elements, ties included.
    """
    rows, size = sizes_from(x, 0)
    if size <= 2 * k * CHUNK:
        return ordered_top_k(x, k)
    chunks = cut_in_chunks(x, NEVER)
    count, width = sizes_from(chunks, 1)
    _, best = ordered_top_k(ops.max(chunks, axis=-1), k)
    if k > 1:
        best = ops.sort(best, axis=-1)  # places ascend again, so that ties still go to the first
    row = ops.arange(rows, dtype="int32")[:, None]
    candidates = ops.take(ops.reshape(chunks, (-1, width)), row * count + best, axis=0)
    values, places = ordered_top_k(ops.reshape(candidates, (-1, k * width)), k)
    if k == 1:
        return values, best * width + places
    chunk = ops.take(ops.reshape(best, (-1,)), row * k + places // width, axis=0)
    return values, chunk * width + places % width


def cut_in_chunks(x: Tensor, filling: float) -> Tensor:
    """Return `(R, n)` as `(R, chunks, width)`, the last chunk filled up."""
    rows, size = sizes_from(x, 0)
    # A width that divides the size saves padding, a copy of it all.
    width = next((width for width in range(CHUNK, 2 * CHUNK) if size % width == 0), CHUNK)
    count = -(-size // width)
    if count * width != size:
        x = ops.pad(x, [[0, 0], [0, count * width - size]], constant_values=filling)
    return reshaped(x, (rows, count, width))
