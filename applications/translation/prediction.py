"""`keras-attention predict` for translation: lines in, lines out."""

import sys
from argparse import Namespace
from collections.abc import Iterator

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file
from keras_attention.applications.common.text_files import decode_line, output_file, read_lines
from keras_attention.applications.translation.run import choose_attention, load_run
from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.translator import Translator
from keras_attention.applications.translation.words import pharaoh

BATCHES_IN_A_CHUNK = 16


def predict(options: Namespace) -> None:
    """Translate each line of the input; an empty line gives an empty line.

    With `--n-best`, lines are `number ||| text ||| score`, the number of the line of input
    counted from 0; `--alignments` adds ` ||| 0-0 1-2`.
    """
    settings = _settings(options)
    if options.output:
        check_new_file(options.output)
    lines = read_lines(options.input) if options.input else None
    run = load_run(options.run)
    choose_attention(run, options.attention_layer, options.attention_head)
    if options.alignments and not run.model.has_attention:
        raise UserError(f"{options.run} has a model without attention: it gives no --alignments.")
    size = BATCHES_IN_A_CHUNK * run.config.decoding.batch_size
    chunks = _standard_input(size) if lines is None else _chunks(lines, size)
    translator = Translator(run)
    number = 0
    with output_file(options.output) as file:
        for index, chunk in enumerate(chunks):
            if options.sample:  # another seed for each chunk, or they would draw alike
                settings["seed"] = (options.seed or 0) + index
            for result in translator.translate(chunk, **settings):
                for ranked in result.ranked:
                    print(_format(translator, ranked, number, options), file=file)
                number += 1
            file.flush()
        if not number:
            raise UserError("the input is empty: expected one sentence a line.")


def _settings(options: Namespace) -> dict:
    sampling = {
        "temperature": options.temperature,
        "top_k": options.top_k,
        "top_p": options.top_p,
    }
    given = {name: value for name, value in sampling.items() if value is not None}
    for name in (*given, *(["seed"] if options.seed is not None else [])):
        if not options.sample:
            raise UserError(f"--{name.replace('_', '-')} goes with --sample only.")
    if options.sample and options.beam:
        raise UserError("give --beam or --sample, not both.")
    return {
        "beam_size": options.beam,
        "n_best": options.n_best or 1,
        "sample": options.sample,
        "return_alignments": options.alignments,
        **given,
    }


def _format(translator: Translator, result: Translation, number: int, options: Namespace) -> str:
    fields = [result.text]
    if options.n_best:
        fields = [str(number), result.text, f"{result.score:.6f}"]
    if options.alignments:
        fields.append(pharaoh(translator.links(result)))
    return " ||| ".join(fields)


def _chunks(lines: list[str], size: int) -> Iterator[list[str]]:
    for first in range(0, len(lines), size):
        yield lines[first : first + size]


def _standard_input(size: int) -> Iterator[list[str]]:
    """Yield chunks of lines; one line at a time where a person types them."""
    size = 1 if sys.stdin.isatty() else size
    chunk: list[str] = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        chunk.append(decode_line(line.removesuffix(b"\n"), "standard input", number))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
