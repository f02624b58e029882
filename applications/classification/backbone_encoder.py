"""The encoder around a pretrained backbone: texts packed as it wants them, its states pooled."""

import keras
from keras import ops

from keras_attention.applications.classification.encoders import TextEncoder
from keras_attention.applications.classification.pools import Pool
from keras_attention.applications.classification.words import PACKAGE, build_once
from keras_attention.text import PAD_ID, SPECIAL_TOKENS

SIDES = ("text", "second")
# Ids of a backbone's vocabulary come after the ids that batches and readers keep for themselves.
OFFSET = len(SPECIAL_TOKENS)


@keras.saving.register_keras_serializable(PACKAGE)
class BackboneEncoder(TextEncoder):
    """A text, or a pair in one sequence, as a pretrained backbone reads it, pooled by attention.

    A pair becomes `start text separator second end`, a single text `start text end`. The states of
    the words alone are pooled: a backbone's own attention rests on the marks when it has nothing to
    say, and pooling would learn to rest there too.

    Args:
        backbone: a model of `keras_nlp.models` from `token_ids`, `padding_mask` and, where it has
            them, `segment_ids` to a state for each token.
        pool: a `Pool`.
        start: the ids before the first text, of the backbone's vocabulary.
        separator: the ids between two texts.
        end: the ids after the last text.
        padding: the id of the places behind it.
        fine_tuned: whether the backbone is trained; else it is frozen and without dropout.
        **kwargs: arguments of every Keras layer.

    Call arguments:
        inputs: a dictionary with `text` `(B, S)`, and for pairs `second`: ids of the vocabulary
            plus 4, 0 is padding.
        training: whether dropout applies.

    Reference:
        Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers for language
        understanding", sections 3 and 5.3 (feature-based).
    """

    parts = ("backbone", "pool")

    backbone: keras.Model
    pool: Pool

    def __init__(self, *layers, start, separator, end, padding, fine_tuned=False, **kwargs):
        super().__init__(*layers, **kwargs)
        self.start = list(start)
        self.separator = list(separator)
        self.end = list(end)
        self.padding = padding
        self.fine_tuned = fine_tuned
        self.backbone.trainable = fine_tuned
        for layer in _unused(self.backbone):
            layer.trainable = False

    def build(self, inputs_shape):
        build_once(self.pool, tuple(_states_of(self.backbone.output).shape))

    def call(self, inputs, training=False):
        texts = [inputs[side] for side in SIDES if side in inputs]
        packed, is_word, place = self._packed(texts)
        given = {name: packed[name] for name in self.backbone.input}
        states = _states_of(self.backbone(given, training=bool(training) and self.fine_tuned))
        if not self.fine_tuned:
            states = ops.stop_gradient(states)
        vector, weights = self.pool(states, is_word)
        found = [ops.take_along_axis(weights, each, axis=1) for each in place]
        found = [
            ops.where(ops.not_equal(text, PAD_ID), each, ops.zeros_like(each))
            for text, each in zip(texts, found, strict=True)
        ]
        return vector, dict(zip(("words", "second"), found, strict=False))

    def _packed(self, texts):
        """Return what the backbone reads, which places hold words, and each text's places."""
        last = len(texts) - 1
        columns = [_mark(self.start, texts[0], 0)]
        for number, text in enumerate(texts):
            there = ops.not_equal(text, PAD_ID)
            columns.append((text - OFFSET, there, there, ops.full_like(text, number)))
            columns.append(_mark(self.end if number == last else self.separator, text, number))
        tokens, there, is_word, segments = (
            ops.concatenate(each, axis=1) for each in zip(*columns, strict=True)
        )
        # What is there goes to the front in its order, the padding of each text to the end.
        length = ops.shape(tokens)[1]
        index = ops.expand_dims(ops.arange(length), 0)
        order = ops.argsort(ops.where(there, index, index + length), axis=1)
        tokens, there_now, is_word, segments = (
            ops.take_along_axis(each, order, axis=1) for each in (tokens, there, is_word, segments)
        )
        packed = {
            "token_ids": ops.where(there_now, tokens, self.padding),
            "padding_mask": ops.cast(there_now, "int32"),
            "segment_ids": ops.where(there_now, segments, 0),
        }
        place = ops.maximum(ops.cumsum(ops.cast(there, "int32"), axis=1) - 1, 0)
        places, first = [], len(self.start)
        for text in texts:
            places.append(place[:, first : first + ops.shape(text)[1]])
            first = first + ops.shape(text)[1] + len(self.separator)
        return packed, is_word, places

    def get_config(self):
        names = ("start", "separator", "end", "padding", "fine_tuned")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config):
        import keras_nlp  # noqa: F401, which registers its backbones for reading files

        return super().from_config(config)


def _states_of(outputs):
    """Return the states `(B, L, D)` among what a backbone gives."""
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def _unused(backbone):
    """Return the layers that the states do not come from, like a dense one behind the first."""
    states = _states_of(backbone.output)
    used = {id(layer) for layer in keras.Model(backbone.input, states).layers}
    return [layer for layer in backbone.layers if id(layer) not in used]


def _mark(ids, text, segment):
    """Return columns of ids that every row has, and that are no words."""
    shape = (ops.shape(text)[0], len(ids))
    rows = ops.broadcast_to(ops.convert_to_tensor([ids], "int32"), shape)
    there = ops.ones(shape, "bool")
    return rows, there, ops.logical_not(there), ops.full_like(rows, segment)
