"""The base of the preprocessors: tokenizers, and how they are saved and read back."""

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import keras
import keras_hub
import numpy as np

from keras_attention.paths import output_path

from ..arguments import KeepsArguments
from ..data.batches import IteratorOfBatches
from ..data.lines import Lines
from ..data.vectors import read_start
from ..errors import check_unicode, shown
from ..text import (
    PackedIds,
    SentencePieceTokenizer,
    Tokenizer,
    WordTokenizer,
    tokenizer_from_config,
)


class TextPreprocessor(KeepsArguments, keras_hub.models.Preprocessor):
    """Base of the preprocessors: text to ids and back, in Python and inside a TensorFlow graph.

    A preprocessor describes itself whole: `get_config` holds the vocabularies too, so that a copy,
    a preset and a `.keras` file need nothing beside it. A subclass takes its tokenizers and plain
    values in the constructor, hands the tokenizers to this one by name, and the plain values to
    `keep`. It writes `call(x, y=None, sample_weight=None)`, which KerasHub's `fit` and
    `predict` map over a `tf.data.Dataset`.

    Args:
        tokenizers: the tokenizers, by the name of their argument in the subclass' constructor.
        **kwargs: `name` and the like of `keras.layers.Layer`.
    """

    tuned: ClassVar[tuple[str, ...]] = ()
    """Settings that are tuned with the weights: with others it is the same preprocessor."""

    def __init__(self, tokenizers: Mapping[str, Tokenizer], **kwargs: Any):
        super().__init__(**kwargs)
        for name, tokenizer in tokenizers.items():
            if not isinstance(tokenizer, Tokenizer):
                raise ValueError(
                    f"`{name}` should be a tokenizer of keras_attention.applications.text; "
                    f"`{type(self).__name__}.adapt` makes one of your texts. "
                    f"Received: {name}={tokenizer!r}"
                )
            setattr(self, name, tokenizer)
        self._tokenizer_names = tuple(tokenizers)
        self._in_graph: dict[str, Any] = {}
        self.vectors: np.ndarray | None = None
        """Vectors `(ids, size)` of words that a training may start from; they are not saved."""
        self.built = True

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        # By name, as KerasHub 0.32 takes a pair alone for texts and labels.
        return super().__call__(x, y=y, sample_weight=sample_weight)

    def in_graph(self, name: str):
        """Return a tokenizer as a `tf.Module`, made once, outside of the graph being traced."""
        import tensorflow as tf

        if name not in self._in_graph:
            with tf.init_scope():
                self._in_graph[name] = getattr(self, name).in_graph()
        return self._in_graph[name]

    @staticmethod
    def train_tokenizer(section: Any, lines: Iterable[str]) -> Tokenizer:
        """Train the tokenizer that a section of a configuration describes."""
        common = {"vocabulary_size": section.vocabulary_size, "lowercase": section.lowercase}
        if section.kind != "words":
            return SentencePieceTokenizer.train(lines, model_type=section.model_type, **common)
        common |= {"min_count": section.min_count, "split": getattr(section, "split", "unicode")}
        return WordTokenizer.train(lines, **common)

    def entries(self) -> dict[str, list[Hashable]]:
        """Return the tokens, and labels where there are any, in the order of their indices.

        They come by the argument of the network that says how many there are.
        """
        return {}

    def read_start(self, folder: Path) -> None:
        """Read what a run folder holds for the first weights, such as pretrained vectors."""
        self.vectors = read_start(folder)

    def as_source(self, x: Any) -> Any:
        """Return what `predict` was given, no dataset, with each tuple of texts as a list.

        Keras would take such a tuple for columns.
        """
        if isinstance(x, dict):
            return {name: self.as_source(column) for name, column in x.items()}
        if type(x) is not tuple:
            return x
        are_texts = bool(x) and isinstance(x[0], (str, bytes))
        return list(x) if are_texts else tuple(map(self.as_source, x))

    def save_to_preset(self, preset_dir: Path | str) -> None:
        super().save_to_preset(str(output_path(preset_dir, is_preset=True)))

    def get_config(self) -> dict[str, Any]:
        tokenizers = {name: getattr(self, name).get_config() for name in self._tokenizer_names}
        return {**super().get_config(), **tokenizers}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TextPreprocessor":
        def restored(value):
            is_tokenizer = isinstance(value, dict) and {"kind", "vocabulary"} <= set(value)
            return tokenizer_from_config(value) if is_tokenizer else value

        return cls(**{name: restored(value) for name, value in config.items()})


def is_tensor(x: Any) -> bool:
    """Whether `x` is of TensorFlow, and so to be read inside a graph."""
    return type(x).__module__.startswith("tensorflow")


def is_dataset(x: Any) -> bool:
    """Whether `x` is a `tf.data.Dataset`, or batches that Python makes."""
    kinds = (keras.utils.PyDataset, IteratorOfBatches)
    return isinstance(x, kinds) or hasattr(x, "element_spec")


def counts_of(x: Any) -> list[int]:
    """Return how many entries each column has; nothing unless all are lists or arrays."""
    columns = x.values() if isinstance(x, dict) else x if type(x) is tuple else [x]
    known = all(isinstance(each, (list, np.ndarray)) and is_column(each) for each in columns)
    return list(map(len, columns)) if known else []


def is_column(values: Any) -> bool:
    """Whether there are values to go through: a list, an array, a column; no text, no mapping."""
    is_single = isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0
    return hasattr(values, "__iter__") and not is_single


def as_column(values: Any, name: str, wanted: str) -> Iterable[Any]:
    """Return the values of an argument, those of a tensor as an array; refuse what has none."""
    if not is_column(values):
        raise ValueError(f"`{name}` should be {wanted}. Received: {name}={shown(values)}")
    return values.numpy() if hasattr(values, "numpy") else values


def as_texts(values: Any, name: str) -> list[str] | Lines:
    """Return any sequence of strings as a list: a list, an array, a pandas or `datasets` column.

    `Lines` stay what they are. Bytes are UTF-8. Anything else, such as None, NaN or ids, raises a
    ValueError that names the argument `name`; so does half a surrogate pair.
    """
    if isinstance(values, Lines):
        return values
    wanted = "a sequence of strings: a list, an array or a column of a table"
    texts = []
    for place, value in enumerate(as_column(values, name, wanted)):
        found = value
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                found = value.decode("utf-8")
        if not isinstance(found, str):
            raise ValueError(
                f"`{name}` should hold strings only; the preprocessor makes the ids. "
                f"Received: {name}[{place}]={shown(value)}"
            )
        if not found.isascii():
            check_unicode(f"{name}[{place}]", found)
        texts.append(str(found))
    return texts


WANTED = "lists of texts, or a `keras.utils.PyDataset` or `tf.data.Dataset` of batches of them"


def sources_of(
    preprocessor: TextPreprocessor | None, to_train: bool = False, **sources: Any
) -> list[Any]:
    """Return what a task was given, iterators of examples as lists; refuse what is no source."""
    if preprocessor is None:
        return list(sources.values())
    for name, x in sources.items():
        shapes = [spec.shape for spec in keras.tree.flatten(getattr(x, "element_spec", []))]
        if any(shape.rank == 0 for shape in shapes):
            raise ValueError(
                f"`{name}` should be {WANTED}, as `dataset.batch(32)` gives. "
                f"Received: elements of shapes {', '.join(map(str, shapes))}"
            )
    return [_listed(name, x, to_train) for name, x in sources.items()]


def _listed(name: str, x: Any, to_train: bool = False) -> Any:
    """Return an iterator of examples, and each in a tuple or dict, as a list.

    One of batches, as Keras takes it, may have no end: it stays an iterator to train on.
    """
    if isinstance(x, dict):
        return {key: _listed(name, each) for key, each in x.items()}
    if type(x) is tuple:
        return tuple(_listed(name, each) for each in x)
    if not isinstance(x, Iterator):
        return x
    examples = list(itertools.islice(x, 1))
    for example in examples:
        is_row = isinstance(example, (tuple, list, np.ndarray)) and len(example)
        # An example, or a pair, begins with a string.
        if is_row and (is_column(example[0]) or isinstance(example[0], Mapping)):
            if name != "x" or not to_train:
                raise ValueError(
                    f"`{name}` should be {WANTED}. Received: an iterator of {shown(example)}"
                )
            return IteratorOfBatches(itertools.chain(examples, x))
    return [*examples, *x]


def check_equally_many(**columns: Sequence) -> None:
    """Raise a ValueError unless all columns have as many entries as the first."""
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        names = " and ".join(f"`{name}`" for name in counts)
        raise ValueError(
            f"{names} should have equally many entries. "
            f"Received: {', '.join(f'{count} in {name}' for name, count in counts.items())}"
        )


def weights_of(sample_weight: Any, **columns: Sequence) -> list[float] | None:
    """Return the weight of each example, None where none are given; refuse what is no number."""
    if sample_weight is None:
        return None
    values = list(sample_weight) if hasattr(sample_weight, "__iter__") else sample_weight
    weights = [np.nan]
    with suppress(TypeError, ValueError):  # refused below, as NaN is
        weights = np.ravel(np.asarray(values, "float64")).tolist()  # None becomes NaN
    if not np.all(np.abs(weights) <= np.finfo("float32").max):
        raise ValueError(f"`sample_weight` should hold numbers. Received: {shown(values)}")
    check_equally_many(**columns, sample_weight=weights)
    return weights


def pairs_of(
    x: Any, y: Any, sample_weight: Any, readers: Sequence[Callable], words: Sequence[str]
) -> tuple[Sequence, Sequence, list[float] | None]:
    """Return the two columns of texts that `fit` was given, and their weights; none may be empty.

    Each of `readers` checks a column, as `as_texts` does. Messages call the columns, the texts of a
    pair, a text and a pair by `words`.
    """
    columns, texts, single, pair = words
    if y is None:
        pairs = list(x) if hasattr(x, "__iter__") else [x]
        kinds = (tuple, list, np.ndarray)
        if not all(isinstance(each, kinds) and len(each) == 2 for each in pairs):
            raise ValueError(
                f"Give {columns}, as `fit(x, y)`, or pairs of {texts} as `x`. "
                f"Received: x={shown(pairs[:1])}"
            )
        x, y = ([each[side] for each in pairs] for side in (0, 1))
    found = {"x": readers[0](x, "x"), "y": readers[1](y, "y")}
    check_equally_many(**found)
    for name, column in found.items():
        for place, each in enumerate(column):
            if not (each.strip() if isinstance(each, str) else each):
                received = f"={each!r}" if each else " without any"
                raise ValueError(
                    f"{single} to train with should have words. Received: {name}[{place}]{received}"
                )
    if not found["x"]:
        raise ValueError(f"Give at least one {pair}. Received: none")
    return *found.values(), weights_of(sample_weight, **found)


def padded(sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids `(B, S)`, padded at the end; at least one column."""
    return PackedIds(sequences).matrix()
