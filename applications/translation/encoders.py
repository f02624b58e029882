"""Encoders of source sentences: embedded words in, one vector a word and start states out."""

import keras
from keras import ops

from keras_attention.applications.translation.recurrent import ProjectedGRUCell, hold_where_masked


@keras.saving.register_keras_serializable("keras_attention.translation")
class BidirectionalEncoder(keras.layers.Layer):
    """Bidirectional GRU over the source, the encoder of Bahdanau et al. (2015).

    Each word's annotation joins the state of a GRU that has read up to it and of one that has
    read back to it: $h_s = [\\overrightarrow{h}_s; \\overleftarrow{h}_s]$. The cell is
    `ProjectedGRUCell`, the paper's.

    Masked words leave the states as they are. Where a whole row is masked, its
    annotations and states are zeros.

    Args:
        units: Integer, the units of each direction.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded source, `(B, S, E)`.
        mask: Boolean `(B, S)`, True where there is a word.

    Returns:
        `(annotations, forward, backward)`: `(B, S, 2U)`, the state `(B, U)` after the last word and
        the backward state `(B, U)` at the first word.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473), section 3.2
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.supports_masking = True
        self.projection = keras.layers.Dense(6 * units, name="projection", dtype=self.dtype_policy)
        self.forward_layer = self._direction("forward", False)
        self.backward_layer = self._direction("backward", True)

    def _direction(self, name, go_backwards):
        return keras.layers.RNN(
            ProjectedGRUCell(self.units, name="cell", dtype=self.dtype_policy),
            return_sequences=True,
            go_backwards=go_backwards,
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape):
        self.projection.build(tuple(input_shape))
        self.forward_layer.build((*input_shape[:2], 3 * self.units))
        self.backward_layer.build((*input_shape[:2], 3 * self.units))

    def call(self, inputs, mask=None):
        forward, backward = ops.split(self.projection(inputs), 2, axis=-1)
        if mask is not None:
            forward, backward = hold_where_masked(forward, mask), hold_where_masked(backward, mask)
        forward = self.forward_layer(forward)
        backward = ops.flip(self.backward_layer(backward), axis=1)
        annotations = ops.concatenate([forward, backward], axis=-1)
        return annotations, forward[:, -1], backward[:, 0]

    def compute_mask(self, inputs, previous_mask):
        return None  # Whoever attends is handed the mask by name.

    def compute_output_shape(self, input_shape):
        state = (input_shape[0], self.units)
        return (*input_shape[:2], 2 * self.units), state, state

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("keras_attention.translation")
class StackedEncoder(keras.layers.Layer):
    """Stacked unidirectional LSTM over the source, the encoder of Luong et al. (2015).

    Args:
        units: Integer, the units of each layer.
        layers: Integer, how many layers are stacked.
        dropout: Rate of the dropout between the layers.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded source, `(B, S, E)`.
        mask: Boolean `(B, S)`, True where there is a word.
        training: Boolean, whether dropout acts.

    Returns:
        `(outputs, states)`: the top layer's outputs `(B, S, U)`, and the flat list of every layer's
        final states in the cells' order, `[h_1, c_1, h_2, c_2, ...]`, each `(B, U)`.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), sections 2 and 4.1
    """

    def __init__(self, units: int, layers: int = 1, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.layers = layers
        self.dropout = dropout
        self.supports_masking = True
        self.stack = [
            keras.layers.LSTM(
                units,
                return_sequences=True,
                return_state=True,
                name=f"lstm_{index}",
                dtype=self.dtype_policy,
            )
            for index in range(layers)
        ]
        self.between = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        shape = tuple(input_shape)
        for layer in self.stack:
            layer.build(shape)
            shape = (*shape[:2], self.units)

    def call(self, inputs, mask=None, training=None):
        outputs, states = inputs, []
        for index, layer in enumerate(self.stack):
            if index:
                outputs = self.between(outputs, training=training)
            outputs, hidden, carry = layer(outputs, mask=mask)
            states += [hidden, carry]
        return outputs, states

    def compute_mask(self, inputs, previous_mask):
        return None  # Whoever attends is handed the mask by name.

    def compute_output_shape(self, input_shape):
        state = (input_shape[0], self.units)
        return (*input_shape[:2], self.units), [state] * (2 * self.layers)

    def get_config(self):
        config = {"units": self.units, "layers": self.layers, "dropout": self.dropout}
        return {**super().get_config(), **config}


def padding_mask(ids):
    """Return the boolean mask of token ids, True where there is a word (pad is 0)."""
    return ops.not_equal(ids, 0)
