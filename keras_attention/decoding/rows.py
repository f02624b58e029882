"""The caller's state: any nested structure of tensors with a row for each hypothesis."""

import keras
from keras import ops, tree


def broadcast_rows(x, copies: int):
    """Repeat each row of `(B, ...)` to `(B * copies, ...)`; the copies of a row are neighbours."""
    if copies == 1:
        return x
    rows, *rest = ops.shape(x)
    x = ops.broadcast_to(ops.expand_dims(x, 1), (rows, copies, *rest))
    return ops.reshape(x, (rows * copies, *rest))


def gather_beams(x, beams):
    """Pick `M` of the `K` entries of each sentence: `(B, K, ...)` at `(B, M)` is `(B, M, ...)`.

    One gather of whole rows, which is cheaper than `take_along_axis` and its broadcast indices.
    """
    batch_size, count, *rest = ops.shape(x)
    rows = ops.arange(batch_size, dtype="int32")[:, None] * count + beams
    return take_rows(ops.reshape(x, (batch_size * count, *rest)), rows)


def take_rows(x, rows):
    """Return `x (R, ...)` at `rows`, of any shape."""
    # The shape is known, but lost by JAX where there are no rows, and by TensorFlow in graphs.
    return ops.reshape(ops.take(x, rows, axis=0), (*ops.shape(rows), *ops.shape(x)[1:]))


class Stepper:
    """The caller's step function, with the constants supplied and what it returns checked.

    Splits the state once: `initial` is what the steps change, which a search carries through its
    loop, and reorders. The entries in `constant_keys` stay outside: they are repeated for the
    hypotheses of a sentence, handed to each step as `constants` (the tensors among them), and what
    the step returns of them is dropped.

    Args:
        step: Callable `(tokens (R,), state, index) -> (logits (R, V), state)`.
        state: Nested structure of tensors with `B` rows; a dictionary where keys are named.
        end_id: Integer, checked against the vocabulary.
        attention_key: Name of the entry in which the step leaves its attention weights `(R, S)`.
        constant_keys: Names of the entries that no step changes.
        growing_axes: For names of entries that have a place for each step, the axis of the places.
        copies: Integer, hypotheses of each sentence; `R = B * copies`.

    Call arguments:
        tokens: Integer tensor `(R,)`, the tokens before.
        state: What `initial` or the last call gave.
        index: Integer scalar tensor, the number of the step.
        constants: The list `constants`, or the same rows of all its tensors.

    Returns:
        `(logits, state)`, the logits `(R, V)` in float32, at the least.
    """

    def __init__(
        self,
        step,
        state,
        *,
        end_id,
        attention_key=None,
        constant_keys=(),
        growing_axes=None,
        copies=1,
    ):
        self._step = step
        self._end_id = end_id
        self._attention_key = attention_key
        state = tree.map_structure(_as_tensor, state)
        self.batch_size = _count_rows(state)
        self.growing_axes = dict(growing_axes or {})
        _check_keys(state, attention_key, constant_keys)
        _check_growing(state, self.growing_axes, constant_keys)
        state = tree.map_structure(
            lambda x: None if x is None else broadcast_rows(x, copies), state
        )
        self._constants = {key: state[key] for key in constant_keys}
        # In the order of `map_structure`, which need not be that of `flatten`.
        self.constants = []
        tree.map_structure(
            lambda x: None if x is None else self.constants.append(x), self._constants
        )
        self.initial = (
            {key: value for key, value in state.items() if key not in self._constants}
            if isinstance(state, dict)
            else state
        )
        _check_no_nones(self.initial)

    def __call__(self, tokens, state, index, constants):
        given = {**state, **self._with_nones(constants)} if self._constants else state
        logits, changed = self._step(tokens, given, index)
        if self._constants:
            changed = {key: changed[key] for key in changed if key not in self._constants}
        self._check_logits(logits)
        return ops.cast(logits, "float32"), _same_form(changed, state)

    def _with_nones(self, constants):
        tensors = iter(constants)
        return tree.map_structure(lambda x: None if x is None else next(tensors), self._constants)

    def attention(self, state):
        """Return the attention weights `(R, S)` that the last step left in its state."""
        return state[self._attention_key]

    def _check_logits(self, logits) -> None:
        shape = tuple(logits.shape)
        if len(shape) != 2 or shape[-1] is None or shape[-1] < 2:
            raise ValueError(
                "The step should return logits of shape (rows, vocabulary), the vocabulary static "
                f"and of at least 2 tokens. Received: shape {shape}"
            )
        if self._end_id >= shape[-1]:
            raise ValueError(
                f"`end_id` should be one of the {shape[-1]} tokens that the step scores. "
                f"Received: {self._end_id}"
            )


def _as_tensor(leaf):
    return None if leaf is None else ops.convert_to_tensor(leaf)


def _count_rows(state):
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


def _check_keys(state, attention_key, constant_keys) -> None:
    if isinstance(constant_keys, str):
        raise ValueError(
            "`constant_keys` should be a sequence of names. "
            f"Received: the string {constant_keys!r}; write ({constant_keys!r},)"
        )
    named = list(constant_keys) + ([] if attention_key is None else [attention_key])
    if named and not isinstance(state, dict):
        raise ValueError(
            "`attention_key` and `constant_keys` name entries of `state`, which should be a "
            f"dictionary then. Received: {type(state).__name__}"
        )
    missing = [key for key in named if key not in state]
    if missing:
        raise ValueError(
            f"`state` should have the entries that `attention_key` and `constant_keys` name "
            "(attention weights as zeros of shape (rows, memory steps) before the first step). "
            f"Received: no {missing} among {sorted(map(str, state))}"
        )
    if attention_key is not None and attention_key in constant_keys:
        raise ValueError(
            "The attention weights change with each step. "
            f"Received: {attention_key!r} as `attention_key` and in `constant_keys`"
        )


def _check_growing(state, growing_axes, constant_keys) -> None:
    for key, axis in growing_axes.items():
        leaves = tree.flatten(state[key]) if isinstance(state, dict) and key in state else []
        fits = [len(x.shape) > axis >= 1 and x.shape[axis] != 0 for x in leaves]
        if not fits or not all(fits) or key in constant_keys:
            shapes = [tuple(x.shape) for x in leaves]
            raise ValueError(
                "`growing_axes` should name entries of `state` that steps change, and an axis from "
                "1 that all their tensors have, with a place at least. "
                f"Received: {key!r}: {axis}, with tensors of shapes {shapes}"
            )


def _check_no_nones(state) -> None:
    nones = [_name(path) for path, x in tree.flatten_with_path(state) if x is None]
    if nones:
        raise ValueError(
            "What the steps change should be tensors; None may stand under `constant_keys` only. "
            f"Received: None at {', '.join(nones)}"
        )


def _same_form(changed, before):
    """Return a step's state in the containers that it got, or say what cannot go round a loop."""
    new, old = (dict(tree.flatten_with_path(state)) for state in (changed, before))
    if new.keys() != old.keys():
        raise ValueError(
            "The step should return a state with the entries that it was given. "
            f"Received: {', '.join(map(_name, new)) or 'nothing'}; "
            f"given: {', '.join(map(_name, old)) or 'nothing'}"
        )
    for path in old:
        _check_same(_name(path), new[path], old[path])
    return tree.pack_sequence_as(before, [new[path] for path in old])


def _check_same(name, new, old) -> None:
    if not ops.is_tensor(new):
        raise ValueError(f"The step should return tensors. Received: {new!r} at {name}")
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in (new, old)]
    is_same = len(new.shape) == len(old.shape) and all(
        a is None or b is None or a == b for a, b in zip(new.shape, old.shape, strict=True)
    )
    if not is_same or dtypes[0] != dtypes[1]:
        raise ValueError(
            "The step should return a state of the shapes and dtypes that it was given; one that "
            "grows needs a buffer of full size, written at `index`. "
            f"Received: {tuple(new.shape)} {dtypes[0]} for {tuple(old.shape)} {dtypes[1]} "
            f"at {name}"
        )


def _name(path) -> str:
    return "state" + "".join(f"[{part!r}]" for part in path)
