"""The problem of a search: its arguments, checked and in the form that the loops use.

The rows of a tensor are its first axis. A search keeps `copies` hypotheses of each of `B`
sentences, which are neighbours among its `R = B * copies` rows.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from ..ops.shapes import can_be_one, reshaped, size_of, sizes_from
from ..ops.types import Tensor, check_integer

NEVER = float("-inf")


def is_number(value: Any) -> bool:
    """Return whether `value` is an integer or a float, and not a boolean."""
    return isinstance(value, Real) and not isinstance(value, bool)


class SearchProblem:
    """The step function of a search, and the constraints of its hypotheses.

    Args:
        step: Callable `(tokens (R,), state, index) -> (logits (R, V), state)`, where `R` is the
            number of sentences times the hypotheses of each. `index` is an integer scalar tensor,
            0 at first. The state keeps its structure, shapes and dtypes.
        state: Nested structure of tensors, each with `B` rows: everything that the step reads. The
            search repeats it for the hypotheses of a sentence, and reorders it with them.
        start_id: Integer, the token before the first, or an integer tensor `(B,)`.
        end_id: Integer, the token that completes a hypothesis; or a list of such tokens.
        max_length: Maximum number of tokens of a hypothesis, the end counted: an integer, or one
            for each sentence, `(B,)`. In a `tf.function` it may be a tensor; `jax.jit` needs its
            value, or `longest`.
        min_length: Integer, minimum number of tokens, the end counted. A hypothesis ends earlier
            only if no other token can follow.
        pad_id: Integer, the token after the end token in the result.
        no_repeat_ngram: As in `SearchOptions`.
        attention_key: Name of the entry of `state` in which the step stores its attention weights
            `(R, S)`; zeros before the first step. `None`: no attention is kept.
        constant_keys: Names of the entries of `state` that no step changes, such as the memory:
            the search repeats them once for the hypotheses, and never reorders them.
        sentence_keys: Names of entries, constant or not, that the `K` hypotheses of a beam share:
            they have a row for each sentence, and are not reordered. An entry in `growing_axes` has
            `K` positions for each step, `t K + k` for hypothesis `k` at step `t`;
            `state["origins"]` `(B, K, L)` then holds the hypothesis of each earlier step: see
            `mask_of_origins`. With a beam of 1 each hypothesis has its own rows, and there are no
            origins. Beam search only.
        growing_axes: The axis of the positions, by name, for entries of `state` with a position for
            each step (a cache); the search adds positions as they fill. Where sizes are fixed, as
            under XLA, the state must have all positions.
        shrink_batch: Whether finished sentences are removed from the batch when they are a quarter
            of it. Results stay the same. All tensors with rows that the step reads must then be in
            `state`. JAX ignores it; XLA on TensorFlow does not support it.
        longest: Integer, maximum number of tokens of all hypotheses. It sizes the buffers where
            `max_length` is a traced tensor under `jax.jit`.
        room: Integer, number of steps of the buffers. The search stops there, and the scores of a
            sentence that needs more are NaN. All sizes are then known, as a program for LiteRT
            needs. Sampling does not support it. `None`: the largest limit.
        prefix: Integer tensor `(B, P)`, tokens that each hypothesis begins with, padded at the end
            with `pad_id`. They count for limits, scores and log-probabilities. No rule, such as
            `no_repeat_ngram`, forbids them.
        copies: Number of hypotheses of each sentence; the searches set it.

    Raises:
        ValueError: If an argument is out of its range, the tensors of `state` differ in their
            number of rows, or names of entries do not fit the state.
    """

    # A search carries `initial`, the part of the state that steps change, through its loop. The
    # entries in `constant_keys` stay outside, and go to each step as `constants`. `limits (B,)` are
    # the maximum numbers of tokens of each sentence; `longest`, the largest of them, or `room`
    # sizes the buffers.

    def __init__(
        self,
        step: Callable,
        state: Any,
        *,
        start_id: Any,
        end_id: int | Sequence[int],
        max_length: Any,
        min_length: int = 0,
        pad_id: int = 0,
        no_repeat_ngram: int = 0,
        attention_key: str | None = None,
        constant_keys: Sequence[str] = (),
        sentence_keys: Sequence[str] = (),
        growing_axes: Mapping[str, int] | None = None,
        shrink_batch: bool = False,
        longest: int | None = None,
        room: int | None = None,
        prefix: Tensor = None,
        copies: int = 1,
    ) -> None:
        self.end_ids = _end_ids(end_id)
        self.pad_id = pad_id
        self.min_length = min_length
        self.no_repeat_ngram = check_integer("no_repeat_ngram", no_repeat_ngram, 0)
        self.shrinks = shrink_batch
        self.copies = copies
        self.keeps_attention = attention_key is not None
        self.growing_axes = dict(growing_axes or {})
        self._step = step
        self._attention_key = attention_key
        state = _map_tensors(ops.convert_to_tensor, state)
        self.batch_size = _count_rows(state)
        _check_keys(state, attention_key, constant_keys, sentence_keys)
        _check_growing(state, self.growing_axes, constant_keys)
        # With one hypothesis for each sentence there is no difference.
        self._sentence_keys = frozenset(sentence_keys if copies > 1 else ())
        self.gives_origins = bool(self._sentence_keys)
        if self._sentence_keys:
            state = {key: self._for_copies(key, part) for key, part in state.items()}
        else:
            state = _map_tensors(lambda x: broadcast_rows(x, copies), state)
        self._constants = {key: state[key] for key in constant_keys}
        # Lists in the order of `map_structure`, which need not be that of `flatten`.
        self.constants: dict[str, list] = {key: [] for key in constant_keys}
        for key, tensors in self.constants.items():
            _map_tensors(tensors.append, self._constants[key])
        if isinstance(state, dict):
            state = {key: value for key, value in state.items() if key not in self._constants}
        self.initial = state
        nones = [_name(path) for path, x in tree.flatten_with_path(state) if x is None]
        if nones:
            raise ValueError(
                "The entries that steps change should be tensors; None may stand under "
                f"`constant_keys` only. Received: None at {', '.join(nones)}"
            )
        start = ops.broadcast_to(ops.cast(start_id, "int32"), (self.batch_size,))
        self.start = broadcast_rows(start, copies)
        self.longest, limits = _length_limits(max_length, min_length, self.batch_size, longest)
        self.limits = ops.broadcast_to(limits, (self.batch_size,))
        self.room = room
        if room is not None:
            self.longest = check_integer("room", room, 1)
        self.prefix = None
        if prefix is not None:
            _check_prefix(prefix, self.pad_id, self.limits, self.batch_size)
            self.prefix = ops.cast(prefix, "int32")

    def _for_copies(self, key: str, part: Any) -> Any:
        """Return an entry for all hypotheses: with more rows, or more positions in each row."""
        if key not in self._sentence_keys:
            return _map_tensors(lambda x: broadcast_rows(x, self.copies), part)
        if key not in self.growing_axes:
            return part
        return _map_tensors(lambda x: broadcast_rows(x, self.copies, self.growing_axes[key]), part)

    def positions_per_step(self, key: str) -> int:
        """Return the number of positions of a step in an entry that grows."""
        return self.copies if key in self._sentence_keys else 1

    def map_rows(self, function: Callable, of_sentences: Callable, parts: Any) -> Any:
        """Map the tensors of a state, those with a row for each sentence by `of_sentences`."""
        if not self._sentence_keys:
            return tree.map_structure(function, parts)
        return {
            key: tree.map_structure(of_sentences if key in self._sentence_keys else function, part)
            for key, part in parts.items()
        }

    def step(
        self, tokens: Tensor, state: Any, index: Tensor, constants: dict, origins: Tensor = None
    ) -> tuple[Tensor, Any]:
        """Take one step; return logits `(R, V)` in float32, and the state."""
        added: dict = {"origins": origins} if self.gives_origins else {}
        added |= {key: _refilled(self._constants[key], new) for key, new in constants.items()}
        logits, changed = self._step(tokens, {**state, **added} if added else state, index)
        if added:
            changed = {key: changed[key] for key in changed if key not in added}
        _check_logits(logits, self.end_ids)
        return ops.cast(logits, "float32"), _same_form(changed, state)

    def is_end(self, tokens: Tensor) -> Tensor:
        """Return which tokens complete a hypothesis."""
        return functools.reduce(ops.logical_or, [tokens == each for each in self.end_ids])

    def attention(self, state: Any) -> Tensor:
        """Return the attention weights `(R, S)` in the state after a step."""
        return state[self._attention_key]

    def allowed(
        self, logits: Tensor, prefix: Tensor, index: Tensor, forced: Tensor = None
    ) -> Tensor:
        """Return logits `(R, V)`, `-inf` for tokens that may not follow the prefix `(R, index)`.

        Where `forced (R, P)` has a token for this step, all others are forbidden, and no rule
        applies.
        """
        given = logits
        if self.no_repeat_ngram:
            logits = self._without_repeated_ngrams(logits, prefix, index)
        if self.min_length > 1:  # every hypothesis has one token
            ruled = logits
            logits = ops.cond(
                index + 1 < self.min_length, lambda: self._without_end(ruled), lambda: ruled
            )
        if forced is None:
            return logits
        free = logits
        return ops.cond(
            index < size_of(forced, 1),
            lambda: self._forced(given, free, forced, index),
            lambda: free,
        )

    def _forced(self, given: Tensor, free: Tensor, forced: Tensor, index: Tensor) -> Tensor:
        """Return the logits of rows, without all but the forced token where there is one."""
        last = size_of(forced, 1) - 1
        token = ops.take(forced, ops.minimum(index, last), axis=1)[:, None]
        is_token = ops.arange(given.shape[-1], dtype="int32") == token
        return ops.where(token == self.pad_id, free, ops.where(is_token, given, NEVER))

    def _without_end(self, logits: Tensor) -> Tensor:
        """Forbid the end tokens in each row of `(R, V)` that can continue with another token."""
        without = ops.where(self.is_end(ops.arange(logits.shape[-1])), NEVER, logits)
        stuck = ops.max(without, axis=-1, keepdims=True) == NEVER
        return ops.where(stuck, logits, without)

    def _without_repeated_ngrams(self, logits: Tensor, prefix: Tensor, index: Tensor) -> Tensor:
        """Forbid each token that would complete an n-gram of the row's prefix."""
        size, end_id = self.no_repeat_ngram, self.end_ids[0]
        rows, length = sizes_from(prefix, 0)
        positions = ops.arange(length, dtype="int32")
        repeats = ops.broadcast_to((positions >= size - 1) & (positions < index), (rows, length))
        for back in range(1, size):
            last = ops.take(prefix, ops.maximum(index - back, 0), axis=1)
            repeats = repeats & (ops.roll(prefix, back, axis=1) == last[:, None])
        # One scatter writes all. A position that forbids nothing writes the logit of the end token
        # back. The prefix of an open row has no end token, so that no two writes differ.
        tokens = ops.where(repeats, prefix, end_id)
        written = ops.where(repeats, NEVER, logits[:, end_id][:, None])
        row_numbers = ops.broadcast_to(ops.arange(rows, dtype="int32")[:, None], (rows, length))
        cells = ops.reshape(ops.stack([row_numbers, tokens], axis=-1), (-1, 2))
        return ops.scatter_update(logits, cells, ops.reshape(written, (-1,)))


def mask_of_origins(origins: Tensor, index: Tensor, steps: Tensor) -> Tensor:
    """Return which positions of a cache that `K` hypotheses share belong to each of them.

    Step functions use it whose cache is one of the `sentence_keys` of `search`.

    Args:
        origins: Integers `(B, K, L)`, the `state["origins"]` of `search`.
        index: Index of the current step, whose positions belong to their own hypotheses.
        steps: Number of steps of the cache.

    Returns:
        Boolean `(B K, steps K)`, True = attend.

    Example:

    ```python
    import numpy as np
    from keras_attention.decoding import mask_of_origins

    # At step 1 both hypotheses continue hypothesis 0 of step 0.
    mask = mask_of_origins(np.array([[[0, 0], [0, 0]]]), index=1, steps=2)
    assert np.array_equal(mask, [[True, False, True, False], [True, False, False, True]])
    ```
    """
    batch_size, count, longest = sizes_from(origins, 0)
    step, number = ops.arange(steps, dtype="int32"), ops.arange(count, dtype="int32")
    origins = ops.take(ops.cast(origins, "int32"), ops.minimum(step, longest - 1), axis=2)
    origins = ops.where(step == index, number[:, None], origins)
    seen = (origins[..., None] == number) & (step <= index)[:, None]
    return ops.reshape(seen, (batch_size * count, steps * count))


def _refilled(parts: Any, tensors: list) -> Any:
    left = iter(tensors)
    return _map_tensors(lambda _: next(left), parts)


def _map_tensors(function: Callable[[Tensor], Any], parts: Any) -> Any:
    """Map tensors as `tree.map_structure` does; None stays None."""
    return tree.map_structure(lambda x: None if x is None else function(x), parts)


def broadcast_rows(x: Tensor, copies: int, axis: int = 0) -> Tensor:
    """Repeat each row of `(B, ...)` to `(B * copies, ...)`, or the entries of another axis.

    The copies of a row are neighbours. On TensorFlow `ops.repeat` takes four times the operations.
    """
    if copies == 1:
        return x
    sizes = sizes_from(x, 0)
    before, size, after = sizes[:axis], sizes[axis], sizes[axis + 1 :]
    x = ops.broadcast_to(ops.expand_dims(x, axis + 1), (*before, size, copies, *after))
    return ops.reshape(x, (*before, size * copies, *after))


def gather_beams(parts: Any, beams: Tensor) -> Any:
    """Gather `M` of the `K` entries of each sentence: `(B, K, ...)` at `(B, M)` is `(B, M, ...)`.

    `parts` is a tensor or a nested structure of such tensors.
    """
    batch_size, count = sizes_from(tree.flatten(parts)[0], 0)[:2]
    rows = ops.arange(batch_size, dtype="int32")[:, None] * count + beams

    def picked(x: Tensor) -> Tensor:
        return take_rows(reshaped(x, (batch_size * count, *sizes_from(x, 2))), rows)

    return tree.map_structure(picked, parts)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return `x (R, ...)` at `rows`, an index tensor of any shape."""
    taken = ops.take(x, rows, axis=0)
    if tuple(taken.shape) == (*rows.shape, *x.shape[1:]):
        return taken
    # JAX loses the shape where there are no rows, and TensorFlow in graphs.
    return reshaped(taken, (*sizes_from(rows, 0), *sizes_from(x, 1)))


def _length_limits(
    max_length: Any, min_length: int, batch_size: Tensor, longest: int | None
) -> tuple[Tensor, Tensor]:
    """Return the largest limit, an integer if its value is known, and the limits as a tensor."""
    check_integer("min_length", min_length, 0)
    if longest is not None:
        check_integer("longest", longest, max(1, min_length))
    known = _value(max_length)
    if known is not None:
        _check_known_limits(known, min_length, batch_size)
        known = known if longest is None else np.minimum(known, longest)
        return int(known.max(initial=1)), ops.convert_to_tensor(known, dtype="int32")
    each = ops.cast(max_length, "int32")
    each = each if longest is None else ops.minimum(each, longest)
    if keras.backend.backend() == "tensorflow":
        return ops.max(each), each
    if longest is None:
        raise ValueError(
            "`max_length` sets the size of the buffers, which has to be known when the search is "
            "traced: give an integer or a NumPy array, or `longest`, an integer, beside it. "
            "Received: a traced tensor."
        )
    return longest, each


def _check_known_limits(limits: np.ndarray, min_length: int, batch_size: Tensor) -> None:
    if not np.issubdtype(limits.dtype, np.integer) or (limits < 1).any():
        raise ValueError(
            "`max_length` should be an integer of at least 1, or one for each sentence. "
            f"Received: {limits.tolist()!r}"
        )
    if limits.size and limits.max() < min_length:
        raise ValueError(
            "`max_length` should be at least `min_length`. "
            f"Received: max_length={limits.tolist()!r}, min_length={min_length}"
        )
    fits = limits.ndim == 0 or (limits.ndim == 1 and len(limits) == batch_size)
    if isinstance(batch_size, int) and not fits:
        raise ValueError(
            f"`max_length` should have one entry for each of the {batch_size} sentences. "
            f"Received: shape {limits.shape}"
        )


def _check_prefix(prefix: Any, pad_id: int, limits: Any, batch_size: Tensor) -> None:
    """Raise a ValueError for another number of prefixes, or for one that is too long."""
    shape = tuple(prefix.shape) if hasattr(prefix, "shape") else np.shape(prefix)
    is_right = len(shape) == 2 and shape[1] != 0
    if not is_right or (isinstance(batch_size, int) and shape[0] not in (None, batch_size)):
        raise ValueError(
            "`prefix` should hold a row of tokens for each sentence, (B, P), padded behind with "
            f"`pad_id`. Received: shape {shape} for {batch_size} sentences"
        )
    tokens, known = _value(prefix), _value(limits)
    if tokens is None or known is None:
        return
    lengths = (tokens != pad_id).sum(axis=1)
    if (lengths > known).any():
        row = int(np.argmax(lengths > known))
        raise ValueError(
            "`prefix` should have at most as many tokens as its hypothesis may have. Received: "
            f"{lengths[row]} tokens for sentence {row}, which may have {known[row]}"
        )


def _value(limits: Any) -> np.ndarray | None:
    """Return the limits as an array, or None while a graph without their values is traced."""
    if not ops.is_tensor(limits):
        return np.asarray(limits)
    try:
        return ops.convert_to_numpy(limits)
    except (AttributeError, NotImplementedError, TypeError):
        return None


def _count_rows(state: Any) -> Tensor:
    leaves = [(path, x) for path, x in tree.flatten_with_path(state) if x is not None]
    if not leaves:
        raise ValueError(
            "`state` should hold at least one tensor, whose rows tell the number of sentences. "
            f"Received: {state!r}"
        )
    shapes = [tuple(x.shape) for _, x in leaves]
    known = {shape[0] for shape in shapes if shape and shape[0] is not None}
    if len(known) > 1 or () in shapes:
        raise ValueError(
            "Every tensor of `state` should have a row for each sentence as its first dimension. "
            f"Received: {', '.join(f'{_name(path)} {tuple(x.shape)}' for path, x in leaves)}"
        )
    return known.pop() if known else ops.shape(leaves[0][1])[0]


def _check_keys(
    state: Any,
    attention_key: str | None,
    constant_keys: Sequence[str],
    sentence_keys: Sequence[str],
) -> None:
    for name, keys in (("constant_keys", constant_keys), ("sentence_keys", sentence_keys)):
        if isinstance(keys, str):
            raise ValueError(
                f"`{name}` should be a sequence of names. "
                f"Received: the string {keys!r}; write ({keys!r},)"
            )
    named = [*constant_keys, *sentence_keys, *([] if attention_key is None else [attention_key])]
    if named and not isinstance(state, dict):
        raise ValueError(
            "`attention_key`, `constant_keys` and `sentence_keys` name entries of `state`, which "
            f"should be a dictionary then. Received: {type(state).__name__}"
        )
    missing = [key for key in named if key not in state]
    if missing:
        raise ValueError(
            "`state` should have the entries that `attention_key` and the other keys name "
            "(attention weights as zeros of shape (rows, memory steps) before the first step). "
            f"Received: no {missing} among {sorted(map(str, state))}"
        )
    if attention_key is not None and attention_key in constant_keys:
        raise ValueError(
            "The attention weights change with each step. "
            f"Received: {attention_key!r} as `attention_key` and in `constant_keys`"
        )


def _check_growing(
    state: Any, growing_axes: Mapping[str, int], constant_keys: Sequence[str]
) -> None:
    for key, axis in growing_axes.items():
        leaves = tree.flatten(state[key]) if isinstance(state, dict) and key in state else []
        fits = [len(x.shape) > axis >= 1 and x.shape[axis] != 0 for x in leaves]
        if not fits or not all(fits) or key in constant_keys:
            shapes = [tuple(x.shape) for x in leaves]
            raise ValueError(
                "`growing_axes` should name entries of `state` that steps change, and an axis from "
                "1 that all their tensors have, with at least one position. "
                f"Received: {key!r}: {axis}, with tensors of shapes {shapes}"
            )


def _end_ids(end_id: int | Sequence[int]) -> tuple[int, ...]:
    """Return the end tokens, each once."""
    listed = list(end_id) if isinstance(end_id, (list, tuple, np.ndarray)) else [end_id]
    if not listed:
        raise ValueError(f"`end_id` must be a token or a list of tokens. Received: end_id={end_id}")
    return tuple(dict.fromkeys(check_integer("end_id", each, 0) for each in listed))


def _check_logits(logits: Tensor, end_ids: tuple[int, ...]) -> None:
    shape = tuple(logits.shape)
    if len(shape) != 2 or shape[-1] is None or shape[-1] < 2:
        raise ValueError(
            "The step should return logits of shape (rows, vocabulary), the vocabulary static "
            f"and of at least 2 tokens. Received: shape {shape}"
        )
    if max(end_ids) >= shape[-1]:
        raise ValueError(
            f"`end_id` should be one of the {shape[-1]} tokens that the step scores. "
            f"Received: {max(end_ids)}"
        )


def _same_form(changed: Any, before: Any) -> Any:
    """Return the state of a step in the containers that it got; raise an error if it differs."""
    new, old = (dict(tree.flatten_with_path(state)) for state in (changed, before))
    if new.keys() != old.keys():
        raise ValueError(
            "The step should return a state with the entries that it was given. "
            f"Received: {', '.join(map(_name, new)) or 'nothing'}; "
            f"given: {', '.join(map(_name, old)) or 'nothing'}"
        )
    for path, given in old.items():
        x, name = new[path], _name(path)
        if not ops.is_tensor(x):
            raise ValueError(f"The step should return tensors. Received: {x!r} at {name}")
        dtypes = [keras.backend.standardize_dtype(each.dtype) for each in (x, given)]
        if not can_be_one(x.shape, given.shape) or dtypes[0] != dtypes[1]:
            raise ValueError(
                "The step should return a state of the shapes and dtypes that it was given; one "
                "that grows needs a buffer of full size, written at `index`. Received: "
                f"{tuple(x.shape)} {dtypes[0]} for {tuple(given.shape)} {dtypes[1]} at {name}"
            )
    return tree.pack_sequence_as(before, [new[path] for path in old])


def _name(path: tuple) -> str:
    return "state" + "".join(f"[{part!r}]" for part in path)
