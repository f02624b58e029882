"""The verbs of the command for summarisation; each gets the task and the parsed options."""

import json
from argparse import Namespace
from collections.abc import Iterator

from keras_attention.decoding import SearchOptions

from ..base.verbs import (
    LongTexts,
    Placed,
    asks_for_page,
    chunks_of_file,
    own_split,
    placed_chunks_of_lines,
    results_of,
    search_of,
    show_or_draw,
    write_lines,
    write_page,
)
from ..data.corpus import Corpus
from ..data.lengths import TooLong
from ..errors import UserError
from ..store.bad_lines import named
from .config import DataConfig
from .data import documents_of, load_corpus, read_corpus
from .preprocessor import as_documents
from .results import table
from .task import Summarizer

BATCHES_IN_A_CHUNK = 16


def evaluate(task: Summarizer, options: Namespace) -> None:
    """Measure summaries of a test set, or of a file."""
    corpus = evaluation_corpus(options)
    search = search_of(options, task.search)
    given = {"lead": options.lead, "on_too_long": options.on_too_long or "truncate"}
    try:
        report = task.evaluate_text(corpus["source"], corpus["target"], search, **given)
    except TooLong as error:
        raise named(error.lines(corpus.place)) from None
    report = {"data": corpus.name, **report}
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: Summarizer, options: Namespace) -> None:
    """Summarise each line of the input: a document as text, or with `--json` an object.

    A document that is skipped, as it is too long, gives an empty line, or an object whose summary
    and score are null.
    """
    search = search_of(options, task.search)
    lines = _summarized(task, search, options)
    write_lines(options.output, lines, "the input is empty: expected one document a line.")


def visualize(task: Summarizer, options: Namespace) -> None:
    """Draw where in the document each word of a summary comes from."""
    if asks_for_page(options):
        return write_page(task.explain(options.input), options)
    result = task.draw(options.input)
    print(result.text)
    show_or_draw(result, options.output)


def evaluation_corpus(options: Namespace) -> Corpus:
    """Return the documents to measure on: the file given, or one of the run's own sets."""
    data = options.config.data if options.config else DataConfig()
    if split := own_split(options, "--input", options.input):
        return load_corpus(data, split)
    return read_corpus(options.input, data.on_empty)


def _summarized(task: Summarizer, search: SearchOptions, options: Namespace) -> Iterator[str]:
    read = task.preprocessor
    limit = f"data.max_words {read.max_words} or data.max_sentences {read.max_sentences}"
    long = LongTexts(limit)

    def work(documents):
        on_too_long = options.on_too_long or "truncate"
        given = {"return_attention": False, "on_too_long": on_too_long}
        given["prefix"] = options.prefix
        return task.summarize(documents, search, **given)

    def check(documents):
        read.rows_too_long(list(map(read.document, as_documents(documents, "documents"))), "error")

    chunks = _chunks(options, BATCHES_IN_A_CHUNK * search.batch_size)
    for place, result in results_of(chunks, work, check if options.input else None):
        long.note(place, result)
        line = {"summary": None, "score": None, "skipped": f"longer than {limit}"}
        if result is not None:
            line = {
                "summary": result.text,
                "score": result.score,
                "log_probability": result.log_probability,
                "tokens": result.tokens,
                "token_log_probabilities": result.token_log_probabilities,
            }
        yield json.dumps(line, ensure_ascii=False) if options.json else line["summary"] or ""
    long.say()


def _chunks(options: Namespace, size: int) -> Iterator[list[Placed]]:
    if not options.json:
        return placed_chunks_of_lines(options.input, size)
    if not options.input:
        raise UserError("--json reads a file of JSON lines: name it with --input.")

    def placed():
        for place, sentences, _ in documents_of(options.input, with_summaries=False):
            yield place, sentences

    return chunks_of_file(placed, size)
