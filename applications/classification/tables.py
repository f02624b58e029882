"""Rows with named columns: of CSV, TSV and JSON-lines files, and of the sets known by name."""

import csv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_attention.applications.classification.opinions import generate
from keras_attention.applications.common.errors import UserError, did_you_mean
from keras_attention.applications.common.files import json_value, read_lines

SUFFIXES = (".csv", ".tsv", ".jsonl")
LONGEST_FIELD = 2**31 - 1  # csv's own limit, 131,072 characters, is less than a long document

TREC = {"train": "TREC.train", "test": "TREC.test"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
# The sets of NLTK that hold one sentence a line: the file of each label.
SENTENCES = {
    "sentence_polarity": {"negative": "rt-polarity.neg", "positive": "rt-polarity.pos"},
    "subjectivity": {"objective": "plot.tok.gt9.5000", "subjective": "quote.tok.gt9.5000"},
}
REVIEWS = {"negative": "neg", "positive": "pos"}


class Row(NamedTuple):
    """A row of a table.

    Args:
        values: the value of each column.
        place: where it stands, for messages: `F.csv, line 3`.
    """

    values: dict[str, object]
    place: str


def read_table(
    path: str | Path, columns: Sequence[str], encoding: str = "utf-8", kind: str | None = None
) -> list[Row]:
    """Return the rows of a table that has at least `columns`.

    Args:
        path: `.csv` or `.tsv` with a header, or `.jsonl` with an object a line; each plain or
            `.gz`. In CSV a value in double quotes may hold commas and line feeds; TSV has no
            quoting.
        columns: the columns that are wanted.
        encoding: of the file.
        kind: `.csv`, `.tsv` or `.jsonl`; None for what the file is named.

    Raises:
        UserError: naming file and line, where it cannot be read or lacks a column.
    """
    kind = kind or Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{path}: expected a file named {', '.join(SUFFIXES)}, or the same + .gz.")
    lines = read_lines(path, encoding)
    if kind == ".jsonl":
        return list(_objects(path, lines, columns))
    rows = _records(path, lines) if kind == ".csv" else _fields(lines)
    return list(_named(path, rows, columns))


def _fields(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        yield number, line.split("\t") if line else []


def _records(path, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line of each record, and its fields."""
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((f"{line}\n" for line in lines), strict=True)
    first = 1
    try:
        for record in reader:
            yield first, record
            first = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {first}: no CSV record begins here ({error}).") from None


def _named(path, rows, columns) -> Iterator[Row]:
    _, header = next(rows, (1, []))
    header = [name.strip() for name in header]
    for column in columns:
        _check_column(column, header, f"{path}, line 1")
    if len(set(header)) < len(header):
        raise UserError(f"{path}, line 1: two columns have one name. Columns: {_list(header)}.")
    for number, fields in rows:
        if not fields:
            continue  # an empty line
        if len(fields) != len(header):
            raise UserError(
                f"{path}, line {number}: expected {len(header)} columns, as in the header. "
                f"Received: {len(fields)}."
            )
        yield Row(dict(zip(header, fields, strict=True)), f"{path}, line {number}")


def _objects(path, lines, columns) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        place = f"{path}, line {number}"
        if not line.strip():
            continue
        values = json_value(line, place, "expected a JSON object")
        if not isinstance(values, dict):
            raise UserError(f"{place}: expected a JSON object. Received: {line[:40]}")
        for column in columns:
            _check_column(column, list(values), place)
        yield Row(values, place)


def _check_column(column: str, columns: Sequence[str], place: str) -> None:
    if column not in columns:
        raise UserError(
            f"{place}: there is no column '{column}'.{did_you_mean(column, columns)} "
            f"Columns: {_list(columns)}."
        )


def _list(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "none"


def splits_of(dataset: str) -> tuple[str, ...]:
    """Return the splits that a known data set comes in; one in a single piece has `train`."""
    return {"opinions": ("train", "dev", "test"), "trec": tuple(TREC), "sick": tuple(SICK)}.get(
        dataset, ("train",)
    )


def read_known(dataset: str, folder: str | None, split: str) -> list[Row]:
    """Return the rows of a split of a known data set.

    The columns are: of opinions text, sentiment, stars, aspects, claim and verdict; of trec text,
    coarse (6 labels) and fine (50, in 47 of which there are test questions); of sick sentence_A,
    sentence_B, entailment_judgment and relatedness_score; of the others text and label. The
    sentences of a movie review are lines of its text.

    Args:
        dataset: the name.
        folder: where its files lie, under their own names; those of NLTK as `.zip`, or unpacked.
        split: one of `splits_of(dataset)`.

    Raises:
        UserError: where a file is missing or not in the form of the set.
    """
    if dataset == "opinions":
        rows = enumerate(generate(split), 1)
        return [Row(values, f"opinions ({split}), review {number}") for number, values in rows]
    if dataset == "trec":
        return list(_trec(Path(folder) / TREC[split]))
    if dataset == "sick":
        return _sick(Path(folder) / SICK[split])
    root = _unpacked(Path(folder), dataset)
    return list(_sentences(root, dataset) if dataset in SENTENCES else _reviews(root))


def _trec(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, "latin-1"), 1):
        label, space, text = line.partition(" ")
        coarse, colon, _ = label.partition(":")
        if not (space and colon):
            raise UserError(f"{path}, line {number}: expected COARSE:fine and the question.")
        values = {"text": text, "coarse": coarse, "fine": label}
        yield Row(values, f"{path}, line {number}")


def _sick(path: Path) -> list[Row]:
    columns = ("sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    return read_table(path, columns, kind=".tsv")


def _unpacked(folder: Path, dataset: str):
    """Return the folder of an NLTK set, as a path on the disk or inside the archive."""
    if (folder / dataset).is_dir():
        return folder / dataset
    archive = folder / f"{dataset}.zip"
    if not archive.is_file():
        raise UserError(f"data.folder {folder} has neither {dataset}.zip nor a folder {dataset}.")
    try:
        return zipfile.Path(archive, f"{dataset}/")
    except zipfile.BadZipFile:
        raise UserError(f"{archive} is no whole zip archive.") from None


def _sentences(root, dataset: str) -> Iterator[Row]:
    for label, name in SENTENCES[dataset].items():
        for number, line in enumerate(_text(root / name).split("\n"), 1):
            if line.strip():
                yield Row({"text": line.strip(), "label": label}, f"{root / name}, line {number}")


def _reviews(root) -> Iterator[Row]:
    for label, name in REVIEWS.items():
        if not (root / name).is_dir():
            raise UserError(f"{root} has no folder {name}.")
        for path in sorted((root / name).iterdir(), key=lambda each: each.name):
            if path.name.endswith(".txt"):
                yield Row({"text": _text(path).strip(), "label": label}, f"{path}, line 1")


def _text(path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except (OSError, KeyError):
        raise UserError(f"There is no file {path}.") from None
