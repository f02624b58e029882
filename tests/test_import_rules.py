"""The package keeps the import rules, and the checker finds each kind of violation."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.import_rules import TASKS, check_source, cycles, module_name

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ("keras_attention", "applications", "benchmarks", "tests", "docs")
NOT_AT_IMPORT = ("tensorflow_text", "matplotlib", "sacrebleu", "keras_nlp", "pooch")


def python_files() -> list[Path]:
    paths = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py")]
    return sorted(path.relative_to(REPOSITORY) for path in paths)


def test_the_package_keeps_the_rules():
    problems = []
    for path in python_files():
        problems += check_source((REPOSITORY / path).read_text(encoding="utf-8"), path)
    assert not problems, "\n" + "\n".join(problems)


def test_no_module_imports_itself_over_others():
    paths = [path for path in python_files() if path.parts[0] in FOLDERS[:2]]
    sources = {module_name(path): (REPOSITORY / path).read_text(encoding="utf-8") for path in paths}
    assert not cycles(sources)


def test_a_circle_is_found():
    sources = {
        "p.a": "def f():\n    from p.b import c",
        "p.b": "from typing import TYPE_CHECKING\nfrom p.c import d",
        "p.c": "if TYPE_CHECKING:\n    from p.b import c",
    }
    assert not cycles(sources)
    sources["p.c"] = "from p import a"
    assert set(cycles(sources)[0]) == {"p.a", "p.b", "p.c"}


def test_the_files_are_found():
    found = {path.parts[0] for path in python_files()}
    assert {"keras_attention", "applications", "tests"} <= found


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("keras_attention/ops/x.py", "from keras_attention.layers import A", "must not import"),
        ("keras_attention/ops/x.py", "def f():\n    import keras_attention.layers", "must not"),
        ("keras_attention/ops/x.py", "from ..layers import A", "keras_attention.layers.A"),
        ("keras_attention/ops/x.py", "from .. import layers", "keras_attention.layers"),
        ("keras_attention/layers/x.py", "from keras_attention import A", "must not import"),
        ("keras_attention/layers/x.py", "from keras_attention import decoding", "must not"),
        (
            "keras_attention/decoding/x.py",
            "import keras_attention.layers.attention.luong",
            "must not",
        ),
        ("keras_attention/losses.py", "from keras_attention.metrics import bleu", "must not"),
        (
            "keras_attention/metrics/x.py",
            "from keras_attention.applications.text import T",
            "must not",
        ),
        (
            "keras_attention/visualization/x.py",
            "from keras_attention.applications.text import T",
            "must not",
        ),
        (
            "applications/text/x.py",
            "from keras_attention.applications.translation import T",
            "must not",
        ),
        ("keras_attention/__init__.py", "from keras_attention.applications import T", "must not"),
        ("keras_attention/new/x.py", "", "no entry in LIBRARY"),
        ("keras_attention/ops/x.py", "import tensorflow as tf", "use keras.ops"),
        ("keras_attention/layers/x.py", "from jax import numpy", "use keras.ops"),
        ("keras_attention/decoding/x.py", "def f():\n    import torch", "use keras.ops"),
        ("applications/translation/x.py", "from keras_attention.losses.special import A", "inside"),
        (
            "applications/base/x.py",
            "from keras_attention.applications.translation import A",
            "must",
        ),
        ("applications/training/x.py", "from ..base.task import TextTask", "must"),
        ("applications/store/x.py", "def f():\n    from ..data.lines import Lines", "must"),
        ("applications/new/x.py", "", "no entry in ROOMS"),
        (
            "applications/training/x.py",
            "from keras_attention.applications.command.cli import main",
            "must",
        ),
        (
            "applications/translation/x.py",
            "from keras_attention.applications import command",
            "must",
        ),
        ("applications/translation/x.py", "from ..summarization.model import A", "must not"),
        ("keras_attention/ops/x.py", "from keras.src import tree", "private"),
        ("applications/base/x.py", "from keras.src.utils import tree", "private"),
        ("benchmarks/x.py", "import tensorflow.python.eager", "private"),
        ("tests/x.py", "import keras\nkeras.src.backend.name()", "private"),
        ("tests/x.py", "import tensorflow as tf\ntf.python.eager", "private"),
        ("keras_attention/ops/x.py", "from jax._src import core", "private"),
        ("keras_attention/ops/__init__.py", "def f():\n    pass", "re-exports"),
        ("keras_attention/ops/__init__.py", "VERSION = 1", "re-exports"),
        ("keras_attention/ops/__init__.py", "from keras_attention.ops.a import b", "differ in: b"),
        ("keras_attention/ops/__init__.py", "__all__ = ['b']", "differ in: b"),
    ],
)
def test_a_violation_is_found(path, source, message):
    problems = check_source(source, Path(path))
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize("other", sorted(TASKS - {"translation"}))
def test_applications_do_not_import_one_another(other):
    source = f"from keras_attention.applications.{other}.model import Model"
    assert check_source(source, Path("applications/translation/x.py"))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("keras_attention/ops/x.py", "from keras import ops\nfrom keras_attention.ops.y import z"),
        ("keras_attention/layers/x.py", "import keras\nfrom keras_attention.ops.masks import z"),
        ("applications/text/x.py", "import tensorflow as tf\nimport tensorflow_text"),
        (
            "keras_attention/__init__.py",
            '"""A."""\nfrom keras_attention.ops import a\n__all__ = ["a"]',
        ),
        (
            "applications/translation/x.py",
            "from keras_attention import A\n"
            "from keras_attention.applications.text import B\n"
            "from keras_attention.losses import C\n"
            "from keras_attention.applications.schema.reading import D\n"
            "from keras_attention.applications.translation.data import E\nfrom .model import F",
        ),
        (
            "applications/command/cli.py",
            "from keras_attention.applications.translation.task import A",
        ),
        (
            "applications/store/x.py",
            "from .files import a\nfrom keras_attention.applications.errors import B",
        ),
        ("tests/x.py", "from keras_attention.ops.masks import a\nimport torch\n_a = torch.nn"),
    ],
)
def test_what_is_allowed_passes(path, source):
    assert check_source(source, Path(path)) == []


def run_without(names: tuple[str, ...], statement: str) -> subprocess.CompletedProcess:
    """Run a statement in a fresh Python in which importing any of the names fails."""
    code = f"import sys\nsys.modules.update(dict.fromkeys({names!r}))\n{statement}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )


def test_import_needs_only_keras():
    parts = "decoding, layers, losses, metrics, ops, visualization"
    result = run_without(NOT_AT_IMPORT, f"from keras_attention import {parts}")
    assert result.returncode == 0, result.stderr


def test_a_forbidden_import_would_be_found():
    result = run_without(NOT_AT_IMPORT, "import sacrebleu")
    assert result.returncode == 1 and "import of sacrebleu halted" in result.stderr
