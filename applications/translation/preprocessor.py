"""From sentences to the ids that a translation network reads, and back."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from ..base.preprocessor import (
    TextPreprocessor,
    as_column,
    as_texts,
    check_equally_many,
    is_tensor,
    padded,
)
from ..data.lengths import rows_too_long
from ..errors import UserError, check_number, shown
from ..text import END_ID, PAD_ID, SPECIAL_TOKENS, START_ID, PackedIds, Tokenizer, nfc
from ..text.packed import read_and_written
from .config import MOST_VARIANTS, TokenizerConfig

KINDS = ("sentencepiece", "words")
MOST_TOKENS = 10_000
"""Of a sentence that is searched or scored: a line of 100,000 takes minutes and gigabytes."""


@keras.saving.register_keras_serializable("keras_attention.translation")
class TranslationPreprocessor(TextPreprocessor):
    """Turns pairs of sentences into ids, in Python and inside a TensorFlow graph.

    Ids are padded with 0 at the end. The network reads the start token and the target as
    `"target"`, and has to write the target and the end token, the labels.

    Args:
        source_tokenizer: of the language translated from.
        target_tokenizer: of the language translated into; the same object where both share one.
        replace_unknown: whether translations hold, in place of an unknown word, the source word
            with the highest attention weight.
        variants: in how many random ways `fit` cuts each sentence into pieces (SentencePiece only);
            1 for the likeliest alone. An epoch has each sentence once, in the next of its ways.
        sampling: the `alpha` of `SentencePieceTokenizer.sample`, which draws the ways.
        **kwargs: `name` and the like of `keras.layers.Layer`.

    Call arguments:
        x: Source sentences `(B,)`, or a pair `(sources, targets)`.
        y: Target sentences `(B,)`.
        sample_weight: Weights `(B,)`.

    Returns:
        `({"source": (B, S), "target": (B, T)}, labels (B, T))`, and the weights where given; of a
        pair without `y` the inputs alone; of sources alone `{"source": (B, S)}`.

    Example:

    ```python
    from keras_attention.applications.translation import TranslationPreprocessor

    preprocessor = TranslationPreprocessor.adapt(["a dog"], ["ein Hund"], kind="words")
    inputs, labels = preprocessor(["a dog"], y=["ein Hund"])
    assert inputs["source"].tolist() == [[4, 5]] and labels.shape == (1, 3)
    ```
    """

    only_to_train = ("variants", "sampling")

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        replace_unknown: bool = False,
        variants: int = 1,
        sampling: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(
            {"source_tokenizer": source_tokenizer, "target_tokenizer": target_tokenizer}, **kwargs
        )
        check_number("`variants`", variants, 1, MOST_VARIANTS, whole=True)
        check_number("`sampling`", sampling, 0, 1)
        if variants > 1 and not all(hasattr(each, "sample") for each in self.tokenizers):
            raise ValueError(
                "`variants` needs tokenizers of kind 'sentencepiece': words are cut in one way. "
                f"Received: variants={variants}"
            )
        self.keep(replace_unknown=replace_unknown, variants=variants, sampling=sampling)

    @classmethod
    def adapt(
        cls,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        kind: str = "sentencepiece",
        vocabulary_size: int = 8000,
        shared: bool = False,
        lowercase: bool = False,
        min_count: int = 1,
        model_type: str = "unigram",
        replace_unknown: bool = False,
        variants: int = 1,
        sampling: float = 0.1,
        **kwargs: Any,
    ) -> "TranslationPreprocessor":
        """Return a preprocessor whose vocabularies come from the sentences given.

        Args:
            sources: sentences of the language translated from.
            targets: their translations.
            kind: `"sentencepiece"` (pieces of words) or `"words"`.
            vocabulary_size: most tokens of a vocabulary, the four special ones included.
            shared: one vocabulary for both languages, else one each.
            lowercase: make the text lower case first.
            min_count: words that occur less often are unknown (words only).
            model_type: how SentencePiece chooses its pieces, `"unigram"` or `"bpe"`.
            replace_unknown, variants, sampling, **kwargs: as for the class.

        Raises:
            ValueError: where there are no texts, something is no string, or an argument is unknown,
                out of its range or without effect.
        """
        if kind not in KINDS:
            raise ValueError(f"`kind` should be one of {KINDS}. Received: kind={kind!r}")
        if kind == "words" and model_type != "unigram":
            raise ValueError(
                "`model_type` goes with kind='sentencepiece' only: leave it out. "
                f"Received: model_type={model_type!r}, kind={kind!r}"
            )
        options = {"variants": variants, "sampling": sampling}
        try:
            section = TokenizerConfig(
                kind, vocabulary_size, shared, lowercase, min_count, model_type, **options
            )
        except UserError as error:  # which names the keys of a configuration
            raise UserError(re.sub(r"tokenizer\.(\w+)", r"`\1`", str(error))) from None
        sides = as_pairs(sources, targets)
        texts = [itertools.chain(*sides)] if shared else sides
        tokenizers = [cls.train_tokenizer(section, each) for each in texts]
        return cls(tokenizers[0], tokenizers[-1], replace_unknown, **options, **kwargs)

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of source and target."""
        return self.source_tokenizer, self.target_tokenizer

    @property
    def source_vocabulary_size(self) -> int:
        """How many source ids there are, padding included."""
        return self.source_tokenizer.vocabulary_size

    @property
    def target_vocabulary_size(self) -> int:
        """The same of the target."""
        return self.target_tokenizer.vocabulary_size

    def entries(self):
        names = ("source_vocabulary_size", "target_vocabulary_size")
        return {name: each.vocabulary for name, each in zip(names, self.tokenizers, strict=True)}

    def call(self, x, y=None, sample_weight=None):
        target = y
        if isinstance(x, (tuple, list)) and len(x) == 2 and not isinstance(x[0], (str, bytes)):
            x, target = x
        elif isinstance(x, dict):
            x, target = x["source"], x.get("target", y)
        source = self._ids("source_tokenizer", x)
        ids = None if target is None else self._ids("target_tokenizer", target)
        if isinstance(source, list) and isinstance(ids, list):
            check_equally_many(sources=source, targets=ids)
        inputs, labels = self.arrays(source, ids)
        if y is None:
            return inputs
        return keras.utils.pack_x_y_sample_weight(inputs, labels, sample_weight)

    def arrays(self, source: Any, target: Any = None) -> tuple[dict[str, Any], Any]:
        """Return the inputs of the network and the labels of ids, padded, with start and end.

        The ids are lists, or ragged tensors; without those of targets there are no labels.
        """
        inputs = {"source": _matrix(source)}
        if target is None:
            return inputs, None
        if isinstance(target, list):
            read, written = read_and_written(PackedIds(target))
            return inputs | {"target": read.matrix()}, written.matrix()
        import tensorflow as tf

        start, end = (
            tf.fill([target.nrows(), 1], tf.constant(token, target.dtype))
            for token in (START_ID, END_ID)
        )
        read, written = tf.concat([start, target], axis=1), tf.concat([target, end], axis=1)
        return inputs | {"target": _matrix(read)}, _matrix(written)

    def _ids(self, name, texts):
        """Return the ids of strings: lists, or a ragged tensor of a tensor of strings."""
        if isinstance(texts, str):
            texts = [texts]
        if is_tensor(texts):
            return self.in_graph(name).encode(texts)
        return getattr(self, name).encode(as_texts(texts, name.removesuffix("_tokenizer")))


def distinct_words(tokenizer: Tokenizer) -> list[str]:
    """Return the token of each id as a string of its own.

    A typed word that is spelt as a special token, such as `</s>`, gets a space before it.
    """
    special = tokenizer.vocabulary[: len(SPECIAL_TOKENS)]
    words = tokenizer.vocabulary[len(special) :]
    return special + [f" {word}" if word in special else word for word in words]


def as_pairs(sources: Any, targets: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return sentences and their translations as sequences of strings, equally many."""
    sources, targets = as_texts(sources, "sources"), as_texts(targets, "targets")
    check_equally_many(sources=sources, targets=targets)
    return sources, targets


def as_references(targets: Any, name: str = "targets") -> list[list[str]]:
    """Return the references of each sentence, a string or several, as a list of one or more."""
    values = list(as_column(targets, name, "a sequence of texts, or of lists of texts"))
    several = [hasattr(each, "__iter__") and not isinstance(each, (str, bytes)) for each in values]
    if not any(several):
        return [[text] for text in as_texts(values, name)]
    found = []
    for place, each in enumerate(values):
        texts = as_texts(each if several[place] else [each], f"{name}[{place}]")
        if not texts:
            raise ValueError(
                "Each sentence should have one reference at least. "
                f"Received: {name}[{place}]={shown(each)}"
            )
        found.append(list(texts))
    return found


def encode_checked(
    tokenizer: Tokenizer, sentences: Sequence[str], name: str, on_too_long: str = "error"
) -> tuple[list[list[int]], list[int]]:
    """Return the ids of sentences, and the rows of those that are longer than `MOST_TOKENS`.

    Such sentences are cut, unless they are an error, a `TooLong`.
    """
    ids = tokenizer.encode(sentences)
    rows = rows_too_long(map(len, ids), MOST_TOKENS, on_too_long, name)
    for row in rows:
        ids[row] = ids[row][:MOST_TOKENS]
    return ids, rows


def _matrix(ids: Any) -> Any:
    """Return ids, lists or a ragged tensor, as a matrix `(B, S)`, padded."""
    return padded(ids) if isinstance(ids, list) else ids.to_tensor(PAD_ID)


def checked_dictionary(dictionary: Mapping[str, str] | None) -> dict[str, str]:
    """Return translations of single words as a dict; refuse a word without any.

    The words are in Unicode's form C, as those of tokenizers are.
    """
    given: dict[str, str] = {}
    for word, written in dict(dictionary or {}).items():
        if not (isinstance(word, str) and isinstance(written, str) and written.strip()):
            raise ValueError(
                "`dictionary` should hold words and their translations, strings that are not "
                f"empty; leave a word out to copy it. Received: {{{word!r}: {written!r}}}"
            )
        if given.setdefault(nfc(word), written) != written:
            raise ValueError(
                "`dictionary` should have one translation of a word, whichever form of Unicode it "
                f"is in. Received: {given[nfc(word)]!r} and {written!r} of {word!r}"
            )
    return given
