"""Documents: their sentences are those of `translate`, and all that lies between them stays."""

import io
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attention.applications.translation import Translation, Translator
from keras_attention.applications.translation.documents import cut_document, last_tag
from tests.applications.commands import call_command
from tests.applications.translation.pretrained import hugging_face_files, marian_files

DOCUMENT = (
    "  Ein Mann steht auf. Zwei Kinder putzen!\r\n\r\n\t Ein Mann.\r\n * * *\n\n\nKinder  \n  "
)


def words(texts):
    return [len(text.split()) for text in texts]


def letters(texts):
    return [len(text) for text in texts]


def cut(text, longest=99, count=words, language=None, tags=()):
    return cut_document(text, language, longest, count, tags)


def joined(document, write=str.upper):
    return document.joined([SimpleNamespace(text=write(x)) for x in document.sentences])


def test_lines_and_spaces_stay():
    document = cut("  One. Two!\r\n\r\n\t Three, four.\r\n * * *\n\n\nFive  \n \u2028six\x0b😀\n  ")
    assert document.sentences == ["One.", "Two!", "Three, four.", "Five", "six"]
    found = joined(document)
    assert found.text == document.source.upper()
    assert found.sources == document.sentences
    assert [found.text[slice(*span)] for span in found.spans] == [
        each.upper() for each in document.sentences
    ]


@pytest.mark.parametrize("text", ["", " ", "\n", "\r\n\r\n", " \t\n\n  ", "---\n…", "\ufeff"])
def test_nothing_to_translate(text):
    document = cut(text)
    assert document.sentences == [] and joined(document).text == text


def test_long_sentences_are_cut_after_clauses_then_words_then_characters():
    text = "a b c d e, f g h i j k"
    assert cut(text, 6).sentences == ["a b c d e,", "f g h i j k"]
    text = " ".join("abcdefghijklmnopq")
    found = cut(text, 5).sentences
    assert " ".join(found) == text and max(words(found)) <= 5 and min(words(found)) > 1
    found = cut("x" * 1000, 64, letters)
    assert "".join(found.sentences) == "x" * 1000 and max(letters(found.sentences)) <= 64
    assert joined(found).text == "X" * 1000  # a word has no spaces inside
    text = "今天天气很好，" * 40
    found = cut(text, 50, letters).sentences
    assert "".join(found) == text and all(each.endswith("，") for each in found)
    accents = "e\u0301" * 200  # which are not parted from their letters
    assert all(each[0] == "e" for each in cut(accents, 32, letters).sentences)
    assert "".join(cut("\u0301" * 200, 32, letters).source) == "\u0301" * 200
    assert cut("a" + "\u0301" * 99, 1, letters).sentences


def test_random_documents_lose_nothing():
    parts = ["Ein", "Mann.", "1,5", " ", "  ", "\n", "\r\n", "中。", "国，", "“Ja!”", "…", "\u3000"]
    parts += ["z.B.", "*", "- ", "😀", "e\u0301", "\t", "x" * 30, "\u2028", ">>fra<<"]
    draw = random.Random(5)
    for _ in range(500):
        text = "".join(draw.choices(parts, k=draw.randrange(60)))
        document = cut(text, draw.randrange(1, 12), letters)
        found = document.joined([SimpleNamespace(text=each) for each in document.sentences])
        # Only single spaces may come or go, around Chinese.
        assert "".join(found.text.split()) == "".join(text.split())
        assert found.text.splitlines(keepends=True) == [] or found.text.count("\n") == text.count(
            "\n"
        )
        assert max(letters(document.sentences), default=0) <= 12


def test_chinese_has_no_spaces_between_sentences_and_others_do():
    to_chinese = {"One.": "一。", "Two.": "二。", "Three.": "Three三。"}.get
    assert joined(cut("One. Two. Three.\nOne."), to_chinese).text == "一。二。Three三。\n一。"
    to_english = {"一。": "One.", "二？": "Two?", "三": "Three"}.get
    assert (
        joined(cut("一。二？三\n二？", language="zh"), to_english).text == "One. Two? Three\nTwo?"
    )
    to_korean = {"One.": "하나.", "Two.": "둘."}.get
    assert joined(cut("One. Two."), to_korean).text == "하나. 둘."
    assert joined(cut("One. 😀 Two."), lambda text: text).text == "One. 😀 Two."
    nothing = cut("One. Two. 一。")
    assert joined(nothing, lambda text: "").text.strip() == ""


def test_a_tag_holds_for_the_lines_after_it():
    tags = {">>fra<<", ">>spa<<", "a"}
    document = cut(">>fra<< One. Two.\n\nThree.\n>>spa<<Four. >>x<< Five\n>>y<< Six", tags=tags)
    assert document.sentences[:3] == [">>fra<< One.", ">>fra<< Two.", ">>fra<< Three."]
    assert document.sentences[3] == ">>spa<< Four."
    assert all(each.startswith(">>spa<< ") for each in document.sentences[3:])
    found = document.joined(
        [SimpleNamespace(text=each.partition("<< ")[2]) for each in document.sentences]
    )
    assert found.text == "One. Two.\n\nThree.\nFour. >>x<< Five\n>>y<< Six"
    assert found.sources[:2] == ["One.", "Two."]
    assert last_tag(document.source, tags) == ">>spa<< " and last_tag(">>y<< a", tags) == ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents") / "student"
    marian_files.write_folder(folder, "int8", seed=3)
    return folder


@pytest.fixture(scope="module")
def real(folder):
    return Translator.from_preset(folder, search={"beam_size": 1, "max_length": 5})


def test_sentences_are_those_of_translate(real):
    found = real.translate_document(DOCUMENT, max_tokens=20)
    sentences = ["Ein Mann steht auf.", "Zwei Kinder putzen!", "Ein Mann.", "Kinder"]
    assert found.sources == sentences
    for each, wanted in zip(found.sentences, real.translate(sentences), strict=True):
        assert (each.text, each.ids) == (wanted.text, wanted.ids)
        assert each.alignment.shape == wanted.alignment.shape
    one, two, three, four = (each.text for each in found.sentences)
    assert found.text == f"  {one} {two}\r\n\r\n\t {three}\r\n * * *\n\n\n{four}  \n  "


@pytest.fixture
def translator(real, monkeypatch):
    """A translator without its network: sentences in capital letters."""

    def translate(self, texts, search=None, *, return_alignments=True, **options):
        read = self.preprocessor.source_tokenizer
        return [
            Translation(
                text.upper(),
                -1.0,
                -1.0,
                [text.upper()],
                read.tokens(text),
                np.ones((1, len(read.tokens(text)))) if return_alignments else None,
            )
            for text in texts
        ]

    monkeypatch.setattr(Translator, "translate", translate)
    return Translator(real.backbone, real.preprocessor, search={"beam_size": 1, "max_length": 50})


def test_several_documents_and_none(translator):
    several = translator.translate_document([DOCUMENT, "", "Kinder"], beam_size=2)
    assert [len(each.sentences) for each in several] == [4, 0, 1] and several[1].text == ""
    assert several[0].text == DOCUMENT.upper()
    assert translator.translate_document([]) == []


def test_a_sentence_is_as_long_as_the_search_can_write(translator):
    text = "Ein Mann " * 40
    found = translator.translate_document(text, max_length=6)
    assert max(len(each.source_tokens) for each in found.sentences) <= 3  # half of it
    found = translator.translate_document(text, max_length=50, max_tokens=9)
    assert 3 < max(len(each.source_tokens) for each in found.sentences) <= 9
    assert " ".join(found.sources) == text.strip()
    with pytest.raises(ValueError, match="`max_tokens` should be a positive integer"):
        translator.translate_document(text, max_tokens=0)
    with pytest.raises(ValueError, match="an option of the search must be one of"):
        translator.translate_document(text, prefix="a")
    with pytest.raises(ValueError, match="`texts` should hold strings only"):
        translator.translate_document([None])


def test_tags_are_tokens_of_the_model(translator, tmp_path):
    hugging_face_files.write_folder(tmp_path / "opus-mt-en-de")
    translator = Translator.from_preset(tmp_path / "opus-mt-en-de")
    languages = translator.source_language, translator.target_language
    assert languages == ("de", "de")  # of the name in its configuration
    found = translator.translate_document(
        ">>fra<< Ein Mann. Kinder.\nMann", beam_size=1, max_length=50
    )
    assert [each.source_tokens[0] for each in found.sentences] == [">>fra<<"] * 3
    assert found.sources == ["Ein Mann.", "Kinder.", "Mann"]


def test_the_command_translates_documents(folder, translator, tmp_path, capsys, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbf" + DOCUMENT.encode())
    options = ["--documents", "--max-length", 50, "--beam-size", 1]
    wanted = translator.translate_document(DOCUMENT)
    output = tmp_path / "out.txt"
    done = call_command(capsys, "predict", folder, *options, "--input", path, "--output", output)
    assert done.status == 0 and output.read_bytes().decode() == wanted.text
    done = call_command(capsys, "predict", folder, *options, "--input", path, "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["source"] for each in found] == wanted.sources
    assert [each["text"] for each in found] == [each.text for each in wanted.sentences]
    assert [each["line"] for each in found] == [0, 0, 2, 6]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Ein Mann.\n\nKinder")))
    done = call_command(capsys, "predict", folder, *options)
    assert done.out == translator.translate_document("Ein Mann.\n\nKinder").text
    for more, message in (
        (["--n-best", 2, "--beam-size", 2], "--n-best is for single sentences"),
        (["--prefix", "a"], "--prefix is for single sentences"),
        (["--alignments"], "add --json"),
    ):
        done = call_command(capsys, "predict", folder, *options, "--input", path, *more)
        assert (done.status, done.err.count("\n")) == (2, 1) and message in done.err


def test_the_command_goes_on_over_parts(translator, folder, tmp_path, capsys, monkeypatch):
    """Parts of a file are translated one after another; a tag holds in later ones, too."""
    place = "keras_attention.applications.translation.verbs.BATCHES_IN_A_CHUNK"
    monkeypatch.setattr(place, 1)
    hugging_face_files.write_folder(tmp_path / "tagged")
    text = ">>fra<< Ein Mann.\nKinder. Mann.\n\nEin\n"
    (tmp_path / "text.txt").write_text(text)
    options = ["--documents", "--max-length", 50, "--beam-size", 1, "--batch-size", 1]
    options += ["--input", tmp_path / "text.txt"]
    done = call_command(capsys, "predict", tmp_path / "tagged", *options)
    task = Translator.from_preset(tmp_path / "tagged")
    assert done.out == task.translate_document(text, beam_size=1, max_length=50).text
    done = call_command(capsys, "predict", tmp_path / "tagged", *options, "--json")
    assert [json.loads(each)["line"] for each in done.out.splitlines()] == [0, 1, 1, 3]


def test_the_server_translates_documents(translator):
    pytest.importorskip("fastapi", reason="the server is an extra: pip install fastapi uvicorn")
    pytest.importorskip("httpx", reason="TestClient needs httpx")
    from fastapi.testclient import TestClient

    from keras_attention.applications.command.serve import Limits, make_app

    tasks = {"a": translator, "other": object()}
    limits = Limits(characters=len(DOCUMENT))
    with TestClient(make_app(tasks, limits), base_url="http://127.0.0.1:8000") as client:

        def ask(**asked):
            return client.post("/api/document", json={"model": "a", "text": DOCUMENT} | asked)

        found = ask().json()
        wanted = translator.translate_document(DOCUMENT)
        assert found["text"] == wanted.text
        spans = [tuple(each["span"]) for each in found["sentences"]]
        assert spans == list(wanted.spans)
        for each, sentence in zip(found["sentences"], wanted.sentences, strict=True):
            assert each["tokens"] == sentence.tokens
            assert len(each["alignment"]) == len(sentence.tokens)
        assert ask(beam_size=2).status_code == 200
        assert ask(text="").json() == {"model": "a", "text": "", "sentences": []}
        for status, asked in ((413, {"text": DOCUMENT + "x"}), (404, {"model": "b"})):
            assert ask(**asked).status_code == status
        refused = ask(model="other")
        assert refused.status_code == 400 and "no documents" in refused.json()["error"]
        assert ask(beam_size=99).status_code == 422
