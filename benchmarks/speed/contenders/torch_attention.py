"""Causal self-attention as one writes it in PyTorch: linear layers around its fused attention."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.problems import LEARNING_RATE, Problem, heads_of, make_inputs, make_weights

NAMES = ("query", "key", "value", "output")


class SelfAttention(nn.Module):
    """One linear layer for queries, keys and values, and one for the output."""

    def __init__(self, units: int):
        super().__init__()
        self.heads = heads_of(units)
        self.inputs_layer = nn.Linear(units, 3 * units, bias=False)
        self.output_layer = nn.Linear(units, units, bias=False)

    def forward(self, inputs):
        batch, steps, units = inputs.shape
        parts = self.inputs_layer(inputs).view(batch, steps, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output_layer(context.transpose(1, 2).reshape(batch, steps, units))


class TorchSelfAttention:
    """The module with the shared weights."""

    def __init__(self, problem: Problem, compiled: bool):
        units = problem.size.units
        shared = make_weights(problem)
        self._shapes = {name: array.shape for name, array in shared.items()}
        weights = {name: array.reshape(units, units).T for name, array in shared.items()}
        joined = np.concatenate([weights[f"{name}_kernel"] for name in NAMES[:3]])
        module = SelfAttention(units)
        with torch.no_grad():
            module.inputs_layer.weight.copy_(torch.from_numpy(joined))
            output = np.ascontiguousarray(weights["output_kernel"])
            module.output_layer.weight.copy_(torch.from_numpy(output))
        arrays = make_inputs(problem)
        self._inputs = torch.from_numpy(arrays["inputs"]).requires_grad_(True)
        self._targets = torch.from_numpy(arrays["targets"])
        self._module = module
        self._call = torch.compile(module) if compiled else module
        self._optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)

    def forward(self) -> np.ndarray:
        with torch.inference_mode():
            return self._call(self._inputs).numpy()

    def train(self):
        self._inputs.grad = None
        self._optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(self._call(self._inputs), self._targets)
        loss.backward()
        self._optimizer.step()
        return loss.item(), self._gradients

    def _gradients(self) -> dict[str, np.ndarray]:
        """The last step's gradients in the shared names and layout."""
        parts = np.split(self._module.inputs_layer.weight.grad.numpy(), 3)
        parts.append(self._module.output_layer.weight.grad.numpy())
        gradients = {"inputs": self._inputs.grad.numpy()}
        for name, part in zip(NAMES, parts, strict=True):
            key = f"{name}_kernel"
            gradients[key] = part.T.reshape(self._shapes[key])
        return gradients
