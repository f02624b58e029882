"""From the ids of a text, or of a pair, to one vector and the weights of words and sentences."""

from typing import Any, ClassVar

import keras
from keras import ops

from ...base.network import Part, with_matches
from ...text import PAD_ID
from .layers import PACKAGE, Contextual, mean_of

SIDES = ("text", "second")
"""Names of a network's inputs."""


class TextEncoder(Part):
    """Base of the encoders: layers are given whole, and kept in the configuration.

    A subclass names its layers in `described`, in the order of its constructor.

    Call arguments:
        inputs: a dictionary of ids, 0 is padding: `text` `(B, S)` or `(B, N, W)`, and for pairs
            `second`.
        training: whether dropout applies.

    Returns:
        The vector `(B, D)`, and a dictionary of weights: `words` `(B, S)` or `(B, N, W)`,
        `sentences` `(B, N)`, and for pairs `second`.
    """

    described: ClassVar[tuple[str, ...]] = ()
    """The arguments of the constructor, in their order."""
    rank: ClassVar[int] = 2
    """Axes of the ids of a text: 3 where it is read in sentences."""
    text_counts: ClassVar[tuple[int, ...]] = (1,)
    """How many texts an example may have: 1, or 2 for pairs."""

    def __init__(self, *layers: keras.layers.Layer, **kwargs: Any):
        given = {name: kwargs.pop(name) for name in self.described if name in kwargs}
        super().__init__(**kwargs)
        given |= dict(zip(self.described, layers, strict=False))
        if set(given) != set(self.described) or len(layers) > len(self.described):
            raise ValueError(
                f"A {type(self).__name__} takes {', '.join(self.described)}. "
                f"Received: {len(layers)} layers and {sorted(given)}"
            )
        self.keep(**{name: given[name] for name in self.described})

    @property
    def vocabulary_size(self) -> int | None:
        """How many ids there are, padding included; None where any id will do."""
        return self.vectors.vocabulary_size

    @property
    def has_attention(self) -> bool:
        """Whether the weights say what the encoder attends to: those of a mean do not."""
        return self.pool.kind == "attention"

    @property
    def has_self_attention(self) -> bool:
        """Whether the words of a text attend to each other, in layers that can be looked into."""
        context = getattr(self, "context", None)
        return self.rank == 2 and isinstance(context, Contextual) and context.has_heads

    def self_attention(self, ids):
        """Return what the words of texts `(B, S)` attend to, `(B, layers, heads, S, S)`."""
        vectors, mask = self.vectors(ids)
        return self.context(vectors, mask=mask, return_attention_scores=True)[1]


@keras.saving.register_keras_serializable(PACKAGE)
class FlatEncoder(TextEncoder):
    """A text as one sequence of words: embedded, read in context, pooled.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual`.
        pool: a `Pool`.
    """

    described = ("vectors", "context", "pool")

    def call(self, inputs, training=False):
        vectors, mask = self.vectors(inputs["text"], training=training)
        states = self.context(vectors, mask=mask, training=training)
        vector, weights = self.pool(states, mask)
        return vector, {"words": weights}


@keras.saving.register_keras_serializable(PACKAGE)
class HierarchicalEncoder(TextEncoder):
    """A text as sentences of words: words are pooled to sentences, these to the text.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        pool: a `Pool` of words.
        sentence_context: a `Contextual` of sentences.
        sentence_pool: a `Pool` of sentences.

    Reference:
        Yang et al. 2016, "Hierarchical attention networks for document classification", section 2.
    """

    described = ("vectors", "context", "pool", "sentence_context", "sentence_pool")
    rank = 3

    def call(self, inputs, training=False):
        ids = inputs["text"]
        batch_size, sentences, words = ops.shape(ids)
        flat = ops.reshape(ids, (batch_size * sentences, words))
        vectors, mask = self.vectors(flat, training=training)
        states = self.context(vectors, mask=mask, training=training)
        pooled, word_weights = self.pool(states, mask)
        of_sentences = ops.reshape(pooled, (batch_size, sentences, pooled.shape[-1]))
        is_sentence = ops.reshape(ops.any(mask, axis=1), (batch_size, sentences))
        states = self.sentence_context(of_sentences, mask=is_sentence, training=training)
        vector, sentence_weights = self.sentence_pool(states, is_sentence)
        word_weights = ops.reshape(word_weights, (batch_size, sentences, words))
        return vector, {"words": word_weights, "sentences": sentence_weights}


class PairEncoder(TextEncoder):
    """Base of the pair encoders: one network for both texts, then a layer over their comparison.

    With `u` and `v` the vectors of the two texts: `tanh(W [u; v; |u - v|; u ∘ v] + b)`.

    Args:
        *layers: those of the encoder.
        exact_match: whether a number beside each word's vector says that the other text has the
            very word.
        **kwargs: the layers by name, and arguments of every Keras layer.
    """

    text_counts = (2,)
    has_attention = True

    def __init__(self, *layers: keras.layers.Layer, exact_match: bool = False, **kwargs: Any):
        super().__init__(*layers, **kwargs)
        self.keep(exact_match=exact_match)

    def call(self, inputs, training=False):
        ids = [inputs[side] for side in SIDES]
        # Both texts in one batch, the first ones before the second: half as many loops.
        stacked = _stacked(*ids)
        vectors, mask = self.vectors(stacked, training=training)
        if self.exact_match:
            vectors = with_matches(vectors, stacked, _exchanged(stacked))
        states = self.context(vectors, mask=mask, training=training)
        read, weights = self.read(states, mask, _exchanged(states), _exchanged(mask), training)
        first, second = ops.split(read, 2)
        compared = [first, second, ops.abs(first - second), first * second]
        vector = self.compare(ops.concatenate(compared, axis=-1))
        words, others = ops.split(weights, 2)
        words, others = words[:, : ops.shape(ids[0])[1]], others[:, : ops.shape(ids[1])[1]]
        return vector, {"words": words, "second": others}

    def read(self, states, mask, other, other_mask, training):
        """Return the vectors of texts, each beside its other, and the weights of their words."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(PACKAGE)
class CrossEncoder(PairEncoder):
    """Each word attends to the other text; what it finds is compared with it, read and pooled.

    With `c` what word state `h` finds: `m = relu(W [h; c; h - c; h ∘ c] + b)`, in both directions
    with the same weights.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        cross: the attention of a text's words over the other's.
        match: a layer over what a word and what it found have in common.
        composition: a `Contextual` of matched words.
        pool: a `Pool`.
        compare: a layer over the vectors of both texts.

    Reference:
        Parikh et al. 2016, "A decomposable attention model for natural language inference"; Chen
        et al. 2017, "Enhanced LSTM for natural language inference", sections 3.2 and 3.3.
    """

    described = ("vectors", "context", "cross", "match", "composition", "pool", "compare")

    def read(self, states, mask, other, other_mask, training):
        found = self.cross(states, other, value_mask=other_mask, training=training)
        features = [states, found, states - found, states * found]
        matched = self.match(ops.concatenate(features, axis=-1))
        composed = self.composition(matched, mask=mask, training=training)
        return self.pool(composed, mask)


@keras.saving.register_keras_serializable(PACKAGE)
class InnerEncoder(PairEncoder):
    """Each text is read, forward and back, by GRUs whose words are weighed by the other text.

    The question from the other text is the mean of its word states.

    Args:
        vectors: a `WordVectors`.
        context: a `Contextual` of words.
        forward_gru: an `InnerAttentionGRU`.
        backward_gru: the same with `go_backwards`.
        pool: a `Pool` of the states.
        compare: a layer over the vectors of both texts.

    Reference:
        Wang, Liu and Zhao 2016, "Inner attention based recurrent neural networks for answer
        selection", where one text of the pair, the answer, is read so.
    """

    # Not `forward`, by which PyTorch calls a layer.
    described = ("vectors", "context", "forward_gru", "backward_gru", "pool", "compare")

    def read(self, states, mask, other, other_mask, training):
        question, _ = mean_of(other, other_mask)
        common = {"mask": mask, "training": training, "return_attention_scores": True}
        forward, weights = self.forward_gru(states, query=question, **common)
        backward, back_weights = self.backward_gru(states, query=question, **common)
        both = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        vector, _ = self.pool(both, mask)
        return vector, (weights + back_weights) / 2


def _stacked(first, second):
    """Return the ids of both texts as one batch `(2B, S)`, the shorter ones padded."""
    padded = [
        ops.concatenate([own, ops.zeros_like(other)[:, ops.shape(own)[1] :]], axis=1)
        for own, other in ((first, second), (second, first))
    ]
    return ops.concatenate(padded, axis=0)


def _exchanged(tensor):
    """Return a batch whose rows are those of the other text of the pair."""
    first, second = ops.split(tensor, 2)
    return ops.concatenate([second, first], axis=0)


@keras.saving.register_keras_serializable(PACKAGE)
class BackboneEncoder(TextEncoder):
    """A text, or a pair in one sequence, as a pretrained backbone reads it, pooled by attention.

    The states of the words alone are pooled: a backbone's own attention rests on the marks when it
    has nothing to say, and pooling would learn to rest there too.

    Args:
        reader: a `BackboneReader`.
        pool: a `Pool`.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: a dictionary with `text` `(B, S)`, and for pairs `second`: ids of the vocabulary
            plus 4, 0 is padding.
        training: whether dropout applies.

    Reference:
        Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers for language
        understanding", sections 3 and 5.3 (feature-based).
    """

    described = ("reader", "pool")
    text_counts = (1, 2)

    @property
    def vocabulary_size(self) -> int | None:
        return self.reader.vocabulary_size

    def call(self, inputs, training=False):
        texts = [inputs[side] for side in SIDES if side in inputs]
        states, is_word, positions = self.reader(texts, training=training)
        vector, weights = self.pool(states, is_word)
        found = {}
        for name, text, own in zip(("words", "second"), texts, positions, strict=False):
            of_text = ops.take_along_axis(weights, own, axis=1)
            found[name] = ops.where(ops.not_equal(text, PAD_ID), of_text, ops.zeros_like(of_text))
        return vector, found
