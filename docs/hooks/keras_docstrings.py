"""Lets the reference show the docstring sections of Keras that Google's style does not know."""

import re
from textwrap import dedent

import griffe

# Names that share a description, on more than one line.
NAMES = re.compile(r"^( +)((?:\*{0,2}\w+, )*\*{0,2}\w+,)\n +(?=\*{0,2}\w+[,:])", re.MULTILINE)
CALL_ARGUMENTS = re.compile(r"^Call arguments:$", re.MULTILINE)
# A title of prose with its indented text, which would be shown in a box. What a function returns is
# prose, too: its type stands in the signature, and a colon in the text would be taken for one.
PROSE = re.compile(
    r"^(Reference|References|Example|Weights|Returns):\n((?:\n|[ ]+.*\n?)*)", re.MULTILINE
)
# A prompt session outside of a fence, up to the next empty line.
PROMPTS = re.compile(r"(?<!```python\n)(?<!```pycon\n)^(>>> (?:.+\n?)+)", re.MULTILINE)


class KerasDocstrings(griffe.Extension):
    """Rewrites section titles: the call's arguments become a table, prose stays prose."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Rewrite the docstring of whatever is documented."""
        if obj.docstring:
            text = CALL_ARGUMENTS.sub("Args: Call arguments", obj.docstring.value)
            while NAMES.search(text):
                text = NAMES.sub(r"\1\2 ", text)
            text = PROSE.sub(lambda found: _prose(*found.groups()), text)
            obj.docstring.value = PROMPTS.sub(_fence, text)


def _prose(title: str, text: str) -> str:
    text = dedent(text).strip("\n")
    if text and title == "Example" and not any(mark in text for mark in ("```", ">>>")):
        text = f"```python\n{dedent(text)}\n```"
    return f"**{title}**\n\n{text.lstrip()}\n\n"


def _fence(found: re.Match) -> str:
    return f"```pycon\n{found[0].rstrip()}\n```\n"
