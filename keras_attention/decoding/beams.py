"""The loop of beam search: its variables, and what one step does to them."""

from collections.abc import Callable

from keras import ops, tree

from keras_attention.decoding.arguments import LengthLimits
from keras_attention.decoding.constraints import Constraints
from keras_attention.decoding.departures import Departures
from keras_attention.decoding.loop import (
    Rooms,
    history_buffer,
    normalize,
    run_loop,
    write_column,
    write_step,
)
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.rows import Stepper, broadcast_rows, gather_beams, take_rows
from keras_attention.decoding.top_k import chunked_top_k, ordered_top_k

NEVER = float("-inf")


class BeamLoop:
    """Grows `K` prefixes of each of `B` sentences, and keeps the `N` best that are complete.

    The variables of the loop, with `R = B * K` rows:

    ```
    index    scalar     the number of the step
    state    R rows     the caller's
    live     (B, K)     prefixes, best first: log_probabilities, last token, history, coverage
    done     (B, N)     complete ones, best first: scores, log_probabilities, lengths, history
    weights  (L, R, S)  the attention weights of each step, row by row, as the step left them
    ```

    A history is `tokens (..., L)`, and with attention `beams (..., L)`: the beam that each token
    was the continuation of, which tells the row of `weights` that is its own. So a beam that moves
    takes along one small integer a token; the weights, `S` times larger, are written once and
    gathered once, at the end. (The tokens could be traced back at the end as well, but blocking
    n-grams needs them at hand in each step, and they are cheap to move.)

    A beam with log-probability `-inf` is empty: it goes through the step, and leads to nothing.

    Args:
        stepper: The step function over `R` rows.
        constraints: What a prefix may not continue with.
        limits: Most tokens of each sentence.
        length_penalty: Callable from lengths to divisors.
        coverage_penalty: Callable from coverage `(B, K, S)` and a mask `(B, 1, S)` or None to
            terms `(B, K)`, or None.
        attention_mask: Boolean tensor `(B, S)`, the mask of the coverage penalty, or None.
        start_id: Integer, or integer tensor `(B,)`.
        end_id: Integer.
        pad_id: Integer.
        beam_size: Integer, `K`.
        n_best: Integer, `N`.
        keeps_attention: Boolean, whether the attention history is wanted.
        shrinks: Boolean, whether finished sentences leave the batch.
    """

    def __init__(
        self,
        stepper: Stepper,
        constraints: Constraints,
        limits: LengthLimits,
        length_penalty: Callable,
        coverage_penalty: Callable | None,
        attention_mask=None,
        *,
        start_id,
        end_id: int,
        pad_id: int,
        beam_size: int,
        n_best: int,
        keeps_attention: bool = False,
        shrinks: bool = False,
    ):
        self.stepper = stepper
        self.constraints = constraints
        self.limits = limits
        self.length_penalty = length_penalty
        self.coverage_penalty = coverage_penalty
        self.attention_mask = attention_mask
        self.start_id = start_id
        self.end_id = end_id
        self.pad_id = pad_id
        self.beam_size = beam_size
        self.n_best = n_best
        self.keeps_attention = keeps_attention
        self.shrinks = shrinks

    def run(self) -> DecodingResult:
        """Return the `N` best hypotheses of each sentence."""
        results = run_loop(
            self._unfinished,
            self._advance,
            *self._first(),
            self._results,
            Rooms(self.stepper.growing_axes, self.limits.longest),
            Departures(_is_open, self.beam_size) if self.shrinks else None,
        )
        return DecodingResult(**results)

    def _results(self, loop: dict, fixed: dict) -> dict:
        done = loop["done"]
        results = {key: done[key] for key in ("lengths", "scores", "log_probabilities")}
        results["tokens"] = done["history"]["tokens"]
        if self.keeps_attention:
            results["attention"] = self._attention(loop["weights"], done)
        return results

    def _first(self) -> tuple[dict, dict]:
        """Return the variables before the first step, and what no step changes."""
        batch_size, state = self.stepper.batch_size, self.stepper.initial
        start = ops.broadcast_to(ops.cast(self.start_id, "int32"), (batch_size,))
        # The beams of a sentence are alike as yet: one of them grows, into K different ones.
        empty = ops.cast(ops.arange(self.beam_size) > 0, "float32")
        live = {
            "log_probabilities": ops.broadcast_to(
                ops.where(empty > 0, NEVER, empty), (batch_size, self.beam_size)
            ),
            "last": self._by_beam(broadcast_rows(start, self.beam_size)),
            "history": self._no_history(self.beam_size),
        }
        done = {
            "scores": ops.full((batch_size, self.n_best), NEVER, dtype="float32"),
            "log_probabilities": ops.full((batch_size, self.n_best), NEVER, dtype="float32"),
            "lengths": ops.zeros((batch_size, self.n_best), dtype="int32"),
            "history": self._no_history(self.n_best),
        }
        first = {"index": ops.convert_to_tensor(0, dtype="int32"), "state": state, "done": done}
        if self.keeps_attention:
            weights = self.stepper.attention(state)
            first["weights"] = history_buffer(weights, self.limits.longest)
        if self.coverage_penalty:
            live["coverage"] = self._by_beam(ops.zeros(ops.shape(weights), dtype="float32"))
        fixed = {"limits": self.limits.each, "constants": self.stepper.constants}
        if self.coverage_penalty and self.attention_mask is not None:
            fixed["mask"] = ops.cast(self.attention_mask, "bool")[:, None, :]
        return {**first, "live": live}, fixed

    def _no_history(self, count: int) -> dict:
        shape = (self.stepper.batch_size, count, self.limits.longest)
        history = {"tokens": ops.full(shape, self.pad_id, dtype="int32")}
        if self.keeps_attention:
            history["beams"] = ops.zeros(shape, dtype="int32")
        return history

    def _unfinished(self, loop: dict):
        return ops.any(_is_open(loop)) & (loop["index"] < self.limits.longest)

    def _advance(self, loop: dict, fixed: dict) -> dict:
        """Take one step."""
        index, live = loop["index"], loop["live"]
        last = ops.reshape(live["last"], (-1,))
        logits, state = self.stepper(last, loop["state"], index, fixed["constants"])
        advanced = {"index": index + 1}
        if self.keeps_attention:
            weights = self.stepper.attention(state)
            advanced["weights"] = write_step(loop["weights"], index, weights)
        if self.coverage_penalty:
            reached = live["coverage"] + self._by_beam(ops.cast(weights, "float32"))
            live = {**live, "coverage": reached}
        candidates = self._candidates(logits, live, index, fixed["limits"])
        completed = self._completed(candidates, live, index, fixed.get("mask"))
        done = self._best(loop["done"], completed)
        going_on, parents = self._going_on(candidates, live, done, fixed["limits"])
        return {**advanced, "state": self._moved(state, parents), "live": going_on, "done": done}

    def _candidates(self, logits, live: dict, index, limits) -> dict:
        """Return the `2K` most probable extensions of each sentence, `(B, 2K)`, best first.

        A prefix has one extension by the end token, so at least `K` of the `2K` go on. They are
        among the `2K` best of each prefix: `K` short searches through `V`, one through `2 K K`.
        """
        count = min(2 * self.beam_size, logits.shape[-1])
        prefix = ops.reshape(live["history"]["tokens"], (-1, self.limits.longest))
        values, tokens = chunked_top_k(self.constraints(logits, prefix, index), count)
        values = normalize(values, ops.logsumexp(logits, axis=-1, keepdims=True))
        totals = live["log_probabilities"][:, :, None] + self._by_beam(values)
        flat = (ops.shape(totals)[0], self.beam_size * count)
        totals, places = ordered_top_k(ops.reshape(totals, flat), 2 * self.beam_size)
        beams = places // count
        tokens = gather_beams(ops.reshape(tokens, flat), places)
        at_limit = (index + 1 >= limits)[:, None]
        return {
            "log_probabilities": totals,
            "beams": beams,
            "last": tokens,
            "complete": (tokens == self.end_id) | at_limit,
            "history": self._extended(live["history"], beams, tokens, index),
        }

    def _extended(self, history: dict, beams, tokens, index) -> dict:
        moved = tree.map_structure(lambda x: gather_beams(x, beams), history)
        extended = {"tokens": write_column(moved["tokens"], index, tokens)}
        if self.keeps_attention:
            extended["beams"] = write_column(moved["beams"], index, beams)
        return extended

    def _completed(self, candidates: dict, live: dict, index, mask) -> dict:
        """Return the `K` best candidates with their scores, `-inf` where one is not complete.

        A candidate below the `K` best would not be in a beam of `K`; it is there to take the place
        of one that ends.
        """
        best = tree.map_structure(lambda x: x[:, : self.beam_size], candidates)
        length = index + 1
        scores = best["log_probabilities"] / self.length_penalty(ops.cast(length, "float32"))
        if self.coverage_penalty:
            penalties = self.coverage_penalty(live["coverage"], mask)
            scores = scores + gather_beams(penalties, best["beams"])
        return {
            "scores": ops.where(best["complete"], scores, NEVER),
            "log_probabilities": best["log_probabilities"],
            "lengths": ops.broadcast_to(length, ops.shape(scores)),
            "history": best["history"],
        }

    def _best(self, done: dict, completed: dict) -> dict:
        """Return the `N` best of both. What is done comes first, so it stays where scores tie."""
        both = tree.map_structure(lambda *x: ops.concatenate(x, axis=1), done, completed)
        _, order = ordered_top_k(both["scores"], self.n_best)
        return tree.map_structure(lambda x: gather_beams(x, order), both)

    def _going_on(self, candidates: dict, live: dict, done: dict, limits) -> tuple:
        """Return the `K` best prefixes among the candidates, and the beams they continue.

        A prefix that cannot beat the worst hypothesis kept is emptied. None of its continuations
        could be kept, nor any of the prefixes below it, so that nothing takes its place.
        """
        probable = ops.where(candidates["complete"], NEVER, candidates["log_probabilities"])
        probable, order = ordered_top_k(probable, self.beam_size)
        highest = self.length_penalty(ops.cast(limits, "float32"))
        bound = probable / ops.reshape(highest, (-1, 1))
        worst = done["scores"][:, -1:]
        parents = gather_beams(candidates["beams"], order)
        going_on = {
            "log_probabilities": ops.where(bound > worst, probable, NEVER),
            "last": gather_beams(candidates["last"], order),
            "history": tree.map_structure(lambda x: gather_beams(x, order), candidates["history"]),
        }
        if self.coverage_penalty:
            going_on["coverage"] = gather_beams(live["coverage"], parents)
        return going_on, parents

    def _moved(self, state, parents):
        """Let the rows of the state follow the beams."""
        if self.beam_size == 1:
            return state
        return tree.map_structure(
            lambda x: ops.reshape(gather_beams(self._by_beam(x), parents), ops.shape(x)), state
        )

    def _attention(self, weights, done: dict):
        """Return `(B, N, L, S)`: of each hypothesis' tokens the weights, zero after the last."""
        steps, rows, memory = ops.shape(weights)
        step = ops.arange(steps, dtype="int32")
        first = ops.arange(rows // self.beam_size, dtype="int32") * self.beam_size
        places = step * rows + first[:, None, None] + done["history"]["beams"]
        picked = take_rows(ops.reshape(weights, (steps * rows, memory)), places)
        is_token = (step < done["lengths"][:, :, None])[..., None]
        return ops.where(is_token, picked, ops.zeros_like(picked))

    def _by_beam(self, x):
        """`(R, ...)` is `(B, K, ...)`."""
        rows, *rest = ops.shape(x)
        return ops.reshape(x, (rows // self.beam_size, self.beam_size, *rest))


def _is_open(loop: dict):
    """Return whether something may yet be kept of each sentence `(B,)`: not all beams are empty."""
    return ops.any(loop["live"]["log_probabilities"] > NEVER, axis=1)
