"""Documents with summaries, at hand, in files or made by the package; their ids and batches.

A corpus has the columns `source`, the sentences of each document, and `target`, its summaries.
"""

import collections
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.paths import input_path

from ..base.preprocessor import pairs_of
from ..data.corpus import Corpus, Report, compact, corpus_at_hand
from ..data.encoded import Encoded
from ..data.made import reports
from ..data.readers import Row, rows_of
from ..errors import UserError, check_choice
from ..schema.keys import SPLITS
from ..store.bad_lines import BadLine, Line, checked
from ..text import END_ID, BucketedBatches, PackedIds
from ..text.packed import in_sentences, join_sentences, read_and_written
from .config import DataConfig
from .preprocessor import SummarizationPreprocessor, as_documents, as_summaries, split_sentences

PAIRS = ("documents and summaries", "them", "A document or summary", "document with a summary")


def in_memory(x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
    """Return the corpus of the arguments of `fit`; refuse texts without words."""
    readers = (as_documents, as_summaries)
    source, target, weights = pairs_of(x, y, sample_weight, readers, PAIRS)
    columns = {"source": source, "target": target}
    corpus = corpus_at_hand(columns, weights, "the documents given", "documents", "x")
    return corpus.handled(too_long="truncate")


def load_corpus(data: DataConfig, split: str) -> Corpus:
    """Return the documents of a split.

    A file that the configuration names for the split goes before that of a known data set. Only
    training data are skipped where `data.on_too_long` says skip; others are cut.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its file is missing or not in its form.
    """
    check_choice("`split`", split, SPLITS)
    path = getattr(data, split)
    if not path and data.dataset == "reports":
        corpus = _corpus(
            [
                (f"reports ({split}), report {number}", each.sentences, [each.summary])
                for number, each in enumerate(reports.generate(split), 1)
            ],
            f"reports ({split})",
        )
    elif path or data.dataset == "scitldr":
        corpus = read_corpus(path or input_path(data.folder) / f"{split}.jsonl.gz", data.on_empty)
    else:
        raise UserError(f"There is no {split} data: give data.{split}.")
    cuts = split != "train" and data.on_too_long == "skip"
    return corpus.handled(too_long="truncate" if cuts else data.on_too_long)


def read_corpus(path: Path | str, on_empty: str = "error") -> Corpus:
    """Return the documents of a file of JSON lines.

    Args:
        path: the file, plain or `.gz`.
        on_empty: `"error"` or `"skip"`, for a document or summaries without a word.

    Raises:
        UserError: naming the line, where it is no object of the right form.
    """

    def check(document):
        place, source, target = document
        if source and target:
            return document
        if on_empty == "error":
            what = "source" if not source else "target"
            advice = "correct the file, or set data.on_empty to skip"
            raise BadLine(place, f"the {what} has no words", advice)
        return None

    found = list(checked(documents_of(path), check))
    kept = [each for each in found if each is not None]
    if not kept:
        raise UserError(f"{path}: no document has any words.")
    return _corpus(kept, str(path), len(found) - len(kept))


Document = tuple[Line | str, list[str], list[str]]
"""The place of a document, its sentences and its summaries."""


def _corpus(documents: Iterable[Document], name: str, empty: int = 0) -> Corpus:
    places, source, target = map(list, zip(*documents, strict=True))
    report = Report(name, len(places), "documents", {"empty": empty})
    handling = {"too long": "truncate"}
    columns = {"source": source, "target": target}
    return Corpus(columns, report, compact(places), handling=handling, keys="data.")


def documents_of(path: Path | str, with_summaries: bool = True) -> Iterator[Document]:
    """Yield the documents of a file of JSON lines, one at a time."""

    def texts(row: Row, name: str) -> list[str]:
        value = row.values.get(name)
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            received = "nothing" if name not in row.values else json.dumps(value)[:40]
            problem = f"`{name}` must be a text or a list of texts. Received: {received}"
            raise BadLine(row.place, problem)
        if name == "source" and isinstance(value, str):
            found = split_sentences(value)
        return [text for text in found if text.strip()]

    def document(row: Row) -> Document:
        return row.place, texts(row, "source"), texts(row, "target") if with_summaries else []

    yield from checked(rows_of(path, kind=".jsonl"), document)


def encode(corpus: Corpus, preprocessor: SummarizationPreprocessor) -> Encoded:
    """Return the ids of a corpus, one example for each summary of each document.

    They are `source`, with a mark between sentences; `target`, as the decoder reads them; and
    `labels`, as it has to write them; both without start and end.

    Raises:
        UserError: where one is too long and the corpus makes that an error, or none is left.
    """
    limit, on_too_long = preprocessor.max_summary_words, corpus.handling.get("too long", "truncate")
    names = ("max_sentences", "max_words", "max_summary_words")
    limits = ", ".join(f"{corpus.keys}{name} {getattr(preprocessor, name)}" for name in names)
    ids: dict[str, list[list[int]]] = {"source": [], "target": [], "labels": []}
    rows, left_out, cut = [], collections.Counter(), 0

    def read(row: int) -> tuple[int, Any, list[tuple[list[int], list[int]]]]:
        document = preprocessor.document(corpus["source"][row])
        found = [preprocessor.summary(text, document) for text in corpus["target"][row]]
        longest = max((len(written) for _, written in found), default=0)
        if on_too_long == "error" and (document.is_cut or longest > limit):
            raise BadLine(
                corpus.place(row),
                f"the document or its summary ({longest} words) is longer than is read ({limits})",
                "raise them, or set data.on_too_long to truncate or skip",
            )
        return row, document, found

    for row, document, found in checked(range(len(corpus)), read):
        for target, labels in found:
            is_long = document.is_cut or len(labels) > limit
            if not document.ids or not labels:  # there are marks only, which the tokenizer drops
                left_out["empty"] += 1
                continue
            if is_long and on_too_long == "skip":
                left_out["too long"] += 1
                continue
            cut += is_long
            rows.append(row)
            ids["source"].append(join_sentences(preprocessor.as_read(document.ids)))
            ids["target"].append(target[:limit])
            ids["labels"].append(labels[:limit])
    if not rows:
        raise UserError(f"{corpus.name}: no document is left ({limits}).")
    report = corpus.report.without(
        left_out,
        count=len(rows),
        noun="summaries",
        cut=cut,
        notes=(f"They are of {len(set(rows)):,} documents.",),
    )
    weights = None if corpus.weights is None else np.array(corpus.weights, "float32")[rows]
    packed = {name: PackedIds(column) for name, column in ids.items()}
    return Encoded(packed, report, weights=weights, rows=np.array(rows))


def make_batches(encoded: Encoded, batch_size: int, **options: Any) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes, with weights if any.

    `source` `(B, N, W)` are the document's ids, by sentence; `target` and `labels` are `(B, T)`.
    More `options` are those of `BucketedBatches`.
    """
    documents = encoded["source"]
    marked = [np.flatnonzero(np.array([*ids, END_ID]) == END_ID) for ids in documents]
    counts = [[1] * len(marks) for marks in marked]
    widths = [[1] * int(np.diff(marks, prepend=-1).max() - 1) for marks in marked]
    values = [np.arange(1, len(documents) + 1)]  # 0 is a row of padding
    values += [] if encoded.weights is None else [encoded.weights]

    def assemble(counts, widths, target, labels, numbers, *weights):
        found = in_sentences(
            documents.padded(numbers - 1, int(documents.lengths[numbers - 1].max()))
        )
        source = np.zeros((*counts.shape, widths.shape[1]), np.int32)
        source[:, : found.shape[1], : found.shape[2]] = found
        return {"source": source, "target": target}, labels, *weights

    columns = (counts, widths, *read_and_written(encoded["target"], encoded["labels"]))
    options = {"number_of_buckets": 6, "values": values, "assemble": assemble, **options}
    return BucketedBatches(columns, batch_size, **options)
