"""From documents and summaries to the ids that a summarisation network reads, and back."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import keras
import numpy as np

from ..base.preprocessor import TextPreprocessor, as_column, check_equally_many, is_tensor
from ..data.lengths import OnTooLong, TooLong
from ..errors import check_choice, check_counts, check_unicode, shown
from ..text import END_ID, PAD_ID, START_ID, UNK_ID, PackedIds, WordTokenizer, nfc
from ..text import split_sentences as sentences_of
from ..text.packed import in_sentences, join_sentences, read_and_written


@dataclasses.dataclass(frozen=True)
class EncodedDocument:
    """The words of a document's sentences, as the tokenizer writes them, and their ids."""

    words: list[list[str]]
    ids: list[list[int]]
    """Unknown words are numbered from the vocabulary's size on, as far as there are numbers."""
    unknown: list[str]
    """The unknown words in the order of their numbers."""
    is_cut: bool
    """Whether words or sentences were cut off."""
    size: str = ""
    """How long the document was, in words."""


@keras.saving.register_keras_serializable("keras_attention.summarization")
class SummarizationPreprocessor(TextPreprocessor):
    """Turns documents and summaries into ids, in Python and inside a TensorFlow graph.

    The unknown words of each document have ids past the vocabulary, so that a network with a
    pointer can copy them. The decoder reads a word that it has copied as the unknown word.

    Args:
        tokenizer: of documents and summaries.
        extra_words: how many unknown words of a document have ids; 0 for a network without pointer.
        by_sentence: whether the network reads sentences; else all words of a document are one.
        max_sentences: the most sentences that are read of a document.
        max_words: the most words that are read of a document, whole sentences or not.
        max_summary_words: the longest summary to train with.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: Documents `(B,)`: texts, or lists of sentences; or a pair `(documents, summaries)`. In a
            graph texts with a sentence on each line, as nothing there finds the sentences of a
            running text.
        y: Summaries `(B,)`.
        sample_weight: Weights `(B,)`.

    Returns:
        `({"source": (B, N, W), "target": (B, T)}, labels (B, T))`, and the weights where given;
        of a pair without `y` the inputs alone; of documents alone `{"source": (B, N, W)}`.

    Example:

    ```python
    from keras_attention.applications.summarization import SummarizationPreprocessor

    preprocessor = SummarizationPreprocessor.adapt(["a dog runs ."], ["a dog"], min_count=2)
    inputs, labels = preprocessor(["a dog runs ."], y=["a dog runs"])
    first = preprocessor.vocabulary_size  # the number of the first unknown word of a document
    assert inputs["source"].tolist() == [[[4, 5, first, first + 1]]]
    assert labels.tolist() == [[4, 5, first, 3]]
    ```
    """

    def __init__(
        self,
        tokenizer: WordTokenizer,
        extra_words: int = 100,
        by_sentence: bool = False,
        max_sentences: int = 100,
        max_words: int = 400,
        max_summary_words: int = 100,
        **kwargs: Any,
    ):
        super().__init__({"tokenizer": tokenizer}, **kwargs)
        sizes = {"max_sentences": max_sentences, "max_words": max_words}
        sizes |= {"max_summary_words": max_summary_words}
        check_counts(**sizes)
        check_counts(0, extra_words=extra_words)
        self.keep(extra_words=extra_words, by_sentence=by_sentence, **sizes)
        self._vocabulary = tokenizer.vocabulary
        # The special tokens stay out: typed in a text, they are words like others.
        self._known = {word: i for i, word in enumerate(self._vocabulary) if i > END_ID}

    @classmethod
    def adapt(
        cls,
        documents: Sequence[str | Sequence[str]],
        summaries: Sequence[str | Sequence[str]],
        *,
        vocabulary_size: int = 20_000,
        lowercase: bool = True,
        min_count: int = 1,
        **options: Any,
    ) -> "SummarizationPreprocessor":
        """Return a preprocessor whose vocabulary comes from the documents and summaries given.

        Args:
            documents: texts, or lists of sentences.
            summaries: a summary of each, or a list of several.
            vocabulary_size: most words of the vocabulary, the four special ones included.
            lowercase: make the text lower case first.
            min_count: words that occur less often are unknown.
            **options: of the class, such as `extra_words` and `max_words`.

        Raises:
            ValueError: where there are no texts, or not as many of both, something is no string, or
                an option is wrong.
        """
        documents = as_documents(documents, "documents")
        summaries = as_summaries(summaries, "summaries")
        check_equally_many(documents=documents, summaries=summaries)
        lines = [line for texts in (*documents, *summaries) for line in texts]
        tokenizer = WordTokenizer.train(lines, vocabulary_size, min_count, lowercase)
        return cls(tokenizer, **options)

    @property
    def vocabulary_size(self) -> int:
        """How many words are known, padding included; unknown ones are numbered from here on."""
        return len(self._vocabulary)

    def entries(self):
        return {"vocabulary_size": self._vocabulary}

    def document(self, sentences: Sequence[str]) -> EncodedDocument:
        """Return the ids of a document, cut to `max_sentences` and `max_words`."""
        words, room = [], self.max_words
        split = [self.tokenizer.tokens(sentence) for sentence in sentences]
        split = [sentence for sentence in split if sentence]
        for sentence in split[: self.max_sentences]:
            if room > 0:
                words.append(sentence[:room])
                room -= len(sentence)
        new = (word for sentence in words for word in sentence if word not in self._known)
        unknown = list(dict.fromkeys(new))[: self.extra_words]
        ids = [self._ids(sentence, unknown) for sentence in words]
        count = sum(map(len, split))
        size = f"{count:,} words in {len(split):,} sentences"
        return EncodedDocument(words, ids, unknown, sum(map(len, words)) < count, size)

    def rows_too_long(self, documents: Sequence[EncodedDocument], on_too_long: str) -> list[int]:
        """Return the rows of documents that were cut; where that is an error, raise a `TooLong`."""
        check_choice("`on_too_long`", on_too_long, get_args(OnTooLong))
        found = {row: each.size for row, each in enumerate(documents) if each.is_cut}
        if found and on_too_long == "error":
            limit = f"{self.max_words:,} words (max_words) in {self.max_sentences:,} sentences"
            raise TooLong(found, f"{limit} (max_sentences)", "documents")
        return list(found)

    def summary(self, text: str, document: EncodedDocument) -> tuple[list[int], list[int]]:
        """Return the ids of a summary: as the decoder reads them, and in the extended vocabulary.

        The decoder reads the unknown id where a word is unknown. The ids that it has to write give
        such a word its number in the document, where the document holds it.
        """
        written = self._ids(self.tokenizer.tokens(text), document.unknown)
        return [UNK_ID if index >= self.vocabulary_size else index for index in written], written

    def word(self, index: int, document: EncodedDocument) -> str:
        """Return the word of an id in the extended vocabulary of a document."""
        place = index - self.vocabulary_size
        if place >= len(document.unknown):
            return self._vocabulary[UNK_ID]
        return self._vocabulary[index] if place < 0 else document.unknown[place]

    def as_read(self, ids: list[list[int]]) -> list[list[int]]:
        """Return the sentences that the network reads: all words as one, or each by itself."""
        return ids if self.by_sentence else [[index for sentence in ids for index in sentence]]

    def source(self, documents: Sequence[EncodedDocument]) -> np.ndarray:
        """Return the ids of documents as the network reads them, `(B, N, W)`."""
        flat = PackedIds(join_sentences(self.as_read(each.ids)) for each in documents)
        return in_sentences(flat.matrix())

    def _ids(self, words: Sequence[str], unknown: Sequence[str]) -> list[int]:
        numbers = {word: place for place, word in enumerate(unknown, self.vocabulary_size)}
        return [self._known.get(word, numbers.get(word, UNK_ID)) for word in words]

    def call(self, x, y=None, sample_weight=None):
        summaries = y
        if isinstance(x, tuple) and len(x) == 2:
            x, summaries = x
        elif isinstance(x, dict):
            x, summaries = x["source"], x.get("target", y)
        encode = self.ids_in_graph if is_tensor(x) else self._arrays
        source, target, labels, *_ = encode(x, summaries)
        inputs = {"source": source} if summaries is None else {"source": source, "target": target}
        if y is None:
            return inputs
        return keras.utils.pack_x_y_sample_weight(inputs, labels, sample_weight)

    def _arrays(self, documents, summaries):
        """Return `source`, `target` and `labels` of texts or lists, as NumPy arrays."""
        documents = [documents] if isinstance(documents, str) else documents
        encoded = [self.document(each) for each in as_documents(documents, "x")]
        source = self.source(encoded)
        if summaries is None:
            return source, None, None
        texts = as_summaries([summaries] if isinstance(summaries, str) else summaries, "y")
        check_equally_many(x=encoded, y=texts)
        limit = self.max_summary_words
        pairs = [
            self.summary(text[0] if text else "", document)
            for text, document in zip(texts, encoded, strict=True)
        ]
        read, written = (PackedIds(side).cut(limit) for side in zip(*pairs, strict=True))
        target, labels = read_and_written(read, written)
        return source, target.matrix(), labels.matrix()

    def ids_in_graph(self, documents, summaries=None):
        """Return `source`, `target`, `labels` and the documents' unknown words, as tensors.

        Of strings `(B,)`, documents with a sentence on each line, there are ids `(B, N, W)`, of
        summaries `(B, T)` twice, else None; and strings `(B, extra_words)`.
        """
        import tensorflow as tf

        tokenizer = self.in_graph("tokenizer")

        def document(text):
            lines = tf.strings.split(text, "\n")
            words = tokenizer.tokens(lines)
            ids = tokenizer.encode(lines)
            kept = words.row_lengths() > 0
            words = tf.ragged.boolean_mask(words, kept)[: self.max_sentences]
            ids = tf.ragged.boolean_mask(ids, kept)[: self.max_sentences]
            rows = words.value_rowids()[: self.max_words]
            words, ids = words.values[: self.max_words], ids.values[: self.max_words]
            places = tf.where(ids == UNK_ID)
            unknown, numbers = tf.unique(tf.gather_nd(words, places))
            is_numbered = numbers < self.extra_words
            numbered = tf.where(is_numbered, numbers + self.vocabulary_size, UNK_ID)
            ids = tf.tensor_scatter_nd_update(ids, places, numbered)
            rows = rows if self.by_sentence else tf.zeros_like(rows)
            unknown = unknown[: self.extra_words]
            missing = tf.fill([self.extra_words - tf.size(unknown)], self._vocabulary[UNK_ID])
            unknown = tf.ensure_shape(tf.concat([unknown, missing], 0), [self.extra_words])
            return tf.RaggedTensor.from_value_rowids(ids, rows), unknown

        # One document more, of nothing: an empty batch has a shape too.
        ids, unknown = tf.map_fn(
            document,
            tf.concat([documents, [""]], axis=0),
            fn_output_signature=(
                tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1),
                tf.TensorSpec([self.extra_words], tf.string),
            ),
        )
        source = ids.to_tensor(PAD_ID)
        source = tf.pad(source, [[0, 0], [0, 1], [0, 1]])[:-1, : tf.maximum(tf.shape(source)[1], 1)]
        source = source[:, :, : tf.maximum(tf.shape(source)[2] - 1, 1)]
        unknown = unknown[:-1]
        if summaries is None:
            return source, None, None, unknown
        known = tokenizer.encode(summaries)[:, : self.max_summary_words].to_tensor(PAD_ID)
        words = tokenizer.tokens(summaries)[:, : self.max_summary_words].to_tensor("")
        same = words[:, :, None] == unknown[:, None, :]
        copies = (known == UNK_ID) & tf.reduce_any(same, axis=2)
        same = tf.pad(same, [[0, 0], [0, 0], [0, 1]])  # there may be no unknown words
        number = self.vocabulary_size + tf.argmax(same, axis=2, output_type=tf.int32)
        labels = tf.where(copies, number, known)
        lengths = tf.math.count_nonzero(known, axis=1, dtype=tf.int32)
        ends = END_ID * tf.one_hot(lengths, tf.shape(known)[1] + 1, dtype=tf.int32)
        target = tf.pad(known, [[0, 0], [1, 0]], constant_values=START_ID)
        return source, target, tf.pad(labels, [[0, 0], [0, 1]]) + ends, unknown


def as_documents(values: Any, name: str) -> list[list[str]]:
    """Return documents, texts or lists of sentences, as lists of sentences with words.

    Raises:
        ValueError: naming the argument, where it is one string, or holds something else.
    """
    return _lists_of_texts(values, name, split_sentences)


def as_summaries(values: Any, name: str) -> list[list[str]]:
    """Return the summaries of each document as a list of one or several, as `as_documents` does."""
    return _lists_of_texts(values, name, lambda text: [text])


def _lists_of_texts(values, name, split):
    wanted = "a sequence, of texts or of lists of texts"
    found = []
    for place, value in enumerate(as_column(values, name, wanted)):
        is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        texts = list(value) if is_list else [value]
        with suppress(UnicodeDecodeError):  # refused below, as bytes
            texts = [each.decode("utf-8") if isinstance(each, bytes) else each for each in texts]
        if not all(isinstance(each, str) for each in texts):
            raise ValueError(
                f"`{name}` should hold texts or lists of texts only; the preprocessor makes the "
                f"ids. Received: {name}[{place}]={shown(value)}"
            )
        for each in texts:
            check_unicode(f"{name}[{place}]", each)
        texts = texts if is_list else split(texts[0])
        found.append([str(each) for each in texts if each.strip()])
    return found


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, by the rules of `applications.text.split_sentences`.

    Line ends end one too. Sentences are in Unicode's form C, in which the rules know abbreviations.
    """
    return [
        sentence.strip()
        for line in nfc(text).splitlines()
        for sentence in sentences_of(line)
        if sentence.strip()
    ]
