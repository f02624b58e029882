"""The pointer-generator as one writes it in PyTorch: a Python loop, then all words at once."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.problems import (
    LEARNING_RATE,
    UNKNOWN_WORDS,
    Problem,
    make_inputs,
    make_weights,
    vocabulary_of,
)


class CoverageAttention(nn.Module):
    """Bahdanau's score with what was read of each place before."""

    def __init__(self, units: int):
        super().__init__()
        self.query_layer = nn.Linear(units, units, bias=False)
        self.key_layer = nn.Linear(units, units, bias=False)
        self.coverage_layer = nn.Linear(1, units, bias=False)
        self.score_layer = nn.Linear(units, 1, bias=False)

    def forward(self, query, keys, value, mask, coverage):
        covered = self.coverage_layer(coverage.unsqueeze(2))
        energies = torch.tanh(self.query_layer(query).unsqueeze(1) + keys + covered)
        scores = self.score_layer(energies).squeeze(-1)
        weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return torch.bmm(weights.unsqueeze(1), value).squeeze(1), weights


class PointerGenerator(nn.Module):
    """An LSTM whose attentional vector is fed back; words are generated or copied."""

    def __init__(self, units: int, words: int):
        super().__init__()
        self.attention = CoverageAttention(units)
        self.cell = nn.LSTMCell(2 * units, units)
        self.attentional = nn.Linear(2 * units, units, bias=False)
        self.readout = nn.Linear(units, words)
        self.gate = nn.Linear(3 * units, 1)

    def forward(self, inputs, value, mask, states, source_ids, labels):
        """Return the loss of each step: of its word, and of all that is read again."""
        outputs, contexts, scores, overlap = self.decode(inputs, value, mask, states)
        p_gen = torch.sigmoid(self.gate(torch.cat([contexts, outputs, inputs], dim=-1)))
        generated = p_gen * F.softmax(self.readout(outputs), dim=-1)
        ids = source_ids.unsqueeze(1).expand_as(scores)
        mixed = F.pad(generated, (0, UNKNOWN_WORDS)).scatter_add(2, ids, (1 - p_gen) * scores)
        return overlap - torch.log(mixed.gather(2, labels.unsqueeze(2)).squeeze(2))

    def decode(self, inputs, value, mask, states):
        """Run the loop; return outputs, contexts and weights of all steps, and the mean overlap."""
        keys = self.attention.key_layer(value)
        hidden, carry = states
        fed, coverage = torch.zeros_like(hidden), torch.zeros_like(mask, dtype=value.dtype)
        steps, overlaps = [], []
        for step_inputs in inputs.unbind(1):
            hidden, carry = self.cell(torch.cat([step_inputs, fed], dim=-1), (hidden, carry))
            context, weights = self.attention(hidden, keys, value, mask, coverage)
            overlaps.append(torch.minimum(weights, coverage).sum(1))
            coverage = coverage + weights
            fed = torch.tanh(self.attentional(torch.cat([context, hidden], dim=-1)))
            steps.append((fed, context, weights))
        outputs, contexts, scores = (torch.stack(part, 1) for part in zip(*steps, strict=True))
        return outputs, contexts, scores, torch.stack(overlaps).mean()


class TorchPointerGenerator:
    """It with the shared weights."""

    def __init__(self, problem: Problem, compiled: bool):
        units = problem.size.units
        self.module = PointerGenerator(units, vocabulary_of(units))
        weights = make_weights(problem)
        with torch.no_grad():
            for name, parameter in self._parameters().items():
                parameter.copy_(torch.from_numpy(weights[name].T.reshape(parameter.shape)))
            vectors = [weights[f"{name}_vector"] for name in ("context", "state", "input")]
            self.module.gate.weight.copy_(torch.from_numpy(np.concatenate(vectors)[None]))
            self.module.cell.bias_hh.zero_()  # Keras' LSTM has one bias
        arrays = {name: torch.from_numpy(array) for name, array in make_inputs(problem).items()}
        del arrays["targets"]
        for name in ("source_ids", "labels"):
            arrays[name] = arrays[name].long()
        # an encoder and an embedding stand before a decoder, and train with it
        for name in ("inputs", "value"):
            arrays[name].requires_grad_(True)
        self._arguments = arrays
        self._optimizer = torch.optim.SGD(self.module.parameters(), lr=LEARNING_RATE)

    def _parameters(self) -> dict[str, nn.Parameter]:
        """The parameters that are a shared weight, transposed; the gate's three are one here."""
        module, attention = self.module, self.module.attention
        return {
            "query_kernel": attention.query_layer.weight,
            "key_kernel": attention.key_layer.weight,
            "score_vector": attention.score_layer.weight,
            "coverage_vector": attention.coverage_layer.weight,
            "kernel": module.cell.weight_ih,
            "recurrent_kernel": module.cell.weight_hh,
            "bias": module.cell.bias_ih,
            "attentional_kernel": module.attentional.weight,
            "readout_kernel": module.readout.weight,
            "readout_bias": module.readout.bias,
            "gate_bias": module.gate.bias,
        }

    def forward(self) -> np.ndarray:
        with torch.inference_mode():
            return self.module(**self._arguments).numpy()

    def train(self):
        for tensor in (self._arguments["inputs"], self._arguments["value"]):
            tensor.grad = None
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.module(**self._arguments).mean()
        loss.backward()
        self._optimizer.step()
        return loss.item(), self._gradients

    def _gradients(self) -> dict[str, np.ndarray]:
        """The last step's gradients in the shared names and layout."""
        gradients = {name: part.grad.numpy().T for name, part in self._parameters().items()}
        for name in ("score_vector", "coverage_vector"):
            gradients[name] = gradients[name].reshape(-1)
        gradients["gate_bias"] = gradients["gate_bias"].reshape(())
        parts = np.split(self.module.gate.weight.grad.numpy()[0], 3)
        names = ("context", "state", "input")
        gradients |= {f"{name}_vector": part for name, part in zip(names, parts, strict=True)}
        for name in ("inputs", "value"):
            gradients[name] = self._arguments[name].grad.numpy()
        return gradients
