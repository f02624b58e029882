"""`keras-attention predict` for answer selection: a question and candidates in, ranks out."""

import sys
from argparse import Namespace

from keras_attention.applications.answer_selection.ranker import Ranker
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file
from keras_attention.applications.common.text_files import decode_line, output_file, read_lines


def predict(options: Namespace) -> None:
    """Rank the candidates of a question: lines `rank, tab, score, tab, candidate`, best first."""
    if options.output:
        check_new_file(options.output)
    candidates = read_lines(options.candidates) if options.candidates else None
    ranker = Ranker.load(options.run)
    if candidates is None:
        candidates = _standard_input()
    answers = ranker.rank(options.question, candidates)
    with output_file(options.output) as file:
        for place, answer in enumerate(answers[: options.top], 1):
            print(f"{place}\t{answer.score:.6f}\t{answer.text}", file=file)


def _standard_input() -> list[str]:
    lines = [
        decode_line(line.removesuffix(b"\n"), "standard input", number)
        for number, line in enumerate(sys.stdin.buffer, 1)
    ]
    if not lines:
        raise UserError("the input is empty: expected one candidate a line.")
    return lines
