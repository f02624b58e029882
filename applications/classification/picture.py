"""What a model attends to in a text: words shaded, in a terminal, as a picture or as HTML."""

from pathlib import Path

import numpy as np

from keras_attention.applications.classification.classifier import (
    Prediction,
    TextClassifier,
    Weights,
)
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file, write_text
from keras_attention.applications.common.pictures import check_picture
from keras_attention.visualization import ShadedTokens, plot_shaded, shaded_html, shaded_text

HTML = (".html", ".htm")


def check_output(output: Path | str) -> None:
    """Refuse a file that neither a picture nor HTML can be written to.

    Raises:
        UserError: if it exists, has no folder, or another suffix.
    """
    if Path(output).suffix.lower() in HTML:
        check_new_file(output)
    else:
        check_picture(output, more=HTML)


def draw(
    classifier: TextClassifier,
    text: str | tuple[str, str],
    output: Path | str | None = None,
    color: bool = True,
) -> str:
    """Show what the model attends to in a text, or in each text of a pair.

    Of a model that reads sentences, each begins with its weight, and its words are shaded by their
    weight in the sentence times that of the sentence.

    Args:
        classifier: the run.
        text: the text, or the pair.
        output: a new .png, .svg, .pdf or .html; None for none.
        color: whether the text returned has colours, for a terminal.

    Returns:
        The shaded text, the prediction before it.

    Raises:
        UserError: if the model has no attention, the text is empty, or `output` is refused.
    """
    if output is not None:
        check_output(output)
    architecture = classifier.run.config.model.architecture
    if architecture == "mean":
        raise UserError(
            "architecture mean has no attention to draw: train pooling, han, self-attention or "
            "transformer."
        )
    parts = classifier.attend(text)
    if not all(part.tokens for part in parts):
        raise UserError("there is nothing to draw: the text is empty.")
    rows = [row for part in parts for row in _rows(part)]
    title = describe(classifier.predict([text])[0])
    if output is not None and Path(output).suffix.lower() in HTML:
        write_text(Path(output), shaded_html(rows, title=title))
    elif output is not None:
        plot_shaded(rows, output, title=title)
    return f"{title}\n{shaded_text(rows, color=color)}"


def describe(prediction: Prediction) -> str:
    """Write a prediction as one line for people."""
    if prediction.number is not None:
        said = f"{prediction.number:.3f}"
    else:
        likely = prediction.probabilities
        said = ", ".join(f"{name} {likely[name]:.3f}" for name in prediction.labels) or "no label"
    if prediction.truncated:
        said += " (the text is longer than data.max_length: of its beginning)"
    return said


def _rows(part: Weights) -> list[ShadedTokens]:
    if len(part.tokens) == 1:
        return [ShadedTokens(part.tokens[0], _plain(part.words[0]))]
    return [
        ShadedTokens(tokens, _plain(words * weight), label=f"{weight:.3f}")
        for tokens, words, weight in zip(part.tokens, part.words, part.sentences, strict=True)
    ]


def _plain(weights) -> np.ndarray:
    return np.maximum(np.asarray(weights, "float64"), 0.0)
