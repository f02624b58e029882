"""Files of questions: three forms, what is counted, and what is refused with its line."""

import gzip

import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerPreprocessor
from keras_attention.applications.answer_selection.batches import encode
from keras_attention.applications.answer_selection.config import DataConfig
from keras_attention.applications.answer_selection.data import (
    ALONE,
    EMPTY,
    as_questions,
    check,
    judgements_of,
    load_corpus,
    read_corpus,
)
from keras_attention.applications.data.made import facts
from keras_attention.applications.errors import UserError
from tests.data_folder import data_folder

HEADER = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"


def wikiqa(*rows):
    """Lines of WikiQA's form from (question id, question, sentence id, sentence, label)."""
    lines = ["\t".join((q, text, "D1", "Title", s, answer, y)) for q, text, s, answer, y in rows]
    return "\n".join([HEADER, *lines]) + "\n"


def write(tmp_path, text, name="questions.tsv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def flat(questions):
    names = ("id", "question", "candidate_ids", "candidates", "labels")
    return [
        (name, question, *candidate)
        for name, question, *columns in zip(*(questions[each] for each in names), strict=True)
        for candidate in zip(*columns, strict=True)
    ]


def test_wikiqa_keeps_its_ids_and_order(tmp_path):
    rows = [
        ("Q2", 'who "x" ?', "D-10", "a, b .", "0"),
        ("Q1", "when ?", "D-0", "c", "1"),
        ("Q2", 'who "x" ?', "D-9", "d", "1"),
    ]
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(gzip.compress(wikiqa(*rows).encode()))
    expected = [rows[0], rows[2], rows[1]]
    assert flat(read_corpus(path)) == [(*row[:4], int(row[4])) for row in expected]


def test_trecqa_is_csv(tmp_path):
    path = write(tmp_path, 'qtext,label,atext\n"who , x ?",1,"a ""b"" , c"\n"who , x ?",0,d\n')
    assert flat(read_corpus(path)) == [
        ("1", "who , x ?", "1-0", 'a "b" , c', 1),
        ("1", "who , x ?", "1-1", "d", 0),
    ]


def test_csv_of_quoted_lines_and_of_a_long_answer(tmp_path):
    long = "word " * 100_000  # more than csv's own limit of a field
    path = write(tmp_path, f'qtext,label,atext\nq ?,1,"one\ntwo"\nq ?,0,{long}\nq ?,2,c\n')
    with pytest.raises(UserError, match="line 5: a label is 0"):
        read_corpus(path)
    path = write(tmp_path, f'qtext,label,atext\nq ?,1,"one\ntwo"\nq ?,0,{long}\n')
    assert [each[3] for each in flat(read_corpus(path))] == ["one\ntwo", long]


def test_plain_lines_of_one_question_belong_together(tmp_path):
    path = write(tmp_path, "p ?\ta\t1\nq ?\tb\t0\np ?\ta\t0\n")
    assert flat(read_corpus(path)) == [
        ("1", "p ?", "1-0", "a", 1),
        ("1", "p ?", "1-1", "a", 0),
        ("2", "q ?", "2-0", "b", 0),
    ]


def test_empty_texts_are_counted_or_refused(tmp_path):
    path = write(tmp_path, "p ?\ta\t1\np ?\t \t0\nq ?\t\t1\n\tb\t0\nr ?\tc\t0\n")
    questions = read_corpus(path, on_empty="skip")
    assert questions["question"] == ["p ?", "r ?"]
    assert questions.report.left_out == {EMPTY: 3, ALONE: 2}
    report = str(encode(questions, AnswerPreprocessor.adapt(["p a r d"])).report)
    assert "Read 2 questions from " in report and "They have 2 candidates. " in report
    assert "1 of them has no right candidate." in report
    assert "1 of them has right candidates only." in report
    assert "3 were left out (lines with an empty text)." in report
    assert "2 were left out (questions without a candidate)." in report
    assert report.endswith(" 50.0% of 6 words are unknown.")
    with pytest.raises(
        UserError, match="line 2: an empty question or cand.* Received: 'p .' and ' '"
    ):
        read_corpus(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p ?\ta\t2\n", "line 1: a label is 0 .wrong. or 1 .right.. Received: '2'"),
        ("p ?\ta\t1\nq ?\tb\t-1\n", "line 2: a label"),
        ("p ?\ta\n", "line 1: expected question, tab, candidate, tab, label. Received: 2 columns"),
        (HEADER + "\nQ1\ta\n", "line 2: expected 7 columns, as in the header. Received: 2"),
        (
            "QuestionID\tQuestion\n",
            "line 1: there is no column 'SentenceID'.* Columns: QuestionID, Question",
        ),
        ("qtext,label,atext\na,1\n", "line 2: expected 3 columns, as in the header. Received: 2"),
        ('qtext,label,atext\n"a,1,b\n', "no CSV"),
        ("qtext,label,atext\na,yes,b\n", "line 2: a label"),
        (HEADER + "\n", "no question with a candidate is left"),
        ("", "is empty"),
        (
            wikiqa(("Q1", "a", "D-1", "b", "0"), ("Q1", "a", "D-1", "c", "0")),
            "line 3: candidate D-1 of question Q1 is already in line 2",
        ),
        (
            wikiqa(("Q1", "a", "D-1", "b", "0"), ("Q1", "z", "D-2", "c", "0")),
            "line 3: question Q1 has another text than in line 2.* Received: 'z' and 'a'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_corpus(write(tmp_path, text))


def test_known_sets_and_files(tmp_path):
    write(tmp_path, "p ?\ta\t1\n", "dev.csv")
    data = DataConfig(dataset="trecqa", folder=str(tmp_path), test=str(tmp_path / "own"))
    assert [data.has_split(split) for split in ("train", "dev", "test")] == [False, True, True]
    assert len(load_corpus(data, "dev")) == 1
    with pytest.raises(UserError, match="no file .*train.csv"):
        load_corpus(data, "train")
    with pytest.raises(UserError, match="There is no train data: give data.train"):
        load_corpus(DataConfig(), "train")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset": "wikiqa"}, "go together: give both"),
        ({"folder": "x"}, "go together: give both"),
        ({"dataset": "facts", "train": "x"}, "do not go together: give one"),
        ({"max_length": 0}, "at least 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        DataConfig(**settings)


def test_facts_ask_one_of_the_relations_told():
    questions, dev = facts.generate("train"), facts.generate("dev")
    assert questions == facts.generate("train") and questions[:7] != dev[:7]
    corpus = load_corpus(DataConfig(dataset="facts"), "train")
    names = ("question", "candidates", "labels")
    assert questions == list(zip(*(corpus[name] for name in names), strict=True))
    for question, candidates, labels in questions:
        assert sum(labels) == 1 and len(candidates) == len(labels) == len(facts.RELATIONS)
        name = next(f for f in facts.FIRST if f in question)
        assert all(name in candidate for candidate in candidates)
    # The place of a relation does not give it away.
    asked = [
        labels for q, _, labels in questions if q.startswith("where was") and q.endswith("born ?")
    ]
    assert len({labels.index(1) for labels in asked}) == len(facts.RELATIONS)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("who ?", "should be a sequence of .question, candidates, labels."),
        ([], "at least one question. Received: none"),
        (["who ?"], r"Received: x\[0\]='who \?'"),
        ([{"question": "who ?", "candidates": ["a"], "labels": [1]}], r"Received: x\[0\]=\{"),
        ([("who ?", ["a"])], r"Received: x\[0\]="),
        ([("who ?", ["a"], [1]), (None, ["a"], [1])], r"question of x\[1\].*\[0\]=None"),
        ([("who ?", ["a", float("nan")], [1, 0])], r"candidates of x\[0\]\[1\]=nan"),
        ([("who ?", [], [])], "0 candidates and labels"),
        ([("who ?", ["a", "b"], [1])], r"2 candidates and labels \[1\] in x\[0\]"),
        ([("who ?", ["a"], [2])], r"labels \[2\]"),
        ([("who ?", ["a", "b"], [[1], [0]])], r"labels \[\[1\], \[0\]\]"),
        ([("who ?", ["a", "b"], np.eye(2))], "2 candidates and labels"),
        ([("who ?", ["a"], None)], r"1 candidates and labels \[None\] in x\[0\]"),
        ([("who ?", [" "], [1])], r"should have words. Received: ' ' in x\[0\]"),
    ],
)
def test_questions_at_hand_are_named_where_they_are_wrong(questions, message):
    with pytest.raises(ValueError, match=message):
        as_questions(questions)


def test_questions_at_hand_in_columns_and_parts():
    pairs = [("p ?", ("a", "b")), ("q ?", ["c"])]
    questions = as_questions(pairs, [[1, 0], [0]], [1.0, 3.0])
    assert flat(questions)[2] == ("2", "q ?", "2-0", "c", 0)
    first, last = questions.split(0.5)
    assert [each.weights for each in (first, last)] == [[1.0], [3.0]]
    assert last.place(0) == "x[1]"
    with pytest.raises(ValueError, match="Received: 1 for 2 questions"):
        as_questions(pairs, [[1, 0]])
    with pytest.raises(ValueError, match=r"Received: x\[0\]=3"):
        as_questions([3], [[1]])
    assert as_questions(last) == last
    assert as_questions(pairs, [[1, 0], [0]], np.array([2, 4])).weights == [2.0, 4.0]
    with pytest.raises(ValueError, match="`sample_weight` should hold numbers"):
        as_questions(pairs, [[1, 0], [0]], [1.0, None])
    with pytest.raises(ValueError, match="Too few questions to hold 0.5"):
        last.split(0.5)
    with pytest.raises(UserError, match="no question has a right candidate"):
        check(last)


def test_ids_that_come_twice_are_refused_where_rankings_are_judged():
    questions = as_questions([("p ?", ["a", "b"], [1, 0])])
    with pytest.raises(ValueError, match="should have different ids"):
        judgements_of(questions.take([0, 0]))


def test_the_published_sets_have_their_published_counts():
    data = DataConfig(dataset="wikiqa", folder=str(data_folder("wikiqa")))
    counts = [
        (len(each), sum(map(len, each["candidates"])))
        for each in (load_corpus(data, split) for split in ("train", "dev", "test"))
    ]
    assert counts == [(2118, 20360), (296, 2733), (633, 6165)]
    data = DataConfig(dataset="trecqa", folder=str(data_folder("trecqa")))
    train = load_corpus(data, "train")
    assert (len(train), sum(map(len, train["candidates"]))) == (
        93,
        4718,
    )  # 94 TREC questions, two of the same words
