"""The options of translation."""

from argparse import ArgumentParser

from .arguments import TaskCommand, Verb, add_search, natural

EXAMPLES = """\
  keras-attention train translation --data.dataset dates --output runs/dates
  keras-attention train translation --config my.yaml --training.epochs 20 --output runs/mine
  keras-attention train translation --data.train_source train.en --data.train_target train.de \\
      --data.dev_source dev.en --data.dev_target dev.de --output runs/en-de
"""


def _attention(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("with architecture transformer")
    group.add_argument(
        "--attention-layer",
        type=natural,
        metavar="N",
        help="the decoder layer, from 0, whose attention to show (default: the configuration's)",
    )
    group.add_argument(
        "--attention-head",
        type=natural,
        metavar="N",
        help="its head, from 0 (default: with --attention-layer the mean of all, else the "
        "configuration's)",
    )


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument("--source", metavar="F", help="source sentences, one a line")
    parser.add_argument("--target", metavar="F", help="their translations, one a line")
    parser.add_argument("--tsv", metavar="F", help="instead: source, tab, target on each line")
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="which of the run's own sets (default: test if it has one, else dev)",
    )
    parser.add_argument(
        "--gold",
        metavar="F",
        help="gold word alignments of the same sentences (sure i-j, possible ipj), for the "
        "alignment error rate of the attention over the given translations",
    )
    parser.add_argument(
        "--gold-start",
        type=int,
        choices=(0, 1),
        default=1,
        help="the number of the first word in --gold (default: 1)",
    )
    parser.add_argument("--json", action="store_true", help="write JSON in place of a table")
    add_search(parser)
    _attention(parser)


def _predict(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="F", help="file to read; standard input if not given")
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")
    parser.add_argument(
        "--alignments",
        action="store_true",
        help="add ` ||| 0-0 2-1 ...`, for each word written the source word it attended to most: "
        "source-target, counted from 0 (Pharaoh form)",
    )
    add_search(parser)
    _attention(parser)


def _score(parser: ArgumentParser) -> None:
    parser.add_argument("--source", metavar="F", help="source sentences, one a line")
    parser.add_argument("--target", metavar="F", help="their translations, one a line")
    parser.add_argument("--tsv", metavar="F", help="instead: source, tab, target on each line")
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")


def _visualize(parser: ArgumentParser) -> None:
    parser.add_argument("--input", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument(
        "--target", metavar="TEXT", help="align this translation instead of the model's own"
    )
    parser.add_argument(
        "--output", metavar="F.png", help="new .png, .svg or .pdf; the terminal if not given"
    )
    _attention(parser)


def _export(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("saved_model", "keras", "ctranslate2"),
        default="saved_model",
        help="saved_model: strings in, strings out, for tensorflow and tensorflow_text alone; "
        "keras: model.keras, ids in, logits out, and the tokenizers; ctranslate2: for that engine "
        "(architecture transformer), and the tokenizers (default: saved_model)",
    )
    parser.add_argument("--output", metavar="D", required=True, help="new folder")


TRANSLATION = TaskCommand(
    name="translation",
    task_class="Translator",
    examples=EXAMPLES,
    verbs={
        "evaluate": Verb("measure translations of a test set, or of files", _evaluate),
        "predict": Verb("translate each line of standard input or a file", _predict),
        "score": Verb("write the log-probability of given translations", _score),
        "visualize": Verb("draw the alignment of a sentence and its translation", _visualize),
        "export": Verb("write the translator for use elsewhere", _export),
    },
)
