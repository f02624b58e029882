"""What labels become for a model: targets in, probabilities or a number out."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from keras_attention.applications.classification.examples import Example
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import write_text

FILE = "labels.json"


@dataclass(frozen=True)
class Labels:
    """The labels of a run.

    Args:
        kind: `"one"` label a text, `"many"` or a `"number"`.
        names: the labels, in the order of the model's outputs; none for a number.
        mean: of the training texts' numbers.
        scale: their standard deviation; the model's output is in these units.
    """

    kind: str
    names: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, kind: str, items: Sequence[Example], name: str = "the training data") -> "Labels":
        """Return the labels of training examples.

        Args:
            kind: as above.
            items: the examples.
            name: where they come from, for messages.

        Raises:
            UserError: where there is nothing to choose between.
        """
        if kind == "number":
            numbers = np.array([item.label for item in items])
            if np.ptp(numbers) == 0:
                raise UserError(f"{name}: all texts have the number {numbers[0]:g}.")
            return cls(kind, mean=float(numbers.mean()), scale=float(numbers.std()))
        labels = [(item.label,) if kind == "one" else item.label for item in items]
        names = tuple(sorted({label for each in labels for label in each}))
        if len(names) < (2 if kind == "one" else 1):
            raise UserError(
                f"{name}: expected at least two labels. Received: {', '.join(names)}."
                if kind == "one"
                else f"{name}: no text has a label."
            )
        return cls(kind, names)

    @property
    def outputs(self) -> int:
        """How many outputs the model has."""
        return len(self.names) or 1

    def targets(self, items: Sequence[Example]) -> np.ndarray:
        """Return targets `(examples, outputs)` float32; of an unknown label a row of NaN."""
        if self.kind == "number":
            numbers = np.array([item.label for item in items], "float64")
            return ((numbers - self.mean) / self.scale).astype("float32")[:, None]
        index = {name: i for i, name in enumerate(self.names)}
        targets = np.zeros((len(items), self.outputs), "float32")
        for row, item in zip(targets, items, strict=True):
            wanted = [item.label] if self.kind == "one" else item.label
            if any(label not in index for label in wanted):
                row[:] = np.nan
            else:
                row[[index[label] for label in wanted]] = 1.0
        return targets

    def unknown(self, item: Example) -> str:
        """Return the label of `item` that is not among the names."""
        wanted = [item.label] if self.kind == "one" else item.label
        return next(label for label in wanted if label not in self.names)

    def save(self, folder: Path) -> None:
        """Write the labels into `folder`."""
        folder.mkdir(exist_ok=True)
        write_text(folder / FILE, json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Labels":
        """Read the labels of a run.

        Raises:
            UserError: where the file is missing or damaged.
        """
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(**{**content, "names": tuple(content["names"])})
        except (OSError, ValueError, TypeError, KeyError):
            raise UserError(f"{folder / FILE} is missing or damaged: train again.") from None
