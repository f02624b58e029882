"""Typed configuration: frozen dataclasses filled by YAML files and `--section.key value`."""

import dataclasses
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml

from keras_attention.paths import input_path

from ..common.arguments import is_finite
from ..common.errors import (
    Problems,
    UserError,
    check_key,
    check_range,
    check_ranges,
    did_you_mean,
    not_yaml,
    one_line,
    shown,
)
from ..common.files import read_bytes, refuse_wide, write_text

C = TypeVar("C")
KEPT_SECTIONS = ("model", "tokenizer", "vocabulary", "vectors")
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

    Its fields are sections, frozen dataclasses of plain values that check themselves in
    `__post_init__`. Overrides, `["--section.key", "value", "--section.key=value"]`, are stronger
    than files, a later file than an earlier one, and `defaults`, written as overrides are, stronger
    than those of the class alone.
    """
    problems = Problems()
    sources = [_read_overrides(config_class, defaults, problems)]
    for path in paths:
        with problems.collected():
            sources.append(_read_sections(config_class, input_path(path), problems))
    sources.append(_read_overrides(config_class, overrides, problems))
    sections = {}
    for section in fields(config_class):
        kinds = {field.name: field.type for field in fields(section.type)}
        given: dict[str, Any] = {}
        for source in sources:
            given |= source.get(section.name, {})
        values = {}
        for key, value in given.items():
            with problems.collected():
                values[key] = _value(f"{section.name}.{key}", kinds[key], value)
        # What stays of a section that cannot be made: its files are looked for all the same.
        plain = {"paths": getattr(section.type, "paths", ()), **values}
        sections[section.name] = types.SimpleNamespace(**plain)
        if len(values) < len(given):
            continue
        with problems.of_values():
            try:
                sections[section.name] = section.type(**values)
            except UserError:
                raise
            except ValueError as error:
                raise UserError(f"{section.name}: {one_line(error)}") from None
    if problems.found:  # which those of its files must not wait for
        problems.found += missing_paths(sections)
    problems.check()
    return config_class(**sections)


def given_keys(
    config_class: type, paths: Sequence[Path | str] = (), overrides: Sequence[str] = ()
) -> dict[str, bool]:
    """Return the `section.key` names that files and options give, and whether to null."""
    problems = Problems()
    sources = [_read_sections(config_class, Path(path), problems) for path in paths]
    sources.append(_read_overrides(config_class, overrides, problems))
    problems.check()
    return {key: value in NULLS for source in sources for key, value in by_key(source).items()}


def option_value(value: Any) -> str:
    """Return a value as options and YAML write it."""
    return _yaml(value)


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


Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]


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
    **dict.fromkeys(("vocabulary_size", "size", "extra_words", "unknown_buckets"), 10**7),
    "seed": 2**32,
}
"""The largest value of a number by the name of its key, as far as a machine can hold it."""
MOST_OF_OTHERS = 10**9


def _value(name: str, annotation: Any, given: Any) -> Any:
    """Return the value of a key: `given` as what the key's type reads it as."""
    for option in sorted(_options(annotation), key=lambda option: option is not type(None)):
        found, value = _read_as(option, given)
        if found:
            if type(value) in (int, float):
                most = MOST.get(name.partition(".")[2], MOST_OF_OTHERS)
                bound = {"at_most": most} if value > 0 else {"at_least": -most}
                check_range(name, value, **bound)
            return value
    choices = [str(each) for kind in _options(annotation) for each in typing.get_args(kind)]
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


def _options(annotation: Any) -> tuple[Any, ...]:
    """Return the types that a field may have."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "null",
}


def type_words(annotation: Any) -> str:
    """Say what values a field accepts: `one of a, b`, `a whole number`, `a number or null`."""
    words = (
        WORDS.get(each) or "one of " + ", ".join(map(str, typing.get_args(each)))
        for each in _options(annotation)
    )
    return " or ".join(dict.fromkeys(words))


WIDTH = 100


def config_help(config_class: type, presets: dict[str, list[str]] | None = None) -> str:
    """Return a description of every `--section.key`: its meaning, what it accepts, its default.

    `presets` are other defaults, by the name of the data set that brings them.
    """
    lines = []
    for section, meaning, keys in _described(config_class):
        lines += ["", f"{section}: {meaning}"]
        for key, meaning, accepted, default in keys:
            lines.append(f"  --{section}.{key}")
            lines += _wrapped(f"{meaning} ({accepted}; default {default})", " " * 6)
    for name, overrides in (presets or {}).items():
        lines += ["", f"with --data.dataset {name}, these are the defaults instead:"]
        lines += _wrapped(" ".join(overrides), "  ", break_on_hyphens=False)
    return "\n".join(lines).lstrip("\n")


def commented_yaml(config_class: type) -> str:
    """Return a configuration file with every key at its default, and what each means beside it."""
    lines = []
    for section, meaning, keys in _described(config_class):
        lines += [f"# {section}: {meaning}", f"{section}:"]
        for key, meaning, accepted, default in keys:
            lines += [*_wrapped(f"{meaning} ({accepted})", "  # "), f"  {key}: {default}"]
        lines.append("")
    return "\n".join(lines)


def _wrapped(text: str, indent: str, **settings: bool) -> list[str]:
    indents = {"initial_indent": indent, "subsequent_indent": indent}
    return textwrap.wrap(text, WIDTH, **indents, **settings)


def _described(config_class: type) -> Iterator[tuple[str, str, list[tuple[str, ...]]]]:
    """Yield each section: name, meaning, and of its keys name, meaning, type and default."""
    from docstring_parser import parse

    for section in fields(config_class):
        words = section.type.__doc__.partition("\n\n")[0].split()
        # A section that extends another describes its own keys alone.
        meanings = {
            parameter.arg_name: " ".join(parameter.description.split()).rstrip(".")
            for each in reversed(section.type.__mro__)
            if dataclasses.is_dataclass(each)
            for parameter in parse(each.__doc__).params
        }
        keys = [
            (field.name, meanings[field.name], type_words(field.type), _yaml(field.default))
            for field in fields(section.type)
        ]
        yield section.name, " ".join(words).rstrip("."), keys


def _yaml(value) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained.

    Args:
        epochs: how many epochs at most.
        batch_size: examples in a batch.
        accumulate: batches of whose gradients an update takes the mean; each batch counts alike,
            however many tokens it has.
        steps_per_epoch: batches in an epoch; null for one pass over the training data. Evaluation
            on the development set and a checkpoint come at the end of each epoch.
        optimizer: the Keras optimizer.
        beta_2: of adam, adamw and nadam, how slowly the mean square of the gradients changes; null
            for 0.999 (the Transformer's authors take 0.98).
        learning_rate: its (highest) learning rate.
        schedule: how the learning rate goes on: constant; inverse_sqrt, falling with the square
            root of the step; cosine, falling to 0 over all epochs (a training that max_minutes
            or patience ends earlier does not reach 0; --resume cannot change the epochs); halve,
            halved whenever `halve_after` epochs are no better, as early_stopping says.
        warmup_steps: updates over which the learning rate rises from 0 (not with halve).
        halve_after: with schedule halve alone, epochs without improvement after which it halves.
        clip_norm: the largest norm of all gradients together; null for no clipping.
        label_smoothing: probability taken from the right answer and spread over all.
        early_stopping: what the best weights are chosen by and training is stopped by; of equal
            scores the lower development loss is better. With none, training runs all epochs and
            the best weights are chosen by loss.
        patience: epochs without improvement after which training stops early; without effect
            where early_stopping is none.
        seed: of initial weights, dropout and the order of the data.
        max_minutes: stop after this many minutes, wherever the schedule is; null for no limit.
        average_checkpoints: judge and keep the mean of the weights at the end of so many epochs,
            the newest ones; training itself goes on from its own. 1 for no averaging.
        jit_compile: compile the training step with XLA; null for no on a CPU, where it measured
            slower, and for Keras' own choice elsewhere.
        precision: float32, or mixed: 16 bits in the layers, float32 in the weights, the loss and
            the optimizer; with mixed_float16 the loss is scaled, so that small gradients do not
            vanish. The other verbs compute in float32, or in decoding.precision where there is one.
        steps_per_execution: batches trained on in one call, which saves time where batches are
            small; progress, max_minutes and the check of the loss come after so many.
        check_numerics: look at what each layer is given and gives, and at its gradients; where one
            is NaN or infinite, end with the layer's name. Slower. Not with mixed_float16, whose
            gradients may be infinite now and then, nor with jit_compile true.
        deterministic: make the same seed give the same weights, bit for bit, on one machine.
        tensorboard: write logs for TensorBoard.
    """

    epochs: int = 30
    batch_size: int = 64
    accumulate: int = 1
    steps_per_epoch: int | None = None
    optimizer: Literal["adam", "adamw", "nadam", "rmsprop", "adagrad", "adadelta", "sgd"] = "adam"
    beta_2: float | None = None
    learning_rate: float = 1e-3
    schedule: Literal["constant", "inverse_sqrt", "cosine", "halve"] = "constant"
    warmup_steps: int = 0
    halve_after: int = 1
    clip_norm: float | None = 1.0
    label_smoothing: float = 0.0
    early_stopping: Literal["loss", "none"] = "loss"
    patience: int = 5
    seed: int = 1
    max_minutes: float | None = None
    average_checkpoints: int = 1
    jit_compile: bool | None = None
    precision: Precision = "float32"
    steps_per_execution: int = 1
    check_numerics: bool = False
    deterministic: bool = True
    tensorboard: bool = True

    def __post_init__(self):
        counts = ("epochs", "batch_size", "steps_per_epoch", "halve_after", "patience")
        counts += ("accumulate", "average_checkpoints", "steps_per_execution")
        check_ranges("training", self, counts, at_least=1)
        check_ranges("training", self, ("learning_rate", "clip_norm", "max_minutes"), above=0)
        check_ranges("training", self, ("beta_2",), above=0, below=1)
        check_ranges("training", self, ("warmup_steps",), at_least=0)
        check_ranges("training", self, ("seed",), at_least=0, below=2**32)
        check_ranges("training", self, ("label_smoothing",), at_least=0, below=1)
        if self.beta_2 is not None and self.optimizer not in ("adam", "adamw", "nadam"):
            raise UserError(
                "training.beta_2 goes with training.optimizer adam, adamw or nadam only. "
                f"Received: {self.beta_2} with {self.optimizer}."
            )
        if self.schedule == "inverse_sqrt" and not self.warmup_steps:
            raise UserError(
                "training.schedule inverse_sqrt needs training.warmup_steps of at least 1. "
                "Received: 0."
            )
        if self.schedule == "halve" and self.warmup_steps:
            raise UserError(
                "training.warmup_steps does not go with training.schedule halve: use 0, or "
                f"schedule constant, inverse_sqrt or cosine. Received: {self.warmup_steps}."
            )
        if self.jit_compile and self.deterministic:
            raise UserError(
                "training.jit_compile true needs training.deterministic false: XLA has no "
                "deterministic form of every operation, and Keras leaves it out."
            )
        if self.check_numerics and (self.precision == "mixed_float16" or self.jit_compile):
            raise UserError(
                "training.check_numerics goes neither with training.precision mixed_float16 nor "
                "with training.jit_compile true. "
                f"Received: {self.precision} and jit_compile={self.jit_compile}."
            )

    @property
    def resumable(self) -> tuple[str, ...]:
        """Keys that may differ when a run is continued: its length, and what watches it.

        Schedule cosine is spread over all epochs: with more of them it would be another.
        """
        names = ("epochs", "max_minutes", "patience", "check_numerics", "tensorboard")
        return names[1:] if self.schedule == "cosine" else names

    @property
    def score(self) -> str | None:
        """The logged figure that chooses the best weights; None where the loss alone does."""
        is_loss = self.early_stopping in ("loss", "none")
        return None if is_loss else f"val_{self.early_stopping}"
