"""The pictures of the tutorial on time series, drawn from what its own code computes.

    python -m docs.tutorials.time_series

runs the examples of the page and writes each picture for a light and a dark page.
"""

import re
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from docs.pictures.translation import INK, PAPER

PAGE = Path(__file__).with_suffix(".md")
FOLDER = PAGE.parents[1] / "images"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECORDINGS = 6
"""How many recordings are drawn."""


def results() -> dict:
    """Run the examples of the page; return their variables."""
    names: dict = {"__name__": "time_series"}
    for example in EXAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        exec(compile(example, str(PAGE), "exec"), names)
    return names


def forecast(names: dict, is_dark: bool) -> Figure:
    """A series with its forecast, and beneath it the weights of each step ahead."""
    past, ahead = names["PAST"], names["AHEAD"]
    tested = names["test"]
    predicted = names["forecaster"].predict(names["inputs_of"](tested), verbose=0)[..., 0]
    errors = np.abs(predicted - tested[:, past:]).mean(1)
    median = np.argsort(errors)[len(errors) // 2]  # neither the best nor the worst
    series = tested[median : median + 1]
    predicted = predicted[median]
    weights = names["reader"].predict(names["inputs_of"](series), verbose=0)[0]
    colors = _colors(is_dark)
    figure = Figure(figsize=(9, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1])
    steps = np.arange(past + ahead)
    upper.plot(steps[:past], series[0, :past], color=colors["line"], label="known")
    upper.plot(steps[past:], series[0, past:], "--", color=colors["line"], label="what followed")
    upper.plot(steps[past:], predicted, "o-", color=colors["mark"], markersize=4, label="forecast")
    upper.axvline(past - 0.5, color=colors["line"], linewidth=0.6)
    upper.legend(loc="upper left", ncols=3, frameon=False, fontsize=11)
    upper.set_ylim(series.min() - 0.3, series.max() + 1.2)
    upper.set_ylabel("value", fontsize=12)
    lower.imshow(
        weights,
        cmap=colors["map"],
        vmin=0,
        aspect="auto",
        extent=(-0.5, past - 0.5, ahead + 0.5, 0.5),
    )
    lower.set_xlim(-0.5, past + ahead - 0.5)
    lower.set_yticks([1, 4, 8, 12])
    lower.set_ylabel("step ahead", fontsize=12)
    lower.set_xlabel("time step", fontsize=12)
    return figure


def events(names: dict, is_dark: bool) -> Figure:
    """Recordings: the first sensor, the weights over the steps, and where the event is."""
    values, real = names["new_values"][:RECORDINGS], names["new_real"][:RECORDINGS]
    weights = names["where"].predict([values, real], verbose=0)
    colors = _colors(is_dark)
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).flat
    for row, panel in enumerate(panels):
        length = int(real[row].sum())
        place, steps = names["places"][row], np.arange(length)
        panel.axvspan(place - 0.5, place + 8.5, color=colors["band"], linewidth=0)
        panel.plot(steps, values[row, :length, 0], color=colors["line"], linewidth=1)
        bars = 3 * weights[row, :length] / weights[row].max()
        panel.bar(steps, bars, bottom=-5.2, width=1, color=colors["mark"])
        shape = "rises, then falls" if names["new_classes"][row] else "falls, then rises"
        panel.set_title(shape, fontsize=11)
        panel.set_yticks([])
        panel.set_ylim(-5.4, 3)
    for panel in figure.axes[3:]:
        panel.set_xlabel("time step", fontsize=11)
    for panel in figure.axes[::3]:
        panel.set_ylabel("weights     sensor", fontsize=11)
    return figure


def _colors(is_dark):
    stops = [PAPER, "#5570c4", "#dbe4ff"] if is_dark else ["#ffffff", "#7f9be0", "#22348f"]
    return {
        "line": INK if is_dark else "#30343f",
        "mark": "#ffb454" if is_dark else "#c2570c",
        "band": "#35406b" if is_dark else "#dfe5fa",
        "map": LinearSegmentedColormap.from_list("weights", stops),
    }


def pictures() -> dict[str, Figure]:
    """Return every picture by the name of its file."""
    names = results()
    figures = {}
    for is_dark in (False, True):
        texts = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        paper = ("axes.facecolor", "figure.facecolor", "savefig.facecolor")
        style = {**dict.fromkeys(texts, INK), **dict.fromkeys(paper, PAPER)} if is_dark else {}
        with matplotlib.rc_context(style):
            for draw in (forecast, events):
                name = f"time_series_{draw.__name__}{'-dark' if is_dark else ''}"
                figures[name] = draw(names, is_dark)
    return figures


def main() -> None:
    """Write all files."""
    for name, figure in pictures().items():
        path = FOLDER / f"{name}.png"
        figure.savefig(path, dpi=110, facecolor=figure.get_facecolor(), metadata={"Software": None})
        print(path)


if __name__ == "__main__":
    main()
