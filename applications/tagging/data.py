"""Sentences with a tag for each word: from files and lists, as a corpus and as ids."""

import collections
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.preprocessor import as_column
from ..data.corpus import Corpus, Report
from ..data.encoded import Encoded
from ..data.readers import SUFFIXES, Row, check_column, rows_of
from ..errors import UserError, check_unicode, shown
from ..store.bad_lines import BadLine, Line, checked
from ..store.files import lines_of
from ..text import BucketedBatches, PackedIds
from ..text.word_tokenizer import SPACE, word_characters
from . import metrics
from .config import DataConfig

if TYPE_CHECKING:
    from .preprocessor import TaggingPreprocessor

DOCUMENT_MARK = "-DOCSTART-"
CONLLU_KEYS = (["newdoc"], ["newpar"])
"""Comments of CoNLL-U without a value: `# newdoc`."""
NO_PREDICATE = ("-", "_", "O", "0", "")


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


# ---- From files.


def load_corpus(data: DataConfig, split: str) -> Corpus:
    """Return the sentences of a split; without a file for it, dev is the last part of train."""
    is_split = bool(data.train) and not data.dev and split != "test"
    path = data.train if is_split else getattr(data, split)
    if path is None:
        raise UserError(f"There is no {split} data: give data.{split}.")
    found = read_corpus(path, data)
    if not is_split:
        return found
    part = found.split(data.dev_fraction)[("train", "dev").index(split)]
    return corpus_of(part["sentence"], found.name)  # what its report counts is of the part


def read_corpus(path: str, data: DataConfig, labelled: bool = True) -> Corpus:
    """Return the sentences of a file; an error names file and line."""
    kind = Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind in SUFFIXES:
        rows = rows_of(path, encoding=data.encoding)
        items = list(checked(rows, lambda row: _of_values(row, data, labelled)))
    else:
        items = list(_of_columns(data, path, labelled))
    if not items:
        raise UserError(f"{path}: there is no sentence in it.")
    return corpus_of(items, str(path))


def corpus_of(items: Sequence[Sentence], name: str, weights: Any = None) -> Corpus:
    """Return the corpus of sentences, whose report counts words and what was mended."""
    report = Report(name, len(items), "sentences", notes=tuple(_notes(items)))
    places = [each.place(0) if each.words else "" for each in items]
    return Corpus({"sentence": items}, report, places, weights)


def broken_spans(items: Sequence[Sentence]) -> int:
    """Return how many spans begin with I- or E-, which seqeval reads as beginnings."""
    return sum(metrics.broken(each.tags) for each in items if each.tags is not None)


def _notes(items: Sequence[Sentence]) -> Iterator[str]:
    yield f"They have {sum(len(each.words) for each in items):,} words."
    if count := broken_spans(items):
        spans = "1 span begins" if count == 1 else f"{count:,} spans begin"
        yield f"{spans} with I- or E-, and is read as seqeval reads it."


def _of_columns(data: DataConfig, path: str, labelled: bool) -> Iterator[Sentence]:
    """Yield the sentences of CoNLL columns, with tabs or spaces between."""
    lines = list(lines_of(path, data.encoding))
    has_tabs = any("\t" in line for line in lines[:1000] if not line.startswith("#"))
    rows = [_cells(line, has_tabs) for line in lines]
    tokens_only = [row for row in rows if row and not row[0].startswith(("#", "-DOC"))]
    if not tokens_only:
        raise UserError(f"{path}: there is no sentence in it.")
    (width, _), *_ = collections.Counter(map(len, tokens_only)).most_common(1)
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
        if any("\r" in cell for cell in row):
            problem = "a line ends with a line feed. Received: a carriage return in the middle"
            advice = "replace carriage returns, for instance with tr '\\r' '\\n'"
            raise BadLine(place, problem, advice)
        if len(row) != width:
            problem = f"expected {width} columns, as on other lines. Received: {len(row)}"
            raise BadLine(place, problem)
        return place, [row[each].strip() for each in numbers]

    def tokens() -> Iterator[tuple[int, list[str]] | None]:
        begins = True
        for number, row in enumerate(rows, 1):
            is_comment = begins and bool(row) and row[0].startswith("#") and len(row) != width
            has_key = "=" in row or row[1:2] in CONLLU_KEYS
            if is_comment or (begins and row[:1] == ["#"] and has_key):
                continue
            begins = not row or row[0] == DOCUMENT_MARK
            yield None if begins else (number, row)

    rows_of_sentence: list[tuple[Line, list[str]]] = []
    for found in checked(tokens(), lambda each: each and token(each)):
        if found is not None:
            rows_of_sentence.append(found)
        elif rows_of_sentence:
            yield _joined(rows_of_sentence, labelled, data)
            rows_of_sentence = []
    if rows_of_sentence:
        yield _joined(rows_of_sentence, labelled, data)


def _cells(line: str, has_tabs: bool) -> list[str]:
    """Return the columns of a line, none of an empty one."""
    if not line.strip():
        return []
    line = line.rstrip("\r")
    # Other spaces, such as those of a number, do not separate columns.
    return line.split("\t") if has_tabs else re.split("[ \t]+", line.strip(" \t"))


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


def _of_values(row: Row, data: DataConfig, labelled: bool) -> Sentence:
    """Return the sentence of a row of named columns."""
    values, place = row

    def column(name: str) -> Any:
        check_column(name, list(values), place)
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
def patterns() -> tuple[str, str]:
    """Return the patterns of words and of single marks, for Python's `re` and TensorFlow's RE2."""
    letters = word_characters()
    return f"[{letters}]+(?:[-.,'’][{letters}]+)*", f"[^{SPACE[1:-1]}]"


@functools.cache
def _cutter() -> re.Pattern:
    return re.compile("|".join(patterns()))


def cut(text: str) -> list[tuple[str, int, int]]:
    """Return the words of a text, each with its first character and that after its last.

    A word is letters, marks and digits, with single hyphens, stops, commas and apostrophes inside;
    every other character is one by itself.
    """
    return [(found.group(), *found.span()) for found in _cutter().finditer(text)]


def marks_of(sentence: Sentence) -> list[int]:
    """Return 1 for the predicate of a sentence, and 0 for its other words."""
    return [int(place == sentence.predicate) for place in range(len(sentence.words))]


# ---- As ids.


@dataclasses.dataclass(frozen=True)
class EncodedSentences(Encoded):
    """Sentences as numbers of word forms, from 1, and what each form is as ids.

    `ids` are `"forms"` and `"targets"`, and with roles `"marks"`. For a backbone they are
    the inputs of the network, `"words"` and `"pieces"`, and there are no forms.

    Args:
        form_words: ids of the words of the forms `(F,)`, 0 for padding.
        form_letters: ids of their letters `(F, L)`.
    """

    form_words: np.ndarray | None = None
    form_letters: np.ndarray | None = None


def encode(corpus: Corpus, preprocessor: "TaggingPreprocessor") -> EncodedSentences:
    """Return a corpus as ids; unknown tags are refused, all of them in one error."""
    items = corpus["sentence"]
    rows, forms = preprocessor.forms(items)
    if preprocessor.reads_backbone:
        words, pieces = preprocessor.pieces(rows, forms)
        ids = {"words": PackedIds(words), "pieces": PackedIds(pieces)}
        tables = {}
    else:
        ids = {"forms": PackedIds(rows)}
        tables = {f"form_{name}": each for name, each in preprocessor.tables(forms).items()}
    ids["targets"] = PackedIds(checked(items, preprocessor.targets))
    if preprocessor.roles:
        ids["marks"] = PackedIds(map(marks_of, items))
    weights = np.ones(len(items)) if corpus.weights is None else np.asarray(corpus.weights)
    return EncodedSentences(
        ids,
        corpus.report,
        weights=weights.astype("float32"),
        rows=np.arange(len(items)),
        **tables,
    )


def in_parts(corpus: Corpus, size: int) -> Corpus:
    """Return the sentences to train with: of those with more than `size` words the parts.

    A span that is cut goes on as one of its own. Only one part of a sentence with roles has the
    predicate.
    """
    items = corpus["sentence"]
    if max(len(each.words) for each in items) <= size:
        return corpus
    parts = [(row, at) for row, each in enumerate(items) for at in range(0, len(each.words), size)]
    rows = np.array([row for row, _ in parts])
    return dataclasses.replace(
        corpus,
        columns={"sentence": [_part(items[row], at, size) for row, at in parts]},
        places=[corpus.places[row] for row in rows],
        weights=None if corpus.weights is None else np.asarray(corpus.weights)[rows],
    )


def _part(sentence: Sentence, at: int, size: int) -> Sentence:
    """Return `size` words of a sentence, and what belongs to them."""
    words = sentence.words[at : at + size]
    predicate = None if sentence.predicate is None else sentence.predicate - at
    return Sentence(
        words,
        sentence.tags[at : at + size],
        predicate,
        tuple(sentence.place(at + index) for index in range(len(words))),
    )


def make_batches(encoded: EncodedSentences, batch_size: int, **options: Any) -> BucketedBatches:
    """Return batches `(inputs, targets, weights)` of sentences of like length."""

    def assemble(*arrays):
        *columns, weights = arrays
        inputs = dict(zip(encoded.ids, columns, strict=True))
        targets = inputs.pop("targets")
        if "forms" in inputs:
            forms = inputs.pop("forms")
            words, letters = encoded.form_words[forms], encoded.form_letters[forms]
            inputs = {"words": words, "letters": letters, **inputs}
        return inputs, targets, weights

    options |= {"values": (encoded.weights,), "assemble": assemble}
    return BucketedBatches(tuple(encoded.ids.values()), batch_size, **options)
