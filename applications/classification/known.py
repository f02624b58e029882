"""Data sets known by name, read from the folder in which the user keeps their files."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from keras_attention.applications.classification.opinions import generate
from keras_attention.applications.classification.tables import Row, read_table
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.text_files import read_lines

TREC = {"train": "TREC.train", "test": "TREC.test"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
# The sets of NLTK that hold one sentence a line: the file of each label.
SENTENCES = {
    "sentence_polarity": {"negative": "rt-polarity.neg", "positive": "rt-polarity.pos"},
    "subjectivity": {"objective": "plot.tok.gt9.5000", "subjective": "quote.tok.gt9.5000"},
}
REVIEWS = {"negative": "neg", "positive": "pos"}


def splits_of(dataset: str) -> tuple[str, ...]:
    """Return the splits that a known data set comes in; one in a single piece has `train`."""
    return {"opinions": ("train", "dev", "test"), "trec": tuple(TREC), "sick": tuple(SICK)}.get(
        dataset, ("train",)
    )


def read_known(dataset: str, folder: str | None, split: str) -> list[Row]:
    """Return the rows of a split of a known data set.

    The columns are: of opinions text, sentiment, stars, aspects, claim and verdict; of trec text,
    coarse (6 labels) and fine (50, in 47 of which there are test questions); of sick sentence_A,
    sentence_B, entailment_judgment and relatedness_score; of the others text and label. The
    sentences of a movie review are lines of its text.

    Args:
        dataset: the name.
        folder: where its files lie, under their own names; those of NLTK as `.zip`, or unpacked.
        split: one of `splits_of(dataset)`.

    Raises:
        UserError: where a file is missing or not in the form of the set.
    """
    if dataset == "opinions":
        rows = enumerate(generate(split), 1)
        return [Row(values, f"opinions ({split}), review {number}") for number, values in rows]
    if dataset == "trec":
        return list(_trec(Path(folder) / TREC[split]))
    if dataset == "sick":
        return _sick(Path(folder) / SICK[split])
    root = _unpacked(Path(folder), dataset)
    return list(_sentences(root, dataset) if dataset in SENTENCES else _reviews(root))


def _trec(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, "latin-1"), 1):
        label, space, text = line.partition(" ")
        coarse, colon, _ = label.partition(":")
        if not (space and colon):
            raise UserError(f"{path}, line {number}: expected COARSE:fine and the question.")
        values = {"text": text, "coarse": coarse, "fine": label}
        yield Row(values, f"{path}, line {number}")


def _sick(path: Path) -> list[Row]:
    columns = ("sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
    return read_table(path, columns, kind=".tsv")


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


def _sentences(root, dataset: str) -> Iterator[Row]:
    for label, name in SENTENCES[dataset].items():
        for number, line in enumerate(_text(root / name).split("\n"), 1):
            if line.strip():
                yield Row({"text": line.strip(), "label": label}, f"{root / name}, line {number}")


def _reviews(root) -> Iterator[Row]:
    for label, name in REVIEWS.items():
        if not (root / name).is_dir():
            raise UserError(f"{root} has no folder {name}.")
        for path in sorted((root / name).iterdir(), key=lambda each: each.name):
            if path.name.endswith(".txt"):
                yield Row({"text": _text(path).strip(), "label": label}, f"{path}, line 1")


def _text(path) -> str:
    try:
        return path.read_bytes().decode("latin-1")
    except (OSError, KeyError):
        raise UserError(f"There is no file {path}.") from None
