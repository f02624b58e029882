"""From the `data` section, or lists of texts and labels, to examples, ids, targets and batches."""

import collections
import contextlib
import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from ..arguments import is_finite
from ..base.preprocessor import Splits
from ..data.lengths import OnTooLong
from ..errors import UserError, check_choice, counted, shown
from ..store.bad_lines import BadLine, Line, checked
from ..text import BucketedBatches, nfc
from .config import SPLITS, DataConfig
from .networks.encoders import SIDES
from .preprocessor import ClassificationPreprocessor, in_sentences, length_of
from .tables import Row, check_column, read_known, rows_of, splits_of


@dataclasses.dataclass(frozen=True)
class Report:
    """How many examples a set has, how many were left out and why, and how many were cut short."""

    name: str
    examples: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    truncated: int = 0

    def __str__(self) -> str:
        counts = {f"left out ({why})": count for why, count in self.left_out.items()}
        counts["of them cut short"] = self.truncated
        return counted(f"{self.name}: {self.examples:,} examples", counts)


@dataclasses.dataclass(frozen=True)
class Example:
    """A text, or a pair of texts, its label, and where it comes from, for messages.

    The label is a string, a tuple of strings or a number, as the configuration says, or None.
    """

    texts: tuple[str, ...]
    label: Any
    place: Line | str

    @property
    def text(self) -> str | tuple[str, ...]:
        """The text, or the pair, as people give it."""
        return self.texts if len(self.texts) > 1 else self.texts[0]


@dataclasses.dataclass(frozen=True)
class Examples(Splits):
    """A set of examples, with a weight for each or `balanced`, so that all labels count alike.

    `data` says what to do with texts that cannot be used; None refuses them, but cuts long ones.
    `on_too_long` goes before what it says.
    """

    items: Sequence[Example]
    report: Report
    data: DataConfig | None = None
    weights: Sequence[float] | None = None
    balanced: bool = False
    on_too_long: str | None = None
    columns, noun = ("items", "weights"), "texts"

    def part(self, rows: Sequence[int], **changes: Any) -> "Examples":
        report = dataclasses.replace(self.report, examples=len(rows))
        return super().part(rows, report=report, **changes)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Examples as ids, a column of them for each text, and targets `(examples, outputs)`.

    Where `sentences`, batches cut the ids at their marks.
    """

    columns: tuple[list[list[int]], ...]
    targets: np.ndarray
    report: Report
    weights: np.ndarray
    sentences: bool = False


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names, or can draw, data for `split`."""
    is_drawn = split == "dev" or split == "test" and data.folds
    return bool(_source(data, split) or _source(data, "train") and is_drawn)


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
    check_choice("`split`", split, SPLITS)
    if not has_split(data, split):
        folds = " or data.folds" if split == "test" else ""
        raise UserError(f"There is no {split} data: give data.{split}{folds}.")
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


def read_examples(data: DataConfig, path: str) -> Examples:
    """Return the examples of a table that the user names.

    Args:
        data: the `data` section, which says the columns.
        path: the table.

    Raises:
        UserError: where it cannot be read.
    """
    rows = list(rows_of(path, _columns(data, labelled=True), data.encoding))
    return _examples(data, rows, str(path))


def texts_of(data: DataConfig, path: str) -> Iterator[tuple[Line | str, str | tuple[str, ...]]]:
    """Yield the texts, or the pairs, of a table one at a time, each after its file and line.

    The table needs no labels.
    """
    columns, found = _columns(data, labelled=False), None

    def texts(row):
        columns_of_row = tuple(_text(row, column) for column in columns)
        return row.place, columns_of_row if len(columns_of_row) > 1 else columns_of_row[0]

    for found in checked(rows_of(path, columns, data.encoding), texts):
        yield found
    if found is None:
        raise UserError(f"{path}: there is no text in it.")


def in_memory(
    columns: Sequence[Sequence[str]], labels: Sequence[Any], weights: Sequence[float] | None = None
) -> Examples:
    """Return the examples of a column of texts, or of two of pairs, and their labels."""
    if not labels:
        raise ValueError("Expected at least one text and its label. Received: none")
    rows = enumerate(zip(zip(*columns, strict=True), labels, strict=True))
    items = [Example(texts, label, f"x[{place}]") for place, (texts, label) in rows]
    return Examples(items, Report("the texts given", len(items)), weights=weights)


def encode_examples(examples: Examples, preprocessor: ClassificationPreprocessor) -> Encoded:
    """Return the ids and targets of examples.

    A ValueError names file and line, or list and place, of a text that is too long or has no
    tokens, and of an unknown label, where the configuration does not say to skip it.
    """
    counts = collections.Counter(examples.report.left_out)
    targets = preprocessor.labels.targets([item.label for item in examples.items])
    texts = zip(*(item.texts for item in examples.items), strict=True)
    read = list(zip(*map(preprocessor.ids, texts), strict=True))
    kept, rows, truncated = [], [], 0

    def fault_of(index):
        return _fault(examples, examples.items[index], read[index], targets[index], preprocessor)

    faults = checked(range(len(read)), fault_of)
    for index, (ids, fault) in enumerate(zip(read, faults, strict=True)):
        if fault:
            counts[fault] += 1
            continue
        kept.append(index)
        rows.append(tuple(map(preprocessor.cut, ids)))
        truncated += rows[-1] != ids
    report = Report(examples.report.name, len(kept), dict(counts), truncated)
    if not kept:
        raise UserError(f"{report}: no example is left.")
    targets, weights = targets[kept], np.ones(len(kept), "float32")
    if examples.balanced:
        from sklearn.utils.class_weight import compute_sample_weight  # slow to import

        weights = compute_sample_weight("balanced", targets.argmax(axis=1)).astype("float32")
    elif examples.weights is not None:
        weights = np.asarray(examples.weights, "float32")[kept]
    columns = tuple(map(list, zip(*rows, strict=True)))
    return Encoded(columns, targets, report, weights, preprocessor.sentences is not None)


def _fault(examples, item, ids, targets, preprocessor) -> str | None:
    """Return why an example is left out; raise an error where it is not to be left out."""
    data: DataConfig | None = examples.data
    if np.isnan(targets).any():
        label = preprocessor.labels.unknown(item.label)
        known = ", ".join(map(str, preprocessor.labels.names))
        if data is None:
            raise ValueError(
                f"Labels should be among {known}. Received: {label!r}, of {item.place}"
            )
        problem = f"the training data have no label '{label}'. Known: {known}"
        return _skipped("unknown label", data, "on_unknown_label", item.place, problem)
    if not all(ids):
        if data is None:
            raise ValueError(f"A text should have words. Received: {item.place}={item.text!r}")
        return _skipped("empty", data, "on_empty", item.place, "there are no words in the text")
    longest, limit = max(map(length_of, ids)), preprocessor.max_length
    on_too_long = examples.on_too_long or (data.on_too_long if data else "truncate")
    check_choice("`on_too_long`", on_too_long, get_args(OnTooLong))
    if longest <= limit or on_too_long == "truncate":
        return None
    if on_too_long == "error":
        ways = "data.on_too_long, or evaluate --on-too-long"
        advice = f"raise it, or skip or truncate such texts: {ways if data else '`on_too_long`'}"
        problem = f"{longest:,} tokens, more than {'data.' if data else ''}max_length {limit}"
        raise BadLine(item.place, problem, advice)
    return "too long"


def _skipped(reason: str, data: DataConfig, key: str, place: str, problem: str) -> str:
    """Return the reason to leave a text out, or raise an error where `data` does not skip it."""
    if getattr(data, key) == "error":
        advice = f"correct the file, or skip such texts: data.{key}, or evaluate --skip"
        raise BadLine(place, problem, advice)
    return reason


def count(encoded: Encoded | None, linear: Any) -> None:
    """Let a linear model count the examples to train with; a dataset (None) is refused."""
    if encoded is None:
        raise ValueError("A linear model counts texts before training: give lists, not a dataset.")
    linear.count(encoded.columns[0], encoded.targets, encoded.weights)


def make_batches(encoded: Encoded, batch_size: int, **options: Any) -> BucketedBatches:
    """Return batches `(inputs, targets, weights)` of texts of like length.

    `inputs` are `text`, and for pairs `second`: ids `(B, S)`, or in sentences `(B, N, W)`, padded
    with 0. Rows that fill up a batch have weight 0. More `options` are those of `BucketedBatches`.
    """

    def assemble(*arrays):
        *texts, targets, weights = arrays
        texts = [in_sentences(ids) for ids in texts] if encoded.sentences else texts
        return dict(zip(SIDES, texts, strict=False)), targets, weights

    options |= {"values": (encoded.targets, encoded.weights), "assemble": assemble}
    return BucketedBatches(encoded.columns, batch_size, **options)


def _source(data: DataConfig, split: str) -> str | None:
    """Return the name of the data that a split is read from, None where it is not read."""
    if data.dataset:
        return data.dataset if split in splits_of(data.dataset) else None
    return getattr(data, split)


def _columns(data: DataConfig, labelled: bool) -> list[str]:
    wanted = [data.text_column, data.second_column, data.label_column if labelled else None]
    return [column for column in wanted if column]


def _read(data: DataConfig, split: str) -> Examples:
    if not data.dataset:
        return read_examples(data, _source(data, split))
    rows = read_known(data.dataset, data.folder, split)
    for column in _columns(data, labelled=True) if rows else []:
        check_column(column, list(rows[0].values), f"data.dataset {data.dataset}")
    return _examples(data, rows, f"{data.dataset} ({split})")


def _examples(data: DataConfig, rows: Sequence[Row], name: str) -> Examples:
    columns = _columns(data, labelled=False)

    def example(row):
        texts = tuple(_text(row, column) for column in columns)
        blank = [column for column, text in zip(columns, texts, strict=True) if not text.strip()]
        if blank:
            _skipped("empty", data, "on_empty", row.place, f"column '{blank[0]}' is empty")
            return None
        return Example(texts, _label(row, data), row.place)

    found = list(checked(rows, example))
    items = [each for each in found if each is not None]
    if not items:
        raise UserError(f"{name}: there is no text in it.")
    return Examples(items, Report(name, len(items), {"empty": len(found) - len(items)}), data)


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str):
        problem = f"column '{column}' must hold text. Received: {str(value)[:40]!r}"
        raise BadLine(row.place, problem)
    return value


def _label(row: Row, data: DataConfig) -> Any:
    value, wanted = row.values[data.label_column], "one label"
    if data.labels == "number":
        wanted = "a number, as data.labels is number"
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(float(value)):
                return float(value)
    elif data.labels == "many":
        wanted = "labels, in JSON a list of them"
        parts = value.split(data.label_separator) if isinstance(value, str) else value
        parts = parts if isinstance(parts, list) else [parts]
        if all(map(_is_label, parts)):
            return tuple(sorted({nfc(str(part)).strip() for part in parts} - {""}))
    elif _is_label(value) and str(value).strip():
        return nfc(str(value)).strip()
    problem = f"column '{data.label_column}' must hold {wanted}. Received: {shown(value)}"
    raise BadLine(row.place, problem)


def _is_label(value: Any) -> bool:
    """Whether a value of a table is a label: JSON has null, NaN, lists and objects, too."""
    return isinstance(value, str) or isinstance(value, (int, float)) and is_finite(value)


def _without_rare(examples: Examples, data: DataConfig) -> Examples:
    """Refuse labels with fewer than `data.min_examples` texts, or leave such texts out."""
    if data.labels == "number":
        return examples
    items, name, least = examples.items, examples.report.name, data.min_examples
    labels = [(item.label,) if data.labels == "one" else item.label for item in items]
    counts = collections.Counter(itertools.chain(*labels))
    kept = [
        item
        for item, found in zip(items, labels, strict=True)
        if all(counts[label] >= least for label in found)
    ]
    if len(kept) == len(items):
        return examples
    if data.on_rare_label == "error":
        pairs = (
            (item, label) for item, found in zip(items, labels, strict=True) for label in found
        )
        item, label = next(pair for pair in pairs if counts[pair[1]] < least)
        raise UserError(
            f"{item.place}: label '{label}' has {counts[label]} example"
            f"{'s' if counts[label] > 1 else ''}, fewer than data.min_examples {least}; "
            "correct the file, lower data.min_examples, or set data.on_rare_label to skip."
        )
    if not kept:
        found = shown(dict(counts.most_common()))
        raise UserError(f"{name}: no label has {least} examples. Received: {found}.")
    left_out = {**examples.report.left_out, "rare label": len(items) - len(kept)}
    return Examples(kept, Report(name, len(kept), left_out))


def _parts(items: Sequence[Example], data: DataConfig) -> dict[str, list[Example]]:
    """Cut a set into the parts that are drawn; each keeps the order of the set."""
    part_of = ["train"] * len(items)
    if data.folds:
        drawn = itertools.chain(*_strata(items, data, random.Random(data.split_seed)))
        for index in itertools.islice(drawn, data.fold, None, data.folds):
            part_of[index] = "test"
    if not _source(data, "dev"):
        for members in _strata(items, data, random.Random(f"{data.split_seed} dev")):
            rest = [index for index in members if part_of[index] == "train"]
            # Of each label at least one stays for training.
            share = min(math.floor(len(rest) * data.dev_fraction + 0.5), len(rest) - 1)
            for index in rest[: max(0, share)]:
                part_of[index] = "dev"
    parts = collections.defaultdict(list)
    for part, item in zip(part_of, items, strict=True):
        parts[part].append(item)
    return parts


def _strata(items: Sequence[Example], data: DataConfig, draw: random.Random) -> list[list[int]]:
    """Return the indices of the examples of each label, in a drawn order."""
    groups = collections.defaultdict(list)
    for index, item in enumerate(items):
        groups[item.label if data.labels == "one" else ""].append(index)
    for members in groups.values():
        draw.shuffle(members)
    return [groups[label] for label in sorted(groups)]
