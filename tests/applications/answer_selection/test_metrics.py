"""Rankings: against a plain oracle, in trec_eval's order of ties, and on a published run."""

import gzip
import os

import numpy as np
import pytest

from keras_attention.applications.answer_selection.metrics import (
    pair_accuracy,
    rank,
    ranking_score,
    read_trec_judgements,
    read_trec_run,
    trec_run_lines,
)
from tests.data_folder import data_folder


def oracle(scores, labels):
    """AP, RR and P@1 of one question without ties, by counting from the definition."""
    order = np.argsort(-np.asarray(scores))
    right = np.asarray(labels)[order]
    precisions = [right[: k + 1].mean() for k in range(len(right)) if right[k]]
    return sum(precisions) / right.sum(), 1 / (1 + np.argmax(right)), right[0]


def test_against_the_definition():
    random = np.random.default_rng(7)
    run, judgements, expected = {}, {}, []
    for question in range(23):
        count = int(random.integers(2, 13))
        labels = random.permutation([1, 0, *random.integers(0, 2, count - 2)])
        scores = random.normal(size=count)
        names = [f"c{i}" for i in random.permutation(count)]
        run[str(question)] = dict(zip(names, scores, strict=True))
        judgements[str(question)] = dict(zip(names, map(int, labels), strict=True))
        expected.append(oracle(scores, labels))
    score = ranking_score(run, judgements)
    assert (score.map, score.mrr, score.precision_at_1) == pytest.approx(np.mean(expected, axis=0))
    assert score.questions == 23


def test_protocols_count_other_questions():
    run = {"none": {"a": 1.0, "b": 0.0}, "all": {"a": 1.0}, "both": {"a": 1.0, "b": 0.0}}
    judgements = {"none": {"a": 0, "b": 0}, "all": {"a": 1}, "both": {"a": 0, "b": 1}}
    filtered = ranking_score(run, judgements)
    unfiltered = ranking_score(run, judgements, "unfiltered")
    assert (filtered.map, filtered.questions) == (0.5, 1)
    assert (unfiltered.map, unfiltered.questions) == (0.75, 2)
    for score in (filtered, unfiltered):
        assert (score.without_right, score.only_right) == (1, 1)
    assert str(filtered) == "MAP 0.5000  MRR 0.5000  P@1 0.0000 (filtered: 1 questions)"
    assert "(unfiltered: 2 questions)" in str(unfiltered)


def test_ties_are_ordered_by_id_the_greatest_first():
    assert rank({"10": 1.0, "9": 1.0, "a": 1.0, "é": 1.0, "z": 2.0}) == ["z", "é", "a", "9", "10"]
    first, last = {"q": {"a": 1, "b": 0}}, {"q": {"a": 0, "b": 1}}
    run = {"q": {"a": 0.5, "b": 0.5}}
    assert ranking_score(run, first).map == 0.5 and ranking_score(run, last).map == 1.0


def test_scores_are_compared_in_single_precision():
    assert rank({"a": 1.0 + 1e-12, "b": 1.0}) == ["b", "a"]
    assert rank({"a": 1.0 + 1e-6, "b": 1.0}) == ["a", "b"]


def test_right_candidates_without_a_score_are_not_found():
    judgements = {"q": {"a": 1, "b": 0, "c": 1}}
    assert ranking_score({"q": {"a": 2.0, "b": 1.0}}, judgements).map == 0.5
    assert ranking_score({"q": {"b": 1.0}}, judgements).map == 0.0
    assert ranking_score({"q": {"b": 1.0}}, judgements).mrr == 0.0


def test_accuracy_counts_pairs():
    run = {"p": {"a": 0.5, "b": -0.5}, "q": {"a": 0.1, "b": 0.0}}
    judgements = {"p": {"a": 1, "b": 0}, "q": {"a": 0, "b": 0}}
    assert pair_accuracy(run, judgements) == 0.75
    assert pair_accuracy(run, judgements, threshold=0.2) == 1.0


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: ranking_score({}, {"q": {"a": 1, "b": 0}}), "Received: none of 'q'"),
        (lambda: ranking_score({}, {"q": {"a": 0}}), "1 have no right"),
        (lambda: ranking_score({"q": {"a": 1.0}}, {"q": {"a": 1}}), "1 have right ones only"),
        (lambda: ranking_score({}, {}, "raw"), "Received: 'raw'"),
        (lambda: rank({"a": float("nan")}), "nan for 'a'"),
        (lambda: pair_accuracy({}, {"q": {"a": 0}}), "Received: none of 'a' of question 'q'"),
        (lambda: pair_accuracy({}, {}), "at least one"),
        (lambda: trec_run_lines({"q": {"a b": 1.0}}), "one word without spaces"),
    ],
)
def test_what_cannot_be_measured_is_refused(measure, message):
    with pytest.raises(ValueError, match=message):
        measure()


def test_runs_are_written_and_read_back(tmp_path):
    run = {"q2": {"a": 1 / 3, "b": -2.5e-9, "c": 1 / 3}, "q1": {"a": 7.0}}
    path = tmp_path / "run"
    path.write_text("\n".join([*trec_run_lines(run), "", ""]))
    assert [line.split()[2:4] for line in path.read_text().split("\n")[:3]] == [
        ["c", "1"],
        ["a", "2"],
        ["b", "3"],
    ]
    read = read_trec_run(path)
    assert {question: rank(scores) for question, scores in read.items()} == {
        "q2": ["c", "a", "b"],
        "q1": ["a"],
    }
    assert read["q2"]["b"] == pytest.approx(-2.5e-9)


@pytest.mark.parametrize(
    ("read", "lines", "message"),
    [
        (read_trec_run, "1 Q0 a 1 x n", "line 1: expected `question Q0 candidate rank"),
        (read_trec_run, "1 Q0 a 1 0.5", "line 1: expected"),
        (
            read_trec_run,
            "1 Q0 a 1 0.5 n\n\n1 Q0 a 2 0.4 n",
            "line 3: .* once. Received: again 'a'",
        ),
        (read_trec_judgements, "1 0 a 0.5", "line 1: expected `question 0 candidate label`"),
        (read_trec_judgements, "1 0 a 1 n", "line 1: expected"),
        (read_trec_judgements, "1", "line 1: expected"),
    ],
)
def test_lines_that_are_no_run_are_refused(tmp_path, read, lines, message):
    path = tmp_path / "file"
    path.write_text(lines)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """WikiQA's published run of a convolutional network on the test set."""
    folder = data_folder("wikiqa")
    path = tmp_path_factory.mktemp("wikiqa") / "run"
    path.write_bytes(gzip.decompress((folder / "WikiQA.CNN.test.rank.gz").read_bytes()))
    return read_trec_run(path), folder


@pytest.mark.parametrize(
    ("judged", "protocol", "expected"),
    [
        ("WikiQA-test-filtered.ref", "filtered", ("0.6190", "0.6281", 237)),
        ("WikiQA-test.ref", "filtered", ("0.6190", "0.6281", 237)),
        ("WikiQA-test.ref", "unfiltered", ("0.6284", "0.6373", 243)),
    ],
)
def test_the_published_run_gets_its_published_figures(published, judged, protocol, expected):
    run, folder = published
    score = ranking_score(run, read_trec_judgements(folder / judged), protocol)
    assert (f"{score.map:.4f}", f"{score.mrr:.4f}", score.questions) == expected


@pytest.mark.parametrize("read", [read_trec_run, read_trec_judgements])
def test_pipes_and_devices_are_refused_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="a pipe or a device|regular file|expected a file"):
            read(path)
    with pytest.raises(ValueError, match=r"none"):
        read(tmp_path / "none")
