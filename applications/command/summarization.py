"""The options of summarisation."""

from argparse import ArgumentParser

from .arguments import TaskCommand, Verb, add_search, positive

EXAMPLES = """\
  keras-attention train summarization --data.dataset reports --output runs/reports
  keras-attention train summarization --data.train_file train.jsonl --data.dev_file dev.jsonl \\
      --model.architecture paulus2017 --output runs/mine
"""


def _search(parser: ArgumentParser) -> None:
    names = ("beam_size", "min_length", "max_length", "no_repeat_ngram", "length_penalty")
    add_search(parser, *names)


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="F", help="JSON lines with source and target")
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="which of the run's own sets (default: test if it has one, else dev)",
    )
    parser.add_argument(
        "--lead",
        type=positive,
        default=1,
        metavar="K",
        help="compare with the first K sentences (default: 1)",
    )
    _search(parser)
    parser.add_argument("--json", action="store_true", help="write JSON in place of a table")


def _predict(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--input", metavar="F", help="a document a line; standard input if not given"
    )
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")
    parser.add_argument(
        "--json",
        action="store_true",
        help="read JSON lines with source (a text or a list of sentences), write JSON lines",
    )
    _search(parser)


def _visualize(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="TEXT", required=True, help="the document")
    parser.add_argument(
        "--output", metavar="F.png", help="new .png, .svg or .pdf; the terminal if not given"
    )


def _export(parser: ArgumentParser) -> None:
    parser.add_argument("--output", metavar="D", required=True, help="new folder")


SUMMARIZATION = TaskCommand(
    name="summarization",
    task_class="Summarizer",
    examples=EXAMPLES,
    verbs={
        "evaluate": Verb("measure summaries of a test set, or of a file", _evaluate),
        "predict": Verb("summarise each line of standard input or a file", _predict),
        "visualize": Verb("draw what each word of a summary was drawn from", _visualize),
        "export": Verb("write the summariser for use elsewhere", _export),
    },
)
