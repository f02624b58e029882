"""The first picture of README and home page: a real translator, with its alignment.

    python -m docs.pictures.translation

writes it for a light and a dark page. It needs the extra `pretrained`, so the two files are kept in
the repository, where README shows them.
"""

from pathlib import Path

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.results import whole_words
from keras_attention.visualization import plot_alignment

FOLDER = Path(__file__).resolve().parents[1] / "images"
SENTENCE = "The weather in the mountains changes quickly, so bring a warm jacket and enough water."
PAPER, INK = "#1b1d23", "#e6e8ee"
"""Background and text of the dark picture."""
COLORS = {
    "translation": LinearSegmentedColormap.from_list("light", ["#ffffff", "#7f9be0", "#22348f"]),
    "translation-dark": LinearSegmentedColormap.from_list("dark", [PAPER, "#5570c4", "#dbe4ff"]),
}


def pictures() -> dict[str, Figure]:
    """Return the picture for a light and for a dark page, by the names of their files."""
    result = Translator.from_preset("firefox-en-pt").translate(SENTENCE)
    weights, source, target = whole_words(result.alignment, result.source_tokens, result.tokens)
    figures = {}
    for name, colors in COLORS.items():
        is_dark = name.endswith("dark")
        texts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        with matplotlib.rc_context(dict.fromkeys(texts, INK) if is_dark else {}):
            figure = plot_alignment(weights, source, target, colormap=colors)
        figure.axes[1].remove()  # the scale: every colour is read beside its neighbours here
        figure.axes[0].tick_params(labelsize=14)
        for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
            axis.label.set(fontsize=15, fontweight="bold")
        if is_dark:
            figure.set_facecolor(PAPER)
            figure.axes[0].grid(which="minor", color="0.25", linewidth=0.4)
        figures[name] = figure
    return figures


def main() -> None:
    """Write both files."""
    for name, figure in pictures().items():
        path = FOLDER / f"{name}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
        print(path)


if __name__ == "__main__":
    main()
