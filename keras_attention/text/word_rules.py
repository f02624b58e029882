r"""How text is cut into words and put together again, as rules that two engines follow.

The rules are regular expressions of the syntax that Python's `re` and TensorFlow's RE2 share, and
name every character that they mean: neither engine's own idea of a letter (they know different
versions of Unicode, and `\w` leaves out the vowel signs of Indic scripts) has a say.

A punctuation mark is a token of its own. Where no space parts it from its neighbour it bears the
joiner on that side, "Yes, no" -> `Yes ￭, no`, so that joining is exact and needs no guess about
quotes and brackets.
"""

import functools
import itertools
import re
import sys
import unicodedata

JOINER = "\uffed"
# Controls, spaces and line separators of Unicode; \x01 and \x02, the rules' own marks, are in it.
SPACE = "[\\x00-\\x20\\x7f-\\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
SPACE_RULES = ((SPACE + "+", " "), ("^ | $", ""))
JOIN_RULES = (
    (f"{JOINER}? {JOINER}|{JOINER} ", ""),
    (f"^{JOINER}|{JOINER}$", ""),
)
Rules = tuple[tuple[str, str], ...]


@functools.cache
def split_rules() -> Rules:
    """Return the rules that turn text into tokens with one space between them."""
    mark = f"([^ {_word_characters()}])"
    return SPACE_RULES + (
        (JOINER, "\u25a0"),  # the joiner in the text: the same square in full width
        (mark, "\x01\\1\x02"),
        (" \x01", " "),
        ("\x02 ", " "),
        ("^\x01|\x02$", ""),
        ("\x02\x01|\x01", f" {JOINER}"),
        ("\x02", f"{JOINER} "),
    )


def apply(rules: Rules, text: str) -> str:
    """Return `text` after every rule in turn."""
    for pattern, replacement in rules:
        text = _compiled(pattern).sub(replacement, text)
    return text


@functools.cache
def lowercase_map() -> dict[str, str]:
    """Return the lower case of each character that has one.

    Characters are taken one by one: a capital sigma is σ at the end of a word too.
    """
    pairs = ((character, character.lower()) for character in map(chr, range(sys.maxunicode + 1)))
    return {character: lower for character, lower in pairs if lower != character}


@functools.cache
def _compiled(pattern: str) -> re.Pattern:
    return re.compile(pattern)


@functools.cache
def _word_characters() -> str:
    """Return the ranges, as in a regular expression's [], of the characters that words have.

    These are letters, marks and numbers, the low line, and the two joiners inside words of Indic
    scripts and Persian.
    """
    inside = [
        code
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code))[0] in "LMN" or code in (0x5F, 0x200C, 0x200D)
    ]
    ranges = []
    for _, group in itertools.groupby(enumerate(inside), lambda pair: pair[1] - pair[0]):
        codes = [code for _, code in group]
        ranges.append(f"{chr(codes[0])}-{chr(codes[-1])}")
    return "".join(ranges)
