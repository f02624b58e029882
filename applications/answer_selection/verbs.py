"""The verbs of the command for answer selection; each gets the task and the parsed options."""

import json
from argparse import Namespace

from ..common.errors import UserError, say
from ..common.verbs import chunks_of_lines, own_split, write_lines, write_page
from .data import QuestionSet, has_split, load_questions, read_questions
from .ranker import AnswerRanker
from .results import table


def evaluate(task: AnswerRanker, options: Namespace) -> None:
    """Measure the ranking of candidates of a set, or of a file."""
    report = task.evaluate_text(_questions(options), trec_run=options.trec_run)
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: AnswerRanker, options: Namespace) -> None:
    """Rank the candidates of a question: lines `rank, tab, score, tab, candidate`, best first."""
    every = chunks_of_lines(options.candidates, 1000)
    candidates = [line for chunk in every for line in chunk]
    if not candidates:
        raise UserError("the input is empty: expected one candidate a line.")
    answers = task.rank(options.question, candidates)[: options.top]
    ranked = enumerate(answers, 1)
    lines = (f"{place}\t{answer.score:.6f}\t{answer.text}" for place, answer in ranked)
    write_lines(options.output, lines, "there is nothing to rank.")


def visualize(task: AnswerRanker, options: Namespace) -> None:
    """Shade the words of answers by their attention, in the terminal and in a file."""
    if options.format == "html":
        return write_page(task.explain(options.question, options.answer), options)
    print(task.draw(options.question, options.answer, options.output).show())
    if options.output:
        say(f"wrote {options.output}")


def _questions(options: Namespace) -> QuestionSet:
    """Return the questions to measure on: a file's, or one of the run's own sets."""
    data = options.config.data if options.config else None
    if split := own_split(options, has_split, "--file", options.file):
        return load_questions(data, split)
    return read_questions(options.file, data.on_empty if data else "error")
