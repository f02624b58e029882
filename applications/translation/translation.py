"""One translation and what is known of it."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Translation:
    """A translation.

    Args:
        text: the translation.
        score: what translations of a sentence are ranked by (with a penalty, where one is set).
        log_probability: the log-probability of its tokens and of the end.
        tokens: its written tokens.
        source_tokens: the written tokens of the source.
        alignment: attention weights, one row for each of `tokens`, one column for each of
            `source_tokens`; None where the model has no attention or it was not asked for.
        alternatives: the next best translations, best first, where more than one was asked for.
    """

    text: str
    score: float
    log_probability: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray | None
    alternatives: tuple["Translation", ...] = ()

    @property
    def ranked(self) -> tuple["Translation", ...]:
        """This translation and its alternatives."""
        return (self, *self.alternatives)
