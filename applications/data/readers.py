"""Rows with named columns: of CSV, TSV and JSON-lines files, one at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError, did_you_mean
from ..store.bad_lines import BadLine, Line, checked
from ..store.files import json_object, lines_of, records

SUFFIXES = (".csv", ".tsv", ".jsonl")


class Row(NamedTuple):
    """The values of a row by their columns, and its place, for messages: `F.csv, line 3`."""

    values: dict[str, object]
    place: Line | str


def rows_of(
    path: str | Path,
    columns: Sequence[str] = (),
    encoding: str = "utf-8",
    kind: str | None = None,
    header: Sequence[str] | None = None,
    advice: str = "",
) -> Iterator[Row]:
    """Return the rows of a table that has at least `columns`, one at a time.

    It is `.csv` or `.tsv` with a header, or `.jsonl` with an object a line; each plain or `.gz`. In
    CSV a value in double quotes may hold commas and line feeds; TSV has no quoting.

    Args:
        path: the file.
        columns: the columns that each row must have.
        encoding: the encoding of the file.
        kind: the suffix to go by in place of the file's own.
        header: the names of the columns of a file without a header. An empty line is then a row of
            empty values; else it has no row.
        advice: the way out for rows of another number of columns.

    Raises:
        UserError: naming file and line, where a row is not as it should be.

    Example:

    ```python
    from pathlib import Path

    from keras_attention.applications.data.readers import rows_of

    Path("table.csv").write_text("text,label\\ngood fun,yes\\n")
    (row,) = rows_of("table.csv", ["text", "label"])
    print(row.values["text"], "in", row.place)  # good fun in table.csv, line 2
    ```
    """
    kind = kind or Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{path}: expected a file named {', '.join(SUFFIXES)}, or the same + .gz.")
    lines = lines_of(path, encoding)
    if kind == ".jsonl":
        return _objects(path, lines, columns)
    rows = records(path, lines, quoted=kind == ".csv")
    if header is not None:
        separator = ", tab, " if kind == ".tsv" else ","
        return _lines(path, rows, header, f"expected {separator.join(header)}", advice, True)
    header = _header(path, rows, columns)
    wanted = f"expected {len(header)} columns, as in the header"
    return _lines(path, rows, header, wanted, advice, False)


def _header(path, rows, columns) -> list[str]:
    """Return the names in the first row of a table, which must have some columns, each once."""
    header = [name.strip() for name in next(rows, (1, []))[1]]
    for column in columns:
        check_column(column, header, f"{path}, line 1")
    if len(set(header)) < len(header):
        names = ", ".join(header)
        raise UserError(f"{path}, line 1: two columns have one name. Columns: {names}.")
    return header


def _lines(path, rows, header, wanted, advice, keeps_empty) -> Iterator[Row]:
    def row_of(numbered):
        number, fields = numbered
        place = Line(str(path), number)
        if not fields:
            return Row(dict.fromkeys(header, ""), place) if keeps_empty else None
        if len(fields) != len(header):
            raise BadLine(place, f"{wanted}. Received: {len(fields)} columns", advice)
        return Row(dict(zip(header, fields, strict=True)), place)

    yield from (row for row in checked(rows, row_of) if row is not None)


def _objects(path, lines, columns) -> Iterator[Row]:
    def row_of(numbered):
        number, line = numbered
        place = Line(str(path), number)
        if not line.strip():
            return None
        values = json_object(line, place)
        for column in columns:
            check_column(column, list(values), place)
        return Row(values, place)

    yield from (row for row in checked(enumerate(lines, 1), row_of) if row is not None)


def check_column(column: str, columns: Sequence[str], place: Line | str) -> None:
    """Refuse a table without a column, with the columns that it has."""
    if column not in columns:
        raise BadLine(
            place,
            f"there is no column '{column}'.{did_you_mean(column, columns)} "
            f"Columns: {', '.join(columns) or 'none'}",
            "the settings data.…_column, such as data.text_column, say which are read",
        )
