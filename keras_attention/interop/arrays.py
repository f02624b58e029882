"""Named arrays from elsewhere, each of which must be read and must fit."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np


class Arrays:
    """Arrays by name, with a note of those that were read."""

    def __init__(self, given: Mapping[str, Any], name: str):
        if not isinstance(given, Mapping):
            raise ValueError(
                f"`{name}` must map names to arrays, as `module.state_dict()` and "
                f"`safetensors.numpy.load_file(path)` do. Received: {type(given).__name__}"
            )
        self.given = given
        self.name = name
        self.read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self.given:
            raise ValueError(
                f"`{self.name}` must hold `{key}`. Received: {', '.join(sorted(self.given)) or '-'}"
            )
        self.read.add(key)
        return as_array(self.given[key])

    def get(self, key: str) -> np.ndarray | None:
        """Return an array that need not be there."""
        if key not in self:
            return None
        return self[key]

    def check_all_read(self, prefix: str = "") -> None:
        """Raise a ValueError where an array below a prefix has no place in the layer."""
        left = sorted(key for key in self.given if key.startswith(prefix) and key not in self.read)
        if left:
            raise ValueError(
                f"`{self.name}` must hold the weights of this layer alone: these have no "
                f"counterpart in it. Received: {', '.join(left)}"
            )


def as_array(value: Any) -> np.ndarray:
    """Return a NumPy array of an array, a PyTorch tensor on any device, or a Keras variable."""
    for method in ("detach", "cpu"):
        value = getattr(value, method)() if hasattr(value, method) else value
    if "bfloat16" in str(getattr(value, "dtype", "")):  # which NumPy does not have
        value = value.float() if hasattr(value, "float") else value
    if isinstance(value, keras.Variable):
        value = keras.ops.convert_to_numpy(value)
    return np.asarray(value)


def assign(layer: Any, **values: np.ndarray | None) -> None:
    """Assign arrays to the weights of a layer by attribute; `None` leaves one at zero."""
    for name, value in values.items():
        weight = getattr(layer, name)
        if weight is None and value is None:
            continue
        shape = tuple(weight.shape)
        value = np.zeros(shape) if value is None else value
        if tuple(value.shape) != shape:
            raise ValueError(
                f"`{name}` of {layer.name} must have the shape {shape}; build the layer for the "
                f"sizes of the weights. Received: an array of shape {tuple(value.shape)}"
            )
        weight.assign(value)


def class_names(thing: Any, packages: Iterable[str]) -> set[str]:
    """Return the names of an object's classes, its bases too, that come from some packages."""
    packages = set(packages)
    return {
        kind.__name__ for kind in type(thing).__mro__ if kind.__module__.split(".")[0] in packages
    }


def refuse(thing: Any, reasons: list[str]) -> None:
    """Raise one ValueError with all reasons for which a layer has no counterpart, if any."""
    if reasons:
        raise ValueError(
            f"{type(thing).__name__} must have only what layers of this package compute: "
            f"{'; '.join(reasons)}. Received: {thing}"
        )
