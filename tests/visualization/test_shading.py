"""Shaded tokens: which are shaded, how much, and what a file or a page holds."""

import re

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from keras_attention.visualization import (
    ShadedTokens,
    plot_shaded,
    shaded_html,
    shaded_text,
)

ROWS = [
    ShadedTokens(["It", "opened", "￭,"], [0.0, 0.3, 0.6], label="0.84"),
    ShadedTokens(["▁New", "▁York", "<b>"], [0.15, 0.0, 0.05]),
]


def coloured(line):
    """Words of a terminal's line that have a background, and its colour."""
    return re.findall("\x1b\\[30;48;5;(\\d+)m([^\x1b]+)\x1b\\[0m", line)


def test_terminal_colours_are_stronger_for_more_weight():
    first, second = shaded_text(ROWS).split("\n")
    assert first.startswith("0.84  It ")
    assert coloured(first) == [("222", "opened"), ("202", ",")]  # a half of six, and all
    assert coloured(second) == [("229", "New")]  # 0.05 of 0.6 rounds to none of six


def test_terminal_without_colours_writes_the_weights():
    assert shaded_text(ROWS, color=False).split("\n") == [
        "0.84  It[0.00] opened[0.30] ,[0.60]",
        "New[0.15] York[0.00] <b>[0.05]",
    ]


def test_a_maximum_makes_pictures_comparable():
    assert coloured(shaded_text(ROWS, maximum=1.2).split("\n")[0]) == [
        ("229", "opened"),
        ("222", ","),
    ]
    assert coloured(shaded_text(ROWS, maximum=0.1).split("\n")[1])[0] == ("202", "New")


def test_no_weight_at_all_shades_nothing():
    rows = [ShadedTokens(["a", "b"], [0.0, 0.0]), ShadedTokens([], [])]
    assert shaded_text(rows) == "a b\n"
    assert plot_shaded(rows).texts[0].get_text() == "a"


def test_html_escapes_and_shades():
    page = shaded_html(ROWS, title="<when>")
    assert "<title>&lt;when&gt;</title>" in page and "<b>0.84</b>" in page
    spans = re.findall(r"110, 0, ([\d.]+)\)\" title=\"([\d.]+)\">([^<]+)<", page)
    assert spans == [
        ("0.000", "0.0000", "It"),
        ("0.500", "0.3000", "opened"),
        ("1.000", "0.6000", ","),
        ("0.250", "0.1500", "New"),
        ("0.000", "0.0000", "York"),
        ("0.083", "0.0500", "&lt;b&gt;"),
    ]
    assert page.count("<p ") == 2


def test_the_picture_shades_each_token_inside_its_width(tmp_path):
    path = tmp_path / "shaded.png"
    random = np.random.default_rng(3)
    weights = random.random(41)
    words = ["word" + "x" * int(n) for n in random.integers(0, 9, 41)]
    figure = plot_shaded([ShadedTokens(words, weights, "0.5"), *ROWS], path, title="A question")
    texts = {text.get_text(): text for text in figure.texts}
    assert figure.texts[0].get_text() == "A question" and path.read_bytes()[1:4] == b"PNG"
    shade = matplotlib.colormaps["Oranges"](weights[7] / weights.max() * 2 / 3)
    assert to_rgb(figure.texts[2 + 7].get_bbox_patch().get_facecolor()) == pytest.approx(shade[:3])
    assert texts["York"].get_bbox_patch().get_facecolor()[3] == 0  # no weight, no background
    assert figure.get_size_inches()[0] <= 8.0
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in figure.texts]
    assert min(box.x0 for box in boxes) > 0 and max(box.x1 for box in boxes) < figure.bbox.x1
    assert min(box.y0 for box in boxes) > 0 and max(box.y1 for box in boxes) < figure.bbox.y1
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


def test_a_file_is_not_written_over(tmp_path):
    path = tmp_path / "x.svg"
    plot_shaded(ROWS, path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        plot_shaded(ROWS, path)
    plot_shaded(ROWS, path, overwrite=True)
    with pytest.raises(ValueError, match="suffix of `path` must be one of"):
        plot_shaded(ROWS, tmp_path / "x.word")


@pytest.mark.parametrize("weights", [[0.1], [0.1, np.nan], [-0.1, 1.0], [[0.1, 0.2]]])
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match="`weights` must"):
        ShadedTokens(["a", "b"], weights)


@pytest.mark.parametrize("draw", [shaded_text, shaded_html, plot_shaded])
def test_other_rows_and_maxima_are_refused(draw):
    with pytest.raises(ValueError, match="list of ShadedTokens"):
        draw(["a"])
    with pytest.raises(ValueError, match="list of ShadedTokens"):
        draw(ROWS[0])
    with pytest.raises(ValueError, match="maximum=0"):
        draw(ROWS, maximum=0)


def test_an_empty_picture_is_refused():
    with pytest.raises(ValueError, match="at least one line"):
        plot_shaded([])
    assert plot_shaded([ShadedTokens([], [])]).texts == []
