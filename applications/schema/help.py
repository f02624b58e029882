"""Settings described: the help of the command, and a configuration file with comments."""

import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from .keys import Config, Defaults, Key, goes_with, keys_of

WIDTH = 100
WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "null",
}
LIMITS = {"at_least": "from", "above": "above", "at_most": "up to", "below": "below"}


def options_of(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a field may have."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def type_words(annotation: Any) -> str:
    """Say what values a field accepts: `one of a, b`, `a whole number`, `a number or null`."""
    words = (
        WORDS.get(each) or "one of " + ", ".join(map(str, typing.get_args(each)))
        for each in options_of(annotation)
    )
    return " or ".join(dict.fromkeys(words))


def option_value(value: Any) -> str:
    """Return a value as options and YAML write it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class _Described:
    """A key as help and comments show it."""

    name: str
    key: Key
    accepted: str
    default: str

    def sentence(self, with_default: bool) -> str:
        """Return meaning, what is accepted, the default and where the key has an effect."""
        said = [self.accepted]
        if with_default:
            said.append(f"default {self.default}")
        null = [f"{value} in {name}" for name, value in self._null().items()]
        if null:
            said.append(f"null is {', '.join(null)}")
        if self.key.elsewhere is not None:
            said.append(f"{option_value(self.key.elsewhere)} elsewhere")
        said += [goes_with(name, values) for name, values in self.key.applies_to.items()]
        return f"{self.key.meaning} ({'; '.join(said)})"

    def _null(self) -> dict[str, str]:
        return {
            name: option_value(value) for name, value in self.key.null.items() if value is not None
        }


def _described(config: type[Config]) -> Iterator[tuple[str, str, list[_Described]]]:
    """Yield each section: its name, its meaning and its keys."""
    for section in fields(config):
        words = section.type.__doc__.partition("\n\n")[0].split()
        found = []
        keys = keys_of(section.type)
        for field in fields(section.type):
            each = keys[field.name]
            limits = [f" {LIMITS[name]} {limit:g}" for name, limit in each.limits.items()]
            accepted = type_words(field.type).replace("number", f"number{''.join(limits)}")
            found.append(_Described(field.name, each, accepted, option_value(field.default)))
        yield section.name, " ".join(words).rstrip("."), found


def config_help(config: type[Config], every_key: bool = True) -> str:
    """Return a description of `--section.key` options: meaning, what they accept, defaults.

    Args:
        config: The configuration of a task.
        every_key: Whether to describe every key, or those that people set.
    """
    lines: list[str] = []
    for section, meaning, keys in _described(config):
        shown = [each for each in keys if every_key or each.key.common]
        if not shown:
            continue
        lines += ["", f"{section}: {meaning}"]
        for each in shown:
            lines.append(f"  --{section}.{each.name}")
            lines += _wrapped(each.sentence(with_default=True), " " * 6)
    for each in config.defaults if every_key else ():
        lines += ["", *_wrapped(f"{_condition(each)}, these are the defaults instead:", "")]
        words = " ".join(f"--{name}={option_value(value)}" for name, value in each.then.items())
        lines += _wrapped(words, "  ", break_on_hyphens=False)
    return "\n".join(lines).lstrip("\n")


def _condition(each: Defaults) -> str:
    conditions = []
    for name, values in each.when.items():
        *others, last = values if isinstance(values, tuple) else (values,)
        conditions.append(f"--{name} {', '.join(others)}{' or ' if others else ''}{last}")
    return f"with {' and '.join(conditions)}"


def commented_yaml(config: type[Config]) -> str:
    """Return a configuration file with every key at its default, and what each means beside it."""
    lines = []
    for section, meaning, keys in _described(config):
        lines += [f"# {section}: {meaning}", f"{section}:"]
        for each in keys:
            lines += [*_wrapped(each.sentence(with_default=False), "  # ")]
            lines.append(f"  {each.name}: {each.default}")
        lines.append("")
    return "\n".join(lines)


def _wrapped(text: str, indent: str, **settings: bool) -> list[str]:
    indents = {"initial_indent": indent, "subsequent_indent": indent}
    return textwrap.wrap(text, WIDTH, **indents, **settings)
