"""The same computations from plain Keras layers, in the two forms that Keras users write."""

import keras
import numpy as np
from keras import ops

from benchmarks.speed.contenders.keras_program import KerasProgram
from benchmarks.speed.problems import heads_of, make_weights


def _dense(units: int, rows: int, **arguments) -> keras.layers.Dense:
    layer = keras.layers.Dense(units, use_bias=False, **arguments)
    layer.build((None, rows))
    return layer


class KerasAttention(KerasProgram):
    """`Dense` on queries and on keys, then `keras.layers.AdditiveAttention`."""

    def build(self, problem):
        units = problem.size.units
        self._query, self._key = _dense(units, units), _dense(units, units)
        self._attention = keras.layers.AdditiveAttention()
        self._attention.build([(None, None, units)] * 3)
        return {
            "query_kernel": self._query.kernel,
            "key_kernel": self._key.kernel,
            "score_vector": self._attention.scale,
        }

    def call(self, inputs, value, mask, states):
        arguments = [self._query(inputs), value, self._key(value)]
        return self._attention(arguments, mask=[None, mask])


class BahdanauStep(keras.layers.Layer):
    """One step: the state before asks, the context enters the gates beside the input."""

    def __init__(self, units: int):
        super().__init__()
        self.query, self.key = _dense(units, units), _dense(units, units)
        self.attention = keras.layers.AdditiveAttention()
        self.attention.build([(None, None, units)] * 3)
        self.cell = keras.layers.GRUCell(units)
        self.cell.build((None, 2 * units))
        self.built = True

    def weights_by_name(self):
        return _cell_weights(self.cell) | {
            "query_kernel": self.query.kernel,
            "key_kernel": self.key.kernel,
            "score_vector": self.attention.scale,
        }

    def first_states(self, states):
        return [states[0]]

    def call(self, inputs, states, value, keys, mask):
        query = self.query(states[0])[:, None]
        context = self.attention([query, value, keys], mask=[None, mask])[:, 0]
        return self.cell(ops.concatenate([inputs, context], axis=-1), states)


class LuongStep(keras.layers.Layer):
    """One step: the state after asks, the attentional vector is fed to the next step."""

    def __init__(self, units: int):
        super().__init__()
        # q W k: the layer that makes W k of the keys holds W transposed
        self.key = _dense(units, units)
        self.attention = keras.layers.Attention()
        self.attention.build([(None, None, units)] * 3)
        self.cell = keras.layers.LSTMCell(units)
        self.cell.build((None, 2 * units))
        self.attentional = _dense(units, 2 * units, activation="tanh")
        self.built = True

    def weights_by_name(self):
        return _cell_weights(self.cell) | {
            "score_kernel": self.key.kernel,
            "attentional_kernel": self.attentional.kernel,
        }

    def first_states(self, states):
        return [states[0], states[1], ops.zeros_like(states[0])]

    def call(self, inputs, states, value, keys, mask):
        hidden, carry, fed = states
        fed_inputs = ops.concatenate([inputs, fed], axis=-1)
        hidden, (_, carry) = self.cell(fed_inputs, [hidden, carry])
        context = self.attention([hidden[:, None], value, keys], mask=[None, mask])[:, 0]
        output = self.attentional(ops.concatenate([context, hidden], axis=-1))
        return output, [hidden, carry, output]


def _cell_weights(cell):
    return {name: getattr(cell, name) for name in ("kernel", "recurrent_kernel", "bias")}


class MemoryCell(keras.layers.Layer):
    """A cell whose state carries the memory unchanged, as `keras.layers.RNN` has no constants."""

    def __init__(self, step, units: int, memory: int, states: int):
        super().__init__()
        self.step = step
        self.state_size = [units] * states + [(memory, units), (memory, units), memory]
        self.output_size = units
        self.built = True

    def call(self, inputs, states):
        *own, value, keys, mask = states
        output, own = self.step(inputs, own, value, keys, ops.cast(mask, "bool"))
        return output, [*own, value, keys, mask]


class _KerasDecoder(KerasProgram):
    transposed = frozenset({"score_kernel"})

    def build(self, problem):
        units = problem.size.units
        self._step_layer = (BahdanauStep if problem.kind == "bahdanau" else LuongStep)(units)
        return self._step_layer.weights_by_name()


class RNNDecoder(_KerasDecoder):
    """`keras.layers.RNN` over a cell that carries value, projected keys and mask in its state."""

    def build(self, problem):
        variables = super().build(problem)
        size, states = problem.size, 1 if problem.kind == "bahdanau" else 3
        cell = MemoryCell(self._step_layer, size.units, size.memory, states)
        self._rnn = keras.layers.RNN(cell, return_sequences=True)
        return variables

    def call(self, inputs, value, mask, states):
        step = self._step_layer
        memory = [value, step.key(value), ops.cast(mask, value.dtype)]
        return self._rnn(inputs, initial_state=[*step.first_states(states), *memory])


class LoopDecoder(_KerasDecoder):
    """A Python loop over the steps, unrolled into the graph."""

    def call(self, inputs, value, mask, states):
        step = self._step_layer
        keys, states, outputs = step.key(value), step.first_states(states), []
        for index in range(inputs.shape[1]):
            output, states = step(inputs[:, index], states, value, keys, mask)
            outputs.append(output)
        return ops.stack(outputs, axis=1)


class InnerCell(keras.layers.Layer):
    """A GRU cell with attention before its state, as it is written down; the query in its state."""

    def __init__(self, problem):
        super().__init__()
        self.kind, units = problem.kind, problem.size.units
        self.state_size = [units, units]
        self.output_size = self.units = units
        for name, array in make_weights(problem).items():
            setattr(self, name, self.add_weight(array.shape, name=name))
        self.built = True

    def call(self, inputs, states):
        hidden, query = states
        if self.kind == "inner-gate":
            return self._gate(inputs, hidden, query)
        asking = ops.matmul(query, self.attention_kernel)
        if self.kind == "inner-context":
            asking = asking + ops.matmul(hidden, self.recurrent_attention_kernel)
        inputs = inputs * ops.sigmoid(ops.sum(asking * inputs, axis=1, keepdims=True))
        products = ops.matmul(inputs, self.kernel) + self.bias[0]
        z, f, candidate = ops.split(products, 3, axis=1)
        recurrent = ops.matmul(hidden, self.recurrent_kernel) + self.bias[1]
        again_z, again_f, again = ops.split(recurrent, 3, axis=1)
        z, f = ops.sigmoid(z + again_z), ops.sigmoid(f + again_f)
        after = z * hidden + (1 - z) * ops.tanh(candidate + f * again)
        return after, [after, query]

    def _gate(self, inputs, hidden, query):
        gates, units = 2 * self.units, self.units
        products = ops.matmul(inputs, self.kernel) + self.bias
        both = products[:, :gates] + ops.matmul(query, self.query_kernel)
        both = ops.sigmoid(both + ops.matmul(hidden, self.recurrent_kernel[:, :gates]))
        z, f = both[:, :units], both[:, units:]
        candidate = ops.matmul(f * hidden, self.recurrent_kernel[:, gates:])
        candidate = ops.tanh(products[:, gates:] + candidate)
        after = (1 - z) * hidden + z * candidate
        return after, [after, query]


class InnerRNN(KerasProgram):
    """`keras.layers.RNN` over a cell that carries the query in its state."""

    def build(self, problem):
        cell = InnerCell(problem)
        self._rnn = keras.layers.RNN(cell, return_sequences=True)
        return {name: getattr(cell, name) for name in make_weights(problem)}

    def call(self, inputs, value, mask, states):
        return self._rnn(inputs, initial_state=[states[0], value[:, 0]])


class PlainGRU(KerasProgram):
    """`keras.layers.GRU` of the same size, which attends to nothing."""

    def build(self, problem):
        size = problem.size
        self._layer = keras.layers.GRU(size.units, return_sequences=True)
        self._layer.build((size.batch, size.steps, size.units))
        names = ("kernel", "recurrent_kernel", "bias")
        return {name: getattr(self._layer.cell, name) for name in names}

    def _turn(self, name, array):
        # Keras' GRU has two biases, where one kind of ours has one.
        return np.stack([array, array]) if name == "bias" and array.ndim == 1 else array

    def call(self, inputs, value, mask, states):
        return self._layer(inputs, initial_state=states[0])


class KerasSelfAttention(KerasProgram):
    """`keras.layers.MultiHeadAttention`, causal."""

    differentiated = ("inputs",)

    def build(self, problem):
        units = problem.size.units
        heads = heads_of(units)
        self._layer = keras.layers.MultiHeadAttention(heads, units // heads, use_bias=False)
        shape = (problem.size.batch, problem.size.steps, units)
        self._layer.build(shape, shape)
        names = ("query_kernel", "key_kernel", "value_kernel", "output_kernel")
        return dict(zip(names, self._layer.trainable_weights, strict=True))

    def call(self, inputs, value, mask, states):
        return self._layer(inputs, inputs, use_causal_mask=True)
