"""The network of tagging: words and their letters, read in context, under a CRF."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.layers import CRF, MultiHeadAttention, PositionalEncoding, TransformerEncoder

from ..base.backbones import OFFSET, BackboneReader
from ..base.network import Network
from ..errors import check_choice, check_counts
from ..text import PAD_ID, UNK_ID

PACKAGE = "keras_attention.tagging"
RECURRENT = ("lstm", "gru")
STACKS = ("self-attention", "transformer")
ARCHITECTURES = (*RECURRENT, *STACKS, "backbone")
LETTERS = ("cnn", "gru", "none")
AFFIXES = {"prefix": (0, 3), "suffix2": (-2, 2), "suffix": (-3, 3)}
"""The letters that an affix begins with, from the front or from the end, and how many there are."""
BUCKETS = 4096
"""Ids of affixes, which are hashes of their letters."""
CASES = 32
"""Patterns of case: a bit each for what a word has of capitals, small letters and digits."""
PIECES_AT_ONCE = 512
"""The most pieces of words that a backbone reads at once, where it has no limit of its own."""


@keras.saving.register_keras_serializable(PACKAGE)
class Tagger(Network):
    """Gives each word of a sentence a tag, by a CRF over an encoder of words in context.

    A word is its embedding, beside what a convolution or a GRU reads of its letters, its case, and
    its first and last letters. A recurrent net or attention layers read the sentence. With a
    pretrained backbone, a word is the state of the first of its pieces (Devlin et al. 2019, section
    5.3), which a bidirectional LSTM reads.

    ```
    probabilities = model({"words": ids, "letters": letters})        # (B, T, K)
    found         = model.attend({"words": ids, "letters": letters}) # tags and attention, too
    probabilities = model({"words": indices, "pieces": ids})         # of a backbone
    ```

    Args:
        vocabulary_size: ids of words, padding included.
        outputs: how many tags there are.
        letters_size: ids of letters, padding included.
        letter_kinds: what each letter is, by its id: 0 other, 1 small, 2 capital, 3 digit.
        forbidden: the pairs of tags that never follow each other, as of `CRF`.
        architecture: `"lstm"` or `"gru"` (bidirectional), `"self-attention"` (Tan et al. 2018: in
            each layer a feed-forward network, then attention), `"transformer"`, or `"backbone"`.
        embedding_size: width of the word embeddings.
        units: width of each direction of a recurrent layer; attention layers have twice that.
        layers: how many layers there are.
        heads: attention heads of each layer.
        letters: what reads the letters of a word: `"cnn"` (Ma and Hovy 2016), `"gru"` (Lample et
            al. 2016) or `"none"`.
        letter_units: width of what is read of the letters.
        features: whether case and affixes have embeddings.
        dropout: rate of dropout on words and between layers.
        word_dropout: the part of the words that are made unknown in training.
        roles: whether one word of each sentence is marked, the predicate whose roles are sought.
        window: the most words that are read at once; a longer sentence is read in windows.
        reader: of architecture `"backbone"`, the `BackboneReader` of its pieces; `embedding_size`,
            `letters`, `features` and `word_dropout` are of the others.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: `words` `(B, T)`, 0 is padding; `letters` `(B, T, L)`; with roles `marks` `(B, T)`,
            1 for the predicate. Of a backbone: `pieces` `(B, S)`, ids of the pieces of all words,
            and `words` `(B, T)`, the index of the first piece of each, from 1.
        training: whether dropout applies.

    Returns:
        The probabilities of the tags `(B, T, K)`, from which `CRFLoss` computes the loss.

    Raises:
        ValueError: where an argument is out of its range.
    """

    def __init__(
        self,
        vocabulary_size: int,
        outputs: int,
        letters_size: int,
        letter_kinds: Sequence[int],
        forbidden: Sequence[Sequence[int | None]] = (),
        architecture: str = "lstm",
        embedding_size: int = 100,
        units: int = 100,
        layers: int = 1,
        heads: int = 4,
        letters: str = "cnn",
        letter_units: int = 32,
        features: bool = True,
        dropout: float = 0.4,
        word_dropout: float = 0.05,
        roles: bool = False,
        window: int = 256,
        reader: BackboneReader | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("`architecture`", architecture, ARCHITECTURES)
        if (reader is None) == (architecture == "backbone"):
            raise ValueError(
                "`reader` should be a BackboneReader for architecture 'backbone', and None for "
                f"another one. Received: reader={reader!r} and architecture={architecture!r}"
            )
        check_choice("`letters`", letters, LETTERS)
        check_counts(
            vocabulary_size=vocabulary_size,
            outputs=outputs,
            letters_size=letters_size,
            embedding_size=embedding_size,
            units=units,
            layers=layers,
            heads=heads,
            letter_units=letter_units,
            window=window,
        )
        self.keep(vocabulary_size=vocabulary_size, letters_size=letters_size)
        self.keep(letter_kinds=list(letter_kinds), forbidden=[list(pair) for pair in forbidden])
        self.keep(architecture=architecture, embedding_size=embedding_size, units=units)
        self.keep(heads=heads, letters=letters, letter_units=letter_units)
        self.keep(features=features, dropout=dropout, word_dropout=word_dropout)
        self.keep(roles=roles, window=window)
        self.outputs_count = outputs
        self.depth = layers
        dtype = self.dtype_policy

        def embedding(count: int, size: int, name: str) -> keras.layers.Embedding:
            return keras.layers.Embedding(count, size, name=name, dtype=dtype)

        self.reader = self.part("reader", reader, lambda: None)
        self.word_vectors = self.letter_vectors = self.letter_reader = self.case_vectors = None
        self.affix_vectors = []
        if reader is None:
            self.word_vectors = embedding(vocabulary_size, embedding_size, "word_vectors")
        if reader is None and letters != "none":
            self.letter_vectors = embedding(letters_size, letter_units, "letter_vectors")
            self.letter_reader = self._letter_reader(letters, letter_units)
        if reader is None and features:
            self.case_vectors = embedding(CASES, 8, "case_vectors")
            self.affix_vectors = [embedding(BUCKETS, 16, f"{name}_vectors") for name in AFFIXES]
        self.mark_vectors = embedding(2, 16, "mark_vectors") if roles else None
        self._dropout = keras.layers.Dropout(dropout, dtype=dtype)
        self._word_dropout = keras.layers.Dropout(word_dropout, name="unknown", dtype="float32")
        self.projection = self.positions = None
        if architecture in STACKS:
            self.projection = keras.layers.Dense(2 * units, name="projection", dtype=dtype)
            self.positions = PositionalEncoding(name="positions", dtype=dtype)
        self.blocks = [self._block(index) for index in range(layers)]
        self.emission = keras.layers.Dense(outputs, name="emission", dtype=dtype)
        # Half precisions lose what a step adds to a long chain.
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        self.crf = CRF(outputs, forbidden=self.forbidden, name="crf", dtype=wide)
        self.build()

    def _letter_reader(self, kind: str, units: int) -> keras.layers.Layer:
        options = {"name": "letter_reader", "dtype": self.dtype_policy}
        if kind == "cnn":
            return keras.layers.Conv1D(units, 3, padding="same", **options)
        gru = keras.layers.GRU(max(1, units // 2), dtype=self.dtype_policy)
        return keras.layers.Bidirectional(gru, **options)

    def _block(self, index: int) -> keras.layers.Layer:
        options = {"name": f"layer_{index}", "dtype": self.dtype_policy}
        if self.architecture == "transformer":
            sizes = {"intermediate_dim": 4 * self.units, "num_heads": self.heads}
            return TransformerEncoder(**sizes, dropout=self.dropout, **options)
        if self.architecture == "self-attention":
            return DeepAttention(2 * self.units, self.heads, self.dropout, **options)
        kind = keras.layers.GRU if self.architecture == "gru" else keras.layers.LSTM
        layer = kind(self.units, return_sequences=True, dtype=self.dtype_policy)
        return keras.layers.Bidirectional(layer, **options)

    def build(self, input_shape: Any = None) -> None:
        ids = np.ones((1, 2), "int32")
        inputs = {"words": ids, "letters": np.ones((1, 2, 3), "int32")}
        if self.reader is not None:
            inputs = {"words": ids, "pieces": np.full((1, 1), OFFSET, "int32")}
        self.attend(inputs | ({"marks": ids} if self.roles else {}))

    @property
    def has_attention(self) -> bool:
        """Whether there are attention layers."""
        return self.architecture in STACKS

    def entries(self):
        found = {
            "outputs": [
                (self.emission.kernel, 1),
                (self.emission.bias, 0),
                (self.crf.transitions, 0),
                (self.crf.transitions, 1),
                (self.crf.start, 0),
                (self.crf.end, 0),
            ],
        }
        if self.word_vectors is not None:
            found["vocabulary_size"] = [(self.word_vectors.embeddings, 0)]
        return found

    def call(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        emissions, _ = self.emissions(inputs, training=training)
        return self.crf(emissions, mask=ops.not_equal(inputs["words"], PAD_ID))

    def attend(self, inputs: Mapping[str, Any], training: bool = False) -> dict[str, Any]:
        """Return `probabilities (B, T, K)`, the best `tags (B, T)`, and what was attended to.

        `attention` is `(B, layers, heads, T, T)`, of a network with attention layers. It is that of
        the whole sentence, which must fit the window.
        """
        emissions, scores = self.emissions(inputs, training=training)
        mask = ops.not_equal(inputs["words"], PAD_ID)
        found = {
            "probabilities": self.crf.marginals(emissions, mask),
            "tags": self.crf.decode(emissions, mask),
        }
        return found | ({"attention": ops.stack(scores, axis=1)} if scores else {})

    def emissions(self, inputs: Mapping[str, Any], training: bool = False) -> tuple[Any, list]:
        """Return the scores of the tags of each word `(B, T, K)`, and the attention of each layer.

        More words than the window are read in windows that overlap by half. A word has the score of
        the window in whose middle it stands, or next to it.
        """
        inputs = {name: ops.convert_to_tensor(each) for name, each in inputs.items()}
        mask = ops.not_equal(inputs["words"], PAD_ID)
        vectors = self._vectors(inputs, training)

        def read(vectors: Any, mask: Any) -> tuple[Any, list]:
            return self._read(vectors, mask, training)

        return in_windows(read, [vectors, mask], mask, self.window)

    def _read(self, x: Any, mask: Any, training: bool) -> tuple[Any, list]:
        """Return the scores of the tags of words given as vectors, and what was attended to."""
        x = self._dropout(x, training=training)
        if self.projection is not None:
            x = self.positions(self.projection(x))
        scores = []
        for block in self.blocks:
            if self.architecture in STACKS:
                options = {"inputs_mask": mask, "return_attention_scores": True}
                x, found = block(x, training=training, **options)
                scores.append(found)
            else:
                x = block(x, mask=mask, training=training)
            x = self._dropout(x, training=training)
        emissions = self.emission(x)
        return ops.cast(emissions, keras.backend.result_type(emissions.dtype, "float32")), scores

    def _vectors(self, inputs: Mapping[str, Any], training: bool) -> Any:
        """Return a vector for each word, `(B, T, D)`."""
        read = self._own if self.reader is None else self._states
        parts = [read(inputs, training)]
        if self.mark_vectors is not None:
            parts.append(self.mark_vectors(inputs["marks"]))
        return ops.concatenate(parts, axis=-1)

    def _states(self, inputs: Mapping[str, Any], training: bool) -> Any:
        """Return the backbone's state at the first piece of each word, `(B, T, D)`.

        More pieces than the backbone has positions for are read in windows, as words are.
        """

        def read(pieces: Any) -> tuple[Any, list]:
            states, _, (positions,) = self.reader([pieces], training=training)
            return ops.take_along_axis(states, positions[..., None], axis=1), []

        pieces = inputs["pieces"]
        size = self.reader.longest or PIECES_AT_ONCE
        states, _ = in_windows(read, [pieces], ops.not_equal(pieces, PAD_ID), size)
        first = ops.maximum(inputs["words"] - 1, 0)
        states = ops.take_along_axis(states, first[..., None], axis=1)
        return ops.cast(states, self.compute_dtype)

    def _own(self, inputs: Mapping[str, Any], training: bool) -> Any:
        """Return the embedding of each word beside what is read of its letters, `(B, T, D)`."""
        words, letters = inputs["words"], inputs["letters"]
        if training and self.word_dropout:
            kept = self._word_dropout(ops.ones(ops.shape(words), "float32"), training=True)
            unknown = ops.logical_and(ops.equal(kept, 0), ops.not_equal(words, PAD_ID))
            words = ops.where(unknown, ops.cast(UNK_ID, words.dtype), words)
        parts = [self.word_vectors(words)]
        batch, steps, length = ops.shape(letters)
        flat = ops.reshape(letters, (batch * steps, length))
        if self.letter_reader is not None:
            parts.append(ops.reshape(self._letters(flat), (batch, steps, -1)))
        if self.case_vectors is not None:
            parts.append(self.case_vectors(self._case(letters)))
            for vectors, (start, count) in zip(self.affix_vectors, AFFIXES.values(), strict=True):
                parts.append(vectors(self._affix(letters, start, count)))
        return ops.concatenate(parts, axis=-1)

    def _letters(self, letters: Any) -> Any:
        """Return what is read of letters `(N, L)`, `(N, letter_units)`."""
        real = ops.not_equal(letters, PAD_ID)
        x = self.letter_vectors(letters)
        x = ops.where(real[..., None], x, ops.zeros_like(x))
        if self.letters == "gru":
            return self.letter_reader(x, mask=real)
        x = self.letter_reader(x)
        lowest = ops.cast(-1e4, x.dtype)
        x = ops.max(ops.where(real[..., None], x, lowest), axis=1)
        return ops.where(ops.any(real, axis=1)[:, None], ops.relu(x), ops.zeros_like(x))

    def _case(self, letters: Any) -> Any:
        """Return the pattern of case of words, `(B, T)`."""
        kinds = ops.convert_to_tensor(np.array(self.letter_kinds, "int32"))
        kinds = ops.take(kinds, letters, axis=0)
        real = ops.not_equal(letters, PAD_ID)
        has = [ops.any(ops.equal(kinds[..., place:], kind), -1) for place, kind in ((0, 1), (1, 2))]
        has += [ops.equal(kinds[..., 0], 2), ops.any(ops.equal(kinds, 3), -1)]
        has.append(ops.any(ops.logical_and(real, ops.equal(kinds, 0)), -1))
        return sum(ops.cast(each, "int32") * 2**bit for bit, each in enumerate(has))

    def _affix(self, letters: Any, start: int, count: int) -> Any:
        """Return the hash of some letters from the front or the end of words, `(B, T)`."""
        lengths = ops.sum(ops.cast(ops.not_equal(letters, PAD_ID), "int32"), -1, keepdims=True)
        places = ops.arange(count, dtype="int32")
        places = places + (ops.zeros_like(lengths) if start >= 0 else lengths + start)
        inside = ops.logical_and(places >= 0, places < lengths)
        places = ops.clip(places, 0, ops.shape(letters)[-1] - 1)
        found = ops.where(inside, ops.take_along_axis(letters, places, axis=-1), 0)
        total = ops.zeros_like(found[..., 0])
        for place in range(count):
            total = (total * 131 + found[..., place]) % BUCKETS
        return total

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs["words"], PAD_ID)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape["words"], self.outputs_count)

    def compute_output_spec(self, inputs, training=False):
        shape = (*inputs["words"].shape, self.outputs_count)
        return keras.KerasTensor(shape, self.crf.compute_dtype)

    def get_config(self):
        own = {"outputs": self.outputs_count, "layers": self.depth}
        return {**super().get_config(), **own, **self.config_of(reader=self.reader)}


@keras.saving.register_keras_serializable(PACKAGE)
class DeepAttention(keras.layers.Layer):
    """A layer of deep attention for roles (Tan et al. 2018): feed-forward, then self-attention.

    `h = norm(x + FFN(x))`, `y = norm(h + attention(h))`

    Args:
        units: Width of inputs and outputs.
        heads: Attention heads.
        dropout: Rate of dropout of both parts.
        **kwargs: The arguments of every Keras layer.

    Call arguments:
        inputs: `(B, T, units)`.
        inputs_mask: Boolean `(B, T)`.
        return_attention_scores: Whether to return the weights `(B, heads, T, T)` too.

    Reference:
        Tan et al. 2018, "Deep semantic role labeling with self-attention", section 3.
    """

    def __init__(self, units: int, heads: int, dropout: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.units = units
        self.heads = heads
        self.dropout = dropout
        options = {"dtype": self.dtype_policy}
        self.inner = keras.layers.Dense(4 * units, "relu", name="inner", **options)
        self.outer = keras.layers.Dense(units, name="outer", **options)
        size = max(1, math.ceil(units / heads))
        self.attention = MultiHeadAttention(heads, size, name="attention", **options)
        self.first_norm = keras.layers.LayerNormalization(name="first_norm", **options)
        self.second_norm = keras.layers.LayerNormalization(name="second_norm", **options)
        self._dropout = keras.layers.Dropout(dropout, **options)

    def call(self, inputs, inputs_mask=None, return_attention_scores=False, training=False):
        hidden = self._dropout(self.outer(self.inner(inputs)), training=training)
        x = self.first_norm(inputs + hidden)
        options = {"value_mask": inputs_mask, "return_attention_scores": True}
        attended, scores = self.attention(x, x, training=training, **options)
        x = self.second_norm(x + self._dropout(attended, training=training))
        return (x, scores) if return_attention_scores else x

    def get_config(self):
        own = {"units": self.units, "heads": self.heads, "dropout": self.dropout}
        return {**super().get_config(), **own}


def in_windows(read: Callable, inputs: Sequence[Any], mask: Any, size: int) -> tuple[Any, list]:
    """Return `read(*inputs)`, with more steps than `size` in windows that overlap by half.

    Each step has the result of the window in whose middle it stands, or next to it. Which windows a
    row has depends on its own length alone, so that its results are the same in any batch.

    Args:
        read: A function of `inputs` that returns `(B, T, D)` and a list of anything else, which is
            that of the windows where there are several.
        inputs: Tensors `(B, T, ...)`, 0 or False where there is padding.
        mask: Boolean `(B, T)`, False where there is padding, at the end.
        size: The most steps of a window.
    """
    known = mask.shape[1]
    if known is not None and known <= size:
        return read(*inputs)
    batch, steps = tuple(ops.shape(mask))
    size = _limited(steps, min, size)
    stride = _limited(size // 2, max, 1)
    count = _limited(-(-(steps - size) // stride), max, 0) + 1
    starts = ops.arange(count, dtype="int32")[:, None] * stride
    flat = ops.reshape(starts + ops.arange(size, dtype="int32"), (-1,))

    def cut(x: Any) -> Any:
        rest = tuple(ops.shape(x)[2:])
        taken = ops.take(x, ops.minimum(flat, steps - 1), axis=1)
        inside = ops.reshape(flat < steps, (1, -1, *(1,) * len(rest)))
        taken = ops.where(inside, taken, ops.zeros_like(taken))
        return ops.reshape(taken, (batch * count, size, *rest))

    found, others = read(*map(cut, inputs))
    found = ops.reshape(found, (batch, count * size, found.shape[-1]))
    order = ops.arange(steps, dtype="int32")
    lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    last = ops.maximum(-(-(lengths - size) // stride), 0)
    middle = ops.maximum((order - (size - stride) // 2) // stride, 0)
    chosen = ops.minimum(middle, last)
    # Padding behind the last window has the result of its end.
    index = ops.minimum(order - chosen * stride, size - 1) + chosen * size
    return ops.take_along_axis(found, index[..., None], axis=1), others


def _limited(size: Any, limit: Callable, other: int) -> Any:
    """Return `min` or `max` of a size, which may be a tensor, and a number."""
    if isinstance(size, int):
        return limit(size, other)
    return (ops.minimum if limit is min else ops.maximum)(size, other)
