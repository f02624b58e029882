"""The examples and commands of the pages and docstrings, and how an example is run."""

import contextlib
import doctest
import inspect
import io
import itertools
import re
import shlex
import textwrap
from pathlib import Path

FENCE = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n*```(?:text|\{ \.text \.output \})\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A run folder that the reader has trained: what it answers is not known here.
READERS_OWN = re.compile(r'"runs/')
# A translator that comes with the extra `pretrained`.
PRETRAINED = re.compile(r'from_preset\("firefox-')
BASH = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(text: str) -> list[tuple[int, str]]:
    """Every block fenced as `python`, with the line that it starts on."""
    return [
        (text.count("\n", 0, found.start(2)) + 1, textwrap.dedent(found[2]))
        for found in FENCE.finditer(text)
    ]


def run_fences(text: str, origin: str, names: dict | None = None) -> int:
    """Run the blocks in order, in one namespace, as a reader would; return how many there are.

    Blocks of a prompt session (`>>>`) are left to `run_prompts`. `names` are known from the start.
    """
    blocks = [block for block in fences(text) if not block[1].startswith(">>>")]
    namespace = {**(names or {}), "__name__": "__example__"}
    for line, source in blocks:
        # Blank lines before, so that a traceback names the line of the page.
        exec(compile("\n" * (line - 1) + source, origin, "exec"), namespace)
    return len(blocks)


def run_page(text: str, origin: str) -> int:
    """Run the blocks of a page, and compare what each prints with the output shown beneath it.

    `...` in an output stands for anything, as in a doctest. A block that prints must show its
    output, unless it reads a run folder that the reader has trained.
    """
    namespace: dict = {"__name__": "__example__"}
    blocks = list(FENCE.finditer(text))
    for found in blocks:
        line = text.count("\n", 0, found.start(2)) + 1
        source = textwrap.dedent(found[2])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + source, origin, "exec"), namespace)
        shown = OUTPUT.match(text, found.end())
        if shown is None and READERS_OWN.search(source):
            continue
        expected = "" if shown is None else shown[1]
        matches = doctest.OutputChecker().check_output(
            expected, printed.getvalue(), doctest.ELLIPSIS
        )
        assert matches, f"{origin}:{line} prints\n{printed.getvalue()}and not\n{expected}"
    return len(blocks)


def without_pretrained(text: str) -> tuple[str, int]:
    """A page without the blocks that need the extra `pretrained`, and how many these are."""
    count = 0
    for found in reversed(list(FENCE.finditer(text))):
        if PRETRAINED.search(found[2]):
            shown = OUTPUT.match(text, found.end())
            text = text[: found.start()] + text[shown.end() if shown else found.end() :]
            count += 1
    return text, count


def run_prompts(text: str, origin: str, names: dict) -> int:
    """Run the `>>>` examples of a text and compare what they print; return how many there are."""
    # A fence's end would be read as expected output.
    text = re.sub(r"^ *```.*$", "", text, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, dict(names), origin, origin, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
    return len(test.examples)


def pages(repository: Path) -> list[Path]:
    """The README and the pages of the documentation; a translated one has the same code."""
    found = sorted((repository / "docs").rglob("*.md"))
    # The lectures are rendered from sources, which tests/test_course.py runs in a small size.
    found = [
        page for page in found if not (page.parent.name == "course" and page.name[0].isdigit())
    ]
    return [repository / "README.md", *(page for page in found if ".zh." not in page.name)]


def documented(module) -> list[tuple[str, object]]:
    """The public names of a module that the package itself defines, and their public methods."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    found = []
    for name in names:
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        found.append((f"{module.__name__}.{name}", value))
        if inspect.isclass(value):
            found += [
                (f"{module.__name__}.{name}.{method}", function)
                for method, function in vars(value).items()
                if inspect.isfunction(function) and not method.startswith("_")
            ]
    return found


def commands(text: str, program: str) -> list[list[str]]:
    """The arguments of each call of a program in the blocks fenced as `bash`."""
    found = []
    for block in BASH.findall(text):
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
