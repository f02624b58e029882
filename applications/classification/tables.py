"""Rows with named columns out of CSV, TSV and JSON-lines files."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_attention.applications.common.checks import did_you_mean
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.text_files import read_lines

SUFFIXES = (".csv", ".tsv", ".jsonl")
LONGEST_FIELD = 2**31 - 1  # csv's own limit, 131,072 characters, is less than a long document


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
        try:
            values = json.loads(line)
        except ValueError as error:
            raise UserError(f"{place}: expected a JSON object ({error}).") from None
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
