"""Rows with named columns: of CSV, TSV and JSON-lines files, and of the sets known by name."""

import random
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_attention.paths import input_path

from ..errors import UserError, did_you_mean, shown
from ..store.bad_lines import BadLine, Line, checked
from ..store.files import json_object, lines_of, records

SUFFIXES = (".csv", ".tsv", ".jsonl")

TREC = {"train": "TREC.train", "test": "TREC.test"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
# The sets of NLTK: the file of each label, or its folder.
NLTK = {
    "sentence_polarity": {"negative": "rt-polarity.neg", "positive": "rt-polarity.pos"},
    "subjectivity": {"objective": "plot.tok.gt9.5000", "subjective": "quote.tok.gt9.5000"},
    "movie_reviews": {"negative": "neg", "positive": "pos"},
}


class Row(NamedTuple):
    """The values of a row by their columns, and its place, for messages: `F.csv, line 3`."""

    values: dict[str, object]
    place: Line | str


def rows_of(
    path: str | Path, columns: Sequence[str], encoding: str = "utf-8", kind: str | None = None
) -> Iterator[Row]:
    """Return the rows of a table that has at least `columns`, one at a time.

    It is `.csv` or `.tsv` with a header, or `.jsonl` with an object a line; each plain or `.gz`. In
    CSV a value in double quotes may hold commas and line feeds; TSV has no quoting. `kind` is the
    suffix to go by in place of the file's own.
    """
    kind = kind or Path(str(path).removesuffix(".gz")).suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{path}: expected a file named {', '.join(SUFFIXES)}, or the same + .gz.")
    lines = lines_of(path, encoding)
    if kind == ".jsonl":
        return _objects(path, lines, columns)
    return _named(path, records(path, lines, quoted=kind == ".csv"), columns)


def _named(path, rows, columns) -> Iterator[Row]:
    header = [name.strip() for name in next(rows, (1, []))[1]]
    for column in columns:
        check_column(column, header, f"{path}, line 1")
    if len(set(header)) < len(header):
        raise UserError(f"{path}, line 1: two columns have one name. Columns: {', '.join(header)}.")

    def row_of(numbered):
        number, fields = numbered
        place = Line(str(path), number)
        if fields and len(fields) != len(header):
            problem = f"expected {len(header)} columns, as in the header. Received: {len(fields)}"
            raise BadLine(place, problem)
        return Row(dict(zip(header, fields, strict=True)), place) if fields else None

    yield from (row for row in checked(rows, row_of) if row is not None)  # an empty line has none


def _objects(path, lines, columns) -> Iterator[Row]:
    def row_of(numbered):
        number, line = numbered
        place = Line(str(path), number)
        if not line.strip():
            return None
        values = json_object(line, place)
        for column in columns:
            check_column(column, list(values), place)
        return Row(values, place)

    yield from (row for row in checked(enumerate(lines, 1), row_of) if row is not None)


def check_column(column: str, columns: Sequence[str], place: str) -> None:
    if column not in columns:
        raise BadLine(
            place,
            f"there is no column '{column}'.{did_you_mean(column, columns)} "
            f"Columns: {', '.join(columns) or 'none'}",
        )


def splits_of(dataset: str) -> tuple[str, ...]:
    """Return the splits that a known data set comes in; one in a single piece has `train`."""
    known = {"opinions": SIZES, "trec": TREC, "sick": SICK}
    return tuple(known.get(dataset, ("train",)))


def read_known(dataset: str, folder: str | None, split: str) -> list[Row]:
    """Return the rows of a split of a known data set.

    The columns are: of opinions text, sentiment, stars, aspects, claim and verdict; of trec text,
    coarse (6 labels) and fine (50, in 47 of which there are test questions); of sick sentence_A,
    sentence_B, entailment_judgment and relatedness_score; of the others text and label. The
    sentences of a movie review are lines of its text. Files lie in `folder` under their own names;
    those of NLTK as `.zip`, or unpacked.
    """
    if dataset == "opinions":
        rows = enumerate(generate(split), 1)
        return [Row(values, f"opinions ({split}), review {number}") for number, values in rows]
    folder = input_path(folder)
    if dataset == "trec":
        return list(_trec(folder / TREC[split]))
    if dataset == "sick":
        columns = ("sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
        return list(rows_of(folder / SICK[split], columns, kind=".tsv"))
    return list(_of_nltk(_unpacked(folder, dataset), dataset))


def _trec(path: Path) -> Iterator[Row]:
    def row_of(numbered):
        number, line = numbered
        place = Line(str(path), number)
        label, space, text = line.partition(" ")
        coarse, colon, _ = label.partition(":")
        if not (space and colon):
            problem = f"expected COARSE:fine and the question. Received: {shown(line)}"
            raise BadLine(place, problem)
        return Row({"text": text, "coarse": coarse, "fine": label}, place)

    yield from checked(enumerate(lines_of(path, "latin-1"), 1), row_of)


def _unpacked(folder: Path, dataset: str):
    """Return the folder of an NLTK set, as a path on the disk or inside the archive."""
    if (folder / dataset).is_dir():
        return folder / dataset
    archive = folder / f"{dataset}.zip"
    if not archive.is_file():
        raise UserError(f"data.folder {folder} has neither {dataset}.zip nor a folder {dataset}.")
    try:
        return zipfile.Path(archive, f"{dataset}/")
    except zipfile.BadZipFile:
        raise UserError(f"{archive} is no whole zip archive.") from None


def _of_nltk(root, dataset: str) -> Iterator[Row]:
    """Yield sentences, one on each line of the file of a label, or reviews, a file each."""
    for label, name in NLTK[dataset].items():
        path = root / name
        if dataset != "movie_reviews":
            for number, line in enumerate(_text(path).split("\n"), 1):
                if line.strip():
                    yield Row({"text": line.strip(), "label": label}, f"{path}, line {number}")
            continue
        if not path.is_dir():
            raise UserError(f"{root} has no folder {name}.")
        for file in sorted(path.iterdir(), key=lambda each: each.name):
            if file.name.endswith(".txt"):
                yield Row({"text": _text(file).strip(), "label": label}, f"{file}, line 1")


def _text(path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except (OSError, KeyError):
        raise UserError(f"There is no file {path}.") from None


# Short made-up reviews of stays, for tests, demonstrations and first steps: `opinions`. A review
# says something of some aspects, in any order, and one sentence sums up; sentences about nothing
# stand between. The label is in the sentence that sums up, whose words other sentences have too:
# one word alone does not give it away, and "not" turns it round.
ASPECTS = {
    "food": ("food", "breakfast", "dinner"),
    "room": ("room", "bed", "bathroom"),
    "staff": ("staff", "waiter", "host"),
}
STARS = {"terrible": 1, "bad": 2, "good": 4, "excellent": 5}
FILLERS = (
    "we came by train .",
    "it rained on the second day .",
    "the town is small .",
    "my sister had been there before .",
    "we stayed for three nights .",
    "there is a river nearby .",
)
SUMS = ("overall , it was {} .", "all in all , the stay was {} .", "in the end , it was {} .")
SIZES = {"train": 800, "dev": 120, "test": 200}


def generate(split: str) -> list[dict[str, str]]:
    """Return the reviews of a split, the same ones at every call.

    The columns are `text`; `sentiment` (good or bad) and `stars` (1, 2, 4, 5), of the sentence that
    sums up; `aspects`, those spoken of, with `;` between; `claim`, a sentence about one aspect, and
    `verdict`, whether the review says so (yes, no or open).
    """
    draw = random.Random(f"opinions {split} 0")
    return [_review(draw) for _ in range(SIZES[split])]


def _review(draw: random.Random) -> dict[str, str]:
    aspects = draw.sample(sorted(ASPECTS), draw.randint(1, 3))
    said = {aspect: draw.choice(sorted(STARS)) for aspect in aspects}
    sentences = [f"the {draw.choice(ASPECTS[aspect])} was {said[aspect]} ." for aspect in aspects]
    sentences += draw.sample(FILLERS, draw.randint(0, 2))
    word, negated = draw.choice(sorted(STARS)), draw.random() < 0.25
    stars = 6 - STARS[word] if negated else STARS[word]
    sentences.append(draw.choice(SUMS).format(f"not {word}" if negated else word))
    draw.shuffle(sentences)
    topic = draw.choice(sorted(ASPECTS))
    claimed = draw.choice(["good", "bad"])
    if topic not in said:
        verdict = "open"
    else:
        verdict = "yes" if (STARS[said[topic]] > 3) == (claimed == "good") else "no"
    return {
        "text": " ".join(sentences),
        "sentiment": "good" if stars > 3 else "bad",
        "stars": str(stars),
        "aspects": ";".join(sorted(aspects)),
        "claim": f"the {topic} was {claimed} .",
        "verdict": verdict,
    }
