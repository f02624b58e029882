"""`keras-attention predict` for summarisation: documents in, a line for each out."""

import json
import sys
from argparse import Namespace

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file
from keras_attention.applications.common.text_files import decode_line, output_file, read_lines
from keras_attention.applications.summarization.documents import read_corpus
from keras_attention.applications.summarization.summarizer import Summarizer


def predict(options: Namespace) -> None:
    """Summarise each line of the input: a document as text, or with `--json` an object."""
    if options.output:
        check_new_file(options.output)
    documents = _documents(options)
    summarizer = Summarizer.load(options.run)
    results = summarizer.summarize(documents, attention=False, **search_options(options))
    with output_file(options.output) as file:
        for result in results:
            line = result.text
            if options.json:
                line = json.dumps({"summary": line, "score": result.score}, ensure_ascii=False)
            print(line, file=file)


def search_options(options: Namespace) -> dict:
    """Return the options of a search that were given on the command line."""
    names = {"beam_size": "beam", "min_length": "min_length", "max_length": "max_length"}
    names |= {"no_repeat_ngram": "no_repeat_ngram"}
    return {name: getattr(options, given) for name, given in names.items()}


def _documents(options: Namespace) -> list:
    if options.json:
        if not options.input:
            raise UserError("--json reads a file of JSON lines: name it with --input.")
        corpus = read_corpus(options.input, with_summaries=False)
        return [document.sentences for document in corpus.documents]
    if options.input:
        return read_lines(options.input)
    lines = [
        decode_line(line.removesuffix(b"\n"), "standard input", number)
        for number, line in enumerate(sys.stdin.buffer, 1)
    ]
    if not lines:
        raise UserError("the input is empty: expected one document a line.")
    return lines
