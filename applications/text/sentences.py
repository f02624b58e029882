"""Where sentences begin and end, by the rules of `sentencex`, which are of some 300 languages."""

import re

_UNSAFE = re.compile(r"[\s\ud800-\udfff]")
_SHORT_WORD = re.compile(r"(?:^|[\s(])\w{1,4}\.\s*$")

# A rule that Python and TensorFlow share: a stop, what may close it, and a space after it.
SENTENCE_END = ("([.!?][\"')\\]]*)[ \\t]+", "\\1\n")


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Split a text into sentences that make up the text again when they are joined.

    A sentence keeps the space after it. Line ends are spaces here: split a text with paragraphs
    into lines first. Where it is not clear whether a sentence ends, it does not.

    Args:
        text: the text.
        language: code of its language, such as `"en"` or `"pt-BR"`, whose abbreviations are known;
            None for rules that most languages share.

    Returns:
        The sentences; none of an empty text.

    Reference:
        [sentencex](https://github.com/wikimedia/sentencex), the splitter of Wikipedia's translation
        tool

    Example:

    >>> split_sentences("It rose by 3.5 %. Dr. Smith saw it. 今天很好。再见！", "en")
    ['It rose by 3.5 %. ', 'Dr. Smith saw it. ', '今天很好。', '再见！']
    """
    from sentencex import segment

    # It fails at some spaces of more than one byte, and takes no half surrogate pairs.
    plain = _UNSAFE.sub(" ", text)
    code = re.split("[-_]", language or "en")[0].lower()
    found: list[str] = []
    start = 0
    for each in segment(code, plain):
        sentence = text[start : start + len(each)]
        start += len(each)
        if found and not _starts_sentence(sentence, found[-1]):
            found[-1] += sentence
        else:
            found.append(sentence)
    return found


def _starts_sentence(text: str, before: str) -> bool:
    """Whether a sentence begins here, after an abbreviation that the rules may not know."""
    has_letters = any(each.isalpha() for each in text)
    return has_letters and not (_SHORT_WORD.search(before) and text[0].islower())
