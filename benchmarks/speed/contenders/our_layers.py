"""This package's layers, called as a user calls them."""

import keras

from benchmarks.speed.contenders.keras_program import KerasProgram
from benchmarks.speed.problems import heads_of, make_weights
from keras_attention import (
    AttentionDecoder,
    BahdanauAttention,
    InnerAttentionGRU,
    LuongAttention,
    MultiHeadAttention,
)


class OurDecoder(KerasProgram):
    """`AttentionDecoder` in Bahdanau's order over a GRU, or Luong's over an LSTM."""

    def build(self, problem):
        size, units = problem.size, problem.size.units
        if problem.kind == "bahdanau":
            layer = AttentionDecoder(keras.layers.GRUCell(units), BahdanauAttention(units))
            names = ["query_kernel", "key_kernel", "score_vector"]
        else:
            cell, attention = keras.layers.LSTMCell(units), LuongAttention(score="general")
            layer = AttentionDecoder(cell, attention, query="current", input_feeding=True)
            names = ["score_kernel"]
        layer.build((size.batch, size.steps, units), (size.batch, size.memory, units))
        self._layer, self._state_count = layer, 1 if problem.kind == "bahdanau" else 2
        variables = {name: getattr(layer.attention, name) for name in names}
        for name in ("kernel", "recurrent_kernel", "bias"):
            variables[name] = getattr(layer.cell, name)
        if problem.kind == "luong":
            variables["attentional_kernel"] = layer.attentional_kernel
        return variables

    def call(self, inputs, value, mask, states):
        states = [states[index] for index in range(self._state_count)]
        return self._layer(inputs, value, initial_state=states, value_mask=mask)


class OurAttention(KerasProgram):
    """`BahdanauAttention` over a whole sequence of queries."""

    def build(self, problem):
        size = problem.size
        self._layer = BahdanauAttention(size.units)
        query_shape = (size.batch, size.steps, size.units)
        self._layer.build(query_shape, (size.batch, size.memory, size.units))
        names = ("query_kernel", "key_kernel", "score_vector")
        return {name: getattr(self._layer, name) for name in names}

    def call(self, inputs, value, mask, states):
        return self._layer(inputs, value, value_mask=mask)


class OurInnerAttention(KerasProgram):
    """`InnerAttentionGRU`; the memory's one vector asks."""

    def build(self, problem):
        size, attention = problem.size, problem.kind.removeprefix("inner-")
        self._layer = InnerAttentionGRU(size.units, attention, return_sequences=True)
        self._layer.build((size.batch, size.steps, size.units), (size.batch, size.units))
        return {name: getattr(self._layer.cell, name) for name in make_weights(problem)}

    def call(self, inputs, value, mask, states, training=False):
        return self._layer(inputs, value[:, 0], initial_state=states[0], training=training)

    def call_in_training(self, *arrays):
        return self.call(*arrays, training=True)


class OurSelfAttention(KerasProgram):
    """`MultiHeadAttention`, causal."""

    differentiated = ("inputs",)

    def build(self, problem):
        units = problem.size.units
        heads = heads_of(units)
        self._layer = MultiHeadAttention(heads, units // heads, use_bias=False)
        self._layer.build((problem.size.batch, problem.size.steps, units))
        names = ("query_kernel", "key_kernel", "value_kernel", "output_kernel")
        return {name: getattr(self._layer, name) for name in names}

    def call(self, inputs, value, mask, states):
        return self._layer(inputs, use_causal_mask=True)
