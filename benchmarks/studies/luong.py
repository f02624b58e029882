"""The tables of Luong, Pham and Manning (2015), on Multi30k.

The first rows each add one thing to the row before, as the paper's table 1 does; the others change
the attention, as its table 4 does. Each is trained by the real command, with the same data, seed
and number of updates, on words, of which the rarer ones are unknown. BLEU is measured with and
without putting the word that the attention points at in place of an unknown one, and the alignment
error rate, if gold alignments are given, by forced decoding. A run that is there already is
continued or only measured, so that the comparison may be interrupted.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.common.commands import command, minutes_of
from benchmarks.common.options import (
    add_epochs,
    add_folder,
    add_only,
    add_runs,
    add_settings,
    as_arguments,
)
from benchmarks.common.tables import markdown

REVERSE = {"reverse_source": "true"}
DROPOUT = {**REVERSE, "dropout": 0.2}
FEEDING = {**DROPOUT, "input_feeding": "true"}
ROWS = {
    "base": {"attention": "none"},
    "+ reverse": {"attention": "none", **REVERSE},
    "+ dropout": {"attention": "none", **DROPOUT},
    "+ global (location)": {"score": "location", **DROPOUT},
    "+ feed input": {"score": "location", **FEEDING},
    "local-p (general)": {"attention": "local-p", "score": "general", **FEEDING},
    "global (general)": {"score": "general", **FEEDING},
    "global (dot)": {"score": "dot", **FEEDING},
    "global (concat)": {"score": "concat", **FEEDING},
    "local-m (general)": {"attention": "local-m", "score": "general", **FEEDING},
    "local-m (dot)": {"attention": "local-m", "score": "dot", **FEEDING},
    "local-p (dot)": {"attention": "local-p", "score": "dot", **FEEDING},
}
ENSEMBLE = "ensemble of all with content-based attention"
DIAGONAL = "each word to the source word at the same part of its sentence"
SETTINGS = {
    "data.dataset": "multi30k",
    "tokenizer.kind": "words",
    "tokenizer.vocabulary_size": 3000,
    "model.architecture": "luong",
    "model.layers": 2,
    "model.embedding_size": 96,
    "model.units": 128,
    "model.dropout": 0.0,
    "model.input_feeding": "false",
    "training.batch_size": 32,
    "training.learning_rate": 0.003,
    "training.warmup_steps": 200,
    "training.schedule": "cosine",
    "training.early_stopping": "none",
    "training.tensorboard": "false",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_folder(parser, "Multi30k's files (default: they are fetched by name)", required=False)
    add_epochs(parser, 6)
    add_only(parser, ROWS)
    add_settings(parser)
    parser.add_argument(
        "--aligned",
        nargs=3,
        metavar=("SOURCE", "TARGET", "GOLD"),
        help="sentences with gold alignments, for the alignment error rate",
    )
    add_runs(parser, "runs/luong")


def run(options: argparse.Namespace) -> None:
    """Train, measure and print the table."""
    names = options.only or list(ROWS)
    rows = []
    for name in names:
        rows.append(measure(name, options))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if len(joined := [name for name in names if by_content(name)]) > 1:
        figures = bleu_of([folder(name, options) for name in joined])
        rows.append({"name": f"{ENSEMBLE} ({len(joined)})", **figures})
    if options.aligned:
        rows.append({"name": DIAGONAL, "aer": diagonal(*options.aligned)})
    print(table(rows))


def by_content(name: str) -> bool:
    """Whether a row's attention scores what is at a place, not the place alone."""
    return ROWS[name].get("attention") != "none" and ROWS[name].get("score") != "location"


def folder(name: str, options: argparse.Namespace) -> Path:
    """Return the run folder of a row."""
    return options.output / "".join(c for c in name.replace(" ", "-") if c not in "+()").strip("-")


def measure(name: str, options: argparse.Namespace) -> dict:
    """Train one row's model and return its figures on the test set."""
    run = folder(name, options)
    command("train", "translation", *overrides(name, options), "--resume", "--output", str(run))
    row = {"name": name, "minutes": minutes_of(run), **bleu_of([run])}
    if options.aligned and ROWS[name].get("attention") != "none":
        source, target, gold = options.aligned
        data = ["--source", source, "--target", target, "--gold", gold]
        row["aer"] = json.loads(command("evaluate", str(run), *data, "--json"))["alignment"]["aer"]
    return row


def diagonal(source: str, target: str, gold: str) -> float:
    """Return the alignment error rate of words linked by their part of the sentence alone."""
    from keras_attention.metrics import alignment_error_rate, read_alignments

    links = []
    with open(source, encoding="utf-8") as read, open(target, encoding="utf-8") as written:
        for pair in zip(read, written, strict=True):
            words, own = (len(line.split()) for line in pair)
            links.append({(int((place + 0.5) * words / own), place) for place in range(own)})
    return 100 * alignment_error_rate(links, read_alignments(gold, one_indexed=True)).value


def overrides(name: str, options: argparse.Namespace) -> list[str]:
    """Return the settings of one row, as the command takes them."""
    settings = {**SETTINGS, "training.epochs": options.epochs}
    settings |= {f"model.{key}": value for key, value in ROWS[name].items()}
    if options.folder:
        settings["data.folder"] = options.folder
    return as_arguments(settings, options.settings)


def bleu_of(runs: list[Path]) -> dict:
    """Return perplexity and BLEU of a run, or of several that search as one, with a beam of 5."""
    from keras_attention.applications.command.cli import read_config
    from keras_attention.applications.training.run_folder import RunFolder
    from keras_attention.applications.translation import (
        TranslationPreprocessor,
        Translator,
        load_corpus,
    )

    corpus = load_corpus(read_config(Translator, run=RunFolder(runs[0])).data, "test")
    tasks = [Translator.from_preset(run) for run in runs]
    task = tasks[0] if len(tasks) == 1 else Translator.ensemble(tasks)
    texts = corpus["source"], corpus["target"]
    report = task.evaluate_text(*texts, beam_size=5)
    figures = {"perplexity": report["perplexity"], "bleu": report["bleu"]}
    if task.backbone.has_attention:
        replacing = TranslationPreprocessor(*task.preprocessor.tokenizers, replace_unknown=True)
        task = Translator(task.backbone, replacing, dictionary=task.dictionary)
        figures["replaced"] = task.evaluate_text(*texts, beam_size=5)["bleu"]
    return figures


def table(rows: list[dict]) -> str:
    """Write the figures as a Markdown table."""
    columns = {"minutes": "minutes", "perplexity": "perplexity", "bleu": "BLEU"}
    columns |= {"replaced": "BLEU, unknown words replaced"}
    columns |= {"aer": "AER %"} if any("aer" in row for row in rows) else {}
    lines = [["", *columns.values()]]
    for row in rows:
        lines.append([row["name"], *(f"{row[key]:.1f}" if key in row else "" for key in columns)])
    return markdown(lines)
