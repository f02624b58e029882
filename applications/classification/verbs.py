"""The verbs of the command for classification; each gets the task and the parsed options."""

import dataclasses
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from ..base.verbs import (
    LongTexts,
    Placed,
    asks_for_map,
    asks_for_page,
    chunks_of_file,
    draw_map,
    own_split,
    placed_chunks_of_lines,
    results_of,
    write_lines,
    write_page,
)
from ..data.corpus import Corpus
from ..data.readers import SUFFIXES
from ..errors import UserError, say
from ..store.bad_lines import BadLine, Line
from ..store.files import check_picture
from .config import DataConfig
from .data import load_corpus, read_corpus, texts_of
from .results import check_confusion, draw_confusion, table
from .task import ClassificationTask

TEXTS_IN_A_CHUNK = 768
SKIPPING = dict.fromkeys(("on_empty", "on_too_long", "on_unknown_label"), "skip")
"""Leaves out, and counts, what cannot be measured."""


def evaluate(task: ClassificationTask, options: Namespace) -> None:
    """Measure labels on one of the run's own sets, or on a table."""
    if options.picture:  # first, as what is wrong should be refused before the work
        check_picture(options.picture)
        check_confusion(task.preprocessor.labels.kind == "one")
    report = task.evaluate_corpus(_corpus(task, options), threshold=options.threshold)
    if options.picture:
        draw_confusion(report, options.picture)
        say(f"wrote {options.picture}")
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: ClassificationTask, options: Namespace) -> None:
    """Label each text of the input, a JSON object a line; one that is skipped has labels of null.

    The input is a table with the run's text columns, or a text a line; the two texts of a pair
    stand on one line with a tab between.
    """
    limit, empty = f"data.max_length {task.preprocessor.max_length}", 0
    long, on_too_long = LongTexts(limit), options.on_too_long or "truncate"

    def work(texts):
        given = {"threshold": options.threshold, "on_too_long": on_too_long}
        return task.classify(texts, return_weights=False, **given)

    def lines() -> Iterator[str]:
        nonlocal empty
        check = task.refuse_long if options.input else None
        for place, result in results_of(_texts(task, options), work, check):
            long.note(place, result)
            empty += result is not None and result.empty
            key = "number" if task.preprocessor.labels.kind == "number" else "labels"
            skipped = {key: None, "skipped": f"longer than {limit}"}
            found = skipped if result is None else result.as_json()
            yield json.dumps(found, ensure_ascii=False)

    write_lines(options.output, lines(), "the input is empty: expected one text a line.")
    long.say()
    if empty:
        say(f"{empty:,} of {long.total:,} texts had no words: their predictions mean nothing.")


def visualize(task: ClassificationTask, options: Namespace) -> None:
    """Shade the words of a text, or of a pair, by what is attended to."""
    if task.pairs == (options.second is None):
        raise UserError(
            f"this run reads {'pairs of texts' if task.pairs else 'single texts'}. "
            f"Received: {'a single text' if task.pairs else '2 texts'}."
        )
    if asks_for_page(options):
        return write_page(task.explain(options.input, options.second), options)
    chosen = options.attention_layer, options.attention_head
    if asks_for_map(options) or any(each is not None for each in chosen):
        return _draw_self_attention(task, options)
    text = (options.input, options.second) if task.pairs else options.input
    print(task.draw(text, options.output).show())
    if options.output:
        say(f"wrote {options.output}")


def _draw_self_attention(task: ClassificationTask, options: Namespace) -> None:
    """Draw what words attend to in a layer and head, or all heads; by default of the first text."""
    found = task.explain(options.input, options.second)
    names = [each.name for each in found.answers[0].maps if each.kind.endswith("self-attention")]
    if not names:
        raise UserError(
            "this run has no self-attention to draw, or the text no words: train with "
            "--model.architecture self-attention or transformer."
        )
    draw_map(found, options, names[0], -1)


def _data(task: ClassificationTask, options: Namespace) -> DataConfig:
    """Return the `data` section of a run; a preset has tables with the columns' usual names."""
    if options.config is not None:
        return options.config.data
    second = "second" if task.pairs else None
    return DataConfig(second_column=second, labels=task.preprocessor.labels.kind)


def _corpus(task: ClassificationTask, options: Namespace) -> Corpus:
    data = _data(task, options)
    if options.skip:
        data = dataclasses.replace(data, **SKIPPING)
    if split := own_split(options, "--input", options.input):
        corpus = load_corpus(data, split)
    else:
        corpus = read_corpus(options.input, data)
    return corpus.handled(too_long=options.on_too_long)


def _texts(task: ClassificationTask, options: Namespace) -> Iterator[list[Placed]]:
    """Return chunks of texts, or of pairs of texts, each after its file and line."""
    data, path = _data(task, options), options.input
    if path and Path(path.removesuffix(".gz")).suffix.lower() in SUFFIXES:
        return chunks_of_file(lambda: texts_of(data, path), TEXTS_IN_A_CHUNK)
    read = {"read": _pair} if task.pairs else {}
    return placed_chunks_of_lines(path, TEXTS_IN_A_CHUNK, data.encoding, **read)


def _pair(place: Line, line: str) -> tuple[str, ...]:
    parts = tuple(line.split("\t"))
    if len(parts) != 2:
        problem = f"expected two texts with a tab between. Received: {line[:40]!r}"
        raise BadLine(place, problem)
    return parts
