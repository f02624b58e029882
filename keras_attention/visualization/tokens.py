"""What both pictures of an alignment need: readable tokens and checked weights."""

import unicodedata
from collections.abc import Sequence

import numpy as np

_WORD_START = "▁"
_JOINED = "·"
_JOINER = "￭"
_SPACE = "␣"


def display_tokens(tokens: Sequence[str]) -> list[str]:
    """Turn tokens into labels that people can read.

    SentencePiece writes the space before a word as `▁`. Here a piece that begins a word loses the
    mark, and one that goes on inside a word gets a dot: `["▁Straßen", "bahn", "."]` becomes
    `["Straßen", "·bahn", "."]`. Text with no more than one `▁`, as in Chinese or Japanese, gets no
    dots, for there the pieces do not tell words apart. Words lose the joiner `￭` of the word
    tokenizer, which few fonts have; special tokens stay as they are. Spaces and control characters
    inside a token are made visible.

    Args:
        tokens: Tokens of one sentence, words or SentencePiece pieces.

    Returns:
        A list with a label for each token.

    Example:

    ```python
    from keras_attention.visualization import display_tokens

    print(display_tokens(["▁A", "▁play", "ing", "▁dog", "."]))  # ['A', 'play', '·ing', 'dog', '.']
    ```
    """
    spaced = sum(token.startswith(_WORD_START) for token in tokens) > 1
    return [
        _label(token, joined=spaced and index > 0 and _goes_on(token))
        for index, token in enumerate(tokens)
    ]


def alignment_weights(attention, source_tokens, target_tokens) -> np.ndarray:
    """Return the weights as a float array (T, S), or raise a ValueError that says what is wrong."""
    weights = np.asarray(attention, dtype="float64")
    expected = (len(target_tokens), len(source_tokens))
    if weights.shape != expected:
        raise ValueError(
            "`attention` must have a row for each target token and a column for each source token, "
            f"the shape {expected}. Received: attention of shape {weights.shape}"
        )
    if 0 in expected:
        raise ValueError(
            "An alignment needs at least one source and one target token. "
            f"Received: {expected[1]} source and {expected[0]} target tokens."
        )
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError(
            "`attention` must hold weights, which are finite and not negative. "
            f"Received: values from {weights.min()} to {weights.max()}"
        )
    return weights


def _goes_on(token):
    """Whether a piece continues the word before it: not a mark, a special token or a new word."""
    special = token.startswith("<") and token.endswith(">")
    return not special and any(map(str.isalnum, token)) and not token.startswith(_WORD_START)


def _label(token, joined):
    token = token.strip(_JOINER) or token
    text = "".join(map(_visible, token.removeprefix(_WORD_START)))
    if token and not text:
        return _SPACE
    return (_JOINED if joined else "") + text.replace(_WORD_START, " ")


def _visible(character):
    if character.isspace():
        return _SPACE
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) == "Cc" else character
