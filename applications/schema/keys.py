"""Sections of settings as frozen dataclasses. A key is declared once, with all that is known of it.

```python
@dataclass(frozen=True)
class ModelConfig(Section):
    \"""The model.\"""

    section = "model"

    architecture: Literal["luong", "transformer"] = key("luong", "the network", common=True)
    layers: int | None = key(
        None,
        "layers of encoder and decoder",
        at_least=1,
        applies_to={"architecture": ("luong",)},
        null={"luong": 2},
    )
```

Flags, YAML, checks, help and the tables of the documentation come from these declarations.
"""

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..errors import Problems, UserError, check_choice, check_key, check_range, refuse, shown

SPLITS = ("train", "dev", "test")

GIVEN = "given"
"""In `applies_to`: any value of the other key but null, false or an empty text."""


@dataclass(frozen=True)
class Key:
    """What is known of a setting beside its name, its type and its default.

    Attributes:
        meaning: One sentence for the help, without a full stop.
        common: Whether `--help` lists it; `--help-all` lists every key.
        limits: The range of a number, as `check_range` takes it.
        applies_to: Other keys of the section, and the values with which this one has an effect:
            a tuple of values, or `GIVEN`.
        null: What null stands for, by the value of the first key of `applies_to`.
        elsewhere: A value that is true where the key does not apply, and so is not refused.
    """

    meaning: str
    common: bool = False
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    applies_to: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    null: Mapping[Any, Any] = dataclasses.field(default_factory=dict)
    elsewhere: Any = None


def key(
    default: Any,
    meaning: str,
    *,
    common: bool = False,
    applies_to: Mapping[str, Any] | None = None,
    null: Mapping[Any, Any] | None = None,
    elsewhere: Any = None,
    **limits: float,
) -> Any:
    """Return the field of a section: a setting with its default.

    Args:
        default: Its value where none is given.
        meaning: One sentence for the help, without a full stop.
        common: Whether `--help` lists it; `--help-all` lists every key.
        applies_to: The values of other keys of the section with which it has an effect; with
            others, a value that is not the default is refused.
        null: What null stands for, by the value of the first key of `applies_to`.
        elsewhere: A value that is true where the key does not apply, and so is not refused.
        **limits: The range of a number: `at_least`, `above`, `at_most` or `below`.
    """
    described = Key(meaning, common, limits, applies_to or {}, null or {}, elsewhere)
    return dataclasses.field(default=default, metadata={"key": described})


def keys_of(section: type) -> dict[str, Key]:
    """Return the keys of a section by name.

    A section that extends another may give a key another default; the rest is inherited.
    """
    found = {}
    for field in dataclasses.fields(section):
        declared = (each.__dict__.get("__dataclass_fields__", {}) for each in section.__mro__)
        fields = (each[field.name] for each in declared if field.name in each)
        found[field.name] = next(each.metadata["key"] for each in fields if "key" in each.metadata)
    return found


@dataclass(frozen=True)
class Section:
    """A section of settings, which checks itself: choices, ranges, and keys without effect."""

    section: ClassVar[str]
    paths: ClassVar[tuple[str, ...]] = ()
    """The keys that name files or folders."""

    def __init_subclass__(cls) -> None:
        # `help(TrainingConfig)` has an entry for each key, as if it stood in the docstring.
        described = {}
        for base in reversed(cls.__mro__[1:]):
            if dataclasses.is_dataclass(base):
                described |= keys_of(base)
        own = {name: getattr(value, "metadata", {}) for name, value in vars(cls).items()}
        described |= {name: each["key"] for name, each in own.items() if "key" in each}
        entries = (f"    {name}: {each.meaning}." for name, each in described.items())
        cls.__doc__ = "\n".join([f"{inspect.cleandoc(cls.__doc__ or '')}\n\nArgs:", *entries])

    def __post_init__(self):
        keys = keys_of(type(self))
        types = {field.name: field.type for field in dataclasses.fields(self)}
        for name, each in keys.items():
            self._check_choices(name, types[name])
            if each.limits:
                check_range(f"{self.section}.{name}", getattr(self, name), **each.limits)
        self.fill({name: self._null(each) for name, each in keys.items() if each.null})
        for name, each in keys.items():
            for other, values in each.applies_to.items():
                if not self.applies(other, values):
                    self.refuse_unused(name, goes_with(f"{self.section}.{other}", values))
                    break
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together. A subclass overrides it."""

    def applies(self, other: str, values: Any) -> bool:
        """Return whether another key has one of some values, or any where they are `GIVEN`."""
        value = getattr(self, other)
        return bool(value) if values is GIVEN else value in values

    def own(self, other: str = "architecture") -> dict[str, Any]:
        """Return the values of the keys that only some values of another key have."""
        keys = keys_of(type(self)).items()
        depend = {name: each.applies_to[other] for name, each in keys if other in each.applies_to}
        names = [name for name, values in depend.items() if self.applies(other, values)]
        return {name: getattr(self, name) for name in names}

    def fill(self, values: Mapping[str, Any]) -> None:
        """Put values where keys are null."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def refuse_unused(self, name: str, why: str) -> None:
        """Refuse a key without effect, unless it has its default."""
        value, each = getattr(self, name), keys_of(type(self))[name]
        if value not in (getattr(type(self), name), self._null(each), each.elsewhere):
            refuse(UserError(f"{self.section}.{name} {why}: leave it out. Received: {value}."))

    def _null(self, each: Key) -> Any:
        """Return what null stands for in a key."""
        if not each.null:
            return None
        return each.null.get(getattr(self, next(iter(each.applies_to))))

    def _check_choices(self, name: str, kind: Any) -> None:
        value = getattr(self, name)
        for each in (kind, *typing.get_args(kind)):
            if typing.get_origin(each) is Literal and value is not None:
                check_choice(f"{self.section}.{name}", value, typing.get_args(each))


@dataclass(frozen=True)
class DataSection(Section):
    """Where the data come from: files of the splits, or a known data set."""

    section = "data"
    dataset = None
    needed: ClassVar[Mapping[str, str]] = {}
    """The splits that training needs, and how to name each of them."""

    def has_split(self, split: str) -> bool:
        """Return whether the section names data for `split`."""
        return bool(self.dataset or getattr(self, split))

    def check_needed(self) -> None:
        """Refuse a section that names no training data or nothing to judge by."""
        kinds = {
            "train": "the training data",
            "dev": "a development set, which training is judged by",
        }
        problems = Problems()
        for split, way in self.needed.items():
            # A known set that lacks the file is read all the same: that error names the file.
            if not (self.dataset or self.has_split(split)):
                problems.found.append(UserError(f"name {kinds[split]}: {way}."))
        problems.check()


def goes_with(name: str, values: Any) -> str:
    """Return `goes with NAME a or b only`."""
    if values is GIVEN or values == (True,):
        return f"goes with {name} only"
    *others, last = map(str, values)
    return f"goes with {name} {', '.join(others)}{' or ' if others else ''}{last} only"


@dataclass(frozen=True)
class Defaults:
    """Other defaults that a data set, an architecture or both of them bring.

    Attributes:
        when: `section.key` names and the values, or tuples of values, that must all hold.
        then: The defaults by `section.key`. What files and options give goes first.
    """

    when: Mapping[str, Any]
    then: Mapping[str, Any]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether the conditions hold of values by `section.key`."""
        return all(
            values[name] in (wanted if isinstance(wanted, tuple) else (wanted,))
            for name, wanted in self.when.items()
        )


def with_keys(own: Mapping[str, Any], given: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Return keys of a section with those that a user gave in a dict of this name, or None."""
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"`{name}` should be a dict. Received: {shown(given)}")
    return {**own, **(given or {})}


@dataclass(frozen=True)
class Config:
    """A whole configuration: its fields are sections."""

    defaults: ClassVar[tuple[Defaults, ...]] = ()
    """What data sets and architectures change; of two that hold, the later one goes first."""

    def check(self) -> None:
        """Refuse sections that do not go together. A subclass overrides it."""

    @classmethod
    def usual(cls) -> dict[str, Any]:
        """Return the default of every key by `section.key`; null is not filled in."""
        return {
            f"{section.name}.{field.name}": field.default
            for section in dataclasses.fields(cls)
            for field in dataclasses.fields(section.type)
        }

    @classmethod
    def brought(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the defaults that the given values bring, both by `section.key`."""
        found: dict[str, Any] = {}
        for each in cls.defaults:
            if each.holds({**cls.usual(), **found, **given}):
                found |= each.then
        return {name: value for name, value in found.items() if name not in given}

    @classmethod
    def of(cls, **sections: Mapping[str, Any]) -> "Config":
        """Return the configuration of some keys, those of a section together.

        The others have their defaults, or those that the given values bring.

        Raises:
            ValueError: Where a section is no dict, lacks a key, or a value is out of its range.
        """
        kinds = {each.name: each.type for each in dataclasses.fields(cls)}
        given = {}
        for section, keys in sections.items():
            name = kinds[section].__name__
            if not isinstance(keys, Mapping):
                raise ValueError(f"Expected a dict for {name}. Received: {shown(keys)}")
            for key, value in keys.items():
                check_key(key, keys_of(kinds[section]), name)
                given[f"{section}.{key}"] = value
        values = {**cls.brought(given), **given}
        made = {}
        for section, kind in kinds.items():
            own = [each.name for each in dataclasses.fields(kind)]
            found = {key: f"{section}.{key}" for key in own if f"{section}.{key}" in values}
            made[section] = kind(**{key: values[name] for key, name in found.items()})
        return cls(**made)
