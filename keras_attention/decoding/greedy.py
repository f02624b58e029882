"""Greedy search: the most probable token at each step."""

from collections.abc import Callable, Mapping, Sequence

from keras import ops

from keras_attention.decoding.arguments import check_integer, length_limits
from keras_attention.decoding.constraints import Constraints
from keras_attention.decoding.loop import normalize
from keras_attention.decoding.result import DecodingResult
from keras_attention.decoding.rows import Stepper
from keras_attention.decoding.single import SingleHypothesisLoop


def greedy_search(
    step: Callable,
    state,
    *,
    start_id,
    end_id: int,
    max_length,
    min_length: int = 0,
    pad_id: int = 0,
    no_repeat_ngram: int = 0,
    attention_key: str | None = None,
    constant_keys: Sequence[str] = (),
    growing_axes: Mapping[str, int] | None = None,
    shrink_batch: bool = False,
    longest: int | None = None,
) -> DecodingResult:
    """Take the most probable token at each step, until the end token or the longest length.

    Of equally probable tokens the one with the lowest number is taken. Runs eagerly, in a
    `tf.function` (batch size and memory length may be open) and under `jax.jit`.

    Args:
        step: Callable `(tokens (B,), state, index) -> (logits (B, V), state)`. `index` is an
            integer scalar tensor, 0 at first. The state that it returns has the structure, shapes
            and dtypes of the one that it gets.
        state: Nested structure of tensors, each with `B` rows: all that the step needs to know.
        start_id: Integer, the token before the first, or an integer tensor `(B,)`.
        end_id: Integer, the token that completes a hypothesis.
        max_length: Most tokens of a hypothesis, the end token counted: an integer, or one for each
            sentence, `(B,)`. In a `tf.function` it may be a tensor; under `jax.jit` its value has
            to be known, or `longest` be given.
        min_length: Integer, fewest tokens of a hypothesis, the end token counted. The end token is
            withheld before, except from a hypothesis that nothing else can continue.
        pad_id: Integer, what follows the end token in the result.
        no_repeat_ngram: Integer n: no n tokens in a row occur twice in a hypothesis. 0: no rule.
        attention_key: Name of the entry of `state` in which the step leaves its attention weights
            `(B, S)`; zeros before the first step. `None`: no attention is kept.
        constant_keys: Names of the entries of `state` that no step changes, such as the memory:
            they stay outside the loop's variables.
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
        A `DecodingResult` with one hypothesis for each sentence. Its score is its log-probability.

    Raises:
        ValueError: where an argument is out of its range, the tensors of `state` differ in their
            number of rows, or the step returns another structure than it was given.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> # After token 1 (the start) comes 2 or 3; after both comes 0, the end.
    >>> table = ops.log(np.array([[1, 0, 0, 0], [0, 0, 0.6, 0.4], [1, 0, 0, 0], [1, 0, 0, 0.0]]))
    >>> def step(tokens, state, index):
    ...     return ops.take(table, tokens, axis=0), state
    >>> result = greedy_search(step, {"row": ops.zeros((1, 1))}, start_id=1, end_id=0, max_length=4)
    >>> ops.convert_to_numpy(result.tokens).tolist()
    [[[2, 0, 0, 0]]]
    >>> ops.convert_to_numpy(result.lengths).tolist()
    [[2]]
    """
    check_integer("end_id", end_id, 0)
    check_integer("no_repeat_ngram", no_repeat_ngram, 0)
    stepper = Stepper(
        step,
        state,
        end_id=end_id,
        attention_key=attention_key,
        constant_keys=constant_keys,
        growing_axes=growing_axes,
    )
    return SingleHypothesisLoop(
        stepper,
        _most_probable,
        Constraints(end_id, min_length, no_repeat_ngram),
        length_limits(max_length, min_length, stepper.batch_size, longest),
        start_id=start_id,
        end_id=end_id,
        pad_id=pad_id,
        keeps_attention=attention_key is not None,
        shrinks=shrink_batch,
    ).run()


def _most_probable(logits, normalizer, index, numbers):
    tokens = ops.cast(ops.argmax(logits, axis=-1), "int32")
    return tokens, normalize(ops.max(logits, axis=-1), normalizer)
