"""Parallel text in, batches out, and what is said of text that is not as it should be."""

import gzip
import hashlib
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from data_folder import data_folder
from keras_attention.applications.data.corpus import Report
from keras_attention.applications.data.encoded import Encoded
from keras_attention.applications.errors import UserError
from keras_attention.applications.store import downloads
from keras_attention.applications.text import END_ID, START_ID, PackedIds, WordTokenizer
from keras_attention.applications.translation.config import DataConfig
from keras_attention.applications.translation.data import (
    MULTI30K,
    MULTI30K_SHA256,
    encode,
    load_corpus,
    make_batches,
)
from keras_attention.applications.translation.preprocessor import TranslationPreprocessor

SOURCE = ["a b c", "d", "e f", "b b b b b"]
TARGET = ["A B", "D D D", "E", "B"]


def write(path, lines, ending="\n"):
    text = "".join(line + ending for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


@pytest.fixture
def pair(tmp_path):
    return write(tmp_path / "train.s", SOURCE), write(tmp_path / "train.t", TARGET)


def config(pair, **options) -> DataConfig:
    return DataConfig(train_source=pair[0], train_target=pair[1], **options)


@pytest.fixture
def words():
    return [WordTokenizer.train(lines, 100) for lines in (SOURCE, TARGET)]


@pytest.fixture
def preprocessor(words):
    return TranslationPreprocessor(*words)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_two_files(tmp_path, suffix, ending):
    pair = (
        write(tmp_path / f"x.en{suffix}", SOURCE, ending),
        write(tmp_path / f"x.de{suffix}", TARGET, ending),
    )
    corpus = load_corpus(config(pair), "train")
    assert (corpus["source"], corpus["target"]) == (SOURCE, TARGET)
    assert str(corpus.report) == f"Read 4 sentence pairs from {pair[0]}, {pair[1]}."
    assert len(corpus) == 4


def test_only_line_feeds_end_lines(tmp_path):
    lines = ["a\u2028b", "c\x0bd", "e\x85f"]
    pair = write(tmp_path / "s", ["\ufeff" + lines[0], *lines[1:]]), write(tmp_path / "t", lines)
    corpus = load_corpus(config(pair), "train")
    assert corpus["source"] == corpus["target"] == lines


def test_last_line_without_its_end(tmp_path):
    (tmp_path / "s").write_text("a\nb")
    (tmp_path / "t").write_text("A\nB\n")
    corpus = load_corpus(config((str(tmp_path / "s"), str(tmp_path / "t"))), "train")
    assert corpus["source"] == ["a", "b"]


def test_tsv(tmp_path):
    path = write(tmp_path / "x.tsv", [f"{s}\t{t}" for s, t in zip(SOURCE, TARGET, strict=True)])
    corpus = load_corpus(DataConfig(dev=path), "dev")
    assert (corpus["source"], corpus["target"]) == (SOURCE, TARGET)
    write(tmp_path / "x.tsv", ["a\tA", "b", "c\tC"])
    with pytest.raises(
        UserError, match="x.tsv, line 2: expected source, tab, target. Received: 1 columns;"
    ):
        load_corpus(DataConfig(dev=path), "dev")
    write(tmp_path / "x.tsv", ["a\tA", "", "c\tC\tCC"])
    with pytest.raises(UserError, match="x.tsv, line 3: .* Received: 3 columns; cut -f1,2"):
        load_corpus(DataConfig(dev=path), "dev")
    write(tmp_path / "x.tsv", ["a\tA", "", "c\t", "d\tD"])
    corpus = load_corpus(DataConfig(dev=path, on_empty="skip"), "dev")
    assert (corpus["source"], corpus.places.numbers.tolist()) == (["a", "d"], [1, 4])


def test_dates_by_name():
    data = DataConfig(dataset="dates")
    corpora = {split: load_corpus(data, split) for split in ("train", "dev", "test")}
    assert 10_000 <= len(corpora["train"]) <= 20_000
    assert not set(corpora["train"]["target"]) & set(corpora["test"]["target"])
    assert str(corpora["dev"].report) == "Read 1,000 sentence pairs from dates (dev)."


def test_own_files_go_before_a_known_set(tmp_path):
    pair = write(tmp_path / "s", ["3 V 1984"]), write(tmp_path / "t", ["1984-05-03"])
    data = DataConfig(dataset="dates", test_source=pair[0], test_target=pair[1])
    assert load_corpus(data, "test")["source"] == ["3 V 1984"]
    assert len(load_corpus(data, "dev")) == 1000


def test_splits_that_are_not_there(pair):
    data = config(pair)
    assert data.has_split("train") and not data.has_split("test")
    with pytest.raises(UserError, match="no test data: give data.test_source and"):
        load_corpus(data, "test")
    with pytest.raises(UserError, match="Received: 'valid'"):
        load_corpus(data, "valid")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"a\nb\nc\n", "equally many lines: .*train.s has 4, .*train.t has 3"),
        (b"", "train.t is empty: expected at least one line"),
        (b"A\nB\n\xc4\nD\n", "train.t, line 3: expected UTF-8 text. Received: the byte 0xc4"),
        (b"A\n \nC\nD\n", "train.t, line 2: empty, .* data.on_empty to skip"),
        (b"\xff\xfeA\x00\n\x00", "train.t is UTF-16 text. .* iconv -f UTF-16 -t UTF-8"),
        (None, "There is no file .*train.t"),
    ],
)
def test_bad_files(tmp_path, pair, content, message):
    path = tmp_path / "train.t"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        load_corpus(config(pair), "train")
    assert "\n" not in str(error.value)


def test_a_folder_is_no_file(tmp_path, pair):
    with pytest.raises(UserError, match="Cannot read .*: expected a file. Received: a folder"):
        load_corpus(config((pair[0], str(tmp_path))), "train")


@pytest.mark.parametrize("cut", [slice(None, -9), slice(None, 30), slice(20, None)])
def test_damaged_archives(tmp_path, cut):
    whole = write(tmp_path / "s.gz", SOURCE * 100)
    content = (tmp_path / "s.gz").read_bytes()
    (tmp_path / "t.gz").write_bytes(content[cut])
    with pytest.raises(UserError, match="t.gz is no whole gzip file"):
        load_corpus(config((whole, str(tmp_path / "t.gz"))), "train")


def test_empty_lines_are_counted(tmp_path):
    pair = (
        write(tmp_path / "s", ["a", "", "c", " ", "e"]),
        write(tmp_path / "t", ["A", "B", "\t", "", "E"]),
    )
    with pytest.raises(UserError, match="s, line 2: empty"):
        load_corpus(config(pair), "train")
    corpus = load_corpus(config(pair, on_empty="skip"), "train")
    assert (corpus["source"], corpus["target"]) == (["a", "e"], ["A", "E"])
    assert corpus.places.numbers.tolist() == [1, 5]
    assert str(corpus.place(1, "target")) == f"{pair[1]}, line 5"
    assert corpus.report.left_out == {"empty": 3}
    assert str(corpus.report).startswith("Read 2 sentence pairs from ")
    assert str(corpus.report).endswith(". 3 were left out (empty).")
    write(tmp_path / "s", [""] * 5)
    with pytest.raises(UserError, match="every line is empty"):
        load_corpus(config(pair, on_empty="skip"), "train")


def test_too_long(pair, words, preprocessor):
    data = config(pair, max_length=3)
    corpus = load_corpus(data, "train")
    with pytest.raises(UserError, match="train.s, line 4: 5 tokens, more than data.max_length 3"):
        encode(corpus, preprocessor)
    skipped = encode(corpus.handled(too_long="skip"), preprocessor)
    assert skipped["source"] == words[0].encode(SOURCE[:3])
    assert skipped["target"] == words[1].encode(TARGET[:3])
    assert (skipped.report.count, skipped.report.left_out["too long"]) == (3, 1)
    assert skipped.rows.tolist() == [0, 1, 2]
    assert str(skipped.report).startswith("Read 3 sentence pairs from ")
    assert str(skipped.report).endswith(" 1 was left out (too long).")
    cut = encode(corpus.handled(too_long="truncate"), preprocessor)
    assert cut["source"][3] == words[0].encode(["b b b"])[0]
    assert (cut.report.count, cut.report.cut) == (4, 1)
    assert str(cut.report).endswith(" 1 was cut short.")
    columns = {**corpus.columns, "target": ["A A"] * 4}
    shortest = replace(corpus, columns=columns, max_length=1).handled(too_long="skip")
    with pytest.raises(UserError, match="none of its .* 4 were left out .too long"):
        encode(shortest, preprocessor)


def test_too_long_on_the_other_side(pair, preprocessor):
    data = config(pair, max_length=2)
    corpus = load_corpus(data, "train")
    corpus = replace(corpus, columns={**corpus.columns, "source": ["a"] * 4})
    with pytest.raises(UserError, match="train.t, line 2: 3 tokens"):
        encode(corpus, preprocessor)


def test_a_sentence_without_tokens(tmp_path, preprocessor):
    """A line feed's siblings are no token, yet Python's strip() leaves the line standing."""
    pair = write(tmp_path / "s", ["a", "\x01"]), write(tmp_path / "t", ["A", "B"])
    data = config(pair)
    with pytest.raises(UserError, match="s, line 2: empty"):
        encode(load_corpus(data, "train"), preprocessor)
    data = replace(data, on_empty="skip")
    encoded = encode(load_corpus(data, "train"), preprocessor)
    assert (encoded.report.count, encoded.report.left_out) == (1, {"empty": 1})


def test_batches(pair, words, preprocessor):
    data = config(pair)
    encoded = encode(load_corpus(data, "train"), preprocessor)
    batches = make_batches(encoded, batch_size=3, number_of_buckets=1, shuffle=False)
    inputs, labels = batches.batch(0, 0)
    targets = words[1].encode(TARGET)
    assert inputs["source"].shape == (3, 5)
    for row, target in enumerate(targets[:3]):
        padding = [0] * (3 - len(target))
        assert inputs["target"][row].tolist() == [START_ID, *target, *padding]
        assert labels[row].tolist() == [*target, END_ID, *padding]
    inputs, labels = batches.batch(0, 1)
    for array in (inputs["source"], inputs["target"], labels):
        assert array.dtype == np.int32
        assert array[0].any() and not array[1:].any()


def test_a_corpus_of_files_is_no_list_of_strings_and_integers(tmp_path, preprocessor):
    """Ten million pairs must fit: each takes its letters and ids, and some bytes more."""

    def taken(count):
        pair = write(tmp_path / "s", SOURCE * count), write(tmp_path / "t", TARGET * count)
        tracemalloc.start()
        encoded = encode(load_corpus(config(pair), "train"), preprocessor)
        batches = make_batches(encoded, batch_size=3, number_of_buckets=2)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(batches)
        return np.array([now, peak]) / len(SOURCE)

    first, second = taken(600), taken(1200)
    now, peak = (second - first) / 600
    assert now < 220  # 8 ids, places and lengths of three columns; lists take more than 600
    assert peak < 450


def test_batches_of_another_corpus_keep_the_shapes():
    def corpus(lengths):
        rows = [[5] * length for length in lengths]
        ids = {"source": PackedIds(rows), "target": PackedIds(rows)}
        return Encoded(ids, Report("x", len(rows)))

    train = make_batches(corpus([2, 2, 9, 9]), 2, number_of_buckets=2)
    assert train.lengths == [(2, 3, 3), (9, 10, 10)]
    dev = make_batches(corpus([1, 4]), 2, shuffle=False, like=train)
    assert set(dev.shapes()) <= set(train.shapes())
    longer = make_batches(corpus([1, 12]), 2, shuffle=False, like=train)
    assert longer.lengths == [(2, 3, 3), (9, 10, 10), (12, 13, 13)]


def test_a_development_set_is_split_off(tmp_path):
    pair = write(tmp_path / "s", list("abcdefghij")), write(tmp_path / "t", list("ABCDEFGHIJ"))
    data = config(pair, dev_fraction=0.3)
    train, dev = (load_corpus(data, split) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (7, 3)
    assert sorted([*train["source"], *dev["source"]]) == list("abcdefghij")
    assert [text.upper() for text in dev["source"]] == dev["target"]
    assert [ord(text) - ord("a") + 1 for text in dev["source"]] == dev.places.numbers.tolist()
    assert load_corpus(data, "dev")["source"] == dev["source"]  # the same each time
    assert data.has_split("dev") and not config(pair).has_split("dev")
    own = replace(data, dev_source=pair[0], dev_target=pair[1])
    assert len(load_corpus(own, "train")) == 10  # a set of its own goes before
    one = write(tmp_path / "one", ["a"]), write(tmp_path / "eins", ["A"])
    with pytest.raises(ValueError, match="Too few sentence pairs .* Received: 1"):
        load_corpus(config(one, dev_fraction=0.3), "train")


def test_multi30k_from_a_folder(tmp_path):
    write(tmp_path / "train.en.gz", SOURCE)
    write(tmp_path / "train.de", TARGET)
    data = DataConfig(dataset="multi30k", folder=str(tmp_path))
    assert load_corpus(data, "train")["target"] == TARGET
    with pytest.raises(UserError, match="has no file val.en.gz or val.en; leave data.folder out"):
        load_corpus(data, "dev")
    with pytest.raises(UserError, match="languages cs, de, en, fr. Received: 'ja'"):
        load_corpus(replace(data, target_language="ja"), "train")


def test_multi30k_is_fetched_with_its_checksums(monkeypatch, tmp_path):
    asked = []

    def fetch(url, sha256, subfolder):
        asked.append((url, sha256, subfolder))
        return write(tmp_path / url.rsplit("/", 1)[-1], SOURCE)

    monkeypatch.setattr(downloads, "fetch", fetch)
    data = DataConfig(dataset="multi30k", target_language="fr")
    assert load_corpus(data, "test")["source"] == SOURCE
    urls, checksums, folders = zip(*asked, strict=True)
    assert urls == tuple(MULTI30K + f"test_2016_flickr.{code}.gz" for code in ("en", "fr"))
    assert all(len(checksum) == 64 for checksum in checksums) and len(set(checksums)) == 2
    assert set(folders) == {"multi30k"}


def test_multi30k_real():
    folder = data_folder("multi30k")
    for name, expected in MULTI30K_SHA256.items():
        if (folder / name).exists():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == expected
    data = DataConfig(dataset="multi30k", folder=str(folder))
    counts = [len(load_corpus(data, split)) for split in ("train", "dev", "test")]
    assert counts == [29_000, 1_014, 1_000]
