"""The command line of `keras-attention`. Standard library only: help must not wait for Keras."""

import argparse
from collections.abc import Sequence

TASKS = ("translation",)

DESCRIPTION = "Train and use attention models. Try `keras-attention demo` first."

TRAIN_HELP = """\
examples:
  keras-attention train translation --data.dataset dates --output runs/dates
  keras-attention train translation --config my.yaml --training.epochs 20 --output runs/mine
  keras-attention train translation --data.train_source train.en --data.train_target train.de \\
      --data.dev_source dev.en --data.dev_target dev.de --output runs/en-de

`keras-attention train translation --help` lists every --section.key with its default.
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` says more)\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all verbs."""
    parser = _Parser(prog="keras-attention", description=DESCRIPTION, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for add in (_train, _evaluate, _predict, _visualize, _export, _demo):
        add(verbs)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; what `train` leaves over is the configuration's, as `overrides`."""
    parser = build_parser()
    options, rest = parser.parse_known_args(list(arguments))
    verb = f"{parser.prog} {options.verb}"
    if rest and options.verb != "train":
        parser.exit(2, f"{verb}: unknown argument {rest[0]} (`{verb} --help` lists them)\n")
    if options.verb == "train" and not options.help:
        for name, value in (("TASK", options.task), ("--output RUN", options.output)):
            if value is None:
                parser.exit(2, f"{verb}: {name} is missing (`{verb} --help` says more)\n")
    options.overrides = rest
    return options


def _verb(verbs, name: str, summary: str, **settings) -> argparse.ArgumentParser:
    return verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **settings,
    )


def _on_a_run(verbs, name: str, summary: str, **settings) -> argparse.ArgumentParser:
    parser = _verb(verbs, name, summary, **settings)
    parser.add_argument("run", metavar="RUN", help="the run folder that `train` made")
    return parser


def _train(verbs):
    parser = _verb(verbs, "train", "train a model into a new run folder", add_help=False)
    parser.epilog = TRAIN_HELP
    parser.usage = (
        "keras-attention train TASK [--config F.yaml] [--section.key V ...] --output RUN [--resume]"
    )
    parser.add_argument(
        "task", metavar="TASK", nargs="?", choices=TASKS, help=f"one of: {', '.join(TASKS)}"
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    parser.add_argument("--config", metavar="F.yaml", help="a YAML file with sections and keys")
    parser.add_argument("--output", metavar="RUN", help="the run folder to make")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in --output, exactly as if it had never stopped (a run that was "
        "stopped before its folder was made starts anew)",
    )
    parser.set_defaults(show_train_help=parser.format_help)


def _evaluate(verbs):
    parser = _on_a_run(verbs, "evaluate", "measure a run on its test set, or on files")
    parser.add_argument("--source", metavar="F", help="source sentences, one a line")
    parser.add_argument("--target", metavar="F", help="their translations, one a line")
    parser.add_argument("--tsv", metavar="F", help="instead: source, tab, target on each line")
    parser.add_argument(
        "--split",
        choices=("dev", "test"),
        help="which of the run's own sets (default: test if it has one, else dev)",
    )
    parser.add_argument("--beam", type=_positive, metavar="K", help="beam size (1: greedy)")
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


def _predict(verbs):
    parser = _on_a_run(verbs, "predict", "predict for each line of standard input or a file")
    parser.add_argument("--input", metavar="F", help="file to read; standard input if not given")
    parser.add_argument("--output", metavar="F", help="new file; standard output if not given")
    parser.add_argument("--beam", type=_positive, metavar="K", help="beam size (1: greedy)")
    parser.add_argument(
        "--n-best",
        type=_positive,
        metavar="N",
        help="write N results for each line, as `number ||| text ||| score`, the number of the "
        "line counted from 0",
    )
    parser.add_argument(
        "--alignments",
        action="store_true",
        help="add ` ||| 0-0 2-1 ...`, for each word written the source word it attended to most: "
        "source-target, counted from 0 (Pharaoh form)",
    )
    parser.add_argument("--sample", action="store_true", help="draw at random instead of searching")
    sampling = parser.add_argument_group("with --sample")
    sampling.add_argument("--temperature", type=float, metavar="X", help="default: 1")
    sampling.add_argument("--top-k", type=_positive, metavar="K", help="draw from the K likeliest")
    sampling.add_argument(
        "--top-p", type=float, metavar="P", help="draw from the likeliest that make up P"
    )
    sampling.add_argument("--seed", type=int, metavar="N", help="default: 0")


def _visualize(verbs):
    parser = _on_a_run(verbs, "visualize", "draw the alignment of a sentence and its translation")
    parser.add_argument("--input", metavar="TEXT", required=True, help="the sentence")
    parser.add_argument(
        "--target", metavar="TEXT", help="align this translation instead of the model's own"
    )
    parser.add_argument("--output", metavar="F.png", required=True, help="new .png, .svg or .pdf")


def _export(verbs):
    parser = _on_a_run(verbs, "export", "write the model for use elsewhere")
    parser.add_argument(
        "--format",
        choices=("saved_model", "keras"),
        default="saved_model",
        help="saved_model: strings in, strings out, for tensorflow and tensorflow_text alone; "
        "keras: model.keras, ids in, logits out, and the tokenizers (default: saved_model)",
    )
    parser.add_argument("--output", metavar="D", required=True, help="new folder")


def _demo(verbs):
    parser = _verb(
        verbs,
        "demo",
        "train a translator of written dates, show it, export it and read it back",
        epilog="exit status 1 where it translates fewer unseen dates exactly than it should",
    )
    parser.add_argument(
        "--output",
        metavar="D",
        help="new folder for all of it (default: runs/demo, or the next free runs/demo-N)",
    )


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:  # argparse would name this function in its message
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1. Received: {text}")
    return value
