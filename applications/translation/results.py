"""What a translator gives: translations that show themselves, and reports of many."""

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.metrics import bleu, bleu_by_length, chrf
from keras_attention.visualization import alignment_text, plot_alignment


@dataclasses.dataclass(frozen=True, eq=False)
class Translation:
    """A translation. In a notebook it shows its alignment.

    Args:
        text: the translation.
        score: what translations of a sentence are ranked by (with a penalty, where one is set).
        log_probability: the log-probability of its tokens and of the end.
        tokens: its written tokens.
        source_tokens: the written tokens of the source.
        alignment: attention weights, one row for each of `tokens`, one column for each of
            `source_tokens`; None where the network has no attention or it was not asked for.
        alternatives: the next best translations, best first, where more than one was asked for.
    """

    text: str
    score: float
    log_probability: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray | None = dataclasses.field(repr=False)
    alternatives: tuple["Translation", ...] = ()

    @property
    def ranked(self) -> tuple["Translation", ...]:
        """This translation and its alternatives."""
        return (self, *self.alternatives)

    def plot(self, path: Path | str | None = None) -> Any:
        """Return the alignment as a `matplotlib.figure.Figure`, and write it where asked to.

        Args:
            path: a new .png, .svg or .pdf.
        """
        if self.alignment is None or not self.tokens:
            raise ValueError(
                "A picture needs an alignment: a network with attention, a text that is not empty, "
                f"and `return_alignments=True`. Received: {self}"
            )
        return plot_alignment(self.alignment, self.source_tokens, self.tokens, path)

    def show(self) -> str:
        """Return the alignment as text, for a terminal; of no alignment, the translation."""
        if self.alignment is None or not self.tokens:
            return self.text
        return alignment_text(self.alignment, self.source_tokens, self.tokens)

    def _repr_png_(self) -> bytes | None:
        if self.alignment is None or not self.tokens:
            return None
        content = io.BytesIO()
        self.plot().savefig(content, format="png")
        return content.getvalue()


def evaluation_report(
    sources: Sequence[str], texts: Sequence[str], targets: Sequence[str]
) -> dict[str, Any]:
    """Return BLEU, chrF, exact matches and BLEU by source length, as JSON types."""
    score, characters = bleu(texts, targets), chrf(texts, targets)
    same = sum(text == wanted for text, wanted in zip(texts, targets, strict=True))
    return {
        "sentences": len(texts),
        "bleu": score.value,
        "signature": score.signature,
        "chrf": characters.value,
        "chrf_signature": characters.signature,
        "exact_match": 100 * same / len(texts),
        "bleu_by_source_words": [
            {
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "sentences": bucket.sentences,
                "bleu": bucket.score and bucket.score.value,
            }
            for bucket in bleu_by_length(sources, texts, targets)
        ],
    }


def table(report: dict[str, Any]) -> str:
    """Write a report for people."""
    lines = [f"{report['sentences']:,} sentence pairs of {report['data']}", ""]
    for name, key in (
        ("BLEU", "bleu"),
        ("chrF", "chrf"),
        ("perplexity", "perplexity"),
        ("exact match %", "exact_match"),
    ):
        lines.append(f"{name:<14} {report[key]:8.2f}")
    if alignment := report.get("alignment"):
        lines.append(
            f"{'AER %':<14} {alignment['aer']:8.2f}  (precision {alignment['precision']:.2f}, "
            f"recall {alignment['recall']:.2f})"
        )
    lines += ["", f"{'source words':<14} {'sentences':>9} {'BLEU':>7}"]
    for bucket in report["bleu_by_source_words"]:
        if bucket["sentences"]:
            last = f"-{bucket['longest']}" if bucket["longest"] else " or more"
            words = f"{bucket['shortest']}{last}"
            lines.append(f"{words:<14} {bucket['sentences']:>9,} {bucket['bleu']:>7.2f}")
    lines += ["", f"beam size {report['beam_size']}; {report['signature']}"]
    return "\n".join(lines)
