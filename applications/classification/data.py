"""From the `data` section of a configuration to examples, whole sets or drawn parts of one."""

import collections
import math
import random
from collections.abc import Sequence

from keras_attention.applications.classification import known
from keras_attention.applications.classification.config import SPLITS, DataConfig
from keras_attention.applications.classification.examples import Example, Examples, Report
from keras_attention.applications.classification.tables import Row, read_table
from keras_attention.applications.common.errors import UserError


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names, or can draw, data for `split`."""
    return bool(_source(data, split) or _source(data, "train") and _is_drawn(data, split))


def load_examples(data: DataConfig, split: str) -> Examples:
    """Return the examples of a split.

    What a set does not come with is drawn from its training data: the test set, where `folds` are
    asked for, and the development set. The draw depends on `split_seed` alone, and the parts do
    not overlap.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its files are missing, not in their form, or
            hold what the configuration does not say to skip.
    """
    if split not in SPLITS:
        raise UserError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
    if not has_split(data, split):
        raise UserError(f"There is no {split} data: give data.{split}_file{_or_folds(split)}.")
    if data.folds and data.dataset and _source(data, "test"):
        raise UserError(f"data.folds does not go with {data.dataset}, which has a test set.")
    if split != "train" and _source(data, split):
        return _read(data, split)
    pool = _without_rare(_read(data, "train"), data)
    chosen = _parts(pool.items, data)[split]
    if not chosen:
        raise UserError(
            f"{pool.report.name}: too few examples ({len(pool)}) for a {split} set of their own."
        )
    left_out = pool.report.left_out if split == "train" else {}
    name = pool.report.name if len(chosen) == len(pool) else f"{pool.report.name}, {split} part"
    return Examples(chosen, Report(name, len(chosen), left_out))


def read_examples(data: DataConfig, path: str, labelled: bool = True) -> Examples:
    """Return the examples of a table that the user names.

    Args:
        data: the `data` section, which says the columns.
        path: the table.
        labelled: whether the label's column has to be there.

    Raises:
        UserError: where it cannot be read.
    """
    columns = [data.text_column, *([data.second_column] if data.second_column else [])]
    columns += [data.label_column] if labelled else []
    return _examples(data, read_table(path, columns, data.encoding), str(path), labelled)


def _source(data: DataConfig, split: str) -> str | None:
    """Return the name of the data that a split is read from, None where it is not read."""
    if data.dataset:
        return data.dataset if split in known.splits_of(data.dataset) else None
    return getattr(data, f"{split}_file")


def _is_drawn(data: DataConfig, split: str) -> bool:
    return split == "dev" or bool(split == "test" and data.folds)


def _or_folds(split: str) -> str:
    return " or data.folds" if split == "test" else ""


def _read(data: DataConfig, split: str) -> Examples:
    if not data.dataset:
        return read_examples(data, _source(data, split))
    rows = known.read_known(data.dataset, data.folder, split)
    columns = list(rows[0].values) if rows else []
    for name in ("text_column", "second_column", "label_column"):
        column = getattr(data, name)
        if column and column not in columns:
            raise UserError(
                f"data.{name}: {data.dataset} has no column '{column}'. "
                f"Columns: {', '.join(columns)}."
            )
    return _examples(data, rows, f"{data.dataset} ({split})")


def _examples(data: DataConfig, rows: Sequence[Row], name: str, labelled=True) -> Examples:
    columns = [data.text_column, *([data.second_column] if data.second_column else [])]
    items, empty = [], 0
    for row in rows:
        texts = tuple(_text(row, column) for column in columns)
        blank = [column for column, text in zip(columns, texts, strict=True) if not text.strip()]
        if blank and labelled:
            _refuse_empty(row, blank[0], data)
            empty += 1
            continue
        label = _label(row, data) if labelled else None
        items.append(Example(texts, label, row.place))
    if not items:
        raise UserError(f"{name}: there is no text in it.")
    return Examples(items, Report(name, len(items), {"empty": empty}))


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str):
        raise UserError(
            f"{row.place}: column '{column}' must hold text. Received: {str(value)[:40]!r}."
        )
    return value


def _refuse_empty(row: Row, column: str, data: DataConfig) -> None:
    if data.on_empty == "error":
        raise UserError(
            f"{row.place}: column '{column}' is empty; correct the file, or skip such texts: "
            "data.on_empty, or evaluate --skip."
        )


def _label(row: Row, data: DataConfig):
    value = row.values[data.label_column]
    if data.labels == "number":
        return _number(row, value, data)
    if data.labels == "many":
        parts = value if isinstance(value, list) else str(value).split(data.label_separator)
        return tuple(sorted({str(part).strip() for part in parts} - {""}))
    if isinstance(value, list | dict) or value is None or not str(value).strip():
        raise UserError(
            f"{row.place}: column '{data.label_column}' must hold one label. Received: {value!r}."
        )
    return str(value).strip()


def _number(row: Row, value, data: DataConfig) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{row.place}: column '{data.label_column}' must hold a number, as data.labels is "
            f"number. Received: {value!r}."
        )
    return number


def _without_rare(examples: Examples, data: DataConfig) -> Examples:
    """Refuse labels with fewer than `data.min_examples` texts, or leave such texts out."""
    if data.labels == "number":
        return examples
    of_label = collections.defaultdict(list)
    for item in examples.items:
        for label in [item.label] if data.labels == "one" else item.label:
            of_label[label].append(item)
    rare = {label: items for label, items in of_label.items() if len(items) < data.min_examples}
    if not rare:
        return examples
    if data.on_rare_label == "error":
        label, items = next(iter(rare.items()))
        raise UserError(
            f"{items[0].place}: label '{label}' has {len(items)} example"
            f"{'s' if len(items) > 1 else ''}, fewer than data.min_examples {data.min_examples}; "
            "correct the file, lower data.min_examples, or set data.on_rare_label to skip."
        )
    out = {id(item) for items in rare.values() for item in items}
    kept = [item for item in examples.items if id(item) not in out]
    if not kept:
        raise UserError(f"{examples.report.name}: no label has {data.min_examples} examples.")
    left_out = {**examples.report.left_out, "rare label": len(out)}
    return Examples(kept, Report(examples.report.name, len(kept), left_out))


def _parts(items: Sequence[Example], data: DataConfig) -> dict[str, list[Example]]:
    """Cut a set into the parts that are drawn; each keeps the order of the set."""
    part_of = dict.fromkeys(range(len(items)), "train")
    draw = random.Random(data.split_seed)
    position = 0
    for members in _strata(items, data, draw):
        for index in members:
            if data.folds and position % data.folds == data.fold:
                part_of[index] = "test"
            position += 1
    if not _source(data, "dev"):
        draw = random.Random(f"{data.split_seed} dev")
        for members in _strata(items, data, draw):
            rest = [index for index in members if part_of[index] == "train"]
            for index in rest[: _share(len(rest), data.dev_fraction)]:
                part_of[index] = "dev"
    parts = collections.defaultdict(list)
    for index, part in part_of.items():
        parts[part].append(items[index])
    return parts


def _share(count: int, fraction: float) -> int:
    """Return how many of `count` go to the development set; never the last one."""
    return max(0, min(math.floor(count * fraction + 0.5), count - 1))


def _strata(items: Sequence[Example], data: DataConfig, draw: random.Random) -> list[list[int]]:
    """Return the indices of the examples of each label, in a drawn order."""
    groups = collections.defaultdict(list)
    for index, item in enumerate(items):
        groups[item.label if data.labels == "one" else ""].append(index)
    for members in groups.values():
        draw.shuffle(members)
    return [groups[label] for label in sorted(groups)]
