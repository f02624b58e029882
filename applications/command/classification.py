"""The options of classification."""

from argparse import ArgumentParser

from .arguments import TaskCommand, Verb

EXAMPLES = """\
  keras-attention train classification --data.dataset opinions --output runs/opinions
  keras-attention train classification --data.train_file reviews.csv --data.text_column review \\
      --data.label_column rating --output runs/reviews
"""


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="F", help="a table with the run's columns")
    parser.add_argument(
        "--split",
        choices=("train", "dev", "test"),
        help="which of the run's own sets (default: test if it has one, else dev)",
    )
    parser.add_argument(
        "--skip",
        action="store_true",
        help="leave out, and count, texts that are empty, too long or of an unknown label",
    )
    parser.add_argument("--picture", metavar="F.png", help="draw the confusion matrix: a new file")
    parser.add_argument("--json", action="store_true", help="write JSON in place of a table")


def _predict(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        metavar="F",
        help="a table with the run's text columns (.csv, .tsv, .jsonl), or a text a line (pairs: "
        "two with a tab between); standard input if not given",
    )
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")


def _visualize(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="TEXT", required=True, help="the text")
    parser.add_argument("--second", metavar="TEXT", help="the second text of a pair")
    parser.add_argument("--output", metavar="F", help="new .png, .svg, .pdf or .html")


def _export(parser: ArgumentParser) -> None:
    parser.add_argument("--output", metavar="D", required=True, help="new folder")


CLASSIFICATION = TaskCommand(
    name="classification",
    task_class="ClassificationTask",
    classes=("TextClassifier", "PairClassifier"),
    examples=EXAMPLES,
    verbs={
        "evaluate": Verb("measure labels on a test set, or on a file", _evaluate),
        "predict": Verb("label each text of standard input or a file, as JSON lines", _predict),
        "visualize": Verb("shade the words of a text by what is attended to", _visualize),
        "export": Verb("write the classifier for use elsewhere, as a SavedModel", _export),
    },
)
