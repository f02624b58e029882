"""Every translation architecture at one equal budget.

Each is trained on Multi30k by the real command, with the same settings, data, seed and number of
epochs, and evaluated on the test set with beam and greedy search. A run that is there already is
continued or only evaluated, so that the comparison may be interrupted.
"""

import argparse
import json
import sys

from benchmarks.common.commands import command, minutes_of
from benchmarks.common.options import (
    add_epochs,
    add_folder,
    add_only,
    add_runs,
    as_arguments,
)
from benchmarks.common.tables import markdown

LOCAL = {"architecture": "luong", "score": "general"}

ARCHITECTURES = {
    "rnnencdec": {"architecture": "rnnencdec"},
    "rnnsearch": {"architecture": "rnnsearch"},
    "luong dot": {"architecture": "luong", "score": "dot"},
    "luong general": {"architecture": "luong", "score": "general"},
    "luong concat": {"architecture": "luong", "score": "concat"},
    "luong location": {"architecture": "luong", "score": "location"},
    "luong local-m": {**LOCAL, "attention": "local-m"},
    "luong local-p": {**LOCAL, "attention": "local-p"},
}

SETTINGS = {
    "data.dataset": "multi30k",
    "tokenizer.vocabulary_size": 3000,
    "model.embedding_size": 96,
    "model.units": 128,
    "model.layers": 1,  # everywhere, so that depth is not what is compared
    "model.dropout": 0.2,
    "training.batch_size": 128,
    "training.learning_rate": 0.003,
    "training.warmup_steps": 200,
    "training.schedule": "cosine",
    "training.early_stopping": "loss",
    "training.tensorboard": "false",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_folder(parser, "Multi30k's files (default: they are fetched by name)", required=False)
    add_epochs(parser, 5)
    add_only(parser, ARCHITECTURES)
    add_runs(parser, "runs/architectures")


def run(options: argparse.Namespace) -> None:
    """Train, evaluate and print the table."""
    rows = []
    for name in options.only or ARCHITECTURES:
        rows.append(measure(name, options))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(table(rows))


def measure(name: str, options: argparse.Namespace) -> dict:
    """Train one architecture and return its figures on the test set."""
    run = options.output / name.replace(" ", "-")
    command("train", "translation", *overrides(name, options), "--resume", "--output", str(run))
    reports = {
        beam: json.loads(command("evaluate", str(run), "--beam-size", str(beam), "--json"))
        for beam in (1, 5)
    }
    return {
        "name": name,
        "minutes": minutes_of(run),
        "greedy": reports[1]["bleu"],
        "bleu": reports[5]["bleu"],
        "chrf": reports[5]["chrf"],
        "perplexity": reports[5]["perplexity"],
        "by_length": reports[5]["bleu_by_source_words"],
    }


def overrides(name: str, options: argparse.Namespace) -> list[str]:
    """Return the settings of one architecture, as the command takes them."""
    settings = {**SETTINGS, "training.epochs": options.epochs}
    settings |= {f"model.{key}": value for key, value in ARCHITECTURES[name].items()}
    if options.folder:
        settings["data.folder"] = options.folder
    return as_arguments(settings)


def table(rows: list[dict]) -> str:
    """Write the figures as a Markdown table, with BLEU by the source's number of words."""
    buckets = [bucket for bucket in rows[0]["by_length"] if bucket["sentences"]]
    labels = [f"{_words(bucket)} ({bucket['sentences']})" for bucket in buckets]
    head = ["", "minutes", "perplexity", "greedy BLEU", "beam 5 BLEU", "chrF", *labels]
    lines = [head]
    for row in rows:
        by_length = [b["bleu"] for b in row["by_length"] if b["sentences"]]
        figures = [row["greedy"], row["bleu"], row["chrf"], *by_length]
        lines.append(
            [row["name"], f"{row['minutes']:.1f}", f"{row['perplexity']:.2f}"]
            + [f"{figure:.1f}" for figure in figures]
        )
    return markdown(lines)


def _words(bucket: dict) -> str:
    last = f"-{bucket['longest']}" if bucket["longest"] else " or more"
    return f"{bucket['shortest']}{last}"
