"""A model and the searches of `keras_attention.decoding`, put together: ids in, ids out."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_attention.applications.translation.base import TranslationModel
from keras_attention.decoding import DecodingResult, beam_search, greedy_search, sample
from keras_attention.text import END_ID, PAD_ID, START_ID

# Tokens that a translation may have beyond its multiple of the source's tokens.
SPARE_TOKENS = 10
# Tokens that a state which grows has room for at first; the search makes more.
FIRST_ROOM = 16


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, where they are not searched for.

    Args:
        temperature: below 1 sharpens the distribution, above 1 flattens it.
        top_k: draw from this many of the likeliest tokens; 0 for all.
        top_p: draw from the likeliest tokens that make up this probability.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """What shapes a search; one compiled search serves all batches of the same options.

    Args:
        beam_size: hypotheses kept at each step; 1 is greedy search, which takes the likeliest token
            at each step and knows no penalty.
        n_best: translations to return of each sentence, at most `beam_size`.
        length_penalty: alpha of GNMT's length penalty.
        coverage_penalty: beta of GNMT's coverage penalty.
        min_length: fewest tokens, the end not counted.
        max_length: most tokens; a translation that has as many may lack its end.
        max_length_ratio: most tokens as a multiple of the source's, with ten to spare.
        no_repeat_ngram: no n-gram of this length comes twice; 0 allows it.
        sampling: draw tokens in place of searching; `n_best` is then the number of draws.
    """

    beam_size: int = 1
    n_best: int = 1
    length_penalty: float = 0.0
    coverage_penalty: float = 0.0
    min_length: int = 0
    max_length: int = 100
    max_length_ratio: float = 3.0
    no_repeat_ngram: int = 0
    sampling: Sampling | None = None

    def __post_init__(self):
        if self.sampling is None and self.n_best > self.beam_size:
            raise ValueError(
                f"A beam of {self.beam_size} cannot give {self.n_best} translations. Received: "
                f"n_best={self.n_best}, beam_size={self.beam_size}; widen the beam."
            )
        if self.max_length < self.min_length:
            raise ValueError(
                "`max_length` must be at least `min_length`. "
                f"Received: max_length={self.max_length}, min_length={self.min_length}"
            )


def options_of(decoding, **changes) -> SearchOptions:
    """Return the options that a `DecodingConfig` describes, with changes; None changes nothing."""
    names = {field.name for field in dataclasses.fields(SearchOptions)}
    values = {name: value for name, value in vars(decoding).items() if name in names}
    values |= {name: value for name, value in changes.items() if value is not None}
    return SearchOptions(**values)


def search(
    model: TranslationModel, source, options: SearchOptions, seed=None, attention: bool = True
) -> DecodingResult:
    """Translate a batch of ids.

    Args:
        model: The model.
        source: Token ids `(B, S)`, padded with 0, at least one of each.
        options: What shapes the search.
        seed: A `keras.random.SeedGenerator`, where tokens are drawn.
        attention: Whether the attention history is wanted, where the model has attention.

    Returns:
        A `DecodingResult`; padding and the start token are never among its tokens, and have no
        part in the probabilities.
    """
    if options.coverage_penalty and not model.has_attention:
        raise ValueError(
            "A coverage penalty needs a model with attention. Received: "
            f"coverage_penalty={options.coverage_penalty} with {type(model).__name__}"
        )
    mask = ops.not_equal(source, PAD_ID)
    uses_coverage = options.coverage_penalty and options.beam_size > 1 and not options.sampling
    keeps_attention = model.has_attention and (attention or bool(uses_coverage))
    limits = _limits(mask, options)
    common = {
        "start_id": START_ID,
        "end_id": END_ID,
        "pad_id": PAD_ID,
        "max_length": limits,
        "longest": _longest(source.shape[1], options),
        "min_length": options.min_length + 1,
        "no_repeat_ngram": options.no_repeat_ngram,
        "attention_key": "attention_scores" if keeps_attention else None,
        "constant_keys": ("memory",),
        "growing_axes": model.growing_axes,
        "shrink_batch": True,
    }
    step, state = _writable_only(model), model.start(source, max_length=FIRST_ROOM)
    if options.sampling:
        drawing = dataclasses.asdict(options.sampling)
        return sample(step, state, n_best=options.n_best, seed=seed, **drawing, **common)
    if options.beam_size == 1:
        return greedy_search(step, state, **common)
    return beam_search(
        step,
        state,
        beam_size=options.beam_size,
        n_best=options.n_best,
        length_penalty=options.length_penalty,
        coverage_penalty=options.coverage_penalty,
        attention_mask=mask,
        **common,
    )


def forced(model: TranslationModel, source, target, labels):
    """Score given translations.

    Args:
        model: The model.
        source: Token ids `(B, S)`.
        target: The start token and the translation, `(B, T)`.
        labels: The translation and the end token, `(B, T)`.

    Returns:
        `(log_probabilities, attention)`: `(B,)`, the sums over the real labels; and `(B, T, S)`, or
        None where the model has no attention.
    """
    logits, attention = model.score(source, target)
    logits = without_unwritable(logits)
    picked = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
    each = picked - ops.logsumexp(logits, axis=-1)
    each = ops.where(ops.not_equal(labels, PAD_ID), each, 0.0)
    return ops.sum(each, axis=-1), attention


def padded(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids `(B, S)`, padded at the end; at least one column."""
    matrix = np.full((len(sequences), max(1, *map(len, sequences))), PAD_ID, np.int32)
    for row, sequence in enumerate(sequences):
        matrix[row, : len(sequence)] = sequence
    return matrix


def _limits(mask, options):
    """Return the most tokens of each sentence `(B,)`; the longest translations lack the end."""
    words = ops.sum(ops.cast(mask, "float32"), axis=-1)
    limits = ops.cast(ops.ceil(words * options.max_length_ratio), "int32") + SPARE_TOKENS
    return ops.clip(limits, options.min_length + 1, _longest(None, options))


def _longest(source_length, options) -> int:
    """Return the most tokens of all, as far as the source's length is known."""
    shortest = options.min_length + 1
    longest = max(shortest, options.max_length)
    if source_length is None:
        return longest
    # In float32, as the limits of the sentences: rounded otherwise, it might cut one of them.
    words = np.float32(source_length) * np.float32(options.max_length_ratio)
    return min(longest, max(shortest, math.ceil(words) + SPARE_TOKENS))


def _writable_only(model):
    """Return the model's step without the tokens that no translation holds."""

    def step(tokens, state, index):
        logits, state = model.step(tokens, state, index)
        return without_unwritable(logits), state

    return step


def without_unwritable(logits):
    """Return logits `(..., V)` in float32, those of padding and the start token minus infinity."""
    ids = ops.arange(logits.shape[-1])
    unwritable = ops.logical_or(ops.equal(ids, PAD_ID), ops.equal(ids, START_ID))
    return ops.where(unwritable, float("-inf"), ops.cast(logits, "float32"))
