"""Recurrent cells in NumPy float64: one step of one example.

A cell is a list of layers from the bottom up, each `{"kind": ..., "units": ..., weights...}`; a
single cell is a list of one. States are flat, in Keras' order (LSTM: hidden, then cell state).
"""

import numpy as np


def sigmoid(x):
    """The logistic function."""
    return 1.0 / (1.0 + np.exp(-x))


def _simple(layer, x, states):
    output = np.tanh(x @ layer["kernel"] + states[0] @ layer["recurrent_kernel"] + layer["bias"])
    return output, [output]


def _gru(layer, x, states):
    hidden, units = states[0], layer["units"]
    if layer["bias"].ndim == 2:  # reset_after: a bias of its own for the recurrent product
        inner = x @ layer["kernel"] + layer["bias"][0]
        recurrent = hidden @ layer["recurrent_kernel"] + layer["bias"][1]
        gates = sigmoid(inner[: 2 * units] + recurrent[: 2 * units])
        update, reset = gates[:units], gates[units:]
        candidate = np.tanh(inner[2 * units :] + reset * recurrent[2 * units :])
    else:
        inner = x @ layer["kernel"] + layer["bias"]
        recurrent = hidden @ layer["recurrent_kernel"][:, : 2 * units]
        gates = sigmoid(inner[: 2 * units] + recurrent)
        update, reset = gates[:units], gates[units:]
        remembered = (reset * hidden) @ layer["recurrent_kernel"][:, 2 * units :]
        candidate = np.tanh(inner[2 * units :] + remembered)
    output = update * hidden + (1.0 - update) * candidate
    return output, [output]


def _lstm(layer, x, states):
    hidden, carry = states
    gates = x @ layer["kernel"] + hidden @ layer["recurrent_kernel"] + layer["bias"]
    enter, forget, candidate, leave = np.split(gates, 4)
    carry = sigmoid(forget) * carry + sigmoid(enter) * np.tanh(candidate)
    output = sigmoid(leave) * np.tanh(carry)
    return output, [output, carry]


def _leaky(layer, x, states):
    """The user's own cell of `registry.py`: a leaky average, and an output that is twice that."""
    state = 0.7 * states[0] + 0.3 * np.tanh(x @ layer["kernel"])
    return 2.0 * state, [state]


STEPS = {"simple": (_simple, 1), "gru": (_gru, 1), "lstm": (_lstm, 2), "leaky": (_leaky, 1)}


def step_cell(cell, x, states):
    """One step of a stack: output and new flat states."""
    new_states, place = [], 0
    for layer in cell:
        step, count = STEPS[layer["kind"]]
        x, layer_states = step(layer, x, states[place : place + count])
        new_states.extend(layer_states)
        place += count
    return x, new_states


def state_sizes(cell):
    """The widths of a stack's flat states."""
    return [layer["units"] for layer in cell for _ in range(STEPS[layer["kind"]][1])]
