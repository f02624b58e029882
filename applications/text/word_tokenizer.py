r"""Whole words with a vocabulary that people can read.

Rules cut text into words and put it together again: regular expressions that Python's `re` and
TensorFlow's RE2 both read. They name every character that they mean: the engines know different
versions of Unicode, and `\w` leaves out the vowel signs of Indic scripts.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .in_web import words_in_web
from .normalization import nfc
from .tokenizer import SPECIAL_TOKENS, UNK_ID, Rules, Tokenizer, check_lines, until_end

if TYPE_CHECKING:
    from .in_graph import WordsInGraph

SPLITS = ("unicode", "whitespace")
JOINER = "\uffed"
# Controls, spaces and line separators of Unicode; \x01 and \x02, the rules' own marks, are in it.
SPACE = "[\\x00-\\x20\\x7f-\\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SPACE_RULES = ((SPACE + "+", " "), ("^ | $", ""))
JOIN_RULES = ((f"{JOINER}? {JOINER}|{JOINER} ", ""), (f"^{JOINER}|{JOINER}$", ""))


class WordTokenizer(Tokenizer):
    """Words and punctuation marks, each with an id of its own.

    With `split="unicode"` a word is a run of letters, marks and numbers of any script, and every
    other character is a token. One that touches its neighbour bears the joiner ￭ on that side
    (`don't` -> `don ￭'￭ t`), so that `decode` needs no guess. With `split="whitespace"` the text
    must be tokenised already, as Chinese or Thai.

    All text comes into Unicode's form C first (`nfc`), so that a word is the same however its
    accents or syllables are typed; what `decode` and `tokens` give is in that form.

    Args:
        words: the words, most wanted first; ids are given from 4 on. They come into form C.
        lowercase: put text into lower case first, character by character.
        split: `"unicode"` or `"whitespace"`.

    Raises:
        ValueError: where a word is empty, holds a space or comes twice, be it in another form.

    Example:

    >>> tokenizer = WordTokenizer.train(["Yes, no.", "Yes!"], vocabulary_size=100)
    >>> tokenizer.tokens("No, yes!")
    ['No', '￭,', 'yes', '￭!']
    >>> tokenizer.decode(tokenizer.encode(["Yes, Yes!"]))
    ['Yes, Yes!']
    """

    kind = "words"
    suffix = ".txt"

    def __init__(self, words: Sequence[str], lowercase: bool = False, split: str = "unicode"):
        check_lines(words, "words")
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
        self.lowercase = lowercase
        self.split = split
        words = [nfc(word) for word in words]
        self._vocabulary = [*SPECIAL_TOKENS, *words]
        # The special tokens stay out: typed in a text, they are words like others.
        self._ids = {word: index + len(SPECIAL_TOKENS) for index, word in enumerate(words)}
        self._lower = str.maketrans(_lowercase_map()) if lowercase else {}
        self._split_rules = _split_rules() if split == "unicode" else SPACE_RULES
        self._join_rules = JOIN_RULES if split == "unicode" else ()
        if len(self._ids) != len(words):
            twice = collections.Counter(words).most_common(1)[0][0]
            raise ValueError(f"Words of a vocabulary must differ. Received twice: {twice!r}")
        wrong = [word for word in words if not word or re.search(SPACE, word)]
        if wrong:
            raise ValueError(
                "Words of a vocabulary must be non-empty and without spaces. "
                f"Received: {wrong[0]!r}"
            )

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocabulary_size: int,
        min_count: int = 1,
        lowercase: bool = False,
        split: str = "unicode",
    ) -> "WordTokenizer":
        """Take the most frequent words of `lines`, equally frequent ones in alphabetical order.

        Args:
            lines: sentences.
            vocabulary_size: the most ids to give, the four special ones included.
            min_count: words rarer than this are left out.
            lowercase, split: As of the class, in training and in use.

        Raises:
            ValueError: where no word is left, or `vocabulary_size` does not hold one.
        """
        check_lines(lines, "lines")
        if vocabulary_size <= len(SPECIAL_TOKENS):
            raise ValueError(
                f"`vocabulary_size` must be above {len(SPECIAL_TOKENS)}, the number of special "
                f"ids. Received: {vocabulary_size}"
            )
        splitter = cls([], lowercase=lowercase, split=split)
        counts = collections.Counter(token for line in lines for token in splitter.tokens(line))
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        words = [word for word, count in ranked if count >= min_count]
        if not words:
            raise ValueError(
                f"No word of the text comes at least {min_count} times (`min_count`). "
                f"Received: {len(counts)} different words"
            )
        return cls(words[: vocabulary_size - len(SPECIAL_TOKENS)], lowercase, split)

    @property
    def vocabulary_size(self) -> int:
        return len(self._vocabulary)

    @property
    def vocabulary(self) -> list[str]:
        return list(self._vocabulary)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        check_lines(lines, "encode")
        return [[self._ids.get(token, UNK_ID) for token in self.tokens(line)] for line in lines]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        rows = until_end(ids, self.vocabulary_size)
        return [self.join([self._vocabulary[i] for i in row]) for row in rows]

    def tokens(self, line: str) -> list[str]:
        # Lower case first: a small letter may hold a mark that its capital cannot.
        text = _apply(self._split_rules, nfc(line.translate(self._lower)))
        return text.split(" ") if text else []

    def join(self, tokens: Sequence[str]) -> str:
        return _apply(self._join_rules, " ".join(tokens))

    def in_graph(self) -> "WordsInGraph":
        from .in_graph import WordsInGraph

        lower = _lowercase_map() if self.lowercase else {}
        return WordsInGraph(self._vocabulary, lower, self._split_rules, self._join_rules)

    def in_web(self) -> dict[str, Any]:
        lower = _lowercase_map() if self.lowercase else {}
        return words_in_web(self._vocabulary, lower, self._split_rules, self._join_rules)

    def _content(self) -> bytes:
        return "".join(f"{word}\n" for word in self._vocabulary).encode()

    def _options(self) -> dict:
        return {"lowercase": self.lowercase, "split": self.split}

    @classmethod
    def _restore(cls, content: bytes, options: dict) -> "WordTokenizer":
        # Not splitlines(): only the line feed ends a word.
        words = content.decode().split("\n")[len(SPECIAL_TOKENS) : -1]
        return cls(words, lowercase=options["lowercase"], split=options["split"])


@functools.cache
def _split_rules() -> Rules:
    """Return the rules that turn text into tokens with one space between them."""
    mark = f"([^ {word_characters()}])"
    return SPACE_RULES + (
        (JOINER, "\u25a0"),  # the joiner in the text: the same square in full width
        (mark, "\x01\\1\x02"),
        (" \x01", " "),
        ("\x02 ", " "),
        ("^\x01|\x02$", ""),
        ("\x02\x01|\x01", f" {JOINER}"),
        ("\x02", f"{JOINER} "),
    )


def _apply(rules: Rules, text: str) -> str:
    """Return `text` after every rule in turn."""
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


def _assigned() -> Iterable[int]:
    """Return the codes that may be letters. Other planes are empty or private."""
    return itertools.chain(range(0x40000), range(0xE0000, 0xE1000))


@functools.cache
def _lowercase_map() -> dict[str, str]:
    """Return the lower case of each character by itself: a final sigma is σ too."""
    pairs = ((character, character.lower()) for character in map(chr, _assigned()))
    return {character: lower for character, lower in pairs if lower != character}


def word_characters() -> str:
    """Return ranges of a regular expression: letters, marks, numbers, `_`, the two joiners."""
    inside = [
        code
        for code in _assigned()
        if unicodedata.category(chr(code))[0] in "LMN" or code in (0x5F, 0x200C, 0x200D)
    ]
    ranges = []
    for _, group in itertools.groupby(enumerate(inside), lambda pair: pair[1] - pair[0]):
        codes = [code for _, code in group]
        ranges.append(f"{chr(codes[0])}-{chr(codes[-1])}")
    return "".join(ranges)
