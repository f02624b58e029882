"""Configurations filled by YAML files and `--section.key value`, and written as YAML."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from keras_attention.paths import input_path

from ..arguments import is_finite
from ..errors import (
    Problems,
    UserError,
    check_key,
    check_range,
    did_you_mean,
    not_yaml,
    one_line,
    shown,
)
from ..store.files import read_bytes, refuse_wide, write_text
from .help import options_of, type_words
from .keys import Config

C = TypeVar("C", bound=Config)
KEPT_SECTIONS = ("model", "tokenizer", "vectors")
"""The sections that describe what a preset already has: its network and its vocabularies."""


def load_config(
    config_class: type[C],
    paths: Sequence[Path | str] = (),
    overrides: Sequence[str] = (),
    defaults: Sequence[str] = (),
) -> C:
    """Fill `config_class` from its defaults, YAML files and command-line `overrides`.

    ```python
    config = load_config(TranslationConfig, ["run.yaml"], ["--training.epochs", "3"])
    ```

    Its fields are sections, frozen dataclasses of plain values that check themselves. Overrides,
    `["--section.key", "value", "--section.key=value"]`, are stronger than files, a later file than
    an earlier one. What a data set or an architecture brings is stronger than the defaults of the
    class alone, and `defaults`, written as overrides are, stronger than that.
    """
    problems = Problems()
    sources = [_read_overrides(config_class, defaults, problems)]
    for path in paths:
        with problems.collected():
            sources.append(_read_sections(config_class, input_path(path), problems))
    sources.append(_read_overrides(config_class, overrides, problems))
    given, wrong = _values(config_class, sources, problems)
    values = {**config_class.brought(given), **given}
    sections = {}
    for section in fields(config_class):
        own = {field.name: f"{section.name}.{field.name}" for field in fields(section.type)}
        found = {name: values[full] for name, full in own.items() if full in values}
        # What stays of a section that cannot be made: its files are looked for all the same.
        sections[section.name] = types.SimpleNamespace(paths=section.type.paths, **found)
        if wrong.intersection(own.values()):
            continue
        with problems.of_values():
            try:
                sections[section.name] = section.type(**found)
            except UserError:
                raise
            except ValueError as error:
                raise UserError(f"{section.name}: {one_line(error)}") from None
    if problems.found:  # which those of its files must not wait for
        problems.found += missing_paths(sections)
    problems.check()
    return config_class(**sections)


def _values(
    config_class: type, sources: Sequence[Mapping[str, Mapping[str, Any]]], problems: Problems
) -> tuple[dict[str, Any], set[str]]:
    """Return the values that sources give, by `section.key`, and the names of the wrong ones."""
    kinds = {
        f"{section.name}.{field.name}": field.type
        for section in fields(config_class)
        for field in fields(section.type)
    }
    given = {name: value for source in sources for name, value in by_key(source).items()}
    found, wrong = {}, set(given)
    for name, value in given.items():
        with problems.collected():
            found[name] = _value(name, kinds[name], value)
            wrong.remove(name)
    return found, wrong


def given_keys(
    config_class: type, paths: Sequence[Path | str] = (), overrides: Sequence[str] = ()
) -> dict[str, bool]:
    """Return the `section.key` names that files and options give, and whether to null."""
    problems = Problems()
    sources = [_read_sections(config_class, Path(path), problems) for path in paths]
    sources.append(_read_overrides(config_class, overrides, problems))
    problems.check()
    return {key: value in NULLS for source in sources for key, value in by_key(source).items()}


def missing_paths(sections: Mapping[str, Any]) -> list[UserError]:
    """Return an error for each file or folder that sections of a configuration name in vain."""
    found = []
    for section, values in sections.items():
        for key in getattr(values, "paths", ()):
            value = getattr(values, key, None)
            try:
                # The reader of a known data set names the file that its folder lacks.
                if value and not input_path(value).exists() and key != "folder":
                    raise UserError(f"There is no file {value}.")
            except ValueError as error:
                found.append(UserError(f"{section}.{key}: {error}"))
    return found


def save_config(config: Any, path: Path) -> None:
    """Write `config` as YAML that `load_config` reads back."""
    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
    write_text(path, text, known=True)


def precision_of(config: Any) -> str:
    """Return the dtype policy of all verbs but `train`."""
    return getattr(getattr(config, "decoding", None), "precision", "float32")


def by_key(config: Any) -> dict[str, Any]:
    """Return the values of a configuration, or of what YAML holds, by `section.key`."""
    sections = dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config
    return {
        f"{section}.{key}": value
        for section, keys in (sections.items() if isinstance(sections, dict) else ())
        for key, value in (keys.items() if isinstance(keys, dict) else ())
    }


def changed_keys(old: Any, new: Any) -> list[str]:
    """Return the `section.key` names whose values differ between two configurations."""
    before, after = by_key(old), by_key(new)
    return [key for key in before | after if before.get(key) != after.get(key)]


def _accepted(config_class: type) -> dict[str, list[str]]:
    return {
        section.name: [field.name for field in fields(section.type)]
        for section in fields(config_class)
    }


def _read_overrides(
    config_class: type, overrides: Sequence[str], problems: Problems
) -> dict[str, dict[str, "Plain"]]:
    """Return the values of `--section.key value` options by section and key."""
    accepted = _accepted(config_class)
    values: dict[str, dict[str, Plain]] = {}
    arguments = iter(overrides)
    for argument in arguments:
        with problems.collected():
            if not argument.startswith("--"):
                raise UserError(f"expected --section.key value. Received: {shown(argument)}.")
            name, equals, value = argument.removeprefix("--").partition("=")
            if not equals and (value := next(arguments, None)) is None:
                raise UserError(f"--{name} needs a value.")
            section, _, key = name.partition(".")
            if not key:
                full = {key: f"--{at}.{key}" for at, keys in accepted.items() for key in keys}
                close = get_close_matches(name, full, n=1)
                meant = f" Did you mean '{full[close[0]]}'?" if close else ""
                raise UserError(
                    f"there is no option --{name}.{meant} "
                    f"Expected --section.key with a section of {', '.join(accepted)}."
                )
            _check_names(section, key, accepted)
            values.setdefault(section, {})[key] = Plain(value)
    return values


def _check_names(
    section: str, key: str, accepted: Mapping[str, list[str]], where: str = ""
) -> None:
    """Refuse a section or key that the configuration does not have."""
    check_key(section, accepted, f"{where}the configuration")
    if key not in accepted[section]:
        homes = [f"{name}.{key}" for name, keys in accepted.items() if key in keys]
        meant = f" Did you mean '{homes[0]}'?" if homes else did_you_mean(key, accepted[section])
        raise UserError(
            f"{where}section '{section}' has no key '{key}'.{meant} "
            f"Accepted: {', '.join(accepted[section])}."
        )


MOST_BYTES = 1 << 20
"""The largest configuration file."""
MOST_DEPTH = 4
"""The deepest nesting: a section holds keys, a key may hold a list that is refused by name."""


class Plain(str):
    """A value that stands in YAML without quotes, or on the command line: 7, true, null, text."""


class _Loader(yaml.BaseLoader):
    """Reads every value as the text that stands there; what it means depends on the key.

    YAML's own rules would read 1:30 as 90, no as false and 1e-3 as text.
    """

    def construct_scalar(self, node):
        text = super().construct_scalar(node)
        return Plain(text) if node.style is None else text

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in seen:
                raise UserError(f"{self.name}, line {line}: the key {shown(name)} is there twice.")
            seen.add(name)
        return super().construct_mapping(node, deep=True)


def read_yaml(path: Path) -> Any:
    """Return what a small YAML file holds, every value as text.

    A file that is too large, nests too deeply, uses anchors or gives a key twice is refused.
    """
    path = input_path(path)
    if not path.exists():
        raise UserError(f"no configuration file {path}.")
    content = read_bytes(path, MOST_BYTES)
    refuse_wide(content, path)
    try:
        text = content.decode("utf-8")
        depth = 0
        for event in yaml.parse(text, _Loader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                raise UserError(f"{path}: anchors and aliases (&name, *name) are not read here.")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_DEPTH:
                raise UserError(f"{path} nests more deeply than sections with keys.")
        loader = _Loader(text)
        loader.name = str(path)
        return loader.get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise not_yaml(path, error) from None


def _read_sections(config_class: type, path: Path, problems: Problems) -> dict[str, dict]:
    """Read a configuration file and check its keys; sections left empty are left out."""
    content = read_yaml(path) or {}
    accepted = _accepted(config_class)
    if not isinstance(content, dict):
        raise UserError(
            f"{path} must hold the sections {', '.join(accepted)}. Received: {shown(content)}."
        )
    found: dict[str, dict] = {}
    for section, keys in content.items():
        with problems.collected():
            check_key(str(section), accepted, f"{path}: the configuration")
            if keys and not isinstance(keys, dict) and keys not in NULLS:
                received = f"Received: {shown(keys)}."
                raise UserError(f"{path}: section '{section}' must hold keys. {received}")
            for key, value in keys.items() if isinstance(keys, dict) else ():
                with problems.collected():
                    _check_names(section, str(key), accepted, f"{path}: ")
                    found.setdefault(section, {})[key] = value
    return found


NULLS = ("", "~", "null", "Null", "NULL")
TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
WHOLE = re.compile(r"[-+]?[0-9]{1,30}")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

MOST = {
    **dict.fromkeys(("embedding_size", "units", "attention_units", "readout_size"), 1 << 16),
    **dict.fromkeys(("feed_forward_size", "feed_forward", "half_width"), 1 << 18),
    **dict.fromkeys(("layers", "heads", "average_checkpoints", "folds", "window"), 1000),
    **dict.fromkeys(("beam_size", "n_best", "max_length_ratio", "length_penalty"), 1000),
    **dict.fromkeys(("batch_size", "batch_tokens", "accumulate", "max_length"), 1 << 20),
    **dict.fromkeys(("vocabulary_size", "extra_words", "unknown_buckets"), 10**7),
    "seed": 2**32,
}
"""The largest value of a number by the name of its key, as far as a machine can hold it."""
MOST_OF_OTHERS = 10**9


def _value(name: str, annotation: Any, given: Any) -> Any:
    """Return the value of a key: `given` as what the key's type reads it as."""
    for option in sorted(options_of(annotation), key=lambda option: option is not type(None)):
        found, value = _read_as(option, given)
        if found:
            if type(value) in (int, float):
                most = MOST.get(name.partition(".")[2], MOST_OF_OTHERS)
                bound = {"at_most": most} if value > 0 else {"at_least": -most}
                check_range(name, value, **bound)
            return value
    choices = [str(each) for kind in options_of(annotation) for each in typing.get_args(kind)]
    meant = did_you_mean(str(given), choices)
    raise UserError(f"{name} must be {type_words(annotation)}.{meant} Received: {shown(given)}.")


def _read_as(kind: Any, given: Any) -> tuple[bool, Any]:
    """Return whether `given` is a value of a type, and the value."""
    plain = isinstance(given, Plain)
    if kind is type(None):
        return plain and given in NULLS, None
    if typing.get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in typing.get_args(kind)}
        return isinstance(given, str) and given in choices, choices.get(str(given))
    if kind is str:
        return isinstance(given, str), str(given)
    if kind is bool:
        return plain and given.lower() in TRUE + FALSE, str(given).lower() in TRUE
    pattern = {int: WHOLE, float: NUMBER}[kind]
    if not (plain and pattern.fullmatch(given)):
        return False, None
    value = kind(given)
    return is_finite(value), value
