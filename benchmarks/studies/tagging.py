"""Taggers on CoNLL-2000 and CoNLL-2002, beside a linear CRF.

`conll2000` is chunks of English, `spanish` and `dutch` are the names of CoNLL-2002. The files are
those of the shared tasks, in a folder or a zip file (`--folder`). Each seed of ours is trained and
evaluated by the real command. The linear CRF (`pip install python-crfsuite`) reads the words around
each word, their case and affixes; a second one reads the parts of speech of the files, too. It
trains on the whole training file, also where ours sets a part of it apart as the development set. A
row that is in the folder of the output is not measured again, and a training that was left goes on.
"""

import argparse
import json
import re
import statistics
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.commands import command, minutes_of
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.machine import facts, installed
from benchmarks.common.options import (
    add_folder,
    add_only,
    add_runs,
    add_seeds,
    add_settings,
    add_vectors,
    as_arguments,
)
from benchmarks.common.tables import machine_line, markdown

COMMON = {
    "data.scheme": "BIOES",
    "model.dropout": 0.5,
    "training.epochs": 12,
    "training.learning_rate": 0.002,
    "training.schedule": "cosine",
    "training.average_checkpoints": 3,
    "training.tensorboard": "false",
}


@dataclass(frozen=True)
class DataSet:
    """A data set and how ours is trained on it.

    Args:
        folder: the folder of the files inside a zip file.
        train, test: the names of files.
        dev: the same; None where the last sentences of the training file choose the epoch.
        settings: of the configuration.
    """

    folder: str
    train: str
    test: str
    dev: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


# Chosen on the development set; on the Spanish one the common settings are better.
DUTCH = {
    "model.letter_units": 50,
    "model.word_dropout": 0.2,
    "training.epochs": 5,
    "training.learning_rate": 0.003,
    "training.average_checkpoints": 2,
}
SETS = {
    "conll2000": DataSet(
        "conll2000",
        "train.txt",
        "test.txt",
        None,
        # The last 447 of 8,936 sentences.
        {"data.dev_fraction": 0.05, "model.layers": 2, "model.units": 150},
    ),
    "spanish": DataSet("conll2002", "esp.train", "esp.testb", "esp.testa"),
    "dutch": DataSet("conll2002", "ned.train", "ned.testb", "ned.testa", DUTCH),
}
FROM_VECTORS = {"model.embedding_size": 100, "vectors.extra_words": 400000}
LINEAR = {"linear": False, "linear-pos": True}
"""The linear CRFs, and whether each reads parts of speech."""
TRAINED = {"c1": 0.1, "c2": 0.1, "max_iterations": 200, "feature.possible_transitions": True}
"""How the linear CRF is trained: by L-BFGS, with these weights of the L1 and the L2 norm."""
WINDOW, AFFIX = 2, 4
"""How far the linear CRF looks to each side, and its longest prefixes and suffixes."""
POS_COLUMN = "1"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("data", choices=SETS, metavar="SET", help=", ".join(SETS))
    add_folder(parser, "the files, or their zip file")
    add_vectors(parser, "for ours")
    add_seeds(parser, 3)
    add_only(parser, ["ours", *LINEAR])
    add_settings(parser)
    add_runs(parser, "runs/tagging")


def run(options: argparse.Namespace) -> None:
    """Measure each row and print the table."""
    options.output.mkdir(parents=True, exist_ok=True)
    rows = {}
    for row in options.only or ["ours", *LINEAR]:
        if row == "ours":
            rows[row] = measure_ours(options.data, options)
        else:
            rows[row] = measure_linear(options.data, row, options)
        print(row, rows[row], file=sys.stderr, flush=True)
    print(table(rows, options.vectors is not None))


def files_of(name: str, options: argparse.Namespace) -> dict[str, Path]:
    """Return the files of a data set by split, those of a zip file unpacked into the output."""
    dataset = SETS[name]
    names = {"train": dataset.train, "dev": dataset.dev, "test": dataset.test}
    names = {split: file for split, file in names.items() if file is not None}
    if not options.folder.is_file():
        return {split: options.folder / file for split, file in names.items()}
    folder = options.output / "data"
    try:
        with zipfile.ZipFile(options.folder) as archive:
            for file in names.values():
                archive.extract(f"{dataset.folder}/{file}", folder)
    except zipfile.BadZipFile:
        raise BenchmarkError(
            f"--folder should be a folder or a zip file. Received: {options.folder}"
        ) from None
    except KeyError as error:
        raise BenchmarkError(f"{options.folder}: {error.args[0]}") from None
    return {split: folder / dataset.folder / file for split, file in names.items()}


def overrides(name: str, seed: int, options: argparse.Namespace) -> list[str]:
    """Return the settings of one run, as the command takes them."""
    files = files_of(name, options)
    settings = {
        **COMMON,
        **SETS[name].settings,
        **{f"data.{split}": path for split, path in files.items()},
        "training.seed": seed,
    }
    if options.vectors:
        settings |= {**FROM_VECTORS, "vectors.file": options.vectors}
    return as_arguments(settings, options.settings)


def measure_ours(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a tagger from each seed; return the figures on the test set."""
    found = []
    for seed in options.seeds:
        run = options.output / f"{name}-{seed}"
        arguments = overrides(name, seed, options)
        command("train", "tagging", *arguments, "--resume", "--output", str(run))
        report = json.loads(command("evaluate", str(run), "--json"))
        found.append({"f1": report["f1"], "minutes": minutes_of(run)})
    return found


def read_rows(path: Path) -> list[dict[str, Sequence[str]]]:
    """Return the `words`, parts of speech `pos` and `tags` of the sentences of a file."""
    from keras_attention.applications.tagging import DataConfig, read_corpus

    tagged = read_corpus(str(path), DataConfig())["sentence"]
    parts = read_corpus(str(path), DataConfig(tag_column=POS_COLUMN))["sentence"]
    return [
        {"words": sentence.words, "pos": part.tags, "tags": sentence.tags}
        for sentence, part in zip(tagged, parts, strict=True)
    ]


def features_of(row: dict[str, Sequence[str]], reads_pos: bool) -> Iterator[list[str]]:
    """Yield the features of each word: ordinary ones of linear CRFs."""
    count = len(row["words"])
    columns = {"w": [word.lower() for word in row["words"]]}
    columns["s"] = [shape(word) for word in row["words"]]
    if reads_pos:
        columns["p"] = list(row["pos"])

    def value(column: str, place: int) -> str:
        return columns[column][place] if 0 <= place < count else "<>"

    for place, word in enumerate(columns["w"]):
        found = ["bias"]
        for column in columns:
            for offset in range(-WINDOW, WINDOW + 1):
                found.append(f"{column}{offset}={value(column, place + offset)}")
            # Pairs of neighbours; of words only those with the word itself.
            reach = WINDOW if column == "p" else 1
            for offset in range(-reach, reach):
                pair = value(column, place + offset), value(column, place + offset + 1)
                found.append(f"{column}{offset}|={pair[0]}|{pair[1]}")
        for length in range(1, min(AFFIX, len(word)) + 1):
            found += [f"prefix={word[:length]}", f"suffix={word[-length:]}"]
        if reads_pos:
            around = [value("p", place + offset) for offset in (-1, 0, 1)]
            found.append(f"p3={'|'.join(around)}")
        yield found


def shape(word: str) -> str:
    """Return capitals as A, small letters as a and digits as 0, each run once: `Aa` of Madrid."""
    found = "".join(
        "A" if letter.isupper() else "a" if letter.isalpha() else "0" if letter.isdigit() else "."
        for letter in word
    )
    return re.sub(r"(.)\1+", r"\1", found)


def measure_linear(name: str, row: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a linear CRF; return its figures on the test set, those of the output if there."""
    from keras_attention.applications.tagging import metrics

    path = options.output / f"{name}-{row}.json"
    if path.exists():
        return [json.loads(path.read_text(encoding="utf-8"))]
    try:
        import pycrfsuite
    except ImportError:
        raise BenchmarkError("python-crfsuite is missing: pip install python-crfsuite.") from None
    files = files_of(name, options)
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", params=TRAINED, verbose=False)
    for sentence in read_rows(files["train"]):
        trainer.append(list(features_of(sentence, LINEAR[row])), sentence["tags"])
    started = time.process_time()
    model = options.output / f"{name}-{row}.crfsuite"
    trainer.train(str(model))
    minutes = (time.process_time() - started) / 60
    tagger = pycrfsuite.Tagger()
    tagger.open(str(model))
    test = read_rows(files["test"])
    found = [tagger.tag(list(features_of(sentence, LINEAR[row]))) for sentence in test]
    f1 = metrics.measure([sentence["tags"] for sentence in test], found)["f1"]
    figures = {"f1": f1, "minutes": minutes}
    path.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    return [figures]


def table(rows: dict[str, list[dict[str, Any]]], has_vectors: bool) -> str:
    """Return the figures as a table, with the machine below."""
    version = installed("python-crfsuite")
    crfsuite = f"linear CRF (`python-crfsuite` {version})" if version else "linear CRF"
    reads = {
        "ours": ("`TokenClassifier`", "words, GloVe" if has_vectors else "words"),
        "linear": (crfsuite, "words"),
        "linear-pos": (crfsuite, "words and parts of speech"),
    }
    cells = [["", "reads", "F1", "of each seed", "minutes of training"]]
    for name, runs in rows.items():
        scores = [100 * run["f1"] for run in runs]
        each = ", ".join(f"{score:.2f}" for score in scores) if name == "ours" else ""
        minutes = statistics.mean(run["minutes"] for run in runs)
        cells.append([*reads[name], f"{statistics.mean(scores):.2f}", each, f"{minutes:.1f}"])
    return f"{markdown(cells)}\n\n{machine_line(facts())}"
