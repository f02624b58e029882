"""Documents with summaries, at hand, in files or made by the package; their ids and batches."""

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_attention.paths import input_path

from ..base.preprocessor import Splits, pairs_of
from ..errors import UserError, check_choice, counted
from ..store.bad_lines import BadLine, checked
from ..store.files import json_object, lines_of
from ..text import END_ID, START_ID, BucketedBatches
from .config import SPLITS, DataConfig
from .preprocessor import (
    SummarizationPreprocessor,
    as_documents,
    as_summaries,
    padded_documents,
    split_sentences,
)


@dataclasses.dataclass(frozen=True)
class Document:
    """A document, its summaries, its line in the file, and how much training counts it."""

    sentences: list[str]
    summaries: list[str]
    line: int = 1
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Corpus(Splits):
    """Documents of one place, whose name messages use."""

    name: str
    documents: list[Document]
    empty: int = 0
    """How many were left out because they, or their summaries, have no words."""
    on_too_long: str = "truncate"
    """How documents that are too long are handled: truncate, skip or error."""
    columns, noun = ("documents",), "documents"


PAIRS = ("documents and summaries", "them", "A document or summary", "document with a summary")


def in_memory(x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
    """Return the corpus of the arguments of `fit`; refuse texts without words."""
    *columns, weights = pairs_of(x, y, sample_weight, (as_documents, as_summaries), PAIRS)
    count = len(columns[0])
    rows = map(Document, *columns, range(1, count + 1), weights or [1.0] * count)
    return Corpus("the documents given", list(rows))


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    return bool(data.dataset or getattr(data, split))


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
        examples = enumerate(make_reports(split), 1)
        documents = [Document(each.sentences, [each.summary], line) for line, each in examples]
        corpus = Corpus(f"reports ({split})", documents)
    elif path or data.dataset == "scitldr":
        corpus = read_corpus(path or input_path(data.folder) / f"{split}.jsonl.gz", data.on_empty)
    else:
        raise UserError(f"There is no {split} data: give data.{split}.")
    cuts = split != "train" and data.on_too_long == "skip"
    return dataclasses.replace(corpus, on_too_long="truncate" if cuts else data.on_too_long)


def read_corpus(path: Path | str, on_empty: str = "error") -> Corpus:
    """Return the documents of a file of JSON lines.

    Args:
        path: the file, plain or `.gz`.
        on_empty: `"error"` or `"skip"`, for a document or summaries without a word.

    Raises:
        UserError: naming the line, where it is no object of the right form.
    """

    def check(document):
        if document.sentences and document.summaries:
            return document
        if on_empty == "error":
            what = "source" if not document.sentences else "target"
            advice = "correct the file, or set data.on_empty to skip"
            raise BadLine(f"{path}, line {document.line}", f"the {what} has no words", advice)
        return None

    found = list(checked(documents_of(path), check))
    kept = [each for each in found if each is not None]
    if not kept:
        raise UserError(f"{path}: no document has any words.")
    return Corpus(str(path), kept, len(found) - len(kept))


def documents_of(path: Path | str, with_summaries: bool = True) -> Iterator[Document]:
    """Yield the documents of a file of JSON lines, one at a time."""

    def document(numbered):
        number, line = numbered
        return _document(line, f"{path}, line {number}", number, with_summaries)

    yield from checked(enumerate(lines_of(path), 1), document)


def _document(line: str, where: str, number: int, with_summaries: bool) -> Document:
    row = json_object(line, where)
    columns = {"source": [], "target": []}
    for name in ("source", "target") if with_summaries else ("source",):
        value = row.get(name)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            received = "nothing" if name not in row else json.dumps(value)[:40]
            problem = f"`{name}` must be a text or a list of texts. Received: {received}"
            raise BadLine(where, problem)
        if name == "source" and isinstance(value, str):
            texts = split_sentences(value)
        columns[name] = [text for text in texts if text.strip()]
    return Document(*columns.values(), number)


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids, an example for each summary of each document."""

    documents: list[list[list[int]]]
    """By sentence, as the network reads them."""
    inputs: list[list[int]]
    """Ids that the decoder reads, the start first."""
    labels: list[list[int]]
    """Ids that it has to write, the end last."""
    report: str
    weights: list[float] | None = None


def encode_corpus(corpus: Corpus, preprocessor: SummarizationPreprocessor) -> EncodedCorpus:
    """Return the ids of a corpus, one example for each summary of each document.

    Raises:
        UserError: where one is too long and the corpus makes that an error, or none is left.
    """
    limit = preprocessor.max_summary_words
    names = ("max_sentences", "max_words", "max_summary_words")
    limits = ", ".join(f"data.{name} {getattr(preprocessor, name)}" for name in names)
    documents, inputs, labels, weights = [], [], [], []
    cut = skipped = 0

    def encode(document):
        encoded = preprocessor.document(document.sentences)
        found = [(text, *preprocessor.summary(text, encoded)) for text in document.summaries]
        longest = max((len(written) for *_, written in found), default=0)
        if corpus.on_too_long == "error" and (encoded.is_cut or longest > limit):
            raise BadLine(
                f"{corpus.name}, line {document.line}",
                f"the document or its summary ({longest} words) is longer than is read ({limits})",
                "raise them, or set data.on_too_long to truncate or skip",
            )
        return document, encoded, found

    for document, encoded, found in checked(corpus.documents, encode):
        for _, read, written in found:
            is_long = encoded.is_cut or len(written) > limit
            # Some have nothing but marks that the tokenizer drops.
            if not encoded.ids or not written or (is_long and corpus.on_too_long == "skip"):
                skipped += 1
                continue
            cut += is_long
            documents.append(preprocessor.as_read(encoded.ids))
            inputs.append([START_ID, *read[:limit]])
            labels.append([*written[:limit], END_ID])
            weights.append(document.weight)
    if not inputs:
        raise UserError(f"{corpus.name}: no document is left ({limits}).")
    others = {"of them cut short": cut, "left out": skipped, "empty lines left out": corpus.empty}
    name = f"{corpus.name}: {len(inputs):,} summaries of {len(corpus):,} documents"
    weights = None if set(weights) == {1.0} else weights
    return EncodedCorpus(documents, inputs, labels, counted(name, others), weights)


def make_batches(corpus: EncodedCorpus, batch_size: int, **options: Any) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes, with weights if any.

    `source` `(B, N, W)` are the document's ids, by sentence; `target` and `labels` are `(B, T)`.
    More `options` are those of `BucketedBatches`.
    """
    documents = [[], *corpus.documents]  # the first is that of a row of padding
    counts = [[1] * len(document) for document in corpus.documents]
    widths = [[1] * max(map(len, document)) for document in corpus.documents]
    values = [np.arange(1, len(documents))]
    values += [] if corpus.weights is None else [np.array(corpus.weights, "float32")]

    def assemble(counts, widths, inputs, labels, rows, *weights):
        source = np.zeros((*counts.shape, widths.shape[1]), np.int32)
        found = padded_documents([documents[row] for row in rows])
        source[:, : found.shape[1], : found.shape[2]] = found
        return {"source": source, "target": inputs}, labels, *weights

    columns = (counts, widths, corpus.inputs, corpus.labels)
    options = {"number_of_buckets": 6, "values": values, "assemble": assemble, **options}
    return BucketedBatches(columns, batch_size, **options)


# ---- Reports: a data set that the package makes.

SIZES = {"train": 4_000, "dev": 200, "test": 200}
"""How many documents each split has."""

SYLLABLES = ("ba", "do", "fi", "ga", "he", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "ve")
THINGS = ("apples", "boats", "chairs", "drums", "lamps", "maps", "ropes", "tents")
PLACES = ("harbour", "market", "mill", "school", "station", "tower")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
QUIET = (
    "{name} of the {place} has {number} {thing} .",
    "{name} saw {number} {thing} near the {place} .",
    "the {place} sold {name} {number} {thing} .",
)
URGENT = (
    "urgent : {name} of the {place} needs {number} {thing} .",
    "urgent : at the {place} , {name} asks for {number} {thing} .",
)


class Report(NamedTuple):
    """A document, its summary, and the place of the sentence that each statement of it is from."""

    sentences: list[str]
    summary: str
    urgent: list[int]


def make_reports(split: str, ordered: bool = True) -> list[Report]:
    """Return the reports of a split, always the same.

    A report is a list of notes on people with invented names. Some of them are urgent, and the
    summary says, in their order, who needs how much of what: so the right sentences have to be
    chosen, names that no vocabulary holds have to be copied, and nothing may be said twice. Not
    `ordered`, there are more statements, in any order: which of them were made has to be
    remembered, place alone does not tell.
    """
    draw = random.Random(f"{split} 0")
    return [_report(draw, ordered) for _ in range(SIZES[split])]


def _report(draw: random.Random, ordered: bool) -> Report:
    count = draw.randint(3, 7) if ordered else draw.randint(5, 8)
    number = draw.randint(1, 3) if ordered else draw.randint(3, 5)
    urgent = sorted(draw.sample(range(count), number))
    sentences, facts = [], []
    for place in range(count):
        words = {
            "name": "".join(draw.choices(SYLLABLES, k=3)),
            "place": draw.choice(PLACES),
            "number": draw.choice(NUMBERS),
            "thing": draw.choice(THINGS),
        }
        forms = URGENT if place in urgent else QUIET
        sentences.append(draw.choice(forms).format(**words))
        if place in urgent:
            facts.append("{name} needs {number} {thing} .".format(**words))
    if not ordered:
        order = draw.sample(range(number), number)
        urgent, facts = [urgent[i] for i in order], [facts[i] for i in order]
    return Report(sentences, " ".join(facts), urgent)
