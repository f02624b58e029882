"""Spans and their figures beside those of seqeval 1.2.2, whose answers are recorded."""

import pytest

from keras_attention.applications.tagging import metrics

SENTENCES = [
    # Tags, and the spans that `seqeval.metrics.sequence_labeling.get_entities` finds.
    ("B-A I-A O B-B", [("A", 0, 2), ("B", 3, 4)]),
    ("I-A I-A O I-B B-B", [("A", 0, 2), ("B", 3, 4), ("B", 4, 5)]),
    ("B-A I-B I-B I-A", [("A", 0, 1), ("B", 1, 3), ("A", 3, 4)]),
    (
        "S-A B-A E-A E-A I-A O E-B",
        [("A", 0, 1), ("A", 1, 3), ("A", 3, 4), ("A", 4, 5), ("B", 6, 7)],
    ),
    ("B-A B-A E-B S-B I-B", [("A", 0, 1), ("A", 1, 2), ("B", 2, 3), ("B", 3, 4), ("B", 4, 5)]),
    ("O O", []),
    ("B I O S", [("_", 0, 2), ("_", 3, 4)]),
    ("B-A-x I-A-x I-A", [("A-x", 0, 2), ("A", 2, 3)]),
]


@pytest.mark.parametrize(("tags", "spans"), SENTENCES)
def test_spans_are_those_of_seqeval(tags, spans):
    assert metrics.spans_of(tags.split()) == spans


def test_figures_of_spans_are_micro_averages():
    truth = [["B-A", "I-A", "O", "B-B", "O"], ["O", "I-B", "O"]]
    found = [["B-A", "I-A", "O", "B-A", "O"], ["O", "B-B", "O"]]
    report = metrics.measure(truth, found)
    assert report["precision"] == report["recall"] == report["f1"] == pytest.approx(2 / 3)
    assert report["accuracy"] == pytest.approx(6 / 8) and report["spans"] == 3
    assert report["types"]["B"] == {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "spans": 2}
    assert report["macro_f1"] == pytest.approx(2 / 3)
    assert "seqeval" in metrics.signature(True)


def test_another_scheme_is_no_fault():
    truth = [["B-A", "I-A", "O", "B-B"]]
    assert metrics.measure(truth, [["B-A", "E-A", "O", "S-B"]])["accuracy"] == 1


def test_tags_without_spans_have_accuracy_alone():
    report = metrics.measure([["N", "V"], ["B"]], [["N", "N"], ["B"]])
    assert report == {"accuracy": pytest.approx(2 / 3), "words": 3}


def test_sentences_without_spans_have_figures_of_spans():
    report = metrics.measure([["O", "O"]], [["O", "B-A"]], are_spans=True)
    assert report["precision"] == report["recall"] == report["f1"] == report["spans"] == 0
    assert report["accuracy"] == 0.5 and report["types"]["A"]["spans"] == 0


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_tags_of_a_single_type_may_be_prefixes_alone(scheme):
    spans = [("_", 0, 2), ("_", 3, 4)]
    tags = metrics.tags_of(spans, 4, scheme)
    assert tags == {"BIO": ["B", "I", "O", "B"], "BIOES": ["B", "E", "O", "S"]}[scheme]
    assert metrics.are_of_spans(tags) and metrics.spans_of(tags) == spans
    assert set(tags) <= set(metrics.names_of(metrics.kinds_of(tags), scheme))
    assert metrics.measure([tags], [tags])["f1"] == 1
    assert not metrics.are_of_spans(["B", "I", "N"])


def test_nothing_found_divides_by_nothing():
    report = metrics.measure([["B-A", "O"]], [["O", "O"]])
    assert report["precision"] == report["recall"] == report["f1"] == 0
    assert metrics.measure([[]], [[]])["accuracy"] == 0


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_tags_of_spans_are_read_back(scheme):
    spans = [("A", 0, 3), ("B", 3, 4), ("A", 5, 7)]
    tags = metrics.tags_of(spans, 8, scheme)
    assert metrics.spans_of(tags) == spans
    assert set(tags) <= set(metrics.names_of(["A", "B"], scheme))
    assert tags[3] == ("S-B" if scheme == "BIOES" else "B-B")


def test_broken_spans_are_counted():
    assert metrics.broken(["I-A", "I-A", "O", "E-B", "B-B", "I-A"]) == 3
    assert metrics.broken(["B-A", "I-A", "O"]) == 0
