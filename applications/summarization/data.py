"""From the `data` section of a configuration to documents with summaries, ids and batches."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import json_value, read_lines
from keras_attention.applications.summarization import reports
from keras_attention.applications.summarization.config import SPLITS, DataConfig
from keras_attention.applications.summarization.preprocessor import (
    SummarizationPreprocessor,
    split_sentences,
    write_document,
)
from keras_attention.text import END_ID, START_ID, BucketedBatches


@dataclasses.dataclass(frozen=True)
class Document:
    """A document and its summaries.

    Args:
        sentences: its sentences, as text.
        summaries: one or several; none where there is only something to summarise.
        line: its line in the file, from 1.
    """

    sentences: list[str]
    summaries: list[str]
    line: int = 1


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents of one place.

    Args:
        name: where they come from, for messages.
        documents: the documents.
        empty: how many were left out because they, or their summaries, have no words.
        on_too_long: what to do with longer ones than are read: truncate, skip or error.
        weights: a weight for each document, or None.
    """

    name: str
    documents: list[Document]
    empty: int = 0
    on_too_long: str = "truncate"
    weights: Sequence[float] | None = None

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def report(self) -> str:
        """How many documents there are, and what became of the others, in words."""
        left_out = f", {self.empty:,} empty lines left out" if self.empty else ""
        return f"{self.name}: {len(self):,} documents{left_out}"

    def split(self, fraction: float) -> tuple["Corpus", "Corpus"]:
        """Return the first documents, and the last ones, which are `fraction` of all."""
        first = len(self) - max(1, round(fraction * len(self)))
        if first < 1:
            raise ValueError(
                f"Too few documents to hold {fraction:g} of them out. Received: {len(self)}"
            )
        return self._part(slice(None, first)), self._part(slice(first, None))

    def _part(self, rows: slice) -> "Corpus":
        weights = None if self.weights is None else self.weights[rows]
        return dataclasses.replace(self, documents=self.documents[rows], weights=weights)


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    return bool(data.dataset or getattr(data, f"{split}_file"))


def check_splits(data: DataConfig) -> None:
    """Refuse a configuration that names no training data or no development set."""
    for split, what in (("train", "training data"), ("dev", "development set")):
        if not has_split(data, split):
            raise UserError(f"name the {what}: --data.{split}_file F, or --data.dataset reports.")


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
    if split not in SPLITS:
        raise UserError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
    path = getattr(data, f"{split}_file")
    if not path and data.dataset == "reports":
        examples = enumerate(reports.generate(split), 1)
        documents = [Document(each.sentences, [each.summary], line) for line, each in examples]
        corpus = Corpus(f"reports ({split})", documents)
    elif path or data.dataset == "scitldr":
        corpus = read_corpus(path or Path(data.folder) / f"{split}.jsonl.gz", data.on_empty)
    else:
        raise UserError(f"There is no {split} data: give data.{split}_file.")
    cuts = split != "train" and data.on_too_long == "skip"
    return dataclasses.replace(corpus, on_too_long="truncate" if cuts else data.on_too_long)


def in_memory(
    documents: list[list[str]], summaries: list[list[str]], weights: Sequence[float] | None = None
) -> Corpus:
    """Return the corpus of documents at hand; an empty one, or one without summary, is refused."""
    columns = {"x": documents, "y": summaries}
    for name, column in columns.items():
        for place, texts in enumerate(column):
            if not texts:
                raise ValueError(
                    "A document to train with should have words, and so should its summary. "
                    f"Received: {name}[{place}] without any"
                )
    if not documents:
        raise ValueError("Training needs at least one document with a summary. Received: none")
    rows = enumerate(zip(documents, summaries, strict=True), 1)
    found = [Document(sentences, texts, line) for line, (sentences, texts) in rows]
    return Corpus("the documents given", found, weights=weights)


def read_corpus(path: Path | str, on_empty: str = "error", with_summaries: bool = True) -> Corpus:
    """Return the documents of a file of JSON lines.

    Args:
        path: the file, plain or `.gz`.
        on_empty: `"error"` or `"skip"`: what to do without a word in a document or its summaries.
        with_summaries: whether each line must have a `target`.

    Raises:
        UserError: naming the line, where it is no object of the right form.
    """
    kept, empty = [], 0
    for number, line in enumerate(read_lines(path), 1):
        document = _document(line, f"{path}, line {number}", number, with_summaries)
        if document.sentences and (document.summaries or not with_summaries):
            kept.append(document)
        elif on_empty == "error":
            what = "source" if not document.sentences else "target"
            raise UserError(
                f"{path}, line {number}: the {what} has no words; correct the file, or set "
                "data.on_empty to skip."
            )
        else:
            empty += 1
    if not kept:
        raise UserError(f"{path}: no document has any words.")
    return Corpus(str(path), kept, empty)


def _document(line: str, where: str, number: int, with_summaries: bool) -> Document:
    row = json_value(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object. Received: {type(row).__name__}.")
    names = ("source", "target") if with_summaries else ("source",)
    for name in names:
        value = row.get(name)
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_list and not isinstance(value, str):
            received = "nothing" if name not in row else json.dumps(value)[:40]
            raise UserError(
                f"{where}: `{name}` must be a text or a list of texts. Received: {received}."
            )
    source, target = row["source"], row["target"] if with_summaries else []
    sentences = split_sentences(source) if isinstance(source, str) else source
    summaries = [target] if isinstance(target, str) else target
    return Document(_with_words(sentences), _with_words(summaries), number)


def _with_words(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if text.strip()]


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids, an example for each summary of each document.

    Args:
        documents: the ids of each document, by sentence as the network reads them.
        inputs: ids that the decoder reads for each, the start first.
        labels: ids that it has to write, the end last.
        report: how many there are and what became of the others, in words.
        weights: a weight for each, or None.
    """

    documents: list[list[list[int]]]
    inputs: list[list[int]]
    labels: list[list[int]]
    report: str
    weights: list[float] | None = None


def encode_corpus(corpus: Corpus, preprocessor: SummarizationPreprocessor) -> EncodedCorpus:
    """Return the ids of a corpus, one example for each summary of each document.

    Raises:
        UserError: where one is too long and the corpus makes that an error, or none is left.
    """
    limit = preprocessor.max_summary_words
    documents, inputs, labels, weights = [], [], [], []
    cut = skipped = 0
    for place, document in enumerate(corpus.documents):
        encoded = preprocessor.document(document.sentences)
        for text in document.summaries:
            read, written = preprocessor.summary(text, encoded)
            is_long = encoded.is_cut or len(written) > limit
            if is_long and corpus.on_too_long == "error":
                raise UserError(_too_long(corpus.name, document, len(written), preprocessor))
            # Some have nothing but marks that the tokenizer drops.
            if not encoded.ids or not written or (is_long and corpus.on_too_long == "skip"):
                skipped += 1
                continue
            cut += is_long
            documents.append(preprocessor.as_read(encoded.ids))
            inputs.append([START_ID, *read[:limit]])
            labels.append([*written[:limit], END_ID])
            if corpus.weights is not None:
                weights.append(float(corpus.weights[place]))
    if not inputs:
        raise UserError(f"{corpus.name}: no document is left ({_limits(preprocessor)}).")
    report = _report(corpus, len(inputs), cut, skipped)
    return EncodedCorpus(documents, inputs, labels, report, weights or None)


def make_batches(
    corpus: EncodedCorpus,
    batch_size: int,
    seed: int = 0,
    shuffle: bool = True,
    lengths: Sequence[tuple[int, ...]] | None = None,
) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes.

    `source` (B, N, W) are the document's ids, by sentence; `target` and `labels` are (B, T). All
    are int32 and padded with 0. With weights, a batch has them as a third part.

    Args:
        corpus: ids.
        batch_size: documents of a batch.
        seed: the seed of the order.
        shuffle: draw a new order in each epoch.
        lengths: the shapes of the training batches; one more comes in where none holds all.
    """
    documents = corpus.documents
    counts = [[1] * len(document) for document in documents]
    widths = [[1] * max(map(len, document)) for document in documents]
    rows = [[row + 1] for row in range(len(documents))]  # 0 is a row of padding
    columns = (counts, widths, corpus.inputs, corpus.labels, rows)
    if lengths is not None:
        longest = tuple(max(map(len, column)) for column in columns)
        lengths = [*lengths, tuple(map(max, longest, *lengths))]
        lengths = list(dict.fromkeys(lengths))
    weights = None if corpus.weights is None else np.array([0.0, *corpus.weights], "float32")

    def assemble(counts, widths, inputs, labels, rows):
        source = np.zeros((*counts.shape, widths.shape[1]), np.int32)
        for place, row in enumerate(rows[:, 0]):
            if row:
                write_document(source[place], documents[row - 1])
        batch = {"source": source, "target": inputs}, labels
        return batch if weights is None else (*batch, weights[rows[:, 0]])

    return BucketedBatches(
        columns,
        batch_size=batch_size,
        lengths=lengths,
        number_of_buckets=6,
        seed=seed,
        shuffle=shuffle,
        assemble=assemble,
    )


def _limits(preprocessor: SummarizationPreprocessor) -> str:
    names = ("max_sentences", "max_words", "max_summary_words")
    return ", ".join(f"data.{name} {getattr(preprocessor, name)}" for name in names)


def _too_long(name: str, document: Document, words: int, preprocessor) -> str:
    return (
        f"{name}, line {document.line}: the document or its summary ({words} words) is longer than "
        f"is read ({_limits(preprocessor)}); raise them, or set data.on_too_long to truncate or "
        "skip."
    )


def _report(corpus: Corpus, count: int, cut: int, skipped: int) -> str:
    parts = [f"{corpus.name}: {count:,} summaries of {len(corpus):,} documents"]
    parts += [f"{cut:,} of them cut short"] if cut else []
    parts += [f"{skipped:,} left out"] if skipped else []
    parts += [f"{corpus.empty:,} empty lines left out"] if corpus.empty else []
    return ", ".join(parts)
