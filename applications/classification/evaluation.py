"""Measuring a classification run."""

import dataclasses
from pathlib import Path

from keras_attention.applications.classification.classifier import TextClassifier
from keras_attention.applications.classification.data import (
    has_split,
    load_examples,
    read_examples,
)
from keras_attention.applications.classification.encoding import encode_examples
from keras_attention.applications.classification.examples import Examples
from keras_attention.applications.classification.measures import measure
from keras_attention.applications.classification.run import ClassificationRun, load_run
from keras_attention.applications.common.errors import UserError

FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "expected_calibration_error": "calibration error",
    "mean_squared_error": "mean squared error",
    "mean_absolute_error": "mean absolute error",
    "pearson": "Pearson's r",
    "spearman": "Spearman's rho",
    "loss": "loss",
}


def evaluation_examples(
    run: ClassificationRun, split: str | None = None, path: str | None = None
) -> Examples:
    """Return the examples to measure on: those of a file, or one of the run's own sets."""
    if path and split:
        raise UserError("give --split or --input, not both.")
    if path:
        return read_examples(run.config.data, path)
    split = split or ("test" if has_split(run.config.data, "test") else "dev")
    return load_examples(run.config.data, split)


def skipping(run: ClassificationRun) -> ClassificationRun:
    """Return `run` so that it leaves out, and counts, what it cannot measure.

    That are empty texts, texts above `data.max_length` and labels unseen in training, whatever its
    configuration said of them.
    """
    data = dataclasses.replace(
        run.config.data, on_empty="skip", on_too_long="skip", on_unknown_label="skip"
    )
    return dataclasses.replace(run, config=dataclasses.replace(run.config, data=data))


def evaluate(run: ClassificationRun | Path | str, examples: Examples | None = None) -> dict:
    """Return accuracy, F1, calibration and the confusion matrix, as JSON types.

    Of many labels, `accuracy` is the part of the texts with all labels right, and calibration is
    that of every decision on a label. Of numbers, the figures are errors and correlations.

    Args:
        run: a run folder, or a run that is loaded.
        examples: what to measure on; None for the run's own test set, or its development set where
            it has none.

    Raises:
        UserError: if there is no such run, or a text or label cannot be used and the run's
            configuration does not say to skip it.
    """
    run = run if isinstance(run, ClassificationRun) else load_run(run)
    examples = evaluation_examples(run) if examples is None else examples
    encoded = encode_examples(examples, run.reader, run.labels, run.config.data)
    scores = TextClassifier(run).scores(encoded.columns)
    return {
        "data": encoded.report.name,
        **{
            key: value for key, value in dataclasses.asdict(encoded.report).items() if key != "name"
        },
        "label_names": list(run.labels.names),
        **measure(scores, encoded.targets, run.labels),
    }


def table(report: dict) -> str:
    """Write a report of `evaluate` for people."""
    lines = [f"{report['examples']:,} examples of {report['data']}"]
    for why, count in report["left_out"].items():
        lines += [f"{count:,} left out ({why})"] if count else []
    lines += [f"{report['truncated']:,} cut short"] if report["truncated"] else []
    lines.append("")
    for key, name in FIGURES.items():
        if key in report:
            lines.append(f"{name:<20} {report[key]:8.4f}")
    if report.get("labels"):
        width = max(8, *(len(row["label"]) for row in report["labels"]))
        lines += ["", f"{'label':<{width}} precision  recall      F1  examples"]
        for row in report["labels"]:
            lines.append(
                f"{row['label']:<{width}} {row['precision']:9.4f} {row['recall']:7.4f} "
                f"{row['f1']:7.4f} {row['examples']:9,}"
            )
    return "\n".join(lines)
