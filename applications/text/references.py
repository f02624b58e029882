"""The texts that a measure compares: hypotheses, and for each its references."""

from collections.abc import Sequence
from typing import Any

References = Sequence[str] | Sequence[Sequence[str]]


def texts_and_references(
    hypotheses: Sequence[str], references: References
) -> tuple[list[str], list[list[str]]]:
    """Return hypotheses, and the references of each, as lists; refuse what holds no texts."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise ValueError(
                f"`{name}` must be a list with an entry for each hypothesis. "
                f"Received: the string {lines[:40]!r}"
            )
    texts = list(hypotheses)
    groups: list[list[Any]] = [
        list(each) if hasattr(each, "__iter__") and not isinstance(each, (str, bytes)) else [each]
        for each in references
    ]
    for name, rows in (("hypotheses", [[text] for text in texts]), ("references", groups)):
        for place, each in ((place, each) for place, row in enumerate(rows) for each in row):
            if not isinstance(each, str):
                raise ValueError(
                    f"`{name}` must hold strings, an empty one where there is no text. "
                    f"Received: {each!r} at index {place}"
                )
    return texts, groups
