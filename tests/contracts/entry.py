"""What the registry holds of a layer."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """A layer's cases; options that together give every constructor argument another value than
    its default; and options that it refuses."""

    cases: list
    configs: list[Callable[[], dict]]
    refused: list[dict] = field(default_factory=list)
