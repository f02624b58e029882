"""Sets the equations of the pages as SVG when the site is built.

The usual way, a script that sets them in the browser, would be loaded from elsewhere; and MathML
looks right only where a mathematical font is installed. An SVG looks the same everywhere.
"""

import html
import re
from functools import cache

import ziamath

# What pymdownx.arithmatex makes of $...$ and $$...$$.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
EM = 24  # the size that the equation is set in; the page scales it to its own by `em`
TALLEST = 10


ziamath.config.svg2 = False  # paths, not symbols by id: ids of several equations would clash


@cache
def svg(latex: str, display: bool) -> str:
    """Return an equation as an SVG element that takes the size and colour of the text around."""
    element = ziamath.Latex(latex, size=EM, inline=not display).svg()
    box = re.search(r'viewBox="([^"]+)"', element).group(1)
    _, top, width, height = (float(number) for number in box.split())
    if height > TALLEST * EM:  # ziamath misplaces some things in \\left( \\right): use \\Big( there
        raise ValueError(f"An equation is {height / EM:.0f} lines high: {latex}")
    style = f"width:{width / EM:.3f}em;height:{height / EM:.3f}em"
    style += "" if display else f";vertical-align:{-(top + height) / EM:.3f}em"
    return (
        f'<svg class="equation" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{box}"'
        f' aria-label="{html.escape(latex)}" style="{style}">{element[element.index(">") + 1 :]}'
    )


def on_page_content(content: str, **_) -> str:
    """Replace the marked equations of a page."""
    content = INLINE.sub(lambda found: svg(html.unescape(found[1]).strip(), False), content)
    return DISPLAY.sub(
        lambda found: f'<div class="equation">{svg(html.unescape(found[1]).strip(), True)}</div>',
        content,
    )
