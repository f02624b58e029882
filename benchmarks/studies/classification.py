"""Text classification on public sets, beside a CNN and a linear machine.

From random vectors, and with `--vectors` from pretrained ones; beside a CNN of 2014, as published,
and a linear machine over words and pairs of words, trained here.

Each row is trained by the real command: with several seeds where the set has a test set, else on
the first of ten fixed folds; the figure is the mean of its runs. A run that is there already is
continued or only evaluated, so that the measurement may be interrupted.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.common.commands import command, minutes_of
from benchmarks.common.options import (
    add_folder,
    add_only,
    add_runs,
    add_seeds,
    add_settings,
    add_vectors,
    as_arguments,
    seeds,
)
from benchmarks.common.tables import markdown

if TYPE_CHECKING:
    from keras_attention.applications.data.corpus import Corpus

COMMON = {
    "model.embedding_size": 200,
    "model.units": 64,
    "model.word_dropout": 0.1,
    "training.batch_size": 50,
    "training.learning_rate": 0.002,
    "training.patience": 5,
    "training.tensorboard": "false",
}
SENTENCES = {"model.architecture": "pooling", "model.max_pooling": "true"}
# The schedule of the rows from vectors.
OPINIONS = {
    **SENTENCES,
    "training.batch_size": 100,
    "training.learning_rate": 0.003,
    "training.schedule": "cosine",
    "training.epochs": 5,
    "training.early_stopping": "none",
    "training.average_checkpoints": 2,
}
# Chosen on development parts: case tells names, and the mean of late weights is steadier.
QUESTIONS = {
    **SENTENCES,
    "model.encoder": "convolution",
    "model.units": 100,
    "model.word_dropout": 0.25,
    "tokenizer.lowercase": "false",
    "training.learning_rate": 0.003,
    "training.schedule": "cosine",
    "training.warmup_steps": 50,
    "training.epochs": 15,
    "training.early_stopping": "none",
    "training.label_smoothing": 0.1,
    "training.average_checkpoints": 5,
}
# Chosen on development parts.
FROM_VECTORS = {
    "vectors.extra_words": 20000,
    "vectors.channels": "both",
    "model.embedding_size": 100,
    "model.embedding_dropout": 0.2,
    "model.word_dropout": 0.0,
}
OPINIONS_FROM_VECTORS = {
    **OPINIONS,
    **FROM_VECTORS,
    "training.epochs": 4,
}
QUESTIONS_FROM_VECTORS = {
    **SENTENCES,
    **FROM_VECTORS,
    "training.learning_rate": 0.003,
    "training.schedule": "cosine",
    "training.label_smoothing": 0.1,
    "training.epochs": 8,
    "training.early_stopping": "none",
    "training.average_checkpoints": 3,
}
# Equal for both: what is compared is attention over words and sentences with a mean of all words.
REVIEWS = {
    "model.encoder": "none",
    "model.embedding_size": 64,
    "model.word_dropout": 0.0,
    "tokenizer.min_count": 2,
    "training.batch_size": 25,
    "training.epochs": 25,
    "training.early_stopping": "loss",
}
# With more units, attention learns the words of the training reviews by heart.
REVIEWS_HAN = {"model.architecture": "han", "model.attention_units": 4}
REVIEWS_FROM_VECTORS = {
    **REVIEWS,
    "vectors.extra_words": 20000,
    "vectors.channels": "both",
    "vectors.length": 1.0,
    "model.embedding_size": 100,
}
PAIRS = {
    "model.architecture": "cross",
    "model.encoder": "none",
    "model.embedding_size": 128,
    "model.units": 128,
    "model.word_dropout": 0.0,
    "model.max_pooling": "true",
    "model.dropout": 0.5,
    "model.exact_match": "true",
    "training.label_smoothing": 0.1,
    "training.learning_rate": 0.001,
    "training.schedule": "cosine",
    "training.epochs": 8,
    "training.early_stopping": "none",
    "training.average_checkpoints": 3,
}
PAIRS_FROM_VECTORS = {
    **PAIRS,
    **FROM_VECTORS,
    "vectors.extra_words": 0,
    "vectors.length": 2.0,
    "model.embedding_dropout": 0.5,
    "training.learning_rate": 0.002,
    "training.epochs": 12,
}


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        dataset: the known data set.
        subfolder: where its files lie under the data folder.
        settings: of the configuration.
        folds: whether runs are folds of the set, not seeds on its own test set.
        goal: the accuracy in percent to reach.
        published: that of the CNN (Kim 2014), from random vectors or, of a row that is pretrained,
            the best one from word2vec's 300 numbers; None where there is none.
        pretrained: whether words start from the vectors of `--vectors`.
    """

    dataset: str
    subfolder: str
    settings: dict = field(default_factory=dict)
    folds: bool = False
    goal: float | None = None
    published: float | None = None
    pretrained: bool = False


ROWS = {
    "trec": Row("trec", "trec", QUESTIONS, goal=91.2, published=91.2),
    "polarity": Row(
        "sentence_polarity",
        "nltk",
        {**OPINIONS, "training.early_stopping": "score"},
        True,
        77.5,
        76.1,
    ),
    "subjectivity": Row("subjectivity", "nltk", OPINIONS, True, 92.0, 89.6),
    "reviews-han": Row("movie_reviews", "nltk", {**REVIEWS, **REVIEWS_HAN}, True, 87.0),
    "reviews-mean": Row("movie_reviews", "nltk", {**REVIEWS, "model.architecture": "mean"}, True),
    "sick": Row("sick", "sick", PAIRS, goal=83.0),
    "trec-vectors": Row("trec", "trec", QUESTIONS_FROM_VECTORS, False, 93.0, 93.6, True),
    "polarity-vectors": Row(
        "sentence_polarity",
        "nltk",
        {**OPINIONS_FROM_VECTORS, "training.early_stopping": "score"},
        True,
        79.5,
        81.5,
        True,
    ),
    "subjectivity-vectors": Row(
        "subjectivity", "nltk", OPINIONS_FROM_VECTORS, True, 93.5, 93.4, True
    ),
    "reviews-han-vectors": Row(
        "movie_reviews",
        "nltk",
        {**REVIEWS_FROM_VECTORS, **REVIEWS_HAN},
        True,
        87.0,
        pretrained=True,
    ),
    "reviews-mean-vectors": Row(
        "movie_reviews",
        "nltk",
        {**REVIEWS_FROM_VECTORS, "model.architecture": "mean"},
        True,
        pretrained=True,
    ),
    "sick-vectors": Row("sick", "sick", PAIRS_FROM_VECTORS, goal=83.0, pretrained=True),
}


Examples = Sequence[tuple[tuple[str, ...], str]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_folder(parser, "trec/, nltk/ and sick/")
    add_vectors(parser, "which adds rows that start there")
    add_seeds(parser, None, "5; of a set with folds, its first 3 folds")
    add_only(parser, ROWS)
    add_settings(parser)
    add_runs(parser, "runs/classification")


def run(options: argparse.Namespace) -> None:
    """Train, evaluate and print the table."""
    rows = []
    for name in options.only or ROWS:
        if options.vectors or not ROWS[name].pretrained:
            rows.append(measure(name, options))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))


def measure(name: str, options: argparse.Namespace) -> dict:
    """Train the runs of one row and return their figures on the test set."""
    row = ROWS[name]
    numbers = options.seeds or default_seeds(row)
    results = [_one(name, seed, options) for seed in numbers]
    accuracies = [100 * result["accuracy"] for result in results]
    linear = linear_accuracies(name, numbers, options.folder, options.vectors, options.settings)
    return {
        "name": name,
        "runs": len(results),
        "of": "folds of 10" if row.folds else "seeds",
        "accuracies": accuracies,
        "accuracy": statistics.mean(accuracies),
        "macro_f1": 100 * statistics.mean(result["macro_f1"] for result in results),
        "calibration": 100 * statistics.mean(r["expected_calibration_error"] for r in results),
        "minutes": sum(result["minutes"] for result in results),
        "linear": statistics.mean(linear),
        "goal": row.goal,
        "published": row.published,
    }


def default_seeds(row: Row) -> list[int]:
    """Return the seeds of a row's runs, or the folds of its set, counted from 1."""
    return seeds(3 if row.folds else 5)


def overrides(
    name: str, seed: int, folder: Path, vectors: Path | None = None, more: Sequence[str] = ()
) -> list[str]:
    """Return the settings of one run, as the command takes them."""
    row = ROWS[name]
    settings = {
        **COMMON,
        **row.settings,
        "data.dataset": row.dataset,
        "data.folder": folder / row.subfolder,
        "data.fold" if row.folds else "training.seed": seed - 1 if row.folds else seed,
    }
    if row.pretrained:
        settings["vectors.file"] = vectors
    return as_arguments(settings, more)


def linear_accuracies(
    name: str,
    numbers: Sequence[int],
    folder: Path,
    vectors: Path | None = None,
    more: Sequence[str] = (),
) -> list[float]:
    """Return the accuracies of NB-SVM on the same test sets; development parts train it, too."""
    from keras_attention.applications.classification import load_corpus
    from keras_attention.applications.command.cli import load_task, read_config

    accuracies = []
    for number in numbers if ROWS[name].folds else numbers[:1]:
        settings = overrides(name, number, folder, vectors, more)
        data = read_config(load_task("classification"), None, settings).data
        train, dev, test = (
            _examples(load_corpus(data, split)) for split in ("train", "dev", "test")
        )
        found = nb_svm(train + dev, test)
        right = [label == own for (_, label), own in zip(test, found, strict=True)]
        accuracies.append(100 * float(np.mean(right)))
    return accuracies


def _examples(corpus: "Corpus") -> Examples:
    """Return the texts of each row, a tuple of one or two, and its label."""
    columns = [corpus[side] for side in ("text", "second") if side in corpus.columns]
    return list(zip(zip(*columns, strict=True), corpus["label"], strict=True))


def nb_svm(train: Examples, test: Examples) -> list[str]:
    """Return the labels that NB-SVM gives to the texts of a test set.

    Words and pairs of words that are in a text, weighed by how much more often a label has them,
    $r = \\log\\frac{p / |p|_1}{q / |q|_1}$, go to a linear machine for each label (Wang and Manning
    2012, "Baselines and bigrams", section 2). Of pairs of texts, what they do not share.

    Args:
        train, test: the texts of each example, a tuple of one or two, and its label.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.svm import LinearSVC

    vectors = CountVectorizer(analyzer=_grams, binary=True)
    x = vectors.fit_transform([texts for texts, _ in train]).astype("float64")
    x_test = vectors.transform([texts for texts, _ in test]).astype("float64")
    labels = np.array([label for _, label in train])
    names = sorted(set(labels))
    scores = np.empty((len(test), len(names)))
    for column, label in enumerate(names):
        is_label = labels == label
        p, q = (1 + np.asarray(x[rows].sum(axis=0))[0] for rows in (is_label, ~is_label))
        ratio = np.log(p / p.sum()) - np.log(q / q.sum())
        machine = LinearSVC(C=1.0, random_state=0).fit(x.multiply(ratio).tocsr(), is_label)
        scores[:, column] = machine.decision_function(x_test.multiply(ratio).tocsr())
    return [str(names[best]) for best in scores.argmax(axis=1)]


def _grams(texts: tuple[str, ...]) -> list[str]:
    """Return words and pairs of words; of two texts, those that one text alone has.

    Two texts also give each word of the first alone together with each of the second alone, by
    which a linear machine learns replacements: "man" by "woman", "playing" by "sleeping".
    """
    sides = []
    for text in texts:
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        sides.append([*words, *map(" ".join, zip(words, words[1:], strict=False))])
    if len(sides) == 1:
        return sides[0]
    first, second = set(sides[0]) - set(sides[1]), set(sides[1]) - set(sides[0])
    replaced = [f"{a}>{b}" for a in first for b in second if " " not in a + b]
    return [f"0:{gram}" for gram in first] + [f"1:{gram}" for gram in second] + replaced


def table(rows: list[dict]) -> str:
    """Write the figures as a Markdown table."""
    head = ["", "runs", "accuracy", "lowest-highest", "macro F1", "ECE", "goal", "CNN", "NB-SVM"]
    head.append("minutes")
    lines = [head]
    for row in rows:
        low, high = min(row["accuracies"]), max(row["accuracies"])
        figures = [row[key] for key in ("macro_f1", "calibration", "goal", "published", "linear")]
        lines.append(
            [row["name"], f"{row['runs']} {row['of']}", f"{row['accuracy']:.1f}"]
            + [f"{low:.1f}-{high:.1f}"]
            + ["" if figure is None else f"{figure:.1f}" for figure in figures]
            + [f"{row['minutes']:.1f}"]
        )
    return markdown(lines)


def _one(name: str, seed: int, options: argparse.Namespace) -> dict:
    run = options.output / f"{name}-{seed}"
    arguments = overrides(name, seed, options.folder, options.vectors, options.settings)
    command("train", "classification", *arguments, "--resume", "--output", str(run))
    report = json.loads(command("evaluate", str(run), "--json"))
    return {**report, "minutes": minutes_of(run)}
