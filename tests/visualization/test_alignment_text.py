"""Labels of tokens; the alignment in characters: every cell's place and shade; wrong weights."""

import numpy as np
import pytest

from keras_attention.visualization import alignment_text, display_tokens, plot_alignment

MARK = "\N{LEFT-TO-RIGHT MARK}"
LEGEND = "weight: ░ about 1/4, ▒ 1/2, ▓ 3/4, █ 1"


def test_the_whole_picture():
    weights = [[0.95, 0.05, 0.0], [0.1, 0.26, 0.64], [0.0, 0.8, 1.7]]
    picture = alignment_text(weights, ["das", "rote", "Haus"], ["the", "house", "red"])
    assert picture.replace(MARK, "").split("\n") == [
        "        r H",
        "      d o a",
        "      a t u",
        "      s e s",
        "  the ██",
        "house   ░░▓▓",
        "  red   ▓▓██",
        "",
        LEGEND,
    ]


def test_each_quarter_has_a_shade():
    weights = np.array([[0.0, 0.12, 0.13, 0.37, 0.38, 0.62, 0.63, 0.87, 0.88, 1.0]])
    row = alignment_text(weights, list("abcdefghij"), ["x"]).split("\n")[1]
    assert row == f"x{MARK}     ░░░░▒▒▒▒▓▓▓▓████"


def test_wide_characters_and_marks_keep_the_columns():
    picture = alignment_text(np.eye(3), ["自転車", "क्या", "b"], ["彼は", "he", "को"])
    lines = picture.replace(MARK, "").split("\n")
    assert lines[:3] == ["     自", "     転क्", "     車या b"]
    # A letter and its marks take one column.
    assert lines[3:6] == ["彼は ██", "  he   ██", "   को     ██"]


def test_a_long_source_is_cut_into_maps_that_fit():
    source = [f"w{i}" for i in range(23)]
    weights = np.tile(np.eye(23)[:5], 1)
    picture = alignment_text(weights, source, list("abcde"), width=30)
    maps = picture.split("\n\n")
    assert maps[-1] == LEGEND
    assert len(maps) == 3
    assert all(
        len(line.replace(MARK, "")) <= 30 for block in maps[:-1] for line in block.split("\n")
    )
    assert sum(block.count("w") for block in maps[:-1]) == 23
    assert sum(block.count("█") for block in maps[:-1]) == 10
    assert alignment_text(weights, source, list("abcde"), width=3).count("w") >= 23


def test_a_very_long_token_is_cut():
    picture = alignment_text([[1.0]], ["s" * 80], ["t" * 80])
    lines = picture.split("\n")
    assert len(lines) < 30
    assert "tttt…tttt" in lines[-3]
    assert len(lines[-3]) < 30


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (["▁Die", "▁Straßen", "bahn", "."], ["Die", "Straßen", "·bahn", "."]),
        (["▁a", "▁b", "c", "</s>", "<unk>"], ["a", "b", "·c", "</s>", "<unk>"]),
        (["▁", "彼", "は", "。"], ["␣", "彼", "は", "。"]),  # no spaces: nothing to tell apart
        (["▁Haus", "boot"], ["Haus", "boot"]),
        (["a", "▁b", "▁in▁the", "3"], ["a", "b", "in the", "·3"]),
        (["plain", "words", "-", ""], ["plain", "words", "-", ""]),
        (["don", "￭'￭", "t", "(￭", "￭."], ["don", "'", "t", "(", "."]),
        (["a b", "c\td", "e\nf", "g\x07"], ["a␣b", "c␣d", "e␣f", "g\ufffd"]),
        ([], []),
    ],
)
def test_labels(tokens, labels):
    assert display_tokens(tokens) == labels


@pytest.mark.parametrize("draw", [plot_alignment, alignment_text])
def test_weights_that_do_not_fit(draw):
    source, target = ["a", "b", "c"], ["x", "y"]
    for shape in ((3, 2), (2, 4), (2,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"the shape \(2, 3\). Received: attention of shape"):
            draw(np.zeros(shape), source, target)
    for bad in (np.nan, np.inf, -0.1):
        weights = np.zeros((2, 3))
        weights[1, 1] = bad
        with pytest.raises(ValueError, match="Received: values from"):
            draw(weights, source, target)
    with pytest.raises(ValueError, match="Received: 0 source and 2 target tokens"):
        draw(np.zeros((2, 0)), [], target)
