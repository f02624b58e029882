"""The network of classification, and from a configuration to it."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_attention.layers import InnerAttentionGRU, LuongAttention

from ...base.backbones import Pretrained
from ...base.network import Network
from ..config import STACKS, ModelConfig
from .encoders import (
    BackboneEncoder,
    CrossEncoder,
    FlatEncoder,
    HierarchicalEncoder,
    InnerEncoder,
)
from .layers import PACKAGE, Contextual, Pool, WordVectors


@keras.saving.register_keras_serializable(PACKAGE)
class Classifier(Network):
    """An encoder of texts, and a score for each label.

    With $x$ the vector that the encoder makes of a text, or of a pair: $W x + b$. The scores are
    logits, of a softmax where a text has one label and of a sigmoid each where it may have many; or
    one standardised number.

    ```
    logits          = model({"text": ids})             # (B, outputs)
    logits, weights = model.attend({"text": ids})      # and the weights of the words
    ```

    Args:
        encoder: a layer from a dictionary of ids to a vector `(B, D)` and a dictionary of attention
            weights, like `FlatEncoder`, `HierarchicalEncoder`, `CrossEncoder`, `InnerEncoder` and
            `BackboneEncoder`; `TextEncoder` says what it has to offer.
        outputs: how many scores there are.
        dropout: rate of dropout on the vector.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: a dictionary of ids: `text` `(B, S)`, or `(B, N, W)` for an encoder of sentences,
            and for pairs `second`; 0 is padding.
        training: whether dropout applies.

    Returns:
        Logits `(B, outputs)`, at least float32.

    Raises:
        ValueError: where `encoder` is no layer.

    Example:

    ```python
    import numpy as np
    from keras_attention.applications.classification import (
        Classifier, Contextual, FlatEncoder, Pool, WordVectors
    )

    encoder = FlatEncoder(WordVectors(30, 8), Contextual("gru", 8), Pool("attention", 8))
    model = Classifier(encoder, outputs=3)
    logits, weights = model.attend({"text": np.array([[4, 5, 6, 0]])})
    assert tuple(logits.shape) == (1, 3) and weights["words"][0, 3] == 0
    ```
    """

    def __init__(
        self,
        encoder: keras.layers.Layer,
        outputs: int,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not isinstance(encoder, keras.layers.Layer):
            raise ValueError(
                "`encoder` of a Classifier should be a Keras layer, such as FlatEncoder. "
                f"Received: encoder={encoder!r}"
            )
        self.encoder = self.part("encoder", encoder, None)
        self.outputs_count = outputs
        self.dropout = dropout
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.answer = keras.layers.Dense(outputs, name="answer", dtype=self.dtype_policy)
        self.build()

    def build(self, input_shape: Any = None) -> None:
        # A call makes the weights. An encoder of single texts reads the first alone.
        ids = ops.ones((1, 1, 2)[-self.rank :], "int32")
        self.attend({"text": ids, "second": ids})

    @property
    def rank(self) -> int:
        """Axes of the ids of a text: 2, or 3 where the encoder reads sentences."""
        return getattr(self.encoder, "rank", 2)

    @property
    def text_counts(self) -> tuple[int, ...]:
        """How many texts an example may have: 1, or 2 for pairs."""
        return getattr(self.encoder, "text_counts", (1, 2))

    @property
    def vocabulary_size(self) -> int | None:
        """How many ids there are, padding included; None where the encoder does not say."""
        return getattr(self.encoder, "vocabulary_size", None)

    @property
    def has_attention(self) -> bool:
        """Whether the weights say what the network attends to."""
        return getattr(self.encoder, "has_attention", True)

    def entries(self):
        found = {"outputs": [(self.answer.kernel, 1), (self.answer.bias, 0)]}
        vectors = getattr(self.encoder, "vectors", None)
        if isinstance(vectors, WordVectors):
            channels = (each for each in (vectors.embedding, vectors.static) if each is not None)
            found["vocabulary_size"] = [(each.embeddings, 0) for each in channels]
        return found

    def call(self, inputs, training=False):
        return self.attend(inputs, training=training)[0]

    def attend(
        self, inputs: Mapping[str, Any], training: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        """Return the logits `(B, outputs)` and the attention weights of the encoder."""
        vector, weights = self.encoder(inputs, training=training)
        scores = self.answer(self._dropout(vector, training=training))
        return ops.cast(scores, keras.backend.result_type(scores.dtype, "float32")), weights

    def compute_mask(self, inputs, previous_mask=None):
        """Return which rows are texts, so that metrics leave rows of padding out."""
        ids = inputs["text"]
        return ops.any(ops.not_equal(ids, 0), axis=tuple(range(1, len(ids.shape))))

    def compute_output_shape(self, inputs_shape):
        return (inputs_shape["text"][0], self.outputs_count)

    def compute_output_spec(self, inputs, training=False):
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        return keras.KerasTensor((inputs["text"].shape[0], self.outputs_count), dtype)

    def get_config(self):
        own = {**self.config_of(encoder=self.encoder), "outputs": self.outputs_count}
        return {**super().get_config(), **own, "dropout": self.dropout}


def build_model(
    config: ModelConfig,
    vocabulary_size: int,
    outputs: int,
    pretrained: Pretrained | None = None,
    dtype: Any = None,
    channels: str = "tuned",
) -> Classifier:
    """Build the network that a configuration describes, with new weights.

    Args:
        config: the `model` section.
        vocabulary_size: how many ids there are, padding included.
        outputs: how many scores the network gives.
        pretrained: the backbone, loaded, for architecture backbone.
        dtype: the dtype policy of the network; None for Keras' global one.
        channels: of the vectors of words, as in `WordVectors`.

    Returns:
        The network, built.
    """
    name, kind, stack = config.architecture, config.encoder, {}
    if name in STACKS:
        kind, stack = name, {"dropout": config.layer_dropout}
        for key in ("layers", "heads", "positions", "feed_forward"):
            stack[key] = getattr(config, key)

    def context(name):
        return Contextual(kind, config.units, name=name, dtype=dtype, **stack)

    def pool(name):
        kind = "mean" if config.architecture == "mean" else "attention"
        units = config.attention_units or config.units
        return Pool(kind, units, config.max_pooling, name=name, dtype=dtype)

    def dense(activation, name):
        return keras.layers.Dense(config.units, activation, name=name, dtype=dtype)

    def inner_gru(name):
        options = {"attention": config.inner_attention, "return_sequences": True}
        options |= {"go_backwards": name == "backward", "name": name, "dtype": dtype}
        return InnerAttentionGRU(config.units, **options)

    common = {"name": "encoder", "dtype": dtype}
    if pretrained is not None:
        reader = pretrained.reader(config.fine_tune, dtype)
        encoder = BackboneEncoder(reader, pool("pool"), **common)
        return Classifier(encoder, outputs, config.dropout, name="backbone", dtype=dtype)
    dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    sizes = vocabulary_size, config.embedding_size
    marks = {"exact_match": bool(config.exact_match)}
    options = {"name": "vectors", "dtype": dtype}
    vectors = WordVectors(*sizes, dropout, config.word_dropout, channels, **options)
    # Their order decides which weights a seed gives.
    words, pooled = (vectors, context("context")), pool("pool")
    if name == "han":
        above = context("sentence_context"), pool("sentence_pool")
        encoder = HierarchicalEncoder(*words, pooled, *above, **common)
    elif name == "cross":
        # A word attends to itself and its like at first: some thousand pairs do not teach this.
        compare, start = dense("tanh", "compare"), {"kernel_initializer": "identity"}
        cross = LuongAttention("general", **start, name="cross", dtype=dtype)
        match = cross, dense("relu", "match"), context("composition")
        encoder = CrossEncoder(*words, *match, pooled, compare, **marks, **common)
    elif name == "inner":
        compare = dense("tanh", "compare")
        grus = inner_gru("forward"), inner_gru("backward")
        encoder = InnerEncoder(*words, *grus, pooled, compare, **marks, **common)
    else:
        encoder = FlatEncoder(*words, pooled, **common)
    options = {"name": name.replace("-", "_"), "dtype": dtype}
    return Classifier(encoder, outputs, config.dropout, **options)


def settings_of_network(network: Classifier) -> dict[str, Any]:
    """Return the keys of a configuration that say what a network is made of, as far as they do."""
    encoder = network.encoder
    names = {HierarchicalEncoder: "han", CrossEncoder: "cross", InnerEncoder: "inner"}
    if isinstance(encoder, BackboneEncoder):
        return {"model.architecture": "backbone", **encoder.reader.settings()}
    context, vectors = getattr(encoder, "context", None), getattr(encoder, "vectors", None)
    if not (isinstance(context, Contextual) and isinstance(vectors, WordVectors)):
        return {}
    is_mean = isinstance(encoder, FlatEncoder) and encoder.pool.kind == "mean"
    found = {"model.architecture": "mean" if is_mean else names.get(type(encoder), "pooling")}
    found["model.embedding_size"] = vectors.size
    found |= {
        "model.embedding_dropout": vectors.dropout,
        "model.word_dropout": vectors.word_dropout,
    }
    if context.kind in STACKS:
        found |= {"model.architecture": context.kind, "model.layer_dropout": context.dropout}
        found |= {
            f"model.{name}": getattr(context, name) for name in ("layers", "heads", "positions")
        }
    else:
        found["model.encoder"] = context.kind
        found |= {} if context.units is None else {"model.units": context.units}
    if isinstance(encoder, (CrossEncoder, InnerEncoder)):
        found["model.exact_match"] = encoder.exact_match
    return found
