"""A small training of each task, what two runs of it have to agree in, and a column of texts."""

from pathlib import Path

import numpy as np

from keras_attention.applications.training.run_folder import read_metrics

COMMON = [
    "--training.epochs=2",
    "--training.steps_per_epoch=3",
    "--training.tensorboard=false",
    "--training.early_stopping=loss",
]
SMALL = ["--model.embedding_size=6", "--model.units=6", "--model.dropout=0"]
TASKS = {
    "translation": [
        *["--data.dataset=dates", *SMALL],
        *["--training.batch_size=6", "--training.schedule=constant"],
    ],
    "summarization": ["--data.dataset=reports", *SMALL, "--training.batch_size=6"],
    "classification": [
        *["--data.dataset=opinions", "--model.architecture=han", *SMALL],
        "--training.batch_size=6",
    ],
    "answer-selection": [
        *["--data.dataset=facts", "--tokenizer.unknown_buckets=50", *SMALL],
        *["--model.encoder=inner-word", "--training.batch_size=6", "--training.negatives=2"],
    ],
}
FAST = "answer-selection"
"""One of them for the default suite; all go through the same run module."""


class Column:
    """A column as `datasets` and pandas have it: no list, and nothing but its values and dtype."""

    dtype = np.dtype(object)

    def __init__(self, *values):
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def figures(path: Path) -> list[dict]:
    """What a run logged of each epoch, but times."""
    lines = read_metrics(path / "metrics.jsonl")
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def assert_same_figures(one: Path, other: Path, tolerance: float = 1e-5) -> None:
    """Two runs logged the same."""
    for line, line2 in zip(figures(one), figures(other), strict=True):
        assert line.keys() == line2.keys()
        for name in line:
            if isinstance(line[name], str):
                assert line2[name] == line[name]
                continue
            np.testing.assert_allclose(line2[name], line[name], rtol=tolerance, err_msg=name)
