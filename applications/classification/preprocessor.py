"""From texts and labels to ids and targets, in Python and inside a TensorFlow graph."""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import keras
import numpy as np

from ..arguments import is_finite
from ..base.backbones import BackbonePreprocessor
from ..base.preprocessor import as_texts, check_equally_many, is_tensor
from ..data.lines import in_chunks
from ..errors import UserError, check_choice, check_range, shown
from ..text import END_ID, UNK_ID, PackedIds, Tokenizer, nfc
from ..text.packed import in_sentences, join_sentences
from ..text.sentences import SENTENCE_END
from .config import ClassificationConfig, TokenizerConfig
from .networks.encoders import SIDES
from .networks.layers import PACKAGE

KINDS = ("one", "many", "number")
"""Kinds of labels: one of a text, any number of them, or a number."""
TEXTS_AT_ONCE = 4096
"""Of so many texts the ids are lists at a time."""


@dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Args:
        kind: `"one"` label a text, `"many"` or a `"number"`.
        names: the labels, strings or whole numbers, in the order of the network's outputs; none for
            a number.
        mean: of the training texts' numbers.
        scale: their standard deviation; the network's output is in these units.

    Example:

    ```python
    from keras_attention.applications.classification import Labels

    labels = Labels.of(["yes", "no", "yes"], "one")
    print(labels.names, labels.targets(["yes"]))  # ('no', 'yes') [[0. 1.]]
    ```
    """

    kind: str
    names: tuple[str | int, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    def __post_init__(self):
        check_choice("kind", self.kind, KINDS)
        names = tuple(nfc(name) if isinstance(name, str) else name for name in self.names)
        object.__setattr__(self, "names", names)
        # As a graph and JSON write them, 1 and "1" are the same.
        is_once = len(set(map(str, names))) == len(names)
        if not (is_once and all(isinstance(name, (str, int, np.integer)) for name in names)):
            raise ValueError(
                f"`names` should be strings or whole numbers, each once. Received: {shown(names)}"
            )
        if bool(names) == (self.kind == "number"):
            raise ValueError(
                "`names` should be the labels, and none for numbers. "
                f"Received: kind={self.kind!r}, names={shown(names)}"
            )
        if not (is_finite(self.mean) and is_finite(self.scale) and self.scale > 0):
            raise ValueError(
                "`mean` and `scale` should be finite, and `scale` above 0. "
                f"Received: mean={shown(self.mean)}, scale={shown(self.scale)}"
            )

    @classmethod
    def of(cls, values: Sequence[Any], kind: str, name: str = "the training data") -> "Labels":
        """Return the labels of training texts, which `name` says the origin of in messages."""
        if kind == "number":
            numbers = np.array(values)
            if np.ptp(numbers) == 0:
                raise UserError(f"{name}: all texts have the number {numbers[0]:g}.")
            return cls(kind, mean=float(numbers.mean()), scale=float(numbers.std()))
        names = {label for value in values for label in ([value] if kind == "one" else value)}
        names = tuple(sorted(names, key=_order))
        if kind == "one" and len(names) < 2:
            found = ", ".join(map(str, names))
            raise UserError(f"{name}: expected at least two labels. Received: {found}.")
        if not names:
            raise UserError(f"{name}: no text has a label.")
        return cls(kind, names)

    @property
    def outputs(self) -> int:
        """How many outputs the network has."""
        return len(self.names) or 1

    def targets(self, values: Sequence[Any]) -> np.ndarray:
        """Return targets `(examples, outputs)` float32; of an unknown label a row of NaN."""
        if self.kind == "number":
            numbers = np.array(values, "float64")
            return ((numbers - self.mean) / self.scale).astype("float32")[:, None]
        index = {name: place for place, name in enumerate(self.names)}
        targets = np.zeros((len(values), self.outputs), "float32")
        for row, value in zip(targets, values, strict=True):
            wanted = [value] if self.kind == "one" else value
            if set(wanted) <= index.keys():
                row[[index[label] for label in wanted]] = 1.0
            else:
                row[:] = np.nan
        return targets

    def unknown(self, value: Any) -> str | int:
        """Return the label in `value` that is not among the names."""
        wanted = [value] if self.kind == "one" else value
        return next(label for label in wanted if label not in self.names)


def kind_of(values: Any) -> str:
    """Return what labels are: strings and whole numbers `"one"`, tuples, lists and sets `"many"`,
    other numbers `"number"`.
    """
    first = next(iter(values), None) if hasattr(values, "__iter__") else values
    if isinstance(first, (str, bytes, int, np.integer, np.bool_)):
        return "one"
    if isinstance(first, (tuple, list, set, frozenset)):
        return "many"
    if isinstance(first, Real):
        return "number"
    raise _bad_label(first, "labels[0]", "a string or a whole number, a tuple of them, or a float")


def as_labels(values: Any, kind: str, name: str = "labels") -> list[Any]:
    """Return any sequence of labels of one kind as strings and ints, tuples of them, or floats."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise _bad_label(values, name, "a sequence of labels")
    values = values.numpy() if hasattr(values, "numpy") else values
    return [_as_label(value, kind, f"{name}[{place}]") for place, value in enumerate(values)]


def _as_label(value: Any, kind: str, place: str) -> Any:
    if kind == "number":
        if isinstance(value, Real) and is_finite(value):
            return float(value)
        raise _bad_label(value, place, "a finite number")
    if kind == "many":
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise _bad_label(value, place, "a tuple, list or set of labels")
        return tuple(sorted({_as_label(each, "one", place) for each in value}, key=_order))
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):  # refused below, as bytes
            value = value.decode("utf-8")
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    if isinstance(value, str) and value.strip():
        return nfc(str(value))  # one label, whichever form of Unicode it is in
    raise _bad_label(value, place, "one label, a string (bytes are UTF-8) or a whole number")


def _bad_label(value: Any, place: str, expected: str) -> ValueError:
    return ValueError(f"Expected {expected}. Received: {place}={shown(value)}")


def _order(label: str | int) -> tuple[bool, str | int]:
    return isinstance(label, str), label


@keras.saving.register_keras_serializable(PACKAGE)
class ClassificationPreprocessor(BackbonePreprocessor):
    """Turns texts, or pairs of texts, into ids and labels into targets.

    Ids come as one flat list a text; between sentences stands `END_ID`, which no tokenizer gives,
    until a batch is cut at these marks. A text longer than `max_length` is cut.

    Args:
        tokenizer: of the texts.
        labels: the labels.
        pairs: whether an example is a pair of texts.
        max_length: the longest text, in tokens, each text of a pair by itself.
        sentences: where sentences end, for a network that reads sentences: `"lines"`, at line
            feeds, or `"punctuation"`, after . ! ? and a space too; None for one that reads words.
        max_sentence_length: a longer sentence goes on as another one.
        thresholds: of many labels, the probability from which a text has each, in their order;
            None for the task's `threshold`.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: Texts `(B,)`; of pairs a sequence of pairs, or a tuple of two columns `(B,)`. Or columns
            by the names of the inputs: `{"text": ..., "second": ...}`.
        y: Labels `(B,)`.
        sample_weight: Weights `(B,)`.

    Returns:
        `({"text": (B, S)}, targets (B, outputs))`, and the weights where given; without `y` the
        inputs alone. Pairs have `"second"` too; a network that reads sentences gets `(B, N, W)`.

    Raises:
        ValueError: where a text or label is missing or of another kind, or a label is unknown.

    Example:

    ```python
    from keras_attention.applications.classification import ClassificationPreprocessor

    preprocessor = ClassificationPreprocessor.adapt(["so good", "so bad"], ["yes", "no"])
    inputs, targets = preprocessor(["so good"], y=["yes"])
    assert inputs["text"].shape == (1, 2) and targets.tolist() == [[0, 1]]
    ```
    """

    tuned = ("thresholds",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        labels: Labels | Mapping[str, Any],
        pairs: bool = False,
        max_length: int = 400,
        sentences: str | None = None,
        max_sentence_length: int = 40,
        thresholds: Sequence[float] | None = None,
        **kwargs: Any,
    ):
        super().__init__({"tokenizer": tokenizer}, **kwargs)
        self.labels = Labels(**labels) if isinstance(labels, Mapping) else labels
        if not isinstance(self.labels, Labels):
            raise ValueError(f"`labels` should be a Labels. Received: labels={labels!r}")
        check_choice("sentences", sentences, (None, "lines", "punctuation"))
        check_range("max_length", max_length, at_least=1)
        check_range("max_sentence_length", max_sentence_length, at_least=1)
        self.keep(pairs=pairs, max_length=max_length, sentences=sentences)
        self.keep(max_sentence_length=max_sentence_length)
        if thresholds is not None:
            thresholds = [float(each) for each in thresholds]
            are_right = all(0 <= each <= 1 for each in thresholds)  # no NaN
            wanted = len(self.labels.names) if self.labels.kind == "many" else 0
            if len(thresholds) != wanted or not (wanted and are_right):
                raise ValueError(
                    "`thresholds` should be a probability for each of many labels, or None. "
                    f"Received: thresholds={shown(thresholds)} for {wanted} labels"
                )
        self.keep(thresholds=thresholds)

    @classmethod
    def adapt(
        cls,
        texts: Sequence[Any],
        labels: Sequence[Any],
        *,
        label_kind: str | None = None,
        max_length: int = 400,
        in_sentences: bool = False,
        **tokenizer: Any,
    ) -> "ClassificationPreprocessor":
        """Return a preprocessor whose vocabulary and labels come from the examples given.

        Args:
            texts: texts, or pairs of texts.
            labels: the label of each: strings or whole numbers, tuples of them (many labels), or
                floats (numbers).
            label_kind: `"one"`, `"many"` or `"number"`; None for what the first label is.
            max_length: as of the class.
            in_sentences: whether the network reads sentences.
            **tokenizer: keys of `TokenizerConfig`, such as `kind` and `lowercase`.

        Raises:
            ValueError: where there are no texts, one is no string, or there are not two labels.
        """
        texts = list(texts) if isinstance(texts, Iterator) else texts
        first = next(iter(texts), None)
        pairs = hasattr(first, "__len__") and not isinstance(first, (str, bytes))
        columns, values, kind = as_examples(texts, labels, pairs, label_kind)
        section = TokenizerConfig(**tokenizer)
        return cls(
            cls.train_tokenizer(section, [text for column in columns for text in column]),
            Labels.of(values, kind, "labels"),
            pairs,
            max_length,
            section.sentences if in_sentences else None,
            section.max_sentence_length,
        )

    def entries(self):
        kind, names = self.labels.kind, self.labels.names
        labels = [(kind, str(name)) for name in names or [""]]
        return {"vocabulary_size": self.tokenizer.vocabulary, "outputs": labels}

    def call(self, x, y=None, sample_weight=None):
        columns = self._columns(x)
        if is_tensor(columns[0]):
            from . import serving

            read = [serving.read(self, column)[0] for column in columns]
        else:
            read = [self.as_read(self.read(column)[0].matrix()) for column in columns]
        inputs = dict(zip(SIDES, read, strict=False))
        if y is None:
            return inputs
        return keras.utils.pack_x_y_sample_weight(inputs, self._targets(y), sample_weight)

    def read(self, texts: Sequence[str]) -> tuple[PackedIds, np.ndarray]:
        """Return the ids of each text, cut, and how many tokens the whole text has."""
        lengths = array("q")

        def cut() -> Iterator[list[int]]:
            for some in in_chunks(texts, TEXTS_AT_ONCE):
                for ids in self.ids(some):
                    lengths.append(length_of(ids))
                    yield self.cut(ids)

        return PackedIds(cut()), np.array(lengths, "int64")

    def as_read(self, ids: np.ndarray) -> np.ndarray:
        """Return padded ids `(B, S)` as the network reads them, in sentences `(B, N, W)`."""
        return ids if self.sentences is None else in_sentences(ids)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, whole; sentences with a mark between them."""
        cut = [self._sentences(text) for text in texts]
        rows = iter(self.tokenizer.encode([line for lines in cut for line in lines]))
        read = [self._chunks([next(rows) for _ in lines]) for lines in cut]
        return [join_sentences(each) for each in read]

    def cut(self, ids: list[int]) -> list[int]:
        """Return the first `max_length` tokens of the ids of a text."""
        if length_of(ids) <= self.max_length:
            return ids
        places = [place for place, token in enumerate(ids) if token != END_ID]
        return ids[: places[self.max_length - 1] + 1]

    def tokens(self, text: str) -> list[list[str]]:
        """Return the written tokens of each sentence, as many as are read of a text; a text that is
        not cut into sentences is one.
        """
        kept, left = [], self.max_length
        for row in self._chunks([self.tokenizer.tokens(each) for each in self._sentences(text)]):
            kept.append(row[:left])
            left -= len(kept[-1])
        return [row for row in kept if row] if self.sentences else kept

    def unknown(self, ids: list[int]) -> list[int]:
        """Return the indices of unknown tokens in the ids of a text, among those of `tokens`."""
        wanted = getattr(self.tokenizer, "unknown_id", UNK_ID)
        tokens = [token for token in ids if token != END_ID]
        return [place for place, token in enumerate(tokens) if token == wanted]

    def _columns(self, x):
        """Return the texts of each side: lists, or tensors of strings."""
        sides = SIDES[: 1 + self.pairs]
        if isinstance(x, Mapping) and all(is_tensor(x.get(side)) for side in sides):
            return [x[side] for side in sides]
        if is_tensor(x):
            if x.shape.rank not in (None, 1 + self.pairs):
                raise ValueError(
                    f"`x` should be {'pairs of texts' if self.pairs else 'texts'}, of the shape "
                    f"{'(B, 2)' if self.pairs else '(B,)'}. Received: shape {x.shape}"
                )
            return [x[:, 0], x[:, 1]] if self.pairs else [x]
        if isinstance(x, (tuple, list)) and any(map(is_tensor, x)):
            return list(x)
        return as_columns([x] if isinstance(x, str) else x, self.pairs, "x")

    def as_source(self, x):
        is_pairs = self.pairs and type(x) is tuple and not _are_columns(x)
        return list(x) if is_pairs else super().as_source(x)

    def _targets(self, y):
        if is_tensor(y):
            from . import serving

            return serving.targets(self.labels, y)
        values = as_labels([y] if isinstance(y, str) else y, self.labels.kind, "y")
        targets = self.labels.targets(values)
        for place in np.flatnonzero(np.isnan(targets).any(axis=1))[:1]:
            raise ValueError(
                f"Labels should be among {', '.join(map(str, self.labels.names))}. "
                f"Received: y[{place}]={self.labels.unknown(values[place])!r}"
            )
        return targets

    def _sentences(self, text: str) -> list[str]:
        if self.sentences is None:
            return [text]
        if self.sentences == "punctuation":
            text = re.sub(*SENTENCE_END, text)
        return text.split("\n")

    def _chunks(self, rows):
        """Cut sentences to their longest length, and drop empty ones."""
        if self.sentences is None:
            return rows
        size = self.max_sentence_length
        return [row[at : at + size] for row in rows for at in range(0, len(row), size)]

    def get_config(self) -> dict[str, Any]:
        labels = {**asdict(self.labels), "names": list(self.labels.names)}
        return {**super().get_config(), "labels": labels}


def preprocessor_of(
    config: ClassificationConfig, tokenizer: Tokenizer, labels: Labels
) -> ClassificationPreprocessor:
    """Return the preprocessor that a configuration describes, for a tokenizer and labels."""
    section = config.tokenizer
    return ClassificationPreprocessor(
        tokenizer,
        labels,
        bool(config.data.second_column),
        config.data.max_length,
        section.sentences if config.model.architecture == "han" else None,
        section.max_sentence_length,
    )


def as_examples(
    texts: Any, labels: Any, pairs: bool, kind: str | None
) -> tuple[list[list[str]], list[Any], str]:
    """Return texts as columns, their labels, and the kind of these, that of the first if None."""
    columns = as_columns(texts, pairs, "texts")
    labels = list(labels) if isinstance(labels, Iterator) else labels
    if not columns[0]:
        raise ValueError("Expected at least one text and its label. Received: none")
    kind = kind or kind_of(labels)
    values = as_labels(labels, kind)
    check_equally_many(texts=columns[0], labels=values)
    return columns, values, kind


def as_columns(x: Any, pairs: bool, name: str) -> list[list[str]]:
    """Return texts as one column; pairs, of which there are two in a tuple or many, as two.

    Columns come in a tuple, or in a dict by the names of the network's inputs.
    """
    x = x.to_numpy() if hasattr(x, "columns") else x  # a table, which would yield its names
    if isinstance(x, Mapping):
        sides = SIDES[: 1 + pairs]
        if not set(sides) <= set(x):
            keys = " and ".join(f'"{side}"' for side in sides)
            raise ValueError(
                f"`{name}` should be {'pairs of texts' if pairs else 'texts'}, or a dict with the "
                f"columns {keys}. Received: {shown(x)}"
            )
        named = {side: as_texts(x[side], side) for side in sides}
        check_equally_many(**named)
        return [named[side] for side in sides]
    if not pairs:
        return [as_texts(x, name)]
    if _are_columns(x):
        columns = [as_texts(column, f"{name}[{side}]") for side, column in enumerate(x)]
        check_equally_many(**dict(zip(("first", "second"), columns, strict=True)))
        return columns
    if isinstance(x, (str, bytes)) or not hasattr(x, "__iter__"):
        raise ValueError(f"`{name}` should be a sequence of pairs of texts. Received: {shown(x)}")
    rows = list(x)
    for place, pair in enumerate(rows):
        if isinstance(pair, (str, bytes)) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(
                f"`{name}` should hold pairs of texts, each a tuple of two. "
                f"Received: {name}[{place}]={shown(pair)}"
            )
    rows = [as_texts(pair, f"{name}[{place}]") for place, pair in enumerate(rows)]
    return [[row[side] for row in rows] for side in range(2)]


def _are_columns(x: Any) -> bool:
    """Whether a tuple is of two columns; one of two tuples is of two pairs."""
    return isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], (str, tuple))


def length_of(ids: Sequence[int]) -> int:
    """Return how many tokens there are in the ids of a text."""
    return sum(token != END_ID for token in ids)
