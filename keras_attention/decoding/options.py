"""The function `search` and the options of all searches.

The command reads the help of its flags from the docstring of `SearchOptions`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..ops.types import Tensor, check_flag, check_integer, check_number
from .beam import beam_search, check_n_best
from .greedy_and_sampling import check_sampling, greedy_search, sample
from .loop import DecodingResult

# Tokens that a hypothesis may have beyond its multiple of the source's tokens.
SPARE_TOKENS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How `search` looks for hypotheses. Equal options hash alike, and share one compiled search.

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search, which applies no penalty.
            Ignored when tokens are sampled.
        n_best: hypotheses to return for each sentence, at most `beam_size`; when tokens are
            sampled, the number of independent samples, without that bound.
        length_penalty: alpha of GNMT's length penalty; 0 for none. Larger values favour longer
            hypotheses.
        coverage_penalty: beta of GNMT's coverage penalty, which favours hypotheses that attend to
            the whole source; 0 for none. It needs attention.
        max_length: maximum number of tokens, the end counted; a hypothesis that has as many may
            lack its end.
        max_length_ratio: maximum number of tokens as a multiple of the source's tokens, plus ten,
            if that is less than `max_length`; null for no such limit.
        min_length: minimum number of tokens, the end not counted.
        no_repeat_ngram: never write the same n-gram of this length twice; 0 allows it.
        sample: draw tokens at random in place of searching for the best.
        temperature: divisor of the logits in sampling; below 1 sharpens the distribution, above 1
            flattens it.
        top_k: sample from this many of the likeliest tokens; 0 for all.
        top_p: sample from the likeliest tokens that make up this probability; 1 for all.
        seed: seed of sampling; the same seed draws the same samples for a text, whatever else is
            searched; null draws new ones at each call.
        batch_size: sentences searched together.
        streams: batches that the applications search at the same time, each in a thread; null for
            one on each core, at most eight, and one on a GPU. Results do not depend on it. `search`
            ignores `batch_size` and `streams`.

    Raises:
        ValueError: if a field has a wrong type or lies outside of its range, `n_best` exceeds
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
        check_flag("sample", self.sample)
        for name in ("length_penalty", "coverage_penalty"):
            check_number(name, getattr(self, name))
        if self.max_length_ratio is not None:
            check_number("max_length_ratio", self.max_length_ratio, above=True)
        check_sampling(self.temperature, self.top_k, self.top_p)
        if not self.sample:
            check_n_best(self.n_best, self.beam_size)
        if self.min_length > self.max_length:
            raise ValueError(
                "`min_length` should be at most `max_length`. "
                f"Received: min_length={self.min_length}, max_length={self.max_length}"
            )

    def replace(self, **changes: Any) -> "SearchOptions":
        """Return these options with changes; None keeps an option as it is."""
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)

    @property
    def uses_coverage(self) -> bool:
        """Return whether the search needs attention weights for its coverage penalty."""
        return bool(self.coverage_penalty) and self.beam_size > 1 and not self.sample

    def longest(self, source_length: int | None = None) -> int:
        """Return the maximum number of tokens, the end counted, for sources up to a length."""
        shortest = self.min_length + 1
        longest = max(shortest, self.max_length)
        if source_length is None or self.max_length_ratio is None:
            return longest
        # In float32, as in `limits`: another rounding might cut a hypothesis short.
        with np.errstate(over="ignore"):
            words = np.float32(source_length) * np.float32(self.max_length_ratio)
        words = min(words, longest)
        return min(longest, max(shortest, math.ceil(words) + SPARE_TOKENS))

    def limits(self, source_lengths: Tensor) -> Tensor:
        """Return the maximum number of tokens of each sentence `(B,)`, the end counted."""
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
    lengths: Tensor = None,
    attention_mask: Tensor = None,
    seed: int | keras.random.SeedGenerator | Tensor | None = None,
    longest: int | None = None,
    room: int | None = None,
    sentence_keys: Sequence[str] = (),
    **problem: Any,
) -> DecodingResult:
    """Search by sampling, greedily (a beam of 1) or with a beam, as the options say.

    Every search runs eagerly, in a `tf.function` (batch size and memory length may be open) and
    under `jax.jit`.

    Args:
        step: As in `SearchProblem`.
        state: As in `SearchProblem`.
        options: The `SearchOptions`.
        lengths: Integer tensor `(B,)`, the number of tokens of each source, to which
            `options.max_length_ratio` applies. `None`: only `options.max_length` applies.
        attention_mask: Boolean tensor `(B, S)`, True where a memory step counts for the coverage
            penalty. Pass it with padded memories: padding would count as not covered.
        seed: A seed as `sample` takes it, such as one for each sentence, instead of `options.seed`.
        longest: As in `SearchProblem`: where `lengths` is a traced tensor under `jax.jit`,
            `options.longest(source_length)` for padded sources.
        room: As in `SearchProblem`.
        sentence_keys: As in `SearchProblem`; sampling and greedy search ignore it.
        **problem: The other arguments of `SearchProblem`: `start_id`, `end_id`, and those with
            defaults, without the ones that the options set.

    Returns:
        A `DecodingResult` with `options.n_best` hypotheses for each sentence, best first.

    Raises:
        ValueError: if an argument is out of its range, the tensors of `state` differ in their
            number of rows, a coverage penalty comes without attention, or the step returns a state
            of another structure.

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
    limits: dict[str, Any] = {
        "max_length": options.longest() if lengths is None else options.limits(lengths),
        "longest": options.longest() if longest is None else min(longest, options.longest()),
        "min_length": options.min_length + 1,
        "no_repeat_ngram": options.no_repeat_ngram,
    }

    def chosen(*names: str) -> dict[str, Any]:
        return {name: getattr(options, name) for name in names}

    if options.sample:
        if room is not None:
            raise ValueError(f"Sampling does not support `room`. Received: room={room}")
        seed = options.seed if seed is None else seed
        sampling = chosen("n_best", "temperature", "top_k", "top_p")
        return sample(step, state, seed=seed, **sampling, **limits, **problem)
    if options.beam_size == 1:
        return greedy_search(step, state, room=room, **limits, **problem)
    beams = chosen("beam_size", "n_best", "length_penalty", "coverage_penalty")
    beams |= {"attention_mask": attention_mask, "sentence_keys": sentence_keys, "room": room}
    return beam_search(step, state, **beams, **limits, **problem)
