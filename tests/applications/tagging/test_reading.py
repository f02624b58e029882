"""Files of sentences, lists of words, and what is wrong in them."""

import json

import numpy as np
import pytest

from keras_attention.applications.tagging import DataConfig, TaggingPreprocessor, read_corpus
from keras_attention.applications.tagging.data import (
    as_sentences,
    broken_spans,
    corpus_of,
    cut,
    load_corpus,
)

CONLL = """# sent_id = 1
-DOCSTART- -X- O

Anna NN B-PER
likes VB O
# NN O

Rome NN B-LOC
"""


def read(tmp_path, content, name="a.conll", **data):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return read_corpus(str(path), DataConfig(**data))


def as_pairs(sentences):
    return [(each.words, each.tags) for each in sentences["sentence"]]


def test_conll_columns_comments_and_document_marks(tmp_path):
    expected = [(("Anna", "likes", "#"), ("B-PER", "O", "O")), (("Rome",), ("B-LOC",))]
    assert as_pairs(read(tmp_path, CONLL)) == expected
    assert as_pairs(
        read(tmp_path, CONLL.replace(" ", "\t").replace("#\tsent_id\t=\t1", "# x"))
    ) == (expected)
    assert as_pairs(read(tmp_path, CONLL, tag_column="1"))[0][1] == ("NN", "VB", "NN")
    assert as_pairs(read(tmp_path, CONLL, tag_column="-2"))[1][1] == ("NN",)
    turned = read(tmp_path, CONLL, word_column="2", tag_column="0")
    assert as_pairs(turned)[1] == (("B-LOC",), ("Rome",))
    assert as_pairs(read(tmp_path, CONLL.replace("\n", "\r\n"))) == expected


def test_what_separates_columns_and_sentences(tmp_path):
    """Tabs where words have them, else spaces; a document mark ends a sentence."""
    expected = [(("Anna", "likes"), ("B-PER", "O")), (("Rome",), ("B-LOC",))]
    plain = "Anna B-PER\nlikes O\n\nRome B-LOC\n"
    assert as_pairs(read(tmp_path, "# a\tb\n" + plain)) == expected
    assert as_pairs(read(tmp_path, plain.replace(" ", "  \t").replace("\t", " "))) == expected
    assert as_pairs(read(tmp_path, plain.replace("\n\n", "\n-DOCSTART- O\n"))) == expected
    assert as_pairs(read(tmp_path, "# newdoc\n# newpar id = 1\n" + plain)) == expected
    tabs = plain.replace(" ", "\t") + "#\tO\n"
    assert as_pairs(read(tmp_path, tabs))[1] == (("Rome", "#"), ("B-LOC", "O"))


def test_a_part_of_the_training_data_counts_its_own_words(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("a O\n\nb O\nc O\n\nd I-X\ne O\nf O\n")
    data = DataConfig(train=str(path), dev_fraction=0.34)
    train, dev = (load_corpus(data, split) for split in ("train", "dev"))
    assert "Read 2 sentences" in str(train.report) and "3 words" in str(train.report)
    assert "Read 1 sentence from" in str(dev.report) and "3 words" in str(dev.report)
    assert "1 span begins" in str(dev.report) and "begins" not in str(train.report)
    assert str(dev.place(0)) == f"{path}, line 6"


def test_tables_and_json_lines(tmp_path):
    expected = [(("Anna", "runs"), ("B-PER", "O"))]
    assert as_pairs(read(tmp_path, "words,tags\nAnna runs,B-PER O\n", "a.csv")) == expected
    assert as_pairs(read(tmp_path, "tags\twords\nB-PER O\tAnna runs\n", "a.tsv")) == expected
    row = {"tokens": ["Anna", "runs"], "labels": ["B-PER", "O"]}
    names = {"word_column": "tokens", "tag_column": "labels"}
    assert as_pairs(read(tmp_path, json.dumps(row) + "\n\n", "a.jsonl", **names)) == expected


def test_predicates(tmp_path):
    columns = "He - B-A0\nate eat B-V\nit _ B-A1\n"
    found = read(tmp_path, columns, predicate_column="1")
    assert found["sentence"][0].predicate == 1
    row = json.dumps({"words": "He ate", "tags": "O B-V", "predicate": 1})
    assert (
        read(tmp_path, row, "a.jsonl", predicate_column="predicate")["sentence"][0].predicate == 1
    )


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.conll", "Anna O\nlikes\n", {}, r"a.conll, line 2: expected 2 columns"),
        ("a.conll", "Anna O\n", {"tag_column": "2"}, r"number from 0 to 1.*has 2 columns"),
        ("a.conll", "Anna O\n", {"tag_column": "tag"}, r"number from 0 to 1"),
        ("a.conll", "a\tO\t\nb\tO\nc\tO\n", {}, r"line 1: expected 2 columns, .* Received: 3\.$"),
        ("a.conll", "1\u00a0000 O\nlikes O\n", {}, r"line 1: a word must not .*'1\\xa0000'"),
        ("a.conll", "An\u2028na O\n", {}, r"line 1: a word must not .* hold spaces"),
        ("a.conll", "Anna O\rlikes O\r", {}, r"line 1: a line ends with a line feed"),
        ("a.conll", "Anna\n", {}, r"words and tags must have a column each"),
        ("a.conll", "\n\n", {}, r"there is no sentence"),
        ("a.conll", "a - O\nb - O\n", {"predicate_column": "1"}, r"line 1: .*one predicate"),
        ("a.csv", "words,tags\na b,O\n", {}, r"a.csv, line 2: .*2 words and 1 tags"),
        ("a.csv", "words,tags\n,\n", {}, r"a.csv, line 2: the sentence has no words"),
        ("a.csv", "words,tag\na,O\n", {}, r"no column 'tags'.* Did you mean 'tag'"),
        ("a.jsonl", '{"words": ["a"]}\n', {}, r"a.jsonl, line 1: there is no column 'tags'"),
        ("a.jsonl", '{"words": ["a b"], "tags": ["O"]}\n', {}, r"line 1: a word must not"),
        ("a.jsonl", '{"words": [1], "tags": ["O"]}\n', {}, r"line 1: 'words' must be words"),
        ("a.jsonl", "nonsense\n", {}, r"a.jsonl, line 1: "),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, content, name, **options)
    assert "\n" not in str(error.value)


def test_lists_that_do_not_go_together():
    with pytest.raises(ValueError, match=r"x\[0\] with 2 words and 1 tags"):
        as_sentences([["a", "b"]], [["O"]])
    with pytest.raises(ValueError, match="1 sentences and 2 lists of tags"):
        as_sentences([["a"]], [["O"], ["O"]])
    with pytest.raises(ValueError, match=r"x\[0\]\[1\]='a b'"):
        as_sentences([["a", "a b"]])
    for words in (["a", ""], ["a", None], ["a", float("nan")], ["a", "\ud800"]):
        with pytest.raises(ValueError, match=r"x\[0\]\[1\]"):
            as_sentences([words])
    with pytest.raises(ValueError, match=r"tags\[0\]\[1\]=None"):
        as_sentences([["a", "b"]], [["O", None]])
    assert as_sentences([b"a b", np.array(["a", "b"])])[1].words == ("a", "b")
    with pytest.raises(ValueError, match="Received: x=3"):
        as_sentences(3)
    with pytest.raises(ValueError, match="a pair: its words"):
        as_sentences([["a"]], None, roles=True)
    with pytest.raises(ValueError, match="index of one of 1 words"):
        as_sentences([(["a"], 1)], None, roles=True)


def test_texts_are_cut_into_words_with_their_characters():
    text = "Dr. O'Neill's e-mail: 1,000.50 “Zürich”!"
    found = cut(text)
    assert [word for word, _, _ in found] == [
        *("Dr", ".", "O'Neill's", "e-mail", ":", "1,000.50", "“", "Zürich", "”", "!")
    ]
    assert all(text[start:end] == word for word, start, end in found)
    assert cut(" \n\t ") == []


def preprocessor(**options):
    sentences = as_sentences([["Anna", "ißt", "2"], ["Ötzi"]], [["I-P", "O", "O"], ["I-P"]])
    return TaggingPreprocessor.adapt(corpus_of(sentences, "here"), **options)


def test_broken_spans_are_mended_and_counted():
    sentences = as_sentences([["a", "b", "c"]], [["I-P", "I-P", "O"]])
    assert broken_spans(sentences) == 1
    own = preprocessor()
    assert own.tags == ["O", "B-P", "I-P"] and own.scheme == "BIO"
    assert own.targets(sentences[0]) == [1, 2, 0]
    other = preprocessor(scheme="BIOES")
    assert other.tags == ["O", "B-P", "I-P", "E-P", "S-P"]
    assert other.targets(sentences[0]) == [1, 3, 0]
    with pytest.raises(ValueError, match=r"tags\[0\].*no tag 'B-Q'|x\[0\]\[1\].*no tag 'B-Q'"):
        own.targets(as_sentences([["a", "b"]], [["O", "B-Q"]])[0])


def test_a_graph_reads_texts_as_python_does():
    import tensorflow as tf

    own = preprocessor()
    texts = ["Anna ißt 2 Eis-Tüten, O'Neill!", "", "  Ötzi\u0301 \U0001f600  x" + "y" * 30]
    inputs, words, start, end = own._read_in_graph(tf.constant(texts))
    for name, expected in own(texts).items():
        np.testing.assert_array_equal(inputs[name].numpy()[..., : expected.shape[-1]], expected)
    for row, text in enumerate(texts):
        pieces = zip(words[row].numpy(), start[row].numpy(), end[row].numpy(), strict=True)
        assert [(word.decode(), a, b) for word, a, b in pieces] == cut(text)
    targets = own(
        tf.ragged.constant([["Anna", "ißt"], ["x"]]), tf.ragged.constant([["B-P", "O"], ["O"]])
    )[1]
    assert targets.numpy().tolist() == [[1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("utf-17", "an encoding that Python knows"), ("utf-16", "a line feed as one byte")],
)
def test_an_encoding_without_lines_is_refused(encoding, message):
    with pytest.raises(ValueError, match=message):
        DataConfig(encoding=encoding)
