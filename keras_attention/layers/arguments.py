"""The arguments of layers: checks of a constructor's and of shapes, configurations, a call's names.

A check returns the argument in the type that a configuration stores, as in
`self.units = check_integer("units", units)`. `ops.masks.check_mask` checks masks.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from ..ops.masks import check_dense
from ..ops.types import is_finite

SEQUENCE, MEMORY = "batch, steps, features", "batch, memory steps, features"


def check_integer(name: str, value: Any, minimum: float = 1) -> int:
    """Return an integer of at least `minimum`. A Boolean is no integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        kinds = {-math.inf: "an integer", 0: "a non-negative integer", 1: "a positive integer"}
        kind = kinds.get(minimum, f"an integer of at least {minimum}")
        raise ValueError(f"`{name}` must be {kind}. Received: {name}={value!r}")
    return int(value)


def check_number(name: str, value: Any, minimum: float = 0.0, above: bool = False) -> float:
    """Return a finite number of at least `minimum`; with `above`, a greater one."""
    if not is_finite(value) or value < minimum or (above and value == minimum):
        bound = f"above {minimum:g}" if above else f"of at least {minimum:g}"
        raise ValueError(f"`{name}` must be a finite number {bound}. Received: {name}={value!r}")
    return value if isinstance(value, (int, float)) else float(value)


def check_rate(name: str, value: Any) -> float:
    """Return a dropout rate: a number in [0, 1), which NaN is not."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return value if isinstance(value, (int, float)) else float(value)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """Return a value that is one of the choices."""
    choices = tuple(choices)
    if not any(value is choice or value == choice for choice in choices):
        raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return a Boolean."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return value


def check_seed(value: Any) -> int | None:
    """Return a seed: an integer or `None`."""
    return None if value is None else check_integer("seed", value, minimum=-math.inf)


def check_built(layer: keras.layers.Layer, shapes: str) -> None:
    """Raise a ValueError where a layer has no weights yet, to prepare a memory or take a step."""
    if not layer.built:
        raise ValueError(
            f"{type(layer).__name__} has no weights yet. Call it once, or `build({shapes})`, "
            f"before its memory is prepared or a step taken. Received: {layer.name}, not built"
        )


def check_features(name: str, shape: tuple, size: int) -> None:
    """Raise a ValueError where an input is not as wide as the layer was built for."""
    if shape[-1] != size:
        raise ValueError(
            f"The layer was built for {'' if name.endswith('s') else 'a '}{name} of {size} "
            f"features. Received: {name} of shape {tuple(shape)}"
        )


def check_shapes(**given: tuple[tuple, str]) -> None:
    """Raise a ValueError unless shapes have their forms, such as `"batch, steps, features"`.

    Axes of one name have one size; that of an axis of features must be known. `None` is no input.
    """
    given = {name: (shape, form) for name, (shape, form) in given.items() if shape is not None}
    shapes = [f"{name} of shape {tuple(shape)}" for name, (shape, _) in given.items()]
    received = "Received: " + ", ".join(shapes)
    sizes: dict[str, set] = {}
    for name, (shape, form) in given.items():
        axes = form.split(", ")
        if len(shape) != len(axes):
            forms = ", ".join(f"({form}) of {name}" for name, (_, form) in given.items())
            raise ValueError(f"Inputs must have the shape {forms}. {received}")
        for axis, size in zip(axes, shape, strict=True):
            if axis != "features":
                sizes.setdefault(axis, set()).update({size} - {None})
            elif size is None:
                raise ValueError(f"The last axis of {name} must be known. {received}")
    for axis, found in sizes.items():
        if len(found) > 1:
            same = "the same batch size" if axis == "batch" else f"as many {axis}"
            raise ValueError(f"{', '.join(given)} must have {same}. {received}")


def _narrow_build(layer: keras.layers.Layer) -> None:
    """Leave the shapes of inputs that a subclass' `call` does not take out of `build`.

    Keras builds by the names of the call's arguments, and refuses a shape that has none. It reads
    them from the signature of the function that it puts on the instance.
    """
    taken = inspect.signature(type(layer).call).parameters
    signature = inspect.signature(layer.build)
    first, *others = signature.parameters.values()
    kept = [shape for shape in others if shape.name.removesuffix("_shape") in taken]
    if len(kept) < len(others):
        layer.build.__signature__ = signature.replace(parameters=[first, *kept])


class CallRules:
    """Refuses ragged tensors, and lets a subclass have a call of fewer arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        layer = super().__new__(cls, *args, **kwargs)
        _narrow_build(layer)
        return layer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_dense(args)
        for name, given in kwargs.items():
            check_dense(given, name)
        return super().__call__(*args, **kwargs)


class Configured(CallRules):
    """Gives a layer of this package `get_config`, and weights that are attributes."""

    attribute_of: dict[str, str] = {}
    """The attribute of an argument, where it has another name."""

    has_weight_options = False
    """Whether each `*_initializer` has a `*_regularizer` and a `*_constraint` of the same weights.

    They are keyword arguments of the constructor that `_make_weight` takes by its `kind`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        found = {}
        for name in self._weight_options():
            kind = keras.regularizers if name.endswith("regularizer") else keras.constraints
            found[name] = kind.get(kwargs.pop(name, None))
        super().__init__(*args, **kwargs)
        for name, value in found.items():
            setattr(self, name, value)

    @classmethod
    def _arguments(cls) -> set[str]:
        """Return the names of all arguments of the constructors of this package."""
        kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith(__package__)]
        constructors = [vars(kind)["__init__"] for kind in kinds if "__init__" in vars(kind)]
        names = {name for each in constructors for name in inspect.signature(each).parameters}
        return names - {"self", "args", "kwargs"}

    @classmethod
    def _weight_options(cls) -> list[str]:
        """Return the names of the regularizers and constraints."""
        if not cls.has_weight_options:
            return []
        names = sorted(name for name in cls._arguments() if name.endswith("_initializer"))
        kinds = [name.removesuffix("_initializer") for name in names]
        return [f"{kind}_{option}" for kind in kinds for option in ("regularizer", "constraint")]

    def get_config(self) -> dict:
        """Return all constructor arguments, each from the attribute of its name."""
        config = super().get_config()
        names = {*self._arguments(), *self._weight_options()}
        for name in sorted(names - {*config}):
            value = getattr(self, self.attribute_of.get(name, name))
            if name.endswith("activation") and callable(value):
                value = keras.activations.serialize(value)
            config[name] = keras.saving.serialize_keras_object(value)
        return config

    def _make_weight(self, name, shape, initializer, kind=None, **options):
        """Make a weight, an attribute of the same name; `kind` names its regularizer."""
        if kind is not None:
            options |= {o: getattr(self, f"{kind}_{o}") for o in ("regularizer", "constraint")}
        weight = self.add_weight(shape, initializer=initializer, name=name, **options)
        setattr(self, name, weight)
        return weight


def call_arguments(layer: keras.layers.Layer, args: tuple, kwargs: dict) -> SimpleNamespace:
    """Return the arguments of a layer's call by name, with defaults, for `compute_output_spec`."""
    bound = inspect.signature(layer.call).bind(*args, **kwargs)
    bound.apply_defaults()
    return SimpleNamespace(**bound.arguments)


def of_own_call(compute: Callable) -> Callable:
    """Decorate a `compute_output_spec`, so that it speaks for the `call` beside it alone.

    Where a subclass has a `call` of its own, with other arguments or results, Keras traces that.
    """

    @functools.wraps(compute)
    def compute_output_spec(self, *args, **kwargs):
        kinds = type(self).__mro__

        def depth(name):
            return next(i for i, kind in enumerate(kinds) if name in vars(kind))

        if depth("compute_output_spec") <= depth("call"):
            return compute(self, *args, **kwargs)
        if depth("compute_output_shape") <= depth("call"):
            return keras.layers.Layer.compute_output_spec(self, *args, **kwargs)
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    return compute_output_spec


def specs(shapes: list[tuple], dtype: str) -> Any:
    """Return a symbol of each shape, and of a single one not a tuple but itself."""
    symbols = tuple(keras.KerasTensor(shape, dtype) for shape in shapes)
    return symbols if len(symbols) > 1 else symbols[0]


def side_by_side(initializer: Any, count: int) -> Any:
    """Return an initializer of `count` kernels in one, along its last axis.

    Each is drawn apart: otherwise the sizes of all would count in the initial scale of each. Where
    the initializer has a seed, each part after the first has another, or all would be equal.
    """
    parts = [fresh(initializer) for _ in range(count)]
    for place, part in enumerate(parts):
        config = part.get_config() if isinstance(part, keras.initializers.Initializer) else {}
        if isinstance(config.get("seed"), int):
            parts[place] = type(part).from_config({**config, "seed": config["seed"] + place})

    def draw(shape, dtype=None):
        size = (*shape[:-1], shape[-1] // count)
        return ops.concatenate([part(size, dtype=dtype) for part in parts], axis=-1)

    return draw


def fresh(initializer: Any) -> Any:
    """Return a copy of a random initializer: weights of one shape made by one would start equal.

    Others stay as they are: a copy of Keras' `Identity` would lose its gain.
    """
    return initializer.clone() if hasattr(initializer, "seed") else initializer
