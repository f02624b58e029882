"""From the configuration to a model: the only place here that sees a configuration."""

import keras
from keras import ops

from keras_attention.applications.classification.backbone_encoder import OFFSET, BackboneEncoder
from keras_attention.applications.classification.backbones import Pretrained
from keras_attention.applications.classification.context import Contextual
from keras_attention.applications.classification.encoders import FlatEncoder, HierarchicalEncoder
from keras_attention.applications.classification.model_config import ModelConfig
from keras_attention.applications.classification.pairs import build_pair_encoder
from keras_attention.applications.classification.pools import Pool
from keras_attention.applications.classification.words import PACKAGE, WordVectors

__all__ = ["Classifier", "FlatEncoder", "HierarchicalEncoder", "build_model"]


@keras.saving.register_keras_serializable(PACKAGE)
class Classifier(keras.Model):
    """An encoder of texts, and a score for each label.

    ```
    scores          = model({"text": ids})             # (B, outputs)
    scores, weights = model.attend({"text": ids})      # and the weights of the words
    ```

    The scores are logits, of a softmax where a text has one label and of a sigmoid each where it
    may have many; or one standardised number. They are at least float32.

    Args:
        encoder: a layer from inputs to a vector and a dictionary of attention weights, like
            `FlatEncoder` and `HierarchicalEncoder`.
        outputs: how many scores there are.
        dropout: rate of dropout on the vector.
        **kwargs: `name`, `dtype` and the like of `keras.Model`.

    Call arguments:
        inputs: a dictionary of ids: `text` `(B, S)`, or `(B, N, W)` for a hierarchical encoder,
            and for pairs `second`; 0 is padding.
        training: whether dropout applies.
    """

    def __init__(self, encoder, outputs, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.outputs_count = outputs
        self.dropout = dropout
        self._dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.answer = keras.layers.Dense(outputs, name="answer", dtype=self.dtype_policy)

    def call(self, inputs, training=False):
        return self.attend(inputs, training=training)[0]

    def attend(self, inputs, training=False):
        """Return the scores `(B, outputs)` and the attention weights of the encoder."""
        vector, weights = self.encoder(inputs, training=training)
        scores = self.answer(self._dropout(vector, training=training))
        return ops.cast(scores, keras.backend.result_type(scores.dtype, "float32")), weights

    def get_config(self):
        return {
            **super().get_config(),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "outputs": self.outputs_count,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        encoder = keras.saving.deserialize_keras_object(config["encoder"])
        return cls(**{**config, "encoder": encoder})


def build_model(
    config: ModelConfig, vocabulary_size: int, outputs: int, pretrained: Pretrained | None = None
) -> Classifier:
    """Build the model that a configuration describes, with new weights.

    Args:
        config: the `model` section.
        vocabulary_size: how many ids there are, padding included.
        outputs: how many scores the model gives.
        pretrained: the backbone, loaded, for architecture backbone.

    Returns:
        The model, built.
    """
    if pretrained is not None:
        return _around_backbone(config, outputs, pretrained)
    dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    vectors = WordVectors(
        vocabulary_size, config.embedding_size, dropout, config.word_dropout, name="vectors"
    )
    name = config.architecture
    if name == "han":
        parts = [vectors]
        for level in ("", "sentence_"):
            parts += [_context(config, f"{level}context"), _pool(config, f"{level}pool")]
        encoder = HierarchicalEncoder(*parts, name="encoder")
    elif name in ("cross", "inner"):
        encoder = build_pair_encoder(config, vectors, _context, _pool)
    else:
        encoder = FlatEncoder(
            vectors, _context(config, "context"), _pool(config, "pool"), name="encoder"
        )
    model = Classifier(encoder, outputs, config.dropout, name=name.replace("-", "_"))
    ids = ops.zeros((2, 3, 4) if name == "han" else (2, 4), "int32") + 4
    model({"text": ids, "second": ids} if name in ("cross", "inner") else {"text": ids})
    return model


def _around_backbone(config: ModelConfig, outputs: int, pretrained: Pretrained) -> Classifier:
    encoder = BackboneEncoder(
        pretrained.backbone,
        _pool(config, "pool"),
        **pretrained.marks,
        fine_tuned=config.chosen("fine_tune"),
        name="encoder",
    )
    model = Classifier(encoder, outputs, config.dropout, name="backbone")
    model({"text": ops.zeros((2, 4), "int32") + OFFSET})
    return model


def _context(config: ModelConfig, name: str) -> Contextual:
    stack = config.architecture in ("self-attention", "transformer")
    options = {}
    if stack:
        names = ("layers", "heads", "positions", "feed_forward")
        options = {name: config.chosen(name) for name in names}
        options["dropout"] = config.chosen("layer_dropout")
    kind = config.architecture if stack else config.chosen("encoder")
    return Contextual(kind, config.units, name=name, **options)


def _pool(config: ModelConfig, name: str) -> Pool:
    kind = "mean" if config.architecture == "mean" else "attention"
    units = config.attention_units or config.units
    return Pool(kind, units, config.max_pooling, name=name)
