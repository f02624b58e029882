"""Words of an input that a model's vocabulary lacks."""

import unicodedata
from collections.abc import Collection, Sequence

MOST_NAMED = 5
SPACE = "\u2581"
"""How pieces write the space before them."""


def unknown_note(words: int, unknown: Sequence[str]) -> str:
    """Say how many words of an input are unknown, and which; "" where all are known."""
    if not unknown:
        return ""
    named = list(dict.fromkeys(unknown))
    more = f" and {len(named) - MOST_NAMED:,} more" if len(named) > MOST_NAMED else ""
    verb = "is" if len(unknown) == 1 else "are"
    which = f"{', '.join(named[:MOST_NAMED])}{more}"
    return f"{len(unknown):,} of {words:,} words {verb} unknown to the model: {which}."


def unknown_words(tokens: Sequence[str], unknown: Collection[int]) -> tuple[int, list[str]]:
    """Return how many words tokens make, and those that have an unknown token.

    Args:
        tokens: The tokens of the input.
        unknown: The indices of the unknown ones.
    """
    words, of_token = join_pieces(tokens)
    which = sorted({of_token[index] for index in unknown})
    shown = [word.replace(SPACE, "") for word in words]
    return sum(map(bool, shown)), [shown[word] for word in which if shown[word]]


def join_pieces(tokens: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words of tokens, and for each token the number of its word.

    Letters that follow each other without a space are one word. Digits, punctuation, and letters
    of scripts that are written without spaces, stay the tokens that they are.
    """
    words: list[str] = []
    of_token = []
    # Where tokens are words, none says whether a space comes before it.
    are_pieces = any(SPACE in each for each in tokens)
    for token in tokens:
        before = words[-1] if words and are_pieces else ""
        joins = all(map(_spells, before[-1:] + token[:1])) or before == SPACE
        if before and token and joins:
            words[-1] += token
        else:
            words.append(token)
        of_token.append(len(words) - 1)
    return words, of_token


def _spells(character: str) -> bool:
    """Whether a character is part of words in a script with spaces between them."""
    is_letter = unicodedata.category(character)[0] in "LM" or character in "'’"
    return is_letter and unicodedata.east_asian_width(character) != "W"
