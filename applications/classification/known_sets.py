"""The sets known by name, as rows with named columns."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from keras_attention.paths import input_path

from ..data.made import opinions
from ..data.readers import Row, rows_of
from ..errors import UserError, shown
from ..store.bad_lines import BadLine, Line, checked
from ..store.files import lines_of
from .config import SICK, TREC

# The sets of NLTK: the file of each label, or its folder.
NLTK = {
    "sentence_polarity": {"negative": "rt-polarity.neg", "positive": "rt-polarity.pos"},
    "subjectivity": {"objective": "plot.tok.gt9.5000", "subjective": "quote.tok.gt9.5000"},
    "movie_reviews": {"negative": "neg", "positive": "pos"},
}


def read_known(dataset: str, folder: str | None, split: str) -> list[Row]:
    """Return the rows of a split of a known data set.

    The columns are: of opinions text, sentiment, stars, aspects, claim and verdict; of trec text,
    coarse (6 labels) and fine (50, in 47 of which there are test questions); of sick sentence_A,
    sentence_B, entailment_judgment and relatedness_score; of the others text and label. The
    sentences of a movie review are lines of its text. Files lie in `folder` under their own names;
    those of NLTK as `.zip`, or unpacked.
    """
    if dataset == "opinions":
        rows = enumerate(opinions.generate(split), 1)
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
