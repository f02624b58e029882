"""Tasks read letters in any form of Unicode: results of NFD are those of NFC."""

import unicodedata

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker
from keras_attention.applications.classification import Labels, TextClassifier
from keras_attention.applications.data.vectors import read_vectors, start_vectors
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.summarization.preprocessor import split_sentences
from keras_attention.applications.text import WordTokenizer
from keras_attention.applications.translation import Shortlist, Translator
from keras_attention.applications.translation.results import evaluation_report

SOURCES = ["séjour désagréable", "Việt rất đẹp", "한국어 문장을", "hôtel ệ ự"] * 2
TARGETS = ["đẹp tiếng", "한국어 값이", "séjour été", "ệ ộ"] * 2


def nfd(text):
    return unicodedata.normalize("NFD", text)


def all_nfd(texts):
    return [nfd(text) for text in texts]


def test_translation_and_its_parts(tmp_path, traced_nowhere):
    keras.utils.set_random_seed(5)
    task = Translator.from_texts(SOURCES, TARGETS, units=6)
    same = Translator.from_texts(all_nfd(SOURCES), all_nfd(TARGETS), units=6)
    for one, other in zip(task.preprocessor.tokenizers, same.preprocessor.tokenizers, strict=True):
        assert one.vocabulary == other.vocabulary
    expected = task.translate(SOURCES[:4])
    for found, wanted in zip(task.translate(all_nfd(SOURCES[:4])), expected, strict=True):
        assert (found.text, found.source_tokens) == (wanted.text, wanted.source_tokens)
        assert found.alignment.shape[1] == len(found.source_tokens)
    assert task.translate(nfd(SOURCES[0]), prefix=nfd("séjour")).text.startswith("séjour")
    scores = [each.score for each in task.score(all_nfd(SOURCES), all_nfd(TARGETS))]
    np.testing.assert_allclose(scores, [each.score for each in task.score(SOURCES, TARGETS)])
    shortlist = Shortlist.learn(task, SOURCES, TARGETS, size=6)
    shortlist.save(tmp_path / "list.tsv")
    text = (tmp_path / "list.tsv").read_text(encoding="utf-8")
    (tmp_path / "nfd.tsv").write_text(nfd(text), encoding="utf-8")
    again = Shortlist.load(tmp_path / "nfd.tsv", task.preprocessor, size=6)
    np.testing.assert_allclose(again.frequencies, shortlist.frequencies, rtol=1e-3)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        served = task.service().serve(tf.constant(all_nfd(SOURCES[:4])))
        assert [each.decode() for each in served["text"].numpy()] == [e.text for e in expected]


def test_the_dictionary_of_unknown_words():
    task = Translator.from_texts(SOURCES, TARGETS, units=6)
    task.preprocessor.replace_unknown = True
    given = Translator(task.backbone, task.preprocessor, dictionary={nfd("hôtel"): "khách sạn"})
    bias = given.backbone.word_logits.bias
    bias.assign(np.where(np.arange(bias.shape[0]) == 1, 1e4, 0.0))
    assert "khách sạn" in given.translate(nfd("hôtel"), max_length=2).text
    with pytest.raises(ValueError, match="one translation of a word.*Received: 'a' and 'b'"):
        Translator(task.backbone, dictionary={"hôtel": "a", nfd("hôtel"): "b"})


def test_references_in_another_form_are_right():
    report = evaluation_report(["a"], ["été là"], [nfd("été là")])
    assert report["exact_match"] == 100 and report["chrf"] == 100


def test_summaries_copy_words_of_either_form(traced_nowhere):
    documents = ["Một khách sạn. Tiếng Việt đẹp.", "한국어 문장을 번역합니다."]
    assert split_sentences(nfd(documents[0])) == split_sentences(documents[0])
    task = Summarizer.from_texts(documents, ["khách sạn", "한국어"], units=6, vocabulary_size=8)
    read = task.preprocessor
    for document in documents:
        one, other = (read.document(split_sentences(text)) for text in (document, nfd(document)))
        assert one == other and one.unknown
    found = task.summarize(nfd(documents[0]), prefix=nfd("khách sạn"), max_length=4)
    assert found.text.startswith("khách sạn")


def test_ranking_and_vectors(tmp_path, traced_nowhere):
    lines = [f"{nfd(word)} {place}.0 1.5" for place, word in enumerate(["séjour", "한국어"], 1)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    known = read_vectors(tmp_path / "vectors.txt", 2).vectors
    assert list(known) == ["séjour", "한국어"]
    tokenizer = WordTokenizer(["한국어", "séjour"])
    for given in (known, {nfd(word): vector for word, vector in known.items()}):
        start, _ = start_vectors(tokenizer, 6, 2, seed=1, known=given)
        assert start[4:].tolist() == [[2.0, 1.5], [1.0, 1.5]]
    question = ("séjour 한국어", ["đẹp ệ", "séjour été"], [0, 1])
    task = AnswerRanker.from_questions([question] * 3, units=5)
    wanted = [each.score for each in task.rank(*question[:2])]
    found = [each.score for each in task.rank(nfd(question[0]), all_nfd(question[1]))]
    assert found == wanted


def test_labels_of_either_form_are_one(traced_nowhere):
    texts, labels = ["séjour đẹp", "한국어 값이"] * 4, ["été", "mùa hè"] * 4
    task = TextClassifier.from_texts(texts + all_nfd(texts), labels + all_nfd(labels), units=5)
    assert task.preprocessor.labels.names == ("mùa hè", "été")
    assert Labels("one", all_nfd(["été", "mùa hè"])).targets(["été"]).tolist() == [[1, 0]]
    for text in texts[:2]:
        one, other = task.classify([text, nfd(text)])
        assert one.probabilities == pytest.approx(other.probabilities)
    inputs, targets = task.preprocessor(texts, y=labels)
    again, same = task.preprocessor(all_nfd(texts), y=all_nfd(labels))
    np.testing.assert_array_equal(targets, same)
    for one, other in zip(keras.tree.flatten(inputs), keras.tree.flatten(again), strict=True):
        np.testing.assert_array_equal(one, other)
