"""The base of the translation networks, and the loss that they train with."""

from collections.abc import Sequence
from typing import ClassVar

import keras
from keras import ops

from keras_attention.losses import (
    MaskedSparseCategoricalCrossentropy,
    masked_linear_crossentropy,
    token_weights,
)

from ...base.network import Network
from ...errors import UserError
from .layers import Embedding, WordLogits, flat_matmul, padding_mask


class TranslationModel(Network):
    """Base of the translation networks: embeddings, word scores and the contract of the search.

    Token 0 is padding, on either side; sources hold words only, targets begin with the start token
    (teacher forcing). The decoder's loop needs no mask: padding after a target's end changes
    nothing before it, and the loss masks it.

    ```
    logits         = model({"source": (B, S), "target": (B, T)})        # (B, T, V)
    logits, scores = model.score(source, target)                        # scores (B, T, S) or None
    state          = model.start(source, max_length)                    # every leaf has B rows
    logits, state  = model.step(tokens, state, index)                   # (B,) -> (B, V)
    ```

    A subclass calls `self.build()` last in its constructor: a network is built once constructed. It
    takes features `(..., feature_size)`, which word scores are made from, out of

    ```
    features, scores = self.decode(source, target, training, return_attention_scores)
    state            = self.start(source, max_length)      # `max_length` steps, where it grows
    features, state  = self.advance(words, state)          # embedded words, (B, embedding_size)
    ```

    `"memory"` of the state holds all that no step changes, and `"attention_scores"` the weights
    `(B, S)` of a step, where the architecture has attention. This class has a `start` for networks
    whose `decoder` is an `AttentionDecoder`, and whose `encode(source, training)` returns the
    annotations, their mask and the decoder's first states.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, the width of the word embeddings of both sides.
        feature_size: Integer, the width of the vector that the word scores are taken from.
        dropout: Rate of the dropout on embeddings, annotations and that vector; not in the papers.
        tie_embeddings: Boolean, whether the target embedding serves as output matrix too; needs
            `feature_size == embedding_size`.
        share_embeddings: Boolean, whether source and target have one embedding.
        embeddings_initializer: Initializer of the embeddings.
        **kwargs: `name` and `dtype`.

    Call arguments:
        inputs: Dict of token ids, `"source"` `(B, S)` and `"target"` `(B, T)`.
        training: Boolean, whether dropout acts.

    Returns:
        Logits `(B, T, target_vocabulary_size)`.
    """

    has_attention = True
    growing_axes: ClassVar[dict[str, int]] = {}
    """For entries of the state with a place for each step, the axis of the places."""
    sentence_keys: Sequence[str] = ()
    """Entries of the state that the hypotheses of a beam can share, as `decoding.search` says."""

    def __init__(
        self,
        source_vocabulary_size: int,
        target_vocabulary_size: int,
        embedding_size: int,
        feature_size: int,
        dropout: float = 0.0,
        tie_embeddings: bool = False,
        share_embeddings: bool = False,
        embeddings_initializer="uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        if share_embeddings and source_vocabulary_size != target_vocabulary_size:
            raise ValueError(
                "Shared embeddings need one vocabulary for source and target. Received: "
                f"{source_vocabulary_size} source words and {target_vocabulary_size} target words"
            )
        if tie_embeddings and feature_size != embedding_size:
            raise ValueError(
                "Tied embeddings need a readout as wide as the embedding "
                f"(embedding_size={embedding_size}). Received: readout of width {feature_size}."
            )
        self.keep(
            source_vocabulary_size=source_vocabulary_size,
            target_vocabulary_size=target_vocabulary_size,
            embedding_size=embedding_size,
            tie_embeddings=tie_embeddings,
        )
        self.feature_size = feature_size
        self.share_embeddings = share_embeddings

        def embedding(size, name):
            start = keras.initializers.get(embeddings_initializer)
            if hasattr(start, "clone"):  # one object would give both sides the same numbers
                start = start.clone()
            return Embedding(size, embedding_size, start, name=name, dtype=self.dtype_policy)

        if share_embeddings:
            self.source_embedding = embedding(source_vocabulary_size, "embedding")
            self.target_embedding = self.source_embedding
        else:
            self.source_embedding = embedding(source_vocabulary_size, "source_embedding")
            self.target_embedding = embedding(target_vocabulary_size, "target_embedding")
        self.word_logits = WordLogits(
            target_vocabulary_size, tie_embeddings, name="word_logits", dtype=self.dtype_policy
        )
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.source_embedding.build((None, None))
        if not self.share_embeddings:
            self.target_embedding.build((None, None))
        self.word_logits.build((None, self.feature_size))

    def call(self, inputs, training=None):
        return self.logits(self.features(inputs, training))

    def compute_mask(self, inputs, previous_mask=None):
        """Return where targets are words, so that metrics leave padding out."""
        return padding_mask(inputs["target"])

    def features(self, inputs, training=None):
        """Return the vectors `(B, T, feature_size)` that the word scores are taken from."""
        features, _ = self.decode(inputs["source"], inputs["target"], training=training)
        return self.dropout(features, training=training)

    def score(self, source, target):
        """Return the logits `(B, T, V)` and the attention scores `(B, T, S)` of given translations.

        Without attention in the architecture, the scores are None.

        Args:
            source: Token ids `(B, S)`.
            target: Token ids `(B, T)`, the start token first.
        """
        features, scores = self.decode(source, target, return_attention_scores=True)
        return self.logits(features), scores

    def attention_maps(self, source, target):
        """Return all attention weights of given translations, `(B, layers, heads, rows, columns)`.

        Args:
            source: Token ids `(B, S)`.
            target: Token ids `(B, T)`, the start token first.

        Returns:
            Dictionary of the weights by name: `"cross-attention"`, of which row `t` is that of the
            word after `target[:, t]`. Empty without attention.
        """
        scores = self.score(source, target)[1]
        return {} if scores is None else {"cross-attention": scores[:, None, None]}

    def start(self, source, max_length=None):
        """Return the state before the first word of sources `(B, S)`; every entry has B rows."""
        annotations, mask, states = self.encode(source)
        memory = self.decoder.prepare_memory(annotations, mask=mask)
        return {
            "memory": memory,
            "decoder": self.decoder.initial_state(memory, states),
            "attention_scores": ops.zeros(ops.shape(source), annotations.dtype),
        }

    def step(self, tokens, state, index=None, words=None):
        """Return the logits `(N, V)` and the state after one more word.

        Args:
            tokens: The words before, `(N,)`.
            state: The result of `start` or of the step before; its rows may be tiled and reordered.
            index: The step's number, from 0, which no recurrent model needs.
            words: The result of `output_of(ids)`, for the logits of these words alone.
        """
        features, state = self.advance(self.target_embedding(tokens), state)
        return self.logits(features, words), state

    def logits(self, features, words=None):
        """Return the word scores of vectors `(..., feature_size)`, or those of some `words`."""
        if words is not None:
            kernel, bias = words
            return flat_matmul(features, kernel) + bias
        table = self._table() if self.tie_embeddings else None
        return self.word_logits(features, table=table)

    def output_of(self, ids):
        """Return the matrix `(feature_size, n)` and the bias `(n,)` of `n` words, for `step`."""
        if self.tie_embeddings:  # rows are taken faster than columns
            kernel = ops.transpose(ops.take(self._table(), ids, axis=0))
        else:
            kernel = ops.take(self.word_logits.kernel, ids, axis=1)
        bias = ops.take(self.word_logits.bias, ids)
        return ops.cast(kernel, self.compute_dtype), ops.cast(bias, self.compute_dtype)

    def output_matrix(self):
        """Return the matrix `(feature_size, V)` and the bias `(V,)` of the word scores."""
        logits = self.word_logits
        if self.tie_embeddings:
            return ops.transpose(self._table()), logits.bias
        return logits.kernel, logits.bias

    def entries(self):
        source = [(self.source_embedding.embeddings, 0)]
        target = [(self.target_embedding.embeddings, 0), (self.word_logits.bias, 0)]
        if not self.tie_embeddings:
            target.append((self.word_logits.kernel, 1))
        return {"source_vocabulary_size": source, "target_vocabulary_size": target}

    def with_entries(self, kept):
        sides = [kept.get(f"{side}_vocabulary_size") for side in ("source", "target")]
        if self.share_embeddings and sides[0] != sides[1]:
            raise UserError(
                "Source and target of this network share their embeddings: give a preprocessor "
                "with one vocabulary, `TranslationPreprocessor.adapt(..., shared=True)`. "
                "Received: two vocabularies."
            )
        return super().with_entries(kept)

    def _table(self):
        """Return the target embedding's table `(V, D)`, in float where it is quantized."""
        layer = self.target_embedding
        if layer.quantization_mode is None:
            return layer.embeddings
        return layer(ops.arange(self.target_vocabulary_size, dtype="int32"))

    def embedded(self, table, ids):
        """Return the vectors of ids that the network reads, before dropout."""
        return table(ids)

    def embed_source(self, source, training=False):
        """Return embedded source words, `(B, S, embedding_size)`."""
        return self.dropout(self.embedded(self.source_embedding, source), training=training)

    def embed_target(self, target, training=False):
        """Return embedded target words, `(B, T, embedding_size)`."""
        return self.dropout(self.embedded(self.target_embedding, target), training=training)

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.target_vocabulary_size)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}


@keras.saving.register_keras_serializable("keras_attention.translation")
class WordCrossentropy(MaskedSparseCategoricalCrossentropy):
    """The masked cross-entropy of a network's words, of its features `(B, T, D)` or of its logits.

    Of features, the logits never exist as a whole. A model that was saved with it comes back with
    the loss of logits, which is the same number.
    """

    def __init__(self, model: TranslationModel, label_smoothing: float = 0.0):
        super().__init__(label_smoothing)
        self._model = model

    def __call__(self, y_true, y_pred, sample_weight=None):
        if self._are_logits(y_pred):
            return super().__call__(y_true, y_pred, sample_weight)
        options = {"label_smoothing": self.label_smoothing, "sample_weight": sample_weight}
        return masked_linear_crossentropy(y_true, y_pred, *self._model.output_matrix(), **options)

    def total_and_weight(self, y_true, y_pred, sample_weight=None):
        """Return the sum over the tokens and their weight, which replicas add up (`GlobalMean`)."""
        weights = token_weights(y_true, self.ignore_index, sample_weight)
        weight = ops.sum(weights)
        if self._are_logits(y_pred):  # whose mean Keras divides by the number of replicas
            return ops.sum(self.call(y_true, y_pred) * weights), weight
        return self(y_true, y_pred, sample_weight) * weight, weight

    @classmethod
    def from_config(cls, config):
        # A loss is read back before its model is there, whose calls then give logits again.
        return MaskedSparseCategoricalCrossentropy(**config)

    def _are_logits(self, y_pred):
        return y_pred.shape[-1] == self._model.target_vocabulary_size
