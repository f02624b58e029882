"""The heat map: what it shows, that all of it fits, and what it does to files."""

import struct
import sys

import numpy as np
import pytest

from keras_attention.visualization import plot_alignment

DPI = 150


def weights(steps, memory):
    rng = np.random.default_rng(steps)
    scores = np.exp(3 * rng.random((steps, memory)))
    return scores / scores.sum(-1, keepdims=True)


def words(count, letters="abcdefg"):
    rng = np.random.default_rng(count)
    return ["".join(rng.choice(list(letters), rng.integers(1, 11))) for _ in range(count)]


def labels(ticks):
    return [label.get_text() for label in ticks]


def boxes(figure, texts):
    renderer = figure.canvas.get_renderer()
    return [text.get_window_extent(renderer) for text in texts]


def png_size(path):
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR"
    assert content.endswith(b"IEND\xaeB`\x82")
    return struct.unpack(">II", content[16:24])


def test_the_axes_say_what_is_read_and_what_is_written():
    axes = plot_alignment(np.eye(2), list("ab"), list("xy")).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("input", "output")
    names = ("Eingabe", "")
    axes = plot_alignment(np.eye(2), list("ab"), list("xy"), axis_labels=names).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == names


def test_source_along_the_top_target_down_the_side(tmp_path):
    attention = weights(3, 4)
    path = tmp_path / "map.png"
    figure = plot_alignment(
        attention, ["▁Ein", "▁Hund", "e", "."], ["A", "dog", "."], path, title="One"
    )
    axes, bar = figure.axes
    assert labels(axes.get_xticklabels()) == ["Ein", "Hund", "·e", "."]
    assert labels(axes.get_yticklabels()) == ["A", "dog", "."]
    inside = axes.get_window_extent()
    assert all(box.y0 > inside.y1 for box in boxes(figure, axes.get_xticklabels()))
    assert all(box.x1 < inside.x0 for box in boxes(figure, axes.get_yticklabels()))
    assert axes.yaxis_inverted()
    np.testing.assert_array_equal(axes.images[0].get_array(), attention)
    assert axes.images[0].get_clim() == (0, 1)
    assert bar.get_ylim() == (0, 1)
    assert labels(figure.texts) == ["One"]


def test_zero_is_white_and_more_weight_is_darker():
    figure = plot_alignment(np.array([[0.0, 0.3, 0.6, 1.0]]), list("abcd"), ["x"])
    image = figure.axes[0].images[0]
    shades = image.to_rgba(image.get_array())[0, :, :3].mean(-1)
    assert shades[0] == 1
    assert (np.diff(shades) < -0.2).all()


@pytest.mark.parametrize(("steps", "memory"), [(1, 1), (5, 5), (5, 23), (31, 7), (60, 60)])
def test_picture_grows_with_the_sentence_and_all_labels_are_inside_and_apart(
    tmp_path, steps, memory
):
    path = tmp_path / "map.png"
    figure = plot_alignment(
        weights(steps, memory), words(memory), words(steps), path, title="A title " * 9
    )
    width, height = png_size(path)
    assert (width, height) == pytest.approx(figure.get_size_inches() * DPI, abs=1)
    # Cells from 0.2 to 0.45 inches, and not more around them than labels, bar and title need.
    for pixels, cells in ((width, memory), (height, steps)):
        assert 0.2 * cells * DPI < pixels < (0.45 * cells + 3.5) * DPI
    axes = figure.axes[0]
    texts = [*axes.get_xticklabels(), *axes.get_yticklabels(), *figure.texts]
    for box in boxes(figure, texts):
        assert box.x0 >= 0 and box.y0 >= 0
        assert box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    rows = boxes(figure, axes.get_yticklabels())
    assert all(upper.y0 >= lower.y1 for upper, lower in zip(rows, rows[1:], strict=False))
    if axes.get_xticklabels()[0].get_rotation() != 45:  # boxes of slanted labels always overlap
        columns = boxes(figure, axes.get_xticklabels())
        assert all(a.x1 <= b.x0 for a, b in zip(columns, columns[1:], strict=False))
    assert min(label.get_fontsize() for label in texts) >= 8


def test_cells_are_square_and_labels_stand_at_them():
    figure = plot_alignment(weights(7, 11), words(11), words(7))
    axes = figure.axes[0]
    box = axes.get_window_extent()
    assert box.width / 11 == pytest.approx(box.height / 7, rel=1e-3)
    for index, label in enumerate(boxes(figure, axes.get_yticklabels())):
        middle = box.y1 - (index + 0.5) * box.height / 7
        assert abs((label.y0 + label.y1) / 2 - middle) < box.height / 7 / 4


def test_hundreds_of_tokens_still_make_a_picture():
    figure = plot_alignment(weights(2, 400), words(400), words(2), dpi=20)
    assert figure.get_size_inches()[0] < 35
    shown = labels(figure.axes[0].get_xticklabels())
    assert shown == words(400)[:: 400 // len(shown) + (400 % len(shown) > 0)]
    assert len(shown) < 400


def test_formulas_and_long_addresses_are_only_text():
    address = "https://" + "x" * 90
    figure = plot_alignment(np.eye(2), ["$a$", address], ["$\\frac", "_b^"], title="$1 and $2")
    shown = labels(figure.axes[0].get_xticklabels())
    assert shown[0] == "$a$"
    assert len(shown[1]) <= 24 and "…" in shown[1]
    figure.canvas.draw()


def test_colour_range():
    spread = np.full((2, 4), 0.25)
    assert plot_alignment(spread, list("abcd"), list("xy")).axes[0].images[0].get_clim() == (0, 1)
    figure = plot_alignment(4 * spread * 0.7, list("abcd"), list("xy"), maximum=0.5)
    assert figure.axes[0].images[0].get_clim() == (0, 0.5)
    assert plot_alignment(8 * spread, list("abcd"), list("xy")).axes[0].images[0].get_clim()[1] == 2
    with pytest.raises(ValueError, match="Received: maximum=0"):
        plot_alignment(spread, list("abcd"), list("xy"), maximum=0)


def test_tensors_are_weights_too():
    from keras import ops

    tensor = ops.convert_to_tensor(weights(2, 3), "float32")
    shown = plot_alignment(tensor, list("abc"), list("xy")).axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, weights(2, 3), rtol=1e-6)


def test_an_existing_file_is_kept_unless_it_may_go(tmp_path):
    path = tmp_path / "map.png"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        plot_alignment(np.eye(2), list("ab"), list("xy"), path)
    assert path.read_text() == "mine"
    plot_alignment(np.eye(2), list("ab"), list("xy"), path, overwrite=True)
    png_size(path)


def test_a_failure_half_way_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "map.png"
    plot_alignment(np.eye(2), list("ab"), list("xy"), path)
    before = path.read_bytes()

    def fail(self, file, **options):
        file.write(b"half a picture")
        raise OSError("out of memory")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    with pytest.raises(OSError, match="out of memory"):
        plot_alignment(np.eye(2), list("ab"), list("xy"), path, overwrite=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["map", "map.txt", "map."])
def test_unknown_formats(tmp_path, name):
    with pytest.raises(ValueError, match=r"png.*Received: path="):
        plot_alignment(np.eye(2), list("ab"), list("xy"), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("suffix", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89P")]
)
def test_other_formats(tmp_path, suffix, start):
    path = tmp_path / f"map.{suffix}"
    plot_alignment(np.eye(2), list("ab"), list("xy"), path)
    assert path.read_bytes().startswith(start)


def test_pyplot_is_never_touched(monkeypatch):
    from matplotlib import rcParams

    before = dict(rcParams)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it would fail
    plot_alignment(np.eye(2), list("ab"), list("xy"), title="None of pyplot")
    assert dict(rcParams) == before
