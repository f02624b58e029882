"""From examples to ids, targets and batches."""

import collections
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_attention.applications.classification.config import DataConfig
from keras_attention.applications.classification.examples import Example, Examples, Report
from keras_attention.applications.classification.labels import Labels
from keras_attention.applications.classification.reading import Reader, in_sentences, length_of
from keras_attention.applications.common.errors import UserError
from keras_attention.text import BucketedBatches

INPUTS = ("text", "second")


@dataclass(frozen=True)
class Encoded:
    """Examples as ids and targets.

    Args:
        columns: the ids of each text; two columns for pairs.
        targets: `(examples, outputs)`.
        items: the examples.
        report: how many, and what was left out.
    """

    columns: tuple[list[list[int]], ...]
    targets: np.ndarray
    items: Sequence[Example]
    report: Report


def encode_examples(
    examples: Examples, reader: Reader, labels: Labels, data: DataConfig
) -> Encoded:
    """Return the ids and targets of examples.

    Raises:
        UserError: naming file and line, where a text is too long or has no tokens, or a label is
            unknown, and the configuration makes that an error; or where nothing is left.
    """
    counts = collections.Counter(examples.report.left_out)
    targets = labels.targets(examples.items)
    kept, rows, truncated = [], [], 0
    for index, item in enumerate(examples.items):
        if np.isnan(targets[index]).any():
            _refuse_label(item, labels, data)
            counts["unknown label"] += 1
            continue
        ids = [reader.ids(text) for text in item.texts]
        if not all(ids):
            _refuse_empty(item, data)
            counts["empty"] += 1
            continue
        longest = max(map(length_of, ids))
        if longest > data.max_length:
            _refuse_length(item, longest, data)
            if data.on_too_long == "skip":
                counts["too long"] += 1
                continue
            ids = [reader.ids(text, data.max_length) for text in item.texts]
            truncated += 1
        kept.append(index)
        rows.append(ids)
    report = Report(examples.report.name, len(kept), dict(counts), truncated)
    if not kept:
        raise UserError(f"{report}: no example is left.")
    columns = tuple(map(list, zip(*rows, strict=True)))
    return Encoded(columns, targets[kept], [examples.items[i] for i in kept], report)


def make_batches(
    columns: Sequence[Sequence[Sequence[int]]],
    batch_size: int,
    targets: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    sentences: bool = False,
    seed: int = 0,
    shuffle: bool = True,
    number_of_buckets: int = 8,
) -> BucketedBatches:
    """Return batches `(inputs, targets, weights)` of texts of like length.

    `inputs` are `text`, and for pairs `second`: ids `(B, S)`, or in sentences `(B, N, W)`, padded
    with 0. Rows that fill up a batch have weight 0.

    Args:
        columns: the ids of each text, flat; two columns for pairs.
        batch_size: examples of a batch.
        targets: `(examples, outputs)`; None for zeros.
        weights: of each example; None for ones.
        sentences: whether the ids are cut into sentences.
        seed: the seed of the order.
        shuffle: draw a new order in each epoch.
        number_of_buckets: how many lengths to pad to.
    """
    count = len(columns[0])
    targets = np.zeros((count, 1), "float32") if targets is None else targets
    weights = np.ones(count, "float32") if weights is None else weights
    # Row 0 is what a row that fills up a batch has.
    targets = np.concatenate([np.zeros_like(targets[:1]), targets])
    weights = np.concatenate([[0.0], weights]).astype("float32")

    def assemble(*arrays):
        *texts, index = arrays
        texts = [in_sentences(ids) for ids in texts] if sentences else texts
        inputs = dict(zip(INPUTS, texts, strict=False))
        return inputs, targets[index[:, 0]], weights[index[:, 0]]

    return BucketedBatches(
        (*columns, [[number] for number in range(1, count + 1)]),
        batch_size=batch_size,
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


def _refuse_label(item: Example, labels: Labels, data: DataConfig) -> None:
    if data.on_unknown_label == "error":
        raise UserError(
            f"{item.place}: the training data have no label '{labels.unknown(item)}'. Known: "
            f"{', '.join(labels.names)}; correct the file, or skip such texts: "
            "data.on_unknown_label, or evaluate --skip."
        )


def _refuse_empty(item: Example, data: DataConfig) -> None:
    if data.on_empty == "error":
        raise UserError(
            f"{item.place}: there are no words in the text; correct the file, or skip such texts: "
            "data.on_empty, or evaluate --skip."
        )


def _refuse_length(item: Example, length: int, data: DataConfig) -> None:
    if data.on_too_long == "error":
        raise UserError(
            f"{item.place}: {length:,} tokens, more than data.max_length {data.max_length}; raise "
            "it, or skip or truncate such texts: data.on_too_long, or evaluate --skip."
        )
