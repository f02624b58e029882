"""Alignment error rate: worked out by hand, and the published values on real alignments."""

import os

import pytest

from data_folder import data_folder
from keras_attention.metrics import (
    Alignment,
    AlignmentErrorRate,
    alignment_error_rate,
    read_alignments,
)


def test_by_hand():
    gold = [
        Alignment(sure={(0, 0), (1, 2)}, possible={(1, 1)}),
        Alignment(sure={(0, 1), (2, 2), (3, 3)}, possible={(2, 0), (3, 1)}),
        Alignment(sure=set()),
    ]
    predicted = [
        {(0, 0), (1, 1), (4, 4)},  # sure, possible, wrong
        {(0, 1), (2, 2)},  # both sure
        {(0, 0)},  # wrong
    ]
    # |A| = 6, |S| = 5, |A and S| = 3, |A and P| = 4
    rate = alignment_error_rate(predicted, gold)
    assert rate.precision == pytest.approx(4 / 6)
    assert rate.recall == pytest.approx(3 / 5)
    assert rate.value == pytest.approx(1 - 7 / 11)
    assert rate.sentences == 3
    assert str(rate) == "AER 36.36% (precision 66.67%, recall 60.00%, 3 sentence pairs)"


def test_possible_links_always_include_the_sure_ones():
    alignment = Alignment(sure=[(0, 1)], possible=[(2, 2), (2, 2)])
    assert alignment.possible == {(0, 1), (2, 2)}
    assert alignment.sure == {(0, 1)}


def test_an_alignment_predicts_its_possible_links_too():
    gold = [Alignment(sure={(0, 0)}, possible={(1, 1)})]
    assert alignment_error_rate(gold, gold) == alignment_error_rate([{(0, 0), (1, 1)}], gold)


def test_nothing_predicted_and_nothing_to_predict():
    gold = [Alignment(sure={(0, 0)})]
    assert alignment_error_rate([set()], gold) == AlignmentErrorRate(0.0, 0.0, 1.0, 1)
    assert alignment_error_rate([set()], [Alignment(set())]) == AlignmentErrorRate(0, 0, 0, 1)
    assert alignment_error_rate([{(1, 1)}], [Alignment(set())]).value == 1.0


def test_unequal_or_no_sentences():
    gold = [Alignment(sure={(0, 0)})]
    with pytest.raises(ValueError, match="Received: 2 predicted and 1 gold"):
        alignment_error_rate([set(), set()], gold)
    with pytest.raises(ValueError, match="Received: 0 predicted and 0 gold"):
        alignment_error_rate([], [])


def test_reading(tmp_path):
    path = tmp_path / "gold"
    path.write_bytes(b"1-1 2p3 2-3\r\n\n10-2  1-1 1-1")
    zero, one = read_alignments(path), read_alignments(path, one_indexed=True)
    assert [pair.sure for pair in zero] == [{(1, 1), (2, 3)}, set(), {(10, 2), (1, 1)}]
    assert [pair.sure for pair in one] == [{(0, 0), (1, 2)}, set(), {(9, 1), (0, 0)}]
    path.write_text("1p2\n")
    assert read_alignments(path) == [Alignment(sure=set(), possible={(1, 2)})]
    path.write_text("")
    assert read_alignments(path) == []


@pytest.mark.parametrize("link", ["1", "1-", "-1-2", "1-2-3", "1:2", "1.0-2", "a-b", "²-1", "1P2"])
def test_malformed_links_name_file_and_line(tmp_path, link):
    path = tmp_path / "broken.txt"
    path.write_text(f"0-0\n0-0 {link}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.txt, line 2: .*Received: ") as error:
        read_alignments(path)
    assert repr(link) in str(error.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "binary"
    path.write_bytes(b"0-0\n\xff\xfe0-0\n")
    with pytest.raises(ValueError, match="binary, line 2"):
        read_alignments(path)


def test_a_zero_in_a_file_said_to_start_at_one(tmp_path):
    path = tmp_path / "zero"
    path.write_text("1-1\n1-1\n3-0\n")
    with pytest.raises(ValueError, match=r"zero, line 3: .*one_indexed=False. Received: '3-0'"):
        read_alignments(path, one_indexed=True)


@pytest.mark.parametrize(
    ("pair", "sentences", "percent"),
    [("enfr", 447, 4.07), ("roen", 248, 20.75), ("jaen", 582, 37.36)],
)
def test_real_alignments_have_their_known_error_rate(pair, sentences, percent):
    folder = data_folder("wordalign")
    gold = read_alignments(folder / f"{pair}.gold", one_indexed=True)
    output = read_alignments(folder / f"{pair}.awesome-align.out")
    rate = alignment_error_rate(output, gold)
    assert round(100 * rate.value, 2) == percent
    assert rate.sentences == sentences


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="expected a file. Received: a pipe or a device"):
            read_alignments(path)
    with pytest.raises(FileNotFoundError, match=r"^There is no file .*none\.$"):
        read_alignments(tmp_path / "none")
