"""Arguments of layers: checks of shapes, the configuration, and the arguments of a call.

`ops.checks` has the checks of values, which stand here too: `arguments.check_integer`.
`ops.masks.check_mask` checks masks.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from ..ops.masks import check_dense
from ..ops.shapes import can_be_one
from ..ops.types import check_choice as check_choice
from ..ops.types import check_flag as check_flag
from ..ops.types import check_integer as check_integer
from ..ops.types import check_number as check_number
from ..ops.types import check_rate as check_rate
from ..ops.types import check_seed as check_seed

SEQUENCE, MEMORY = "batch, steps, features", "batch, memory steps, features"


def check_built(layer: keras.layers.Layer, shapes: str) -> None:
    """Raise a ValueError if a layer that is to prepare a memory or take a step is not built."""
    if not layer.built:
        raise ValueError(
            f"{type(layer).__name__} has no weights yet. Call it once, or `build({shapes})`, "
            f"before its memory is prepared or a step taken. Received: {layer.name}, not built"
        )


def check_features(name: str, shape: tuple, size: int) -> None:
    """Raise a ValueError unless an input has the number of features the layer was built for."""
    if shape[-1] != size:
        raise ValueError(
            f"The layer was built for {'' if name.endswith('s') else 'a '}{name} of {size} "
            f"features. Received: {name} of shape {tuple(shape)}"
        )


def check_step(name: str, shape: tuple, size: int | None = None) -> None:
    """Raise a ValueError unless a step's inputs are `(batch, features)`; `None` fits any size."""
    if len(shape) != 2:
        raise ValueError(
            f"A step takes {'' if name.endswith('s') else 'a '}{name} of shape (batch, features), "
            f"one time step of each row, such as x[:, 0]. Received: {name} of shape {tuple(shape)}"
        )
    if size is not None:
        check_features(name, shape, size)


def check_parts(name: str, given: Any, source: str, **expected: tuple | None) -> None:
    """Raise a ValueError unless a state or memory has tensors of these names and shapes.

    A shape of `None`, and a size of `None`, fit any. `source` names the method that makes them.
    """
    is_mapping = isinstance(given, Mapping)
    parts = given.items() if is_mapping else ()
    shapes = {part: tuple(getattr(value, "shape", ())) for part, value in parts}
    if is_mapping and all(
        part in shapes and (shape is None or can_be_one(shapes[part], shape))
        for part, shape in expected.items()
    ):
        return
    wanted = [part if shape is None else f"{part} {shape}" for part, shape in expected.items()]
    other = given if given is None else f"a {type(given).__name__}"
    found = shapes if is_mapping else other
    raise ValueError(
        f"`{name}` must be a dictionary as {source} returns it, with as many rows as the inputs"
        f"{': ' if wanted else ''}{', '.join(wanted)}. Received: {name}={found}"
    )


def as_integer(name: str, value: Any, minimum: float = 0) -> Any:
    """Return an integer, or the scalar tensor of integers that stands for one in a graph."""
    if isinstance(value, Integral):
        return check_integer(name, value, minimum)
    is_tensor = hasattr(value, "dtype") and hasattr(value, "shape")
    if is_tensor and not isinstance(value, Real):
        dtype = keras.backend.standardize_dtype(value.dtype)
        if len(value.shape) == 0 and "int" in dtype:
            return value
        value = f"a tensor of shape {tuple(value.shape)} and dtype {dtype}"
    elif not (value is None or isinstance(value, (Real, str, list, tuple, dict))):
        return value  # the symbol of a size, of JAX
    raise ValueError(
        f"`{name}` must be an integer or a scalar tensor of integers. Received: {name}={value}"
    )


def as_index(index: Any) -> Any:
    """Return the position of a step, an integer or a scalar tensor, in int32.

    NumPy's uint8 has no -1.
    """
    index = as_integer("index", index, -math.inf)
    return index if isinstance(index, int) else ops.cast(index, "int32")


def check_shapes(**given: tuple[tuple, str]) -> None:
    """Raise a ValueError unless shapes have their forms, such as `"batch, steps, features"`.

    Axes of the same name must have the same size, and the number of features must be known. A shape
    of `None` is ignored.
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
    """Remove the shapes of inputs that a subclass' `call` does not take from `build`.

    Keras passes shapes to `build` by the names of the arguments of `call`, and raises an error for
    a shape without an argument. It reads the signature of the function on the instance.
    """
    taken = inspect.signature(type(layer).call).parameters
    signature = inspect.signature(layer.build)
    first, *others = signature.parameters.values()
    kept = [shape for shape in others if shape.name.removesuffix("_shape") in taken]
    if len(kept) < len(others):
        layer.build.__signature__ = signature.replace(parameters=[first, *kept])


class CallRules:
    """Rejects ragged tensors, and lets a subclass define a `call` with fewer arguments."""

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
    """Implements `get_config` for layers of this package, and weights that are attributes."""

    attribute_of: dict[str, str] = {}
    """Names of the attributes of arguments, where the two differ."""

    has_weight_options = False
    """Whether each `*_initializer` comes with a `*_regularizer` and a `*_constraint`.

    These are keyword arguments of the constructor; `_make_weight` selects them by its `kind`.
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
        """Return the names of all constructor arguments that this package defines."""
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
            try:
                config[name] = keras.saving.serialize_keras_object(value)
            except (TypeError, AttributeError) as error:
                raise ValueError(
                    f"`{name}` cannot be saved with the layer. Keras can save a function or class "
                    "with `@keras.saving.register_keras_serializable()` above it; a class needs a "
                    f"`get_config`, too. Received: {name}={value!r}"
                ) from error
        return config

    def _make_weight(self, name, shape, initializer, kind=None, **options):
        """Add a weight as an attribute; `kind` is the prefix of its regularizer and constraint."""
        if kind is not None:
            options |= {o: getattr(self, f"{kind}_{o}") for o in ("regularizer", "constraint")}
        weight = self.add_weight(shape, initializer=initializer, name=name, **options)
        setattr(self, name, weight)
        return weight


def call_arguments(layer: keras.layers.Layer, args: tuple, kwargs: dict) -> SimpleNamespace:
    """Return the arguments of a call by name, with defaults, for `compute_output_spec`."""
    bound = inspect.signature(layer.call).bind(*args, **kwargs)
    bound.apply_defaults()
    return SimpleNamespace(**bound.arguments)


def for_own_call(compute: Callable) -> Callable:
    """Decorate a `compute_output_spec` so that it applies only to the `call` of the same class.

    Where a subclass defines its own `call`, with other arguments or results, Keras traces that.
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
    """Return a symbolic tensor for each shape: a tuple, or the tensor if there is only one."""
    symbols = tuple(keras.KerasTensor(shape, dtype) for shape in shapes)
    return symbols if len(symbols) > 1 else symbols[0]


def side_by_side(initializer: Any, count: int) -> Any:
    """Return an initializer of `count` kernels that are concatenated along the last axis.

    Each is drawn separately: otherwise the size of all would determine the scale of each. If the
    initializer has a seed, each part after the first has another, so that the parts differ.
    """
    parts = [fresh(initializer) for _ in range(count)]
    for index, part in enumerate(parts):
        config = part.get_config() if isinstance(part, keras.initializers.Initializer) else {}
        if isinstance(config.get("seed"), int):
            parts[index] = type(part).from_config({**config, "seed": config["seed"] + index})

    def draw(shape, dtype=None):
        size = (*shape[:-1], shape[-1] // count)
        return ops.concatenate([part(size, dtype=dtype) for part in parts], axis=-1)

    return draw


def fresh(initializer: Any) -> Any:
    """Return a copy of a random initializer, so that weights of the same shape start different.

    Other initializers are returned as they are: a copy of Keras' `Identity` would lose its gain.
    """
    return initializer.clone() if hasattr(initializer, "seed") else initializer
