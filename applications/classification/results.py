"""Results of a classifier: predictions that show themselves, figures of many, and pictures."""

import dataclasses
import html
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

from keras_attention.visualization import (
    ShadedTokens,
    display_tokens,
    make_figure,
    new_figure,
)

from ..errors import UserError, check_choice, check_number, shown
from ..show.explanation import AttentionMap, ExplainedAnswer, Explanation, Tokens, attention_map
from ..show.results import Shown, noted, written
from ..show.unknown import unknown_note, unknown_words
from ..store.files import check_picture
from .metrics import calibration, confusion_matrix, f1_scores
from .preprocessor import Labels

THRESHOLD = 0.5
MOST_LABELS_WITH_COUNTS = 20
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


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Attention of a network to one text.

    Args:
        tokens: the written tokens of each sentence; a text read as a whole is one.
        words: the weights of the tokens, which sum to 1 in each sentence where they are those of
            attention pooling.
        sentences: the weight of each sentence; 1 for a text read as a whole.

    Example:

    ```python
    from keras_attention.applications.classification import TextClassifier

    classifier = TextClassifier.from_texts(["good fun", "bad film"] * 2, ["yes", "no"] * 2, units=8)
    (weights,) = classifier.classify("very good fun").weights  # one for each text of a pair
    print(dict(zip(weights.tokens[0], weights.words[0])))
    ```
    """

    tokens: list[list[str]]
    words: list[np.ndarray]
    sentences: np.ndarray

    @property
    def rows(self) -> list[ShadedTokens]:
        """The tokens, shaded: of sentences by their weight in the sentence times that of it."""
        weights = [np.maximum(np.asarray(row, "float64"), 0.0) for row in self.words]
        if len(self.tokens) == 1:
            return [ShadedTokens(self.tokens[0], weights[0])]
        sentences = zip(self.tokens, weights, self.sentences.astype("float64"), strict=True)
        return [
            ShadedTokens(tokens, words * weight, label=f"{weight:.3f}")
            for tokens, words, weight in sentences
        ]

    def map(self, name: str, unknown: Collection[str] = ()) -> AttentionMap:
        """Return the weights of the words of all sentences on end, shaded, as a map for a page.

        Args:
            name: of the map.
            unknown: the tokens that the vocabulary lacks.
        """
        tokens = [token for sentence in self.tokens for token in sentence]
        side = Tokens(display_tokens(tokens))
        if len(self.tokens) > 1:
            places = [place for place, sentence in enumerate(self.tokens) for _ in sentence]
            sentences = [" ".join(each) for each in self.tokens]
            side = Tokens(side.tokens, sentences, places, "sentences")
        places = [place for place, token in enumerate(tokens) if token in unknown]
        side = dataclasses.replace(side, unknown=places)
        return attention_map(
            name, [name], side, [np.concatenate([each.weights for each in self.rows])]
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction(Shown):
    """Prediction for a text, or pair of texts. In a notebook its words are shaded.

    Args:
        labels: the likeliest label; of many labels those whose probability reaches the threshold.
        probabilities: of each label; none for a number.
        number: where the network gives a number.
        truncated: whether the network read the first `max_length` tokens only.
        empty: whether a text has no words, so that the answer is what the network says of nothing.
        weights: what it attended to, in each text of a pair; none where it was not asked for, or
            the network has no attention.
        unknown: the unknown tokens of the text, or both texts, after the number of all.

    Example:

    ```python
    from keras_attention.applications.classification import TextClassifier

    classifier = TextClassifier.from_texts(["good fun", "bad film"] * 2, ["yes", "no"] * 2, units=8)
    result = classifier.classify("very good fun")
    print(result.label, result.probabilities)
    print(result.show(color=False))  # the words, with their weights
    ```
    """

    labels: tuple[str | int, ...]
    probabilities: dict[str | int, float]
    number: float | None = None
    truncated: bool = False
    empty: bool = False
    weights: tuple[Weights, ...] = dataclasses.field(default=(), repr=False)
    unknown: tuple[int, list[str]] = dataclasses.field(default=(0, []), repr=False)

    @property
    def note(self) -> str:
        """How many words are unknown to the model, and which; "" where all are known."""
        return unknown_note(*self.unknown)

    @property
    def label(self) -> str | int | None:
        """The likeliest of `labels`; None where there is none."""
        return max(self.labels, key=self.probabilities.__getitem__, default=None)

    @property
    def summary(self) -> str:
        """The prediction as one line for people."""
        likely = [f"{name} {self.probabilities[name]:.3f}" for name in self.labels]
        said = ", ".join(likely) or "no label" if self.number is None else f"{self.number:.3f}"
        cut = " (the text is longer than data.max_length: of its beginning)"
        return said + cut if self.truncated else said

    @property
    def rows(self) -> list[ShadedTokens]:
        """The tokens of the text, or both texts, with what the network attended to."""
        return [row for each in self.weights if each.tokens for row in each.rows]

    shaded, title = rows, summary

    def plot(self, path: Path | str | None = None) -> Any:
        if not self.rows:
            raise ValueError(
                "A picture needs weights: a network with attention, a text that is not empty, and "
                f"`return_weights=True`. Received: {shown(self)}"
            )
        return super().plot(path)

    def show(self, color: bool | None = None) -> str:
        """Return the prediction and the shaded words as text, for a terminal.

        Args:
            color: whether it has colours; None for what standard output can show.
        """
        below = super().show(color) if self.rows else self.note
        return "\n".join(filter(None, [self.summary, below]))

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON types."""
        answer = {"labels": list(self.labels), "probabilities": self.probabilities}
        answer = answer if self.number is None else {"number": self.number}
        answer |= {name: True for name in ("truncated", "empty") if getattr(self, name)}
        return answer | ({"unknown": self.unknown[1]} if self.unknown[1] else {})

    def explanation(
        self, inputs: Mapping[str, str], more: Sequence[AttentionMap] = ()
    ) -> Explanation:
        """Return the labels, likeliest first, and what was attended to, for a page.

        Args:
            inputs: the texts, by their names.
            more: maps beside those of the words.
        """
        maps = [
            each.map(name, self.unknown[1])
            for name, each in zip(inputs, self.weights, strict=False)
            if any(each.tokens)
        ]
        ranked = sorted(self.probabilities.items(), key=lambda each: -each[1])
        answers = [ExplainedAnswer(str(name), p) for name, p in ranked]
        answers = answers or [ExplainedAnswer(self.summary)]
        answers[0] = dataclasses.replace(answers[0], maps=[*maps, *more])
        notes = ["A text has no words."] if self.empty else []
        notes += [self.note] if self.note else []
        return Explanation("classification", dict(inputs), self.summary, answers, notes)

    def _repr_html_(self) -> str:
        if self.rows:
            return super()._repr_html_()
        return f"<b>{html.escape(self.summary)}</b>{noted(self.note)}"


def unknown_of(
    texts: Sequence[list[list[str]]], places: Sequence[Sequence[int]]
) -> tuple[int, list[str]]:
    """Return the number of words of the texts of an example, and those that are unknown.

    Args:
        texts: the tokens of each text, in sentences.
        places: the places of its unknown tokens, all sentences on end.
    """
    tokens = [[token for sentence in text for token in sentence] for text in texts]
    found = [unknown_words(*each) for each in zip(tokens, places, strict=True)]
    return sum(count for count, _ in found), [word for _, words in found for word in words]


def weights_of(
    texts: Sequence[list[list[str]]], found: Mapping[str, np.ndarray]
) -> tuple[Weights, ...]:
    """Return what a network attended to in the texts of an example, each tokens in sentences."""
    result = []
    for tokens, name in zip(texts, ("words", "second"), strict=False):
        words = found[name] if "sentences" in found else found[name][None]
        words = [row[: len(line)] for row, line in zip(words, tokens, strict=False)]
        sentences = found.get("sentences", np.ones(1, "float32"))
        result.append(Weights(tokens, words, sentences[: len(tokens)]))
    return tuple(result)


def prediction_of(
    scores: np.ndarray, labels: Labels, thresholds: np.ndarray | None = None, **more: Any
) -> Prediction:
    """Return what the scores `(outputs,)` of an example say, with `more` of a `Prediction`.

    `thresholds` `(outputs,)` are those of many labels, `THRESHOLD` where not given.
    """
    answer = probabilities(scores, labels)
    if labels.kind == "number":
        return Prediction((), {}, float(answer[0]), **more)
    by_name = {name: float(p) for name, p in zip(labels.names, answer, strict=True)}
    if labels.kind == "one":
        return Prediction((labels.names[int(answer.argmax())],), by_name, **more)
    reached = answer >= (THRESHOLD if thresholds is None else thresholds)
    chosen = tuple(name for name, each in zip(labels.names, reached, strict=True) if each)
    return Prediction(chosen, by_name, **more)


def probabilities(scores: np.ndarray, labels: Labels) -> np.ndarray:
    """Return what scores `(..., outputs)` mean: probabilities, or numbers in the data's units."""
    scores = np.asarray(scores, "float64")
    if labels.kind == "number":
        return scores * labels.scale + labels.mean
    return softmax(scores, axis=-1) if labels.kind == "one" else expit(scores)


def as_thresholds(given: Any, labels: Labels, otherwise: Sequence[float]) -> np.ndarray:
    """Return the thresholds of many labels that a number, or a dict of labels, stands for.

    A label that the dict lacks has that of `otherwise`, and so have all where `given` is None.

    Raises:
        ValueError: where a text has no many labels, a label is unknown, or a threshold is no
            number from 0 to 1.
    """
    if given is not None and labels.kind != "many":
        raise ValueError(
            "`threshold` decides which of many labels a text has: leave it out, or train with "
            f"labels of kind 'many'. Received: threshold={shown(given)} with labels of kind "
            f"{labels.kind!r}"
        )
    by_label = dict(zip(labels.names, otherwise, strict=True))
    if given is not None and not isinstance(given, Mapping):
        given = dict.fromkeys(labels.names, given)
    for name, value in (given or {}).items():
        check_choice("a label in `threshold`", name, labels.names)
        check_number("`threshold`", value, 0, 1)
    return np.array([*(by_label | dict(given or {})).values()], "float64")


def tuned_thresholds(
    scores: np.ndarray, targets: np.ndarray, labels: Labels, otherwise: float
) -> list[float]:
    """Return for each of many labels the threshold with which its F1 is the highest.

    It lies in the middle between two probabilities; of equally good ones it is the one next to
    `otherwise`, and that itself for a label which no example has.

    Reference:
        Lipton et al. 2014, "Optimal Thresholding of Classifiers to Maximize F1 Measure".
    """
    likely = probabilities(scores, labels)
    found = []
    for column, truth in zip(likely.T, (np.asarray(targets) > 0.5).T, strict=True):
        if not truth.any():
            found.append(float(otherwise))
            continue
        order = np.argsort(-column, kind="stable")
        above, below = column[order], np.append(column[order][1:], 0.0)
        hits, count = np.cumsum(truth[order]), np.arange(1, len(order) + 1)
        f1 = np.where(above > below, 2 * hits / (count + truth.sum()), -1.0)
        best = np.flatnonzero(f1 == f1.max())
        middle = (above[best] + below[best]) / 2
        middle = np.where(middle > below[best], middle, above[best])  # of neighbours among floats
        inside = (below[best] < otherwise) & (otherwise <= above[best])
        if inside.any():
            found.append(float(otherwise))
        else:
            found.append(float(middle[np.abs(middle - otherwise).argmin()]))
    return found


def measure(
    scores: np.ndarray,
    targets: np.ndarray,
    labels: Labels,
    thresholds: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return the figures of a set, as `evaluate_text` does, of scores and targets `(B, O)`.

    `thresholds` are as of `prediction_of`.
    """
    scores, targets = np.asarray(scores, "float64"), np.asarray(targets, "float64")
    if labels.kind == "number":
        return _of_numbers(scores, targets, labels)
    truth, likely, confusion = targets > 0.5, probabilities(scores, labels), {}
    if labels.kind == "one":
        right, best = targets.argmax(axis=1), scores.argmax(axis=1)
        found, confidence = best[:, None] == np.arange(labels.outputs), likely.max(axis=1)
        hit, loss = best == right, -log_softmax(scores, axis=1)[truth].mean()
        confusion["confusion"] = confusion_matrix(right, best, labels.outputs).tolist()
    else:
        found = likely >= (THRESHOLD if thresholds is None else thresholds)
        confidence = np.where(found, likely, 1 - likely).ravel()
        hit, loss = (truth == found).ravel(), -log_expit(np.where(truth, scores, -scores)).mean()
    f1, calibrated = f1_scores(truth, found), calibration(confidence, hit)
    return {
        "loss": float(loss),
        "accuracy": float((truth == found).all(axis=1).mean()),
        "macro_f1": f1.macro,
        "micro_f1": f1.micro,
        "labels": [
            {"label": name, "precision": p, "recall": r, "f1": f, "examples": n}
            for name, p, r, f, n in zip(labels.names, *f1.by_label, strict=True)
        ],
        "expected_calibration_error": calibrated.error,
        "calibration": calibrated.bins,
        **confusion,
    }


def _of_numbers(scores, targets, labels):
    from scipy.stats import rankdata  # slow to import

    found, right = (probabilities(each[:, 0], labels) for each in (scores, targets))
    return {
        "loss": float(np.mean((scores - targets) ** 2)),
        "mean_squared_error": float(np.mean((found - right) ** 2)),
        "mean_absolute_error": float(np.abs(found - right).mean()),
        "pearson": _correlation(found, right),
        "spearman": _correlation(rankdata(found), rankdata(right)),
    }


def _correlation(first, second):
    """Return Pearson's correlation, 0 where one of both does not vary."""
    varies = np.ptp(first) and np.ptp(second)
    return float(np.corrcoef(first, second)[0, 1]) if varies else 0.0


def signature(labels: Labels, thresholds: np.ndarray | None = None) -> str:
    """Return how `measure` computes its figures."""
    if labels.kind == "number":
        return "errors and correlations in the data's units|rho:mean ranks of ties"
    import sklearn

    decided = "likeliest label"
    if labels.kind == "many":
        values = {THRESHOLD} if thresholds is None else set(np.round(thresholds, 6).tolist())
        decided = f"threshold:{values.pop():g}" if len(values) == 1 else "thresholds:by label"
    return f"{decided}|macro F1:labels that occur|ECE:10 bins|scikit-learn:{sklearn.__version__}"


def table(report: Mapping[str, Any]) -> str:
    """Write a report of `evaluate_text` for people."""
    lines = [f"{report['examples']:,} examples of {report['data']}"]
    lines += [f"{n:,} left out ({why})" for why, n in report["left_out"].items() if n]
    lines += [f"{report['truncated']:,} cut short"] if report["truncated"] else []
    lines.append("")
    lines += [f"{FIGURES[key]:<20} {report[key]:8.4f}" for key in FIGURES if key in report]
    if report.get("labels"):
        width = max(8, *(len(str(row["label"])) for row in report["labels"]))
        thresholds = report.get("thresholds", {})
        head = f"{'label':<{width}} precision  recall      F1  examples"
        lines += ["", head + ("  threshold" if thresholds else "")]
        for row in report["labels"]:
            own = thresholds.get(row["label"])
            lines.append(
                f"{row['label']!s:<{width}} {row['precision']:9.4f} {row['recall']:7.4f} "
                f"{row['f1']:7.4f} {row['examples']:9,}"
                + (f"  {own:9.4f}" if own is not None else "")
            )
    return "\n".join([*lines, "", report["signature"]])


def check_confusion(one_label: bool) -> None:
    """Refuse to draw the confusion matrix of what has not one label a text."""
    if not one_label:
        raise UserError(
            "a confusion matrix is of tasks with one label a text (data.labels one). "
            "Received: several labels a text, or a number."
        )


def draw_confusion(report: Mapping[str, Any], output: Path | str) -> Any:
    """Draw the confusion matrix of a report of `evaluate_text`: a row for each right label.

    Shades are parts of the row, so that rare labels are seen as well as frequent ones; up to 20
    labels the counts are written.

    Args:
        report: of a task with one label a text.
        output: a new .png, .svg or .pdf.

    Returns:
        The `matplotlib.figure.Figure`.

    Raises:
        ValueError: where the report has no confusion matrix or the file cannot be written.
    """
    check_picture(output)
    check_confusion("confusion" in report)
    counts = np.array(report["confusion"])
    names = list(map(str, report["label_names"]))
    parts = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = 1.8 + 0.55 * min(len(names), 30)

    def draw(families: list[str]) -> Any:
        style = {"family": families, "parse_math": False}
        figure = new_figure(figsize=(side + 1, side), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(parts, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right", **style)
        axes.set_yticks(range(len(names)), names, **style)
        axes.set_xlabel("predicted")
        axes.set_ylabel("right")
        if len(names) <= MOST_LABELS_WITH_COUNTS:
            for (row, column), count in np.ndenumerate(counts):
                colour = "white" if parts[row, column] > 0.5 else "black"
                axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
        figure.colorbar(image, ax=axes, shrink=0.8, label="part of the row")
        return figure

    return written(make_figure(draw, names), output)
