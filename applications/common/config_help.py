"""The list of all keys of a configuration, for `train TASK --help`."""

import dataclasses
import textwrap

from keras_attention.applications.common.config import type_words

WIDTH = 100


def config_help(config_class: type, presets: dict[str, list[str]] | None = None) -> str:
    """Return a description of every `--section.key`: its meaning, what it accepts, its default.

    Args:
        config_class: a dataclass of dataclasses, each with its fields described under `Args:`.
        presets: other defaults, by the name of the data set that brings them.
    """
    sections = _descriptions(config_class)
    lines = []
    for section in dataclasses.fields(config_class):
        lines += ["", f"{section.name}: {sections[section.name]}"]
        keys = _descriptions(section.type)
        for field in dataclasses.fields(section.type):
            lines.append(f"  --{section.name}.{field.name}")
            text = f"{keys[field.name]} ({type_words(field.type)}; default {_yaml(field.default)})"
            lines += textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    for name, overrides in (presets or {}).items():
        lines += ["", f"with --data.dataset {name}, these are the defaults instead:"]
        lines += textwrap.wrap(
            " ".join(overrides),
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
    return "\n".join(lines).lstrip("\n")


def _descriptions(config_class: type) -> dict[str, str]:
    from docstring_parser import parse  # comes with jsonargparse[signatures]

    return {
        parameter.arg_name: " ".join(parameter.description.split()).rstrip(".")
        for parameter in parse(config_class.__doc__).params
    }


def _yaml(value) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
