"""Documents and their summaries, from the `data` section of a configuration."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.text_files import read_lines
from keras_attention.applications.summarization import reports
from keras_attention.applications.summarization.config import SPLITS, DataConfig


@dataclasses.dataclass(frozen=True)
class Document:
    """A document and its summaries.

    Args:
        sentences: its sentences, as text.
        summaries: one or several; none where there is only something to summarise.
        line: its line in the file, from 1.
    """

    sentences: list[str]
    summaries: list[str]
    line: int = 1


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents of one place.

    Args:
        name: where they come from, for messages.
        documents: the documents.
        empty: how many were left out because they, or their summaries, have no words.
    """

    name: str
    documents: list[Document]
    empty: int = 0

    def __len__(self) -> int:
        return len(self.documents)


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    return bool(data.dataset or getattr(data, f"{split}_file"))


def load_corpus(data: DataConfig, split: str) -> Corpus:
    """Return the documents of a split.

    A file that the configuration names for the split goes before that of a known data set.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its file is missing or not in its form.
    """
    if split not in SPLITS:
        raise UserError(f"`split` must be one of {list(SPLITS)}. Received: {split!r}")
    path = getattr(data, f"{split}_file")
    if path:
        return read_corpus(path, data.on_empty)
    if data.dataset == "scitldr":
        return read_corpus(Path(data.folder) / f"{split}.jsonl.gz", data.on_empty)
    if data.dataset == "reports":
        examples = enumerate(reports.generate(split), 1)
        documents = [Document(each.sentences, [each.summary], line) for line, each in examples]
        return Corpus(f"reports ({split})", documents)
    raise UserError(f"There is no {split} data: give data.{split}_file.")


def read_corpus(path: Path | str, on_empty: str = "error", with_summaries: bool = True) -> Corpus:
    """Return the documents of a file of JSON lines.

    Args:
        path: the file, plain or `.gz`.
        on_empty: `"error"` or `"skip"`: what to do without a word in a document or its summaries.
        with_summaries: whether each line must have a `target`.

    Raises:
        UserError: naming the line, where it is no object of the right form.
    """
    kept, empty = [], 0
    for number, line in enumerate(read_lines(path), 1):
        document = _document(line, f"{path}, line {number}", number, with_summaries)
        if document.sentences and (document.summaries or not with_summaries):
            kept.append(document)
        elif on_empty == "error":
            what = "source" if not document.sentences else "target"
            raise UserError(
                f"{path}, line {number}: the {what} has no words; correct the file, or set "
                "data.on_empty to skip."
            )
        else:
            empty += 1
    if not kept:
        raise UserError(f"{path}: no document has any words.")
    return Corpus(str(path), kept, empty)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, by the rules of NLTK's Punkt; line ends end one too."""
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    splitter = PunktSentenceTokenizer()
    return [
        sentence.strip()
        for line in text.splitlines()
        for sentence in splitter.tokenize(line)
        if sentence.strip()
    ]


def _document(line: str, where: str, number: int, with_summaries: bool) -> Document:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg}, column {error.colno}).") from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object. Received: {type(row).__name__}.")
    names = ("source", "target") if with_summaries else ("source",)
    for name in names:
        value = row.get(name)
        is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not is_list and not isinstance(value, str):
            received = "nothing" if name not in row else json.dumps(value)[:40]
            raise UserError(
                f"{where}: `{name}` must be a text or a list of texts. Received: {received}."
            )
    source, target = row["source"], row["target"] if with_summaries else []
    sentences = split_sentences(source) if isinstance(source, str) else source
    summaries = [target] if isinstance(target, str) else target
    return Document(_with_words(sentences), _with_words(summaries), number)


def _with_words(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if text.strip()]
