"""Lets the reference show the docstring sections of Keras that Google's style does not know."""

import re
from textwrap import dedent

import griffe

CALL_ARGUMENTS = re.compile(r"^Call arguments:$", re.MULTILINE)
# A title of prose with its indented text, which would be shown in a box.
PROSE = re.compile(r"^(Reference|References|Example|Weights):\n((?:\n|[ ]+.*\n?)*)", re.MULTILINE)


class KerasDocstrings(griffe.Extension):
    """Rewrites section titles: the call's arguments become a table, prose stays prose."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Rewrite the docstring of whatever is documented."""
        if obj.docstring:
            text = CALL_ARGUMENTS.sub("Args: Call arguments", obj.docstring.value)
            obj.docstring.value = PROSE.sub(lambda found: _prose(*found.groups()), text)


def _prose(title: str, text: str) -> str:
    return f"**{title}**\n\n{dedent(text).lstrip()}"
