"""One hypothesis a row: the loop that greedy search and sampling share."""

from collections.abc import Callable

from keras import ops, tree

from keras_attention.decoding.arguments import LengthLimits
from keras_attention.decoding.constraints import Constraints
from keras_attention.decoding.departures import Departures
from keras_attention.decoding.loop import (
    Rooms,
    history_buffer,
    normalize,
    pick,
    run_loop,
    write_column,
    write_step,
)
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.rows import Stepper, broadcast_rows


class SingleHypothesisLoop:
    """Extends each row by the token that `choose` picks, until every row is complete.

    A complete row is frozen: as long as it goes through the step with the others, its tokens, its
    length, its scores and its attention stay.

    Args:
        stepper: The step function over `R` rows.
        choose: Callable `(logits (R, V), normalizer (R,), index, numbers (R,)) -> (tokens (R,),
            scores (R,))`: the tokens taken, out of logits in which the forbidden ones are `-inf`,
            and their terms of the score. `normalizer` is the log of the sum of the exponentials of
            the logits before tokens were forbidden; `numbers` are those of the rows at first.
        constraints: What a row may not continue with.
        limits: Most tokens of each sentence.
        start_id: Integer, or integer tensor `(B,)`.
        end_id: Integer.
        pad_id: Integer.
        copies: Integer, rows of each sentence.
        keeps_attention: Boolean, whether the attention history is wanted.
        shrinks: Boolean, whether complete rows leave the batch.
    """

    def __init__(
        self,
        stepper: Stepper,
        choose: Callable,
        constraints: Constraints,
        limits: LengthLimits,
        *,
        start_id,
        end_id: int,
        pad_id: int,
        copies: int = 1,
        keeps_attention: bool = False,
        shrinks: bool = False,
    ):
        self.stepper = stepper
        self.choose = choose
        self.constraints = constraints
        self.longest = limits.longest
        self.limits = broadcast_rows(limits.each, copies)
        self.start_id = start_id
        self.end_id = end_id
        self.pad_id = pad_id
        self.copies = copies
        self.keeps_attention = keeps_attention
        self.shrinks = shrinks

    def run(self) -> DecodingResult:
        """Return the complete hypotheses, `copies` of each sentence, in the order of the rows."""
        results = run_loop(
            lambda loop: ops.any(loop["open"]) & (loop["index"] < self.longest),
            self._advance,
            *self._first(),
            self._results,
            Rooms(self.stepper.growing_axes, self.longest),
            Departures(_is_open) if self.shrinks else None,
        )
        return DecodingResult(**tree.map_structure(self._by_sentence, results))

    def _results(self, loop: dict, fixed: dict) -> dict:
        is_token = ops.arange(self.longest, dtype="int32") < loop["lengths"][:, None]
        results = {key: loop[key] for key in ("lengths", "scores", "log_probabilities")}
        results["tokens"] = ops.where(is_token, loop["tokens"], self.pad_id)
        if self.keeps_attention:
            results["attention"] = ops.swapaxes(loop["weights"], 0, 1)
        return results

    def _by_sentence(self, x):
        """`(B * copies, ...)` is `(B, copies, ...)`."""
        return ops.reshape(x, (self.stepper.batch_size, self.copies, *ops.shape(x)[1:]))

    def _first(self) -> tuple[dict, dict]:
        batch_size = self.stepper.batch_size
        rows = batch_size * self.copies
        start = ops.broadcast_to(ops.cast(self.start_id, "int32"), (batch_size,))
        loop = {
            "index": ops.convert_to_tensor(0, dtype="int32"),
            "state": self.stepper.initial,
            "last": broadcast_rows(start, self.copies),
            "open": ops.ones((rows,), dtype="bool"),
            # Padding may be no token of the model, so a complete row is filled with end tokens.
            "tokens": ops.full((rows, self.longest), self.end_id, dtype="int32"),
            "lengths": ops.zeros((rows,), dtype="int32"),
            "scores": ops.zeros((rows,), dtype="float32"),
            "log_probabilities": ops.zeros((rows,), dtype="float32"),
        }
        if self.keeps_attention:
            weights = self.stepper.attention(self.stepper.initial)
            loop["weights"] = history_buffer(weights, self.longest)
        return loop, {
            "limits": self.limits,
            "constants": self.stepper.constants,
            "numbers": ops.arange(rows, dtype="int32"),
        }

    def _advance(self, loop: dict, fixed: dict) -> dict:
        index, is_open = loop["index"], loop["open"]
        logits, state = self.stepper(loop["last"], loop["state"], index, fixed["constants"])
        normalizer = ops.logsumexp(logits, axis=-1)
        allowed = self.constraints(logits, loop["tokens"], index)
        tokens, scores = self.choose(allowed, normalizer, index, fixed["numbers"])
        log_probabilities = normalize(pick(allowed, tokens), normalizer)
        # A row that nothing can follow ends, with a log-probability that says so.
        tokens = ops.where(is_open & ~ops.isinf(log_probabilities), tokens, self.end_id)
        advanced = {
            "index": index + 1,
            "state": state,
            "last": tokens,
            "open": is_open & (tokens != self.end_id) & (index + 1 < fixed["limits"]),
            "tokens": write_column(loop["tokens"], index, tokens),
            "lengths": loop["lengths"] + ops.cast(is_open, "int32"),
            "scores": loop["scores"] + ops.where(is_open, scores, 0.0),
            "log_probabilities": loop["log_probabilities"]
            + ops.where(is_open, log_probabilities, 0.0),
        }
        if self.keeps_attention:
            weights = self.stepper.attention(state)
            kept = ops.where(is_open[:, None], weights, ops.zeros_like(weights))
            advanced["weights"] = write_step(loop["weights"], index, kept)
        return advanced


def _is_open(loop: dict):
    return loop["open"]
