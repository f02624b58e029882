"""Unknown words of an input: counted and named in results, on the page and in lists of results."""

import re

import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker
from keras_attention.applications.classification import PairClassifier, TextClassifier
from keras_attention.applications.show.results import MOST_SHOWN, Results
from keras_attention.applications.show.unknown import unknown_note, unknown_words
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.tagging import TokenClassifier
from keras_attention.applications.translation import Translation, Translator
from tests.applications.commands import call_command

KNOWN = ["the dog runs home", "the cat sleeps"]
MIXED = "the wolf runs there"
NOTE = "2 of 4 words are unknown to the model: wolf, there."
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


@pytest.fixture(scope="module")
def translator():
    return Translator.from_texts(KNOWN, ["a b c", "a d"], units=8)


@pytest.fixture(scope="module")
def dates():
    return Translator.from_preset("dates")


@pytest.mark.parametrize(
    ("words", "unknown", "note"),
    [
        (3, [], ""),
        (0, [], ""),
        (3, ["a"], "1 of 3 words is unknown to the model: a."),
        (8, ["b", "a", "b"], "3 of 8 words are unknown to the model: b, a."),
        (1234, list("abcdefg"), "7 of 1,234 words are unknown to the model: a, b, c, d, e and 2"),
    ],
)
def test_a_note_counts_and_names(words, unknown, note):
    assert unknown_note(words, unknown).startswith(note) and (note or not unknown)


@pytest.mark.parametrize(
    ("tokens", "places", "expected"),
    [
        (["the", "wolf"], [1], (2, ["wolf"])),
        (["▁the", "▁wo", "lf", "▁runs"], [2], (3, ["wolf"])),
        (["▁the", "▁wo", "lf"], [1, 2], (2, ["wolf"])),
        (["▁", "日本語"], [1], (1, ["日本語"])),
        ([], [], (0, [])),
    ],
)
def test_a_word_with_an_unknown_piece_is_unknown(tokens, places, expected):
    assert unknown_words(tokens, places) == expected


def test_a_translation_says_which_words_are_unknown(translator):
    assert translator.translate(KNOWN[0]).note == ""
    result = translator.translate(MIXED, min_length=3)
    assert result.note == NOTE and result.show().endswith(NOTE)
    assert [result.source_tokens[place] for place in result.unknown] == ["wolf", "there"]
    html = result._repr_html_()
    assert html.index(result.text) < html.index(NOTE) < html.index("data:image/png;base64,")
    (scored,) = translator.score([MIXED], ["a b"])
    assert scored.note == NOTE
    assert all(each.note == NOTE for each in translator.translate(MIXED, n_best=2).ranked)


def test_a_translation_without_a_map_shows_its_text(translator):
    result = translator.translate(MIXED, return_alignments=False)
    assert NOTE in result._repr_html_() and "<img" not in result._repr_html_()
    assert NOTE in result.show()
    empty = translator.translate("")
    assert empty.note == "" and "(nothing)" in empty._repr_html_()


def test_script_of_another_language_is_not_translated_without_a_word(dates):
    result = dates.translate("日本語")
    assert re.match(r"\d of \d words? (is|are) unknown to the model", result.note)
    found = dates.explain("日本語")
    assert found.notes == [result.note]
    columns = found.answers[0].maps[0].columns
    assert columns.unknown and max(columns.unknown) < len(columns.tokens)
    assert dates.explain("4 juin 1999").notes == []
    assert dates.explain("4 juin 1999").answers[0].maps[0].columns.unknown == []


def test_the_command_says_it(tmp_path, capsys):
    done = call_command(capsys, "visualize", "dates", "--input", "日本語")
    assert done.status == 0 and "unknown to the model" in done.out
    for name in ("a.html", "a.png"):
        done = call_command(
            capsys, "visualize", "dates", "--input", "日本語", "--output", tmp_path / name
        )
        assert done.status == 0 and "unknown to the model" in done.err


def test_a_summary_says_it():
    summarizer = Summarizer.from_texts(KNOWN, ["dog", "cat"], units=8)
    result = summarizer.summarize(MIXED, min_length=2, max_length=4)
    assert result.note == NOTE and summarizer.summarize(KNOWN[0]).note == ""
    assert NOTE in result._repr_html_() and result.show().endswith(NOTE)
    found = summarizer.explain(MIXED)
    assert found.notes == [NOTE]
    if found.answers[0].maps:
        assert found.answers[0].maps[0].columns.unknown == [1, 3]


def test_a_prediction_says_it():
    classifier = TextClassifier.from_texts(KNOWN * 2, ["yes", "no"] * 2, units=8)
    result = classifier.classify(MIXED)
    assert result.note == NOTE and classifier.classify(KNOWN[0]).note == ""
    assert NOTE in result.show(color=False) and NOTE in result._repr_html_()
    assert result.as_json()["unknown"] == ["wolf", "there"]
    assert "unknown" not in classifier.classify(KNOWN[0]).as_json()
    plain = classifier.classify(MIXED, return_weights=False)
    assert plain.note == NOTE and NOTE in plain._repr_html_() and NOTE in plain.show()
    found = classifier.explain(MIXED)
    assert found.notes == [NOTE] and found.answers[0].maps[0].columns.unknown == [1, 3]


def test_a_prediction_of_a_pair_counts_both():
    pairs = [(KNOWN[0], KNOWN[1]), (KNOWN[1], KNOWN[0])]
    classifier = PairClassifier.from_texts(pairs, ["yes", "no"], units=8)
    note = classifier.classify((MIXED, "the bear")).note
    assert note == "3 of 6 words are unknown to the model: wolf, there, bear."


def test_a_ranking_says_it():
    questions = [("who runs ?", KNOWN, [1, 0])] * 2
    ranker = AnswerRanker.from_questions(questions, units=8)
    ranking = ranker.rank("who runs ?", ["the dog", MIXED])
    assert ranking.note == "2 of 9 words are unknown to the model: wolf, there."
    assert ranking.note in ranking._repr_html_() and ranking.note in ranking.show(color=False)
    found = ranker.explain("who jumps ?", "the dog\nthe cat")
    assert found.notes == ["1 of 7 words is unknown to the model: jumps."]
    assert ranker.rank("who runs ?", ["the dog"]).note == ""


def test_a_list_of_results_shows_each(translator):
    found = translator.translate([MIXED, KNOWN[0], ""])
    assert isinstance(found, list) and found == list(found) and isinstance(found[:2], Results)
    html = found._repr_html_()
    assert html.count("<li>") == 3 and html.count(NOTE) == 1
    assert html.count("<summary>Attention</summary>") == sum(each.can_be_drawn for each in found)
    predictions = TextClassifier.from_texts(KNOWN * 2, ["a", "b"] * 2, units=8).classify(KNOWN)
    assert predictions._repr_html_().count("<li>") == 2
    assert "skipped" in Results([None])._repr_html_()


def test_a_long_list_is_cut():
    result = Translation("<b>", 0.0, 0.0, ["x"], ["y"], np.ones((1, 1)))
    html = Results([result] * (MOST_SHOWN + 3))._repr_html_()
    assert html.count("<li>") == MOST_SHOWN and "3 more: results[20:]" in html
    assert "&lt;b&gt;" in html and "<b>" not in html.replace("<b></b>", "")
    assert Results()._repr_html_() == '<ol start="0"></ol>'


def test_tags_say_it():
    tags = [["B-A", "O", "O", "O"], ["O", "B-A", "O"]]
    words = [line.split() for line in KNOWN]
    tagger = TokenClassifier.from_texts(words, tags, units=8, architecture="self-attention")
    result = tagger.tag(MIXED)
    assert result.note == NOTE and tagger.tag(KNOWN[0]).note == ""
    assert NOTE in result._repr_html_() and result.show().endswith(NOTE)
    assert result.as_json()["unknown"] == ["wolf", "there"]
    assert "unknown" not in tagger.tag(KNOWN[0]).as_json()
    # Sorted by length inside of a batch, and padded: each keeps its own.
    assert [each.unknown for each in tagger.tag([MIXED, "the", "bear runs"])] == [(1, 3), (), (0,)]
    found = tagger.explain(MIXED)
    assert found.notes == [NOTE]
    shaded, attention = found.answers[0].maps
    assert shaded.columns.unknown == attention.columns.unknown == attention.rows.unknown == [1, 3]
