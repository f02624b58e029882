"""Tables, labels, splits and what is refused or skipped."""

import collections
import dataclasses
import gzip
import shutil
import tracemalloc

import numpy as np
import pytest

from data_folder import data_folder
from keras_attention.applications.classification.config import (
    ClassificationConfig,
    DataConfig,
    ModelConfig,
    TrainingConfig,
)
from keras_attention.applications.classification.data import (
    encode,
    load_corpus,
    make_batches,
    read_corpus,
)
from keras_attention.applications.classification.known_sets import NLTK, read_known
from keras_attention.applications.classification.preprocessor import (
    ClassificationPreprocessor,
    Labels,
    as_labels,
    kind_of,
)
from keras_attention.applications.classification.results import table
from keras_attention.applications.classification.task import TextClassifier
from keras_attention.applications.command.cli import load_task, read_config
from keras_attention.applications.data.corpus import Report
from keras_attention.applications.data.encoded import Encoded
from keras_attention.applications.data.made import opinions
from keras_attention.applications.errors import UserError
from keras_attention.applications.text import END_ID, PackedIds, WordTokenizer
from keras_attention.applications.text.packed import in_sentences

ROWS = [("It was good .", "yes"), ("bad, bad", "no"), ('so "quoted"', "yes"), ("no way", "no")]


def write(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return str(path)


def pairs(corpus):
    return list(zip(corpus["text"], corpus["label"], strict=True))


def test_csv_tsv_and_json_lines_give_the_same(tmp_path):
    csv = 'label,text\nyes,It was good .\nno,"bad, bad"\nyes,"so ""quoted"""\nno,no way\n'
    tsv = 'text\tlabel\nIt was good .\tyes\nbad, bad\tno\nso "quoted"\tyes\nno way\tno\n'
    lines = "".join(
        f'{{"text": {text}, "label": "{label}"}}\n'
        for text, label in [
            ('"It was good ."', "yes"),
            ('"bad, bad"', "no"),
            ('"so \\"quoted\\""', "yes"),
            ('"no way"', "no"),
        ]
    )
    for name, content in (("a.csv", csv), ("a.tsv", tsv), ("a.jsonl", lines)):
        assert pairs(read_corpus(write(tmp_path, name, content), DataConfig())) == ROWS
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(csv.encode()))
    assert pairs(read_corpus(str(tmp_path / "a.csv.gz"), DataConfig())) == ROWS


def test_a_quoted_record_counts_its_lines(tmp_path):
    path = write(tmp_path, "a.csv", 'text,label\n"two\nlines",yes\n"",no\n')
    with pytest.raises(UserError, match=r"a\.csv, line 4: column 'text' is empty"):
        read_corpus(path, DataConfig())


def test_named_columns_and_labels_of_every_kind(tmp_path):
    text = "first\tother\ttopics\tgrade\na b\tc\tx; y;x\t1.5\nd\te\t\t-2\n"
    path = write(tmp_path, "a.tsv", text)
    common = {"text_column": "first", "second_column": "other"}
    many = DataConfig(**common, label_column="topics", labels="many")
    corpus = read_corpus(path, many)
    assert (corpus["text"], corpus["second"]) == (["a b", "d"], ["c", "e"])
    assert corpus["label"] == [("x", "y"), ()]
    number = DataConfig(**common, label_column="grade", labels="number")
    assert read_corpus(path, number)["label"] == [1.5, -2.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "text,labels\nx,y\n",
            r"a\.csv, line 1: there is no column 'label'. Did you mean",
        ),
        ("a.csv", "text,label\nx,y,z\n", r"a\.csv, line 2: expected 2 columns"),
        ("a.csv", 'text,label\n"x,y\n', r"a\.csv, line 2: no CSV record begins here"),
        ("a.csv", "text,text,label\nx,y,z\n", r"line 1: two columns have one name"),
        ("a.tsv", "text\tlabel\nx\ty\n \ty\n", r"a\.tsv, line 3: column 'text' is empty"),
        ("a.tsv", "text\tlabel\nx\t\n", r"a\.tsv, line 2: column 'label' must hold one label"),
        ("a.tsv", "text\tlabel\n", r"there is no text in it"),
        (
            "a.jsonl",
            '{"text": "x", "label": "y"}\nnot json\n',
            r"a\.jsonl, line 2: expected a JSON",
        ),
        pytest.param("a.jsonl", "[" * 10**5, r"line 1: not JSON that can be read", id="deep"),
        ("a.jsonl", '{"text": "\\ud800"}', r"a\.jsonl, line 1: expected Unicode text"),
        ("a.jsonl", "[1]\n", r"a\.jsonl, line 1: expected a JSON object"),
        ("a.jsonl", '{"text": 3, "label": "y"}\n', r"line 1: column 'text' must hold text"),
        ("a.txt", "x\n", r"expected a file named \.csv, \.tsv, \.jsonl"),
    ],
)
def test_bad_tables_are_named_by_file_and_line(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message):
        read_corpus(write(tmp_path, name, content), DataConfig())


def test_mixed_encodings(tmp_path):
    path = write(tmp_path, "a.tsv", "text\tlabel\nold\ty\ncafé\ty\n", "latin-1")
    with pytest.raises(
        UserError, match=r"a\.tsv, line 3: expected UTF-8 text. Received: the byte 0xe9"
    ):
        read_corpus(path, DataConfig())
    assert read_corpus(path, DataConfig(encoding="latin-1"))["text"][1] == "café"


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.csv", "text,label", '"caf{}, again",y'),
        ("a.jsonl", "", '{{"text": "caf{}", "label": "y"}}'),
    ],
)
def test_lines_of_two_encodings_in_one_file(tmp_path, name, header, row):
    lines = [header] * bool(header) + [row.format("é")] * 2
    encoded = [line.encode() for line in lines] + [row.format("é").encode("latin-1")]
    (tmp_path / name).write_bytes(b"\n".join(encoded) + b"\n")
    with pytest.raises(UserError, match=rf"{name}, line {len(encoded)}: expected UTF-8 text"):
        read_corpus(str(tmp_path / name), DataConfig())


def test_empty_texts_are_skipped_and_counted_where_asked(tmp_path):
    path = write(tmp_path, "a.csv", 'text,label\n"",y\nx,y\n"  ",z\n')
    examples = read_corpus(path, DataConfig(on_empty="skip"))
    assert pairs(examples) == [("x", "y")]
    assert str(examples.report) == f"Read 1 example from {path}. 2 were left out (empty)."


def test_texts_in_which_a_tokenizer_finds_no_words(tmp_path, monkeypatch):
    preprocessor = preprocessor_of(["x y"])
    letters = lambda lines: [[5 for each in line if each.isalpha()] for line in lines]  # noqa: E731
    monkeypatch.setattr(preprocessor.tokenizer, "encode", letters)
    path = write(tmp_path, "b.csv", "text,label\nx,a\n...,b\n")
    examples = read_corpus(path, DataConfig())
    with pytest.raises(
        UserError,
        match=r"b\.csv, line 3: a text should have words. Received: '\.\.\.'; correct the",
    ):
        encode(examples, preprocessor)
    encoded = encode(read_corpus(path, DataConfig(on_empty="skip")), preprocessor)
    assert encoded.report.left_out == {"empty": 1}


def test_a_document_of_a_hundred_thousand_words_in_every_kind_of_table(tmp_path):
    text = "word " * 100_000  # more than csv's own limit of a field
    tables = {"a.csv": f'text,label\n"{text}",y\n', "a.tsv": f"text\tlabel\n{text}\ty\n"}
    tables["a.jsonl"] = f'{{"text": "{text}", "label": "y"}}\n'
    for name, content in tables.items():
        assert read_corpus(write(tmp_path, name, content), DataConfig())["text"] == [text]


@pytest.mark.parametrize(
    ("labels", "value"),
    [("one", "null"), ("one", "NaN"), ("many", "null"), ("many", '["a", null]'), ("many", "[[1]]")],
)
def test_json_values_that_are_no_labels(tmp_path, labels, value):
    path = write(tmp_path, "a.jsonl", f'{{"text": "x", "label": {value}}}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, line 1: column 'label' must hold .*label"):
        read_corpus(path, DataConfig(labels=labels))


def test_numbers_and_lists_of_them_are_labels_in_json(tmp_path):
    lines = '{"text": "x", "label": [2, "b"]}\n{"text": "x", "label": 3}\n'
    path = write(tmp_path, "a.jsonl", lines + '{"text": "x", "label": []}\n')
    assert read_corpus(path, DataConfig(labels="many"))["label"] == [("2", "b"), ("3",), ()]


def test_numbers_must_be_numbers(tmp_path):
    for value in ("many", "nan", "inf", ""):
        path = write(tmp_path, "a.tsv", f"text\tlabel\nx\t{value}\n")
        with pytest.raises(UserError, match=r"line 2: column 'label' must hold a number"):
            read_corpus(path, DataConfig(labels="number"))


def table_of(counts, folder):
    rows = [f"text {label} {i}\t{label}" for label, count in counts.items() for i in range(count)]
    return write(folder, "train.tsv", "\n".join(["text\tlabel", *rows, ""]))


def test_a_table_takes_little_more_than_its_letters(tmp_path):
    def taken(count):
        path = table_of({"a": count, "b": count}, tmp_path)
        tracemalloc.start()
        corpus = load_corpus(DataConfig(train=path), "train")
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(corpus) == 2 * (count - round(0.1 * count))
        return size

    letters = len("text a 1000")
    assert taken(10_000) / 20_000 < letters + 50  # strings alone take 60 and more


def test_a_class_with_one_example(tmp_path):
    path = table_of({"a": 9, "b": 9, "rare": 1}, tmp_path)
    with pytest.raises(UserError, match=r"train\.tsv, line 20: label 'rare' has 1 example"):
        load_corpus(DataConfig(train=path), "train")
    skipping = DataConfig(train=path, on_rare_label="skip")
    train = load_corpus(skipping, "train")
    assert "1 was left out (rare label)." in str(train.report)
    assert set(train["label"]) == {"a", "b"}
    keeping = load_corpus(DataConfig(train=path, min_examples=1), "train")
    assert "rare" in keeping["label"]


def test_folds_cover_the_set_once_and_hold_each_label_alike(tmp_path):
    path = table_of({"a": 31, "b": 17, "c": 7}, tmp_path)
    seen = collections.Counter()
    for fold in range(5):
        data = DataConfig(train=path, folds=5, fold=fold)
        parts = {split: load_corpus(data, split) for split in ("train", "dev", "test")}
        places = {split: set(part.places) for split, part in parts.items()}
        assert len(set.union(*places.values())) == sum(map(len, places.values())) == 55
        seen.update(places["test"])
        for label, count in (("a", 31), ("b", 17), ("c", 7)):
            assert abs(parts["test"]["label"].count(label) - count / 5) < 1
        assert parts == {split: load_corpus(data, split) for split in parts}
    assert set(seen.values()) == {1} and len(seen) == 55
    other = DataConfig(train=path, folds=5, fold=4, split_seed=2)
    assert set(load_corpus(other, "test").places) != places["test"]


def test_a_development_set_of_its_own_is_not_drawn(tmp_path):
    path = table_of({"a": 10, "b": 10}, tmp_path)
    dev = write(tmp_path, "dev.tsv", "text\tlabel\nz\ta\n")
    data = DataConfig(train=path, dev=dev)
    assert len(load_corpus(data, "train")) == 20 and len(load_corpus(data, "dev")) == 1
    with pytest.raises(UserError, match="There is no test data: give data.test or data.folds"):
        load_corpus(data, "test")


def preprocessor_of(texts, **options):
    tokenizer = WordTokenizer.train(texts, vocabulary_size=100, lowercase=True)
    return ClassificationPreprocessor(tokenizer, Labels("one", ("a", "b")), **options)


def test_sentences_are_cut_at_stops_lines_and_their_longest_length():
    text = 'One two. "Three four!" five\nsix, seven eight nine ten'
    reader = preprocessor_of([text], sentences="punctuation", max_sentence_length=4)
    tokens = reader.tokens(text)
    assert [len(row) for row in tokens] == [3, 4, 1, 1, 4, 2] or max(map(len, tokens)) <= 4
    assert [t for row in tokens for t in row] == reader.tokenizer.tokens(text)
    (ids,) = reader.ids([text])
    assert ids.count(END_ID) == len(tokens) - 1
    lines = preprocessor_of([text], sentences="lines")
    assert len(lines.tokens(text)) == 2
    # cut to a longest length: the first tokens, whatever the sentences
    short = preprocessor_of([text], sentences="punctuation", max_sentence_length=4, max_length=5)
    flat = [i for i in ids if i != END_ID]
    assert [i for i in short.cut(ids) if i != END_ID] == flat[:5]
    assert list(map(len, short.tokens(text))) == [len(row) for row in tokens][:2][:1] + [2]
    assert reader.ids([" \n "]) == [[]]


@pytest.mark.parametrize("name", ["max_length", "max_sentence_length"])
def test_lengths_are_at_least_one(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1. Received: 0"):
        preprocessor_of(["x"], **{name: 0})


def test_ids_in_sentences():
    ids = np.array([[5, 6, END_ID, 7, 0, 0], [8, END_ID, 9, 5, 6, END_ID], [0] * 6], "int32")
    expected = [[[5, 6, 0], [7, 0, 0]], [[8, 0, 0], [9, 5, 6]], [[0, 0, 0], [0, 0, 0]]]
    np.testing.assert_array_equal(in_sentences(ids), expected)


def examples_of(data, texts, tmp_path):
    rows = "".join(f"{text}\t{label}\n" for text, label in texts)
    return read_corpus(write(tmp_path, "b.tsv", f"text\tlabel\n{rows}"), data)


def test_unknown_labels_and_long_texts_are_refused_or_counted(tmp_path):
    preprocessor = preprocessor_of(["x y z"], max_length=3)
    texts = [("x", "a"), ("y", "new"), ("z " * 100_000, "b"), ("x y z", "b")]

    def encoded_as(**data):
        return encode(examples_of(DataConfig(**data), texts, tmp_path), preprocessor)

    with pytest.raises(
        UserError,
        match=r"b\.tsv, line 3: the training data have no label 'new'. Known: a, b; corr",
    ):
        encoded_as()
    with pytest.raises(UserError, match=r"b\.tsv, line 4: 100,000 tokens, more than data.max_len"):
        encoded_as(on_unknown_label="skip")
    encoded = encoded_as(on_unknown_label="skip", on_too_long="skip")
    assert encoded.report.left_out == {"empty": 0, "unknown label": 1, "too long": 1}
    np.testing.assert_array_equal(encoded.values["target"], [[1, 0], [0, 1]])
    encoded = encoded_as(on_unknown_label="skip", on_too_long="truncate")
    assert encoded.report.cut == 1
    assert encoded["text"].lengths.tolist() == [1, 3, 3]


def test_unknown_labels_of_the_test_set_are_found_before_the_training(tmp_path):
    train = write(tmp_path, "a.csv", "text,label\nx y,a\nz,b\n")
    test = write(tmp_path, "c.csv", "text,label\nx,a\ny,new\n")
    data = {"train": train, "test": test, "min_examples": 1}

    def adapt(**options):
        config = ClassificationConfig.of(data=data | options)
        return TextClassifier.adapt(config, load_corpus(config.data, "train"))

    with pytest.raises(UserError, match=r"c\.csv, line 3: the training data have no label 'new'"):
        adapt()
    assert adapt(on_unknown_label="skip").labels.names == ("a", "b")


def test_labels_become_targets():
    values = [("b", "a"), (), ("c",)]
    many = Labels.of(values, "many")
    np.testing.assert_array_equal(many.targets(values), [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    number = Labels.of([1.0, 2.0, 6.0], "number")
    np.testing.assert_allclose(number.targets([1.0, 2.0, 6.0]).std(), 1, rtol=1e-6)
    whole = Labels.of(as_labels(np.array([10, 9, 10]), "one"), "one")
    assert whole.names == (9, 10)
    with pytest.raises(UserError, match="at least two labels"):
        Labels.of(["a"], "one")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["yes"], "one"),
        (np.array([3, 4]), "one"),
        ([{"a"}, ()], "many"),
        ([["a", "b"]], "many"),
        ([0.5], "number"),
        (np.array([1, 2], "float32"), "number"),
    ],
)
def test_the_kind_of_labels_is_seen_from_the_first(values, kind):
    assert kind_of(values) == kind
    assert len(as_labels(values, kind)) == len(values)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (["a", None], "one", r"labels\[1\]=None"),
        (["a", float("nan")], "one", r"labels\[1\]=nan"),
        (["a", " "], "one", r"one label.* Received: labels\[1\]=' '"),
        ([1.0, float("nan")], "number", r"a finite number. Received: labels\[1\]=nan"),
        ([("a",), "b"], "many", r"a tuple, list or set of labels. Received: labels\[1\]='b'"),
        ("abc", "one", "a sequence of labels"),
    ],
)
def test_labels_that_are_missing_or_of_another_kind(values, kind, message):
    with pytest.raises(ValueError, match=message):
        as_labels(values, kind)


def test_batches_keep_texts_labels_and_weights_together():
    columns = ([[5] * n for n in (1, 2, 3, 4, 5)], [[6] * n for n in (5, 4, 3, 2, 1)])
    targets = np.eye(5, dtype="float32")
    ids = dict(zip(("text", "second"), map(PackedIds, columns), strict=True))
    encoded = Encoded(ids, Report("x", 5), {"target": targets}, np.arange(1, 6))
    reader = preprocessor_of(["x"], pairs=True)
    batches = make_batches(encoded, reader, 2, number_of_buckets=2, seed=3)
    seen = {}
    for inputs, wanted, weights in batches.epoch(0):
        for text, second, row, weight in zip(
            inputs["text"], inputs["second"], wanted, weights, strict=True
        ):
            if weight:
                seen[(text > 0).sum()] = ((second > 0).sum(), row.argmax() + 1, weight)
            else:
                assert not text.any() and not second.any() and not row.any()
    assert seen == {n: (6 - n, n, n) for n in range(1, 6)}


def test_examples_are_held_out_at_the_end(tmp_path):
    examples = examples_of(DataConfig(), [(each, "a") for each in "vwxyz"], tmp_path)
    first, last = examples.split(0.4)
    assert last["text"] == ["y", "z"] and len(first) == 3
    assert last.report.count == 2 and str(last.place(1)).endswith("b.tsv, line 6")


def test_balanced_weights(tmp_path):
    examples = examples_of(DataConfig(), [("x", "a"), ("y", "a"), ("z", "a"), ("x", "b")], tmp_path)
    preprocessor = ClassificationPreprocessor(
        WordTokenizer(["x", "y", "z"]), Labels("one", ("a", "b", "never"))
    )
    encoded = encode(dataclasses.replace(examples, balanced=True), preprocessor)
    counted = encoded.weights @ encoded.values["target"]
    np.testing.assert_allclose(counted, [2, 2, 0], rtol=1e-6)  # both labels count alike


def test_the_generator_is_fixed_and_says_what_its_labels_say():
    rows = opinions.generate("train")
    assert rows == opinions.generate("train") and rows[:5] != opinions.generate("test")[:5]
    assert {row["verdict"] for row in rows} == {"yes", "no", "open"}
    for row in rows:
        (sentence,) = [
            s for s in row["text"].split(" . ") if "all in all" in s or "end" in s or "overall" in s
        ]
        word = next(word for word in opinions.STARS if word in sentence)
        stars = 6 - opinions.STARS[word] if " not " in sentence else opinions.STARS[word]
        assert int(row["stars"]) == stars
        assert row["sentiment"] == ("good" if stars > 3 else "bad")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": DataConfig(second_column="b")}, "second_column makes pairs"),
        ({"model": ModelConfig(architecture="cross")}, "name the column of the second"),
        ({"data": DataConfig(folds=3, fold=3)}, "data.fold must be below 3"),
        ({"data": DataConfig(fold=1)}, "data.fold must be below 1"),
        (
            {
                "data": DataConfig(labels="many"),
                "training": TrainingConfig(class_weights="balanced"),
            },
            "class_weights balanced goes with data.labels one only",
        ),
    ],
)
def test_sections_that_do_not_go_together(arguments, message):
    with pytest.raises(UserError, match=message):
        ClassificationConfig(**arguments).check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataConfig(dataset="trec"), "needs data.folder"),
        (lambda: DataConfig(dataset="opinions", folder="x"), "opinions, .* Received: x"),
        (lambda: DataConfig(encoding="utf-9"), "an encoding that Python knows"),
        (lambda: DataConfig(encoding="utf-16"), "write a line feed as one byte"),
        (lambda: ModelConfig(heads=2), "model.heads goes with model.architecture self-attention"),
        (lambda: ModelConfig(architecture="transformer", heads=3), "must divide"),
    ],
)
def test_values_that_do_not_fit(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("dataset", "folder", "sizes", "labels"),
    [
        ("trec", "trec", (4906, 546, 500), 6),
        ("sentence_polarity", "nltk", (8635, 960, 1067), 2),
        ("subjectivity", "nltk", (8100, 900, 1000), 2),
        ("movie_reviews", "nltk", (1620, 180, 200), 2),
        ("sick", "sick", (4500, 500, 4927), 3),
    ],
)
def test_known_sets(dataset, folder, sizes, labels):
    overrides = [f"--data.dataset={dataset}", f"--data.folder={data_folder(folder)}"]
    data = read_config(load_task("classification"), None, overrides).data
    parts = [load_corpus(data, split) for split in ("train", "dev", "test")]
    assert tuple(map(len, parts)) == sizes
    assert len({label for part in parts for label in part["label"]}) == labels


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dataset", NLTK)
def test_a_set_of_nltk_is_read_from_its_folder_or_archive(tmp_path, dataset, packed):
    expected, root = [], tmp_path / dataset
    root.mkdir()
    for number, (label, name) in enumerate(NLTK[dataset].items()):
        texts = [f"so {number} .", f"caf\xe9 {number} ."]
        expected += [{"text": text, "label": label} for text in texts]
        if dataset == "movie_reviews":
            (root / name).mkdir()
            for place, text in enumerate(texts):
                write(root / name, f"{place}.txt", f"{text}\n", "latin-1")
        else:
            write(root, name, "".join(f"{text}\n\n" for text in texts), "latin-1")
    if packed:
        shutil.make_archive(root, "zip", tmp_path, dataset)
        shutil.rmtree(root)
    rows = read_known(dataset, str(tmp_path), "train")
    assert [row.values for row in rows] == expected
    assert all(dataset in row.place for row in rows)


def test_a_report_for_people_has_a_line_for_each_label():
    figures = [{"precision": 0.125, "recall": 0.25, "f1": 0.1667, "examples": n} for n in (3, 4567)]
    labels = [
        {"label": name, **row} for name, row in zip(["a", "a long name"], figures, strict=True)
    ]
    report = {"examples": 9, "data": "x.csv", "left_out": {}, "truncated": 0, "labels": labels}
    lines = table({**report, "accuracy": 0.5, "signature": "s"}).splitlines()
    assert [line.split("  ")[0].strip() for line in lines[-4:-2]] == ["a", "a long name"]
    for line, count in zip(lines[-4:-2], ("3", "4,567"), strict=True):
        assert line.split()[-4:] == ["0.1250", "0.2500", "0.1667", count]
    assert len({len(line) for line in lines[-5:-2]}) == 1  # columns stand below each other
