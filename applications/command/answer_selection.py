"""The options of answer selection."""

from argparse import ArgumentParser

from .arguments import TaskCommand, Verb, positive

EXAMPLES = """\
  keras-attention train answer-selection --data.dataset facts --output runs/facts
  keras-attention train answer-selection --data.train train.tsv --data.dev dev.tsv \\
      --model.encoder inner-context --model.occam true --output runs/answers
"""


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="which of the run's own sets (default: test if it has one, else dev)",
    )
    parser.add_argument(
        "--file",
        metavar="F",
        help="instead: WikiQA's TSV, TREC-QA's CSV, or question, tab, candidate, tab, label",
    )
    parser.add_argument(
        "--trec-run", metavar="F", help="new file for the ranking, in trec_eval's form"
    )
    parser.add_argument("--json", action="store_true", help="write JSON in place of a table")


def _predict(parser: ArgumentParser) -> None:
    parser.add_argument("--question", metavar="TEXT", required=True, help="the question")
    parser.add_argument(
        "--candidates",
        metavar="F",
        help="file of candidates, one a line; standard input if not given",
    )
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")
    parser.add_argument("--top", type=positive, metavar="N", help="write the best N only")


def _visualize(parser: ArgumentParser) -> None:
    parser.add_argument("--question", metavar="TEXT", required=True, help="the question")
    parser.add_argument(
        "--answer",
        metavar="TEXT",
        required=True,
        action="append",
        help="an answer; may be given several times",
    )
    parser.add_argument("--output", metavar="F", help="new .html, .png, .svg or .pdf")


def _export(parser: ArgumentParser) -> None:
    parser.add_argument("--output", metavar="D", required=True, help="new folder")


ANSWER_SELECTION = TaskCommand(
    name="answer-selection",
    task_class="AnswerRanker",
    examples=EXAMPLES,
    verbs={
        "evaluate": Verb("measure the ranking of candidates of a set, or of a file", _evaluate),
        "predict": Verb("rank the candidates of a question", _predict),
        "visualize": Verb("shade the words of answers by their attention", _visualize),
        "export": Verb("write a SavedModel: questions and candidates in, scores out", _export),
    },
)
