"""Checks of settings that files have in common."""

import codecs

from ..errors import UserError


def check_encoding(encoding: str) -> None:
    """Refuse `data.encoding` where Python does not know it, or files have no lines in it."""
    try:
        usable = "\n".encode(codecs.lookup(encoding).name) == b"\n"
    except LookupError:
        raise UserError(
            "data.encoding must be an encoding that Python knows, like utf-8, latin-1 or "
            f"cp1252. Received: {encoding!r}."
        ) from None
    if not usable:
        raise UserError(
            "data.encoding must write a line feed as one byte, or lines could not be "
            f"numbered: convert the file to utf-8. Received: {encoding!r}."
        )
