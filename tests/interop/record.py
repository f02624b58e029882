"""Record weights and outputs of PyTorch's layers: `python -m tests.interop.record`."""

import numpy as np
import torch

from tests.contracts.backend import random
from tests.interop.test_pytorch import DK, DV, RECORDED, B, D, F, H, S, T, expected, randomised


def main():
    RECORDED.mkdir(exist_ok=True)
    nn, options = torch.nn, {"dim_feedforward": F, "batch_first": True}
    modules = {
        "attention": nn.MultiheadAttention(D, H, kdim=DK, vdim=DV, batch_first=True),
        "encoder": nn.TransformerEncoderLayer(D, H, norm_first=True, activation="gelu", **options),
        "decoder": nn.TransformerDecoderLayer(D, H, **options),
    }
    x, memory = random(1, B, T, D), random(2, B, S, D)
    for kind, module in modules.items():
        randomised(torch, module)
        inputs, masks = {"x": x}, {}
        if kind == "attention":
            inputs |= {"key": random(2, B, S, DK), "value": random(3, B, S, DV)}
        if kind == "decoder":
            inputs["value"] = memory
            masks["tgt_mask"] = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
        output = expected(torch, module, *inputs.values(), **masks)
        weights = {f"layer.{name}": weight.numpy() for name, weight in module.state_dict().items()}
        np.savez_compressed(RECORDED / f"{kind}.npz", output=output, **inputs, **weights)


if __name__ == "__main__":
    main()
