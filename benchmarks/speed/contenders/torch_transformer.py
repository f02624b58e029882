"""The Transformer in training, of PyTorch's own blocks and its fused attention."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.speed.problems import LEARNING_RATE, Problem
from benchmarks.speed.transformer_problem import (
    CHECKED,
    DROPOUT,
    PAD,
    architecture_of,
    make_ids,
    make_weights,
)


def sinusoids(steps: int, units: int) -> torch.Tensor:
    """Return the paper's encoding of places, `(steps, units)`."""
    pairs = np.arange(units) // 2
    angles = np.arange(steps)[:, None] * 10000.0 ** (-2 * pairs / units)
    codes = np.where(np.arange(units) % 2, np.cos(angles), np.sin(angles))
    return torch.from_numpy(codes.astype("float32"))


class Transformer(nn.Module):
    """`nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`, one table for all words."""

    def __init__(self, units: int, steps: int):
        super().__init__()
        sizes = architecture_of(units)
        options = (units, sizes.heads, sizes.feed_forward_size, DROPOUT)

        def stack(block):
            layers = [block(*options, batch_first=True) for _ in range(sizes.layers)]
            for layer in layers:
                layer.dropout = nn.Identity()  # after the ReLU, where the paper has none
            return nn.ModuleList(layers)

        self.table = nn.Embedding(sizes.vocabulary_size, units)
        self.word_bias = nn.Parameter(torch.zeros(sizes.vocabulary_size))
        self.encoders = stack(nn.TransformerEncoderLayer)
        self.decoders = stack(nn.TransformerDecoderLayer)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("codes", sinusoids(steps, units))

    def embed(self, ids):
        words = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(words + self.codes[: ids.shape[1]])

    def forward(self, source, target):
        padding = source == PAD
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoders:
            memory = layer(memory, src_key_padding_mask=padding)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        for layer in self.decoders:
            x = layer(x, memory, causal, memory_key_padding_mask=padding, tgt_is_causal=True)
        return F.linear(x, self.table.weight, self.word_bias)

    def shared(self, of: Callable) -> Iterator[tuple[str, torch.Tensor]]:
        """Give views of the weights, or of what `of` makes of them, by shared name and layout."""
        yield "table", of(self.table.weight)
        yield "word_bias", of(self.word_bias)
        for side, layers in (("encoder", self.encoders), ("decoder", self.decoders)):
            for place, layer in enumerate(layers):
                norms = [layer.norm1, layer.norm2]
                parts = [("self", layer.self_attn)]
                if side == "decoder":
                    parts.append(("cross", layer.multihead_attn))
                    norms.append(layer.norm3)
                for (kind, attention), norm in zip(parts, norms[:-1], strict=True):
                    name = f"{side}{place}.{kind}"
                    yield from _of_attention(name, attention, of)
                    yield from _of_norm(name, norm, of)
                name = f"{side}{place}"
                for kind, linear in (("inner", layer.linear1), ("outer", layer.linear2)):
                    yield f"{name}.{kind}_kernel", of(linear.weight).T
                    yield f"{name}.{kind}_bias", of(linear.bias)
                yield from _of_norm(name, norms[-1], of)


def _of_attention(name, attention, of):
    split = (attention.num_heads, attention.head_dim)
    kernels, biases = of(attention.in_proj_weight).chunk(3), of(attention.in_proj_bias).chunk(3)
    for part, kernel, bias in zip(("query", "key", "value"), kernels, biases, strict=True):
        yield f"{name}.{part}_kernel", kernel.T.unflatten(1, split)
        yield f"{name}.{part}_bias", bias.unflatten(0, split)
    yield f"{name}.output_kernel", of(attention.out_proj.weight).T.unflatten(0, split)
    yield f"{name}.output_bias", of(attention.out_proj.bias)


def _of_norm(name, norm, of):
    yield f"{name}.gamma", of(norm.weight)
    yield f"{name}.beta", of(norm.bias)


class TorchTransformer:
    """The model with the shared weights."""

    def __init__(self, problem: Problem, compiled: bool):
        size = problem.size
        self._model = Transformer(size.units, max(size.steps, size.memory))
        self._call = torch.compile(self._model) if compiled else self._model
        self._weights = make_weights(problem)
        self._load()
        ids = make_ids(problem)
        self._ids = [torch.from_numpy(ids[name]).long() for name in ("source", "target", "labels")]
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE)

    def _load(self):
        with torch.no_grad():
            for name, place in self._model.shared(lambda parameter: parameter):
                place.copy_(torch.from_numpy(self._weights[name]))

    def _losses(self, source, target, labels, reduction="mean"):
        logits = self._call(source, target)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)
        return losses if reduction == "mean" else losses.view(labels.shape)

    def forward(self) -> np.ndarray:
        """Return the loss of each target word, without dropout."""
        self._model.eval()
        with torch.inference_mode():
            return self._losses(*self._ids, reduction="none").numpy()

    def train(self):
        """Take a step; return no loss, since it is random, and what the check gives."""
        self._model.train()
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._losses(*self._ids)
        loss.backward()
        self._optimizer.step()
        loss.item()
        return None, self._checked

    def _checked(self) -> dict[str, np.ndarray]:
        self._load()  # the step has moved the weights, at random
        self._model.eval()
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._losses(*(ids[:CHECKED] for ids in self._ids))
        loss.backward()
        found = {
            name: gradient.numpy()
            for name, gradient in self._model.shared(lambda parameter: parameter.grad)
            if not name.endswith("key_bias")  # which softmax cancels: rounding alone
        }
        return {"loss": loss.detach().numpy(), **found}
