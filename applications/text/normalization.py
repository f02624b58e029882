"""One form of letters: what looks the same is the same text."""

import unicodedata


def nfc(text: str) -> str:
    """Return a text in Unicode's normalization form C, in which letters hold their marks.

    "é" may be one character or two, a letter and an accent, as files from macOS write it, and a
    syllable of Korean one or three. Tokenizers bring all text to form C, in training and in use, in
    Python and in graphs.

    Args:
        text: any text.

    Returns:
        The text; a text in form C is returned as it is.

    Reference:
        [Unicode Standard Annex 15](https://unicode.org/reports/tr15/)

    Example:

    >>> decomposed = "e" + chr(0x301)
    >>> len(decomposed), len(nfc(decomposed))
    (2, 1)
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)
