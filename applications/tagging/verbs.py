"""The verbs of the command for tagging; each gets the task and the parsed options."""

import json
from argparse import Namespace
from collections.abc import Iterator

from ..base.verbs import (
    Placed,
    asks_for_map,
    asks_for_page,
    draw_map,
    own_split,
    placed_chunks_of_lines,
    results_of,
    show_or_draw,
    write_lines,
    write_page,
)
from ..errors import UserError
from .config import DataConfig, TaggingConfig
from .data import read_corpus
from .results import table
from .task import TokenClassifier, marked

TEXTS_IN_A_CHUNK = 512


def evaluate(task: TokenClassifier, options: Namespace) -> None:
    """Measure tags on one of the run's own sets, or on a file."""
    data = _data(task, options)

    if split := own_split(options, "--input", options.input):
        corpus = task.read(TaggingConfig(data=data), split)
    else:
        corpus = read_corpus(options.input, data)
    report = task.evaluate_corpus(corpus)
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: TokenClassifier, options: Namespace) -> None:
    """Tag each line of the input, a JSON object a line; or a file of sentences in columns."""
    roles = task.preprocessor.roles
    if options.columns and not options.input:
        raise UserError("--columns reads a file: give --input.")

    def work(texts):
        given = [marked(text) for text in texts] if roles else texts
        return task.tag(given, are_words=False)

    def lines() -> Iterator[str]:
        for _, result in results_of(_texts(options), work):
            yield json.dumps(result.as_json(), ensure_ascii=False)

    def columns() -> Iterator[str]:
        corpus = read_corpus(options.input, _data(task, options), labelled=False)
        given = [
            (each.words, each.predicate) if roles else each.words for each in corpus["sentence"]
        ]
        for result in task.tag(given, are_words=False):
            pairs = zip(result.words, result.tags, strict=True)
            yield "".join(f"{word}\t{tag}\n" for word, tag in pairs)

    found = columns() if options.columns else lines()
    write_lines(options.output, found, "the input is empty: expected one text a line.")


def visualize(task: TokenClassifier, options: Namespace) -> None:
    """Show the tags of a text, with the next best ones, and draw what words attend to."""
    if asks_for_page(options):
        return write_page(task.explain(options.input), options)
    chosen = options.attention_layer, options.attention_head
    if asks_for_map(options) or any(each is not None for each in chosen):
        found = task.explain(options.input)
        if len(found.answers[0].maps) < 2:
            raise UserError(
                "this run has no self-attention to draw, or the text no words: train with "
                "--model.architecture self-attention or transformer."
            )
        return draw_map(found, options, "self-attention", -1)
    given = marked(options.input) if task.preprocessor.roles else options.input
    show_or_draw(task.tag(given, alternatives=5), options.output)


def _data(task: TokenClassifier, options: Namespace) -> DataConfig:
    """Return the `data` section of a run; a preset has files with the usual columns."""
    if options.config is not None:
        return options.config.data
    return DataConfig(predicate_column="predicate" if task.preprocessor.roles else None)


def _texts(options: Namespace) -> Iterator[list[Placed]]:
    return placed_chunks_of_lines(options.input, TEXTS_IN_A_CHUNK)
