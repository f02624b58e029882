"""Functions of places that change scores or hide pairs: `score_mod` and `mask_mod`.

A `score_mod(score, batch, head, query, key)` returns another score, a `mask_mod(batch, head, query,
key)` a boolean, True = attend. They see whole blocks of pairs: `score` is `(B, H, rows, columns)`
in float32 (float64 under that policy); the places are int32, `batch` `(B, 1, 1, 1)`, `head`
`(1, H, 1, 1)`, `query` `(1, 1, rows, 1)` and `key` `(1, 1, 1, columns)`. The result broadcasts to
the block's shape.

The interface is that of PyTorch's FlexAttention (Dong et al. 2024).

Example:

```python
import numpy as np
from keras_attention.layers import MultiHeadAttention
from keras_attention.ops.dot_product.mods import all_of, causal, documents

packed = np.array([[0, 0, 0, 1, 1, 2]])  # three texts in one row
layer = MultiHeadAttention(num_heads=2, key_dim=4)
_, scores = layer(
    np.random.normal(size=(1, 6, 8)),
    mask_mod=all_of(causal, documents(packed)),
    return_attention_scores=True,
)
assert not np.any(np.asarray(scores)[0, :, 3:, :3])  # no text reads another
```
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from ..positions import alibi_slopes
from ..types import Tensor, is_float

register = keras.saving.register_keras_serializable("keras_attention")


@register
class Partial:
    """A function of places with its first arguments, as `functools.partial`, that files keep."""

    def __init__(self, function: Callable, *args: Any) -> None:
        self.function, self.args = function, args

    def __call__(self, *places: Tensor) -> Tensor:
        return self.function(*self.args, *places)

    def get_config(self) -> dict:
        """Return the function and its arguments, serialized."""
        parts = {"function": self.function, "args": list(self.args)}
        return {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}

    @classmethod
    def from_config(cls, config: dict) -> "Partial":
        """Return the same function again."""
        function, args = (
            keras.saving.deserialize_keras_object(config[name]) for name in ("function", "args")
        )
        return cls(function, *args)


@register
def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Hide what follows the query."""
    return key <= query


def sliding_window(size: int) -> Callable:
    """Hide what is `size` places or more away."""
    return Partial(_near, size)


@register
def _near(size: int, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return ops.abs(query - key) < size


def first_places(count: int) -> Callable:
    """Show the first `count` places: sinks (Xiao et al. 2024), or a prefix that all may read."""
    return Partial(_first, count)


@register
def _first(count: int, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key < count


def documents(query_ids: Tensor, key_ids: Tensor = None) -> Callable:
    """Show pairs of one document: `query_ids (B, T)` are their numbers, `key_ids` may differ."""
    return Partial(_same, query_ids, query_ids if key_ids is None else key_ids)


@register
def _same(
    query_ids: Tensor, key_ids: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    return ops.equal(look_up(query_ids, batch, query), look_up(key_ids, batch, key))


def all_of(*masks: Callable) -> Callable:
    """Show what all masks show."""
    return Partial(_all, list(masks))


@register
def _all(masks: Sequence[Callable], *places: Tensor) -> Tensor:
    return functools.reduce(ops.logical_and, [mask(*places) for mask in masks])


def any_of(*masks: Callable) -> Callable:
    """Show what one mask shows at least."""
    return Partial(_any, list(masks))


@register
def _any(masks: Sequence[Callable], *places: Tensor) -> Tensor:
    return functools.reduce(ops.logical_or, [mask(*places) for mask in masks])


def alibi(num_heads: int) -> Callable:
    """Take a slope of each head times the distance off the score (Press et al. 2022)."""
    return Partial(_less_by_distance, num_heads)


@register
def _less_by_distance(
    num_heads: int, score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor
) -> Tensor:
    dtype = keras.backend.standardize_dtype(score.dtype)
    slopes = look_up(alibi_slopes(num_heads, dtype), head)
    return score - slopes * ops.cast(ops.abs(query - key), score.dtype)


def look_up(table: Tensor, *places: Tensor) -> Tensor:
    """Return the entries of a table at places, one tensor of them for each axis: `table[i, j]`.

    The places are integers that broadcast together; one outside of the table takes the nearest.
    """
    table = ops.convert_to_tensor(table)
    index = 0
    for size, place in zip(ops.shape(table), places, strict=True):
        index = index * size + ops.clip(place, 0, size - 1)
    return ops.take(ops.reshape(table, (-1,)), index)


@dataclass(frozen=True)
class Mods:
    """A score's and a mask's function, and the tensors through which they learn.

    A hand-written gradient reaches only its arguments. So the tensors of a `functools.partial` and
    the Keras variables that the functions read become arguments; one run on a single pair finds the
    variables and their values, `values` and `mask_values`.
    """

    score: Any = None
    mask: Any = None
    values: tuple = field(default=(), repr=False)
    mask_values: tuple = field(default=(), repr=False)

    @property
    def any(self) -> bool:
        """Whether there is a function."""
        return self.score is not None or self.mask is not None

    @classmethod
    def of(cls, score: Callable | None, mask: Callable | None) -> "Mods":
        """Return the functions with the variables that they read."""
        place = ops.zeros((1, 1, 1, 1), "int32")
        places, one = (place,) * 4, ops.zeros((1, 1, 1, 1), "float32")
        read = (
            () if score is None else _values_read(lambda: score(one, *places)),
            () if mask is None else _values_read(lambda: mask(*places)),
        )
        return cls(score, mask, *read)

    def tensors(self) -> list:
        """Return the tensors that gradients reach."""
        return [value for v, value in self.values if is_float(v)] + list(self._given().values())

    def scored(self, score: Tensor, places: tuple, tensors: Sequence[Tensor]) -> Tensor:
        """Return the scores of a block, computed with `tensors` in place of `self.tensors()`."""
        given, function = list(tensors), self.score
        mapping = [(v, given.pop(0) if is_float(v) else value) for v, value in self.values]
        if given:
            new = dict(zip(self._given(), given, strict=True))
            args = [new.get(place, value) for place, value in enumerate(function.args)]
            keywords = {name: new.get(name, each) for name, each in function.keywords.items()}
            function = functools.partial(function.func, *args, **keywords)
        with keras.StatelessScope(mapping):
            return ops.cast(function(score, *places), score.dtype)

    def shown(self, places: tuple) -> Tensor:
        """Return the mask of a block."""
        with keras.StatelessScope([(v, ops.stop_gradient(value)) for v, value in self.mask_values]):
            return ops.cast(self.mask(*places), "bool")

    def _given(self) -> dict:
        """Return the float tensors of a `functools.partial`, by their places and names."""
        if not isinstance(self.score, functools.partial):
            return {}
        given: dict[Any, Any] = {**dict(enumerate(self.score.args)), **self.score.keywords}
        return {k: value for k, value in given.items() if ops.is_tensor(value) and is_float(value)}


class _Recorder(keras.StatelessScope):
    """Notes each variable that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.variables: dict[int, Tensor] = {}

    def get_current_value(self, variable: Tensor) -> Tensor:
        self.variables[id(variable)] = variable
        return super().get_current_value(variable)


def _values_read(function: Callable) -> tuple:
    """Return the variables that a function reads, with their values."""
    with _Recorder() as recorder:
        function()
    # Read here, outside of any custom gradient: TensorFlow refuses variables inside.
    return tuple((v, ops.convert_to_tensor(v.value)) for v in recorder.variables.values())
