"""What every search returns."""

from typing import Any, NamedTuple


class DecodingResult(NamedTuple):
    """Hypotheses of a search, best first.

    `B` sentences, `N` hypotheses of each, `L` the longest length allowed, `S` memory steps.

    A hypothesis is complete when it ends with the end token, or when it has as many tokens as it
    may have (then it may lack the end token, and its probability is that of these tokens). Where
    fewer than `N` hypotheses exist, the missing ones come last with score and log-probability
    `-inf`, length 0 and nothing but padding.

    Attributes:
        tokens: Integer tensor `(B, N, L)`: without the start token, the end token included, padding
            after it.
        lengths: Integer tensor `(B, N)`: the number of tokens, the end token counted.
        scores: Float32 tensor `(B, N)`: what the hypotheses are ranked by.
        log_probabilities: Float32 tensor `(B, N)`: the sum of the model's own log-probabilities of
            the tokens, whatever was blocked, cut off or divided by a penalty.
        attention: Tensor `(B, N, L, S)`: the attention weights of each token, zero after the last,
            or `None` where the search was not asked to keep them.
    """

    tokens: Any
    lengths: Any
    scores: Any
    log_probabilities: Any
    attention: Any = None
