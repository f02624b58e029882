"""Tokens shaded by their weights: the type that every form of the picture takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_attention.visualization.tokens import display_tokens


@dataclass(frozen=True)
class ShadedTokens:
    """One line of a picture: tokens, and how much weight is on each.

    Attributes:
        tokens: Words or SentencePiece pieces, shown as in
            [`display_tokens`][keras_attention.visualization.display_tokens].
        weights: A weight for each token, not negative: attention, or an inner attention's gates.
        label: What stands before them, such as a score or a class.

    Raises:
        ValueError: If the weights do not fit the tokens, or are negative or not finite.
    """

    tokens: Sequence[str]
    weights: Sequence[float]
    label: str = ""

    def __post_init__(self):
        weights = np.asarray(self.weights, dtype="float64")
        if weights.shape != (len(self.tokens),):
            raise ValueError(
                "`weights` must have one number for each token. "
                f"Received: {len(self.tokens)} tokens and weights of shape {weights.shape}"
            )
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError(
                "`weights` must be finite and not negative. "
                f"Received: values from {weights.min()} to {weights.max()}"
            )
        object.__setattr__(self, "tokens", tuple(self.tokens))
        object.__setattr__(self, "weights", weights)

    @property
    def labels(self) -> list[str]:
        """The tokens as people read them."""
        return display_tokens(self.tokens)


def shades(rows: Sequence[ShadedTokens], maximum: float | None) -> list[np.ndarray]:
    """Return the shade of each token of each row, from 0 to 1.

    Args:
        rows: The rows of one picture.
        maximum: The weight of shade 1; `None` for the largest there is.
    """
    if isinstance(rows, ShadedTokens) or not all(isinstance(row, ShadedTokens) for row in rows):
        raise ValueError(f"`rows` must be a list of ShadedTokens. Received: {type(rows).__name__}")
    if maximum is None:
        maximum = max((float(row.weights.max(initial=0.0)) for row in rows), default=0.0) or 1.0
    elif not maximum > 0:
        raise ValueError(f"`maximum` must be greater than 0. Received: maximum={maximum}")
    return [np.minimum(row.weights / maximum, 1.0) for row in rows]
