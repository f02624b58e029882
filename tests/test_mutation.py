"""The mutation tool behind `make mutate`: what it changes, and what it says of it."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.mutation.operators import mutants

ROOT = Path(__file__).resolve().parents[1]


def changed_to(source: str) -> set[str]:
    """The changed lines of all mutants of a source."""
    return {mutant.diff().splitlines()[-1][1:].strip() for mutant in mutants("x.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y = a < b", {"y = (a <= b)"}),
        ("y = a is not b", {"y = (a is b)"}),
        ("def f():\n    y = a + 1", {"y = (a - 1)", "y = a + 2"}),
        ("y = not a", {"y = (a)"}),
        ("y = a and b", {"y = (a or b)", "y = (a)", "y = (b)"}),
        ("y = f(x, axis=-1)", {"y = f(x, axis=0)", "y = f(x, axis=-2)"}),
        ("y = f(x, z)", {"y = f(z, x)"}),
        ("y = ops.mean(x)", {"y = ops.median(x)"}),
        ("y = ops.min(x)", {"y = ops.max(x)"}),
        ("def f(x=True):\n    return x", {"def f(x=False):"}),
        ("def f(x):\n    x = abs(x)", {"pass"}),
        ("def f(x):\n    x += z", {"x -= z", "pass"}),
        ("def f(x):\n    g(x)", {"pass"}),
        ("if a:\n    b", {"if (not (a)):", "pass"}),
        ("y = 0.5", {"y = 1.0"}),
    ],
)
def test_a_line_is_changed(source, expected):
    assert changed_to(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Words."""',
        "import a",
        "Number = int | float",
        "def f(x: int | None) -> int | None:\n    return x",
        "def f(x):\n    raise ValueError(f'{x + 1} is not 2')",
        "y = zip(a, b, strict=True)",
    ],
)
def test_what_computes_nothing_is_left(source):
    assert changed_to(source) == set()


def test_a_mutant_names_the_lines_that_show_it():
    source = "def f(x=1):\n    y = 2\n    return (y,\n        x)\nz = 3"
    found = {mutant.before.strip(): mutant for mutant in mutants("x.py", source)}
    seen = {text: (mutant.first, mutant.last) for text, mutant in found.items()}
    assert seen == {"def f(x=1):": (2, 4), "y = 2": (2, 2), "z = 3": (0, 0)}
    for mutant in found.values():
        assert mutant.source.splitlines()[mutant.line - 1] == mutant.after.strip("\n")
    assert found["z = 3"].diff() == "x.py:5\n-z = 3\n+z = 4"


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="forks with TensorFlow")
@pytest.mark.skipif(sys.platform == "win32", reason="mutants are forked")
def test_the_tool_tells_what_tests_notice_and_touches_no_file(tmp_path):
    file = ROOT / "keras_attention/metrics/ranking.py"
    before = file.read_bytes()
    command = [sys.executable, "-m", "tests.mutation", "--files", "keras_attention/metrics/r*.py"]
    command += ["--number", "3", "--output", tmp_path, "--tests"]
    done = subprocess.run([*command, "metrics/test_ranking.py"], cwd=ROOT, capture_output=True)
    results = [*map(json.loads, (tmp_path / "results.jsonl").read_text("utf-8").splitlines())]
    assert [each["outcome"] for each in results] == ["killed"] * 3, done.stderr
    done = subprocess.run([*command, "metrics/test_tokens.py"], cwd=ROOT, capture_output=True)
    assert done.returncode == 1 and b"3 lines changed, 3 changes survived" in done.stdout
    assert file.read_bytes() == before
