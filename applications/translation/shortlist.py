"""Vocabulary shortlists: the target words that a batch of sentences may be translated with."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import check_counts, shown
from ..store.bad_lines import BadLine, checked
from ..store.files import lines_of, output_file
from ..store.tensors import NpzTensors, Tensors
from ..text import END_ID, PAD_ID, nfc
from .preprocessor import TranslationPreprocessor, as_pairs, distinct_words, encode_checked

if TYPE_CHECKING:
    from scipy import sparse

    from .task import Translator

SPECIAL = END_ID + 1
"""The special tokens, which are in every shortlist: padding, unknown, start, end."""
PAIRS_AT_A_TIME = 2048
FEWEST = 1024
"""The smallest room for the words of a batch, where a list has no size; each has twice as many."""


class Shortlist:
    """The target words that source words may become: a search scores some words in place of all.

    For a batch of sources it takes the `size` target words `y` with the largest expected counts

    $$n(y) = \\sum_s p(y \\mid x_s) + p(y),$$

    where $x_s$ are all tokens of the batch. The search scores these words alone, and probabilities
    are among them: a word outside cannot be written. Without a `size` it takes all words whose
    count is above zero, as Marian does.

    Args:
        preprocessor: of the translator, whose ids the next arguments are about.
        probabilities: `p(y | x)`, a sparse matrix of SciPy `(source ids, target ids)`.
        frequencies: `p(y)`, an array `(target ids,)`.
        size: how many words a batch gets, special tokens included, at most all there are; None for
            all that the batch may need.

    Raises:
        ValueError: where `size` is no positive integer, or shapes do not fit the preprocessor.

    Reference:
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007), section 3.3: candidate lists from
          alignments.
        - [Devlin, 2017](https://arxiv.org/abs/1705.01991): their use in decoders made for speed.

    Example:

    ```python
    from keras_attention.applications.translation import Shortlist, Translator

    sources, targets = ["one two", "two one"] * 8, ["eins zwei", "zwei eins"] * 8
    translator = Translator.from_texts(sources, targets, units=8)
    translator.fit(sources, targets, epochs=1, verbose=0)
    shortlist = Shortlist.learn(translator, sources, targets, size=6)
    print(translator.translate("two one", shortlist=shortlist).text)
    ```
    """

    def __init__(
        self,
        preprocessor: TranslationPreprocessor,
        probabilities: Any,
        frequencies: Any,
        size: int | None = 2048,
    ):
        if size is not None:
            check_counts(size=size)
        sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
        if probabilities.shape != sizes or np.shape(frequencies) != sizes[1:]:
            raise ValueError(
                f"Probabilities of a shortlist should be of shape {sizes}, frequencies of "
                f"{sizes[1:]}, as the vocabularies are. Received: {probabilities.shape} and "
                f"{np.shape(frequencies)}"
            )
        self.preprocessor = preprocessor
        self.probabilities = probabilities.tocsr()
        self.frequencies = np.asarray(frequencies)
        self.size = None if size is None else min(max(size, SPECIAL + 1), sizes[1])

    @classmethod
    def learn(
        cls,
        translator: "Translator",
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        candidates: int = 50,
        size: int = 2048,
    ) -> "Shortlist":
        """Return the shortlist that a translator's own alignments of given translations make.

        `p(y | x)` is the attention that all tokens `y` paid to all tokens `x`, as a share of the
        attention that `x` received.

        Args:
            translator: one with attention, trained.
            sources: sentences, such as those it was trained with.
            targets: their translations.
            candidates: how many target words are kept of a source word, the likeliest.
            size: how many words a batch gets.

        Raises:
            ValueError: where the network has no attention, or there is no sentence.
        """
        from scipy import sparse  # here, as all translators wait for what this module imports

        check_counts(candidates=candidates, size=size)
        sources, targets = as_pairs(sources, targets)
        preprocessor = translator.require_preprocessor()
        if not translator.backbone.has_attention:
            name = type(translator.backbone).__name__
            raise ValueError(f"A shortlist is learned from attention. Received: {name}, without")
        if not len(sources):
            raise ValueError("A shortlist needs sentences to learn from. Received: none")
        sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
        counts, frequencies = sparse.csr_array(sizes, dtype="float64"), np.zeros(sizes[1])
        for first in range(0, len(sources), PAIRS_AT_A_TIME):
            part = slice(first, first + PAIRS_AT_A_TIME)
            # A training that skips or cuts long sentences has them in its data all the same.
            read, _ = encode_checked(
                preprocessor.source_tokenizer, sources[part], "sources", "truncate"
            )
            scored = translator.score(sources[part], targets[part], on_too_long="truncate")
            masses = [np.ravel(each.alignment) for each in scored]
            rows = [np.tile(x, len(y.ids)) for x, y in zip(read, scored, strict=True)]
            columns = [np.repeat(y.ids, len(x)) for x, y in zip(read, scored, strict=True)]
            places = np.concatenate(rows).astype(int), np.concatenate(columns).astype(int)
            counts += sparse.coo_array((np.concatenate(masses).astype(float), places), sizes)
            written = np.array([id for each in scored for id in each.ids], int)
            frequencies += np.bincount(written, minlength=sizes[1])
        totals = np.maximum(counts.sum(axis=1), 1e-9)
        probabilities = _likeliest(sparse.diags_array(1 / totals) @ counts, candidates)
        return cls(preprocessor, probabilities, frequencies / max(1, frequencies.sum()), size)

    def check_fits(self, preprocessor: TranslationPreprocessor) -> None:
        """Raise a ValueError unless a preprocessor has the vocabularies of the shortlist."""
        if self.preprocessor is preprocessor:
            return
        own = [each.vocabulary for each in self.preprocessor.tokenizers]
        if own != [each.vocabulary for each in preprocessor.tokenizers]:
            raise ValueError(
                "A shortlist goes with the vocabularies that it was learned with: learn one with "
                "this translator. Received: a shortlist of other words"
            )

    def words_of(self, source: Any, prefixes: Iterable[Sequence[int]] = ()) -> np.ndarray:
        """Return the target ids `(n,)` for a batch of source ids `(B, S)`, padded with 0.

        They ascend; the special tokens, 0 to 3, come first. The ids of `prefixes`, with which
        translations are to begin, are among them. There are `size`, where the list has one.

        Raises:
            ValueError: where the list is too short for the prefixes.
        """
        source = np.ravel(source)
        wanted = np.unique([id for each in prefixes for id in each]).astype(int)
        if self.size is None:
            return self._all_words_of(np.unique(source[source != PAD_ID]), wanted)
        counts = np.bincount(source[source != PAD_ID], minlength=self.probabilities.shape[0])
        expected = counts @ self.probabilities + self.frequencies
        expected[:SPECIAL] = np.inf
        expected[wanted] = np.inf
        if np.isinf(expected).sum() > self.size:
            raise ValueError(
                "A shortlist should have room for the words of all prefixes of a batch: give it a "
                f"larger `size`, or a smaller `batch_size`. Received: size={self.size} for "
                f"{np.isinf(expected).sum()} words, special tokens included"
            )
        return np.sort(np.argsort(-expected, kind="stable")[: self.size]).astype("int32")

    def _all_words_of(self, source: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        is_in = self.frequencies > 0
        is_in[:SPECIAL] = True
        is_in[wanted] = True
        first, ids = self.probabilities.indptr, self.probabilities.indices
        for word in source.tolist():
            is_in[ids[first[word] : first[word + 1]]] = True
        return np.flatnonzero(is_in).astype("int32")

    def room_for(self, words: Iterable[np.ndarray]) -> int:
        """Return a number of words that the lists of several batches can all be filled up to.

        A graph is traced for each number: there are few.
        """
        if self.size is not None:
            return self.size
        longest = max(map(len, words), default=FEWEST)
        room = max(FEWEST, 1 << (longest - 1).bit_length())
        return min(room, self.probabilities.shape[1])

    @staticmethod
    def filled(words: np.ndarray, count: int) -> np.ndarray:
        """Return a list filled up to a count with padding, which is never written."""
        return np.pad(words, (0, max(0, count - len(words))), constant_values=PAD_ID)

    def save(self, path: Path | str) -> None:
        """Write a new text file: lines of source word, tab, target word, tab, probability.

        Lines whose source word is empty hold the frequencies. A file named .gz is compressed.
        """
        read, written = map(distinct_words, self.preprocessor.tokenizers)
        table = self.probabilities.tocoo()
        with output_file(path) as file:
            for word in np.flatnonzero(self.frequencies):
                print("", written[word], f"{self.frequencies[word]:.4g}", sep="\t", file=file)
            for row, column, share in zip(*table.coords, table.data, strict=True):
                print(read[row], written[column], f"{share:.4g}", sep="\t", file=file)

    def write(self, path: Path) -> None:
        """Write the numbers alone, by ids: the file belongs beside the vocabularies."""
        table = self.probabilities
        arrays = {"first": table.indptr, "words": table.indices, "probabilities": table.data}
        sizes = [0 if self.size is None else self.size]
        np.savez(path, **arrays, frequencies=self.frequencies, size=sizes)

    @classmethod
    def read(cls, path: Path, preprocessor: TranslationPreprocessor) -> "Shortlist":
        """Return a shortlist that `write` wrote.

        Raises:
            UserError: where the file is damaged, or of other vocabularies.
        """
        found = NpzTensors(path)
        missing = {"first", "words", "probabilities", "frequencies", "size"} - set(found.shapes)
        if missing:
            raise found.damaged(f"it has no array {min(missing)}")
        first, words, size = (found.read_integers(each) for each in ("first", "words", "size"))
        shares, frequencies = (found.read(each) for each in ("probabilities", "frequencies"))
        return cls.from_lists(
            found, preprocessor, first, words, shares, frequencies, int(size.sum()) or None
        )

    @classmethod
    def from_lists(
        cls,
        file: Tensors,
        preprocessor: TranslationPreprocessor,
        first: np.ndarray,
        words: np.ndarray,
        shares: np.ndarray,
        frequencies: np.ndarray,
        size: int | None,
    ) -> "Shortlist":
        """Return the shortlist of the lists of a file, one for each source id.

        Args:
            file: the file that they come from.
            preprocessor: of the translator.
            first: where the list of each source id begins, and where the last ends.
            words: the target ids of all lists, one list after the other.
            shares: the probability of each.
            frequencies: `p(y)`, an array `(target ids,)`.
            size: how many words a batch gets; None for all.

        Raises:
            UserError: where they do not fit together, or the vocabularies.
        """
        from scipy import sparse

        sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
        if first.shape != (sizes[0] + 1,):
            raise file.damaged(f"it has {len(first):,} lists, and the model {sizes[0]:,} words")
        is_whole = len(first) and first[0] == 0 and first[-1] == len(words)
        if not is_whole or (np.diff(first) < 0).any():
            raise file.damaged("its lists do not follow one another")
        if words.ndim != 1 or shares.shape != words.shape or frequencies.shape != sizes[1:]:
            raise file.damaged("its arrays do not fit together")
        if words.size and not 0 <= words.min() <= words.max() < sizes[1]:
            raise file.damaged(f"it names a word outside of the {sizes[1]:,} of the model")
        parts = shares, words.astype("int32"), first.astype("int32")
        return cls(preprocessor, sparse.csr_array(parts, sizes), frequencies, size)

    @classmethod
    def load(
        cls, path: Path | str, preprocessor: TranslationPreprocessor, size: int = 2048
    ) -> "Shortlist":
        """Return a shortlist that `save` wrote.

        Args:
            path: the file, perhaps compressed as .gz.
            preprocessor: of the translator that it was learned with, or one of its vocabularies.
            size: how many words a batch gets.

        Raises:
            ValueError: where the file is no shortlist, or one of other vocabularies.
        """
        from scipy import sparse

        sides = [
            {word: id for id, word in enumerate(distinct_words(x))} for x in preprocessor.tokenizers
        ]
        entries = list(_entries(path, {**sides[0], "": -1}, sides[1]))
        rows, columns, shares = (np.array(each) for each in zip(*entries, strict=True))
        is_pair, sizes = rows >= 0, (len(sides[0]), len(sides[1]))
        frequencies = np.bincount(columns[~is_pair], shares[~is_pair], sizes[1])
        places = rows[is_pair], columns[is_pair]
        return cls(
            preprocessor, sparse.coo_array((shares[is_pair], places), sizes), frequencies, size
        )


def _entries(
    path: Path | str, read: Mapping[str, int], written: Mapping[str, int]
) -> Iterator[tuple[int, int, float]]:
    """Yield source id, target id and probability of each line of a file."""

    def entry(numbered):
        number, line = numbered
        *words, share = nfc(line).split("\t")
        where = f"{path}, line {number}"
        try:
            source, target, probability = *words, float(share)
        except ValueError:
            expected = "expected source word, tab, target word, tab, probability"
            raise BadLine(where, f"{expected}. Received: {shown(line)}") from None
        if not 0 <= probability <= 1:
            raise BadLine(where, f"expected a probability. Received: {probability}")
        for word, known, side in ((source, read, "source"), (target, written, "target")):
            if word not in known:
                problem = f"{shown(word)} is no word of the {side} vocabulary"
                raise BadLine(where, problem, "a shortlist goes with its own vocabularies")
        return read[source], written[target], probability

    yield from checked(enumerate(lines_of(path), 1), entry)


def _likeliest(table: "sparse.csr_array", count: int) -> "sparse.csr_array":
    """Return a matrix with the `count` largest entries of each row."""
    table = table.tocsr()
    for first, last in zip(table.indptr[:-1], table.indptr[1:], strict=True):
        if last - first > count:
            row = table.data[first:last]
            row[np.argsort(-row, kind="stable")[count:]] = 0
    table.eliminate_zeros()
    return table
