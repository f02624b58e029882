"""The commands that the pages show, as far as they can be checked without running them."""

import itertools
import re
import shlex

FENCE = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of each call of a program in the blocks fenced as `bash`."""
    found = []
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
            words.whitespace_split = True
            for separates, part in itertools.groupby(
                words, lambda word: bool(word) and set(word) <= set("|&;>")
            ):
                part = list(part)
                if not separates and part[0] == program:
                    found.append(part[1:])
    return found
