"""Shaded tokens: which are shaded, how much, and what a file or a page holds."""

import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from keras_attention.visualization import (
    ShadedTokens,
    plot_shaded,
    shaded_html,
    shaded_text,
)
from keras_attention.visualization.colors import FULL, PALE, background, colors_of, full_weight

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
    # The full colour is at 0.9, three times the mean of the first row.
    assert coloured(first) == [("189", "opened"), ("117", ",")]  # a third of six, and two
    assert coloured(second) == [("195", "New")]  # 0.05 of 0.9 rounds to none of six


def test_terminal_without_colours_writes_the_weights():
    assert shaded_text(ROWS, color=False).split("\n") == [
        "0.84  It[0.00] opened[0.30] ,[0.60]",
        "New[0.15] York[0.00] <b>[0.05]",
    ]


def test_a_maximum_makes_pictures_comparable():
    assert coloured(shaded_text(ROWS, maximum=1.2).split("\n")[0]) == [
        ("189", "opened"),
        ("153", ","),
    ]
    assert coloured(shaded_text(ROWS, maximum=0.1).split("\n")[1])[0] == ("33", "New")


def luminance(colour):
    parts = np.asarray(colour) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_weights_that_are_nearly_equal_are_all_pale():
    rng = np.random.default_rng(3)
    even = [np.full(11, 1 / 11) + rng.uniform(-0.01, 0.01, 11)]
    assert all(0.2 < level.max() < 0.45 for level in (each / full_weight(even) for each in even))
    sharp = np.eye(11)[3] * 0.9 + 0.1 / 11
    assert (sharp / full_weight([sharp])).max() == 1
    assert full_weight([]) == full_weight([np.zeros(3)]) == 1
    assert full_weight([[0.4]]) == 0.4  # one word alone
    assert full_weight([[0.5, 0.5]]) == 1


def test_the_scale_grows_darker_and_black_can_be_read_on_all_of_it():
    levels = [np.round(PALE + level * (FULL - PALE)) for level in np.linspace(0, 1, 7)]
    lightness = [luminance(level) for level in levels]
    # Lightness alone orders the weights, whatever colours a reader tells apart.
    assert np.all(np.diff(lightness) < -0.02)
    assert (min(lightness) + 0.05) / 0.05 >= 4.5
    assert background(1.0) == "background: rgb(66 146 198); color: #000"


def test_no_weight_at_all_shades_nothing():
    rows = [ShadedTokens(["a", "b"], [0.0, 0.0]), ShadedTokens([], [])]
    assert shaded_text(rows) == "a b\n"
    assert plot_shaded(rows).texts[0].get_text() == "a"


def test_html_escapes_and_shades():
    page = shaded_html(ROWS, title="<when>")
    assert "<title>&lt;when&gt;</title>" in page and "<b>0.84</b>" in page
    spans = re.findall(r"<span style=\"([^\"]*)\" title=\"([\d.]+)\">([^<]+)<", page)
    assert [span[1:] for span in spans] == [
        ("0.0000", "It"),
        ("0.3000", "opened"),
        ("0.6000", ","),
        ("0.1500", "New"),
        ("0.0000", "York"),
        ("0.0500", "&lt;b&gt;"),
    ]
    blue = [int(style.split()[1][4:]) if style else 255 for style, *_ in spans]  # of red
    assert blue[0] == blue[4] == 255 and blue[2] < blue[1] < blue[3] < blue[5] < 255
    assert page.count("<p ") == 2


def test_the_picture_shades_each_token_inside_its_width(tmp_path):
    path = tmp_path / "shaded.png"
    random = np.random.default_rng(3)
    weights = random.random(41)
    words = ["word" + "x" * int(n) for n in random.integers(0, 9, 41)]
    figure = plot_shaded([ShadedTokens(words, weights, "0.5"), *ROWS], path, title="A question")
    texts = {text.get_text(): text for text in figure.texts}
    assert figure.texts[0].get_text() == "A question" and path.read_bytes()[1:4] == b"PNG"
    strongest = max(weights.max(), 3 * weights.mean())
    shade = colors_of(None)(weights[7] / strongest / 2)
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
