"""The commands that the pages show, as far as they can be checked without running them."""

import re
import shlex

FENCE = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of each call of a program in the blocks fenced as `bash`."""
    found = []
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&|;|>", line):
                words = shlex.split(part, comments=True)
                if words[:1] == [program]:
                    found.append(words[1:])
    return found
