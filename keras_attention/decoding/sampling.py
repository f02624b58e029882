"""Sampling: tokens drawn from the model's distribution, whole or truncated."""

import math
from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

from keras_attention.decoding.arguments import check_integer, length_limits
from keras_attention.decoding.constraints import Constraints
from keras_attention.decoding.loop import pick
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.rows import Stepper, gather_beams
from keras_attention.decoding.single import SingleHypothesisLoop
from keras_attention.decoding.top_k import chunked_top_k, cut_in_chunks, ordered_top_k

# How many tokens are sorted before it is known that the nucleus needs more of them.
NUCLEUS_HEAD = 256
SMALLEST_TEMPERATURE = 1.2e-38  # the smallest normal float32


def sample(
    step: Callable,
    state,
    *,
    start_id,
    end_id: int,
    max_length,
    min_length: int = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | keras.random.SeedGenerator | None = None,
    n_best: int = 1,
    pad_id: int = 0,
    no_repeat_ngram: int = 0,
    attention_key: str | None = None,
    constant_keys: Sequence[str] = (),
    growing_axes: Mapping[str, int] | None = None,
    shrink_batch: bool = False,
    longest: int | None = None,
) -> DecodingResult:
    """Draw each token at random, until the end token or the longest length.

    The logits are divided by the temperature, forbidden tokens are removed, then all but the
    `top_k` most probable, then all but the nucleus: the most probable tokens, in order, as long as
    those before hold less than `top_p` of what is left. The token is drawn from what remains, in
    proportion. Of equally probable tokens the one with the lower number counts as more probable.
    Runs eagerly, in a `tf.function` (batch size and memory length may be open) and under `jax.jit`.

    Args:
        step: Callable `(tokens (R,), state, index) -> (logits (R, V), state)`, where
            `R = B * n_best`. `index` is an integer scalar tensor, 0 at first. The state that it
            returns has the structure, shapes and dtypes of the one that it gets.
        state: Nested structure of tensors, each with `B` rows: all that the step needs to know.
        start_id: Integer, the token before the first, or an integer tensor `(B,)`.
        end_id: Integer, the token that completes a hypothesis.
        max_length: Most tokens of a hypothesis, the end token counted: an integer, or one for each
            sentence, `(B,)`. In a `tf.function` it may be a tensor; under `jax.jit` its value has
            to be known, or `longest` be given.
        min_length: Integer, fewest tokens of a hypothesis, the end token counted. The end token is
            withheld before, except from a hypothesis that nothing else can continue.
        temperature: Float above 0. Below 1 it sharpens the distribution, above 1 it flattens it;
            towards 0 sampling becomes greedy search.
        top_k: Integer, how many of the most probable tokens may be drawn. 0: all.
        top_p: Float in (0, 1], the mass of the nucleus. 1: all.
        seed: Integer: every call draws the same. A `keras.random.SeedGenerator`: each call draws
            anew. `None`: as `keras.random` does, from the global generator.
        n_best: Integer, how many samples are drawn for each sentence, independently.
        pad_id: Integer, what follows the end token in the result.
        no_repeat_ngram: Integer n: no n tokens in a row occur twice in a hypothesis. 0: no rule.
        attention_key: Name of the entry of `state` in which the step leaves its attention weights
            `(R, S)`; zeros before the first step. `None`: no attention is kept.
        constant_keys: Names of the entries of `state` that no step changes, such as the memory:
            they are repeated for the samples once, and stay outside the loop's variables.
        growing_axes: For names of entries of `state` that have a place for each step (a cache), the
            axis of the places, which their tensors share. They may come with places for some steps
            only: more are made as they fill, so that early steps are not slowed by the room of late
            ones. Not with XLA, where sizes cannot change: give all places there and leave this out.
        shrink_batch: Boolean, whether sentences leave the batch when they are finished, so that
            the others go on without their cost (whenever a quarter of them is). No result changes.
            All that the step reads and that has rows must then be in `state`. It does nothing on
            JAX, where sizes cannot change, and cannot be had with XLA.
        longest: Integer, most tokens of all hypotheses. It sizes the buffers under `jax.jit`, where
            `max_length` may then be a traced tensor.

    Returns:
        A `DecodingResult` with `n_best` samples for each sentence, ranked by their scores: the
        log-probability of the sample under the distribution it was drawn from. Its
        `log_probabilities` are the model's own, without temperature and truncation.

    Raises:
        ValueError: where an argument is out of its range, the tensors of `state` differ in their
            number of rows, or the step returns another structure than it was given.

    Reference:
        - Holtzman et al. 2020, [The curious case of neural text degeneration](
            https://arxiv.org/abs/1904.09751), for the nucleus.

    Example:

    >>> from keras import ops
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
    check_integer("end_id", end_id, 0)
    check_integer("no_repeat_ngram", no_repeat_ngram, 0)
    check_integer("n_best", n_best, 1)
    sampler = _Sampler(temperature, top_k, top_p)
    stepper = Stepper(
        step,
        state,
        end_id=end_id,
        attention_key=attention_key,
        constant_keys=constant_keys,
        growing_axes=growing_axes,
        copies=n_best,
    )
    limits = length_limits(max_length, min_length, stepper.batch_size, longest)
    # The numbers of a token, drawn before the loop: inside it, a fixed seed would repeat itself.
    numbers = keras.random.uniform(
        (limits.longest, 2, stepper.batch_size * n_best), dtype="float32", seed=seed
    )

    def choose(logits, normalizer, index, rows):
        return sampler(logits, ops.take(ops.take(numbers, index, axis=0), rows, axis=1))

    result = SingleHypothesisLoop(
        stepper,
        choose,
        Constraints(end_id, min_length, no_repeat_ngram),
        limits,
        start_id=start_id,
        end_id=end_id,
        pad_id=pad_id,
        copies=n_best,
        keeps_attention=attention_key is not None,
        shrinks=shrink_batch,
    ).run()
    return result if n_best == 1 else _ranked(result)


def _ranked(result: DecodingResult) -> DecodingResult:
    _, order = ordered_top_k(result.scores, result.scores.shape[1])
    return DecodingResult(*(None if x is None else gather_beams(x, order) for x in result))


class _Sampler:
    """Turns uniform numbers into tokens, by inverting the cumulative distribution."""

    def __init__(self, temperature: float, top_k: int, top_p: float):
        check_integer("top_k", top_k, 0)
        if not 0 < temperature < math.inf:
            raise ValueError(
                "`temperature` should be a positive number; for the limit at 0 there is "
                f"`greedy_search`. Received: {temperature}"
            )
        if not 0 < top_p <= 1:
            raise ValueError(f"`top_p` should lie in (0, 1]. Received: {top_p}")
        self.temperature = max(float(temperature), SMALLEST_TEMPERATURE)
        self.top_k = top_k
        self.top_p = float(top_p)

    def __call__(self, logits, numbers):
        """Return tokens `(R,)` and their log-probabilities; numbers `(2, R)` lie in [0, 1)."""
        largest = ops.max(logits, axis=-1, keepdims=True)
        largest = ops.where(ops.isinf(largest), 0.0, largest)
        # Relative to the largest before the division, so that no temperature overflows.
        logits = (logits - largest) / self.temperature
        if self.top_k:
            values, tokens = chunked_top_k(logits, min(self.top_k, logits.shape[-1]))
            total = ops.sum(ops.exp(values), axis=-1, keepdims=True)
            return self._draw_sorted(values, tokens, total, numbers[0])
        if self.top_p < 1:
            return self._draw_nucleus(logits, numbers[0])
        return _draw_among_many(ops.exp(logits), numbers[0], numbers[1])

    def _draw_nucleus(self, logits, numbers):
        """Draw from the nucleus; sorts all of the vocabulary only where some row needs it."""
        size = logits.shape[-1]
        total = ops.sum(ops.exp(logits), axis=-1, keepdims=True)
        values, tokens = chunked_top_k(logits, min(NUCLEUS_HEAD, size))
        if size <= NUCLEUS_HEAD:
            return self._draw_sorted(values, tokens, total, numbers)
        mass = ops.sum(ops.exp(values), axis=-1, keepdims=True)
        return ops.cond(
            ops.all(mass >= self.top_p * total),
            lambda: self._draw_sorted(values, tokens, total, numbers),
            lambda: self._draw_sorted(*ordered_top_k(logits, size), total, numbers),
        )

    def _draw_sorted(self, values, tokens, total, numbers):
        weights = ops.exp(values)
        if self.top_p < 1:
            before = ops.cumsum(weights, axis=-1) - weights
            weights = ops.where(before < self.top_p * total, weights, 0.0)
        places, log_probabilities = _draw(weights, numbers)
        return pick(tokens, places), log_probabilities


def _draw_among_many(weights, chunk_numbers, numbers):
    """Do as `_draw` in two draws, a chunk and a place in it: short sums are fast and exact."""
    chunks = cut_in_chunks(weights, 0.0)
    rows, count, width = ops.shape(chunks)
    chunk, of_chunk = _draw(ops.sum(chunks, axis=-1), chunk_numbers)
    drawn = ops.arange(rows, dtype="int32") * count + chunk
    place, of_place = _draw(ops.take(ops.reshape(chunks, (-1, width)), drawn, axis=0), numbers)
    return chunk * width + place, of_chunk + of_place


def _draw(weights, numbers):
    """Return places `(R,)` drawn in proportion to `weights (R, n)`, and their log-probabilities."""
    # A place of weight zero holds no mass here, whatever the rounding of the sums around it, and
    # the number sought is above zero: such a place cannot be drawn.
    mass = ops.where(weights > 0, ops.cumsum(weights, axis=-1), 0.0)
    total = ops.max(mass, axis=-1)
    sought = (1.0 - numbers) * total
    places = ops.argmax(ops.cast(mass >= sought[:, None], "int32"), axis=-1)
    places = ops.cast(places, "int32")
    log_probabilities = ops.log(pick(weights, places)) - ops.log(total)
    return places, ops.where(total > 0, log_probabilities, float("-inf"))
