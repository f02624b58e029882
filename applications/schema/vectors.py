"""The settings of pretrained vectors of words."""

from dataclasses import dataclass

from .keys import GIVEN, Section, key


@dataclass(frozen=True)
class VectorsConfig(Section):
    """The vectors that words start from."""

    section = "vectors"
    paths = ("file",)

    file: str | None = key(
        None,
        "vectors in text form (a word and its numbers on each line, as GloVe and word2vec "
        "write them), plain or .gz; null for random ones. Words that it lacks get random "
        "ones, too",
        common=True,
    )
    extra_words: int = key(
        0,
        "how many of the file's first words have vectors of their own although the training "
        "text lacks them",
        at_least=0,
        applies_to={"file": GIVEN},
    )
