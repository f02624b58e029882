"""A network and the searches of `keras_attention.decoding`, put together: ids in, ids out."""

from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_attention.applications.translation.models import TranslationModel
from keras_attention.decoding import DecodingResult, SearchOptions
from keras_attention.decoding import search as search_by_options
from keras_attention.losses import masked_sparse_categorical_crossentropy
from keras_attention.text import END_ID, PAD_ID, START_ID

# Tokens that a state which grows has room for at first; the search makes more.
FIRST_ROOM = 16


def search(
    model: TranslationModel, source, options: SearchOptions, seed=None, attention: bool = True
) -> DecodingResult:
    """Translate a batch of ids.

    Args:
        model: The network.
        source: Token ids `(B, S)`, padded with 0, at least one of each.
        options: How to search.
        seed: A `keras.random.SeedGenerator`, where tokens are drawn.
        attention: Whether the attention history is wanted, where the network has attention.

    Returns:
        A `DecodingResult`; padding and the start token are never among its tokens, and have no
        part in the probabilities.
    """
    if options.coverage_penalty and not model.has_attention:
        raise ValueError(
            "A coverage penalty needs a network with attention. Received: "
            f"coverage_penalty={options.coverage_penalty} with {type(model).__name__}"
        )
    mask = ops.not_equal(source, PAD_ID)
    keeps_attention = model.has_attention and (attention or options.uses_coverage)

    def step(tokens, state, index):
        logits, state = model.step(tokens, state, index)
        return without_unwritable(logits), state

    return search_by_options(
        step,
        model.start(source, max_length=FIRST_ROOM),
        options,
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        lengths=ops.sum(ops.cast(mask, "int32"), axis=-1),
        longest=options.longest(source.shape[1]),
        attention_key="attention_scores" if keeps_attention else None,
        attention_mask=mask,
        constant_keys=("memory",),
        growing_axes=model.growing_axes,
        shrink_batch=True,
        seed_generator=seed,
    )


def force(model: TranslationModel, source, target, labels):
    """Score given translations.

    Args:
        model: The network.
        source: Token ids `(B, S)`.
        target: The start token and the translation, `(B, T)`.
        labels: The translation and the end token, `(B, T)`.

    Returns:
        `(log_probabilities, attention)`: `(B,)`, the sums over the real labels; and `(B, T, S)`, or
        None where the network has no attention.
    """
    logits, attention = model.score(source, target)
    logits = without_unwritable(logits)
    picked = ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
    each = picked - ops.logsumexp(logits, axis=-1)
    each = ops.where(ops.not_equal(labels, PAD_ID), each, 0.0)
    return ops.sum(each, axis=-1), attention


def without_unwritable(logits):
    """Return logits `(..., V)` in float32, those of padding and the start token minus infinity."""
    ids = ops.arange(logits.shape[-1])
    unwritable = ops.logical_or(ops.equal(ids, PAD_ID), ops.equal(ids, START_ID))
    return ops.where(unwritable, float("-inf"), ops.cast(logits, "float32"))


def batches_of(rows, lengths, size) -> Iterator[list[int]]:
    """Yield rows in batches of like lengths, the longest first."""
    ordered = sorted(rows, key=lambda row: -lengths[row])
    for first in range(0, len(ordered), size):
        yield ordered[first : first + size]


def hypotheses(found) -> Iterator[tuple]:
    """Yield `(ids without the end, score, log-probability, attention)`, best first."""
    tokens, lengths, scores, log_probabilities, attention = found
    for place, length in enumerate(lengths):
        if length == 0:  # fewer hypotheses exist than were asked for
            return
        ids = tokens[place, :length]
        ids = ids[ids != END_ID]
        weights = None if attention is None else attention[place]
        yield ids, float(scores[place]), float(log_probabilities[place]), weights


def mean_loss(losses, batches) -> float:
    """Return the mean negative log-likelihood of a token.

    Args:
        losses: a function from inputs and labels to the loss of each label.
        batches: batches `(inputs, labels)`.
    """
    total, tokens = 0.0, 0
    for inputs, labels, *_ in batches:
        total += np.sum(ops.convert_to_numpy(losses(inputs, labels)), dtype="float64")
        tokens += np.count_nonzero(labels)
    return total / tokens


def likelihood(model: TranslationModel, inputs, labels):
    """Return the loss of each label; probabilities are those of tokens that can be written."""
    logits = without_unwritable(model(inputs, training=False))
    return masked_sparse_categorical_crossentropy(labels, logits)
