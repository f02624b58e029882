"""Shaded tokens as text: coloured for a terminal, and as a page of HTML."""

import html
from collections.abc import Sequence

from keras_attention.visualization.shading import ShadedTokens, shades

# Of the 256 colours of terminals, from pale yellow to red: black letters can be read on all.
_COLOURS = (230, 229, 222, 215, 208, 202)
_PAGE = """\
<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; line-height: 1.9; max-width: 60em; margin: 2em auto; }}
span {{ border-radius: 0.2em; padding: 0.1em 0.15em; }}
b {{ margin-right: 0.6em; }}
</style>
</head>
<body>
<h1>{title}</h1>
{rows}
</body>
</html>
"""


def shaded_text(
    rows: Sequence[ShadedTokens], maximum: float | None = None, color: bool = True
) -> str:
    """Write tokens for a terminal, each on a background as strong as its weight.

    Args:
        rows: A list of `ShadedTokens`, a line each.
        maximum: The weight of the strongest colour; `None` for the largest there is, so that
            weights which are spread over a long text can be seen.
        color: Whether to write ANSI escapes, for 256 colours. Without, the weight follows each
            token in brackets, for files and programs.

    Returns:
        The lines, joined by line feeds, the last without one.

    Raises:
        ValueError: If `rows` is something else or `maximum` is not positive.

    Example:

    ```python
    from keras_attention.visualization import ShadedTokens, shaded_text

    row = ShadedTokens(["It", "opened", "in", "1931"], [0.0, 0.3, 0.1, 0.6], label="0.84")
    print(shaded_text([row]))
    print(shaded_text([row], color=False))  # 0.84  It[0.00] opened[0.30] in[0.10] 1931[0.60]
    ```
    """
    lines = []
    for row, levels in zip(rows, shades(rows, maximum), strict=True):
        if color:
            words = map(_coloured, row.labels, levels)
        else:
            words = (f"{label}[{w:.2f}]" for label, w in zip(row.labels, row.weights, strict=True))
        lines.append((f"{row.label}  " if row.label else "") + " ".join(words))
    return "\n".join(lines)


def shaded_html(
    rows: Sequence[ShadedTokens],
    title: str = "Attention",
    maximum: float | None = None,
    page: bool = True,
) -> str:
    """Write tokens as HTML, each on a background as strong as its weight.

    The weight itself appears where the pointer rests on a token. The page needs no other file.

    Args:
        rows: A list of `ShadedTokens`, a paragraph each.
        title: The page's title and heading.
        maximum: The weight of the strongest colour; `None` for the largest there is.
        page: Whether to write a whole page; else the paragraphs alone, for a notebook.

    Returns:
        The page, or the paragraphs, the title first.

    Raises:
        ValueError: If `rows` is something else or `maximum` is not positive.

    Example:

    ```python
    from keras_attention.visualization import ShadedTokens, shaded_html

    page = shaded_html([ShadedTokens(["a", "<b>"], [0.2, 0.8])], title="Two tokens")
    assert "&lt;b&gt;" in page
    ```
    """
    paragraphs = []
    for row, levels in zip(rows, shades(rows, maximum), strict=True):
        label = f"<b>{html.escape(row.label)}</b>" if row.label else ""
        words = (
            f'<span style="background: rgba(255, 110, 0, {level:.3f})" title="{weight:.4f}">'
            f"{html.escape(word)}</span>"
            for word, weight, level in zip(row.labels, row.weights, levels, strict=True)
        )
        paragraphs.append(f'<p dir="auto">{label}{" ".join(words)}</p>')
    if not page:
        return "\n".join([f"<p><b>{html.escape(title)}</b></p>", *paragraphs])
    return _PAGE.format(title=html.escape(title), rows="\n".join(paragraphs))


def _coloured(label, level):
    step = round(float(level) * len(_COLOURS))
    return f"\x1b[30;48;5;{_COLOURS[step - 1]}m{label}\x1b[0m" if step else label
