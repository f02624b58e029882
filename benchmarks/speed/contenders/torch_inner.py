"""GRUs with attention before their state as one writes them in PyTorch: a cell, a Python loop."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.contenders.torch_decoder import _swap_gates
from benchmarks.speed.problems import LEARNING_RATE, make_inputs, make_weights


class GateCell(nn.Module):
    """The query takes part in the gates; what it adds is computed once, by `project`."""

    def __init__(self, units: int):
        super().__init__()
        self.input_layer = nn.Linear(units, 3 * units)
        self.gate_layer = nn.Linear(units, 2 * units, bias=False)
        self.candidate_layer = nn.Linear(units, units, bias=False)
        self.query_layer = nn.Linear(units, 2 * units, bias=False)

    def project(self, query):
        return self.query_layer(query)

    def forward(self, inputs, asked, state):
        gates, candidate = self.input_layer(inputs).split([2 * state.shape[1], state.shape[1]], 1)
        z, f = torch.sigmoid(gates + asked + self.gate_layer(state)).chunk(2, dim=1)
        candidate = torch.tanh(candidate + self.candidate_layer(f * state))
        return (1 - z) * state + z * candidate


class WeighingCell(nn.Module):
    """Each word is weighed by the query, or by query and state, then read by `nn.GRUCell`."""

    def __init__(self, units: int, by_state: bool):
        super().__init__()
        self.cell = nn.GRUCell(units, units)
        self.query_layer = nn.Linear(units, units, bias=False)
        self.state_layer = nn.Linear(units, units, bias=False) if by_state else None

    def project(self, query):
        return self.query_layer(query)

    def forward(self, inputs, asked, state):
        if self.state_layer is not None:
            asked = asked + self.state_layer(state)
        weight = torch.sigmoid((asked * inputs).sum(dim=1, keepdim=True))
        return self.cell(weight * inputs, state)


class Loop(nn.Module):
    """A cell over all steps."""

    def __init__(self, cell: nn.Module):
        super().__init__()
        self.cell = cell

    def forward(self, inputs, query, state):
        asked, outputs = self.cell.project(query), []
        for step_inputs in inputs.unbind(1):
            state = self.cell(step_inputs, asked, state)
            outputs.append(state)
        return torch.stack(outputs, dim=1)


def _split_gates(array: np.ndarray) -> list[np.ndarray]:
    """The gates' columns and the candidate's, each as a linear layer holds it."""
    gates = 2 * array.shape[1] // 3
    return [array[:, :gates].T, array[:, gates:].T]


def _places(cell) -> dict[str, tuple]:
    """For each shared name: parameters, from the shared layout to theirs, and back."""

    def transposed(layer):
        return [layer.weight], lambda array: [array.T], lambda parts: parts[0].T

    if isinstance(cell, GateCell):
        recurrent = [cell.gate_layer.weight, cell.candidate_layer.weight]
        return {
            "kernel": transposed(cell.input_layer),
            "recurrent_kernel": (recurrent, _split_gates, lambda parts: np.concatenate(parts).T),
            "bias": ([cell.input_layer.bias], lambda array: [array], lambda parts: parts[0]),
            "query_kernel": transposed(cell.query_layer),
        }

    def gates(parameter):
        return [parameter], lambda a: [_swap_gates(a).T], lambda parts: _swap_gates(parts[0].T)

    places = {
        "kernel": gates(cell.cell.weight_ih),
        "recurrent_kernel": gates(cell.cell.weight_hh),
        "bias": (
            [cell.cell.bias_ih, cell.cell.bias_hh],
            _swap_gates,
            lambda parts: _swap_gates(np.stack(parts)),
        ),
        "attention_kernel": transposed(cell.query_layer),
    }
    if cell.state_layer is not None:
        places["recurrent_attention_kernel"] = transposed(cell.state_layer)
    return places


class TorchInner:
    """One of the cells with the shared weights."""

    def __init__(self, problem, compiled: bool):
        units = problem.size.units
        if problem.kind == "inner-gate":
            cell = GateCell(units)
        else:
            cell = WeighingCell(units, by_state=problem.kind == "inner-context")
        self.module, self._places = Loop(cell), _places(cell)
        weights = make_weights(problem)
        with torch.no_grad():
            for name, (parameters, there, _) in self._places.items():
                for parameter, array in zip(parameters, there(weights[name]), strict=True):
                    parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
        arrays = {name: torch.from_numpy(array) for name, array in make_inputs(problem).items()}
        self._state, self._targets = arrays["states"][0], arrays["targets"]
        # an embedding and a net that reads the question stand before it, and train with it
        self._moving = {name: arrays[name].requires_grad_(True) for name in ("inputs", "value")}
        self._call = torch.compile(self.module) if compiled else self.module
        self._optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE)

    def _outputs(self):
        return self._call(self._moving["inputs"], self._moving["value"][:, 0], self._state)

    def forward(self) -> np.ndarray:
        with torch.inference_mode():
            return self._outputs().numpy()

    def train(self):
        for tensor in self._moving.values():
            tensor.grad = None
        self._optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self._outputs(), self._targets)
        loss.backward()
        self._optimizer.step()
        return loss.item(), self._gradients

    def _gradients(self) -> dict[str, np.ndarray]:
        """The last step's gradients in the shared names and layout."""
        gradients = {
            name: back([parameter.grad.numpy() for parameter in parameters])
            for name, (parameters, _, back) in self._places.items()
        }
        return gradients | {name: tensor.grad.numpy() for name, tensor in self._moving.items()}
