"""Fonts for scripts beyond Latin, on a machine that the tests pretend has few fonts."""

import sys
import types
import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from keras_attention.visualization import figures, plot_alignment


@pytest.fixture
def few_fonts(monkeypatch):
    """Leave matplotlib its own fonts alone; return the list of the files installed besides."""
    manager = font_manager.fontManager
    own = [entry for entry in manager.ttflist if "mpl-data" in entry.fname]
    assert figures.BASE_FAMILY in {entry.name for entry in own}
    installed = []
    monkeypatch.setattr(manager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *args, **options: installed)
    return installed


def make_font(path, family, characters):
    """Write a font in which each of the characters is a black square."""
    names = {ord(character): f"glyph{i}" for i, character in enumerate(characters)}
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 900), (900, 900), (900, 0)):
        pen.lineTo(point)
    pen.closePath()
    square, order = pen.glyph(), [".notdef", *names.values()]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap(names)
    builder.setupGlyf(dict.fromkeys(order, square))
    builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(usWeightClass=400)
    builder.setupPost()
    builder.save(path)
    return str(path)


def test_latin_greek_cyrillic_and_arabic_need_no_other_font(few_fonts):
    assert figures.choose_families(["Ωmega", "мир", "سلام", "ÿ ·▁␣…"]) == [figures.BASE_FAMILY]


@pytest.mark.parametrize(
    ("text", "scripts", "package"),
    [
        ("彼は", "Han, Hiragana", "apt-get install fonts-noto-cjk"),
        ("한국", "Hangul", "apt-get install fonts-noto-cjk"),
        ("。", "Han", "apt-get install fonts-noto-cjk"),
        ("हिन्दी।", "Devanagari", "apt-get install fonts-noto-core"),
        ("ไทย", "Thai", "apt-get install fonts-noto-core"),
        ("🦜", "symbols", "apt-get install fonts-symbola"),
        ("日ไ", "Han, Thai", "apt-get install fonts-noto-cjk fonts-noto-core"),
    ],
)
def test_a_missing_script_is_named_once_with_its_package(
    few_fonts, tmp_path, text, scripts, package
):
    with pytest.warns(UserWarning) as caught:
        plot_alignment(np.eye(2), [text, "b"], ["x", text], tmp_path / "map.png")
    # An older matplotlib adds that it cannot shape some of the scripts.
    (warning,) = [each for each in caught if "No installed font" in str(each.message)]
    assert f"({scripts})" in str(warning.message)
    assert str(warning.message).endswith(package)
    assert warning.filename == __file__


def test_a_font_installed_since_is_found_and_drawn(few_fonts, tmp_path):
    few_fonts.append(make_font(tmp_path / "square.ttf", "Square Sans", "日本"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plot_alignment([[1.0]], ["日本"], ["本"])
    figure.canvas.draw()
    label = figure.axes[0].get_yticklabels()[0]
    assert label.get_fontfamily() == [figures.BASE_FAMILY, "Square Sans"]
    box = label.get_window_extent()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1]
    inside = pixels[int(box.y0) : int(box.y1) + 1, int(box.x0) : int(box.x1) + 1, :3]
    # The square of the new font: much darker than the outline of a box for a missing glyph.
    assert (inside < 128).mean() > 0.6


def test_the_fewest_families_and_a_plain_sans_first(few_fonts, tmp_path):
    for family, characters in (
        ("Some Serif", "日本語"),
        ("Some Sans Mono", "日本語"),
        ("Some Sans", "日本語"),
        ("Half Sans", "日本"),
        ("Thai Sans", "ไ"),
    ):
        few_fonts.append(make_font(tmp_path / f"{family}.ttf", family, characters))
    families = figures.choose_families(["日本語", "ไ"])
    assert families == [figures.BASE_FAMILY, "Some Sans", "Thai Sans"]


@pytest.mark.parametrize(
    ("text", "region"),
    [("日は", "JP"), ("日コ", "JP"), ("日한", "KR"), ("日", "SC"), ("日ㄅ", "TC")],
)
def test_han_characters_take_the_forms_of_the_script_beside_them(few_fonts, tmp_path, text, region):
    for name in ("HK", "JP", "KR", "SC", "TC"):
        few_fonts.append(make_font(tmp_path / f"{name}.ttf", f"Noto Sans CJK {name}", "日はコ한ㄅ"))
    assert figures.choose_families([text]) == [figures.BASE_FAMILY, f"Noto Sans CJK {region}"]


def test_a_broken_font_file_is_passed_over(few_fonts, tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    few_fonts.append(str(broken))
    with pytest.warns(UserWarning, match="Han"):
        assert figures.choose_families(["日"]) == [figures.BASE_FAMILY]


def test_joiners_and_spaces_need_no_glyph(few_fonts):
    assert figures.choose_families(["a\u200d\ufe0f\u3000\u00a0\n"]) == [figures.BASE_FAMILY]


def test_a_matplotlib_that_shapes_gets_the_text_as_it_is(monkeypatch):
    monkeypatch.setattr(figures, "_matplotlib_shapes", lambda: True)
    assert figures.shape_right_to_left("سلام") == "سلام"


def test_an_older_matplotlib_gets_text_in_drawing_order(monkeypatch):
    reshaper = types.SimpleNamespace(reshape=lambda text: text.upper())
    algorithm = types.SimpleNamespace(get_display=lambda text: text[::-1])
    monkeypatch.setattr(figures, "_matplotlib_shapes", lambda: False)
    monkeypatch.setitem(sys.modules, "arabic_reshaper", reshaper)
    monkeypatch.setitem(sys.modules, "bidi", types.ModuleType("bidi"))
    monkeypatch.setitem(sys.modules, "bidi.algorithm", algorithm)
    assert figures.shape_right_to_left("אa") == "Aא"
    assert figures.shape_right_to_left("abc") == "abc"


def test_an_older_matplotlib_without_help_warns(monkeypatch):
    monkeypatch.setattr(figures, "_matplotlib_shapes", lambda: False)
    monkeypatch.setitem(sys.modules, "arabic_reshaper", None)
    with pytest.warns(UserWarning, match="python-bidi and arabic-reshaper"):
        assert figures.shape_right_to_left("سلام") == "سلام"
