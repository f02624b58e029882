"""Which switch of a summariser cures which fault.

Each row is trained by the real command, from several seeds, and measured on the test set of

- `reports`, which the package makes itself;
- `unordered`, the same with more statements in any order, so that a decoder has to remember
  which it has made;
- `scitldr`, abstracts of papers and summaries of a sentence;
- `catts`, the same, where training also writes the papers' titles: the last word of a document says
  which of the two is asked for (Cachola et al. 2020, section 4).

Trigrams are not blocked, or there would be no repetition to cure. A run that is there already is
continued, and one that is measured is not measured again, so that the measurement may be
interrupted, and spread over processes by `--only`.
"""

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.common.commands import command, minutes_of
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import (
    add_folder,
    add_only,
    add_runs,
    add_seeds,
    add_settings,
    as_arguments,
    seeds,
)
from benchmarks.common.tables import markdown

SPLITS = ("train", "dev", "test")
PRESETS = ("see2017", "nallapati2016-temporal", "nallapati2016-hierarchical", "paulus2017")
# What is changed beside the preset, where a row is no preset itself.
CONTRASTS = {
    "without coverage": {"architecture": "see2017", "coverage": "false"},
    "without pointer": {"architecture": "see2017", "pointer": "false"},
    "without attention": {
        "architecture": "see2017",
        "attention": "false",
        "coverage": "false",
        "pointer": "false",
    },
}
MODELS = {name: {"architecture": name} for name in PRESETS} | CONTRASTS
ROWS = {
    "reports": [*PRESETS, "without coverage", "without pointer"],
    "unordered": ["without coverage", "see2017", "nallapati2016-temporal", "paulus2017"],
    "scitldr": [*PRESETS, "without attention"],
    "catts": [*PRESETS],
}
SEEDS = {"reports": 3, "unordered": 3, "scitldr": 1, "catts": 1}
SMALL = {"training.epochs": 1, "training.steps_per_epoch": 400, "decoding.beam_size": 3}
SETTINGS = {
    "reports": {"data.dataset": "reports", **SMALL},
    "unordered": {
        "tokenizer.vocabulary_size": 60,
        "tokenizer.extra_words": 40,
        "model.embedding_size": 32,
        "model.units": 64,
        "training.learning_rate": 0.003,
        "decoding.max_length": 40,
        **SMALL,
    },
    "scitldr": {
        "data.dataset": "scitldr",
        "tokenizer.vocabulary_size": 10_000,
        "data.max_words": 8_000,  # no abstract is cut; and the run can read whole papers
        "data.max_sentences": 300,
        "data.max_summary_words": 40,
        "model.embedding_size": 128,
        "model.units": 128,
        "model.dropout": 0.2,
        "training.batch_size": 16,
        "training.learning_rate": 0.002,
        "training.epochs": 12,
        "training.patience": 2,
        "training.max_minutes": 20,
        "decoding.max_length": 40,
    },
}
SETTINGS["catts"] = {**SETTINGS["scitldr"], "tokenizer.min_count": 2}  # as the known data set has
del SETTINGS["catts"]["data.dataset"]
ALWAYS = {"training.tensorboard": "false", "decoding.no_repeat_ngram": 0}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--corpus", choices=ROWS, required=True)
    add_folder(parser, "SciTLDR's files", required=False)
    add_seeds(parser, None, "3, of scitldr and catts 1")
    add_only(parser, MODELS)
    add_settings(parser)
    add_runs(parser, "runs/summarization")


def run(options: argparse.Namespace) -> None:
    """Train, measure and print the table."""
    if options.folder is None and options.corpus in ("scitldr", "catts"):
        raise BenchmarkError(f"--corpus {options.corpus} needs --folder, with SciTLDR's files.")
    results: dict[str, list[dict]] = {}
    for seed in options.seeds or seeds(SEEDS[options.corpus]):
        for name in options.only or ROWS[options.corpus]:
            row = measure(name, seed, options)
            results.setdefault(name, []).append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    print(table(results))


def overrides(name: str, seed: int, options: argparse.Namespace) -> list[str]:
    """Return the settings of one run, as the command takes them."""
    settings = {
        "training.seed": seed,
        **ALWAYS,
        **SETTINGS[options.corpus],
        **{f"model.{key}": value for key, value in MODELS[name].items()},
    }
    if options.corpus == "scitldr":
        settings["data.folder"] = options.folder
    if options.corpus in ("unordered", "catts"):
        files = {split: options.output / f"{options.corpus}-{split}.jsonl" for split in SPLITS}
        for split, path in files.items():
            if not path.is_file():
                make = _with_titles if options.corpus == "catts" else _unordered
                path.parent.mkdir(parents=True, exist_ok=True)
                lines = [json.dumps(row) + "\n" for row in make(split, options.folder)]
                path.write_text("".join(lines), encoding="utf-8")
        settings |= {f"data.{split}": path for split, path in files.items()}
    return as_arguments(settings, options.settings)


def measure(name: str, seed: int, options: argparse.Namespace) -> dict:
    """Return the figures of one run, training it first where that is not done."""
    run = options.output / f"{options.corpus}-{name.replace(' ', '-')}-{seed}"
    kept = run.with_suffix(".json")
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))
    arguments = overrides(name, seed, options)
    command("train", "summarization", *arguments, "--resume", "--output", str(run))
    row = {
        "name": name,
        "seed": seed,
        "minutes": minutes_of(run),
        **_evaluate(run, options.corpus),
    }
    kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return row


def _unordered(split: str, folder: Path | None) -> list[dict]:
    """Return reports with more statements, which may come in any order."""
    from keras_attention.applications.data.made import reports

    rows = reports.generate(split, ordered=False)
    return [{"source": row.sentences, "target": row.summary} for row in rows]


def _with_titles(split: str, folder: Path) -> list[dict]:
    """Return SciTLDR's papers, each asked for its summary and, to train with, for its title."""
    rows = []
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        for paper in map(json.loads, file):
            rows.append({"source": [*paper["source"], "tldr"], "target": paper["target"]})
            if split == "train":
                rows.append({"source": [*paper["source"], "title"], "target": paper["title"]})
    return rows


def _evaluate(run: Path, corpus: str) -> dict:
    import keras

    from keras_attention.applications.base.train import config_of
    from keras_attention.applications.data.made import reports
    from keras_attention.applications.summarization import Summarizer, load_corpus

    task = Summarizer.from_preset(run)
    found = load_corpus(config_of(Summarizer, run).data, "test")
    documents, summaries = found["source"], found["target"]
    results = task.summarize(documents)
    report = task.measure(results, documents, summaries)
    if corpus == "reports":
        report["answer_mass"] = answer_mass(results, reports.generate("test"))
    if corpus == "unordered":
        report["complete"] = complete(results, reports.generate("test", ordered=False))
        report |= repetition(results)
    keras.backend.clear_session()
    return report


def complete(results: list, examples: list) -> float:
    """Return the percentage of summaries with the statements asked for, in any order."""
    pairs = zip(results, examples, strict=True)
    hits = [_statements(result.tokens) == _statements(ex.summary.split()) for result, ex in pairs]
    return 100 * float(np.mean(hits))


def statements_of(result) -> list[tuple[int, int, int]]:
    """Return the statements of a summary: first step, step of the full stop, sentence read.

    That is the sentence that has most of the attention while the statement is written.
    """
    stops = [step for step, token in enumerate(result.tokens) if token == "."]
    ends = [*stops, len(result.tokens)]
    starts = [0, *(stop + 1 for stop in stops)]
    return [
        (start, end, int(result.sentence_weights[start:end].sum(axis=0).argmax()))
        for start, end in zip(starts, ends, strict=True)
        if start < end
    ]


def repetition(results: list) -> dict[str, float | None]:
    """Return what of the statements is said, and read, a second time, in percent."""
    again, reread, both = [], [], []
    for result in results:
        said: dict[str, set] = {}
        for start, end, sentence in statements_of(result):
            if end == len(result.tokens):
                continue  # it has no full stop: the search cut it off
            text = " ".join(result.tokens[start:end])
            again.append(text in said)
            reread.append(any(sentence in places for places in said.values()))
            if text in said:
                both.append(sentence in said[text])
            said.setdefault(text, set()).add(sentence)
    percent = [100 * float(np.mean(each)) if each else None for each in (again, reread, both)]
    return dict(zip(("said_again", "read_again", "said_and_read_again"), percent, strict=True))


def _statements(words: list[str]) -> list[str]:
    return sorted(f"{' '.join(words)} ".split(" . "))


def answer_mass(results: list, examples: list) -> float | None:
    """Return the percentage of attention on the sentence that holds the answer.

    The n-th statement of a summary is drawn from the n-th urgent sentence of its report. Counted
    are the words of a statement, but its full stop; those of statements that the report does not
    ask for are left out.

    Args:
        results: summaries.
        examples: what `reports.generate` gave for them.
    """
    found = []
    for result, example in zip(results, examples, strict=True):
        statement = 0
        for token, weights in zip(result.tokens, result.sentence_weights, strict=True):
            if token == ".":
                statement += 1
            elif statement < len(example.urgent):
                found.append(weights[example.urgent[statement]])
    return 100 * float(np.mean(found)) if found else None


COLUMNS = {
    "ROUGE-1": "rouge1",
    "ROUGE-2": "rouge2",
    "ROUGE-L": "rougeL",
    "exact match %": "exact_match",
    "complete %": "complete",
    "repeated trigrams %": "repeated_trigrams",
    "statements said again %": "said_again",
    "sentences read again %": "read_again",
    "of what is said again, read again %": "said_and_read_again",
    "unknown %": "unknown",
    "copied unknown %": "copied_unknown",
    "weight on the answer's sentence %": "answer_mass",
    "minutes": "minutes",
}


def table(results: dict[str, list[dict]]) -> str:
    """Write the means over the seeds, with the lowest and the highest, as a Markdown table."""
    rows = [row for found in results.values() for row in found]
    columns = {name: key for name, key in COLUMNS.items() if any(key in row for row in rows)}
    lines = [["", "seeds", *columns]]
    for name, found in results.items():
        figures = [_spread([row.get(key) for row in found]) for key in columns.values()]
        lines.append([name, str(len(found)), *figures])
    others = {
        f"lead-{rows[0]['lead']}": rows[0]["lead_rouge"],
        f"oracle-{rows[0]['lead']}": rows[0]["oracle_rouge"],
        "the references": {"repeated_trigrams": rows[0]["repeated_trigrams_of_references"]},
    }
    for name, report in others.items():
        lines.append([name, "", *(_spread([report.get(key)]) for key in columns.values())])
    return markdown(lines)


def _spread(values: list[float | None]) -> str:
    values = [value for value in values if value is not None]
    if not values:
        return ""
    mean, low, high = (
        f"{each:.1f}" for each in (statistics.mean(values), min(values), max(values))
    )
    return mean if low == high else f"{mean} ({low}-{high})"
