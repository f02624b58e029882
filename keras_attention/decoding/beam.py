"""Beam search, which extends the `K` most probable prefixes of each sentence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keras import ops, tree

from ..ops.shapes import reshaped, size_of, sizes_from
from ..ops.types import Tensor, check_integer, check_number
from . import loop as loops
from .loop import DecodingResult
from .problem import (
    NEVER,
    SearchProblem,
    broadcast_rows,
    gather_beams,
    is_number,
    take_rows,
)


class LengthPenalty:
    """Divisor of a hypothesis' log-probability: `lp(n) = ((5 + n) / 6) ** alpha` for `n` tokens.

    The end token counts. `alpha = 0` divides by 1; a larger `alpha` favours longer hypotheses.

    Args:
        alpha: Float, at least 0. Values from 0.6 to 1 are usual in translation.

    Call arguments:
        length: Float tensor or number, the lengths.

    Returns:
        The divisors, of the same shape.

    Reference:
        [Wu et al. 2016](https://arxiv.org/abs/1609.08144), section 7 ("GNMT").

    Example:

    >>> float(LengthPenalty(alpha=1.0)(7))
    2.0
    """

    def __init__(self, alpha: float = 0.0) -> None:
        self.alpha = float(check_number("alpha", alpha))

    def __call__(self, length: Tensor) -> Tensor:
        return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, self.alpha)


class CoveragePenalty:
    """Term that lowers the score of a hypothesis which leaves memory steps unattended.

    `cp = beta * sum_s log(min(max(coverage_s, floor), 1))`, where `coverage_s` is the attention
    of all tokens to memory step `s`. The reference is that of `LengthPenalty`.

    Args:
        beta: Float, at least 0. Values around 0.2 are usual in translation.
        floor: Float in (0, 1], the minimum coverage of a step: without it a step that gets no
            attention, which is common with local attention, would make a hypothesis impossible.

    Call arguments:
        coverage: Float tensor `(..., S)`.
        mask: Boolean tensor that broadcasts to it, True where a step counts. Padding gets no
            attention, and would count as uncovered.

    Returns:
        The terms `(...)`.

    Example:

    >>> round(float(CoveragePenalty(beta=1.0)([1.3, 0.5])), 4)
    -0.6931
    """

    def __init__(self, beta: float, floor: float = 1e-6) -> None:
        self.beta = float(check_number("beta", beta))
        self.floor = float(check_number("floor", floor, above=True, maximum=1))

    def __call__(self, coverage: Tensor, mask: Tensor = None) -> Tensor:
        terms = ops.log(ops.clip(ops.cast(coverage, "float32"), self.floor, 1.0))
        if mask is not None:
            terms = ops.where(mask, terms, 0.0)
        return self.beta * ops.sum(terms, axis=-1)


def beam_search(
    step: Callable,
    state: Any,
    *,
    beam_size: int = 4,
    n_best: int = 1,
    length_penalty: float | Callable = 0.0,
    coverage_penalty: float | Callable = 0.0,
    attention_mask: Tensor = None,
    attention_key: str | None = None,
    **problem: Any,
) -> DecodingResult:
    """Search with a beam: keep the `K` most probable prefixes, and the best complete hypotheses.

    Each step extends every prefix by every token. Those of the `K` most probable extensions that
    end (by the end token, or at the maximum length) are complete, and are scored. The `K` most
    probable extensions that do not end are continued, so that complete hypotheses take no beam from
    the others. Prefixes are ranked by `log P`, and a complete hypothesis `Y` by

    `score(Y) = log P(Y) / lp(|Y|) + cp(Y)`.

    A sentence is finished when no prefix can score higher than the worst of its `n_best`
    hypotheses: continuations score at most `log P(prefix) / lp(longest)`. Of equal hypotheses, the
    one completed first wins, then the better prefix, then the lower token.

    Args:
        step: The step function over `B * beam_size` rows, as in `SearchProblem`.
        state: As in `SearchProblem`.
        beam_size: As in `SearchOptions`. A beam of 1 is greedy search only without a length
            penalty.
        n_best: As in `SearchOptions`.
        length_penalty: Float, the `alpha` of a `LengthPenalty`, or such an object: a callable from
            lengths to divisors that are positive and do not decrease with the length.
        coverage_penalty: Float, the `beta` of a `CoveragePenalty`, or such an object: a callable
            `(coverage (B, K, S), mask) -> (B, K)` that is nowhere positive. Needs `attention_key`.
        attention_mask: As in `search`.
        attention_key: As in `SearchProblem`.
        **problem: The other arguments of `SearchProblem`.

    Returns:
        A `DecodingResult` with `n_best` hypotheses for each sentence, best first.

    Raises:
        ValueError: As `search`.

    Reference:
        Wu et al. 2016, section 7.

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
    given = SearchProblem(step, state, copies=beam_size, attention_key=attention_key, **problem)
    return _BeamLoop(given, n_best, length, coverage, attention_mask).run()


def check_n_best(n_best: int, beam_size: int) -> None:
    """Raise a ValueError unless `n_best` is at most `beam_size`."""
    check_integer("n_best", n_best, 1)
    if n_best > beam_size:
        raise ValueError(
            "`n_best` should be at most `beam_size`. "
            f"Received: n_best={n_best}, beam_size={beam_size}"
        )


def _as_penalty(name: str, penalty: float | Callable, kind: type) -> Callable:
    """Return a penalty object, made of a number if that is given."""
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
    """The loop of a beam search with `K` prefixes and `N` hypotheses of each of `B` sentences.

    The variables of the loop, with `R = B * K` rows:

    ```
    index    scalar     index of the step
    state    R rows     the state of the caller
    live     (B, K)     prefixes, best first: log_probabilities, last token, history, coverage
    done     (B, N)     complete ones, best first: scores, log_probabilities, lengths, history
    weights  (L, R, S)  the attention weights of each step, in the order of its rows
    ```

    A history has `tokens (..., L)` and their `log_probabilities (..., L)`. If weights or entries of
    the state are not reordered with the beams, it also has `beams (..., L)`: the beam of the step
    before each token. An empty beam has the log-probability `-inf`.
    """

    problem: SearchProblem
    n_best: int
    length_penalty: Callable
    coverage_penalty: Callable | None
    attention_mask: Tensor

    @property
    def beam_size(self) -> int:
        """The number `K` of prefixes of a sentence."""
        return self.problem.copies

    def run(self) -> DecodingResult:
        """Return the `N` best hypotheses of each sentence."""
        return DecodingResult(**loops.run_loop(self, self.beam_size))

    def is_open(self, loop: dict) -> Tensor:
        """Return whether each sentence `(B,)` has a beam that is not empty."""
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
        # All logits of a step were NaN, and no hypothesis was complete before.
        is_nan = ops.any(ops.isnan(loop["live"]["log_probabilities"]), axis=1, keepdims=True)
        is_nan = is_nan & (done["lengths"] == 0)
        results["scores"] = ops.where(is_nan, float("nan"), results["scores"])
        if self.problem.keeps_attention:
            # The weights of each hypothesis' tokens, (B, N, L, S), zero after the last token.
            steps, rows, memory = sizes_from(loop["weights"], 0)
            first = ops.arange(rows // self.beam_size, dtype="int32") * self.beam_size
            indices = step * rows + first[:, None, None] + history["beams"]
            picked = take_rows(ops.reshape(loop["weights"], (steps * rows, memory)), indices)
            results["attention"] = ops.where(is_token[..., None], picked, ops.zeros_like(picked))
        return results

    def first(self) -> tuple[dict, dict]:
        """Return the variables of the loop, and its constants."""
        problem, beams = self.problem, (self.problem.batch_size, self.beam_size)
        # All beams of a sentence start equal: only one is extended, into K different ones.
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
        # Complete hypotheses come first, so that they stay where scores are equal.
        both = tree.map_structure(lambda *x: ops.concatenate(x, axis=1), loop["done"], completed)
        _, order = loops.ordered_top_k(both["scores"], self.n_best)
        done = gather_beams(both, order)
        continued, parents = self._continued(candidates, live, done, fixed["limits"])
        if self.beam_size > 1:  # the rows of the state follow the beams
            first = ops.arange(size_of(parents, 0), dtype="int32")[:, None] * self.beam_size
            rows = ops.reshape(first + parents, (-1,))
            state = self.problem.map_rows(lambda x: take_rows(x, rows), lambda x: x, state)
        return {**advanced, "state": state, "live": continued, "done": done}

    def _candidates(self, logits: Tensor, live: dict, index: Tensor, fixed: dict) -> dict:
        """Return the best extensions of each sentence, of which at least `K` do not end.

        Each of `K` prefixes ends with each of `E` end tokens, so that these are `K (E + 1)`.
        """
        most = self.beam_size * (1 + len(self.problem.end_ids))
        count = min(most, logits.shape[-1])
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
        totals, indices = loops.ordered_top_k(ops.reshape(totals, flat), most)
        beams = indices // count
        extensions = (ops.reshape(tokens, flat), ops.reshape(values, flat))
        last, terms = gather_beams(extensions, indices)
        columns = {"tokens": last, "log_probabilities": terms, "beams": beams}
        grown = gather_beams(history, beams)
        return {
            "log_probabilities": totals,
            "beams": beams,
            "last": last,
            "complete": self.problem.is_end(last) | (index + 1 >= fixed["limits"])[:, None],
            "history": {
                name: loops.write_column(grown[name], index, columns[name]) for name in history
            },
        }

    def _completed(self, candidates: dict, live: dict, index: Tensor, mask: Tensor) -> dict:
        """Return the `K` best candidates with their scores, `-inf` for those not complete."""
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

    def _continued(self, candidates: dict, live: dict, done: dict, limits: Tensor) -> tuple:
        """Return the `K` best prefixes that can still win, and their parents; others are empty."""
        probable = ops.where(candidates["complete"], NEVER, candidates["log_probabilities"])
        probable, order = loops.ordered_top_k(probable, self.beam_size)
        highest = self.length_penalty(ops.cast(limits, "float32"))
        bound = probable / ops.reshape(highest, (-1, 1))
        worst = done["scores"][:, -1:]
        kept = {name: candidates[name] for name in ("beams", "last", "history")}
        continued = gather_beams(kept, order)
        parents = continued.pop("beams")
        # NaN stays, so that the result has it.
        continued["log_probabilities"] = ops.where(bound <= worst, NEVER, probable)
        if self.coverage_penalty:
            continued["coverage"] = gather_beams(live["coverage"], parents)
        return continued, parents

    def _by_beam(self, x: Tensor) -> Tensor:
        """Reshape `(R, ...)` to `(B, K, ...)`."""
        rows, *rest = sizes_from(x, 0)
        return reshaped(x, (rows // self.beam_size, self.beam_size, *rest))
