"""Typed configuration: frozen dataclasses filled by a YAML file and `--section.key value`.

A task's configuration is a frozen dataclass whose fields are sections, themselves frozen
dataclasses of plain values that check themselves in `__post_init__`. jsonargparse reads and types
the values; unknown keys are found here first, because the refusal should name the accepted ones.

Example:

    config = load_config(TranslationConfig, ["run.yaml"], ["--training.epochs", "3"])
"""

import dataclasses
import types
import typing
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml

from keras_attention.applications.common.checks import check_key
from keras_attention.applications.common.errors import UserError, one_line
from keras_attention.applications.common.files import write_text

C = TypeVar("C")


def load_config(
    config_class: type[C],
    paths: Sequence[Path | str] = (),
    overrides: Sequence[str] = (),
    defaults: Sequence[str] = (),
) -> C:
    """Fill `config_class` from its defaults, YAML files and command-line `overrides`.

    Args:
        config_class: the dataclass of the task's configuration.
        paths: YAML files, a later one stronger; keys that they leave out keep their defaults.
        overrides: `["--section.key", "value", "--section.key=value"]`, stronger than the files.
        defaults: the same, weaker than the files and stronger than the class' own defaults.

    Raises:
        UserError: for an unreadable file, an unknown key or a refused value.
    """
    overrides = list(overrides)
    _check_override_keys(config_class, overrides)
    arguments = list(defaults)
    for path in paths:
        arguments += ["--config", yaml.safe_dump(_read_sections(config_class, Path(path)))]
    import jsonargparse

    parser = jsonargparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", action="config")
    parser.add_class_arguments(config_class)
    try:
        namespace = parser.instantiate(parser.parse_args(arguments + overrides))
    except (jsonargparse.ArgumentError, ValueError, TypeError) as error:
        raise _plainer(error, config_class) from None
    sections = {field.name: getattr(namespace, field.name) for field in _fields(config_class)}
    return config_class(**sections)


def save_config(config: Any, path: Path) -> None:
    """Write `config` as YAML that `load_config` reads back equal."""
    write_text(
        path, yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
    )


def changed_keys(old: Any, new: Any) -> list[str]:
    """Return the `section.key` names whose values differ between two configurations."""
    return [
        f"{section.name}.{field.name}"
        for section in _fields(old)
        for field in _fields(getattr(old, section.name))
        if getattr(getattr(old, section.name), field.name)
        != getattr(getattr(new, section.name), field.name)
    ]


def _fields(config: Any) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(config)


def _accepted(config_class: type) -> dict[str, list[str]]:
    return {
        section.name: [field.name for field in _fields(section.type)]
        for section in _fields(config_class)
    }


def _check_override_keys(config_class: type, overrides: list[str]) -> None:
    accepted = _accepted(config_class)
    awaited = None  # the key whose value comes next
    for argument in overrides:
        if awaited or not argument.startswith("--"):
            if not awaited:
                raise UserError(f"expected --section.key value. Received: '{argument}'.")
            awaited = None
            continue
        name, equals, _ = argument.removeprefix("--").partition("=")
        section, _, key = name.partition(".")
        if not key:
            raise UserError(
                f"there is no option --{name}.{_with_section(name, accepted)} "
                f"Expected --section.key with a section of {', '.join(accepted)}."
            )
        check_key(section, accepted, "the configuration")
        check_key(key, accepted[section], f"section '{section}'")
        awaited = None if equals else name
    if awaited:
        raise UserError(f"--{awaited} needs a value.")


def _with_section(key: str, accepted: dict[str, list[str]]) -> str:
    """Ask whether `--section.key` is meant, for a key given without its section."""
    full = {key: f"--{section}.{key}" for section, keys in accepted.items() for key in keys}
    close = get_close_matches(key, full, n=1)
    return f" Did you mean '{full[close[0]]}'?" if close else ""


def _read_sections(config_class: type, path: Path) -> dict[str, dict]:
    """Read a configuration file and check its keys; sections left empty are left out."""
    if not path.is_file():
        raise UserError(f"no configuration file {path}.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {one_line(error)}") from None
    accepted = _accepted(config_class)
    if content is not None and not isinstance(content, dict):
        raise UserError(f"{path} must hold the sections {', '.join(accepted)}.")
    for section, keys in (content or {}).items():
        check_key(str(section), accepted, f"{path}: the configuration")
        if keys is not None and not isinstance(keys, dict):
            raise UserError(f"{path}: section '{section}' must hold keys. Received: {keys!r}.")
        for key in keys or {}:
            check_key(str(key), accepted[section], f"{path}: section '{section}'")
    return {section: keys for section, keys in (content or {}).items() if keys}


def _plainer(error: Exception, config_class: type) -> UserError:
    """Turn jsonargparse's message of several lines into one that names what is accepted."""
    if isinstance(error, UserError):
        return error
    message = one_line(error)
    for section in _fields(config_class):
        for field in _fields(section.type):
            name = f"{section.name}.{field.name}"
            if f'"{name}"' in message:
                given = message.rpartition("alue: ")[2]
                return UserError(f"{name} must be {type_words(field.type)}. Received: {given!r}.")
    return UserError(message)


def type_words(annotation: Any) -> str:
    """Say what values a field accepts: `one of a, b`, `a whole number`, `a number or null`."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(annotation)))
    if origin in (typing.Union, types.UnionType):
        parts = [type_words(part) for part in typing.get_args(annotation)]
        return " or ".join(dict.fromkeys(parts))
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): "null",
    }
    return words.get(annotation, str(annotation))
