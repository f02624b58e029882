"""What each word of a summary was drawn from: words and sentences of the document, and p_gen."""

from pathlib import Path

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.summarization.summarizer import Summarizer, Summary

WIDEST = 40
"""The most words of a document that are drawn, those that were read the most."""


def draw(summarizer: Summarizer, document, output: Path | str) -> Summary:
    """Draw a document's summary to a picture file.

    Three panels, a row for each word of the summary: the words that were read the most, in the
    document's order; the sentences; and the probability with which the word was generated.

    Args:
        summarizer: a summarizer.
        document: a text, or a list of sentences.
        output: the file, whose suffix names its format.

    Raises:
        UserError: where the document or its summary has no word, or the run no attention.
    """
    from matplotlib.figure import Figure

    if not summarizer.run.config.model.attention:
        raise UserError("there is nothing to draw: this run has model.attention false.")
    (result,) = summarizer.summarize([document])
    if not result.tokens:
        raise UserError("there is nothing to draw: the document or its summary has no words.")
    words = [word for sentence in result.source for word in sentence]
    chosen = np.sort(np.argsort(-result.attention.max(axis=0))[:WIDEST])
    sentences = result.sentence_weights
    panels = [
        ("words read the most", result.attention[:, chosen], [words[i] for i in chosen]),
        ("sentences", sentences, [str(n + 1) for n in range(sentences.shape[1])]),
        ("p_gen", result.p_gen[:, None], [""]),
    ]
    widths = [max(matrix.shape[1], 1) for _, matrix, _ in panels]
    size = (2.5 + 0.25 * sum(widths), 1.8 + 0.25 * len(result.tokens))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=widths, sharey=True)
    for axis, (title, matrix, labels) in zip(axes, panels, strict=True):
        axis.imshow(matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(title, fontsize=9)
        axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8)
    axes[0].set_yticks(range(len(result.tokens)), result.tokens, fontsize=8)
    figure.savefig(output)
    return result
