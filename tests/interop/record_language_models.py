"""Record the attention of gpt-oss, Gemma 2 and DiffLlama, of Hugging Face Transformers.

`python -m tests.interop.record_language_models`, with `transformers` installed.
"""

import numpy as np
import torch
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaConfig
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention, Gemma2Config
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssConfig

from tests.contracts.backend import random
from tests.interop.test_language_models import (
    CAP,
    DEPTH,
    HEADS,
    RECORDED,
    SIZE,
    THETA,
    WINDOW,
    B,
    D,
    T,
)


def main():
    options = {
        "hidden_size": D,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "head_dim": SIZE,
        "attn_implementation": "eager",
        "num_hidden_layers": 2,
        "attention_bias": True,
    }
    layers = ["sliding_attention", "full_attention"]
    gpt = GptOssConfig(**options, sliding_window=WINDOW, layer_types=layers)
    gemma = Gemma2Config(
        **options, layer_types=layers, query_pre_attn_scalar=SIZE, attn_logit_softcapping=CAP
    )
    whole = options | {"num_key_value_heads": HEADS, "attention_bias": False}
    x = random(1, B, T, D)
    angles = np.arange(T)[:, None] * THETA ** (-np.arange(SIZE // 2) / (SIZE // 2))
    distance = np.arange(T)[:, None] - np.arange(T)
    for name, module, width in (
        ("gpt_oss", GptOssAttention(gpt, 0), WINDOW),
        ("gemma2", Gemma2Attention(gemma, 1), T),
        ("diffllama", DiffLlamaAttention(DiffLlamaConfig(**whole), DEPTH - 1), T),
    ):
        # Gemma's rotary function takes each angle twice, that of gpt-oss once.
        own = angles if name == "gpt_oss" else np.tile(angles, 2)
        if name == "diffllama":
            own = np.zeros_like(own)  # the published mechanism turns nothing
        turned = [torch.tensor(f(own)[None], dtype=torch.float32) for f in (np.cos, np.sin)]
        mask = np.where((distance >= 0) & (distance < width), 0.0, -1e30)[None, None]
        state = module.state_dict()
        for place, weight in enumerate(state.values()):
            weight.copy_(torch.tensor(random(10 + place, *weight.shape, scale=0.5)))
        module.eval()
        with torch.no_grad():
            mask = torch.tensor(mask, dtype=torch.float32)
            output, scores = module(torch.tensor(x), tuple(turned), mask)
        weights = {key: weight.numpy() for key, weight in state.items()}
        found = {"output": output.numpy(), "scores": scores.numpy()}
        np.savez_compressed(RECORDED / f"{name}.npz", x=x, **found, **weights)


if __name__ == "__main__":
    main()
