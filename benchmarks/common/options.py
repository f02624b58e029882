"""Options that several programs have: each has one name, one form and one sentence."""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def positive(number: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the `type` of an option that takes a positive number."""

    def parse(text: str) -> Any:
        try:
            value = number(text)
        except ValueError:
            value = 0
        if not value > 0:
            raise argparse.ArgumentTypeError(f"Expected a positive number. Received: {text!r}")
        return value

    return parse


def new_file(text: str) -> Path:
    """The `type` of an option that names a file to write."""
    path = Path(text)
    if path.exists():
        raise argparse.ArgumentTypeError(f"{path} exists already: name a new file.")
    return path


def add_rounds(parser: argparse.ArgumentParser, default: int | None, told: str = "") -> None:
    """Add `--rounds`: how many turns each side gets."""
    parser.add_argument(
        "--rounds",
        type=positive(int),
        default=default,
        metavar="N",
        help=f"turns of each side (default: {told or default})",
    )


def add_seconds(parser: argparse.ArgumentParser, default: float | None, told: str = "") -> None:
    """Add `--seconds`: how long a turn is."""
    parser.add_argument(
        "--seconds",
        type=positive(float),
        default=default,
        metavar="S",
        help=f"length of a turn (default: {told or default})",
    )


def add_only(parser: argparse.ArgumentParser, names: Iterable[str], what: str = "rows") -> None:
    """Add `--only`: the names to measure; `options.only` is None for all."""
    names = list(names)
    shown = ("; " if any("," in name for name in names) else ", ").join(names)
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"the {what} to measure; may be repeated (default: all): {shown}",
    )


def add_length(parser: argparse.ArgumentParser, default: Iterable[int]) -> None:
    """Add `--length`: lengths of sequences, a list in `options.length`, None for the default."""
    told = ", ".join(map(str, default))
    parser.add_argument(
        "--length",
        type=positive(int),
        action="append",
        metavar="N",
        help=f"steps of a sequence; may be repeated (default: {told})",
    )


def add_seeds(parser: argparse.ArgumentParser, default: int | None, told: str = "") -> None:
    """Add `--seeds`: how many seeds train a row; `options.seeds` is the list of them, from 1."""
    parser.add_argument(
        "--seeds",
        type=seeds,
        default=None if default is None else seeds(default),
        metavar="N",
        help=f"trainings of a row, from the seeds 1 to N (default: {told or default})",
    )


def seeds(count: str | int) -> list[int]:
    """Return the seeds from 1 to a count."""
    return list(range(1, positive(int)(str(count)) + 1))


def add_epochs(parser: argparse.ArgumentParser, default: int) -> None:
    """Add `--epochs`."""
    parser.add_argument(
        "--epochs",
        type=positive(int),
        default=default,
        metavar="N",
        help="epochs of each training (default: %(default)s)",
    )


def add_folder(parser: argparse.ArgumentParser, what: str, required: bool = True) -> None:
    """Add `--folder`: where the user's files of data lie."""
    told = f"the folder of {what}"
    parser.add_argument("--folder", type=Path, required=required, help=told)


def add_vectors(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--vectors`: a file of pretrained vectors."""
    parser.add_argument(
        "--vectors", type=Path, help=f"a file of pretrained vectors of 100 numbers, {what}"
    )


def add_captions(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add `--captions`: sentences to translate; a file is required where no default is told."""
    told = f" (default: {default})" if default else ""
    parser.add_argument(
        "--captions",
        type=Path,
        required=not default,
        help=f"a file of English sentences, one a line, plain or compressed by gzip{told}",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add `--set`: further settings of all trainings, `options.settings`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="SECTION.KEY=VALUE",
        help="another setting of all trainings, into another --output; may be repeated",
    )


def add_runs(parser: argparse.ArgumentParser, default: str | None, told: str = "") -> None:
    """Add `--output`: the folder where trainings and their figures are kept."""
    parser.add_argument(
        "--output",
        type=Path,
        default=None if default is None else Path(default),
        help="the folder of the trainings; what is there already is continued, and not repeated "
        f"(default: {told or default})",
    )
    parser.set_defaults(if_interrupted="It was interrupted; the same command goes on from there.")


def add_figures(parser: argparse.ArgumentParser, default: str = "none") -> None:
    """Add `--output`: the file where a measurement is kept."""
    parser.add_argument(
        "--output", type=new_file, help=f"a new file for the figures, JSON (default: {default})"
    )


def write_figures(path: Path | None, figures: Any) -> None:
    """Write figures as JSON, where a file is asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def as_arguments(settings: dict[str, Any], more: Iterable[str] = ()) -> list[str]:
    """Return settings as the arguments of `keras-attention train`, and those of `--set`."""
    return [f"--{key}={value}" for key, value in settings.items()] + [f"--{each}" for each in more]
