"""Translations and summaries that begin with given words, and log-probabilities of tokens."""

import json

import keras
import numpy as np
import pytest

from keras_attention.applications.command import main
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.translation import Translator
from tests.applications.translation.test_shortlist import some_words
from tests.applications.translation_runs import SOURCE_LINES, make_translator

STARTS = ["ein", "", "zw", "xyz", "die k"]
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 2},
    "sample": {"sample": True, "seed": 1, "n_best": 2},
}


@pytest.fixture(scope="module")
def translators():
    made = {}

    def make(name):
        if name not in made:
            kind, architecture = name.split(" ")
            made[name] = make_translator(kind, architecture=architecture)
        return made[name]

    return make


@pytest.mark.by_default("sentencepiece rnnsearch-greedy", "words rnnsearch-beam",
                        "sentencepiece transformer-sample")  # fmt: skip
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize(
    "name", ["sentencepiece rnnsearch", "words rnnsearch", "sentencepiece transformer"]
)
def test_translations_begin_with_the_prefix(translators, name, search):
    """Unknown words too; what is written after it is scored as `score` scores it."""
    task, options = translators(name), {"max_length": 12, **SEARCHES[search]}
    for prefix in (STARTS, "ein man"):
        found = task.translate(SOURCE_LINES, prefix=prefix, **options)
        starts = STARTS if prefix is STARTS else [prefix] * 5
        for line, start, best in zip(SOURCE_LINES, starts, found, strict=True):
            alone = task.translate(line, prefix=start, **options)
            assert alone.text == best.text
            for each in best.ranked:
                assert each.text.startswith(start)
                ended = len(each.token_log_probabilities) - len(each.tokens)
                assert ended in (0, 1)
                total = sum(each.token_log_probabilities)
                assert total == pytest.approx(each.log_probability, rel=1e-4)
    free = task.translate(SOURCE_LINES, prefix=["", "", "", "", ""], **options)
    plain = task.translate(SOURCE_LINES, **options)
    assert [each.text for each in free] == [each.text for each in plain]
    empty = task.translate("", prefix="ein")
    assert (empty.text, empty.token_log_probabilities) == ("", [])


@pytest.mark.parametrize("name", ["sentencepiece rnnsearch", "sentencepiece transformer"])
def test_terms_are_those_of_forced_translations(translators, name):
    task = translators(name)
    found = task.translate(SOURCE_LINES, beam_size=3, n_best=2, prefix="ei", max_length=8)
    ranked = [(line, each) for line, best in zip(SOURCE_LINES, found, strict=True)
              for each in best.ranked]  # fmt: skip
    scored = task.score(*map(list, zip(*[(line, each.text) for line, each in ranked], strict=True)))
    compared = 0
    for (_, mine), given in zip(ranked, scored, strict=True):
        if mine.ids == given.ids:  # pieces may be cut in another way
            terms = given.token_log_probabilities[: len(mine.token_log_probabilities)]
            np.testing.assert_allclose(mine.token_log_probabilities, terms, rtol=2e-3, atol=1e-3)
            compared += 1
        assert sum(given.token_log_probabilities) == pytest.approx(given.score, rel=1e-4)
    assert compared > 1


def test_an_ensemble_a_shortlist_and_streams_take_a_prefix(translators):
    task = translators("sentencepiece rnnsearch")
    both = Translator.ensemble([task, task])
    wanted = task.translate(SOURCE_LINES, prefix=STARTS, beam_size=2)
    for other, more in (
        (both, {}),
        (task, {"streams": 2, "batch_size": 2}),
        (task, {"shortlist": some_words(task, size=10**6)}),
    ):
        found = other.translate(SOURCE_LINES, prefix=STARTS, beam_size=2, **more)
        assert [each.text for each in found] == [each.text for each in wanted]
    short = some_words(task, size=14)
    found = task.translate(SOURCE_LINES, prefix=STARTS, shortlist=short, beam_size=2, batch_size=1)
    for start, each in zip(STARTS, found, strict=True):
        assert each.text.startswith(start)
    with pytest.raises(ValueError, match="room for the words of all prefixes.*size=5 for"):
        task.translate(SOURCE_LINES, prefix=STARTS, shortlist=some_words(task, size=5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": "ein mann " * 9}, r"prefix of texts\[0\] is longer.*at most 9 may be written"),
        ({"prefix": ["ein"]}, "equally many entries. Received: 5 in texts, 1 in prefix"),
        ({"prefix": 3}, "`prefix` should be a sequence of strings.*Received: prefix=3"),
        ({"prefix": [1] * 5}, r"Received: prefix\[0\]=1"),
        ({"prefix": "\ud800"}, "prefix"),
        ({"prefix": "ein", "engine": "litert"}, "engine litert takes no prefix: without"),
    ],
    ids=str,
)
def test_what_is_no_prefix_is_refused(translators, options, message):
    with pytest.raises(ValueError, match=message):
        translators("sentencepiece rnnsearch").translate(SOURCE_LINES, **options)
    with pytest.raises(ValueError, match="of one text should be a string"):
        translators("sentencepiece rnnsearch").translate("a man", prefix=["ein"])


DOCUMENTS = ["One dog runs. It barks loudly at zorro.", "Two cats. They sleep in the sun."]


@pytest.mark.by_default("greedy", "beam")
@pytest.mark.parametrize("search", SEARCHES)
def test_summaries_begin_with_the_prefix(search):
    keras.utils.set_random_seed(3)
    task = Summarizer.from_texts(
        DOCUMENTS, ["dog barks", "cats sleep"], units=8, embedding_size=6, vocabulary_size=12
    )
    starts = ["the zorro quux", ""]
    found = task.summarize(DOCUMENTS, prefix=starts, max_length=6, **SEARCHES[search])
    for start, best in zip(starts, found, strict=True):
        for each in best.ranked:
            assert each.text.startswith(start) and len(each.tokens) <= 6
            assert len(each.token_log_probabilities) == len(each.tokens) + 1
            total = sum(each.token_log_probabilities)
            assert total == pytest.approx(each.log_probability, rel=1e-4)
    assert found[0].tokens[:3] == ["the", "zorro", "quux"] and not found[0].unknown[:3].any()
    assert found[0].copied[1]  # the document has it, the vocabulary not
    with pytest.raises(ValueError, match=r"prefix of documents\[0\] is longer.*at most 2"):
        task.summarize(DOCUMENTS, prefix=starts, max_length=2)


def test_the_command_writes_json_and_says_what_diverged(tmp_path, capsys):
    task = make_translator(architecture="rnnencdec")
    task.save_to_preset(tmp_path / "preset")
    (tmp_path / "lines").write_text("\n".join(SOURCE_LINES) + "\n")
    command = ["--input", str(tmp_path / "lines"), "--prefix", "ein", "--json", "--n-best", "2"]
    assert main(["predict", str(tmp_path / "preset"), *command]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["line"] for each in found] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    expected = [x for best in task.translate(SOURCE_LINES, n_best=2, prefix="ein")
                for x in best.ranked]  # fmt: skip
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["text"] == theirs.text and mine["tokens"] == theirs.tokens
        np.testing.assert_allclose(
            mine["token_log_probabilities"], theirs.token_log_probabilities, rtol=1e-3, atol=1e-4
        )
    explained = json.loads(task.explain(SOURCE_LINES[0]).to_json())["answers"][0]
    assert len(explained["token_log_probabilities"]) > 1
