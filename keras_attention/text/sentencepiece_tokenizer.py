"""Subword pieces learnt from the user's own text."""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from .normalization import nfc
from .segmentation import SegmentationSampler
from .tokenizer import END_ID, PAD_ID, START_ID, UNK_ID, Tokenizer, check_lines, until_end

if TYPE_CHECKING:
    from .in_graph import SentencePieceInGraph

MODEL_TYPES = ("unigram", "bpe")
_SPACE = "\u2581"
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

    Args:
        model: the content of a SentencePiece `.model` file whose padding, unknown, start and end
            have the ids 0, 1, 2 and 3. `train` makes one.

    Raises:
        ValueError: where `model` is no SentencePiece model, or its special ids are others.

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

    def __init__(self, model: bytes):
        self._model = bytes(model)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        except RuntimeError as error:
            raise ValueError(f"Expected a SentencePiece model. Received: {error}") from error
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNK_ID, START_ID, END_ID):
            raise ValueError(
                "Expected a SentencePiece model whose padding, unknown, start and end have the "
                f"ids 0, 1, 2, 3. Received: {', '.join(map(str, ids))}; train it with "
                "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3."
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
        return self._processor.vocab_size()

    @property
    def vocabulary(self) -> list[str]:
        return self._processor.id_to_piece(list(range(self.vocabulary_size)))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        check_lines(lines, "encode")
        return _mapped(self._processor.encode, [nfc(line) for line in lines])

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
        return list(SegmentationSampler(self._model, alpha, seed)(map(nfc, lines)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        lines = _mapped(self._processor.decode, until_end(ids, self.vocabulary_size))
        return [nfc(line) for line in lines]  # folding case can leave a letter beside its mark

    def tokens(self, line: str) -> list[str]:
        return self._processor.encode(nfc(line), out_type=str)

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens).replace(_SPACE, " ").removeprefix(" ")

    def in_graph(self) -> "SentencePieceInGraph":
        from .in_graph import SentencePieceInGraph

        return SentencePieceInGraph(self._model)

    def _content(self) -> bytes:
        return self._model

    @classmethod
    def _restore(cls, content: bytes, options: dict) -> "SentencePieceTokenizer":
        return cls(content)


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
