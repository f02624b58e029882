"""A user's function of positions with the variables that it reads, for custom gradients.

A custom gradient reaches only the arguments of its function. So the Keras variables that a
`score_mod` reads, and the tensors of a `functools.partial`, also of one inside another, become
arguments.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from .types import Tensor, is_float
from .vjp import VariableRecorder


@dataclass(frozen=True)
class BoundFunction:
    """A `score_mod` or `mask_mod`, and the variables that it reads with their values."""

    function: Any
    values: tuple = field(repr=False)

    @classmethod
    def of(cls, function: Callable | None, *scores: Tensor) -> "BoundFunction | None":
        """Bind the variables that a run on a single pair reads; `scores` precede the positions."""
        if function is None:
            return None
        position = ops.zeros((1, 1, 1, 1), "int32")
        with VariableRecorder() as recorder:
            function(*scores, *(position,) * 4)
        # Read here, outside of any custom gradient: TensorFlow refuses variables inside.
        values = [(v, ops.convert_to_tensor(v.value)) for v in recorder.read.values()]
        return cls(function, tuple(values))

    def tensors(self) -> list:
        """Return the tensors that gradients reach."""
        return [value for v, value in self.values if is_float(v)] + list(self._constants().values())

    def __call__(self, *args: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """Return the function's result, computed with `tensors` instead of `self.tensors()`."""
        given = list(tensors)
        function = self.function
        values = [(v, given.pop(0) if is_float(v) else value) for v, value in self.values]
        if given:
            function = _replaced(function, dict(zip(self._constants(), given, strict=True)))
        with keras.StatelessScope(values):
            return function(*args)

    def _constants(self) -> dict:
        """Return the float tensors of a `functools.partial`, by their paths."""
        return dict(_float_tensors(self.function))


def _float_tensors(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield path and tensor of every float tensor in a `functools.partial` and in those inside."""
    if isinstance(value, functools.partial):
        for key, part in (*enumerate(value.args), *value.keywords.items()):
            yield from _float_tensors(part, (*path, key))
    elif path and ops.is_tensor(value) and is_float(value):
        yield path, value


def _replaced(value: Any, new: dict, path: tuple = ()) -> Any:
    """Return a `functools.partial` with `new` tensors at their paths."""
    if path in new:
        return new[path]
    if not isinstance(value, functools.partial):
        return value
    positional = [_replaced(part, new, (*path, index)) for index, part in enumerate(value.args)]
    keywords = {key: _replaced(part, new, (*path, key)) for key, part in value.keywords.items()}
    return functools.partial(value.func, *positional, **keywords)
