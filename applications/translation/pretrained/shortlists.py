"""Marian's binary shortlist, `lex*.bin`: the target words that each source word may become."""

from pathlib import Path

import numpy as np

from ...errors import UserError
from ...store.tensors import Buffer, Tensors
from ..preprocessor import TranslationPreprocessor
from ..shortlist import SPECIAL, Shortlist
from .foreign import Vocabulary

MAGIC = 0xF11A48D5013417F5


class ShortlistFile(Tensors):
    """A shortlist of Marian: a head, where each list begins, and the words of all lists.

    The head has six numbers: a magic one, a checksum, how many of the first target words are in
    every list, how many words a list has at most, how many beginnings and how many words follow.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        buffer = Buffer(path)
        head = [int(each) for each in buffer.numbers(6, "<u8")]
        if head[0] != MAGIC:
            raise self.damaged("it does not begin as a shortlist of Marian")
        self.always, beginnings, words = head[2], head[4], head[5]
        left = len(buffer.content) - buffer.position
        if left != 8 * beginnings + 4 * words:
            raise self.damaged(
                f"it says that {beginnings:,} beginnings and {words:,} words follow, which are "
                f"{8 * beginnings + 4 * words:,} bytes, and {left:,} do"
            )
        self._arrays = {
            "first": buffer.numbers(beginnings, "<u8"),
            "words": buffer.numbers(words, "<u4"),
        }
        for name, array in self._arrays.items():
            self.note(name, array.shape)

    def _read(self, name: str) -> np.ndarray:
        return self._arrays[name]


def read_shortlist(
    path: Path,
    source: Vocabulary,
    target: Vocabulary,
    preprocessor: TranslationPreprocessor,
    is_shared: bool,
) -> Shortlist:
    """Return the shortlist of a file, in the ids here.

    Args:
        path: the file.
        source, target: the vocabularies of the model that it belongs to.
        preprocessor: the same vocabularies here.
        is_shared: whether both sides have one vocabulary: a word may then stay what it is.

    Raises:
        UserError: where the file is damaged, or belongs to other vocabularies.
    """
    from scipy import sparse  # here, as all translators wait for what this module imports

    file = ShortlistFile(path)
    first, words = file.read_integers("first"), file.read_integers("words")
    counts = len(source.words), len(target.words)
    if len(first) != counts[0] + 1:
        raise UserError(
            f"{path} is the shortlist of another model: it has lists for {len(first) - 1:,} words, "
            f"and the model {counts[0]:,}. Take it out of the folder to go without."
        )
    if first[0] != 0 or first[-1] != len(words) or (np.diff(first) < 0).any():
        raise file.damaged("its lists do not follow one another")
    if words.size and words.max() >= counts[1]:
        raise file.damaged(f"it names a word outside of the {counts[1]:,} of the model")
    ours = _ids_here(target)
    rows = np.repeat(_ids_here(source), np.diff(first))
    words = ours[words]
    if is_shared:
        itself = np.arange(SPECIAL, len(target.rows))
        rows, words = np.append(rows, itself), np.append(words, itself)
    frequencies = np.zeros(len(target.rows), "float32")
    frequencies[ours[: min(file.always, counts[1])]] = 1
    shape = len(source.rows), len(target.rows)
    table = sparse.coo_array((np.ones(len(words), "float32"), (rows, words)), shape)
    return Shortlist(preprocessor, table, frequencies, size=None)


def _ids_here(vocabulary: Vocabulary) -> np.ndarray:
    """Return the id here for each id there."""
    rows = vocabulary.rows
    found = np.zeros(len(vocabulary.words), "int64")
    is_there = rows >= 0
    found[rows[is_there]] = np.flatnonzero(is_there)
    return found
