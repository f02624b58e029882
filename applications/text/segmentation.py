"""Random segmentations of text into the pieces of a SentencePiece model.

SentencePiece draws them too, but its seed does not fix them: since 0.2.2 each process gets others.
"""

import functools
import math
import random
import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SPACE = "\u2581"
# As in SentencePiece: an unknown character is this much less likely than the rarest piece.
_UNKNOWN_PENALTY = 10.0
_NORMAL, _UNKNOWN, _USER_DEFINED, _BYTE = 1, 2, 4, 6
_UNIGRAM, _BPE = 1, 2


class SegmentationSampler:
    """Draws the pieces of lines at random, the same ones for the same seed on any machine.

    Unigram: a segmentation `x` of a word has the probability `p(x)^alpha / sum_x' p(x')^alpha`;
    the sum runs forward over the word, and pieces are drawn backward from its end.
    BPE: before each merge, each pair that could be merged is left out with probability `alpha`;
    the best of the others is merged, until none is left.

    Args:
        model: the content of a SentencePiece model.
        alpha: as in `SentencePieceTokenizer.sample`.
        seed: of the random numbers.

    Raises:
        ValueError: where the model is neither unigram nor BPE.

    Reference:
        [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.2, over all segmentations;
        [Provilkov et al., 2020](https://arxiv.org/abs/1910.13267), algorithm 1
    """

    def __init__(self, model: bytes, alpha: float, seed: int):
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        kind = proto.trainer_spec.model_type
        if kind not in (_UNIGRAM, _BPE):
            raise ValueError(
                "Only a unigram or BPE model has random pieces. Received: a model of type "
                f"{proto.trainer_spec.ModelType.Name(kind).lower()}"
            )
        self.alpha = alpha
        self.random = random.Random(seed).random
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces = list(enumerate(proto.pieces))
        self.pieces = {p.piece: (i, p.score) for i, p in pieces if p.type == _NORMAL}
        self.unknown = next(i for i, p in pieces if p.type == _UNKNOWN)
        self.bytes = [i for i, p in pieces if p.type == _BYTE]
        self.fixed = {p.piece: i for i, p in pieces if p.type == _USER_DEFINED}
        self.longest = max(map(len, self.pieces), default=1)
        scores = [score for _, score in self.pieces.values()]
        self.unknown_score = min(scores, default=0.0) - _UNKNOWN_PENALTY
        self.draw = self._unigram if kind == _UNIGRAM else self._bpe
        # Where no piece has a space inside, words are drawn apart.
        inside = any(SPACE in piece[1:] for piece in self.pieces)
        word = ".+" if inside else f"{SPACE}?[^{SPACE}]*"
        fixed = "|".join(map(re.escape, sorted(self.fixed, key=len, reverse=True)))
        self.parts = re.compile(f"({fixed})" if fixed else "(?!)")
        self.words = re.compile(word, re.DOTALL)
        self.lattice = functools.cache(self._lattice)

    def __call__(self, lines: Iterable[str]) -> Iterator[list[int]]:
        """Yield the ids of each line."""
        for line in lines:
            ids: list[int] = []
            for part in self.parts.split(self.processor.normalize(line)):
                if part in self.fixed:
                    ids.append(self.fixed[part])
                else:
                    for word in self.words.findall(part):
                        ids += self.draw(word)
            # Unknown characters in a row are one unknown piece.
            runs = groupby(ids, key=self.unknown.__eq__)
            yield [each for same, run in runs for each in ([self.unknown] if same else run)]

    def _unigram(self, word: str) -> list[int]:
        ends, end, drawn = self.lattice(word), len(word), []
        while end:
            sums, choices = ends[end]
            end, ids = choices[bisect(sums, self.random())]
            drawn.append(ids)
        return [each for ids in reversed(drawn) for each in ids]

    def _lattice(self, word: str) -> list[tuple[list, list]]:
        """Return, for each end, the sums of probabilities and (start, ids) of the pieces there."""
        forward: list[float] = [0.0]
        ends: list[tuple[list, list]] = [([], [])]
        for end in range(1, len(word) + 1):
            logs, choices = [], []
            for start in range(max(0, end - self.longest), end):
                piece = word[start:end]
                if piece in self.pieces or start == end - 1:
                    _, score = self.pieces.get(piece, (self.unknown, self.unknown_score))
                    logs.append(forward[start] + self.alpha * score)
                    choices.append((start, self._ids(piece)))
            top = max(logs)
            total = sum(math.exp(log - top) for log in logs)
            forward.append(top + math.log(total))
            probabilities = [math.exp(log - forward[end]) for log in logs]
            # Without the last sum, which may be a little less than 1.
            ends.append((list(accumulate(probabilities[:-1])), choices))
        return ends

    def _bpe(self, word: str) -> list[int]:
        symbols = list(word)
        while True:
            best, place = -math.inf, None
            for i in range(len(symbols) - 1):
                known = self.pieces.get(symbols[i] + symbols[i + 1])
                if known and known[1] > best and self.random() >= self.alpha:
                    best, place = known[1], i
            if place is None:
                return [each for symbol in symbols for each in self._ids(symbol)]
            symbols[place : place + 2] = ["".join(symbols[place : place + 2])]

    def _ids(self, piece: str) -> list[int]:
        if piece in self.pieces:
            return [self.pieces[piece][0]]
        return [self.bytes[each] for each in piece.encode()] if self.bytes else [self.unknown]
