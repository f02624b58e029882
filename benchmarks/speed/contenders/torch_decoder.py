"""The decoder loops as one writes them in PyTorch: cells, linear layers, a Python loop."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.problems import LEARNING_RATE, Problem, make_inputs, make_weights


class AdditiveAttention(nn.Module):
    """Bahdanau's score; the keys are projected once for all steps by `project`."""

    def __init__(self, units: int):
        super().__init__()
        self.query_layer = nn.Linear(units, units, bias=False)
        self.key_layer = nn.Linear(units, units, bias=False)
        self.score_layer = nn.Linear(units, 1, bias=False)

    def project(self, value):
        return self.key_layer(value)

    def forward(self, query, keys, value, mask):
        energies = torch.tanh(self.query_layer(query).unsqueeze(1) + keys)
        scores = self.score_layer(energies).squeeze(-1)
        weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return torch.bmm(weights.unsqueeze(1), value).squeeze(1)


class GeneralAttention(nn.Module):
    """Luong's general score; W k is computed once for all steps by `project`."""

    def __init__(self, units: int):
        super().__init__()
        self.key_layer = nn.Linear(units, units, bias=False)

    def project(self, value):
        return self.key_layer(value)

    def forward(self, query, keys, value, mask):
        scores = torch.bmm(keys, query.unsqueeze(2)).squeeze(2)
        weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return torch.bmm(weights.unsqueeze(1), value).squeeze(1)


class BahdanauDecoder(nn.Module):
    """The state before the step asks; the context enters the gates beside the input."""

    def __init__(self, units: int):
        super().__init__()
        self.attention = AdditiveAttention(units)
        self.cell = nn.GRUCell(2 * units, units)

    def forward(self, inputs, value, mask, states):
        keys = self.attention.project(value)
        state, outputs = states[0], []
        for step_inputs in inputs.unbind(1):
            context = self.attention(state, keys, value, mask)
            state = self.cell(torch.cat([step_inputs, context], dim=-1), state)
            outputs.append(state)
        return torch.stack(outputs, dim=1)


class LuongDecoder(nn.Module):
    """The state after the step asks; the attentional vector is fed to the next step."""

    def __init__(self, units: int):
        super().__init__()
        self.attention = GeneralAttention(units)
        self.cell = nn.LSTMCell(2 * units, units)
        self.attentional = nn.Linear(2 * units, units, bias=False)

    def forward(self, inputs, value, mask, states):
        keys = self.attention.project(value)
        hidden, carry = states
        fed, outputs = torch.zeros_like(hidden), []
        for step_inputs in inputs.unbind(1):
            fed_inputs = torch.cat([step_inputs, fed], dim=-1)
            hidden, carry = self.cell(fed_inputs, (hidden, carry))
            context = self.attention(hidden, keys, value, mask)
            fed = torch.tanh(self.attentional(torch.cat([context, hidden], dim=-1)))
            outputs.append(fed)
        return torch.stack(outputs, dim=1)


def _swap_gates(array: np.ndarray) -> np.ndarray:
    """Keras orders a GRU's blocks z, r, h and PyTorch r, z, n; the swap is its own inverse."""
    update, reset, candidate = np.split(array, 3, axis=-1)
    return np.concatenate([reset, update, candidate], axis=-1)


def _same(array: np.ndarray) -> np.ndarray:
    return array


class TorchDecoder:
    """One of the decoders with the shared weights."""

    def __init__(self, problem: Problem, compiled: bool):
        decoder = BahdanauDecoder if problem.kind == "bahdanau" else LuongDecoder
        self._gates = _swap_gates if problem.kind == "bahdanau" else _same
        self.module = decoder(problem.size.units)
        self._load(make_weights(problem))
        arrays = {name: torch.from_numpy(array) for name, array in make_inputs(problem).items()}
        self._targets = arrays.pop("targets")
        self._arguments = arrays
        # an encoder and an embedding stand before a decoder, and train with it
        for name in ("inputs", "value"):
            arrays[name].requires_grad_(True)
        self._call = torch.compile(self.module) if compiled else self.module
        self._optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE)

    def _places(self):
        """(shared name, parameter, to PyTorch's layout, back to the shared layout)."""
        attention, cell, gates = self.module.attention, self.module.cell, self._gates

        def transpose(array):
            return np.ascontiguousarray(array.T)

        places = [
            ("kernel", cell.weight_ih, lambda a: gates(a).T, lambda a: gates(a.T)),
            ("recurrent_kernel", cell.weight_hh, lambda a: gates(a).T, lambda a: gates(a.T)),
        ]
        if isinstance(self.module, LuongDecoder):
            return places + [
                # q W k: the linear layer that gives W k holds W itself
                ("score_kernel", attention.key_layer.weight, _same, _same),
                ("attentional_kernel", self.module.attentional.weight, transpose, transpose),
            ]
        return places + [
            ("query_kernel", attention.query_layer.weight, transpose, transpose),
            ("key_kernel", attention.key_layer.weight, transpose, transpose),
            ("score_vector", attention.score_layer.weight, lambda a: a[None], lambda a: a[0]),
        ]

    def _load(self, weights):
        with torch.no_grad():
            for name, parameter, there, _ in self._places():
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(there(weights[name]))))
            # a Keras GRU has an input and a recurrent bias, its LSTM one: PyTorch's other is zero
            bias = weights["bias"].reshape(-1, weights["kernel"].shape[1])
            self.module.cell.bias_ih.copy_(torch.from_numpy(self._gates(bias[0])))
            self.module.cell.bias_hh.zero_()
            if len(bias) == 2:
                self.module.cell.bias_hh.copy_(torch.from_numpy(self._gates(bias[1])))

    def forward(self) -> np.ndarray:
        with torch.inference_mode():
            return self._call(**self._arguments).numpy()

    def train(self):
        for tensor in (self._arguments["inputs"], self._arguments["value"]):
            tensor.grad = None
        self._optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self._call(**self._arguments), self._targets)
        loss.backward()
        self._optimizer.step()
        return loss.item(), self._gradients

    def _gradients(self) -> dict[str, np.ndarray]:
        """The last step's gradients in the shared names and layout."""
        gradients = {name: back(part.grad.numpy()) for name, part, _, back in self._places()}
        biases = (self.module.cell.bias_ih, self.module.cell.bias_hh)
        biases = [self._gates(part.grad.numpy()) for part in biases]
        is_gru = isinstance(self.module, BahdanauDecoder)
        gradients["bias"] = np.stack(biases) if is_gru else biases[0]
        for name in ("inputs", "value"):
            gradients[name] = self._arguments[name].grad.numpy()
        return gradients
