"""What every picture needs: readable labels, fonts for whatever script they are in, its file.

matplotlib draws with a list of font families, but does not find them. Only pictures need it: the
functions import it.
"""

import functools
import importlib
import io
import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..paths import output_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WORD_START, _JOINED, _JOINER, _SPACE = "▁", "·", "￭", "␣"
BASE_FAMILY = "DejaVu Sans"  # comes with matplotlib

# Fonts that have a glyph for everything, which shows nothing.
_PLACEHOLDERS = ("Last Resort", "LastResort", "Adobe Blank", "Unifont")
_EAST_ASIAN = ("Han", "Hiragana", "Katakana", "Hangul", "Bopomofo")
_PACKAGES = {"symbols": "fonts-symbola", **dict.fromkeys(_EAST_ASIAN, "fonts-noto-cjk")}
_SCRIPT_OF_NAME = {
    "CJK": "Han",
    "FULLWIDTH": "Han",
    "HALFWIDTH": "Katakana",
    "KATAKANA-HIRAGANA": "Katakana",
}


def display_tokens(tokens: Sequence[str]) -> list[str]:
    """Return labels that people can read for the tokens of a sentence, words or pieces.

    A SentencePiece piece loses the `▁` of a new word; one that continues a word gets a dot, unless
    the text has only one `▁`, as in Chinese. Words lose the word tokenizer's joiner `￭`. Spaces and
    control characters inside a token become visible.

    Example:

    >>> display_tokens(["▁A", "▁play", "ing", "▁dog", "."])
    ['A', 'play', '·ing', 'dog', '.']
    """
    spaced = sum(token.startswith(_WORD_START) for token in tokens) > 1
    return [_label(token, spaced and index > 0) for index, token in enumerate(tokens)]


def new_figure(**settings: Any) -> "Figure":
    """Return an empty figure that needs no display and that notebooks show without pyplot.

    The arguments are those of `matplotlib.figure.Figure`.

    Example:

    >>> figure = new_figure(figsize=(4, 3))
    >>> lines = figure.subplots().plot([1, 3, 2])
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(**settings)
    FigureCanvasAgg(figure)
    figure._repr_png_ = functools.partial(png, figure)
    return figure


def png(figure: "Figure") -> bytes:
    """Return a figure as the content of a file."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def make_figure(
    draw: Callable[[list[str]], "Figure"],
    texts: Iterable[str],
    path: str | os.PathLike | None = None,
    overwrite: bool = False,
) -> "Figure":
    """Return what a function draws with the fonts that its texts need, and write it where asked.

    Args:
        draw: Function of a list of font families that returns a `matplotlib.figure.Figure`.
        texts: All that `draw` writes, in any script. A warning names the scripts that no installed
            font has, and the package to install.
        path, overwrite: As in `plot_alignment`, and so are the errors.

    Example:

    >>> def draw(families):
    ...     figure = new_figure(figsize=(2, 1))
    ...     figure.text(0.1, 0.5, "слово", family=families)
    ...     return figure
    >>> figure = make_figure(draw, ["слово"])
    """
    if path is not None:
        path = _checked_path(path, overwrite)
    families = choose_families(texts)
    with warnings.catch_warnings():  # choose_families has said it already, with the remedy
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = draw(families)
        if path is not None:
            # First in memory: a picture that fails half-way leaves the file as it was.
            content = io.BytesIO()
            figure.savefig(content, format=path.suffix[1:].lower(), dpi=figure.dpi)
            with open(path, "wb" if overwrite else "xb") as file:
                file.write(content.getvalue())
    return figure


def extents(texts: Iterable, figure: Any) -> list:
    """The box of each text, in inches."""
    renderer = figure.canvas.get_renderer()
    to_inches = figure.dpi_scale_trans.inverted()
    return [text.get_window_extent(renderer).transformed(to_inches) for text in texts]


def choose_families(texts: Iterable[str]) -> list[str]:
    """Return font families that have every character; warn of scripts that none has."""
    characters = {c for text in texts for c in text if _is_drawn(c)}
    entries = _installed_fonts()
    base = [entry for entry in entries if entry.name == BASE_FAMILY]
    families = [BASE_FAMILY]
    missing = characters.difference(*(_covered(entry.fname, characters) for entry in base))
    if missing:
        missing = _add_families(families, missing, entries)
    if missing:
        # matplotlib keeps a list of fonts on disk, which does not know of those installed since.
        missing = _add_families(families, missing, _fonts_installed_since(entries, missing))
    if missing:
        scripts = sorted({_script_of(character) for character in missing})
        packages = sorted({_PACKAGES.get(script, "fonts-noto-core") for script in scripts})
        warnings.warn(
            f"No installed font has the characters {''.join(sorted(missing)[:8])!r} "
            f"({', '.join(scripts)}); they are drawn as boxes. Install a font that has them, from "
            "https://fonts.google.com/noto or, on Debian and Ubuntu, with: "
            f"apt-get install {' '.join(packages)}",
            UserWarning,
            stacklevel=4,
        )
    return families


def shape_right_to_left(text: str) -> str:
    """Bring right-to-left text into the order drawn, which matplotlib does from 3.11 on."""
    runs_left = any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)
    if not runs_left or _matplotlib_shapes():
        return text
    try:
        reshaper = importlib.import_module("arabic_reshaper")
        display = importlib.import_module("bidi.algorithm")
    except ImportError:
        warnings.warn(
            "Right-to-left text is drawn in the wrong order and with unjoined letters by this "
            "version of matplotlib. Install matplotlib 3.11 or newer, or python-bidi and "
            "arabic-reshaper.",
            UserWarning,
            stacklevel=3,
        )
        return text
    return display.get_display(reshaper.reshape(text))


def _script_of(character: str) -> str:
    """Name the script of a character, as in `"Devanagari"`; `"symbols"` for pictures and signs."""
    if "\u3000" <= character <= "\u303f":  # East Asian punctuation, whose names do not say so
        return "Han"
    first = unicodedata.name(character, "").split(" ")[0]
    if not first or unicodedata.category(character)[0] == "S":
        return "symbols"
    return _SCRIPT_OF_NAME.get(first, first.capitalize())


def _matplotlib_shapes() -> bool:
    from matplotlib import ft2font

    return hasattr(ft2font, "__libraqm_version__")


def _is_drawn(character: str) -> bool:
    """Whether a character needs a glyph: no space, control, format or variation selector."""
    selector = 0xFE00 <= ord(character) <= 0xFE0F
    return not (selector or character.isspace() or unicodedata.category(character) in ("Cc", "Cf"))


def _installed_fonts() -> list:
    """One upright entry of normal weight for each family that matplotlib knows."""
    from matplotlib import font_manager

    def from_regular(entry: Any) -> int:
        return abs(entry.weight - 400) if isinstance(entry.weight, int) else 1000

    entries: dict[str, Any] = {}
    for entry in sorted(font_manager.fontManager.ttflist, key=from_regular):
        if entry.style == "normal" and not entry.name.startswith(_PLACEHOLDERS):
            entries.setdefault(entry.name, entry)
    return list(entries.values())


def _covered(path: str, characters: Iterable[str]) -> set[str]:
    """Those of the characters for which the font has a glyph; none if it cannot be read."""
    from matplotlib import ft2font

    try:
        font = ft2font.FT2Font(str(path))
    except (OSError, RuntimeError):
        return set()
    return {character for character in characters if font.get_char_index(ord(character))}


def _add_families(families: list[str], missing: set[str], entries: list) -> set[str]:
    """Add the fewest families that have what is missing; return what is missing still."""
    # Han characters look different by country: take the country from the script beside them.
    scripts = {_script_of(character) for character in missing}
    regions = {"Hiragana": "JP", "Katakana": "JP", "Hangul": "KR", "Bopomofo": "TC"}
    region = next((region for script, region in regions.items() if script in scripts), "SC")
    found = {entry.name: _covered(entry.fname, missing) for entry in entries}
    best_first = sorted(found, key=lambda name: (-len(found[name]), _misfit(name, region)))
    for name in best_first:
        if found[name] & missing:
            families.append(name)
            missing = missing - found[name]
    return missing


def _misfit(name: str, region: str) -> tuple:
    """Rank families with the same characters: a plain sans of the region's forms is least."""
    words = name.split()
    special = {"Mono", "Condensed", "Light", "Thin", "Black", "Display", "UI", "Kufi", "Nastaliq"}
    return ("CJK" in words and region not in words, bool(special & set(words)), "Sans" not in words)


def _fonts_installed_since(entries: list, missing: set[str]) -> list:
    """Tell matplotlib of installed fonts that its list lacks and that have what is missing."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    known = {entry.fname for entry in manager.ttflist}
    names = {entry.name for entry in entries}
    for path in font_manager.findSystemFonts():
        if path not in known and _covered(path, missing):
            try:
                manager.addfont(path)
            except (OSError, RuntimeError):
                continue
    return [entry for entry in _installed_fonts() if entry.name not in names]


def _label(token: str, after_piece: bool) -> str:
    # What is no mark, no special token and no new word continues the word before it.
    begins = token.startswith(_WORD_START) or (token.startswith("<") and token.endswith(">"))
    joined = after_piece and not begins and any(map(str.isalnum, token))
    token = token.strip(_JOINER) or token
    text = "".join(map(_visible, token.removeprefix(_WORD_START)))
    if token and not text:
        return _SPACE
    return (_JOINED if joined else "") + text.replace(_WORD_START, " ")


def _visible(character: str) -> str:
    if character.isspace():
        return _SPACE
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) == "Cc" else character


def _checked_path(path: str | os.PathLike, overwrite: bool) -> Path:
    """Return the path of a picture, or raise what says why it cannot be written there."""
    from matplotlib.backend_bases import FigureCanvasBase

    path = output_path(path)
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise ValueError(
            f"The suffix of `path` must be one of {', '.join(sorted(formats))}. "
            f"Received: path={str(path)!r}"
        )
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists already; overwrite=True replaces it.")
    return path
