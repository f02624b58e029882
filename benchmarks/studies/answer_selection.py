"""The encoders of answer selection, compared on WikiQA or TREC-QA.

It trains every encoder on WikiQA or TREC-QA with the same settings from several seeds, chooses the
epoch by MAP on the development set, and measures on the test set under the filtered protocol. The
test set of TREC-QA is not always at hand: here its published development set is the test set, and
the last of its training questions choose the epoch. With `--vectors`, words start from a file's
vectors, which only compare-aggregate changes; else they start from vectors that are trained once
for each seed on the training text. The command continues a run that is there already, and does not
repeat one that is measured. You may interrupt it, and spread it over processes by `--only`.
"""

import argparse
import csv
import gzip
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import (
    add_folder,
    add_only,
    add_runs,
    add_seeds,
    add_settings,
    add_vectors,
    as_arguments,
    new_file,
)
from benchmarks.common.tables import markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The settings of an encoder; those of its training are chosen on the development set.
MODELS = {
    "gru": {"model.encoder": "gru"},
    "outer": {"model.encoder": "outer"},
    "inner-word": {"model.encoder": "inner-word"},
    "inner-word occam": {"model.encoder": "inner-word", "model.occam": "true"},
    "inner-context": {"model.encoder": "inner-context"},
    "inner-context occam": {"model.encoder": "inner-context", "model.occam": "true"},
    "inner-gate": {"model.encoder": "inner-gate"},
    "compare-aggregate": {
        "model.encoder": "compare-aggregate",
        "training.loss": "listwise",
        "training.epochs": 8,
        "training.average_checkpoints": 3,
        "vectors.trainable": "true",
    },
}

# Of WikiQA, with pretrained vectors: MAP and MRR (Wang, Liu and Zhao 2016; Wang and Jiang 2017).
PUBLISHED = {
    "gru": (0.6581, 0.6691),
    "outer": (0.6881, 0.7013),
    "inner-word": (0.7098, 0.7234),
    "inner-context": (0.7182, 0.7339),
    "inner-context occam": (0.7341, 0.7418),
    "inner-gate": (0.7258, 0.7394),
    "compare-aggregate": (0.7433, 0.7545),
}

PICTURES = (".png", ".svg")
SIZE = 100
# With pretrained vectors, chosen on the development set. The file's first words have vectors of
# their own although no training text has them; as training leaves these alone, it leaves all.
PRETRAINED = {"vectors.extra_words": 50000, "vectors.trainable": "false", "training.epochs": 40}
SETTINGS = {
    "vectors.source": "file",
    "model.embedding_size": SIZE,
    "model.units": 100,
    "training.epochs": 20,
    "training.patience": 5,
    "training.tensorboard": "false",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--dataset", choices=("wikiqa", "trecqa"), default="wikiqa")
    add_folder(parser, "the data set's files")
    add_vectors(parser, "from which words start")
    add_seeds(parser, 5)
    add_only(parser, MODELS)
    add_settings(parser)
    parser.add_argument(
        "--picture",
        type=new_file,
        help="a new file, .png or .svg: where in an answer attention lies",
    )
    add_runs(parser, None, "runs/answer-selection/DATASET")


def run(options: argparse.Namespace) -> None:
    """Train, measure and print the tables."""
    if options.picture and options.picture.suffix not in PICTURES:
        raise BenchmarkError(
            f"--picture should end in {' or '.join(PICTURES)}. Received: {options.picture}"
        )
    options.output = options.output or Path("runs/answer-selection", options.dataset)
    is_wikiqa = options.dataset == "wikiqa"
    published, more_figures = (PUBLISHED, ()) if is_wikiqa else ({}, UNFILTERED)
    results: dict[str, list[dict]] = {}
    for seed in options.seeds:
        for name in options.only or MODELS:
            row = measure(name, seed, options)
            results.setdefault(name, []).append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    shares = attention_by_position(results)
    if options.picture:
        draw_positions(shares).savefig(options.picture)
    print(f"{table(results, published, more_figures)}\n\n{positions(shares)}")


def measure(name: str, seed: int, options: argparse.Namespace) -> dict:
    """Return the figures of one run, training it first where that is not done."""
    run = options.output / f"{name.replace(' ', '-')}-{seed}"
    kept = run.with_suffix(".json")
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))
    import keras

    from keras_attention.applications.answer_selection import AnswerRanker, AnswerSelectionConfig
    from keras_attention.applications.base.train import config_of, resume_task, train_task
    from keras_attention.applications.schema.reading import load_config

    start = time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    config = load_config(AnswerSelectionConfig, [], overrides(name, seed, options))
    start_or_continue = resume_task if run.exists() else train_task
    outcome = start_or_continue(AnswerRanker, config, run)
    ranker, config = AnswerRanker.from_preset(run), config_of(AnswerRanker, run)
    dev, test = (ranker.evaluate_text(ranker.read(config, split)) for split in ("dev", "test"))
    row = {
        "name": name,
        "seed": seed,
        "seconds": round(time.monotonic() - start, 1),
        "epoch": outcome.best_epoch,
        "dev_map": dev["filtered"]["map"],
        "map": test["filtered"]["map"],
        "mrr": test["filtered"]["mrr"],
        "unfiltered_map": test["unfiltered"]["map"],
        "unfiltered_mrr": test["unfiltered"]["mrr"],
        "attention_by_position": test["attention_by_position"],
        "baselines": {
            name: [dev["baselines"][name]["filtered"]["map"]]
            + [figures[by][key] for by in ("filtered", "unfiltered") for key in ("map", "mrr")]
            for name, figures in test["baselines"].items()
        },
    }
    kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
    keras.backend.clear_session()
    return row


def overrides(name: str, seed: int, options: argparse.Namespace) -> list[str]:
    """Return the settings of one run, as the command takes them."""
    settings = {**SETTINGS, "data.dataset": options.dataset, "training.seed": seed}
    settings["data.folder"] = options.folder if options.dataset == "wikiqa" else _parts(options)
    settings["vectors.file"] = options.vectors or _vectors(seed, options)
    settings |= PRETRAINED if options.vectors else {}
    settings |= MODELS[name]
    return as_arguments(settings, options.settings)


def _vectors(seed: int, options: argparse.Namespace) -> Path:
    """Return the file of a seed's vectors, trained where that is not done."""
    from keras_attention.applications.answer_selection import (
        DataConfig,
        load_corpus,
        train_vectors,
        write_vectors,
    )
    from keras_attention.applications.answer_selection.data import texts_of

    path = options.output / f"vectors-{seed}.txt"
    if not path.is_file():
        folder = options.folder if options.dataset == "wikiqa" else _parts(options)
        data = DataConfig(dataset=options.dataset, folder=str(folder))
        write_vectors(path, train_vectors(texts_of(load_corpus(data, "train")), SIZE, seed))
    return path


HELD_OUT = 15
"""How many of TREC-QA's training questions choose the epoch."""


def _parts(options: argparse.Namespace) -> Path:
    """Return a folder with TREC-QA in three parts; write those that are missing."""
    from keras_attention.applications.store.files import replacing

    folder, found = options.output / "trecqa", {}
    paths = {name: folder / f"{name}.csv" for name in ("train", "dev", "test")}
    if all(path.is_file() for path in paths.values()):
        return folder
    for name in ("train", "dev"):
        with gzip.open(Path(options.folder) / f"{name}.csv.gz", "rt", encoding="utf-8") as file:
            head, *found[name] = csv.reader(file)
    questions = list(dict.fromkeys(row[0] for row in found["train"]))
    last = set(questions[-HELD_OUT:])
    parts = {
        "train": [row for row in found["train"] if row[0] not in last],
        "dev": [row for row in found["train"] if row[0] in last],
        "test": found["dev"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        if not path.is_file():
            with replacing(path) as new, open(new, "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([head, *parts[name]])
    return folder


UNFILTERED = ("unfiltered_map", "unfiltered_mrr")
"""Figures that papers on TREC-QA call raw."""


def table(
    results: dict[str, list[dict]],
    published: dict[str, tuple[float, float]],
    more: Sequence[str] = (),
) -> str:
    """Write means and standard deviations over the seeds, and what words alone give.

    Args:
        results: the rows of each encoder, by its name.
        published: MAP and MRR by the same names; without any, the table has no such column.
        more: further figures of the rows to write: none, or `UNFILTERED`.
    """
    keys = ("dev_map", "map", "mrr", *more)
    head = ["", "runs", "seconds a run", "dev MAP", "test MAP", "test MRR"]
    head += [f"{key[:-4]} test {key[-3:].upper()}" for key in more]
    head += ["published MAP / MRR"] if published else []
    lines = [head]
    for name, rows in results.items():
        known = " / ".join(f"{figure:.4f}" for figure in published.get(name, ())) or "-"
        seconds = statistics.mean(row["seconds"] for row in rows)
        line = [name, str(len(rows)), f"{seconds:.0f}", *(_spread(rows, key) for key in keys)]
        lines.append([*line, *([known] if published else [])])
    for name, figures in next(iter(results.values()))[0].get("baselines", {}).items():
        line = [name, "-", "-", *(f"{figure:.4f}" for figure in figures[: len(keys)])]
        lines.append([*line, *["-"] * (len(head) - len(line))])  # rows of old runs have fewer
    return markdown(lines)


def attention_by_position(results: dict[str, list[dict]]) -> dict[str, list[float]]:
    """Return the share of the attention on each tenth of an answer, the mean over the seeds."""
    shares = {}
    for name, rows in results.items():
        found = [row["attention_by_position"] for row in rows if row["attention_by_position"]]
        if found:
            shares[name] = [statistics.mean(tenth) for tenth in zip(*found, strict=True)]
    return shares


def positions(shares: dict[str, list[float]]) -> str:
    """Write the attention on each tenth as a Markdown table."""
    lines = [["attention on tenth", *map(str, range(1, 11))]]
    lines += [[name, *(f"{share:.1%}" for share in tenths)] for name, tenths in shares.items()]
    return markdown(lines)


def draw_positions(shares: dict[str, list[float]]) -> "Figure":
    """Draw the attention on each tenth, a line for each encoder."""
    from keras_attention.visualization import new_figure

    figure = new_figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("tenth of the answer")
    axes.set_ylabel("share of the attention, %")
    axes.set_xticks(range(1, 11))
    axes.axhline(10, color="0.8", linewidth=1)  # attention that does not depend on place
    for name, tenths in shares.items():
        style = "--" if "occam" in name.lower() else "-"
        axes.plot(range(1, 11), [100 * share for share in tenths], style, label=name)
    axes.legend(frameon=False)
    return figure


def _spread(rows: list[dict], key: str) -> str:
    values = [row[key] for row in rows]
    deviation = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{deviation}"
