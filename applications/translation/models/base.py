"""What every translation model offers, whatever its architecture."""

from typing import ClassVar

import keras
from keras import ops

from keras_attention.applications.common.network import Network
from keras_attention.applications.translation.models.layers import WordLogits, padding_mask


class TranslationModel(Network):
    """Base of the translation models: embeddings, word scores and the contract of the search.

    A model is built once constructed: its sizes are all it needs to know. Token 0 is padding, on
    either side; sources hold words only, targets begin with the start token (teacher forcing).

    ```
    logits         = model({"source": (B, S), "target": (B, T)})        # (B, T, V)
    logits, scores = model.score(source, target)                        # scores (B, T, S) or None
    state          = model.start(source, max_length)                    # every leaf has B rows
    logits, state  = model.step(tokens, state, index)                   # (B,) -> (B, V)
    ```

    What follows a target's end costs time and changes nothing before it: the loss masks it, and no
    mask runs through the decoder's loop.

    A subclass writes `encode`, `decode`, `start` and `advance`, and calls `self.build()` last in
    its constructor.

    Args:
        source_vocabulary_size: Integer, how many source words there are, padding included.
        target_vocabulary_size: Integer, the same of the target.
        embedding_size: Integer, the width of the word embeddings of both sides.
        feature_size: Integer, the width of the vector that the word scores are taken from.
        dropout: Rate of the dropout on embeddings, annotations and that vector; not in the papers.
        tie_embeddings: Boolean, whether the target embedding serves as output matrix too.
        share_embeddings: Boolean, whether source and target have one embedding.
        embeddings_initializer: Initializer of the embeddings.
        **kwargs: `name`, `dtype` and the like of `Network`.
    """

    has_attention = True
    growing_axes: ClassVar[dict[str, int]] = {}
    """For entries of the state with a place for each step, the axis of the places."""

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
        self.source_vocabulary_size = source_vocabulary_size
        self.target_vocabulary_size = target_vocabulary_size
        self.embedding_size = embedding_size
        self.feature_size = feature_size
        self.dropout_rate = dropout
        self.tie_embeddings = tie_embeddings
        self.share_embeddings = share_embeddings

        def embedding(size, name):
            return keras.layers.Embedding(
                size,
                embedding_size,
                embeddings_initializer=embeddings_initializer,
                name=name,
                dtype=self.dtype_policy,
            )

        self.source_embedding = embedding(
            source_vocabulary_size, "embedding" if share_embeddings else "source_embedding"
        )
        self.target_embedding = (
            self.source_embedding
            if share_embeddings
            else embedding(target_vocabulary_size, "target_embedding")
        )
        self.word_logits = WordLogits(
            target_vocabulary_size,
            tied=tie_embeddings,
            name="word_logits",
            dtype=self.dtype_policy,
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
        """Return the logits and the attention scores of given translations.

        Args:
            source: Token ids `(B, S)`.
            target: Token ids `(B, T)`, the start token first.

        Returns:
            `(logits, scores)`: `(B, T, V)` and `(B, T, S)`, or None in place of the scores where
            the architecture has no attention.
        """
        features, scores = self.decode(source, target, return_attention_scores=True)
        return self.logits(features), scores

    def step(self, tokens, state, index=None):
        """Advance by one word.

        Args:
            tokens: The words before, `(N,)`.
            state: What `start` or the step before returned, its rows tiled and reordered at will.
            index: The step's number, from 0, which no recurrent model needs.

        Returns:
            `(logits, state)`: `(N, V)`, and the state of the step, which holds its weights `(N, S)`
            as `"attention_scores"` where the architecture has attention.
        """
        features, state = self.advance(self.target_embedding(tokens), state)
        return self.logits(features), state

    def encode(self, source, training=False):
        """Return what the decoder needs to know of the source."""
        raise NotImplementedError

    def decode(self, source, target, training=False, return_attention_scores=False):
        """Return the vectors `(B, T, feature_size)` before the word scores, and the scores."""
        raise NotImplementedError

    def start(self, source, max_length=None):
        """Return the state before the first word; what no step changes is under `"memory"`.

        Args:
            source: Token ids `(B, S)`.
            max_length: How many steps the state has to have room for, where it grows with them.
        """
        raise NotImplementedError

    def advance(self, words, state):
        """Return the vectors `(N, feature_size)` and the state after one step."""
        raise NotImplementedError

    def logits(self, features):
        """Return the word scores of vectors `(..., feature_size)`."""
        table = self.target_embedding.embeddings if self.tie_embeddings else None
        return self.word_logits(features, table=table)

    def output_matrix(self):
        """Return the matrix `(feature_size, V)` and the bias `(V,)` of the word scores."""
        logits = self.word_logits
        if self.tie_embeddings:
            return ops.transpose(self.target_embedding.embeddings), logits.bias
        return logits.kernel, logits.bias

    def embed_source(self, source, training=False):
        """Return embedded source words, `(B, S, embedding_size)`."""
        return self.dropout(self.source_embedding(source), training=training)

    def embed_target(self, target, training=False):
        """Return embedded target words, `(B, T, embedding_size)`."""
        return self.dropout(self.target_embedding(target), training=training)

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.target_vocabulary_size)

    def get_config(self):
        return {
            **super().get_config(),
            "source_vocabulary_size": self.source_vocabulary_size,
            "target_vocabulary_size": self.target_vocabulary_size,
            "embedding_size": self.embedding_size,
            "dropout": self.dropout_rate,
            "tie_embeddings": self.tie_embeddings,
        }


def no_scores(source, dtype):
    """Return attention scores of zero, `(B, S)`, to stand in a state before its first step."""
    return ops.zeros(ops.shape(source), dtype=dtype)
