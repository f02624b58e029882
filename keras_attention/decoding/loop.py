"""The loop of all searches, its result and buffers, and the k largest of a row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from ..ops.shapes import reshaped, size_of, sized_as, sizes_from
from ..ops.types import Tensor
from .problem import NEVER, SearchProblem

# The batch is compacted when at most this share of it is open: a compaction copies the state.
MAX_OPEN_SHARE = (3, 4)
# Size of a chunk of `chunked_top_k`: for 8,000 and 32,000 words its two passes cost the same.
CHUNK = 32
# Steps by which a full cache grows: each step copies and reads the empty positions too.
MORE_STEPS = 8


class DecodingResult(NamedTuple):
    """Hypotheses of a search, best first.

    `B` sentences, `N` hypotheses of each, `L` the longest length allowed, `S` memory steps.

    A hypothesis is complete when it ends with the end token, or has its maximum number of tokens.
    Where fewer than `N` exist, the last ones are padding of length 0 and score `-inf`.

    Attributes:
        tokens: Integer tensor `(B, N, L)`: the tokens with the end token, without the start token,
            and padding after them.
        lengths: Integer tensor `(B, N)`: the number of tokens with the end token.
        scores: Float32 tensor `(B, N)`: the scores that rank the hypotheses (for samples: see
            `sample`); NaN where all logits were NaN, and where the `room` of the search was too
            small.
        log_probabilities: Float32 tensor `(B, N)`: the sum of the model's own log-probabilities of
            the tokens.
        attention: Tensor `(B, N, L, S)`: the attention weights of each token, zero after the last,
            or `None` if the search does not keep them.
        token_log_probabilities: Float32 tensor `(B, N, L)`: the model's own log-probability of each
            token, the end included; zero after the last. They sum to `log_probabilities`. `None`
            for an engine that does not compute them.

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

    A `search` has a `problem`, `first()` (the variables of the loop, and its constants), `advance`,
    `is_open` (one value for `copies` rows of the caller's state) and `results`. Sizes change only
    between segments of the loop; on JAX sizes are fixed, and there is one segment.
    """
    problem: SearchProblem = search.problem
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

    growth = CacheGrowth(problem) if problem.growing_axes else None
    if growth and growth.fits_all_steps(loop["state"]):
        growth = None
    compaction = BatchCompaction(problem, search.is_open, copies) if problem.shrinks else None
    if keras.backend.backend() == "jax":
        compaction = None
        if growth:
            loop = {**loop, "state": growth.full(loop["state"])}
            growth = None
    if not growth and not compaction:
        return results(_run_segment(unfinished, search.advance, loop, fixed), fixed)

    def segment(loop: dict, fixed: dict) -> tuple[dict, dict]:
        if growth:
            loop = {**loop, "state": growth.grown(loop["state"], loop["index"])}

        def goes_on(variables: dict) -> Tensor:
            is_on = unfinished(variables)
            if compaction:
                is_on = is_on & ~compaction.is_due(variables)
            return is_on & growth.fits(loop["state"], variables["index"]) if growth else is_on

        loop = _run_segment(goes_on, search.advance, loop, fixed)
        return compaction.compacted(loop, fixed, results) if compaction else (loop, fixed)

    if compaction:
        loop, fixed = compaction.first(loop, fixed, results)
    if growth:
        # The result of a branch has no static size on the axes that grow: the loop expects none.
        index = without_static_value(loop["index"])
        loop = {**loop, "state": growth.grown(loop["state"], index)}
    loop, fixed = ops.while_loop(lambda loop, fixed: unfinished(loop), segment, (loop, fixed))
    return fixed["results"] if compaction else results(loop, fixed)


def _run_segment(goes_on: Callable, advance: Callable, loop: dict, fixed: dict) -> dict:
    def body(variables: dict) -> tuple[dict]:
        return (tree.map_structure(sized_as, advance(variables, fixed), variables),)

    (loop,) = ops.while_loop(goes_on, body, (loop,))
    return loop


@dataclass(frozen=True)
class CacheGrowth:
    """Starts a cache with few positions, and adds more as they fill: each step reads all."""

    problem: SearchProblem

    @property
    def axes(self) -> Mapping[str, int]:
        """The axis of the positions by the name of the entry."""
        return self.problem.growing_axes

    def grown(self, state: dict, index: Tensor) -> dict:
        """Return the state with a position for step `index`."""

        def part(key: str) -> Any:
            return ops.cond(
                index >= self._steps(state, key),
                lambda: self._extended(state, key, MORE_STEPS),
                lambda: state[key],
            )

        return {**state, **{key: part(key) for key in self.axes}}

    def fits(self, state: dict, index: Tensor) -> Tensor:
        """Return whether the state has a position for step `index`."""
        return ops.all(ops.stack([index < self._steps(state, key) for key in self.axes]))

    def fits_all_steps(self, state: dict) -> bool:
        """Return whether it is known that the state has a position for each step."""
        steps = [self._steps(state, key) for key in self.axes]
        are_known = all(isinstance(size, int) for size in (*steps, self.problem.longest))
        return are_known and min(steps) >= self.problem.longest

    def full(self, state: dict) -> dict:
        """Return the state with a position for each step."""
        missing = {key: max(0, self.problem.longest - self._steps(state, key)) for key in self.axes}
        return {**state, **{key: self._extended(state, key, missing[key]) for key in self.axes}}

    def _steps(self, state: dict, key: str) -> Tensor:
        """Return the number of steps of an entry."""
        size = size_of(tree.flatten(state[key])[0], self.axes[key])
        return size // self.problem.positions_per_step(key)

    def _extended(self, state: dict, key: str, steps: Tensor) -> Any:
        """Return an entry with positions for more steps."""
        size = steps * self.problem.positions_per_step(key)

        def extended(x: Tensor) -> Tensor:
            padding = [[0, size if axis == self.axes[key] else 0] for axis in range(len(x.shape))]
            return ops.pad(x, padding)

        return tree.map_structure(extended, state[key])


@dataclass(frozen=True)
class BatchCompaction:
    """Removes finished sentences from the variables of a loop, between its segments.

    `state`, `constants` and (on their second axis) `weights` have `copies` rows for each row of
    the other variables; `index` and `results` have none.
    """

    problem: SearchProblem
    is_open: Callable
    copies: int

    def first(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Return the variables and constants, their numbers of rows unknown to a graph."""
        is_open = self.is_open(loop)
        count, is_known = size_of(is_open, 0), is_open.shape[0] is not None
        count = without_static_value(count) if is_known else count
        numbers = ops.arange(count, dtype="int32")
        fixed = {**fixed, "numbers": numbers}
        fixed["results"] = results(loop, fixed)
        if is_known:
            return self._gathered(loop, numbers), self._gathered(fixed, numbers)
        return loop, fixed

    def is_due(self, loop: dict) -> Tensor:
        """Return whether so many sentences are finished that a compaction saves time."""
        is_open = self.is_open(loop)
        share, whole = MAX_OPEN_SHARE
        return ops.sum(ops.cast(is_open, "int32")) * whole <= size_of(is_open, 0) * share

    def compacted(self, loop: dict, fixed: dict, results: Callable) -> tuple[dict, dict]:
        """Save the results of all sentences, and remove the finished ones."""
        numbers = ops.expand_dims(fixed["numbers"], 1)
        saved = tree.map_structure(
            lambda every, some: ops.scatter_update(every, numbers, some),
            fixed["results"],
            results(loop, fixed),
        )
        (open_rows,) = ops.nonzero(self.is_open(loop))
        open_rows = ops.cast(open_rows, "int32")
        fixed = {**fixed, "results": saved}
        return self._gathered(loop, open_rows), self._gathered(fixed, open_rows)

    def _gathered(self, parts: dict, sentences: Tensor) -> dict:
        rows = sentences[:, None] * self.copies + ops.arange(self.copies, dtype="int32")
        rows = ops.reshape(rows, (-1,))

        def taking(indices: Tensor, axis: int = 0) -> Callable:
            return lambda x: ops.take(x, indices, axis=axis)

        def gathered(key: str, part: Any) -> Any:
            if key in ("index", "results"):
                return part
            if key in ("state", "constants"):
                return self.problem.map_rows(taking(rows), taking(sentences), part)
            take = taking(rows, 1) if key == "weights" else taking(sentences)
            return tree.map_structure(take, part)

        return {key: gathered(key, part) for key, part in parts.items()}


def without_static_value(number: Tensor) -> Tensor:
    """Return an integer whose value a TensorFlow graph does not know, by a loop without steps."""
    number = ops.convert_to_tensor(number, dtype="int32")
    (number,) = ops.while_loop(lambda i: i < 0, lambda i: (i + 1,), (number,))
    return number


def history_buffer(weights: Tensor, length: Tensor) -> Tensor:
    """Return a buffer `(L, R, S)`: each step writes a block, which is not reordered with beams."""
    return ops.zeros((length, *sizes_from(weights, 0)), dtype=weights.dtype)


def write_step(buffer: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Write one step's block into a `history_buffer`."""
    # One scattered block: `slice_update` is far slower on PyTorch, and no faster elsewhere.
    return ops.scatter_update(buffer, ops.reshape(index, (1, 1)), weights[None])


def write_column(tokens: Tensor, index: Tensor, column: Tensor) -> Tensor:
    """Return `tokens (..., L)` with `column (...)` at position `index`."""
    here = ops.arange(size_of(tokens, -1), dtype="int32") == index
    return ops.where(here, ops.expand_dims(column, -1), tokens)


def normalize(logits: Tensor, normalizer: Tensor) -> Tensor:
    """Return log-probabilities; `-inf` also where a whole row, and thus its normalizer, is `-inf`.

    A row with a NaN has NaN as normalizer, and all its log-probabilities are NaN.
    """
    is_never = ops.isinf(logits) & ~ops.isnan(normalizer)
    return ops.where(is_never, NEVER, logits - normalizer)


def pick(x: Tensor, indices: Tensor) -> Tensor:
    """Return the element of each row of `(R, n)` at `indices (R,)`."""
    rows, size = sizes_from(x, 0)
    cells = ops.arange(rows, dtype="int32") * size + indices
    return ops.take(ops.reshape(x, (-1,)), cells, axis=0)


def ordered_top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest of `(..., n)`, and their indices; the first of equal ones wins."""
    if keras.backend.backend() != "torch":
        return ops.top_k(x, k)
    # PyTorch's `top_k` does not say which of several equal values it takes.
    is_one = k == 1
    indices = ops.argmax(x, -1, keepdims=True) if is_one else ops.argsort(-x, axis=-1)[..., :k]
    return ops.take_along_axis(x, indices, axis=-1), ops.cast(indices, "int32")


def chunked_top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the result of `ordered_top_k` for `(R, n)`, three times faster on a CPU for small `k`.

    The `k` chunks of a row with the largest maxima hold its `k` largest elements, ties included.
    """
    rows, size = sizes_from(x, 0)
    if size <= 2 * k * CHUNK:
        return ordered_top_k(x, k)
    chunks = cut_in_chunks(x, NEVER)
    count, width = sizes_from(chunks, 1)
    _, best = ordered_top_k(ops.max(chunks, axis=-1), k)
    if k > 1:
        best = ops.sort(best, axis=-1)  # ascending, so that the first of equal values still wins
    row = ops.arange(rows, dtype="int32")[:, None]
    candidates = ops.take(ops.reshape(chunks, (-1, width)), row * count + best, axis=0)
    values, indices = ordered_top_k(ops.reshape(candidates, (-1, k * width)), k)
    if k == 1:
        return values, best * width + indices
    chunk = ops.take(ops.reshape(best, (-1,)), row * k + indices // width, axis=0)
    return values, chunk * width + indices % width


def cut_in_chunks(x: Tensor, filling: float) -> Tensor:
    """Return `(R, n)` as `(R, chunks, width)`, the last chunk padded."""
    rows, size = sizes_from(x, 0)
    # A width that divides the size needs no padding, which copies everything.
    width = next((width for width in range(CHUNK, 2 * CHUNK) if size % width == 0), CHUNK)
    count = -(-size // width)
    if count * width != size:
        x = ops.pad(x, [[0, 0], [0, count * width - size]], constant_values=filling)
    return reshaped(x, (rows, count, width))
