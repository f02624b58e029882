"""One entry point to all searches, and their options, each described in one place.

The command takes the help of its flags from the docstring of `SearchOptions`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..ops.types import Tensor
from .beam import beam_search, check_n_best
from .loop import DecodingResult
from .problem import check_integer, check_number
from .single import check_sampling, greedy_search, sample

# Tokens that a hypothesis may have beyond its multiple of the source's tokens.
SPARE_TOKENS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How `search` looks for hypotheses. Equal options hash alike, and share one compiled search.

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search, which applies no penalty.
            Ignored when tokens are sampled.
        n_best: hypotheses to return of each sentence, at most `beam_size`; when tokens are
            sampled, the number of independent samples, without that bound.
        length_penalty: alpha of GNMT's length penalty; 0 for none. Larger values favour longer
            hypotheses.
        coverage_penalty: beta of GNMT's coverage penalty, which favours hypotheses that attend to
            the whole source; 0 for none. It needs attention.
        max_length: most tokens, the end counted; a hypothesis that has as many may lack its end.
        max_length_ratio: most tokens as a multiple of the source's tokens, with ten to spare, where
            that is less than `max_length`; null for no such limit.
        min_length: fewest tokens, the end not counted.
        no_repeat_ngram: never write the same n-gram of this length twice; 0 allows it.
        sample: draw tokens at random in place of searching for the best.
        temperature: of the samples; below 1 sharpens the distribution, above 1 flattens it.
        top_k: sample from this many of the likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that make up this probability; 1 for all.
        seed: of the samples; the same seed draws the same samples of a text, whatever else is
            searched, null draws anew at each call.
        batch_size: sentences searched together.
        streams: batches that the applications search at once, a thread each; null for one on each
            core, eight at most, and one on a GPU. Results do not depend on it. `search` ignores
            `batch_size` and `streams`.

    Raises:
        ValueError: when a field has a wrong type or lies outside its range, `n_best` exceeds
            `beam_size` without sampling, or `min_length` exceeds `max_length`.

    Example:

    >>> options = SearchOptions(beam_size=4, n_best=2)
    >>> options.replace(beam_size=None, n_best=3).n_best
    3
    """

    beam_size: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    max_length: int = 100
    max_length_ratio: float | None = 3.0
    min_length: int = 0
    no_repeat_ngram: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    batch_size: int = 64
    streams: int | None = None

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_length", "batch_size"):
            check_integer(name, getattr(self, name), 1)
        for name in ("min_length", "no_repeat_ngram"):
            check_integer(name, getattr(self, name), 0)
        if self.streams is not None:
            check_integer("streams", self.streams, 1)
        if self.seed is not None:
            check_integer("seed", self.seed, 0)
        if not isinstance(self.sample, bool):
            raise ValueError(f"`sample` should be True or False. Received: {self.sample!r}")
        for name in ("length_penalty", "coverage_penalty"):
            check_number(name, getattr(self, name), "of at least 0", lambda x: x >= 0)
        if self.max_length_ratio is not None:
            check_number("max_length_ratio", self.max_length_ratio, "above 0", lambda x: x > 0)
        check_sampling(self.temperature, self.top_k, self.top_p)
        if not self.sample:
            check_n_best(self.n_best, self.beam_size)
        if self.min_length > self.max_length:
            raise ValueError(
                "`min_length` should be at most `max_length`. "
                f"Received: min_length={self.min_length}, max_length={self.max_length}"
            )

    def replace(self, **changes: Any) -> "SearchOptions":
        """Return these options with changes; a change to None keeps the option as it is."""
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)

    @property
    def uses_coverage(self) -> bool:
        """Whether the search needs attention weights for its coverage penalty."""
        return bool(self.coverage_penalty) and self.beam_size > 1 and not self.sample

    def longest(self, source_length: int | None = None) -> int:
        """Return the most tokens of any hypothesis, the end counted, for sources up to a length."""
        shortest = self.min_length + 1
        longest = max(shortest, self.max_length)
        if source_length is None or self.max_length_ratio is None:
            return longest
        # In float32, as in `limits`: another rounding might cut a sentence.
        with np.errstate(over="ignore"):
            words = np.float32(source_length) * np.float32(self.max_length_ratio)
        words = min(words, longest)
        return min(longest, max(shortest, math.ceil(words) + SPARE_TOKENS))

    def limits(self, source_lengths: Tensor) -> Tensor:
        """Return the most tokens of each sentence `(B,)`, the end counted."""
        shortest, longest = self.min_length + 1, self.longest()
        if self.max_length_ratio is None:
            return ops.full(ops.shape(source_lengths), longest, dtype="int32")
        words = ops.cast(source_lengths, "float32") * self.max_length_ratio
        words = ops.ceil(ops.minimum(words, float(longest)))
        return ops.clip(ops.cast(words, "int32") + SPARE_TOKENS, shortest, longest)


def search(
    step: Callable,
    state: Any,
    options: SearchOptions,
    *,
    start_id: Any,
    end_id: int,
    pad_id: int = 0,
    lengths: Tensor = None,
    attention_key: str | None = None,
    attention_mask: Tensor = None,
    constant_keys: Sequence[str] = (),
    sentence_keys: Sequence[str] = (),
    growing_axes: Mapping[str, int] | None = None,
    shrink_batch: bool = False,
    longest: int | None = None,
    room: int | None = None,
    seed: int | keras.random.SeedGenerator | Tensor | None = None,
    prefix: Tensor = None,
) -> DecodingResult:
    """Search as the options say: by sampling, greedily (a beam of 1) or with a beam.

    Every search runs eagerly, in a `tf.function` (batch size and memory length may be open) and
    under `jax.jit`.

    Args:
        step: Callable `(tokens (R,), state, index) -> (logits (R, V), state)`, where `R` is the
            number of sentences times the hypotheses of each. `index` is an integer scalar tensor,
            0 at first. The state keeps its structure, shapes and dtypes.
        state: Nested structure of tensors, each with `B` rows: all that the step needs to know. The
            search repeats it for the hypotheses of a sentence, and reorders it with them.
        options: The `SearchOptions`.
        start_id: Integer, the token before the first, or an integer tensor `(B,)`.
        end_id: Integer, the token that completes a hypothesis.
        pad_id: Integer, what follows the end token in the result.
        lengths: Integer tensor `(B,)`, the tokens of each source, to which
            `options.max_length_ratio` applies. `None`: `options.max_length` alone limits.
        attention_key: Name of the entry of `state` in which the step leaves its attention weights
            `(R, S)`; zeros before the first step. `None`: no attention is kept.
        attention_mask: Boolean tensor `(B, S)`, True where a memory step counts for the coverage
            penalty. Give it with padded memories: padding would count as not covered.
        constant_keys: Names of the entries of `state` that no step changes, such as the memory:
            the search repeats them once for the hypotheses, and never reorders them.
        sentence_keys: Names of entries, constant or not, that the `K` hypotheses of a beam share:
            they keep a row for each sentence, and do not move. One in `growing_axes` has `K` places
            for each step, `t K + k` for hypothesis `k` at step `t`; `state["origins"]` `(B, K, L)`
            then tells the step which hypothesis took each step before: see `mask_of_origins`. With
            `K` of 1, and in sampling, each hypothesis has its own rows, and there are no origins.
        growing_axes: For names of entries of `state` that have a place for each step (a cache), the
            axis of the places; the search adds more as they fill. Where sizes are fixed, as under
            XLA, give all places: none are added then.
        shrink_batch: Whether sentences leave the batch when a quarter of them is finished. Results
            stay the same. All that the step reads and that has rows must then be in `state`. JAX
            ignores it; XLA on TensorFlow cannot do it.
        longest: Integer, most tokens of all hypotheses. It sizes the buffers where `lengths` is a
            traced tensor under `jax.jit`: `options.longest(source_length)` of padded sources.
        room: Integer, steps that the buffers have room for; the search, which is not by sampling,
            stops there, and the scores of a sentence that needs more are NaN. All sizes are then
            known, as a program for LiteRT needs. `None`: as many as the longest limit.
        seed: What `sample` takes, such as a seed for each sentence, in place of `options.seed`.
        prefix: Integer tensor `(B, P)`, tokens that each hypothesis begins with, padded behind with
            `pad_id`. They count as written: for limits, scores and log-probabilities. No rule
            forbids them, such as `no_repeat_ngram`.

    Returns:
        A `DecodingResult` with `options.n_best` hypotheses for each sentence, best first.

    Raises:
        ValueError: when an argument is out of its range, the tensors of `state` differ in their
            number of rows, a coverage penalty comes without attention, or the step returns
            another structure than it was given.

    Example:

    >>> # After token 1 (the start) comes 2 or 3. After 2 the end is only as likely as 2 again.
    >>> table = np.array([[1, 0, 0, 0], [0, 0, 0.6, 0.4], [0.5, 0, 0.5, 0], [0.9, 0, 0, 0.1]])
    >>> def step(tokens, state, index):
    ...     return ops.take(ops.log(table), tokens, axis=0), state
    >>> options = SearchOptions(beam_size=4, length_penalty=0.0, max_length=4)
    >>> result = search(step, {"row": ops.zeros((1, 1))}, options, start_id=1, end_id=0)
    >>> ops.convert_to_numpy(result.tokens).tolist()
    [[[3, 0, 0, 0]]]
    """
    common: dict[str, Any] = {
        "start_id": start_id,
        "end_id": end_id,
        "pad_id": pad_id,
        "max_length": options.longest() if lengths is None else options.limits(lengths),
        "longest": options.longest() if longest is None else min(longest, options.longest()),
        "min_length": options.min_length + 1,
        "no_repeat_ngram": options.no_repeat_ngram,
        "attention_key": attention_key,
        "constant_keys": constant_keys,
        "growing_axes": growing_axes,
        "shrink_batch": shrink_batch,
        "prefix": prefix,
    }

    def chosen(*names: str) -> dict[str, Any]:
        return {name: getattr(options, name) for name in names}

    if options.sample:
        if room is not None:
            raise ValueError(f"Sampling has no `room`: leave it out. Received: room={room}")
        seed = options.seed if seed is None else seed
        of_samples = chosen("n_best", "temperature", "top_k", "top_p")
        return sample(step, state, seed=seed, **of_samples, **common)
    if options.beam_size == 1:
        return greedy_search(step, state, room=room, **common)
    of_beams = chosen("beam_size", "n_best", "length_penalty", "coverage_penalty")
    return beam_search(
        step,
        state,
        attention_mask=attention_mask,
        sentence_keys=sentence_keys,
        room=room,
        **of_beams,
        **common,
    )
