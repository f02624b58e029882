"""Words to ids and vectors: unknown words, graphs, files of vectors, vectors of one's own text."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.answer_selection.config import VectorsConfig
from keras_attention.applications.answer_selection.preprocessor import AnswerPreprocessor, padded
from keras_attention.applications.answer_selection.vectors import (
    first_vectors,
    read_vectors,
    train_vectors,
    write_vectors,
)
from keras_attention.applications.errors import UserError
from keras_attention.applications.text import PackedIds, WordTokenizer

TEXTS = [
    "When was Ötzi found?",
    "",
    "Don't — it's 5,300 years",
    "ΣΊΣΥΦΟΣ was Ötzi",
    "a b c d e f g",
]


@pytest.fixture(scope="module")
def words():
    tokenizer = WordTokenizer(["was", "￭?", "it", "a", "b", "c"], lowercase=True)
    return AnswerPreprocessor(tokenizer, unknown_buckets=1009, max_length=5)


def test_unknown_words_share_buckets_and_keep_them(words):
    (first, empty, _, fourth, cut), coverage = words.encode(TEXTS)
    assert first[1] == fourth[1] == 4 and first[4] == 5 and empty == []
    size = words.tokenizer.vocabulary_size
    assert first[2] == fourth[2] >= size  # Ötzi, in both
    assert len({first[0], first[2], first[3], fourth[0]}) == 4
    assert (
        max(max(row, default=0) for row in (first, fourth)) < words.vocabulary_size == size + 1009
    )
    assert len(cut) == 5 and cut[:3] == [7, 8, 9]
    tokens = [words.tokenizer.tokens(text) for text in TEXTS]
    assert coverage.words == sum(map(len, tokens)) and coverage.cut == 2
    known = set(words.tokenizer.vocabulary)
    assert coverage.unknown == sum(token not in known for row in tokens for token in row)
    assert f"{coverage.unknown / coverage.words:.1%} of" in str(coverage)


def test_the_graph_gives_the_same_ids(words):
    expected, _ = words.encode(TEXTS)
    assert words.encode_in_graph(tf.constant(TEXTS)).to_list() == expected
    assert words.encode([])[0] == []
    inputs = words({"question": TEXTS[:2], "candidates": [TEXTS[2:4], TEXTS[4:]]})
    pairs = tf.constant(TEXTS[:2]), tf.constant([TEXTS[2:4], [*TEXTS[4:], ""]])
    graph = tf.function(lambda *pair: words({"question": pair[0], "candidates": pair[1]}))(*pairs)
    for name, array in inputs.items():
        np.testing.assert_array_equal(graph[name], array)


def test_each_question_has_candidates(words):
    with pytest.raises(ValueError, match="2 in question, 1 in candidates"):
        words({"question": ["it", "was"], "candidates": [["a"]]})


def test_half_a_surrogate_pair_is_an_unknown_word(words):
    ((first,), (second,)), _ = words.encode(["\ud800", "\ud801"])
    assert words.tokenizer.vocabulary_size <= min(first, second) and first != second


@pytest.mark.parametrize("given", [["it"], {"question": ["it"]}])
def test_a_question_comes_with_its_candidates(words, given):
    with pytest.raises(ValueError, match='should be a dict of "question", strings'):
        words(given)


def test_questions_without_candidates_have_none(words):
    inputs = words({"question": ["it"], "candidates": [[]]})
    assert inputs["candidates"].shape == (1, 0, 8)


def test_padding_is_to_a_multiple():
    np.testing.assert_array_equal(
        padded(PackedIds([[1, 2, 3], []])), [[1, 2, 3] + [0] * 5, [0] * 8]
    )
    assert padded(PackedIds([[]])).shape == (1, 8)
    assert padded(PackedIds([[5] * 9])).shape == (1, 16)


def write(tmp_path, text, name="vectors.txt"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
def test_vectors_are_read_and_faults_counted(tmp_path, name):
    text = "7 2\nwas 1 2\nit 3 -4e-1 \nbroken 1\nwas 9 9\nnan 1 nan\nx y z\n? 5 6\n"
    file = read_vectors(write(tmp_path, text, name), 2)
    assert {word: vector.tolist() for word, vector in file.vectors.items()} == {
        "was": [1, 2],
        "it": [3, pytest.approx(-0.4)],
        "?": [5, 6],
    }
    assert (file.broken, file.first_broken, file.repeated) == (3, 4, 1)
    assert "3 vectors, 3 broken lines left out (first: line 4), 1 words" in str(file)


@pytest.mark.parametrize("text", ["was 1 2 3\nit 1 2 3\nx 1 2\n", "3 3\nwas 1 2 3\n"])
def test_vectors_of_another_size_are_refused(tmp_path, text):
    with pytest.raises(UserError, match="vectors of 3 numbers, and model.embedding_size is 2"):
        read_vectors(write(tmp_path, text), 2)


@pytest.mark.parametrize(
    "text",
    [
        "2 2\nwas nan 1\nit 1 inf\n",
        "<!DOCTYPE html>\n<html>\n<body> not found, 404 </body>\n",  # what a broken link gives
        "was\nit\n",
    ],
)
def test_a_file_without_sound_vectors_is_refused(tmp_path, text):
    with pytest.raises(UserError, match="has no line with a word and 2 finite numbers"):
        read_vectors(write(tmp_path, text), 2)


def test_tabs_stand_between_numbers_too(tmp_path):
    file = read_vectors(write(tmp_path, "2\t2\nwas\t1\t2\t\nit 3\t4\n"), 2)
    assert {word: vector.tolist() for word, vector in file.vectors.items()} == {
        "was": [1, 2],
        "it": [3, 4],
    }
    assert file.broken == 0


def test_words_take_the_vectors_of_a_file(tmp_path, words):
    file = read_vectors(write(tmp_path, "was 3 0\n? 0 5\nnew 1 1\nIt 9 9\n"), 2)
    config = VectorsConfig(source="file", file="x")
    vectors, report = first_vectors(config, words, 2, seed=3, texts=[], file=file)
    np.testing.assert_array_equal(vectors[[4, 5]], [[3, 0], [0, 5]])  # ￭? is ? in the file
    assert not vectors[0].any() and vectors.shape == (words.vocabulary_size, 2)
    lengths = np.linalg.norm(vectors[10:], axis=1)
    mean = np.linalg.norm([[3, 0], [0, 5]], axis=1).mean()
    assert np.sqrt((lengths**2).mean()) == pytest.approx(mean, rel=0.1)
    assert "2 of the vocabulary's 6 words have a vector from" in report and "4 a random" in report
    again, _ = first_vectors(config, words, 2, seed=3, texts=[], file=file)
    other, _ = first_vectors(config, words, 2, seed=4, texts=[], file=file)
    np.testing.assert_array_equal(vectors, again)
    assert not np.array_equal(vectors, other)


def test_extra_words_join_the_vocabulary():
    words = ["was", "The", "new", "x-y"]
    longer = AnswerPreprocessor.adapt(["was it ?", "was"], extra_words=words)
    assert longer.tokenizer.vocabulary[-2:] == ["it", "new"]  # The and x-y are no words of the text
    assert AnswerPreprocessor.adapt(["was it ?", "was"], min_count=2).tokenizer.vocabulary[4:] == [
        "was"
    ]


def test_vectors_are_trained_on_ones_own_text(words):
    pytest.importorskip("gensim")
    texts = ["it was a b c"] * 40 + ["unseen it was"] * 5
    config = VectorsConfig(source="train", epochs=2)
    vectors, report = first_vectors(config, words, 6, seed=3, texts=texts)
    again, _ = first_vectors(config, words, 6, seed=3, texts=texts)
    np.testing.assert_array_equal(vectors, again)
    assert "5 of the vocabulary's 6 words have a vector from gensim, 1 a random one" in report
    assert np.isfinite(vectors).all()


def test_trained_vectors_are_written_and_read_back(tmp_path):
    pytest.importorskip("gensim")
    vectors = train_vectors(["It was a test."] * 3, size=4, seed=2)
    assert set(vectors) == {"it", "was", "a", "test", "￭."}
    write_vectors(tmp_path / "vectors", vectors)
    read = read_vectors(tmp_path / "vectors", 4)
    assert read.broken == 0
    for word, vector in vectors.items():
        np.testing.assert_array_equal(read.vectors[word], vector)
    with pytest.raises(ValueError, match="exists"):
        write_vectors(tmp_path / "vectors", vectors)


def test_without_gensim_the_way_out_is_said(monkeypatch, words):
    monkeypatch.setitem(__import__("sys").modules, "gensim.models", None)
    with pytest.raises(UserError, match=r"needs gensim: install it \(pip install gensim\)"):
        first_vectors(VectorsConfig(source="train"), words, 6, seed=3, texts=["it was"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "file"}, "give both. Received: vectors.source=file, vectors.file=None"),
        ({"file": "x"}, "give both. Received: vectors.source=random, vectors.file=x"),
        ({"extra_words": 3}, "goes with vectors.source file only"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        VectorsConfig(**settings)
