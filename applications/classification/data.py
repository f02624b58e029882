"""From the `data` section, or texts and labels at hand, to a corpus, ids, targets and batches."""

import collections
import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import numpy as np

from ..arguments import is_finite
from ..data.corpus import Corpus, Report, compact, corpus_at_hand, drawn_parts
from ..data.encoded import Encoded, encoded_of
from ..data.lengths import OnTooLong
from ..data.lines import Lines
from ..data.readers import Row, check_column, rows_of
from ..errors import UserError, check_choice, shown
from ..schema.keys import SPLITS
from ..store.bad_lines import BadLine, Line, checked
from ..text import BucketedBatches, nfc
from .config import DataConfig
from .known_sets import read_known
from .networks.encoders import SIDES
from .preprocessor import ClassificationPreprocessor, Labels


def load_corpus(data: DataConfig, split: str) -> Corpus:
    """Return the examples of a split: columns `text`, `second` of pairs, and `label`.

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
    if not data.has_split(split):
        folds = " or data.folds" if split == "test" else ""
        raise UserError(f"There is no {split} data: give data.{split}{folds}.")
    if data.folds and data.dataset and data.source_of("test"):
        raise UserError(f"data.folds does not go with {data.dataset}, which has a test set.")
    if split != "train" and data.source_of(split):
        return _read(data, split)
    pool = _without_rare(_read(data, "train"), data)
    strata = pool["label"] if data.labels == "one" else [""] * len(pool)
    dev_fraction = 0.0 if data.source_of("dev") else data.dev_fraction
    rows = drawn_parts(strata, data.split_seed, data.folds, data.fold, dev_fraction)[split]
    if not rows:
        raise UserError(
            f"{pool.name}: too few examples ({len(pool)}) for a {split} set of their own."
        )
    name = pool.name if len(rows) == len(pool) else f"{pool.name}, {split} part"
    return pool.take(rows, name=name, left_out=pool.report.left_out if split == "train" else {})


def read_corpus(path: str, data: DataConfig) -> Corpus:
    """Return the examples of a table that the user names.

    Args:
        path: the table.
        data: the `data` section, which says the columns.

    Raises:
        UserError: where it cannot be read.
    """
    columns = [*_sides(data).values(), data.label_column]
    return _corpus(data, rows_of(path, columns, data.encoding), str(path))


def texts_of(data: DataConfig, path: str) -> Iterator[tuple[Line | str, str | tuple[str, ...]]]:
    """Yield the texts, or the pairs, of a table one at a time, each after its file and line.

    The table needs no labels.
    """
    columns, found = [*_sides(data).values()], None

    def texts(row):
        columns_of_row = tuple(_text(row, column) for column in columns)
        return row.place, columns_of_row if len(columns_of_row) > 1 else columns_of_row[0]

    for found in checked(rows_of(path, columns, data.encoding), texts):
        yield found
    if found is None:
        raise UserError(f"{path}: there is no text in it.")


def in_memory(
    columns: Sequence[Sequence[str]], labels: Sequence[Any], weights: Sequence[float] | None = None
) -> Corpus:
    """Return the corpus of a column of texts, or of two of pairs, and their labels."""
    if not labels:
        raise ValueError("Expected at least one text and its label. Received: none")
    named = dict(zip(SIDES, columns, strict=False))
    corpus = corpus_at_hand({**named, "label": labels}, weights, argument="x")
    return corpus.handled(too_long="truncate")


def encode(corpus: Corpus, preprocessor: ClassificationPreprocessor) -> Encoded:
    """Return the ids of a corpus, and its targets as the value `"target"`.

    A ValueError names file and line, or list and position, of a text that is too long or has no
    tokens, and of an unknown label, where the corpus does not say to skip it.
    """
    on_too_long = corpus.handling.get("too long", "error")
    check_choice("`on_too_long`", on_too_long, get_args(OnTooLong))
    labels, limit, keys = preprocessor.labels, preprocessor.max_length, corpus.keys
    targets = labels.targets(corpus["label"])
    sides = SIDES[: 1 + preprocessor.pairs]
    ids, lengths = zip(*(preprocessor.read(corpus[side]) for side in sides), strict=True)
    longest = np.max(lengths, axis=0)
    is_unknown = np.isnan(targets).any(axis=1)
    is_empty = np.min(lengths, axis=0) == 0
    is_long = longest > limit

    def reason(row: int) -> str | None:
        if is_unknown[row]:
            return _refuse_label(corpus, labels, row)
        if is_empty[row]:
            texts = " and ".join(shown(corpus[side][row]) for side in sides)
            problem = f"a text should have words. Received: {texts}"
            return corpus.refuse(row, "empty", problem, _advice(corpus, "empty"))
        problem = f"{longest[row]:,} tokens, more than {keys}max_length {limit}"
        ways = "data.on_too_long, or evaluate --on-too-long" if keys else "`on_too_long`"
        advice = f"raise it, or skip or truncate such texts: {ways}"
        return corpus.refuse(row, "too long", problem, advice)

    suspect = is_unknown | is_empty
    if on_too_long != "truncate":
        suspect = suspect | is_long
    columns, values = dict(zip(sides, ids, strict=True)), {"target": targets}
    encoded = encoded_of(corpus, columns, values, suspect, reason, is_long)
    return balanced(encoded) if corpus.balanced else encoded


def check_labels(corpus: Corpus, labels: Labels) -> None:
    """Refuse a label that the training data do not have, where the corpus does not say to skip."""
    is_unknown = np.isnan(labels.targets(corpus["label"])).any(axis=1)
    for row in np.flatnonzero(is_unknown):
        _refuse_label(corpus, labels, row)


def _refuse_label(corpus: Corpus, labels: Labels, row: int) -> str:
    """Return the reason to leave out a text of an unknown label; else raise a `BadLine`."""
    label, known = labels.unknown(corpus["label"][row]), ", ".join(map(str, labels.names))
    problem = f"the training data have no label {label!r}. Known: {known}"
    return corpus.refuse(row, "unknown label", problem, _advice(corpus, "unknown_label"))


def _advice(corpus: Corpus, reason: str) -> str:
    """Return the way out of texts or labels that cannot be used, where they are of a file."""
    ways = f"correct the file, or skip such texts: data.on_{reason}, or evaluate --skip"
    return ways if corpus.keys else ""


def balanced(encoded: Encoded) -> Encoded:
    """Return examples with weights by which all labels count alike."""
    from sklearn.utils.class_weight import compute_sample_weight  # slow to import

    weights = compute_sample_weight("balanced", encoded.values["target"].argmax(axis=1))
    return dataclasses.replace(encoded, weights=weights.astype("float32"))


def make_batches(
    encoded: Encoded, preprocessor: ClassificationPreprocessor, batch_size: int, **options: Any
) -> BucketedBatches:
    """Return batches `(inputs, targets, weights)` of texts of like length.

    `inputs` are `text`, and for pairs `second`: ids `(B, S)`, or in sentences `(B, N, W)`, padded
    with 0. Rows that fill up a batch have weight 0. More `options` are those of `BucketedBatches`.
    """

    def assemble(*arrays):
        *texts, targets, weights = arrays
        inputs = zip(encoded.ids, map(preprocessor.as_read, texts), strict=True)
        return dict(inputs), targets, weights

    weights = np.ones(len(encoded), "float32") if encoded.weights is None else encoded.weights
    options |= {"values": (encoded.values["target"], weights), "assemble": assemble}
    return BucketedBatches(tuple(encoded.ids.values()), batch_size, **options)


def _sides(data: DataConfig) -> dict[str, str]:
    """Return the columns of a table that hold texts, by the names of the network's inputs."""
    columns = (data.text_column, data.second_column)
    return {side: column for side, column in zip(SIDES, columns, strict=True) if column}


def _read(data: DataConfig, split: str) -> Corpus:
    if not data.dataset:
        return read_corpus(data.source_of(split), data)
    rows = read_known(data.dataset, data.folder, split)
    for column in (*_sides(data).values(), data.label_column) if rows else ():
        check_column(column, list(rows[0].values), f"data.dataset {data.dataset}")
    return _corpus(data, rows, f"{data.dataset} ({split})")


def _corpus(data: DataConfig, rows: Iterable[Row], name: str) -> Corpus:
    sides = _sides(data)
    labels: list[Any] = []
    shared: dict[Any, Any] = {}  # one object for all rows of a label
    places: list[Line | str] = []
    empty = 0

    def entry(row: Row) -> list[str] | None:
        texts = [_text(row, column) for column in sides.values()]
        for column, text in zip(sides.values(), texts, strict=True):
            if not text.strip():
                if data.on_empty == "error":
                    advice = "correct the file, or skip such texts: data.on_empty, or evaluate"
                    raise BadLine(row.place, f"column '{column}' is empty", f"{advice} --skip")
                return None
        label = _label(row, data)
        labels.append(shared.setdefault(label, label))
        places.append(row.place)
        return texts

    def full() -> Iterator[list[str]]:
        nonlocal empty
        for texts in checked(rows, entry):
            if texts is None:
                empty += 1
            else:
                yield texts

    columns = dict(zip(sides, Lines.columns(full(), len(sides)), strict=True))
    if not places:
        raise UserError(f"{name}: there is no text in it.")
    return Corpus(
        {**columns, "label": labels},
        Report(name, len(places), left_out={"empty": empty}),
        compact(places),
        handling={
            "empty": data.on_empty,
            "too long": data.on_too_long,
            "unknown label": data.on_unknown_label,
        },
        keys="data.",
    )


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


def _without_rare(corpus: Corpus, data: DataConfig) -> Corpus:
    """Refuse labels with fewer than `data.min_examples` texts, or leave such texts out."""
    if data.labels == "number":
        return corpus
    labels = [(label,) for label in corpus["label"]] if data.labels == "one" else corpus["label"]
    counts = collections.Counter(itertools.chain(*labels))
    rare: dict[int, str] = {}
    for row, found in enumerate(labels):
        for label in found:
            if counts[label] < data.min_examples:
                rare.setdefault(row, label)
    if rare and data.on_rare_label == "error":
        row, label = next(iter(rare.items()))
        raise UserError(
            f"{corpus.place(row)}: label '{label}' has {counts[label]} example"
            f"{'s' if counts[label] > 1 else ''}, fewer than data.min_examples "
            f"{data.min_examples}; correct the file, lower data.min_examples, or set "
            "data.on_rare_label to skip."
        )
    if len(rare) == len(corpus):
        found = shown(dict(counts.most_common()))
        raise UserError(
            f"{corpus.name}: no label has {data.min_examples} examples. Received: {found}."
        )
    return corpus.without(dict.fromkeys(rare, "rare label"))
