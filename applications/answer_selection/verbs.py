"""The verbs of the command for answer selection; each gets the task and the parsed options."""

import json
from argparse import Namespace
from collections.abc import Sequence

from ..base.verbs import (
    STANDARD_INPUT,
    asks_for_page,
    chunks_of_lines,
    own_split,
    write_lines,
    write_page,
)
from ..data.corpus import Corpus
from ..data.lengths import TooLong, rows_too_long
from ..errors import UserError, say
from ..store.bad_lines import named
from .data import load_corpus, read_corpus
from .results import table
from .task import AnswerRanker


def evaluate(task: AnswerRanker, options: Namespace) -> None:
    """Measure the ranking of candidates of a set, or of a file."""
    questions = _questions(options)
    on_too_long = options.on_too_long or "truncate"
    try:
        report = task.evaluate_text(questions, trec_run=options.trec_run, on_too_long=on_too_long)
    except TooLong as error:
        raise named(error.lines(questions.place)) from None
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: AnswerRanker, options: Namespace) -> None:
    """Rank the candidates of a question: lines `rank, tab, score, tab, candidate`, best first."""
    every = chunks_of_lines(options.candidates, 1000)
    candidates = [line for chunk in every for line in chunk]
    if not candidates:
        raise UserError("the input is empty: expected one candidate a line.")
    on_too_long = options.on_too_long or "truncate"
    _refuse_long(task, options, candidates if on_too_long == "error" else [])
    ranking = task.rank(options.question, candidates, on_too_long=on_too_long)
    if ranking is None:
        raise UserError("the question, or every candidate, is too long, and was skipped.")
    if left_out := len(candidates) - len(ranking):
        limit = f"data.max_length {task.preprocessor.max_length}"
        say(f"{left_out:,} of {len(candidates):,} candidates were longer than {limit}: skipped.")
    ranked = enumerate(ranking[: options.top], 1)
    lines = (f"{place}\t{answer.score:.6f}\t{answer.text}" for place, answer in ranked)
    write_lines(options.output, lines, "there is nothing to rank.")


def _refuse_long(task: AnswerRanker, options: Namespace, candidates: Sequence[str]) -> None:
    """Refuse candidates that are too long, by file and line."""
    lengths = [len(task.preprocessor.tokenizer.tokens(each)) for each in candidates]
    try:
        most = task.preprocessor.max_length
        rows_too_long(lengths, most, "error", "candidates", "{:,} words", "data.max_length")
    except TooLong as error:
        place = f"{options.candidates or STANDARD_INPUT}, line"
        raise named(error.lines(lambda row: f"{place} {row + 1}")) from None


def visualize(task: AnswerRanker, options: Namespace) -> None:
    """Shade the words of answers by their attention, in the terminal and in a file."""
    if asks_for_page(options):
        return write_page(task.explain(options.question, options.answer), options)
    print(task.draw(options.question, options.answer, options.output).show())
    if options.output:
        say(f"wrote {options.output}")


def _questions(options: Namespace) -> Corpus:
    """Return the questions to measure on: a file's, or one of the run's own sets."""
    data = options.config.data if options.config else None
    if split := own_split(options, "--input", options.input):
        return load_corpus(data, split)
    return read_corpus(options.input, data.on_empty if data else "error")
