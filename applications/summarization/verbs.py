"""The verbs of the command for summarisation; each gets the task and the parsed options."""

import functools
import json
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from keras_attention.decoding import SearchOptions

from ..common.errors import UserError
from ..common.verbs import (
    chunks_of_file,
    chunks_of_lines,
    own_split,
    search_of,
    show_or_draw,
    write_lines,
    write_page,
)
from .config import DataConfig
from .data import Corpus, documents_of, has_split, load_corpus, read_corpus
from .results import table
from .summarizer import Summarizer

BATCHES_IN_A_CHUNK = 16


def evaluate(task: Summarizer, options: Namespace) -> None:
    """Measure summaries of a test set, or of a file."""
    corpus = evaluation_corpus(options)
    documents = [each.sentences for each in corpus.documents]
    summaries = [each.summaries for each in corpus.documents]
    search = search_of(options, task.search)
    report = task.evaluate_text(documents, summaries, search, lead=options.lead)
    report = {"data": corpus.name, **report}
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: Summarizer, options: Namespace) -> None:
    """Summarise each line of the input: a document as text, or with `--json` an object."""
    search = search_of(options, task.search)
    lines = _summarized(task, search, options)
    write_lines(options.output, lines, "the input is empty: expected one document a line.")


def visualize(task: Summarizer, options: Namespace) -> None:
    """Draw where in the document each word of a summary comes from."""
    if options.format == "html":
        return write_page(task.explain(options.input), options)
    result = task.draw(options.input)
    print(result.text)
    show_or_draw(result, options.output)


def evaluation_corpus(options: Namespace) -> Corpus:
    """Return the documents to measure on: the file given, or one of the run's own sets."""
    data = options.config.data if options.config else DataConfig()
    if split := own_split(options, has_split, "--input", options.input):
        return load_corpus(data, split)
    return read_corpus(options.input, data.on_empty)


def _summarized(task: Summarizer, search: SearchOptions, options: Namespace) -> Iterator[str]:
    for chunk in _chunks(options, BATCHES_IN_A_CHUNK * search.batch_size):
        found = task.summarize(chunk, search, return_attention=False, prefix=options.prefix)
        for result in found:
            line = {
                "summary": result.text,
                "score": result.score,
                "log_probability": result.log_probability,
                "tokens": result.tokens,
                "token_log_probabilities": result.token_log_probabilities,
            }
            yield json.dumps(line, ensure_ascii=False) if options.json else result.text


def _chunks(options: Namespace, size: int) -> Iterator[list[Any]]:
    if not options.json:
        return chunks_of_lines(options.input, size)
    if not options.input:
        raise UserError("--json reads a file of JSON lines: name it with --input.")
    documents = functools.partial(documents_of, options.input, with_summaries=False)
    return chunks_of_file(lambda: (each.sentences for each in documents()), size)
