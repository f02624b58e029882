"""Hierarchical attention (Nallapati et al. 2016): words, under the weights of their sentences."""

import math
from typing import Any

import keras
from keras import ops

from ...ops.masks import check_dense, check_mask, combine_masks, for_batch, zero_masked
from ...ops.normalizers import masked_softmax
from ...ops.types import Tensor, at_least_float32
from .. import arguments
from .base import AttentionMechanism

# The least that a weight counts as.
SMALLEST = 1e-30


@keras.saving.register_keras_serializable("keras_attention")
class HierarchicalAttention(AttentionMechanism):
    """Attention over the words of a document, re-weighted by attention over its sentences.

    `P(j) = P_w(j) P_s(s(j)) / sum_k P_w(k) P_s(s(k))`, `c_t = sum_j P(j) v_j`

    `P_w` are the weights over all words of the document, `P_s` those over its sentences, `s(j)` is
    the sentence of word `j`.

    In an `AttentionDecoder`, `value` is a dictionary `{"words": (B, N, W, D), "sentences":
    (B, N, Ds)}`, and `value_mask` one of the same keys.

    Weights: those of `word_attention` and of `sentence_attention`.

    Args:
        word_attention, sentence_attention: Two mechanisms, such as `BahdanauAttention(units)`.
        dropout, seed, **kwargs: As in `AttentionMechanism`, for the joined weights.

    Call arguments:
        query: `(B, T, Dq)`.
        words: `(B, N, W, D)`, the words of each sentence. Default: the queries, as one sentence.
        sentences: `(B, N, Ds)`. Default: the mean of each sentence's words.
        word_mask, sentence_mask, query_mask: Boolean `(B, N, W)`, `(B, N)` and `(B, T)`, True =
            attend. A sentence without a word that the word mask leaves is masked in any case.
        return_attention_scores, training: As in `AttentionMechanism`.
        mask: Another name of `query_mask`.
        words_mask, sentences_mask: The masks that words and sentences carry, which Keras passes by
            itself.

    Returns:
        The context `(B, T, D)`; with `return_attention_scores` also the weights `(B, T, N, W)`.

    Raises:
        ValueError: Where a part is no mechanism, or shapes or masks do not fit.

    Reference:
        Nallapati et al. 2016, "Abstractive text summarization using sequence-to-sequence RNNs and
        beyond", section 2.4. Their `P^a_w`, `P^a_s` are the weights of the two mechanisms.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import BahdanauAttention, HierarchicalAttention, LuongAttention

    states = np.random.normal(size=(2, 5, 8))           # five decoder states
    words = np.random.normal(size=(2, 3, 7, 12))        # three sentences of seven words
    sentences = np.random.normal(size=(2, 3, 10))
    layer = HierarchicalAttention(BahdanauAttention(16), LuongAttention("general"))
    context, scores = layer(states, words, sentences, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and tuple(scores.shape) == (2, 5, 3, 7)
    ```
    """

    def __init__(
        self,
        word_attention: AttentionMechanism,
        sentence_attention: AttentionMechanism,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        parts = {"word_attention": word_attention, "sentence_attention": sentence_attention}
        for name, part in parts.items():
            if not isinstance(part, AttentionMechanism):
                raise ValueError(
                    f"`{name}` must be an attention mechanism, such as BahdanauAttention(256). "
                    f"Received: {name}={part}"
                )
            if part.dropout:
                raise ValueError(
                    "Dropout acts on the joined weights: give it to HierarchicalAttention. "
                    f"Received: {name} with dropout={part.dropout}"
                )
        if word_attention is sentence_attention:
            raise ValueError(
                "Words and sentences need a mechanism each. Received: the same one for both"
            )
        self.word_attention = word_attention
        self.sentence_attention = sentence_attention

    def build(self, query_shape, words_shape=None, sentences_shape=None):
        words, sentences = _shapes(query_shape, words_shape, sentences_shape)
        flat = (words[0], None, words[3])
        for part, shape in ((self.word_attention, flat), (self.sentence_attention, sentences)):
            if not part.built:
                part.build(query_shape, shape)
        self.value_size = words[3]
        self.query_size = query_shape[-1]

    def call(
        self,
        query: Tensor,
        words: Tensor = None,
        sentences: Tensor = None,
        word_mask: Tensor = None,
        sentence_mask: Tensor = None,
        query_mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        mask: Tensor = None,
        words_mask: Tensor = None,
        sentences_mask: Tensor = None,
    ) -> Tensor:
        word_mask = words_mask if word_mask is None else word_mask
        sentence_mask = sentences_mask if sentence_mask is None else sentence_mask
        self._check_call(query, words, sentences, word_mask, sentence_mask, query_mask, mask)
        query_mask = for_batch(combine_masks(query_mask, mask), query)
        if words is None:
            words = ops.expand_dims(query, 1)
            if word_mask is None and query_mask is not None:
                word_mask = ops.expand_dims(query_mask, 1)
        memory = self.prepare_memory(words, sentences, word_mask, sentence_mask, training)
        query = zero_masked(self.cast(query), query_mask)
        if query.shape[1] == 0:  # Keras' loops need a step
            steps = *ops.shape(query)[:1], 0
            context = ops.zeros((*steps, words.shape[3]), self.compute_dtype)
            scores = ops.zeros((*steps, *ops.shape(words)[1:3]), self.compute_dtype)
            return (context, scores) if return_attention_scores else context
        context, scores, _ = self.attend(query, memory, self.initial_state(memory), query_mask)
        self.add_sequence_loss(scores, query_mask, training)
        return (context, scores) if return_attention_scores else context

    def prepare_memory(
        self,
        words: Tensor,
        sentences: Tensor = None,
        word_mask: Tensor = None,
        sentence_mask: Tensor = None,
        training: bool | None = None,
    ) -> dict:
        """Compute once what every query step reads, from the arguments of the call.

        Returns the mechanisms' memories `"word"` and `"sentence"`, the words `"value"`
        `(B, N W, D)`, and where anything is masked `"mask"` `(B, N, W)`.
        """
        arguments.check_built(self, "query_shape, words_shape, sentences_shape")
        check_dense([words, sentences], "words and sentences")
        words = self.cast(words)
        batch_size, count, width, features = ops.shape(words)
        if word_mask is not None:
            has_words = ops.any(ops.cast(word_mask, "bool"), axis=2)
            sentence_mask = combine_masks(sentence_mask, has_words)
        of_sentences = None if sentence_mask is None else ops.expand_dims(sentence_mask, 2)
        mask = combine_masks(word_mask, of_sentences)
        # Without words a mask tells `attend` the width, and has `_means` not divide by 0.
        if mask is None and 0 in words.shape:
            mask = ops.ones((1, 1, 1), "bool")
        if mask is not None:
            mask = ops.broadcast_to(mask, (batch_size, count, width))
        if sentences is None:
            sentences = _means(words, mask)
        flat = ops.reshape(words, (batch_size, count * width, features))
        flat_mask = None if mask is None else ops.reshape(mask, (batch_size, count * width))
        memory = {
            "value": zero_masked(flat, flat_mask),
            "word": self.word_attention.prepare_memory(flat, mask=flat_mask, training=training),
            "sentence": self.sentence_attention.prepare_memory(
                sentences, mask=sentence_mask, training=training
            ),
        }
        if mask is not None:
            memory["mask"] = mask
        if self.dropout and training:
            memory["dropout"] = self.dropout_factors(flat)
        return memory

    def memory_from(self, value, mask=None, training=None):
        mask = mask or {}
        return self.prepare_memory(
            value["words"], value["sentences"], mask.get("words"), mask.get("sentences"), training
        )

    def initial_state(self, memory):
        return {
            "word": self.word_attention.initial_state(memory["word"]),
            "sentence": self.sentence_attention.initial_state(memory["sentence"]),
        }

    def attend(self, query, memory, state, query_mask=None, return_attention_scores=True):
        def attend(part, name):  # in its own dtype
            return part.attend(part.cast(query), memory[name], state[name], query_mask)[1:]

        words, word_state = attend(self.word_attention, "word")
        sentences, sentence_state = attend(self.sentence_attention, "sentence")
        batch_size, steps, count = ops.shape(sentences)
        length = ops.shape(memory["value"])[1]
        mask = ops.expand_dims(memory["mask"], 1) if "mask" in memory else None
        # Without sentences no quotient tells the width.
        width = ops.shape(memory["mask"])[2] if sentences.shape[2] == 0 else length // count
        words = ops.reshape(self.cast(words), (batch_size, steps, count, width))
        weights = reweight(words, self.cast(sentences), mask)
        context = self.read(ops.reshape(weights, (batch_size, steps, length)), memory)
        return context, weights, {"word": word_state, "sentence": sentence_state}

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        for part in (self.word_attention, self.sentence_attention):
            part.enable_lora(rank, lora_alpha, a_initializer, b_initializer)

    def quantize(self, mode=None, type_check=True, config=None):
        for part in (self.word_attention, self.sentence_attention):
            part.quantize(mode, type_check=type_check, config=config)

    @property
    def has_sequence_loss(self):
        return self.word_attention.has_sequence_loss or self.sentence_attention.has_sequence_loss

    def add_sequence_loss(self, scores, query_mask=None, training=None):
        # Of what was read in the end: the joined weights, and their sums over each sentence.
        if self.word_attention.has_sequence_loss:
            batch_size, steps, count, width = ops.shape(scores)
            flat = ops.reshape(scores, (batch_size, steps, count * width))
            self.word_attention.add_sequence_loss(flat, query_mask, training)
        if self.sentence_attention.has_sequence_loss:
            of_sentences = ops.sum(scores, axis=3)
            self.sentence_attention.add_sequence_loss(of_sentences, query_mask, training)

    def memory_spec(self, value):
        words, sentences = value["words"].shape, value["sentences"].shape
        length = None if None in words[1:3] else words[1] * words[2]
        flat = keras.KerasTensor((words[0], length, words[3]), self.compute_dtype)
        sentences = keras.KerasTensor(sentences, self.compute_dtype)
        return {"value": flat, "word": {"value": flat}, "sentence": {"value": sentences}}

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        masks = (of.word_mask, of.sentence_mask, of.query_mask, of.mask)
        words = self._check_call(of.query, of.words, of.sentences, *masks)
        sentences = None if of.sentences is None else of.sentences.shape
        shapes = self.compute_output_shape(of.query.shape, words, sentences, True)
        return arguments.specs(shapes[: 1 + bool(of.return_attention_scores)], self.compute_dtype)

    def compute_output_shape(
        self, query_shape, words_shape=None, sentences_shape=None, return_attention_scores=False
    ):
        words = self._check_fit(query_shape, words_shape, sentences_shape)
        context = (*query_shape[:2], words[3])
        return (context, (*query_shape[:2], *words[1:3])) if return_attention_scores else context

    @classmethod
    def from_config(cls, config):
        names = ("word_attention", "sentence_attention")
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in names}
        return cls(**{**config, **parts})

    def _check_call(self, query, words, sentences, word_mask, sentence_mask, query_mask, mask):
        """Refuse what does not fit, and return the words' shape."""
        given = [None if part is None else part.shape for part in (words, sentences)]
        shape = self._check_fit(query.shape, *given)
        check_mask(word_mask, shape[:3], "word_mask")
        check_mask(sentence_mask, shape[:2], "sentence_mask")
        check_mask(query_mask, tuple(query.shape[:2]), "query_mask")
        check_mask(mask, tuple(query.shape[:2]), "mask")
        return shape

    def _check_fit(self, query, words, sentences):
        """Refuse shapes that do not fit each other or the layer; return the words'."""
        words, sentences = _shapes(query, words, sentences)
        if self.built:
            arguments.check_features("query", query, self.query_size)
            arguments.check_features("words", words, self.value_size)
            arguments.check_features("sentences", sentences, self.sentence_attention.value_size)
        return words


def _means(words, mask):
    """Return the mean `(B, N, D)` of each sentence's words, of zeros where it has none."""
    if mask is None:
        return ops.mean(words, axis=2)
    real = ops.expand_dims(mask, 3)
    total = ops.sum(ops.where(real, words, ops.zeros_like(words)), axis=2)
    count = ops.sum(ops.cast(real, words.dtype), axis=2)
    return total / ops.maximum(count, 1)


def _shapes(query, words, sentences):
    """Return the shapes of words and sentences, with their defaults; refuse what does not fit."""
    if isinstance(words, dict):  # what a decoder was called with
        if set(words) != {"words", "sentences"}:
            raise ValueError(
                "A decoder with HierarchicalAttention reads a dictionary of 'words' and "
                f"'sentences'. Received: {sorted(words)}"
            )
        words, sentences = words["words"], words["sentences"]
    if words is None:
        words = (query[0], 1, *query[1:])
    if sentences is None:
        sentences = (*words[:2], words[-1])
    arguments.check_shapes(
        query=(query, arguments.SEQUENCE),
        words=(words, "batch, sentences, words, features"),
        sentences=(sentences, "batch, sentences, features"),
    )
    return tuple(words), tuple(sentences)


def _log(weights):
    """Return the logarithm of a weight, of a tiny one for 0, with finite derivatives there."""
    seen = weights > SMALLEST
    return ops.where(seen, ops.log(ops.where(seen, weights, 1.0)), math.log(SMALLEST))


def reweight(word_weights, sentence_weights, mask=None):
    """Return the joined weights `(B, T, N, W)`, from `(B, T, N, W)` and `(B, T, N)`.

    Where words and sentences agree on no position, zeros count as a tiny weight. A row without any
    weight gets zeros.
    """
    # By logarithms in at least float32, so that two small factors do not vanish.
    words = at_least_float32(word_weights)
    sentences = ops.expand_dims(at_least_float32(sentence_weights), 3)
    both = ops.logical_and(words > 0, sentences > 0)
    agree, reads_words, reads_sentences = (
        ops.any(part, axis=(2, 3), keepdims=True) for part in (both, words > 0, sentences > 0)
    )
    read = ops.logical_and(reads_words, reads_sentences)
    allowed = combine_masks(ops.where(agree, both, read), mask)
    logits = _log(words) + _log(sentences)
    count, width = ops.shape(words)[2:]
    flat = (*ops.shape(words)[:2], count * width)
    weights = masked_softmax(ops.reshape(logits, flat), ops.reshape(allowed, flat))
    return ops.cast(ops.reshape(weights, ops.shape(words)), word_weights.dtype)
