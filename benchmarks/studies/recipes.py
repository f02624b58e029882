"""The uses of the page "Recipes", on real data.

It writes each corpus as the tables that the applications read, trains with the package's own
command (and the tagger, a model from layers, with `fit`), and measures the test set beside a simple
method on the same files. Each run and its figures are kept and not repeated, so that the command
may be interrupted. It fetches nothing; in the folder lie

- `TRAIN_FILE.TXT` and `TEST_FILE_FULL.TXT` of SemEval-2010 task 8,
- `treebank` and `conll2002`, unpacked, as `nltk.download` writes them to `nltk_data/corpora`.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common.commands import command
from benchmarks.common.machine import commit, facts
from benchmarks.common.options import (
    add_folder,
    add_only,
    add_runs,
    add_seeds,
    add_vectors,
    as_arguments,
)
from benchmarks.common.tables import machine_line, markdown
from benchmarks.studies import recipes_data as data
from benchmarks.studies.classification import nb_svm

# Chosen on the development parts: what chooses the epoch, label smoothing, the words around
# relations, and dropout, epochs and exact match of reading. The rest was not tuned.
SETTINGS = {"training.tensorboard": "false", "training.early_stopping": "none"}
CLASSES = {
    **SETTINGS,
    "data.min_examples": 1,
    "data.on_unknown_label": "skip",
    "tokenizer.split": "whitespace",
    "training.schedule": "cosine",
    "training.early_stopping": "score",
}
RELATIONS = {
    **CLASSES,
    "data.label_column": "relation",
    "model.embedding_size": 100,
    "model.units": 100,
    "model.max_pooling": "true",
    "model.embedding_dropout": 0.3,
    "training.batch_size": 32,
    "training.learning_rate": 0.002,
    "training.label_smoothing": 0.1,
    "training.epochs": 10,
    "training.average_checkpoints": 2,
}
READING = {
    **CLASSES,
    "data.text_column": "question",
    "data.second_column": "passage",
    "data.label_column": "answer",
    "tokenizer.min_count": 2,
    "model.architecture": "cross",
    "model.encoder": "convolution",
    "model.embedding_size": 48,
    "model.units": 48,
    "model.max_pooling": "true",
    "model.dropout": 0.2,
    "model.exact_match": "true",
    "training.batch_size": 32,
    "training.learning_rate": 0.002,
    "training.epochs": 8,
}
PARSING = {
    **SETTINGS,
    "data.max_length": 80,
    "data.on_too_long": "skip",
    "data.target_language": "brackets",
    "tokenizer.kind": "words",
    "model.embedding_size": 96,
    "model.units": 128,
    "model.dropout": 0.2,
    "decoding.length_penalty": 0,
    "decoding.max_length": 200,
    "training.batch_size": 16,
    "training.learning_rate": 0.003,
    "training.schedule": "cosine",
    "training.epochs": 10,
}
TAGGING = {"units": 80, "epochs": 6, "batch_size": 32, "learning_rate": 3e-3}
QUICK = {"model.units": 8, "model.embedding_size": 8, "training.epochs": 1}


@dataclass(frozen=True)
class Recipe:
    """One row of the table.

    Args:
        title: of the row.
        published: a figure from a paper, and of what.
        read: reads the parts of the corpus.
        score: `(rows, answers)` to figures in percent by their names, the first of them the row's.
        simple: the name of the simple method.
        baseline: `(training rows, rows)` to the answers of the simple method.
        application: the task of the command; None where the model is built from layers.
        head: the columns of the tables.
        settings: of the configuration.
        tables: `parts` to the rows of the tables, where they differ.
        vectors: whether words may start from `--vectors`.
    """

    title: str
    published: str
    read: Callable[[Path], data.Parts]
    score: Callable[[list, list], dict[str, float]]
    simple: str
    baseline: Callable[[list, list], list]
    application: str | None = None
    head: tuple[str, ...] = ()
    settings: dict = field(default_factory=dict)
    tables: Callable[[data.Parts], data.Parts] = dict
    vectors: bool = False


def _accuracy(rows: list, answers: list) -> dict[str, float]:
    right = sum(row[-1] == answer for row, answer in zip(rows, answers, strict=True))
    return {"accuracy": 100 * right / len(rows)}


RECIPES = {
    "relations": Recipe(
        "relations, SemEval-2010 task 8",
        "84.0, attention over an LSTM from GloVe (Zhou et al. 2016)",
        data.read_relations,
        lambda rows, found: {"macro F1": data.relation_f1([row[1] for row in rows], found)},
        "NB-SVM",
        lambda train, rows: nb_svm(
            *([((row[0],), row[1]) for row in part] for part in (train, rows))
        ),
        "classification",
        ("text", "relation"),
        RELATIONS,
        vectors=True,
    ),
    "reading": Recipe(
        "reading, questions made from CoNLL-2002, Spanish",
        "none; on CNN news 63.0, exclusive frequency 39.3 (Hermann et al. 2015)",
        data.read_questions,
        _accuracy,
        "most frequent other entity",
        lambda train, rows: [data.frequent_entity(*row[:2]) for row in rows],
        "classification",
        ("question", "passage", "answer"),
        READING,
    ),
    "parsing": Recipe(
        "parsing, a tenth of the Penn Treebank's sample",
        "88.3, attention trained on all of it (Vinyals et al. 2015)",
        data.read_trees,
        lambda trees, texts: dict(
            zip(("bracket F1", "well-formed"), data.bracket_scores(trees, texts), strict=True)
        ),
        "right-branching",
        lambda train, trees: [data.right_branching(tree) for tree in trees],
        "translation",
        (),
        PARSING,
        data.translations,
    ),
    "tagging": Recipe(
        "tagging, names of CoNLL-2002, Spanish",
        "85.8, LSTM and CRF from pretrained vectors (Lample et al. 2016)",
        data.read_tagged,
        lambda rows, found: {"phrase F1": data.phrase_f1([row[1] for row in rows], found)},
        "names of the training text",
        data.tags_of_known_names,
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_folder(parser, "the corpora")
    add_only(parser, RECIPES)
    add_vectors(parser, "English, as GloVe's")
    add_seeds(parser, 3)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--quick", action="store_true", help="tiny models: does everything run?")
    add_runs(parser, "runs/recipes")


def run(options: argparse.Namespace) -> None:
    """Train, measure and print the table."""
    rows = []
    for name in options.only or RECIPES:
        for seed in options.seeds:
            rows.append(measure(name, seed, options))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))


def measure(name: str, seed: int, options: argparse.Namespace) -> dict:
    """Return the figures of one run, training it first where that is not done."""
    recipe, run = RECIPES[name], options.output / f"{name}-{seed}"
    kept = options.output / f"{name}-{seed}-{options.split}.json"
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))
    parts = recipe.read(options.folder)
    rows, start = parts[options.split], time.monotonic()
    if recipe.application:
        found = _by_command(recipe, parts, run, seed, options)
    else:
        from benchmarks.studies.recipes_tagger import Tagger

        settings = {**TAGGING, "units": 8, "epochs": 1} if options.quick else TAGGING
        found = Tagger(parts["train"]).fit(run, seed=seed, **settings).tag(rows)
    row = {
        "name": name,
        "seed": seed,
        "figures": recipe.score(rows, found),
        "baseline": recipe.score(rows, recipe.baseline(parts["train"], rows)),
        "minutes": (time.monotonic() - start) / 60,
        "machine": f"commit {commit()}; {machine_line(facts())}",
    }
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return row


def overrides(
    recipe: Recipe, seed: int, files: dict[str, Path], options: argparse.Namespace
) -> list[str]:
    """Return the settings of one run on the files of each split, as the command takes them."""
    settings = {**recipe.settings, "training.seed": seed, **(QUICK if options.quick else {})}
    settings |= {f"data.{split}": files[split] for split in ("train", "dev")}
    if recipe.vectors and options.vectors:
        settings |= {"vectors.file": options.vectors, "vectors.extra_words": 20000}
        settings |= {"model.embedding_size": 100}
    return as_arguments(settings)


def _by_command(recipe: Recipe, parts: data.Parts, run: Path, seed: int, options) -> list[str]:
    """Train and predict by the command, and return its answers."""
    tables = recipe.tables(parts)
    files = data.write_tables(run.with_suffix(".data"), tables, recipe.head)
    arguments = overrides(recipe, seed, files, options)
    command("train", recipe.application, *arguments, "--resume", "--output", str(run))
    rows, asked = tables[options.split], files[options.split]
    if not recipe.head:  # a translator reads sentences
        asked = asked.with_suffix(".txt")
        asked.write_text("".join(f"{row[0]}\n" for row in rows), encoding="utf-8")
    lines = command("predict", str(run), "--input", str(asked)).splitlines()
    if not recipe.head:
        return lines
    answers = [json.loads(line)["probabilities"] for line in lines]
    if len(recipe.head) == 2:
        return [max(each, key=each.get) for each in answers]
    # Of the numbers that are in the passage, the likeliest.
    found = [set(row[1].split()) for row in rows]
    return [
        max((label for label in each if label in words), key=each.get, default="")
        for each, words in zip(answers, found, strict=True)
    ]


def table(rows: list[dict]) -> str:
    """Write means and ranges over the seeds, the simple method and a published figure."""
    lines = [
        ["", "metric", "runs", "ours", "lowest-highest", "simple method", "published", "minutes"]
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        recipe, own = RECIPES[name], [row for row in rows if row["name"] == name]
        minutes = statistics.mean(row["minutes"] for row in own)
        for place, metric in enumerate(own[0]["figures"]):
            figures = [row["figures"][metric] for row in own]
            line = [recipe.title if place == 0 else "", metric, str(len(own))]
            line += [f"{statistics.mean(figures):.1f}", f"{min(figures):.1f}-{max(figures):.1f}"]
            line.append(f"{own[0]['baseline'][metric]:.1f} ({recipe.simple})")
            lines.append(
                [*line, *((recipe.published, f"{minutes:.1f}") if place == 0 else ("", ""))]
            )
    machines = dict.fromkeys(row["machine"] for row in rows)
    return "\n\n".join([markdown(lines), *machines])
