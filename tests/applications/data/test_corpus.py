"""Named columns with the place of each row, the same as ids, and what is said of both."""

import gzip
import tracemalloc

import numpy as np
import pytest

from keras_attention.applications.data.corpus import (
    Corpus,
    Places,
    Report,
    compact,
    corpus_at_hand,
    drawn_parts,
)
from keras_attention.applications.data.encoded import Encoded, encoded_of
from keras_attention.applications.data.lines import Lines
from keras_attention.applications.data.readers import rows_of
from keras_attention.applications.errors import UserError
from keras_attention.applications.store.bad_lines import Line
from keras_attention.applications.text import END_ID, START_ID, PackedIds
from keras_attention.applications.text.packed import in_sentences, join_sentences, read_and_written


def corpus(**options):
    columns = {"source": Lines("abcde"), "target": list("ABCDE"), "size": np.arange(5.0)}
    places = Places({"source": "s.txt", "target": "t.txt"}, [1, 2, 4, 5, 7])
    return Corpus(columns, Report("s.txt, t.txt", 5), places, [1.0, 2.0, 3.0, 4.0, 5.0], **options)


def test_rows_keep_their_entries_weights_and_places():
    part = corpus().take([4, 1])
    assert (part["source"], part["target"]) == (["e", "b"], ["E", "B"])
    assert part["size"].tolist() == [4.0, 1.0] and part.weights == [5.0, 2.0]
    assert (len(part), part.report.count) == (2, 2)
    assert str(part.place(0)) == "s.txt, line 7"
    assert str(part.place(1, "target")) == "t.txt, line 2"
    first, last = corpus().split(0.4)
    assert (first["source"], last["source"]) == (["a", "b", "c"], ["d", "e"])
    with pytest.raises(ValueError, match="Too few examples to hold 0.4 .* Received: 1"):
        corpus().take([3]).split(0.4)


def test_places_take_few_bytes_and_read_like_a_list():
    places = Places("f.txt", np.arange(1, 100_001))
    assert places[2:4] == [Line("f.txt", 3), Line("f.txt", 4)]
    assert compact([Line("f.txt", 3), Line("f.txt", 9)]).numbers.tolist() == [3, 9]
    for several in ([Line("f.txt", 3), Line("g.txt", 3)], ["a", "b"], [Line("f.txt", 3), "b"]):
        assert compact(several) == several
    assert corpus_at_hand({"x": [5, 6]}).place(1) == "x[1]"
    named = corpus_at_hand({"source": [5], "target": [6]}, argument={"source": "x", "target": "y"})
    assert (named.place(0), named.place(0, "target")) == ("x[0]", "y[0]")
    tracemalloc.start()
    kept = places.take(np.arange(0, 100_000, 2))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(kept) == 50_000 and size < 9 * 50_000


def test_rows_that_cannot_be_used_are_counted_or_all_named():
    def reason(row):
        return given.refuse(row, "too long" if row > 2 else "empty", "it is wrong", "mend it")

    given = corpus(handling={"empty": "skip"}).handled(too_long="skip", unknown_label=None)
    assert given.handling == {"empty": "skip", "too long": "skip"}
    left = given.without(given.left_out([1, 3, 4], reason))
    assert left["source"] == ["a", "c"] and left.weights == [1.0, 3.0]
    assert left.report.left_out == {"empty": 1, "too long": 2}
    again = left.report.without({"empty": 4}, cut=1, words=8, unknown=2)
    assert str(again) == (
        "Read 2 examples from s.txt, t.txt. 5 were left out (empty). 2 were left out (too long). "
        "1 was cut short. 25.0% of 8 words are unknown."
    )
    for noun, one in (("summaries", "summary"), ("sentence pairs", "sentence pair")):
        assert str(Report("x", 1, noun)) == f"Read 1 {one} from x."
    given = given.handled(too_long="error")
    with pytest.raises(
        UserError, match="s.txt, line 5: it is wrong; mend it. Also s.txt, line 7: it is wrong"
    ):
        given.left_out([1, 3, 4], reason)


def test_drawn_parts_are_drawn_alike_from_each_stratum():
    strata = ["a"] * 31 + ["b"] * 17
    seen = []
    for fold in range(3):
        parts = drawn_parts(strata, 5, folds=3, fold=fold, dev_fraction=0.2)
        assert parts == drawn_parts(strata, 5, folds=3, fold=fold, dev_fraction=0.2)
        assert sorted(sum(parts.values(), [])) == list(range(48))
        for part in parts.values():
            assert part == sorted(part)
            assert abs(sum(row < 31 for row in part) / len(part) - 31 / 48) < 0.1
        seen += parts["test"]
    assert sorted(seen) == list(range(48))
    assert drawn_parts(strata, 5)["train"] == list(range(48))
    assert drawn_parts(["a", "b", "b"], 5, dev_fraction=0.9)["train"][0] == 0  # one of each stays


def groups_of(random, count):
    """Questions of one id, and for each some candidates of several."""
    candidates = [
        [random.integers(4, 99, random.integers(1, 5)).tolist() for _ in range(random.integers(4))]
        for _ in range(count)
    ]
    return [[row + 4] for row in range(count)], candidates


def test_examples_of_groups_keep_their_members():
    questions, candidates = groups_of(np.random.default_rng(3), 11)
    flat = [ids for some in candidates for ids in some]
    counts = np.array(list(map(len, candidates)))
    encoded = Encoded(
        {"question": PackedIds(questions), "candidates": PackedIds(flat)},
        Report("x", 11),
        {"first": np.array([ids[0] for ids in flat])},
        np.arange(11.0),
        {"candidates": counts, "first": counts},
    )
    rows = [7, 2, 2, 10]
    part = encoded.take(rows)
    assert (len(encoded), len(part)) == (11, 4)
    assert part["question"] == [questions[row] for row in rows]
    assert part["candidates"] == [ids for row in rows for ids in candidates[row]]
    assert part.values["first"].tolist() == [ids[0] for ids in part["candidates"]]
    assert part.weights.tolist() == [7.0, 2.0, 2.0, 10.0]
    for row, places in zip(rows, part.entries("candidates"), strict=True):
        assert [part["candidates"][place] for place in places] == candidates[row]
    assert encoded.take([], weights=None).weights is None


def test_a_corpus_as_ids_has_its_report_and_knows_its_rows():
    ids = {"source": PackedIds([[5], [6, 7], [8], [9, 9, 9], [4]]).cut(2)}
    wrong, long = np.array([0, 1, 0, 0, 0], bool), np.array([0, 1, 0, 1, 0], bool)
    values = {"size": np.arange(5.0)}
    given = corpus(handling={"empty": "skip"})
    encoded = encoded_of(given, ids, values, wrong, lambda row: "empty", long)
    assert encoded["source"] == [[5], [8], [9, 9], [4]] and encoded.rows.tolist() == [0, 2, 3, 4]
    assert encoded.weights.tolist() == [1.0, 3.0, 4.0, 5.0]
    assert encoded.values["size"].tolist() == [0.0, 2.0, 3.0, 4.0]
    assert (encoded.report.count, encoded.report.cut) == (4, 1)
    with pytest.raises(UserError, match="none of its examples can be used. .* 5 were left out"):
        encoded_of(given, ids, values, ~wrong | wrong, lambda row: "empty", long)


def test_columns_of_rows_are_read_in_one_go():
    rows = [("a", "ä"), ("", "\udc80"), ("c" * 300, "日")]
    first, second = Lines.columns(iter(rows), 2)
    assert (first, second) == ([row[0] for row in rows], [row[1] for row in rows])
    assert Lines.columns(iter([]), 2) == [[], []]


@pytest.mark.parametrize("kind", [".csv", ".tsv"])
def test_a_table_without_a_header(tmp_path, kind):
    path = tmp_path / "pairs.txt.gz"
    separator = "," if kind == ".csv" else "\t"
    lines = [separator.join(row) for row in (("a", "b"), ("c", "d"))]
    path.write_bytes(gzip.compress("\n".join([lines[0], "", lines[1]]).encode()))
    found = list(rows_of(path, kind=kind, header=("x", "y")))
    expected = [{"x": "a", "y": "b"}, {"x": "", "y": ""}, {"x": "c", "y": "d"}]
    assert [row.values for row in found] == expected
    assert [row.place for row in found] == [Line(str(path), number) for number in (1, 2, 3)]
    path.write_bytes(gzip.compress(separator.join("abc").encode()))
    wanted = {".csv": "x,y", ".tsv": "x, tab, y"}[kind]
    with pytest.raises(UserError, match=f"line 1: expected {wanted}. Received: 3 columns; cut"):
        list(rows_of(path, kind=kind, header=("x", "y"), advice="cut it"))


def test_start_and_end_stand_where_a_decoder_reads_and_writes():
    read, written = read_and_written(PackedIds([[5, 6], []]))
    assert read == [[START_ID, 5, 6], [START_ID]] and written == [[5, 6, END_ID], [END_ID]]
    assert written.matrix().tolist() == [[5, 6, END_ID], [END_ID, 0, 0]]
    read, written = read_and_written(PackedIds([[5]]), PackedIds([[9]]))
    assert (read, written) == ([[START_ID, 5]], [[9, END_ID]])
    assert PackedIds().matrix().shape == (0, 1) and PackedIds([[]]).matrix().tolist() == [[0]]


def test_sentences_come_back_from_one_list():
    random = np.random.default_rng(5)
    documents = [
        [random.integers(4, 99, random.integers(1, 6)).tolist() for _ in range(random.integers(4))]
        for _ in range(7)
    ]
    found = in_sentences(PackedIds(map(join_sentences, documents)).matrix())
    assert found.shape[1:] == (
        max(map(len, documents)),
        max(len(row) for each in documents for row in each),
    )
    for own, document in zip(found, documents, strict=True):
        assert [[i for i in row if i] for row in own.tolist() if any(row)] == document
