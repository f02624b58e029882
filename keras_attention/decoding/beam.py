"""Beam search: the best hypotheses that grow from the `K` most probable prefixes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keras import ops, tree

from ..ops.axes import reshaped, size_of, sizes_from
from ..ops.types import Tensor
from . import loop as loops
from .loop import DecodingResult
from .problem import (
    NEVER,
    Problem,
    broadcast_rows,
    check_integer,
    check_number,
    gather_beams,
    is_number,
    take_rows,
)


class LengthPenalty:
    """Divisor of a hypothesis' log-probability: `lp(n) = ((5 + n) / 6) ** alpha` for `n` tokens.

    The end token counts. `alpha = 0` divides by 1; the larger `alpha`, the less a long hypothesis
    pays for its length.

    Args:
        alpha: Float, at least 0. Values from 0.6 to 1 are usual in translation.

    Call arguments:
        length: Float tensor or number, the lengths; the divisors have its shape.

    Reference:
        [Wu et al. 2016](https://arxiv.org/abs/1609.08144), section 7 ("GNMT").

    Example:

    >>> float(LengthPenalty(alpha=1.0)(7))
    2.0
    """

    def __init__(self, alpha: float = 0.0) -> None:
        check_number("alpha", alpha, "of at least 0", lambda x: x >= 0)
        self.alpha = float(alpha)

    def __call__(self, length: Tensor) -> Tensor:
        return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, self.alpha)


class CoveragePenalty:
    """Term that lowers the score of a hypothesis which leaves memory steps unattended.

    `cp = beta * sum_s log(min(max(coverage_s, floor), 1))`, where `coverage_s` is the attention
    that memory step `s` got from all tokens. The reference is that of `LengthPenalty`.

    Args:
        beta: Float, at least 0. Values around 0.2 are usual in translation.
        floor: Float in (0, 1), the least coverage that counts: a step without any attention (common
            with local attention) makes a hypothesis worse, not impossible.

    Call arguments:
        coverage: Float tensor `(..., S)`; the terms are `(...)`.
        mask: Boolean tensor that broadcasts to it, True where a step counts. Padding has no
            attention, and would count as uncovered.

    Example:

    >>> round(float(CoveragePenalty(beta=1.0)([1.3, 0.5])), 4)
    -0.6931
    """

    def __init__(self, beta: float, floor: float = 1e-6) -> None:
        check_number("beta", beta, "of at least 0", lambda x: x >= 0)
        check_number("floor", floor, "between 0 and 1", lambda x: 0 < x < 1)
        self.beta = float(beta)
        self.floor = float(floor)

    def __call__(self, coverage: Tensor, mask: Tensor = None) -> Tensor:
        terms = ops.log(ops.clip(ops.cast(coverage, "float32"), self.floor, 1.0))
        if mask is not None:
            terms = ops.where(mask, terms, 0.0)
        return self.beta * ops.sum(terms, axis=-1)


def beam_search(
    step: Callable,
    state: Any,
    *,
    start_id: Any,
    end_id: int,
    max_length: Any,
    min_length: int = 0,
    beam_size: int = 4,
    n_best: int = 1,
    length_penalty: float | Callable = 0.0,
    coverage_penalty: float | Callable = 0.0,
    attention_mask: Tensor = None,
    pad_id: int = 0,
    no_repeat_ngram: int = 0,
    attention_key: str | None = None,
    constant_keys: Sequence[str] = (),
    sentence_keys: Sequence[str] = (),
    growing_axes: Mapping[str, int] | None = None,
    shrink_batch: bool = False,
    longest: int | None = None,
    room: int | None = None,
    prefix: Tensor = None,
) -> DecodingResult:
    """Keep the `K` most probable prefixes of each sentence, and the best complete hypotheses.

    Each step extends every prefix by every token. Of the `K` most probable extensions, those that
    end (by the end token, or at the longest length) are complete: the search scores and freezes
    them. The `K` most probable ones that do not end go on, so that complete hypotheses take no
    beam from the others. Prefixes are ranked by `log P`, a complete hypothesis `Y` by

    `score(Y) = log P(Y) / lp(|Y|) + cp(Y)`.

    A sentence is finished when no prefix can beat the worst of the `n_best` hypotheses kept: its
    continuations score at most `log P(prefix) / lp(longest)`. Ties go to the hypothesis completed
    first, then to the better prefix, then to the lower token.

    Args:
        step: The step function over `B * beam_size` rows.
        state and the arguments that are not listed here: As in `greedy_search`.
        beam_size, n_best: As in `SearchOptions`. A beam of 1 is greedy search only where there is
            no length penalty.
        length_penalty: Float, the `alpha` of a `LengthPenalty`, or such an object: a callable from
            lengths to divisors that are positive and do not decrease with the length.
        coverage_penalty: Float, the `beta` of a `CoveragePenalty`, or such an object: a callable
            `(coverage (B, K, S), mask) -> (B, K)` that is nowhere positive. Needs `attention_key`.
        attention_mask, sentence_keys: As in `search`.

    Output, errors and reference are those of `search` and `LengthPenalty`.

    Example:

    >>> import numpy as np
    >>> # After token 1 (the start) comes 2 or 3. After 2 the end is only as likely as 2 again.
    >>> table = np.array([[1, 0, 0, 0], [0, 0, 0.6, 0.4], [0.5, 0, 0.5, 0], [0.9, 0, 0, 0.1]])
    >>> def step(tokens, state, index):
    ...     return ops.take(ops.log(table), tokens, axis=0), state
    >>> result = beam_search(
    ...     step, {"row": ops.zeros((1, 1))}, start_id=1, end_id=0, max_length=4, n_best=2
    ... )
    >>> ops.convert_to_numpy(result.tokens).tolist()
    [[[3, 0, 0, 0], [2, 0, 0, 0]]]
    >>> [f"{float(score):.2f}" for score in ops.exp(result.scores[0])]
    ['0.36', '0.30']
    """
    check_integer("beam_size", beam_size, 1)
    check_n_best(n_best, beam_size)
    length = _as_penalty("length_penalty", length_penalty, LengthPenalty)
    coverage = None
    if not is_number(coverage_penalty) or coverage_penalty != 0:
        coverage = _as_penalty("coverage_penalty", coverage_penalty, CoveragePenalty)
        if attention_key is None:
            raise ValueError(
                "`coverage_penalty` needs the attention weights: name their entry of `state` as "
                "`attention_key`. Received: attention_key=None"
            )
    ids, lengths = (start_id, end_id, pad_id), (max_length, min_length, longest, room)
    keys = (attention_key, constant_keys, growing_axes)
    counts = (no_repeat_ngram, shrink_batch, beam_size)
    problem = Problem(step, state, ids, lengths, keys, *counts, sentence_keys, prefix)
    return _BeamLoop(problem, n_best, length, coverage, attention_mask).run()


def check_n_best(n_best: int, beam_size: int) -> None:
    """Raise a ValueError unless a beam holds as many hypotheses as are wanted."""
    check_integer("n_best", n_best, 1)
    if n_best > beam_size:
        raise ValueError(
            "`n_best` should be at most `beam_size`. "
            f"Received: n_best={n_best}, beam_size={beam_size}"
        )


def _as_penalty(name: str, penalty: float | Callable, kind: type) -> Callable:
    """Return the penalty object of a number, GNMT's alpha or beta, or the object given."""
    if callable(penalty):
        return penalty
    if is_number(penalty):
        return kind(penalty)
    raise ValueError(
        f"`{name}` should be a number or a callable such as `{kind.__name__}`. "
        f"Received: {penalty!r}"
    )


@dataclass(frozen=True)
class _BeamLoop:
    """Grows `K` prefixes of each of `B` sentences, and keeps the `N` best that are complete.

    The variables of the loop, with `R = B * K` rows:

    ```
    index    scalar     the number of the step
    state    R rows     the caller's
    live     (B, K)     prefixes, best first: log_probabilities, last token, history, coverage
    done     (B, N)     complete ones, best first: scores, log_probabilities, lengths, history
    weights  (L, R, S)  the attention weights of each step, row by row, as the step left them
    ```

    A history is `tokens (..., L)`, their `log_probabilities (..., L)`, and where something does not
    move with the beams - weights, entries of the state with a row for each sentence - `beams (...,
    L)`, the beam in which the step before each token was taken. An empty beam has `-inf`.
    """

    problem: Problem
    n_best: int
    length_penalty: Callable
    coverage_penalty: Callable | None
    attention_mask: Tensor

    @property
    def beam_size(self) -> int:
        """`K`, the prefixes of a sentence."""
        return self.problem.copies

    def run(self) -> DecodingResult:
        """Return the `N` best hypotheses of each sentence."""
        return DecodingResult(**loops.run_loop(self, self.beam_size))

    def is_open(self, loop: dict) -> Tensor:
        """Return whether something may yet be kept of each sentence `(B,)`: a beam is not empty."""
        return ops.any(loop["live"]["log_probabilities"] > NEVER, axis=1)

    def results(self, loop: dict, fixed: dict) -> dict:
        done = loop["done"]
        results = {key: done[key] for key in ("lengths", "scores", "log_probabilities")}
        step = ops.arange(self.problem.longest, dtype="int32")
        is_token = step < done["lengths"][:, :, None]
        history = done["history"]
        results["tokens"] = ops.where(is_token, history["tokens"], self.problem.pad_id)
        terms = ops.where(is_token, history["log_probabilities"], 0.0)
        results["token_log_probabilities"] = terms
        # All logits of a step were NaN, and nothing was complete before it.
        is_nan = ops.any(ops.isnan(loop["live"]["log_probabilities"]), axis=1, keepdims=True)
        is_nan = is_nan & (done["lengths"] == 0)
        results["scores"] = ops.where(is_nan, float("nan"), results["scores"])
        if self.problem.keeps_attention:
            # Of each hypothesis' tokens the weights, (B, N, L, S), zero after the last.
            steps, rows, memory = sizes_from(loop["weights"], 0)
            first = ops.arange(rows // self.beam_size, dtype="int32") * self.beam_size
            places = step * rows + first[:, None, None] + history["beams"]
            picked = take_rows(ops.reshape(loop["weights"], (steps * rows, memory)), places)
            results["attention"] = ops.where(is_token[..., None], picked, ops.zeros_like(picked))
        return results

    def first(self) -> tuple[dict, dict]:
        """Return the variables before the first step, and what no step changes."""
        problem, beams = self.problem, (self.problem.batch_size, self.beam_size)
        # All beams of a sentence begin alike: let one grow, into K different ones.
        first = ops.cast(ops.where(ops.arange(self.beam_size) > 0, NEVER, 0.0), "float32")
        live = {
            "log_probabilities": ops.broadcast_to(first, beams),
            "last": ops.reshape(problem.start, beams),
            "history": self._no_history(self.beam_size),
        }
        complete = (problem.batch_size, self.n_best)
        done = {
            "scores": ops.full(complete, NEVER, dtype="float32"),
            "log_probabilities": ops.full(complete, NEVER, dtype="float32"),
            "lengths": ops.zeros(complete, dtype="int32"),
            "history": self._no_history(self.n_best),
        }
        index = ops.convert_to_tensor(0, dtype="int32")
        loop = {"index": index, "state": problem.initial, "live": live, "done": done}
        fixed = {"limits": problem.limits, "constants": problem.constants}
        if problem.prefix is not None:
            fixed["prefix"] = problem.prefix
        if problem.keeps_attention:
            weights = problem.attention(problem.initial)
            loop["weights"] = loops.history_buffer(weights, problem.longest)
        if self.coverage_penalty:
            live["coverage"] = self._by_beam(ops.zeros(sizes_from(weights, 0), dtype="float32"))
            if self.attention_mask is not None:
                fixed["mask"] = ops.cast(self.attention_mask, "bool")[:, None, :]
        return loop, fixed

    def _no_history(self, count: int) -> dict:
        shape = (self.problem.batch_size, count, self.problem.longest)
        keeps_beams = self.problem.keeps_attention or self.problem.gives_origins
        history = {
            "tokens": ops.zeros(shape, dtype="int32"),
            "log_probabilities": ops.zeros(shape, dtype="float32"),
        }
        if keeps_beams:
            history["beams"] = ops.zeros(shape, dtype="int32")
        return history

    def advance(self, loop: dict, fixed: dict) -> dict:
        """Take one step."""
        index, live = loop["index"], loop["live"]
        last = ops.reshape(live["last"], (-1,))
        origins = live["history"].get("beams")
        logits, state = self.problem.step(last, loop["state"], index, fixed["constants"], origins)
        advanced = {"index": index + 1}
        if self.problem.keeps_attention:
            weights = self.problem.attention(state)
            advanced["weights"] = loops.write_step(loop["weights"], index, weights)
        if self.coverage_penalty:
            reached = live["coverage"] + self._by_beam(ops.cast(weights, "float32"))
            live = {**live, "coverage": reached}
        candidates = self._candidates(logits, live, index, fixed)
        completed = self._completed(candidates, live, index, fixed.get("mask"))
        # Those done come first, so they stay where scores tie.
        both = tree.map_structure(lambda *x: ops.concatenate(x, axis=1), loop["done"], completed)
        _, order = loops.ordered_top_k(both["scores"], self.n_best)
        done = gather_beams(both, order)
        going_on, parents = self._going_on(candidates, live, done, fixed["limits"])
        if self.beam_size > 1:  # the rows of the state follow the beams
            first = ops.arange(size_of(parents, 0), dtype="int32")[:, None] * self.beam_size
            rows = ops.reshape(first + parents, (-1,))
            state = self.problem.map_rows(lambda x: take_rows(x, rows), lambda x: x, state)
        return {**advanced, "state": state, "live": going_on, "done": done}

    def _candidates(self, logits: Tensor, live: dict, index: Tensor, fixed: dict) -> dict:
        """Return each sentence's `2K` best extensions; `K` or fewer end, so at least `K` go on."""
        count = min(2 * self.beam_size, logits.shape[-1])
        history = live["history"]
        prefix = ops.reshape(history["tokens"], (-1, self.problem.longest))
        forced = None
        if "prefix" in fixed:
            forced = broadcast_rows(fixed["prefix"], self.beam_size)
        allowed = self.problem.allowed(logits, prefix, index, forced)
        values, tokens = loops.chunked_top_k(allowed, count)
        values = loops.normalize(values, ops.logsumexp(logits, axis=-1, keepdims=True))
        totals = live["log_probabilities"][:, :, None] + self._by_beam(values)
        flat = (-1, self.beam_size * count)
        totals, places = loops.ordered_top_k(ops.reshape(totals, flat), 2 * self.beam_size)
        beams = places // count
        of_extensions = (ops.reshape(tokens, flat), ops.reshape(values, flat))
        last, terms = gather_beams(of_extensions, places)
        columns = {"tokens": last, "log_probabilities": terms, "beams": beams}
        grown = gather_beams(history, beams)
        return {
            "log_probabilities": totals,
            "beams": beams,
            "last": last,
            "complete": (last == self.problem.end_id) | (index + 1 >= fixed["limits"])[:, None],
            "history": {
                name: loops.write_column(grown[name], index, columns[name]) for name in history
            },
        }

    def _completed(self, candidates: dict, live: dict, index: Tensor, mask: Tensor) -> dict:
        """Return the `K` best candidates with their scores, `-inf` where one is not complete."""
        best = tree.map_structure(lambda x: x[:, : self.beam_size], candidates)
        length = index + 1
        scores = best["log_probabilities"] / self.length_penalty(ops.cast(length, "float32"))
        if self.coverage_penalty:
            penalties = self.coverage_penalty(live["coverage"], mask)
            scores = scores + gather_beams(penalties, best["beams"])
        return {
            "scores": ops.where(best["complete"], scores, NEVER),
            "log_probabilities": best["log_probabilities"],
            "lengths": ops.broadcast_to(length, sizes_from(scores, 0)),
            "history": best["history"],
        }

    def _going_on(self, candidates: dict, live: dict, done: dict, limits: Tensor) -> tuple:
        """Return the `K` best prefixes that can still win, the others empty, and their parents."""
        probable = ops.where(candidates["complete"], NEVER, candidates["log_probabilities"])
        probable, order = loops.ordered_top_k(probable, self.beam_size)
        highest = self.length_penalty(ops.cast(limits, "float32"))
        bound = probable / ops.reshape(highest, (-1, 1))
        worst = done["scores"][:, -1:]
        kept = {name: candidates[name] for name in ("beams", "last", "history")}
        going_on = gather_beams(kept, order)
        parents = going_on.pop("beams")
        # What is NaN stays, for the result to say so.
        going_on["log_probabilities"] = ops.where(bound <= worst, NEVER, probable)
        if self.coverage_penalty:
            going_on["coverage"] = gather_beams(live["coverage"], parents)
        return going_on, parents

    def _by_beam(self, x: Tensor) -> Tensor:
        """`(R, ...)` is `(B, K, ...)`."""
        rows, *rest = sizes_from(x, 0)
        return reshaped(x, (rows // self.beam_size, self.beam_size, *rest))
