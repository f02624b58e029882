"""From files and lists of words with tags to ids, in Python and inside a TensorFlow graph."""

import collections
import csv
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ..base.preprocessor import Splits, TextPreprocessor, as_column, is_tensor, padded
from ..errors import (
    UserError,
    check_choice,
    check_range,
    check_unicode,
    counted,
    did_you_mean,
    shown,
)
from ..store.bad_lines import BadLine, Line, checked
from ..store.files import json_object, lines_of
from ..text import PAD_ID, UNK_ID, Tokenizer, WordTokenizer, nfc
from ..text.word_tokenizer import SPACE, word_characters
from . import metrics
from .config import DataConfig
from .networks import PACKAGE

LETTERS = 20
"""The most letters of a word that are read."""
DOCUMENT_MARK = "-DOCSTART-"
NO_PREDICATE = ("-", "_", "O", "0", "")
INPUTS = ("words", "letters", "marks")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """The words of a sentence, its tags, the index of its predicate, and where it comes from."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    predicate: int | None = None
    places: tuple[Line | str, ...] | str = ""

    def place(self, word: int) -> Line | str:
        """Return where a word comes from."""
        return f"{self.places}[{word}]" if isinstance(self.places, str) else self.places[word]


@dataclasses.dataclass(frozen=True)
class Report:
    """How many sentences and words a set has, and what was mended in their tags."""

    name: str
    sentences: int
    words: int
    broken: int = 0

    def __str__(self) -> str:
        said = f"{self.name}: {self.sentences:,} sentences, {self.words:,} words"
        counts = {"spans that began with I- or E- (read as seqeval reads them)": self.broken}
        return counted(said, counts)


@dataclasses.dataclass(frozen=True)
class Sentences(Splits):
    """A set of sentences, with a weight for each."""

    items: Sequence[Sentence]
    report: Report
    weights: Sequence[float] | None = None
    columns, noun = ("items", "weights"), "sentences"

    @classmethod
    def of(cls, items: Sequence[Sentence], name: str, weights: Any = None) -> "Sentences":
        broken = sum(metrics.broken(each.tags) for each in items if each.tags is not None)
        words = sum(len(each.words) for each in items)
        return cls(items, Report(name, len(items), words, broken), weights)

    def part(self, rows: Sequence[int], **changes: Any) -> "Sentences":
        found = super().part(rows, **changes)
        return type(self).of(found.items, self.report.name, found.weights)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Sentences as numbers of word forms, from 1, and what each form is as ids.

    `columns` are the forms and the target ids of each sentence, and with roles the marks.
    """

    columns: tuple[list[list[int]], ...]
    form_words: np.ndarray  # (forms, ) ids of words, 0 for padding
    form_letters: np.ndarray  # (forms, L)
    report: Report
    weights: np.ndarray


# ---- From files.


def read_sentences(data: DataConfig, path: str, labelled: bool = True) -> Sentences:
    """Return the sentences of a file; an error names file and line."""
    kind = Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind == ".jsonl":
        found = _of_objects(data, path, labelled)
    elif kind in (".csv", ".tsv"):
        found = _of_table(data, path, "\t" if kind == ".tsv" else ",", labelled)
    else:
        found = _of_columns(data, path, labelled)
    items = list(found)
    if not items:
        raise UserError(f"{path}: there is no sentence in it.")
    return Sentences.of(items, str(path))


def _of_columns(data: DataConfig, path: str, labelled: bool) -> Iterator[Sentence]:
    """Yield the sentences of CoNLL columns, with tabs or spaces between."""
    lines = list(lines_of(path, data.encoding))
    separator = "\t" if any("\t" in line for line in lines[:1000]) else None
    rows = [line.rstrip("\r").split(separator) if line.strip() else [] for line in lines]
    width = next((len(row) for row in rows if row and not row[0].startswith(("#", "-DOC"))), 0)
    if not width:
        raise UserError(f"{path}: there is no sentence in it.")
    last = str(width - 1)
    names = [data.word_column or "0"]
    names += [(data.tag_column or last)] if labelled else []
    names += [data.predicate_column] if data.predicate_column else []
    numbers = [_number(name, width, path) for name in names]
    if labelled and numbers[0] == numbers[1]:
        raise UserError(f"{path}: words and tags must have a column each. Received: one column.")

    def token(numbered: tuple[int, list[str]]) -> tuple[Line, list[str]]:
        number, row = numbered
        place = Line(str(path), number)
        if len(row) != width:
            problem = f"expected {width} columns, as on other lines. Received: {len(row)}"
            raise BadLine(place, problem)
        return place, [row[each].strip() for each in numbers]

    def tokens() -> Iterator[tuple[int, list[str]] | None]:
        begins = True
        for number, row in enumerate(rows, 1):
            is_comment = begins and bool(row) and row[0].startswith("#") and len(row) != width
            is_comment = is_comment or (begins and row[:1] == ["#"] and "=" in row)
            if is_comment or row[:1] == [DOCUMENT_MARK]:
                continue
            begins = not row
            yield (number, row) if row else None

    rows_of_sentence: list[tuple[Line, list[str]]] = []
    for found in checked(tokens(), lambda each: each and token(each)):
        if found is not None:
            rows_of_sentence.append(found)
        elif rows_of_sentence:
            yield _joined(rows_of_sentence, labelled, data)
            rows_of_sentence = []
    if rows_of_sentence:
        yield _joined(rows_of_sentence, labelled, data)


def _number(name: str, width: int, path: str) -> int:
    number = int(name) if re.fullmatch(r"-?\d+", name) else width
    if not -width <= number < width:
        raise UserError(
            f"{path}: a column of a CoNLL file is a number from 0 to {width - 1}, or from -1 "
            f"backwards; the file has {width} columns. Received: {name}."
        )
    return number % width


def _joined(rows: list[tuple[Line, list[str]]], labelled: bool, data: DataConfig) -> Sentence:
    places, values = zip(*rows, strict=True)
    columns = list(zip(*values, strict=True))
    words, tags = columns[0], columns[1] if labelled else None
    predicate = None
    if data.predicate_column:
        marked = [i for i, mark in enumerate(columns[-1]) if mark not in NO_PREDICATE]
        if len(marked) != 1:
            problem = f"a sentence must mark one predicate. Received: {len(marked)}"
            raise BadLine(places[0], problem)
        predicate = marked[0]
    return _sentence(words, tags, predicate, places)


def _of_objects(data: DataConfig, path: str, labelled: bool) -> Iterator[Sentence]:
    def sentence(numbered: tuple[int, str]) -> Sentence | None:
        place = Line(str(path), numbered[0])
        if not numbered[1].strip():
            return None
        return _of_values(json_object(numbered[1], str(place)), data, place, labelled)

    lines = enumerate(lines_of(path, data.encoding), 1)
    yield from (each for each in checked(lines, sentence) if each is not None)


def _of_table(data: DataConfig, path: str, delimiter: str, labelled: bool) -> Iterator[Sentence]:
    reader = csv.reader(lines_of(path, data.encoding), delimiter=delimiter)
    header = [name.strip() for name in next(reader)]

    def sentence(row: list[str]) -> Sentence | None:
        place = Line(str(path), reader.line_num)
        if not row:
            return None
        if len(row) != len(header):
            problem = f"expected {len(header)} columns, as in the header. Received: {len(row)}"
            raise BadLine(place, problem)
        return _of_values(dict(zip(header, row, strict=True)), data, place, labelled)

    yield from (each for each in checked(reader, sentence) if each is not None)


def _of_values(
    values: Mapping[str, Any], data: DataConfig, place: Line, labelled: bool
) -> Sentence:
    """Return the sentence of a row of named columns."""

    def column(name: str) -> Any:
        if name not in values:
            problem = f"there is no column '{name}'.{did_you_mean(name, list(values))} Columns: "
            raise BadLine(place, problem + (", ".join(values) or "none"))
        return values[name]

    def listed(name: str) -> list[str]:
        value = column(name)
        value = value.split() if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            problem = f"'{name}' must be words with spaces between, in JSON a list of strings"
            raise BadLine(place, f"{problem}. Received: {shown(value)}")
        return value

    words = listed(data.word_column or "words")
    tags = listed(data.tag_column or "tags") if labelled else None
    predicate = None
    if data.predicate_column:
        given = str(column(data.predicate_column))
        if not (given.isdigit() and int(given) < len(words)):
            problem = f"'{data.predicate_column}' must be the number of a word, from 0"
            raise BadLine(place, f"{problem}. Received: {shown(given)}")
        predicate = int(given)
    return _sentence(words, tags, predicate, (place,) * max(1, len(words)))


def _sentence(words, tags, predicate, places) -> Sentence:
    """Return a sentence of a file, checked."""
    if not words:
        raise BadLine(places[0], "the sentence has no words")
    if tags is not None and len(tags) != len(words):
        problem = f"a sentence has a tag for each word. Received: {len(words)} words and "
        raise BadLine(places[0], f"{problem}{len(tags)} tags")
    for word, place in zip(words, places, strict=True):
        if not _is_word(word):
            raise BadLine(place, f"a word must not be empty or hold spaces. Received: {word!r}")
    for tag, place in zip(tags or (), places, strict=False):
        if not tag.strip():
            raise BadLine(place, "a tag is empty")
    return Sentence(tuple(words), None if tags is None else tuple(tags), predicate, tuple(places))


def _is_word(word: str) -> bool:
    return bool(word) and not re.search(SPACE, word)


# ---- From lists.


def as_sentences(x: Any, tags: Any = None, roles: bool = False, name: str = "x") -> list[Sentence]:
    """Return sentences of lists: of words, or texts, which are cut into words.

    With `roles` each is a pair of that and the index of its predicate.
    """
    wanted = "a sequence of sentences, each a list of words or a text"
    rows = list(as_column(x, name, wanted))
    of_tags = [None] * len(rows) if tags is None else list(as_column(tags, "tags", "lists of tags"))
    if len(of_tags) != len(rows):
        raise ValueError(
            "There should be tags for each sentence. "
            f"Received: {len(rows)} sentences and {len(of_tags)} lists of tags"
        )
    found = []
    for row, (given, own) in enumerate(zip(rows, of_tags, strict=True)):
        place = f"{name}[{row}]"
        predicate = None
        if roles:
            if not (isinstance(given, (tuple, list)) and len(given) == 2):
                raise ValueError(
                    "A sentence with roles is a pair: its words, and the index of its predicate. "
                    f"Received: {place}={shown(given)}"
                )
            given, predicate = given
        words = _words(given, place)
        if roles and not (isinstance(predicate, (int, np.integer)) and 0 <= predicate < len(words)):
            raise ValueError(
                f"The predicate should be the index of one of {len(words)} words. "
                f"Received: {place} with {shown(predicate)}"
            )
        own = None if own is None else _tags(own, f"tags[{row}]")
        if own is not None and len(own) != len(words):
            raise ValueError(
                "A sentence should have a tag for each word. "
                f"Received: {place} with {len(words)} words and {len(own)} tags"
            )
        found.append(Sentence(tuple(words), own, None if not roles else int(predicate), place))
    return found


def _words(given: Any, place: str) -> list[str]:
    given = _text(given)
    if isinstance(given, str):
        check_unicode(place, given)
        return [word for word, _, _ in cut(given)]
    words = [_text(each) for each in as_column(given, place, "a list of words or a text")]
    for index, word in enumerate(words):
        if not isinstance(word, str) or not _is_word(word):
            raise ValueError(
                "A word should be a string, not empty and without spaces. "
                f"Received: {place}[{index}]={word!r}"
            )
        check_unicode(f"{place}[{index}]", word)
    return list(map(str, words))


def _text(given: Any) -> Any:
    """Return bytes of UTF-8 as a string."""
    return given.decode("utf-8", "replace") if isinstance(given, bytes) else given


def _tags(given: Any, place: str) -> tuple[str, ...]:
    given = _text(given)
    given = given.split() if isinstance(given, str) else given
    found = [_text(each) for each in as_column(given, place, "a list of tags")]
    for index, tag in enumerate(found):
        if not isinstance(tag, str) or not tag.strip():
            raise ValueError(
                f"A tag should be a string, not empty. Received: {place}[{index}]={tag!r}"
            )
    return tuple(map(str, found))


@functools.cache
def _patterns() -> tuple[str, str]:
    """Return the patterns of words and of single marks, for Python's `re` and TensorFlow's RE2."""
    letters = word_characters()
    return f"[{letters}]+(?:[-.,'’][{letters}]+)*", f"[^{SPACE[1:-1]}]"


@functools.cache
def _cutter() -> re.Pattern:
    return re.compile("|".join(_patterns()))


def cut(text: str) -> list[tuple[str, int, int]]:
    """Return the words of a text, each with its first character and that after its last.

    A word is letters, marks and digits, with single hyphens, stops, commas and apostrophes inside;
    every other character is one by itself.
    """
    return [(found.group(), *found.span()) for found in _cutter().finditer(text)]


@keras.saving.register_keras_serializable(PACKAGE)
class TaggingPreprocessor(TextPreprocessor):
    """Turns words into ids of words and of letters, and tags into targets.

    Tags that mark spans are learnt in `scheme`; others as they are.

    Args:
        tokenizer: of words, cut at spaces.
        letters: the letters that have an id, in the order of their ids from 2.
        tags: the tags, in the order of the network's outputs.
        scheme: `"BIO"` or `"BIOES"` where the tags mark spans; None where they do not.
        roles: whether each sentence comes with the index of its predicate.
        max_length: the most words that are read at once.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: Sentences: lists of words, or texts; with roles pairs of these and an index.
        y: Lists of tags.
        sample_weight: Weights `(B,)`.

    Returns:
        `({"words": (B, T), "letters": (B, T, L)}, targets (B, T))`, and the weights where given;
        without `y` the inputs alone. With roles the inputs have `marks` `(B, T)`.

    Raises:
        ValueError: where words and tags do not go together, or a tag is unknown.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        letters: str,
        tags: Sequence[str],
        scheme: str | None = None,
        roles: bool = False,
        max_length: int = 256,
        **kwargs: Any,
    ):
        super().__init__({"tokenizer": tokenizer}, **kwargs)
        check_choice("`scheme`", scheme, (None, "BIO", "BIOES"))
        check_range("`max_length`", max_length, at_least=2)
        tags = list(tags)
        if not tags or len(set(tags)) < len(tags):
            raise ValueError(f"`tags` should be tags, each once. Received: tags={shown(tags)}")
        self.keep(letters=letters, tags=tags, scheme=scheme, roles=roles, max_length=max_length)
        self._letter_ids = {letter: 2 + place for place, letter in enumerate(letters)}
        self._tag_ids = {tag: place for place, tag in enumerate(tags)}

    @classmethod
    def adapt(
        cls,
        sentences: Sentences,
        *,
        vocabulary_size: int = 30000,
        min_count: int = 1,
        lowercase: bool = True,
        scheme: str = "own",
        **options: Any,
    ) -> "TaggingPreprocessor":
        """Return a preprocessor whose words, letters and tags are those of sentences."""
        lines = [" ".join(each.words) for each in sentences.items]
        tokenizer = WordTokenizer.train(lines, vocabulary_size, min_count, lowercase, "whitespace")
        letters = collections.Counter(letter for line in lines for letter in nfc(line))
        known = "".join(sorted(letter for letter in letters if letter != " "))
        found = {tag for each in sentences.items for tag in each.tags}
        own = None
        if metrics.are_of_spans(found):
            own = metrics.scheme_of(found) if scheme == "own" else scheme
            kinds = {tag.partition("-")[2] for tag in found} - {""}
            found = metrics.names_of(kinds, own)
        elif scheme != "own":
            raise UserError(
                f"data.scheme {scheme} needs tags of spans, such as B-PER, I-PER and O. "
                f"Received: {', '.join(sorted(found)[:5])}."
            )
        tags = found if own else sorted(found)
        return cls(tokenizer, known, tags, own, **options)

    @property
    def letter_kinds(self) -> list[int]:
        """What each letter is, by its id: 0 other, 1 small, 2 capital, 3 digit."""
        kinds = {"Ll": 1, "Lu": 2, "Lt": 2, "Nd": 3}
        return [0, 0, *(kinds.get(unicodedata.category(letter), 0) for letter in self.letters)]

    def entries(self):
        return {"vocabulary_size": self.tokenizer.vocabulary, "outputs": list(self.tags)}

    def call(self, x, y=None, sample_weight=None):
        if is_tensor(x):
            inputs = self._read_in_graph(x)[0]
            if y is None:
                return inputs
            targets = self._targets_in_graph(y)
            return keras.utils.pack_x_y_sample_weight(inputs, targets, sample_weight)
        sentences = as_sentences(x, y, self.roles)
        inputs = self.inputs(sentences)
        if y is None:
            return inputs
        targets = padded([self.targets(each) for each in sentences])
        return keras.utils.pack_x_y_sample_weight(inputs, targets, sample_weight)

    def inputs(self, sentences: Sequence[Sentence]) -> dict[str, np.ndarray]:
        """Return the inputs of the network for sentences."""
        forms, words, letters = self.forms(sentences)
        rows = padded(forms)
        found = {"words": words[rows], "letters": letters[rows]}
        if self.roles:
            found["marks"] = padded([marks_of(each) for each in sentences])
        return found

    def forms(self, sentences: Sequence[Sentence]) -> tuple[list[list[int]], Any, Any]:
        """Return the number of each word's form, from 1, and ids of words and letters by number."""
        numbers: dict[str, int] = {}
        rows = [
            [numbers.setdefault(word, 1 + len(numbers)) for word in each.words]
            for each in sentences
        ]
        ids = self.tokenizer.encode(list(numbers))
        words = np.array([PAD_ID, *(each[0] if len(each) == 1 else UNK_ID for each in ids)])
        letters = padded([[], *map(self._letters_of, numbers)])
        return rows, words.astype("int32"), letters

    def _letters_of(self, word: str) -> list[int]:
        return [self._letter_ids.get(letter, UNK_ID) for letter in nfc(word)[:LETTERS]]

    def targets(self, sentence: Sentence) -> list[int]:
        """Return the ids of the tags of a sentence; a ValueError where one is unknown."""
        tags = list(sentence.tags)
        for place, tag in enumerate(tags):
            if not self._knows(tag):
                self._refuse(tag, sentence.place(place))
        if self.scheme is not None:
            tags = metrics.tags_of(metrics.spans_of(tags), len(tags), self.scheme)
        return [self._tag_ids[tag] for tag in tags]

    def _knows(self, tag: str) -> bool:
        if self.scheme is None or tag == metrics.OUTSIDE:
            return tag in self._tag_ids
        prefix, _, kind = tag.partition("-")
        return prefix in metrics.PREFIXES and f"B-{kind}" in self._tag_ids

    def _refuse(self, tag: str, place: Line | str) -> None:
        known = sorted({each.partition("-")[2] or each for each in self.tags})
        problem = f"the training data have no tag '{tag}'.{did_you_mean(tag, self.tags)} "
        problem += f"Known: {', '.join(known[:20] if self.scheme else self.tags[:20])}"
        if isinstance(place, Line):
            raise BadLine(place, problem)
        raise ValueError(f"{place}: {problem}. Received: {tag!r}")

    # Inside of a graph.

    def words_in_graph(self, strings: Any) -> tuple[Any, Any, Any]:
        """Return the words of texts, ragged, and their first and last characters, as `cut` does."""
        import tensorflow as tf
        import tensorflow_text

        word, mark = _patterns()
        keep = f"{word}|{mark}"
        split = tensorflow_text.regex_split_with_offsets
        words, start, end = split(strings, f"{keep}|{SPACE}+", keep)
        rows = tf.gather(strings, words.value_rowids())

        def letters(places: Any) -> Any:
            before = tf.strings.substr(rows, tf.zeros_like(places.values), places.values)
            return places.with_values(tf.strings.length(before, unit="UTF8_CHAR"))

        return words, letters(start), letters(end)

    def _read_in_graph(self, strings: Any) -> tuple[dict[str, Any], Any, Any, Any]:
        """Return the inputs of texts, or of words padded with "", and words and offsets."""
        import tensorflow as tf

        start = end = None
        if isinstance(strings, tf.RaggedTensor):
            words = strings
        elif strings.shape.rank == 1:
            words, start, end = self.words_in_graph(strings)
        else:
            words = tf.RaggedTensor.from_tensor(strings, padding="")
        ids = self.in_graph("tokenizer").encode(words.values)
        one = tf.fill([ids.nrows(), 1], UNK_ID)
        ids = tf.where(ids.row_lengths() == 1, tf.concat([ids, one], axis=1)[:, :1].values, UNK_ID)
        flat = _letters_in_graph(words.values, self.letters)
        shape = [words.nrows(), tf.maximum(tf.cast(words.bounding_shape()[1], tf.int32), 1)]

        def dense(values: Any) -> Any:
            rest = values.shape[1:]
            return words.with_values(values).to_tensor(0, shape=[None, None, *rest])

        found = {"words": dense(tf.cast(ids, tf.int32)), "letters": dense(flat)}
        short = shape[1] - tf.shape(found["words"])[1]
        found["words"] = tf.pad(found["words"], [[0, 0], [0, short]])
        found["letters"] = tf.pad(found["letters"], [[0, 0], [0, short], [0, 0]])
        return found, words, start, end

    def _targets_in_graph(self, tags: Any) -> Any:
        """Return the target ids of tags in the network's scheme, ragged or padded with ""."""
        import tensorflow as tf

        tags = tags.to_tensor("") if isinstance(tags, tf.RaggedTensor) else tags
        names = tf.constant(self.tags)
        is_name = tags[:, :, None] == names
        known = tf.reduce_all(tf.reduce_any(is_name, axis=2) | (tags == ""))
        check = tf.debugging.Assert(known, ["a tag is not among", names, tags])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.cast(tf.argmax(tf.cast(is_name, tf.int32), axis=2), tf.int32)


def marks_of(sentence: Sentence) -> list[int]:
    """Return 1 for the predicate of a sentence, and 0 for its other words."""
    return [int(place == sentence.predicate) for place in range(len(sentence.words))]


def _letters_in_graph(words: Any, letters: str) -> Any:
    """Return the ids of the letters of words `(N,)`, int32 `(N, LETTERS)`."""
    import tensorflow as tf
    import tensorflow_text

    codes = np.array(sorted(map(ord, letters)) or [0], "int32")
    ids = np.array([2 + letters.index(chr(code)) if letters else UNK_ID for code in codes], "int32")
    words = tensorflow_text.normalize_utf8(words, "NFC")
    found = tf.strings.unicode_decode(words, "UTF-8")[:, :LETTERS]
    place = tf.minimum(tf.searchsorted(codes, found.values), len(codes) - 1)
    same = tf.gather(codes, place) == found.values
    values = tf.where(same, tf.gather(ids, place), UNK_ID)
    return found.with_values(values).to_tensor(PAD_ID, shape=[None, LETTERS])
