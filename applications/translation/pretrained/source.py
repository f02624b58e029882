"""A translator of others, as its reader hands it over."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_attention.decoding import SearchOptions

from ...common.files import checksum
from ..models.transformer import Transformer
from ..preprocessor import TranslationPreprocessor

NOT_STATED = "Not stated in the files of the model: ask where it comes from."
CARDS = ("README.md", "README")
LICENCES = ("LICENSE", "LICENSE.txt", "LICENCE", "COPYING")


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
    """

    name: str
    folder: Path
    weights: Path
    network: Callable[[Any], Transformer]
    preprocessor: TranslationPreprocessor
    search: SearchOptions
    about: str = ""
    licence: str = ""

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
