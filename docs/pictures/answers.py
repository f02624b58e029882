"""Where in an answer attention lies: the table of the tutorial, drawn."""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.studies.answer_selection import draw_positions

PAGE = Path(__file__).parent.parent / "tutorials" / "answer_selection.md"


def positions() -> Figure:
    """Read the lines of ten shares, and draw them."""
    shares = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        name, *tenths = (cell.strip(" `") for cell in line.strip("|").split("|"))
        if len(tenths) == 10 and all(cell.endswith("%") for cell in tenths):
            shares[name.replace("`", "")] = [float(cell.strip(" %")) / 100 for cell in tenths]
    return draw_positions(shares)
