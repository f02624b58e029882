"""The tasks that the command knows, and the options of their verbs. Standard library only."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .light import light

did_you_mean = light("errors").did_you_mean

ALIASES = {"beam_size": "--beam"}
"""Other names of search options that users type."""


@dataclass(frozen=True)
class TaskCommand:
    """A task as the command line knows it: by its name there and in a run folder.

    Its application is a module of the same name, `task_class` the name of its class there, and
    `classes` are those whose presets it reads. `examples` are command lines of `train`; the `verbs`
    on a run each have a line of help, and `options`.
    """

    name: str
    task_class: str
    examples: str
    verbs: Mapping[str, str]
    options: Mapping[str, Sequence["Option"]]
    classes: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The application's module, which imports Keras."""
        return f"keras_attention.applications.{self.name.replace('-', '_')}"

    @property
    def config(self) -> type:
        """The class of the task's configuration, read without Keras."""
        name = "".join(word.capitalize() for word in self.name.split("-"))
        module = light(f"{self.name.replace('-', '_')}.config")
        return getattr(module, f"{name}Config")


class Option:
    """An option of a verb: its flags, its help, and what else argparse's `add_argument` takes.

    A value that is none of its `choices` is answered with the closest of them.
    """

    def __init__(self, flags: str, help: str, group: str | None = None, **settings: Any):
        self.flags, self.group = flags.split(), group
        if "choices" in settings:
            settings["type"] = one_of(settings["choices"])
        self.settings = {"help": help, **settings}


def file(flag: str, help: str, metavar: str = "F", **settings: Any) -> Option:
    return Option(flag, help, metavar=metavar, type=path, **settings)


def text(flag: str, help: str, required: bool = True, **settings: Any) -> Option:
    return Option(flag, help, metavar="TEXT", required=required, **settings)


def switch(flag: str, help: str) -> Option:
    """Return an option without a value, which `--no-...` takes back."""
    return Option(flag, help, action=argparse.BooleanOptionalAction, default=None)


def one_of(choices: Sequence[Any]) -> Callable[[str], Any]:
    """Return an option's `type` that takes one of some texts or numbers."""
    known = {str(choice): choice for choice in choices}

    def choice(text: str) -> Any:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"invalid choice: {text!r}.{did_you_mean(text, known)} "
                f"Expected one of: {', '.join(known)}"
            )
        return known[text]

    return choice


def add_options(parser: argparse.ArgumentParser, options: Sequence[Option]) -> None:
    groups: dict[str | None, Any] = {None: parser}
    for each in options:
        if each.group not in groups:
            groups[each.group] = parser.add_argument_group(each.group)
        groups[each.group].add_argument(*each.flags, **each.settings)


def path(text: str) -> str:
    """Return a path or the name of a preset, as an option's `type`.

    An empty one, as a variable of the shell that is not set leaves it, would stand for this folder
    or for no option at all.
    """
    if not text:
        raise argparse.ArgumentTypeError("expected a path or a name. Received: an empty text")
    return text


def natural(text: str, first: int = 0) -> int:
    """Return a whole number from 0, as an option's `type`."""
    if not (text.isascii() and text.isdigit() and int(text) >= first):
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {first}. Received: {text or 'an empty text'}"
        )
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1, as an option's `type`."""
    return natural(text, 1)


def number(text: str) -> float:
    """Return a number, as an option's `type`."""
    try:
        return float(text)
    except ValueError:  # argparse would name this function in its message
        raise argparse.ArgumentTypeError(
            f"expected a number. Received: {text or 'an empty text'}"
        ) from None


def or_null(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return an option's `type` that takes `null`, too, which the verb reads as None."""

    def value(text: str) -> Any:
        try:
            return text if text == "null" else kind(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(str(error).replace(".", ", or null.", 1)) from None

    return value


NEEDS = {
    **dict.fromkeys(("temperature", "top_k", "top_p", "seed"), "with --sample; "),
    **dict.fromkeys(("beam_size", "length_penalty", "coverage_penalty"), "without --sample; "),
}
"""What else the options of a search go with."""


def search_options() -> dict[str, Option]:
    """Return the options of a search, by the names of the keys of `decoding`."""
    kinds = {
        "bool": {"action": argparse.BooleanOptionalAction},
        "int": {"type": natural, "metavar": "N"},
        "float": {"type": number, "metavar": "X"},
    }
    section = light("schema.search").SearchConfig
    meanings = light("schema.keys").keys_of(section)
    options_of = light("schema.help").options_of
    options = {}
    for field in fields(section):
        kind, *others = options_of(field.type)
        settings = dict(kinds[kind.__name__])
        if others:
            settings["type"] = or_null(settings["type"])
        flags = f"--{field.name.replace('_', '-')} {ALIASES.get(field.name, '')}"
        meaning = meanings[field.name].meaning.replace("%", "%%")
        meaning += f" ({NEEDS.get(field.name, '')}default: the run's own)"
        settings |= {"dest": field.name, "default": None}
        options[field.name] = Option(flags, meaning, "search", **settings)
    return options


SEARCH = search_options()


def on_too_long(default: str, limit: str, skip: str) -> Option:
    """Return the option that says what to do with long texts; `skip` says what skipping does."""
    return Option(
        "--on-too-long",
        f"what to do with a text of more than {limit}: error ends there, and keeps what is done; "
        f"truncate reads its beginning; skip {skip} (default: {default})",
        choices=("error", "truncate", "skip"),
    )


EMPTY_LINE, LEFT_OUT = "writes an empty line in its place", "leaves it out, and counts it"
NULL_SUMMARY = f"{EMPTY_LINE}, with --json an object whose summary is null"
NULL_LABEL = "writes an object whose labels are null in its place"
JSON = switch("--json", "write JSON in place of a table")
OUTPUT = file("--output", "new file; standard output if not given")
PICTURE = file(
    "--output",
    "new .html, a page to click with all the attention there is, that needs no server; or .png, "
    ".svg, .pdf or other picture that matplotlib writes (default: the terminal)",
    metavar="F.html",
)
FOLDER = file("--output", "new folder", metavar="D", required=True)
COUNT = {"type": positive, "metavar": "N"}


def split(*names: str) -> Option:
    words = "which of the run's own sets (default: test if it has one, else dev)"
    return Option("--split", words, choices=names)


# ---- Translation.

PAIRS = [
    file("--source", "source sentences, one a line"),
    file("--target", "their translations, one a line"),
    file("--input", "instead: source, tab, target on each line"),
]
REFERENCES = file(
    "--target",
    "their translations, one a line; may be given several times, for several references of each "
    "sentence",
    action="append",
)
TOKENIZE = Option(
    "--tokenize",
    "BLEU's tokenizer, by sacrebleu's name (default: that of data.target_language: zh for Chinese, "
    "ja-mecab and ko-mecab for Japanese and Korean where they are installed, char for these "
    "elsewhere and for Thai and others without spaces, else 13a)",
    choices=("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores101", "flores200")
    + ("spBLEU-1K", "spm", "none"),
)
GOLD = [
    file(
        "--gold",
        "gold word alignments of the same sentences (sure i-j, possible ipj), for the alignment "
        "error rate of the attention over the given translations",
    ),
    Option(
        "--gold-start",
        "with --gold: the number of its first word (default: 1)",
        choices=(0, 1),
        default=1,
    ),
]
OF_A_TRANSFORMER = {"group": "with architecture transformer", "type": natural, "metavar": "N"}
ATTENTION = [
    Option(
        "--attention-layer",
        "the decoder layer, from 0, whose attention to show (default: the configuration's)",
        **OF_A_TRANSFORMER,
    ),
    Option(
        "--attention-head",
        "its head, from 0 (default: with --attention-layer the mean of all, else the "
        "configuration's)",
        **OF_A_TRANSFORMER,
    ),
]


def head(text: str) -> int | str:
    """Return the number of a head, or `"all"`, as an option's `type`."""
    return text if text == "all" else natural(text)


def drawn_attention(group: str, example: str, layer: str) -> list[Option]:
    """Return the options that choose a map to draw; `layer` says which is drawn by default."""
    common = {"group": group, "metavar": "N"}
    return [
        Option(
            "--attention",
            f"the map to draw, by its name on the page of `serve`: {example}",
            group=group,
            metavar="NAME",
            type=path,
        ),
        Option("--attention-layer", f"its layer, from 0 ({layer})", type=natural, **common),
        Option(
            "--attention-head",
            "its head, from 0, or `all` for a sheet with every head (default: the mean of all)",
            type=head,
            **common,
        ),
    ]


ENGINE = [
    Option(
        "--engine",
        "search by this engine in place of our own: numpy, fast for a sentence at a time "
        "with --beam-size 1 (architecture transformer), litert, or ctranslate2, where it is "
        "installed (architecture transformer); the run folder keeps what the last two convert",
        choices=("ctranslate2", "litert", "numpy"),
    ),
    Option(
        "--compute-type",
        "with --engine: of its weights and products, as far as the processor has it; litert has "
        "float32 and int8 (default: float32)",
        choices=("float32", "bfloat16", "int16", "int8", "int8_bfloat16"),
    ),
]
SHORTLIST = [
    file(
        "--shortlist",
        "score only words of this vocabulary shortlist, which the verb `shortlist` writes: faster, "
        "and no other word can be written",
    ),
    switch(
        "--own-shortlist",
        "the same with the shortlist that came with the model, as Firefox' have one",
    ),
    Option(
        "--shortlist-size",
        "with --shortlist: how many of its words a batch of sentences gets (default: 2048)",
        type=positive,
        metavar="N",
    ),
]
CANDIDATES = Option(
    "--candidates",
    "how many target words to keep of a source word (default: 50)",
    type=positive,
    metavar="N",
)
LINES = file("--input", "file to read; standard input if not given")
PREFIX = text(
    "--prefix",
    "what each output begins with, the same for all lines (default: nothing)",
    required=False,
)
JSON_RESULTS = switch(
    "--json",
    "write JSON lines: the number of the line, text, score, tokens and their log-probabilities",
)
ALIGNMENTS = switch(
    "--alignments",
    "add ` ||| 0-0 2-1 ...`, for each word written the source word it attended to most: "
    "source-target, counted from 0 (Pharaoh form)",
)
DOCUMENTS = switch(
    "--documents",
    "read the input as a document: lines are paragraphs, cut into sentences; line ends, empty "
    "lines and indentation stay. With --json, an object for each sentence",
)
TRANSLATED = drawn_attention(
    "with architecture transformer",
    "'encoder self-attention', 'decoder self-attention' or 'cross-attention'",
    "default: the configuration's",
)
TARGET = text("--target", "align this translation instead of the model's own", required=False)
LONG_PAIRS = on_too_long("the run's data.on_too_long, else error", "10,000 tokens", LEFT_OUT)
MORE = Option(
    "more",
    "more runs of the same vocabularies: the mean of all probabilities writes (an ensemble)",
    nargs="*",
    default=[],  # without one argparse calls it required where RUN is missing
    metavar="RUN",
)
FORMAT = Option(
    "--format",
    "saved_model: strings in, strings out, for tensorflow and tensorflow_text alone; "
    "keras: the whole task as model.keras, which Keras reads once "
    "keras_attention.applications.translation is imported; ctranslate2: for that engine "
    "(architecture transformer), and the tokenizers; litert: search.tflite, ids in, ids out, for a "
    "sentence of 64 tokens, and the tokenizers; web: index.html, a page that runs the model in the "
    "browser with nothing installed (default: saved_model)",
    choices=("saved_model", "keras", "ctranslate2", "litert", "web"),
    default="saved_model",
)
TRANSLATION = TaskCommand(
    "translation",
    "Translator",
    examples="""\
  keras-attention train translation --data.dataset dates --output runs/dates
  keras-attention train translation --config my.yaml --training.epochs 20 --output runs/mine
  keras-attention train translation --data.train_source train.en --data.train_target train.de \\
      --data.dev_source dev.en --data.dev_target dev.de --output runs/en-de
""",
    verbs={
        "evaluate": "measure translations of a test set, or of files",
        "predict": "translate each line of standard input or a file",
        "score": "write the log-probability of given translations",
        "shortlist": "learn which target words go with which source words, for `predict`",
        "visualize": "draw the alignment of a sentence and its translation",
        "export": "write the translator for use elsewhere",
    },
    options={
        "evaluate": [
            *(MORE, PAIRS[0], REFERENCES, PAIRS[2], split("dev", "test"), TOKENIZE, *GOLD, JSON),
            *(LONG_PAIRS, *ENGINE, *SHORTLIST, *SEARCH.values(), *ATTENTION),
        ],
        "predict": [
            *(MORE, LINES, OUTPUT, DOCUMENTS, ALIGNMENTS, PREFIX, JSON_RESULTS),
            on_too_long("error", "10,000 tokens", EMPTY_LINE),
            *(*ENGINE, *SHORTLIST, *SEARCH.values(), *ATTENTION),
        ],
        "score": [
            *(MORE, *PAIRS, OUTPUT),
            on_too_long("the run's data.on_too_long, else error", "10,000 tokens", EMPTY_LINE),
        ],
        "shortlist": [*PAIRS, CANDIDATES, file("--output", "new file (text)", required=True)],
        "visualize": [text("--input", "the sentence"), TARGET, PICTURE, *TRANSLATED],
        "export": [FORMAT, FOLDER],
    },
)

# ---- Summarisation.

OF_A_SUMMARY = ("beam_size", "min_length", "max_length", "no_repeat_ngram", "length_penalty")
OF_A_SUMMARY += ("sample", "temperature", "top_k", "top_p", "seed", "streams")
SUMMARY_SEARCH = [SEARCH[name] for name in OF_A_SUMMARY]
WITH_SUMMARIES = file("--input", "JSON lines with source and target")
DOCUMENTS = file("--input", "a document a line; standard input if not given")
LEAD = Option("--lead", "compare with the first N sentences (default: 1)", default=1, **COUNT)
JSON_LINES = switch(
    "--json",
    "with --input: read JSON lines with source (a text or a list of sentences), write JSON lines",
)
SUMMARIZATION = TaskCommand(
    "summarization",
    "Summarizer",
    examples="""\
  keras-attention train summarization --data.dataset reports --output runs/reports
  keras-attention train summarization --data.train train.jsonl --data.dev dev.jsonl \\
      --model.architecture paulus2017 --output runs/mine
""",
    verbs={
        "evaluate": "measure summaries of a test set, or of a file",
        "predict": "summarise each line of standard input or a file",
        "visualize": "draw what each word of a summary was drawn from",
        "export": "write the summariser for use elsewhere",
    },
    options={
        "evaluate": [
            *(WITH_SUMMARIES, split("dev", "test"), LEAD, *SUMMARY_SEARCH, JSON),
            on_too_long("truncate", "data.max_words or data.max_sentences", LEFT_OUT),
        ],
        "predict": [
            *(DOCUMENTS, OUTPUT, JSON_LINES, PREFIX, *SUMMARY_SEARCH),
            on_too_long("truncate", "data.max_words or data.max_sentences", NULL_SUMMARY),
        ],
        "visualize": [text("--input", "the document"), PICTURE],
        "export": [FOLDER],
    },
)

# ---- Answer selection.

QUESTION = text("--question", "the question")
QUESTIONS = file(
    "--input", "instead: WikiQA's TSV, TREC-QA's CSV, or question, tab, candidate, tab, label"
)
RANKING = file("--trec-run", "new file for the ranking, in trec_eval's form")
FILE_OF_CANDIDATES = file(
    "--candidates", "file of candidates, one a line; standard input if not given"
)
LONG_ANSWERS = on_too_long("truncate", "data.max_length words", LEFT_OUT)
TOP = Option("--top", "write the best N only", **COUNT)
ANSWERS = text("--answer", "an answer; may be given several times", action="append")
ANSWER_SELECTION = TaskCommand(
    "answer-selection",
    "AnswerRanker",
    examples="""\
  keras-attention train answer-selection --data.dataset facts --output runs/facts
  keras-attention train answer-selection --data.train train.tsv --data.dev dev.tsv \\
      --model.encoder inner-context --model.occam true --output runs/answers
""",
    verbs={
        "evaluate": "measure the ranking of candidates of a set, or of a file",
        "predict": "rank the candidates of a question",
        "visualize": "shade the words of answers by their attention",
        "export": "write a SavedModel: questions and candidates in, scores out",
    },
    options={
        "evaluate": [split("dev", "test"), QUESTIONS, RANKING, JSON, LONG_ANSWERS],
        "predict": [QUESTION, FILE_OF_CANDIDATES, OUTPUT, TOP, LONG_ANSWERS],
        "visualize": [QUESTION, ANSWERS, PICTURE],
        "export": [FOLDER],
    },
)

# ---- Classification.

LABELLED = file("--input", "a table with the run's columns")
TEXTS = file(
    "--input",
    "a table with the run's text columns (.csv, .tsv, .jsonl), or a text a line (pairs: two with a "
    "tab between); standard input if not given",
)
SKIP = switch(
    "--skip", "leave out, and count, texts that are empty, too long or of an unknown label"
)
THRESHOLD = Option(
    "--threshold",
    "of many labels, the probability from which a text has a label (default: the run's own)",
    type=number,
    metavar="X",
)
CONFUSION = file("--picture", "draw the confusion matrix: a new file", metavar="F.png")
WORDS = drawn_attention(
    "with architecture self-attention or transformer",
    "'self-attention' (default) or 'text'",
    "default: the last",
)
SECOND = text("--second", "the second text of a pair", required=False)
CLASSIFICATION = TaskCommand(
    "classification",
    "ClassificationTask",
    classes=("TextClassifier", "PairClassifier"),
    examples="""\
  keras-attention train classification --data.dataset opinions --output runs/opinions
  keras-attention train classification --data.train reviews.csv --data.text_column review \\
      --data.label_column rating --output runs/reviews
""",
    verbs={
        "evaluate": "measure labels on a test set, or on a file",
        "predict": "label each text of standard input or a file, as JSON lines",
        "visualize": "shade the words of a text by what is attended to",
        "export": "write the classifier for use elsewhere, as a SavedModel",
    },
    options={
        "evaluate": [
            *(LABELLED, split("train", "dev", "test"), SKIP, THRESHOLD, CONFUSION, JSON),
            on_too_long("the run's data.on_too_long, else error", "data.max_length", LEFT_OUT),
        ],
        "predict": [
            *(TEXTS, OUTPUT, THRESHOLD),
            on_too_long("truncate", "data.max_length tokens", NULL_LABEL),
        ],
        "visualize": [text("--input", "the text"), SECOND, PICTURE, *WORDS],
        "export": [FOLDER],
    },
)

# ---- Tagging.

TAGGED = file("--input", "sentences and tags, in the form of the run's training data")
TO_TAG = file("--input", "a text a line; standard input if not given")
COLUMNS = switch(
    "--columns",
    "read --input as the training data, its words given, and write a word and its tag a line",
)
TAG_WORDS = drawn_attention(
    "with architecture self-attention or transformer",
    "'self-attention' (default) or 'tags'",
    "default: the last",
)
TAGGING = TaskCommand(
    "tagging",
    "TokenClassifier",
    examples="""\
  keras-attention train tagging --data.train train.conll --data.dev dev.conll --output runs/names
""",
    verbs={
        "evaluate": "measure spans and tags on a test set, or on a file",
        "predict": "tag each line of standard input or a file, as JSON lines",
        "visualize": "show the tags of a text, and the next best ones",
        "export": "write the tagger for use elsewhere, as a SavedModel",
    },
    options={
        "evaluate": [TAGGED, split("train", "dev", "test"), JSON],
        "predict": [TO_TAG, OUTPUT, COLUMNS],
        "visualize": [text("--input", "the text"), PICTURE, *TAG_WORDS],
        "export": [FOLDER],
    },
)

OF_ALL = (TRANSLATION, ANSWER_SELECTION, CLASSIFICATION, SUMMARIZATION, TAGGING)
TASKS = {task.name: task for task in OF_ALL}
