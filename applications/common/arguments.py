"""Arguments of a constructor that are attributes, and part of the configuration."""

import sys
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
    """Whether a number is one that a float can hold: no NaN, no infinity, no longer integer."""
    return bool(abs(number) <= sys.float_info.max)
