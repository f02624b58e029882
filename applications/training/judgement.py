"""What "best" means in a training, in one place for all that ask: which weights are kept, patience,
the halving of the learning rate, resuming, and what a run reports."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

LOSS = "val_loss"


def figures_of(logs: Mapping[str, float]) -> dict[str, float | None]:
    """Return the figures on the development set among the logs of an epoch.

    One that is NaN or infinite is None, as JSON has no such number.
    """
    return {
        name: float(value) if math.isfinite(value) else None
        for name, value in logs.items()
        if name.startswith("val_")
    }


def short(value: float | None, digits: int = 4) -> str:
    """Write a figure for people."""
    return "no number" if value is None else f"{value:.{digits}g}"


@dataclass(frozen=True)
class Judge:
    """Says which of two epochs is better: the one with the higher score, and of equal scores the
    one with the lower loss on the development set.

    Args:
        score: the figure that is compared first, such as `"val_bleu"`; None where the loss alone
            decides.
        blind: why every model has the same score on this development set, or right answers no
            higher one than wrong answers; `""` where the score can tell. Where it cannot, the loss
            decides.
        measured_on: a digest of the development set and of how figures are computed. Figures with
            another one are never compared.

    Example:

    ```python
    from keras_attention.applications.training.judgement import Judge

    judge = Judge("val_bleu")
    first, second = {"val_bleu": 0.0, "val_loss": 2.0}, {"val_bleu": 0.0, "val_loss": 1.0}
    assert judge.is_better(second, first) and not judge.is_better(first, second)
    ```
    """

    score: str | None = None
    blind: str = ""
    measured_on: str = ""

    @property
    def monitor(self) -> str:
        """The figure that decides first."""
        return LOSS if self.score is None or self.blind else self.score

    def is_better(
        self, figures: Mapping[str, float | None], than: Mapping[str, float | None]
    ) -> bool:
        """Whether an epoch with these figures is better than one with others.

        A score that is NaN is lower than any number.
        """
        return self._rank(figures) > self._rank(than)

    def is_tie(
        self, figures: Mapping[str, float | None], other: Mapping[str, float | None]
    ) -> bool:
        """Whether the scores of two epochs are equal, so that the loss decides."""
        return self.monitor != LOSS and self._rank(figures)[0] == self._rank(other)[0]

    def _rank(self, figures):
        score = 0.0 if self.monitor == LOSS else _number(figures.get(self.monitor), -math.inf)
        return score, -_number(figures.get(LOSS), math.inf)


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or math.isnan(value) else value
