"""Whole words with a vocabulary that people can read."""

import collections
import re
from collections.abc import Iterable, Sequence

from keras_attention.text import word_rules
from keras_attention.text.special import SPECIAL_TOKENS, UNK_ID
from keras_attention.text.tokenizer import Tokenizer, check_lines, until_end

SPLITS = ("unicode", "whitespace")


class WordTokenizer(Tokenizer):
    """Words and punctuation marks, each with an id of its own.

    With `split="unicode"` a word is a run of letters, marks and numbers of any script, and every
    other character is a token. One that touches its neighbour bears the joiner ￭ on that side
    (`don't` -> `don ￭'￭ t`), so that `decode` puts back what was there, spaces apart.
    With `split="whitespace"` the text is taken as tokenised before, and `decode` leaves it so.
    Scripts without spaces between words (Chinese, Japanese, Thai) want one of two: text that
    another program has split, or `SentencePieceTokenizer`.

    Args:
        words: the words, most wanted first; ids are given from 4 on.
        lowercase: put text into lower case first, character by character.
        split: `"unicode"` or `"whitespace"`.

    Raises:
        ValueError: where a word is empty, holds a space or comes twice.

    Example:

    ```python
    from keras_attention.text import WordTokenizer

    tokenizer = WordTokenizer.train(["Yes, no.", "Yes!"], vocabulary_size=100)
    tokenizer.tokens("No, yes!")  # ["No", "￭,", "yes", "￭!"]
    tokenizer.decode(tokenizer.encode(["Yes, Yes!"]))  # ["Yes, Yes!"]
    ```
    """

    kind = "words"
    suffix = ".txt"

    def __init__(self, words: Sequence[str], lowercase: bool = False, split: str = "unicode"):
        check_lines(words, "words")
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
        self.lowercase = lowercase
        self.split = split
        self._vocabulary = [*SPECIAL_TOKENS, *words]
        # The special tokens stay out: typed in a text, they are words like others.
        self._ids = {word: index + len(SPECIAL_TOKENS) for index, word in enumerate(words)}
        self._lower = str.maketrans(word_rules.lowercase_map()) if lowercase else {}
        self._split_rules = (
            word_rules.split_rules() if split == "unicode" else word_rules.SPACE_RULES
        )
        self._join_rules = word_rules.JOIN_RULES if split == "unicode" else ()
        if len(self._ids) != len(words):
            twice = collections.Counter(words).most_common(1)[0][0]
            raise ValueError(f"Words of a vocabulary must differ. Received twice: {twice!r}")
        wrong = [word for word in words if not word or re.search(word_rules.SPACE, word)]
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
            vocabulary_size: the most ids to give, the four special ones included; a text with
                fewer words gives a smaller vocabulary.
            min_count: words rarer than this are left out.
            lowercase: put text into lower case, in training and in use.
            split: `"unicode"` or `"whitespace"`.

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
        try:
            return [self.join([self._vocabulary[i] for i in until_end(row)]) for row in ids]
        except IndexError:
            raise ValueError(
                f"Expected ids below the vocabulary's size {self.vocabulary_size}. "
                f"Received: {max(max(row, default=0) for row in ids)}"
            ) from None

    def tokens(self, line: str) -> list[str]:
        text = word_rules.apply(self._split_rules, line.translate(self._lower))
        return text.split(" ") if text else []

    def join(self, tokens: Sequence[str]) -> str:
        return word_rules.apply(self._join_rules, " ".join(tokens))

    def in_graph(self):
        from keras_attention.text.in_graph import WordsInGraph

        lower = word_rules.lowercase_map() if self.lowercase else {}
        return WordsInGraph(self._vocabulary, lower, self._split_rules, self._join_rules)

    def _content(self) -> bytes:
        return "".join(f"{word}\n" for word in self._vocabulary).encode()

    def _options(self) -> dict:
        return {"lowercase": self.lowercase, "split": self.split}

    @classmethod
    def _restore(cls, content: bytes, options: dict) -> "WordTokenizer":
        # Not splitlines(): only the line feed ends a word.
        words = content.decode().split("\n")[len(SPECIAL_TOKENS) : -1]
        return cls(words, lowercase=options["lowercase"], split=options["split"])
