"""A translator of others, as its reader hands it over."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from keras_attention.decoding import SearchOptions

from ...errors import UserError, check_range, one_line
from ...schema.reading import MOST
from ...store.files import checksum, read_bytes
from ...text import SentencePieceTokenizer
from ..networks.transformer import Transformer
from ..preprocessor import TranslationPreprocessor
from ..shortlist import Shortlist

NOT_STATED = "Not stated in the files of the model: ask where it comes from."
CARDS = ("README.md", "README")
LICENCES = ("LICENSE", "LICENSE.txt", "LICENCE", "COPYING")


LONGEST = 512
"""Tokens of the longest translation, where the files of a model say nothing of it."""

MOST_VOCABULARY = 1 << 26
"""Bytes of a vocabulary's file."""


def preprocessor_of(*sides: tuple[Path, list[str]]) -> TranslationPreprocessor:
    """Return the preprocessor of a file of SentencePiece, and the pieces with ids, for each side.

    Where both are alike, source and target have one tokenizer.
    """
    models, tokenizers = [], []
    for path, pieces in sides:
        if not path.is_file():
            raise UserError(f"{path.parent} has no {path.name}, which cuts text into pieces.")
        models.append(read_bytes(path, MOST_VOCABULARY))
        try:
            tokenizers.append(SentencePieceTokenizer(models[-1], pieces))
        except ValueError as error:
            raise UserError(f"{path}: {one_line(error)}") from None
    if models[0] == models[1] and sides[0][1] == sides[1][1]:
        tokenizers = tokenizers[:1] * 2
    return TranslationPreprocessor(*tokenizers)


def search_of(path: Path, **options: Any) -> SearchOptions:
    """Return the options of a search that the file or folder at a path asks for.

    Raises:
        UserError: naming the path, where one is wrong or beyond what a machine can hold.
    """
    try:
        for name, value in options.items():
            check_range(f"`{name}`", value, at_most=MOST[name])
        return SearchOptions(**{"beam_size": 1, "max_length": LONGEST, **options})
    except ValueError as error:
        raise UserError(f"{path} asks for a search that is none: {one_line(error)}") from None


def languages_of(pair: re.Match[str] | None) -> dict[str, str]:
    """Return the languages whose codes are the two groups of a match; nothing of no match."""
    names = ("source_language", "target_language")
    return dict(zip(names, pair.groups(), strict=True)) if pair else {}


@dataclasses.dataclass(frozen=True)
class Source:
    """All that a translator is made of, but the task itself.

    Args:
        name: of the format.
        folder: where it lies.
        weights: the file of its weights.
        network: function of a dtype policy, which makes the network with its weights.
        preprocessor: its tokenizers.
        search: the search that its files ask for.
        about: what made it, as far as its files say.
        licence: its licence, as far as its files say.
        languages: `source_language` and `target_language`, as far as its files say.
        shortlist: the one beside it; None where there is none.
    """

    name: str
    folder: Path
    weights: Path
    network: Callable[[Any], Transformer]
    preprocessor: TranslationPreprocessor
    search: SearchOptions
    about: str = ""
    licence: str = ""
    languages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shortlist: Shortlist | None = None

    def card(self) -> dict[str, str]:
        """Return the sections of a model card that say where the model comes from."""
        made = f", made by {self.about}" if self.about else ""
        origin = (
            f"Read from `{self.folder.name}/{self.weights.name}`, a model in the form of "
            f"{self.name}{made} (SHA-256 `{checksum(self.weights)}`)."
        )
        licence = self.licence or NOT_STATED
        for name in LICENCES:
            if (self.folder / name).is_file():
                licence = f"{self.licence or 'That of the file'} (`{name}` of the folder)."
                break
        return {"Origin": origin, "Licence": licence}
