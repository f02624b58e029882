"""A user's function of positions with the variables that it reads, for custom gradients.

A custom gradient reaches only the arguments of its function. So the Keras variables that a
`score_mod` reads, and the tensors of a `functools.partial`, become arguments.
"""

import functools
from collections.abc import Callable, Sequence
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
        return [value for v, value in self.values if is_float(v)] + list(self._partial().values())

    def __call__(self, *args: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """Return the function's result, computed with `tensors` instead of `self.tensors()`."""
        given = list(tensors)
        function = self.function
        values = [(v, given.pop(0) if is_float(v) else value) for v, value in self.values]
        if given:
            new = dict(zip(self._partial(), given, strict=True))
            positional = [new.get(index, value) for index, value in enumerate(function.args)]
            keywords = {name: new.get(name, value) for name, value in function.keywords.items()}
            function = functools.partial(function.func, *positional, **keywords)
        with keras.StatelessScope(values):
            return function(*args)

    def _partial(self) -> dict:
        """Return the float tensors of a `functools.partial`, by their indices and names."""
        if not isinstance(self.function, functools.partial):
            return {}
        given: dict[Any, Any] = {**dict(enumerate(self.function.args)), **self.function.keywords}
        return {k: value for k, value in given.items() if ops.is_tensor(value) and is_float(value)}
