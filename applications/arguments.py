"""Arguments of a constructor that are attributes, and part of the configuration."""

import math
from typing import Any


class KeepsArguments:
    """Mixin of what Keras saves: `keep` sets arguments as attributes, which `get_config` gives."""

    _kept: tuple[str, ...] = ()

    def keep(self, **arguments: Any) -> None:
        for name, value in arguments.items():
            setattr(self, name, value)
        self._kept = (*self._kept, *arguments)

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in self._kept}
        return {**super().get_config(), **own}  # type: ignore[misc]


def settings_of(part: Any, to_train: bool = False) -> dict[str, Any]:
    """Return the configuration of a network or preprocessor, to compare it with another's.

    A part names in `only_to_train` the settings that training alone reads. Without `to_train` they
    are left out. Those that a part names as `tuned` go with weights, and always are.
    """
    left_out = ["name", *getattr(part, "tuned", ())]
    if not to_train:
        left_out += getattr(part, "only_to_train", ())
    config = part.get_config()
    for name in left_out:
        config = without(name, config)
    return config


def without(key: str, value: Any) -> Any:
    """Return a configuration without a key, at any depth; descriptions of dtypes stay whole."""
    if isinstance(value, (list, tuple)):
        return [without(key, each) for each in value]
    if not isinstance(value, dict) or "DTypePolicy" in str(value.get("class_name")):
        return value
    return {name: without(key, each) for name, each in value.items() if name != key}


def is_finite(number: Any) -> bool:
    """Whether a number is finite, and no integer beyond all floats."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
