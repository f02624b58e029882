"""From attention between tokens to alignments between words."""

from collections.abc import Sequence

import numpy as np

from keras_attention.text import Tokenizer

Links = list[tuple[int, int]]


def words_of_tokens(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[int]:
    """Return for each written token which word of the text it belongs to.

    Words are what spaces separate in the text that the tokens stand for, as in alignments in
    Pharaoh form; punctuation that is joined to a word belongs to it.
    """
    texts = (tokenizer.join(tokens[: end + 1]) for end in range(len(tokens)))
    # A token that is a space alone begins the word after it.
    return [max(0, len(text.split()) - (not text[-1:].isspace())) for text in texts]


def words_of_line(tokenizer: Tokenizer, line: str) -> list[int]:
    """Return for each token of a line which word, as spaces separate them, it belongs to.

    Each word is made into tokens by itself. Where that gives other tokens than the whole line
    (normalisation can join or part words), words are those of the text that the tokens stand for.
    """
    by_word = tokenizer.encode(line.split())
    if [token for tokens in by_word for token in tokens] != tokenizer.encode([line])[0]:
        return words_of_tokens(tokenizer, tokenizer.tokens(line))
    return [word for word, tokens in enumerate(by_word) for _ in tokens]


def align_words(
    scores: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]
) -> Links:
    """Return for each target word its link to the source word with the highest weight.

    A source word's weight is the sum over its tokens, and a target word's that of its tokens.

    Args:
        scores: attention weights, (target tokens or more, source tokens or more).
        source_words: the word of each source token.
        target_words: the word of each target token.

    Returns:
        `(source word, target word)` pairs, 0-based, in the order of the target; a word to which
        attention gives no weight has no link.
    """
    if not source_words or not target_words:
        return []
    weights = np.zeros((max(target_words) + 1, max(source_words) + 1))
    tokens = np.asarray(scores, np.float64)[: len(target_words), : len(source_words)]
    np.add.at(weights, (np.asarray(target_words)[:, None], np.asarray(source_words)), tokens)
    linked = weights.max(axis=1) > 0
    return [
        (int(source), target)
        for target, source in enumerate(weights.argmax(axis=1))
        if linked[target]
    ]


def pharaoh(links: Links) -> str:
    """Write links as `0-0 2-1`, source first."""
    return " ".join(f"{source}-{target}" for source, target in links)
