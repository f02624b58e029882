"""Greedy search and sampling, which extend one hypothesis in each row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from ..ops.types import Tensor, check_integer, check_number
from . import loop as loops
from .loop import DecodingResult
from .problem import NEVER, SearchProblem, broadcast_rows, gather_beams
from .seeds import seeds_of_rows, uniform_numbers

# Number of tokens that are sorted first; the whole vocabulary only if the nucleus has more.
NUCLEUS_HEAD = 256
SMALLEST_TEMPERATURE = 1.2e-38  # the smallest normal float32


def greedy_search(step: Callable, state: Any, **problem: Any) -> DecodingResult:
    """Take the most probable token at each step, until the end token or the maximum length.

    Of equally probable tokens the one with the lowest id is taken.

    Args:
        step: The step function over `B` rows, as in `SearchProblem`.
        state: As in `SearchProblem`.
        **problem: The other arguments of `SearchProblem`: `start_id`, `end_id`, `max_length`, and
            those with defaults.

    Returns:
        A `DecodingResult` with one hypothesis for each sentence. Its score is its log-probability.

    Raises:
        ValueError: As `search`.

    Example:

    >>> import numpy as np
    >>> # After token 1 (the start) comes 2 or 3; after both comes 0, the end.
    >>> table = ops.log(np.array([[1, 0, 0, 0], [0, 0, 0.6, 0.4], [1, 0, 0, 0], [1, 0, 0, 0.0]]))
    >>> def step(tokens, state, index):
    ...     return ops.take(table, tokens, axis=0), state
    >>> result = greedy_search(step, {"row": ops.zeros((1, 1))}, start_id=1, end_id=0, max_length=4)
    >>> ops.convert_to_numpy(result.tokens).tolist()
    [[[2, 0, 0, 0]]]
    """
    given = SearchProblem(step, state, copies=1, **problem)

    def choose(logits: Tensor, normalizer: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, tokens = loops.chunked_top_k(logits, 1)
        log_probabilities = loops.normalize(values[:, 0], normalizer)
        return tokens[:, 0], log_probabilities, log_probabilities

    return _SingleHypothesisLoop(given, choose).run()


def sample(
    step: Callable,
    state: Any,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | keras.random.SeedGenerator | Tensor | None = None,
    n_best: int = 1,
    **problem: Any,
) -> DecodingResult:
    """Draw each token at random, until the end token or the maximum length.

    The temperature divides the logits. Forbidden tokens are removed, then all but the `top_k` most
    probable, then all but the nucleus: the most probable tokens, up to the one with which their
    share of the remaining probability reaches `top_p`. Of equally probable tokens the one with the
    lower id comes first.

    Args:
        step: The step function over `B * n_best` rows, as in `SearchProblem`.
        state: As in `SearchProblem`.
        temperature: As in `SearchOptions`.
        top_k: As in `SearchOptions`.
        top_p: As in `SearchOptions`.
        seed: Integer: every call draws the same samples, on every backend. A
            `keras.random.SeedGenerator`: each call draws new ones. `None`: the global generator of
            `keras.random`. An integer tensor `(B, 2)`: a seed for each sentence, which alone
            determines its samples, as `sentence_seeds` returns them.
        n_best: As in `SearchOptions`.
        **problem: The other arguments of `SearchProblem`, without `room` and `sentence_keys`.

    Returns:
        A `DecodingResult` with `n_best` samples for each sentence, ranked. A score is the
        log-probability of a sample in the distribution that it was drawn from, after temperature,
        `top_k` and `top_p`; `log_probabilities` are those of the full distribution of the model.

    Raises:
        ValueError: As `search`.

    Reference:
        [Holtzman et al. 2020](https://arxiv.org/abs/1904.09751), for the nucleus.

    Example:

    >>> def step(tokens, state, index):  # token 0, the end, and 3 others, all alike
    ...     return ops.zeros((ops.shape(tokens)[0], 4)), state
    >>> state = {"row": ops.zeros((2, 1))}
    >>> result = sample(
    ...     step, state, start_id=1, end_id=0, max_length=6, top_k=3, seed=7, n_best=5
    ... )
    >>> tuple(result.tokens.shape)
    (2, 5, 6)
    >>> bool(ops.all(result.tokens < 3))
    True
    """
    check_integer("n_best", n_best, 1)
    check_sampling(temperature, top_k, top_p)
    given = SearchProblem(step, state, copies=n_best, room=None, sentence_keys=(), **problem)
    # Two numbers for each token, drawn for all steps at once: the loop has less to do.
    seeds = seeds_of_rows(seed, given.batch_size)
    numbers = uniform_numbers(seeds, given.longest, n_best)

    def choose(
        logits: Tensor, normalizer: Tensor, index: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        drawn = ops.take(ops.take(numbers, index, axis=0), rows, axis=1)
        tokens, scores = _draw_token(logits, drawn, temperature, top_k, top_p)
        log_probabilities = loops.normalize(loops.pick(logits, tokens), normalizer)
        is_nan = ops.isnan(log_probabilities)
        return tokens, ops.where(is_nan, log_probabilities, scores), log_probabilities

    result = _SingleHypothesisLoop(given, choose).run()
    if n_best == 1:
        return result
    _, order = loops.ordered_top_k(result.scores, n_best)
    return DecodingResult(*(None if x is None else gather_beams(x, order) for x in result))


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise a ValueError if an option of sampling is out of its range."""
    check_integer("top_k", top_k, 0)
    if check_number("temperature", temperature) == 0:
        raise ValueError(
            "`temperature` must be a finite number above 0; `greedy_search` takes the most "
            f"probable token. Received: temperature={temperature!r}"
        )
    check_number("top_p", top_p, above=True, maximum=1)


@dataclass(frozen=True)
class _SingleHypothesisLoop:
    """The loop that extends each row by the tokens of `choose` until all rows are complete.

    `choose(logits (R, V), normalizer (R,), index, rows (R,))` returns tokens, their terms of the
    score, and their log-probabilities. Forbidden tokens have the logit `-inf`; the `normalizer`
    includes them.
    """

    problem: SearchProblem
    choose: Callable

    def run(self) -> DecodingResult:
        """Return the complete hypotheses, in the order of the rows."""
        by_sentence = (self.problem.batch_size, self.problem.copies)
        results = loops.run_loop(self)
        return DecodingResult(
            **{key: ops.reshape(x, (*by_sentence, *ops.shape(x)[1:])) for key, x in results.items()}
        )

    def is_open(self, loop: dict) -> Tensor:
        return loop["open"]

    def results(self, loop: dict, fixed: dict) -> dict:
        is_token = ops.arange(self.problem.longest, dtype="int32") < loop["lengths"][:, None]
        names = ("lengths", "scores", "log_probabilities", "token_log_probabilities")
        results = {key: loop[key] for key in names}
        results["tokens"] = ops.where(is_token, loop["tokens"], self.problem.pad_id)
        if self.problem.keeps_attention:
            results["attention"] = ops.swapaxes(loop["weights"], 0, 1)
        return results

    def first(self) -> tuple[dict, dict]:
        problem = self.problem
        rows = problem.batch_size * problem.copies
        loop = {
            "index": ops.convert_to_tensor(0, dtype="int32"),
            "state": problem.initial,
            "last": problem.start,
            "open": ops.ones((rows,), dtype="bool"),
            # `pad_id` may be no token of the model: a complete row is filled with end tokens.
            "tokens": ops.full((rows, problem.longest), problem.end_ids[0], dtype="int32"),
            "lengths": ops.zeros((rows,), dtype="int32"),
            "scores": ops.zeros((rows,), dtype="float32"),
            "log_probabilities": ops.zeros((rows,), dtype="float32"),
            "token_log_probabilities": ops.zeros((rows, problem.longest), dtype="float32"),
        }
        if problem.keeps_attention:
            weights = problem.attention(problem.initial)
            loop["weights"] = loops.history_buffer(weights, problem.longest)
        fixed = {
            "limits": broadcast_rows(problem.limits, problem.copies),
            "constants": problem.constants,
            "rows": ops.arange(rows, dtype="int32"),
        }
        if problem.prefix is not None:
            fixed["prefix"] = broadcast_rows(problem.prefix, problem.copies)
        return loop, fixed

    def advance(self, loop: dict, fixed: dict) -> dict:
        index, is_open, end_id = loop["index"], loop["open"], self.problem.end_ids[0]
        logits, state = self.problem.step(loop["last"], loop["state"], index, fixed["constants"])
        normalizer = ops.logsumexp(logits, axis=-1)
        allowed = self.problem.allowed(logits, loop["tokens"], index, fixed.get("prefix"))
        tokens, scores, log_probabilities = self.choose(allowed, normalizer, index, fixed["rows"])
        # A row that no token can follow ends, with the log-probability -inf or NaN.
        tokens = ops.where(is_open & ops.isfinite(log_probabilities), tokens, end_id)
        log_probabilities = ops.where(is_open, log_probabilities, 0.0)
        advanced = {
            "index": index + 1,
            "state": state,
            "last": tokens,
            "open": is_open & ~self.problem.is_end(tokens) & (index + 1 < fixed["limits"]),
            "tokens": loops.write_column(loop["tokens"], index, tokens),
            "lengths": loop["lengths"] + ops.cast(is_open, "int32"),
            "scores": loop["scores"] + ops.where(is_open, scores, 0.0),
            "log_probabilities": loop["log_probabilities"] + log_probabilities,
            "token_log_probabilities": loops.write_column(
                loop["token_log_probabilities"], index, log_probabilities
            ),
        }
        if self.problem.keeps_attention:
            weights = self.problem.attention(state)
            kept = ops.where(is_open[:, None], weights, ops.zeros_like(weights))
            advanced["weights"] = loops.write_step(loop["weights"], index, kept)
        return advanced


def _draw_token(
    logits: Tensor, numbers: Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[Tensor, Tensor]:
    """Draw tokens `(R,)` by inverting the CDF at `(2, R)`; return log-probabilities too."""
    size = logits.shape[-1]
    largest = ops.max(logits, axis=-1, keepdims=True)
    largest = ops.where(ops.isinf(largest), 0.0, largest)
    # Minus the largest before the division, so that no temperature overflows.
    logits = (logits - largest) / max(float(temperature), SMALLEST_TEMPERATURE)
    if top_k:
        values, tokens = loops.chunked_top_k(logits, min(top_k, size))
        total = ops.sum(ops.exp(values), axis=-1, keepdims=True)
        return _draw_sorted(values, tokens, total, numbers[0], top_p)
    if top_p == 1:
        return _draw_among_many(ops.exp(logits), numbers[0], numbers[1])
    total = ops.sum(ops.exp(logits), axis=-1, keepdims=True)
    values, tokens = loops.chunked_top_k(logits, min(NUCLEUS_HEAD, size))
    if size <= NUCLEUS_HEAD:
        return _draw_sorted(values, tokens, total, numbers[0], top_p)
    # The whole vocabulary is sorted only if the nucleus of a row needs it.
    mass = ops.sum(ops.exp(values), axis=-1, keepdims=True)
    return ops.cond(
        ops.all(mass >= top_p * total),
        lambda: _draw_sorted(values, tokens, total, numbers[0], top_p),
        lambda: _draw_sorted(*loops.ordered_top_k(logits, size), total, numbers[0], top_p),
    )


def _draw_sorted(
    values: Tensor, tokens: Tensor, total: Tensor, numbers: Tensor, top_p: float
) -> tuple[Tensor, Tensor]:
    weights = ops.exp(values)
    if top_p < 1:
        before = ops.cumsum(weights, axis=-1) - weights
        weights = ops.where(before < top_p * total, weights, 0.0)
    indices, log_probabilities = _draw(weights, numbers)
    return loops.pick(tokens, indices), log_probabilities


def _draw_among_many(
    weights: Tensor, chunk_numbers: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Draw a chunk, then an index in it, as `_draw` does: short sums are fast and exact."""
    chunks = loops.cut_in_chunks(weights, 0.0)
    rows, count, width = ops.shape(chunks)
    chunk, chunk_log = _draw(ops.sum(chunks, axis=-1), chunk_numbers)
    drawn = ops.arange(rows, dtype="int32") * count + chunk
    index, index_log = _draw(ops.take(ops.reshape(chunks, (-1, width)), drawn, axis=0), numbers)
    return chunk * width + index, chunk_log + index_log


def _draw(weights: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Draw indices `(R,)` in proportion to `weights (R, n)`; return their log-probabilities too."""
    # An index of weight zero has no mass, so that it is never drawn, whatever is rounded.
    mass = ops.where(weights > 0, ops.cumsum(weights, axis=-1), 0.0)
    total = ops.max(mass, axis=-1)
    sought = (1.0 - numbers) * total
    indices = ops.argmax(ops.cast(mass >= sought[:, None], "int32"), axis=-1)
    indices = ops.cast(indices, "int32")
    log_probabilities = ops.log(loops.pick(weights, indices)) - ops.log(total)
    return indices, ops.where(total > 0, log_probabilities, NEVER)
