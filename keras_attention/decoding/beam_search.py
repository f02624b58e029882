"""Beam search: the best hypotheses that grow from the `K` most probable prefixes."""

from collections.abc import Callable, Mapping, Sequence

from keras_attention.decoding.arguments import check_integer, length_limits
from keras_attention.decoding.beams import BeamLoop
from keras_attention.decoding.constraints import Constraints
from keras_attention.decoding.penalties import as_coverage_penalty, as_length_penalty
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.rows import Stepper


def beam_search(
    step: Callable,
    state,
    *,
    start_id,
    end_id: int,
    max_length,
    min_length: int = 0,
    beam_size: int = 4,
    n_best: int = 1,
    length_penalty: float | Callable = 0.0,
    coverage_penalty: float | Callable = 0.0,
    pad_id: int = 0,
    no_repeat_ngram: int = 0,
    attention_key: str | None = None,
    attention_mask=None,
    constant_keys: Sequence[str] = (),
    growing_axes: Mapping[str, int] | None = None,
    shrink_batch: bool = False,
    longest: int | None = None,
) -> DecodingResult:
    """Keep the `K` most probable prefixes of each sentence, and the best complete hypotheses.

    Each step extends every prefix by every token. Of the `K` most probable extensions, those that
    end (by the end token, or at the longest length) are complete: they are scored, once, and
    frozen. The `K` most probable ones that do not end go on, so that complete hypotheses take no
    beam from the others. A complete hypothesis `Y` is ranked by

    `score(Y) = log P(Y) / lp(|Y|) + cp(Y)`

    and prefixes, which are all of one length, by `log P`. A sentence is finished when its best
    prefix can no longer beat the worst of the `n_best` hypotheses kept: a prefix loses probability
    as it grows, the length penalty grows at most to that of the longest length, and the coverage
    penalty is at most 0, so no continuation scores above `log P(prefix) / lp(longest)`. Stopping
    there changes no result. The loop ends when all sentences are finished. Ties go to the
    hypothesis completed first, then to the better prefix, then to the lower token.

    Runs eagerly, in a `tf.function` (batch size and memory length may be open) and under `jax.jit`.

    Args:
        step: Callable `(tokens (R,), state, index) -> (logits (R, V), state)`, with `R = B * K`
            rows. `index` is an integer scalar tensor, 0 at first. The state that it returns has the
            structure, shapes and dtypes of the one that it gets.
        state: Nested structure of tensors, each with `B` rows: all that the step needs to know. It
            is repeated for the beams, and follows them when they are reordered.
        start_id: Integer, the token before the first, or an integer tensor `(B,)`.
        end_id: Integer, the token that completes a hypothesis.
        max_length: Most tokens of a hypothesis, the end token counted: an integer, or one for each
            sentence, `(B,)`. In a `tf.function` it may be a tensor; under `jax.jit` its value has
            to be known, or `longest` be given.
        min_length: Integer, fewest tokens of a hypothesis, the end token counted. The end token is
            withheld before, except from a hypothesis that nothing else can continue.
        beam_size: Integer, `K`. With 1, and no length penalty, this is greedy search.
        n_best: Integer, how many hypotheses to return for each sentence, at most `beam_size`.
        length_penalty: Float, the `alpha` of a `LengthPenalty`, or such an object: a callable from
            lengths to divisors that are positive and do not decrease with the length.
        coverage_penalty: Float, the `beta` of a `CoveragePenalty`, or such an object: a callable
            `(coverage (B, K, S), mask) -> (B, K)` that is nowhere positive. Needs `attention_key`.
        pad_id: Integer, what follows the end token in the result.
        no_repeat_ngram: Integer n: no n tokens in a row occur twice in a hypothesis. 0: no rule.
        attention_key: Name of the entry of `state` in which the step leaves its attention weights
            `(R, S)`; zeros before the first step. `None`: no attention is kept.
        attention_mask: Boolean tensor `(B, S)`, True where a memory step counts for the coverage
            penalty. Give it with padded memories: padding would count as not covered.
        constant_keys: Names of the entries of `state` that no step changes, such as the memory:
            they are repeated for the beams once and never reordered.
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
        A `DecodingResult` with `n_best` hypotheses for each sentence, best first.

    Raises:
        ValueError: where an argument is out of its range, the tensors of `state` differ in their
            number of rows, or the step returns another structure than it was given.

    Reference:
        - Wu et al. 2016, [Google's neural machine translation system](
            https://arxiv.org/abs/1609.08144), section 7, for the score.

    Example:

    >>> import numpy as np
    >>> from keras import ops
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
    check_integer("end_id", end_id, 0)
    check_integer("no_repeat_ngram", no_repeat_ngram, 0)
    check_integer("beam_size", beam_size, 1)
    check_integer("n_best", n_best, 1)
    if n_best > beam_size:
        raise ValueError(
            "`n_best` should be at most `beam_size`. "
            f"Received: n_best={n_best}, beam_size={beam_size}"
        )
    stepper = Stepper(
        step,
        state,
        end_id=end_id,
        attention_key=attention_key,
        constant_keys=constant_keys,
        growing_axes=growing_axes,
        copies=beam_size,
    )
    return BeamLoop(
        stepper,
        Constraints(end_id, min_length, no_repeat_ngram),
        length_limits(max_length, min_length, stepper.batch_size, longest),
        as_length_penalty(length_penalty),
        _coverage(as_coverage_penalty(coverage_penalty), attention_key),
        attention_mask,
        start_id=start_id,
        end_id=end_id,
        pad_id=pad_id,
        beam_size=beam_size,
        n_best=n_best,
        keeps_attention=attention_key is not None,
        shrinks=shrink_batch,
    ).run()


def _coverage(penalty, attention_key) -> Callable | None:
    if penalty is not None and attention_key is None:
        raise ValueError(
            "`coverage_penalty` needs the attention weights: name their entry of `state` as "
            "`attention_key`. Received: attention_key=None"
        )
    return penalty
