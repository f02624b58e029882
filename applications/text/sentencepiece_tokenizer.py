"""Subword pieces learnt from the user's own text."""

import functools
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from .in_web import pieces_in_web
from .normalization import nfc
from .segmentation import SegmentationSampler
from .tokenizer import (
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNK_ID,
    Tokenizer,
    check_lines,
    until_end,
)

if TYPE_CHECKING:
    from .in_graph import OwnPiecesInGraph, SentencePieceInGraph

MODEL_TYPES = ("unigram", "bpe")
_SPACE = "\u2581"
TAG = r">>[^<>\s]+<<"
"""What a tag of a language looks like, such as `>>fra<<`: a regular expression of re and RE2."""
_TAG = re.compile(TAG)
# Fewer lines are worth no threads.
FEW_LINES = 64
# Training time grows with the square of the longest line: longer ones are cut, at spaces if any.
LONGEST_LINE = 1000
_LONG_WORD = re.compile(rf"([^ ]{{{LONGEST_LINE}}})(?=[^ ])")


class SentencePieceTokenizer(Tokenizer):
    """Subword pieces by SentencePiece, the vocabulary learnt from raw text.

    The model itself normalises text (NFKC, and case where `lowercase=True`), but only where marks
    come in Unicode's order, so that all text comes into form C first (`nfc`). A space is part of
    the piece after it, written "▁".

    Models of others number their pieces in another way, and may share a vocabulary between two
    languages with a model for each. With `pieces`, text is cut by the model, and a piece has the id
    that its position in `pieces` gives, whatever its id in the model.

    Args:
        model: the content of a SentencePiece `.model` file. Without `pieces`, its padding, unknown,
            start and end must have the ids 0, 1, 2 and 3. `train` makes one.
        pieces: the pieces that have ids, in order from id 4 on. All others are unknown. Those that
            look like `>>fra<<` are tags of languages: a text may begin with one.

    Raises:
        ValueError: where `model` is no SentencePiece model, its special ids are others and there
            are no `pieces`, or a piece is no text or comes twice.

    Reference:
        [Kudo & Richardson, 2018](https://arxiv.org/abs/1808.06226)

    Example:

    >>> lines = ["the cat sat on the mat", "the dog sat on the log"]
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocabulary_size=19)
    >>> tokenizer.decode(tokenizer.encode(["the cat sat"]))
    ['the cat sat']
    """

    kind = "sentencepiece"
    suffix = ".model"

    def __init__(self, model: bytes, pieces: Sequence[str] | None = None):
        self._model = bytes(model)
        if not self._model:  # which the library takes
            raise ValueError("Expected a SentencePiece model. Received: 0 bytes")
        self._pieces = None if pieces is None else check_pieces(pieces)
        try:
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.LoadFromSerializedProto(self._model)  # which refuses empty ones, too
        except RuntimeError as error:
            raise ValueError(f"Expected a SentencePiece model. Received: {error}") from error
        processor = self._processor
        if self._pieces is not None:
            first = len(SPECIAL_TOKENS)
            self._ids = {piece: first + place for place, piece in enumerate(self._pieces)}
            self._has_tags = any(map(_TAG.fullmatch, self._pieces))
            return
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNK_ID, START_ID, END_ID):
            raise ValueError(
                "Expected a SentencePiece model whose padding, unknown, start and end have the "
                f"ids 0, 1, 2, 3. Received: {', '.join(map(str, ids))}; train it with "
                "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or give `pieces` ids of your own."
            )

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocabulary_size: int,
        model_type: str = "unigram",
        lowercase: bool = False,
        character_coverage: float = 1.0,
        split_digits: bool = True,
    ) -> "SentencePieceTokenizer":
        """Learn pieces from `lines`, in memory; the same lines always give the same pieces.

        Args:
            lines: sentences; blank ones are passed over, and longer words than 1,000 letters cut.
            vocabulary_size: number of ids, the four special ones included; a warning says how many
                there are where the text is too small for it.
            model_type: `"unigram"` or `"bpe"`.
            lowercase: fold case, in training and in use.
            character_coverage: the part of the text's characters that get an id; 0.9995 suits
                scripts with thousands of them.
            split_digits: each digit is a piece of its own, so that numbers can be copied.

        Raises:
            ValueError: where there is no text, or `vocabulary_size` does not hold the special
                ids and the characters of the text.
        """
        check_lines(lines, "lines")
        if model_type not in MODEL_TYPES:
            raise ValueError(
                f"`model_type` must be one of {list(MODEL_TYPES)}. Received: {model_type!r}"
            )
        kept = _Kept(lines)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(kept),
                model_writer=model,
                vocab_size=vocabulary_size,
                model_type=model_type,
                character_coverage=character_coverage,
                split_digits=split_digits,
                normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
                hard_vocab_limit=False,
                max_sentence_length=1 << 24,  # the default passes over longer lines in silence
                num_threads=16,  # the pieces depend on it
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                minloglevel=2,
            )
        except RuntimeError as error:
            if kept.error is None:
                raise ValueError(_reason(error, kept.count, vocabulary_size)) from error
        if kept.error is not None:
            raise kept.error
        tokenizer = cls(_with_exact_scores(model.getvalue()))
        if tokenizer.vocabulary_size < vocabulary_size:
            warnings.warn(
                f"The text is too small for {vocabulary_size} pieces; the vocabulary has all "
                f"{tokenizer.vocabulary_size} that it gives.",
                stacklevel=2,
            )
        return tokenizer

    @property
    def vocabulary_size(self) -> int:
        if self._pieces is not None:
            return len(SPECIAL_TOKENS) + len(self._pieces)
        return self._processor.vocab_size()

    @property
    def vocabulary(self) -> list[str]:
        if self._pieces is not None:
            return [*SPECIAL_TOKENS, *self._pieces]
        return self._processor.id_to_piece(list(range(self.vocabulary_size)))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        check_lines(lines, "encode")
        lines = [nfc(line) for line in lines]
        if self._pieces is None:
            return _mapped(self._processor.encode, lines)
        return [[self._ids.get(piece, UNK_ID) for piece in row] for row in self._cut(lines)]

    def sample(self, lines: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
        """Return random pieces of each line, the same ones for the same seed.

        A model that has trained with several segmentations of its sentences is less bound to one.

        Args:
            lines: sentences.
            alpha: from 0 to 1, with opposite meanings. Of `"bpe"` the probability that a merge is
                left out: 0 gives the pieces of `encode`, 1 single characters. Of `"unigram"` the
                exponent of a segmentation's probability: 0 takes all alike, 1 each as often as the
                model expects it, which is nearer to `encode`.
            seed: of the random numbers.

        Reference:
            [Kudo, 2018](https://arxiv.org/abs/1804.10959), for unigram;
            [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), for BPE
        """
        check_lines(lines, "sample")
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"`alpha` should lie in [0, 1]. Received: alpha={alpha}")
        sampler = SegmentationSampler(self._model, alpha, seed)
        lines = [nfc(line) for line in lines]
        if self._pieces is None:
            return list(sampler(lines))
        tags, texts = self._tags_and_texts(lines)
        # The sampler gives ids of the model.
        words = self._processor.id_to_piece(list(range(self._processor.vocab_size())))
        own = [self._ids.get(word, UNK_ID) for word in words]
        return [
            [self._ids.get(each, UNK_ID) for each in tag] + [own[each] for each in ids]
            for tag, ids in zip(tags, sampler(texts), strict=True)
        ]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        rows = until_end(ids, self.vocabulary_size)
        # Folding case can leave a letter beside its mark.
        if self._pieces is None:
            return [nfc(text) for text in _mapped(self._processor.decode, rows)]
        words = self.vocabulary
        texts = _mapped(self._processor.decode, [[words[each] for each in row] for row in rows])
        # The model leaves spaces as they are in pieces that it does not know.
        return [nfc(text.removeprefix(_SPACE).replace(_SPACE, " ")) for text in texts]

    def tokens(self, line: str) -> list[str]:
        return self._cut([nfc(line)])[0]

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens).replace(_SPACE, " ").removeprefix(" ")

    def in_graph(self) -> "SentencePieceInGraph | OwnPiecesInGraph":
        from .in_graph import OwnPiecesInGraph, SentencePieceInGraph

        if self._pieces is None:
            return SentencePieceInGraph(self._model)
        return OwnPiecesInGraph(self._model, self.vocabulary, TAG if self._has_tags else None)

    def in_web(self) -> dict[str, Any]:
        has_own_ids = self._pieces is not None
        tag = TAG if has_own_ids and self._has_tags else None
        return pieces_in_web(self._model, self.vocabulary, has_own_ids, tag)

    def _cut(self, lines: list[str]) -> list[list[str]]:
        """Return the pieces of lines, unknown ones as the text has them."""
        tags, texts = self._tags_and_texts(lines)
        cut = _mapped(functools.partial(self._processor.encode, out_type=str), texts)
        return [tag + pieces for tag, pieces in zip(tags, cut, strict=True)]

    def _tags_and_texts(self, lines: Iterable[str]) -> tuple[list[list[str]], list[str]]:
        """Return the tag that each line begins with, a list of one or none, and the rest."""
        lines = list(lines)
        if self._pieces is None or not self._has_tags:
            return [[] for _ in lines], lines
        found = [(match[0] if (match := _TAG.match(line)) else "") for line in lines]
        rest = [line.removeprefix(tag) for tag, line in zip(found, lines, strict=True)]
        return [[tag] if tag else [] for tag in found], rest

    def _content(self) -> bytes:
        return self._model

    def _options(self) -> dict:
        return {} if self._pieces is None else {"pieces": self._pieces}

    @classmethod
    def _restore(cls, content: bytes, options: dict) -> "SentencePieceTokenizer":
        return cls(content, options.get("pieces"))


def check_pieces(pieces: Any) -> list[str]:
    """Return pieces as a list; refuse what is no text, and what comes twice."""
    if isinstance(pieces, (str, bytes)) or not isinstance(pieces, Sequence):
        raise ValueError(f"`pieces` must be a list of strings. Received: {str(pieces)[:80]!r}")
    for place, piece in enumerate(pieces):
        if not isinstance(piece, str) or not piece:
            raise ValueError(
                "`pieces` must be strings that are not empty. "
                f"Received: pieces[{place}]={str(piece)[:80]!r}"
            )
    if len(set(pieces)) < len(pieces):
        twice = next(piece for piece, count in Counter(pieces).items() if count > 1)
        raise ValueError(f"`pieces` must be different ones. Received: {twice[:80]!r} twice or more")
    return list(pieces)


def _mapped(function: Callable, items: list) -> list:
    """Map a function of a line or of many, which starts threads for a list: that takes 0.1 ms."""
    return [function(item) for item in items] if len(items) < FEW_LINES else function(items)


class _Kept:
    """The lines in parts of about `LONGEST_LINE` letters, and the error that ended them, if any."""

    def __init__(self, lines: Iterable[str]):
        self.lines = lines
        self.count = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for line in map(nfc, self.lines):
                if line.replace(_SPACE, " ").strip():
                    self.count += 1
                    yield from [line] if len(line) <= LONGEST_LINE else _parts(line)
        except Exception as error:
            self.error = error


def _parts(line: str) -> Iterator[str]:
    """Yield a long line in parts, cut at spaces, and where a word is too long."""
    part, size = [], 0
    for word in _LONG_WORD.sub(r"\1 ", line).split(" "):
        part.append(word)
        size += len(word) + 1
        if size > LONGEST_LINE:
            yield " ".join(part)
            part, size = [], 0
    yield " ".join(part)


def _with_exact_scores(model: bytes) -> bytes:
    """Round scores to multiples of 2^-10: ties then do not depend on the order of a float32 sum."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * 1024) / 1024
    return proto.SerializeToString()


def _reason(error: RuntimeError, lines: int, vocabulary_size: int) -> str:
    if not lines:
        return "Training a tokenizer needs text. Received: no line that is not blank"
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if needed or vocabulary_size < 5:
        return (
            "`vocabulary_size` must hold the four special ids and every character of the text"
            f"{f', {needed[1]} in all' if needed else ''}. Received: {vocabulary_size}; a "
            "`character_coverage` below 1 leaves rare characters out."
        )
    return f"SentencePiece could not learn from this text. Received: {error}"
