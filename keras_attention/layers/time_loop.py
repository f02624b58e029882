"""A loop over the steps of sequences, on every backend, and what goes in and out of it."""

import keras
from keras import ops


class LoopCell:
    """A function of one step in the form in which `keras.layers.RNN` takes a cell."""

    def __init__(self, step):
        self.step = step
        self.state_size = self.output_size = 1

    def call(self, inputs, states):
        return self.step(inputs, states)

    __call__ = call


def run_loop(step, sequence, states, reverse=False):
    """Run `step(x, states) -> (outputs, states)` over the steps of a sequence `(B, T, D)`.

    `keras.layers.RNN` is the loop that Keras offers on every backend. Its inner loop is called,
    since the layer itself would cast every state, integers and masks too, to a float dtype.

    Args:
        step: The function; its outputs are a list of tensors `(B, ...)`.
        sequence: What it reads a slice of at each step.
        states: The list of its first states.
        reverse: Whether to begin with the last step. Outputs are in the order of the sequence.

    Returns:
        The list of outputs `(B, T, ...)` and the list of states after the last step.
    """
    loop = keras.layers.RNN(LoopCell(step), return_sequences=True)
    # Not `go_backwards`: on JAX it takes a single output only.
    sequence = ops.flip(sequence, axis=1) if reverse else sequence
    _, outputs, states = loop.inner_loop(sequence, list(states), mask=None)
    outputs = [ops.flip(output, axis=1) if reverse else output for output in outputs]
    return outputs, list(states)


def shift(first, sequence):
    """Return what each step had before it: `first`, then the sequence but for its last."""
    return ops.concatenate([ops.expand_dims(first, 1), sequence[:, :-1]], axis=1)


def pack(columns):
    """Concatenate sequences to one, and give the function that takes a slice of it apart."""
    ends, end = [], 0
    for column in columns.values():
        end = end + ops.shape(column)[2]
        ends.append(end)

    def unpack(x):
        starts = [0, *ends[:-1]]
        return {
            name: x[:, start:end] for name, start, end in zip(columns, starts, ends, strict=True)
        }

    return ops.concatenate(list(columns.values()), axis=2), unpack
