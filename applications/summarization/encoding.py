"""From documents and summaries to ids of the extended vocabulary, and to batches."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.summarization.config import DataConfig, SummarizationConfig
from keras_attention.applications.summarization.documents import Corpus
from keras_attention.text import END_ID, PAD_ID, START_ID, UNK_ID, BucketedBatches, WordTokenizer


@dataclasses.dataclass(frozen=True)
class EncodedDocument:
    """A document as words and ids.

    Args:
        words: the words of each sentence, as the tokenizer writes them.
        ids: their ids; the unknown words of the document are numbered from the vocabulary's size
            on, as far as there are numbers, and are the unknown id beyond.
        unknown: the unknown words in the order of their numbers.
        is_cut: whether words or sentences were cut off.
    """

    words: list[list[str]]
    ids: list[list[int]]
    unknown: list[str]
    is_cut: bool


class DocumentEncoder:
    """Makes ids of documents, and of summaries with the words of their document.

    Args:
        tokenizer: the tokenizer of documents and summaries.
        config: the whole configuration.
    """

    def __init__(self, tokenizer: WordTokenizer, config: SummarizationConfig):
        self.tokenizer = tokenizer
        self.data = config.data
        self.extra_words = config.tokenizer.extra_words if config.model.pointer else 0

    def document(self, sentences: Sequence[str]) -> EncodedDocument:
        """Return the ids of a document, cut to `data.max_sentences` and `data.max_words`."""
        words, room = [], self.data.max_words
        split = [self.tokenizer.tokens(sentence) for sentence in sentences]
        split = [sentence for sentence in split if sentence]
        for sentence in split[: self.data.max_sentences]:
            if room > 0:
                words.append(sentence[:room])
                room -= len(sentence)
        numbers: dict[str, int] = {}
        ids = [self._ids(sentence, numbers, grow=True) for sentence in words]
        is_cut = sum(map(len, words)) < sum(map(len, split))
        return EncodedDocument(words, ids, list(numbers), is_cut)

    def summary(self, text: str, document: EncodedDocument) -> tuple[list[int], list[int]]:
        """Return the ids of a summary: as the decoder reads them, and in the extended vocabulary.

        The decoder reads the unknown id where a word is unknown. As what it has to write, a word
        that the document holds has its number there.
        """
        size = self.tokenizer.vocabulary_size
        numbers = {word: size + place for place, word in enumerate(document.unknown)}
        written = self._ids(self.tokenizer.tokens(text), numbers, grow=False)
        return [UNK_ID if index >= size else index for index in written], written

    def word(self, index: int, document: EncodedDocument) -> str:
        """Return the word of an id in the extended vocabulary of a document."""
        size = self.tokenizer.vocabulary_size
        place = index - size
        if place < 0:
            return self._vocabulary[index]
        return document.unknown[place] if place < len(document.unknown) else self._unknown

    @property
    def _vocabulary(self) -> list[str]:
        if not hasattr(self, "_words"):
            self._words = self.tokenizer.vocabulary
        return self._words

    @property
    def _unknown(self) -> str:
        return self._vocabulary[UNK_ID]

    def _ids(self, words: Sequence[str], numbers: dict[str, int], grow: bool) -> list[int]:
        known = self._known
        ids = []
        for word in words:
            index = known.get(word)
            if index is None and grow and word not in numbers and len(numbers) < self.extra_words:
                numbers[word] = self.tokenizer.vocabulary_size + len(numbers)
            ids.append(numbers.get(word, UNK_ID) if index is None else index)
        return ids

    @property
    def _known(self) -> dict[str, int]:
        if not hasattr(self, "_index"):
            # The special tokens stay out: typed in a text, they are words like others.
            pairs = enumerate(self._vocabulary)
            self._index = {word: i for i, word in pairs if i not in _SPECIAL}
        return self._index


_SPECIAL = {PAD_ID, START_ID, END_ID, UNK_ID}


@dataclasses.dataclass(frozen=True)
class EncodedCorpus:
    """A corpus as ids.

    Args:
        documents: the ids of each document, by sentence.
        inputs: what the decoder reads for each, the start first.
        labels: what it has to write, the end last.
        report: how many there are and what became of the others, in words.
    """

    documents: list[list[list[int]]]
    inputs: list[list[int]]
    labels: list[list[int]]
    report: str


def encode_corpus(corpus: Corpus, encoder: DocumentEncoder, skip: bool = True) -> EncodedCorpus:
    """Return the ids of a corpus, one example for each summary of each document.

    Args:
        corpus: documents with summaries.
        encoder: makes the ids.
        skip: whether `data.on_too_long` skip is followed; else too long ones are cut.

    Raises:
        UserError: where one is too long and the configuration makes that an error, or none is left.
    """
    data, found = encoder.data, EncodedCorpus([], [], [], "")
    cut = skipped = 0
    for document in corpus.documents:
        encoded = encoder.document(document.sentences)
        for text in document.summaries:
            inputs, labels = encoder.summary(text, encoded)
            is_long = encoded.is_cut or len(labels) > data.max_summary_words
            if is_long and data.on_too_long == "error":
                raise UserError(_too_long(corpus.name, document, len(labels), data))
            if not encoded.ids or not labels:
                skipped += 1  # nothing but marks that the tokenizer drops
            elif is_long and skip and data.on_too_long == "skip":
                skipped += 1
            else:
                cut += is_long
                found.documents.append(encoded.ids)
                found.inputs.append([START_ID, *inputs[: data.max_summary_words]])
                found.labels.append([*labels[: data.max_summary_words], END_ID])
    if not found.inputs:
        raise UserError(
            f"{corpus.name}: no document is left (data.max_sentences {data.max_sentences}, "
            f"data.max_words {data.max_words}, data.max_summary_words {data.max_summary_words})."
        )
    return dataclasses.replace(found, report=_report(corpus, len(found.inputs), cut, skipped))


def _too_long(name: str, document, words: int, data: DataConfig) -> str:
    return (
        f"{name}, line {document.line}: longer than data.max_sentences {data.max_sentences} or "
        f"data.max_words {data.max_words}, or its summary ({words} words) than "
        f"data.max_summary_words {data.max_summary_words}; raise them, or set data.on_too_long to "
        "truncate or skip."
    )


def _report(corpus: Corpus, count: int, cut: int, skipped: int) -> str:
    parts = [f"{corpus.name}: {count:,} summaries of {len(corpus):,} documents"]
    parts += [f"{cut:,} of them cut short"] if cut else []
    parts += [f"{skipped:,} left out"] if skipped else []
    parts += [f"{corpus.empty:,} empty lines left out"] if corpus.empty else []
    return ", ".join(parts)


def make_batches(
    corpus: EncodedCorpus,
    batch_size: int,
    hierarchical: bool,
    seed: int = 0,
    shuffle: bool = True,
    lengths: Sequence[tuple[int, ...]] | None = None,
) -> BucketedBatches:
    """Return batches `({"source", "target", "labels"}, labels)` of a few fixed shapes.

    `source` (B, N, W) are the document's ids, by sentence; with a flat model all words are one
    sentence. `target` and `labels` are (B, T). All are int32 and padded with 0.

    Args:
        corpus: ids.
        batch_size: documents of a batch.
        hierarchical: whether the model reads sentences.
        seed: the seed of the order.
        shuffle: draw a new order in each epoch.
        lengths: the shapes of the training batches; one more comes in where none holds all.
    """
    documents = [as_read(document, hierarchical) for document in corpus.documents]
    counts = [[1] * len(document) for document in documents]
    widths = [[1] * max(map(len, document)) for document in documents]
    rows = [[row + 1] for row in range(len(documents))]
    columns = (counts, widths, corpus.inputs, corpus.labels, rows)
    if lengths is not None:
        longest = tuple(max(map(len, column)) for column in columns)
        lengths = [*lengths, tuple(map(max, longest, *lengths))]
        lengths = list(dict.fromkeys(lengths))

    def assemble(counts, widths, inputs, labels, rows):
        source = np.zeros((*counts.shape, widths.shape[1]), np.int32)
        for place, row in enumerate(rows[:, 0]):
            if row:
                write_document(source[place], documents[row - 1])
        return {"source": source, "target": inputs, "labels": labels}, labels

    return BucketedBatches(
        columns,
        batch_size=batch_size,
        lengths=lengths,
        number_of_buckets=6,
        seed=seed,
        shuffle=shuffle,
        assemble=assemble,
    )


def as_read(document: list[list[int]], hierarchical: bool) -> list[list[int]]:
    """Return the sentences that a model reads: a flat one reads all words as one."""
    return document if hierarchical else [[index for sentence in document for index in sentence]]


def write_document(matrix: np.ndarray, document: list[list[int]]) -> None:
    """Write ids into a matrix `(N, W)` of padding."""
    for place, sentence in enumerate(document):
        matrix[place, : len(sentence)] = sentence


def padded_shape(document: list[list[int]]) -> tuple[int, int]:
    """Return the sentences of a document, and the words of its longest; each at least 1."""
    return max(1, len(document)), max([1, *map(len, document)])


def padded_documents(documents: Sequence[list[list[int]]]) -> np.ndarray:
    """Return ids `(B, N, W)`, padded; at least one sentence and one word."""
    count, width = map(max, zip((1, 1), *map(padded_shape, documents), strict=True))
    matrix = np.full((len(documents), count, width), PAD_ID, np.int32)
    for place, document in enumerate(documents):
        write_document(matrix[place], document)
    return matrix
