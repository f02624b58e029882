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


def settings_of(part: Any) -> dict[str, Any]:
    """Return the configuration of a network or preprocessor without its name, to compare it."""
    return {**part.get_config(), "name": None}


def is_finite(number: Any) -> bool:
    """Whether a number is finite, and no integer beyond all floats."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
