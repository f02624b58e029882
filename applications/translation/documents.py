"""Documents: cut into sentences that a network reads, and put together again."""

import dataclasses
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence

from ..text import split_sentences
from .results import Translation

Span = tuple[int, int]
"""Where a part of a text begins and ends, in characters."""

LONGEST_PIECE = 128
"""Tokens of a sentence that is read whole. Networks are trained on few that are longer."""

_TAG = re.compile(r">>[^\s<>]+<<")
_CLAUSE_END = re.compile(r"[,;:–—、，；：](?:\s+|(?<=[、，；：]))")
_SPACE = re.compile(r"\s+")
_SPACES = " \t\u00a0\u3000"
"""What separates sentences of a line."""


@dataclasses.dataclass(frozen=True)
class TranslatedDocument:
    """A translation of a document, and those of its sentences.

    Args:
        source: the document.
        text: its translation, with the lines, the empty lines and the indentation of the source.
        sentences: the translation of each sentence, or of each piece of one that is too long.
        source_spans: where each of these lies in `source`: first character, and the one after the
            last.
        spans: where its translation lies in `text`.

    Example:

    ```python
    from keras_attention.applications.translation import Translator

    found = Translator.from_preset("dates").translate_document("4 juin 1999\\n\\n  1er mai 2003\\n")
    print(found.text)
    for source, sentence in zip(found.sources, found.sentences):
        print(source, "->", sentence.text, sentence.alignment.shape)
    ```
    """

    source: str
    text: str
    sentences: tuple[Translation, ...] = dataclasses.field(repr=False)
    source_spans: tuple[Span, ...] = dataclasses.field(repr=False)
    spans: tuple[Span, ...] = dataclasses.field(repr=False)

    @property
    def sources(self) -> list[str]:
        """The sentences of the source."""
        return [self.source[start:end] for start, end in self.source_spans]


@dataclasses.dataclass(frozen=True)
class CutDocument:
    """A document and where the sentences to translate lie in it.

    Args:
        source: the document.
        spans: of the sentences; what is between them stays as it is.
        tags: what each sentence is read after: the tag of the language to write, or nothing.
        dropped: spans of tags, which are no text.
    """

    source: str
    spans: tuple[Span, ...]
    tags: tuple[str, ...]
    dropped: tuple[Span, ...]

    @property
    def sentences(self) -> list[str]:
        """The sentences as a network reads them."""
        return [
            tag + self.source[start:end]
            for tag, (start, end) in zip(self.tags, self.spans, strict=True)
        ]

    def joined(self, translations: Sequence[Translation]) -> TranslatedDocument:
        """Return the translation of the document, of those of its sentences."""
        parts: list[str] = []
        spans = []
        size, last = 0, 0
        for (start, end), translation in zip(self.spans, translations, strict=True):
            between = self._between(last, start)
            text = translation.text
            if spans and text and not between.strip(_SPACES):
                between = self._separator(between, start, parts[-1], text)
            parts += [between, text]
            spans.append((size + len(between), size + len(between) + len(text)))
            size, last = spans[-1][1], end
        parts.append(self._between(last, len(self.source)))
        translated = "".join(parts)
        found = tuple(translations)
        return TranslatedDocument(self.source, translated, found, self.spans, tuple(spans))

    def _between(self, start: int, end: int) -> str:
        """Return what the source has between two sentences, without tags."""
        kept = []
        for first, last in self.dropped[bisect_left(self.dropped, (start, 0)) :]:
            if first >= end:
                break
            kept.append(self.source[start:first])
            start = last
        return "".join([*kept, self.source[start:end]])

    def _separator(self, space: str, start: int, before: str, after: str) -> str:
        """Return what separates two translations whose sources have only spaces between them.

        Scripts such as Chinese have no space between sentences, whatever the source has.
        """
        source = self.source
        is_between = _has_no_spaces(before[-1:]) or _has_no_spaces(after[0])
        if space and is_between:
            return ""
        from_such = _has_no_spaces(source[start - 1]) or _has_no_spaces(source[start])
        return " " if not space and from_such and before and not is_between else space


def cut_document(
    text: str,
    language: str | None,
    longest: int,
    count: Callable[[list[str]], list[int]],
    tags: Collection[str] = (),
) -> CutDocument:
    """Return a document with the spans of its sentences. Line ends end one, too.

    Args:
        text: the document.
        language: code of its language; None where it is not known.
        longest: tokens of a sentence that is not cut any more.
        count: function of texts that returns the number of tokens of each.
        tags: tokens that choose a language. One at the beginning of a line holds from there on.
    """
    spans: list[Span] = []
    read_after: list[str] = []
    dropped: list[Span] = []
    tag, start = "", 0
    for line in text.splitlines(keepends=True):
        first = start
        found = _TAG.match(line)
        if found and found[0] in tags:
            tag = f"{found[0]} "
            first += len(found[0]) + line[found.end() :].startswith(" ")
            dropped.append((start, first))
        for span in _sentences(text, (first, start + len(line)), language):
            pieces = list(_pieces(text, span, longest, count))
            spans += pieces
            read_after += [tag] * len(pieces)
        start += len(line)
    return CutDocument(text, tuple(spans), tuple(read_after), tuple(dropped))


def last_tag(text: str, tags: Collection[str]) -> str:
    """Return the tag that holds at the end of a document, with a space; `""` where none does."""
    found = [line[0] for line in map(_TAG.match, text.splitlines()) if line and line[0] in tags]
    return f"{found[-1]} " if found else ""


def _sentences(text: str, line: Span, language: str | None) -> Iterator[Span]:
    """Yield the spans of the sentences of a line, without the spaces around them."""
    start = line[0]
    for sentence in split_sentences(text[slice(*line)], language):
        end = start + len(sentence)
        # A rule of dashes, or a smiley, is the same in all languages.
        if any(each.isalnum() for each in sentence):
            yield _stripped(text, (start, end))
        start = end


def _pieces(
    text: str, span: Span, longest: int, count: Callable[[list[str]], list[int]]
) -> Iterator[Span]:
    """Yield the span, or where it has too many tokens, those of pieces of like lengths."""
    if span[1] - span[0] < 2 or count([text[slice(*span)]])[0] <= longest:
        yield span
        return
    cut = _cut(text, span)
    for part in ((span[0], cut), (cut, span[1])):
        yield from _pieces(text, _stripped(text, part), longest, count)


def _cut(text: str, span: Span) -> int:
    """Return where to cut a sentence in two: near its middle, after a clause or a word."""
    start, end = span
    middle, quarter = (start + end) // 2, (end - start) // 4
    for ends in (_CLAUSE_END, _SPACE):
        found = ends.finditer(text, start + quarter, end - quarter)
        if cuts := [each.end() for each in found if each.end() < end]:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return next((cut for cut in range(middle, end) if not _joins(text, cut)), middle)


def _joins(text: str, cut: int) -> bool:
    """Whether two characters are seen as one, as a letter and its accent are."""
    return unicodedata.category(text[cut])[0] == "M" or "\u200d" in text[cut - 1 : cut + 1]


def _stripped(text: str, span: Span) -> Span:
    """Return a span without the spaces at its ends."""
    part = text[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    return start, max(start, span[1] - len(part) + len(part.rstrip()))


def _has_no_spaces(character: str) -> bool:
    """Whether a character is of Chinese or Japanese, which are written without spaces."""
    if not character or unicodedata.east_asian_width(character) not in "WF":
        return False
    is_text = unicodedata.category(character)[0] in "LMP"  # emoji are wide, too
    return is_text and not unicodedata.name(character, "").startswith("HANGUL")
