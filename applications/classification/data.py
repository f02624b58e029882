"""From the `data` section, or lists of texts and labels, to examples, ids, targets and batches."""

import collections
import dataclasses
import math
import operator
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attention.applications.classification.config import SPLITS, DataConfig
from keras_attention.applications.classification.encoders import SIDES
from keras_attention.applications.classification.preprocessor import (
    ClassificationPreprocessor,
    in_sentences,
    length_of,
)
from keras_attention.applications.classification.tables import (
    Row,
    read_known,
    read_table,
    splits_of,
)
from keras_attention.applications.common.errors import UserError
from keras_attention.text import BucketedBatches


@dataclasses.dataclass(frozen=True)
class Report:
    """How many texts a set has, and what became of the others.

    Args:
        name: where they come from.
        examples: texts that are there.
        left_out: why texts were left out, and how many.
        truncated: texts that are there, cut to the longest length allowed.
    """

    name: str
    examples: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    truncated: int = 0

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.examples:,} examples"]
        parts += [f"{count:,} left out ({why})" for why, count in self.left_out.items() if count]
        if self.truncated:
            parts.append(f"{self.truncated:,} of them cut short")
        return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, and its label.

    Args:
        texts: the text, or the two texts of a pair.
        label: a string, a tuple of strings, or a number, as the configuration says; None where
            there is none.
        place: where it comes from, for messages.
    """

    texts: tuple[str, ...]
    label: Any
    place: str

    @property
    def text(self) -> str | tuple[str, ...]:
        """The text, or the pair, as people give it."""
        return self.texts if len(self.texts) > 1 else self.texts[0]


@dataclasses.dataclass(frozen=True)
class Examples:
    """A set of examples.

    Args:
        items: the examples.
        report: how many, and what was left out.
        data: what to do with texts that cannot be used; None refuses them, but cuts long ones.
        weights: a weight for each example, or None.
        balanced: whether examples are weighed so that all labels count alike.
    """

    items: Sequence[Example]
    report: Report
    data: DataConfig | None = None
    weights: Sequence[float] | None = None
    balanced: bool = False

    def __len__(self) -> int:
        return len(self.items)

    def split(self, fraction: float) -> tuple["Examples", "Examples"]:
        """Return the first examples, and the last ones, which are `fraction` of all."""
        first = len(self) - max(1, round(fraction * len(self)))
        if first < 1:
            raise ValueError(
                f"Too few texts to hold {fraction:g} of them out. Received: {len(self)}"
            )
        return self._part(slice(None, first)), self._part(slice(first, None))

    def _part(self, rows: slice) -> "Examples":
        weights = None if self.weights is None else self.weights[rows]
        report = dataclasses.replace(self.report, examples=len(self.items[rows]))
        return dataclasses.replace(self, items=self.items[rows], report=report, weights=weights)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Examples as ids and targets.

    Args:
        columns: the ids of each text; two columns for pairs.
        targets: `(examples, outputs)`.
        report: how many, and what was left out.
        weights: a weight for each example.
        sentences: whether the ids are to be cut into sentences.
    """

    columns: tuple[list[list[int]], ...]
    targets: np.ndarray
    report: Report
    weights: np.ndarray
    sentences: bool = False


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
    return Examples(chosen, Report(name, len(chosen), left_out), data)


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


def in_memory(
    columns: Sequence[Sequence[str]], labels: Sequence[Any], weights: Sequence[float] | None = None
) -> Examples:
    """Return the examples of texts and labels that are at hand.

    Args:
        columns: the texts; two columns for pairs.
        labels: their labels.
        weights: a weight for each example, or None.

    Raises:
        ValueError: where there is none, or a text has no words.
    """
    if not labels:
        raise ValueError("Expected at least one text and its label. Received: none")
    rows = enumerate(zip(zip(*columns, strict=True), labels, strict=True))
    items = [Example(texts, label, f"x[{place}]") for place, (texts, label) in rows]
    return Examples(items, Report("the texts given", len(items)), weights=weights)


def encode_examples(examples: Examples, preprocessor: ClassificationPreprocessor) -> Encoded:
    """Return the ids and targets of examples.

    Raises:
        ValueError: naming file and line, or list and place, where a text is too long or has no
            tokens, or a label is unknown, and the configuration does not say to skip it; or where
            nothing is left.
    """
    data, labels = examples.data, preprocessor.labels
    counts = collections.Counter(examples.report.left_out)
    targets = labels.targets([item.label for item in examples.items])
    texts = list(zip(*(item.texts for item in examples.items), strict=True))
    read = list(zip(*(preprocessor.ids(column) for column in texts), strict=True))
    kept, rows, truncated = [], [], 0
    for index, (item, ids) in enumerate(zip(examples.items, read, strict=True)):
        if np.isnan(targets[index]).any():
            _refuse_label(item, labels, data)
            counts["unknown label"] += 1
            continue
        if not all(ids):
            _refuse_empty(item, data)
            counts["empty"] += 1
            continue
        longest = max(map(length_of, ids))
        if longest > preprocessor.max_length:
            _refuse_length(item, longest, preprocessor.max_length, data)
            if data and data.on_too_long == "skip":
                counts["too long"] += 1
                continue
            ids = tuple(map(preprocessor.cut, ids))
            truncated += 1
        kept.append(index)
        rows.append(ids)
    report = Report(examples.report.name, len(kept), dict(counts), truncated)
    if not kept:
        raise UserError(f"{report}: no example is left.")
    targets, weights = targets[kept], np.ones(len(kept), "float32")
    if examples.balanced:
        weights = balanced_weights(targets)
    elif examples.weights is not None:
        weights = np.asarray(examples.weights, "float32")[kept]
    columns = tuple(map(list, zip(*rows, strict=True)))
    return Encoded(columns, targets, report, weights, preprocessor.sentences is not None)


def make_batches(
    encoded: Encoded,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    number_of_buckets: int = 8,
    lengths: Sequence[tuple[int, ...]] | None = None,
) -> BucketedBatches:
    """Return batches `(inputs, targets, weights)` of texts of like length.

    `inputs` are `text`, and for pairs `second`: ids `(B, S)`, or in sentences `(B, N, W)`, padded
    with 0. Rows that fill up a batch have weight 0.

    Args:
        encoded: the examples.
        batch_size: examples of a batch.
        seed: the seed of the order.
        shuffle: draw a new order in each epoch.
        number_of_buckets: how many lengths to pad to.
        lengths: the lengths to pad to, those of other batches (`batches.lengths`), so that no new
            shapes are compiled; one more comes in where none holds the longest of these texts.
    """
    # Row 0 is what a row that fills up a batch has.
    targets = np.concatenate([np.zeros_like(encoded.targets[:1]), encoded.targets])
    weights = np.concatenate([[0.0], encoded.weights]).astype("float32")

    def assemble(*arrays):
        *texts, index = arrays
        texts = [in_sentences(ids) for ids in texts] if encoded.sentences else texts
        inputs = dict(zip(SIDES, texts, strict=False))
        return inputs, targets[index[:, 0]], weights[index[:, 0]]

    columns = (*encoded.columns, [[number] for number in range(1, len(targets))])
    if lengths is not None:
        longest = tuple(max(map(len, column)) for column in columns)
        if not any(all(map(operator.ge, bucket, longest)) for bucket in lengths):
            lengths = [*lengths, longest]
    return BucketedBatches(
        columns,
        batch_size=batch_size,
        lengths=lengths,
        number_of_buckets=number_of_buckets,
        seed=seed,
        shuffle=shuffle,
        assemble=assemble,
    )


def balanced_weights(targets: np.ndarray) -> np.ndarray:
    """Return a weight for each example, so that all labels count alike and the mean weight is 1."""
    counts = targets.sum(axis=0)
    present = np.count_nonzero(counts)
    per_label = np.where(counts > 0, len(targets) / (present * np.maximum(counts, 1)), 0.0)
    return (targets @ per_label).astype("float32")


def _source(data: DataConfig, split: str) -> str | None:
    """Return the name of the data that a split is read from, None where it is not read."""
    if data.dataset:
        return data.dataset if split in splits_of(data.dataset) else None
    return getattr(data, f"{split}_file")


def _is_drawn(data: DataConfig, split: str) -> bool:
    return split == "dev" or bool(split == "test" and data.folds)


def _or_folds(split: str) -> str:
    return " or data.folds" if split == "test" else ""


def _read(data: DataConfig, split: str) -> Examples:
    if not data.dataset:
        return read_examples(data, _source(data, split))
    rows = read_known(data.dataset, data.folder, split)
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
            _refuse_blank(row, blank[0], data)
            empty += 1
            continue
        label = _label(row, data) if labelled else None
        items.append(Example(texts, label, row.place))
    if not items:
        raise UserError(f"{name}: there is no text in it.")
    return Examples(items, Report(name, len(items), {"empty": empty}), data)


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str):
        raise UserError(
            f"{row.place}: column '{column}' must hold text. Received: {str(value)[:40]!r}."
        )
    return value


def _refuse_blank(row: Row, column: str, data: DataConfig) -> None:
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


def _refuse_label(item: Example, labels: Any, data: DataConfig | None) -> None:
    if data and data.on_unknown_label == "skip":
        return
    known, label = ", ".join(map(str, labels.names)), labels.unknown(item.label)
    if data is None:
        raise ValueError(f"Labels should be among {known}. Received: {label!r}, of {item.place}")
    raise UserError(
        f"{item.place}: the training data have no label '{label}'. Known: {known}; correct the "
        "file, or skip such texts: data.on_unknown_label, or evaluate --skip."
    )


def _refuse_empty(item: Example, data: DataConfig | None) -> None:
    if data is None:
        raise ValueError(f"A text should have words. Received: {item.place}={item.text!r}")
    if data.on_empty == "error":
        raise UserError(
            f"{item.place}: there are no words in the text; correct the file, or skip such texts: "
            "data.on_empty, or evaluate --skip."
        )


def _refuse_length(item: Example, length: int, limit: int, data: DataConfig | None) -> None:
    if data and data.on_too_long == "error":
        raise UserError(
            f"{item.place}: {length:,} tokens, more than data.max_length {limit}; raise "
            "it, or skip or truncate such texts: data.on_too_long, or evaluate --skip."
        )
