"""Every example of the README, the pages and the docstrings of public names runs."""

import importlib
import inspect
from pathlib import Path

import pytest

from tests.docs_examples import documented, fences, pages, run_fences, run_prompts

REPOSITORY = Path(__file__).resolve().parent.parent
MODULES = [
    "keras_attention.decoding",
    "keras_attention.layers",
    "keras_attention.losses",
    "keras_attention.metrics",
    "keras_attention.text",
    "keras_attention.visualization",
]
PAGES = [page for page in pages(REPOSITORY) if "```python" in page.read_text(encoding="utf-8")]
NAMES = [item for name in MODULES for item in documented(importlib.import_module(name))]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """What an example writes goes to a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_page(page):
    run_fences(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("value", [value for _, value in NAMES], ids=[name for name, _ in NAMES])
def test_docstring(value):
    text = inspect.getdoc(value) or ""
    names = vars(importlib.import_module(value.__module__))
    run_fences(text, value.__qualname__, names)
    run_prompts(text, value.__qualname__, names)


def test_every_layer_has_an_example():
    layers = importlib.import_module("keras_attention.layers")
    without = [
        name
        for name in layers.__all__
        if name != "AttentionMechanism" and not fences(inspect.getdoc(getattr(layers, name)))
    ]
    assert not without


def test_every_layer_has_a_page():
    layers = importlib.import_module("keras_attention.layers")
    titles = [
        page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        for page in (REPOSITORY / "docs" / "layers").glob("*.md")
    ]
    assert set(layers.__all__) - {"AttentionMechanism"} <= set(titles)


def test_the_runner_fails_on_a_wrong_example():
    with pytest.raises(AssertionError):
        run_fences("text\n\n```python\nassert 1 == 2\n```\n", "planted")
    with pytest.raises(AssertionError, match="Expected"):
        run_prompts(">>> 1 + 1\n3\n", "planted", {})


def test_the_runner_counts_what_it_runs():
    text = "```python\na = 1\n```\n\n    ```python\n    assert a == 1\n    ```\n"
    assert run_fences(text, "planted") == 2
    assert run_prompts("```python\n>>> 1 + 1\n2\n```\n", "planted", {}) == 1
