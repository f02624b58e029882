"""Attention since 2017 over long sequences, beside ours of 2017 and PyTorch's.

    python -m benchmarks long-sequences --length 4096 --length 16384 --output long.json

Causal self-attention of one sequence, width 512, 8 heads. Each peer runs in processes of its own,
in turns; of each the best turn counts. Seconds are those of the processor, which waiting for a core
does not change. Memory is the peak above that of the imported framework, the inputs of 2 KB a step
included.

The table of steps is of one process: one query over a cache of as many positions, in turns.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.common.machine import Watch, commit, facts
from benchmarks.common.options import (
    add_figures,
    add_length,
    add_only,
    add_rounds,
    write_figures,
)
from benchmarks.common.processes import alone, peak_megabytes

LENGTHS = (4096, 16384)
WIDTH, HEADS = 512, 8
SIZE = WIDTH // HEADS
CHUNK = 64
ENOUGH = 3.0  # seconds after which a pass is not repeated
LATENT = {"latent_dim": 224, "rotary_dim": 32}
GROUPS = 2  # whose keys and values are as many numbers as those of the latent cache
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "MultiHeadAttention": ("MultiHeadAttention", {}),
    "LinearAttention": ("LinearAttention", {}),
    "GatedDeltaNet": ("GatedDeltaNet", {}),
    "GatedDeltaNet, step by step": ("GatedDeltaNet", {"chunk_size": 1}),
    "MultiHeadLatentAttention": ("MultiHeadLatentAttention", LATENT),
}
TORCH = ("PyTorch, fused attention", "PyTorch, linear attention in chunks")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_length(parser, LENGTHS)
    add_only(parser, (*OURS, *TORCH), "peers")
    add_rounds(parser, 2)
    parser.add_argument("--xla", action="store_true", help="compile ours by XLA")
    parser.add_argument("--no-training", action="store_true", help="measure no training step")
    add_figures(parser)


def run(options: argparse.Namespace) -> None:
    """Print the tables."""
    lengths = options.length or list(LENGTHS)
    watch, rows = Watch(), []
    for length in lengths:
        rows += in_turns(options.only or [*OURS, *TORCH], length, options)
    steps = alone(measure_steps, lengths)
    print(table(rows))
    print("\n| cache of | latent ms | grouped ms |\n| --: | --: | --: |")
    for length, (latent, grouped) in steps.items():
        print(f"| {length} | {1000 * latent:.2f} | {1000 * grouped:.2f} |")
    found = {**facts(), "commit": commit(), "share_of_others": watch.share_of_others()}
    print(found)
    write_figures(options.output, {**found, "rows": rows, "steps": steps})


def in_turns(peers: Sequence[str], length: int, options: Any) -> list[dict[str, Any]]:
    """Return the best turn of each peer at a length."""
    best: dict[str, dict[str, Any]] = {}
    for _ in range(options.rounds):
        for peer in peers:
            turn = alone(measure, peer, length, options.xla, not options.no_training)
            before = best.setdefault(peer, turn)
            best[peer] = {name: min(before[name], turn[name]) for name in turn}
    return [{"peer": peer, "length": length, **found} for peer, found in best.items()]


def measure(peer: str, length: int, xla: bool, trains: bool) -> dict[str, float]:
    """Return processor seconds and peak memory of a forward pass and of a training step."""
    x = np.random.default_rng(0).normal(size=(1, length, WIDTH)).astype("float32")
    passes = torch_passes(peer, x) if peer in TORCH else our_passes(peer, x, xla)
    base, found = peak_megabytes(), {}
    for name, function in passes.items():
        if name == "training" and not trains:
            continue
        function()  # compiles and warms up
        times: list[float] = []
        while len(times) < 3 and sum(times) < ENOUGH:
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        found[f"{name}_seconds"] = min(times)
        found[f"{name}_peak_mb"] = peak_megabytes() - base
    return found


def our_passes(peer: str, x: np.ndarray, xla: bool) -> dict[str, Callable]:
    """Return a forward pass and a training step of one of our layers."""
    import keras
    import tensorflow as tf

    import keras_attention

    keras.utils.set_random_seed(1)
    kind, options = OURS[peer]
    layer = getattr(keras_attention, kind)(HEADS, SIZE, **options)
    layer.build(x.shape)
    inputs = tf.constant(x)

    @tf.function(jit_compile=xla)
    def forward(inputs):
        return layer(inputs, use_causal_mask=True)

    @tf.function(jit_compile=xla)
    def training(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(layer(inputs, use_causal_mask=True) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    return {
        "forward": lambda: forward(inputs).numpy(),
        "training": lambda: training(inputs)[0].numpy(),
    }


def torch_passes(peer: str, x: np.ndarray) -> dict[str, Callable]:
    """Return a forward pass and a training step in PyTorch."""
    import torch

    from benchmarks.speed.contenders.torch_attention import SelfAttention

    torch.manual_seed(1)
    module = SelfAttention(WIDTH)
    inputs = torch.from_numpy(x)

    def linear():
        parts = module.inputs_layer(inputs).view(1, -1, 3, HEADS, SIZE)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        context = torch_linear_attention(query, key, value)
        return module.output_layer(context.transpose(1, 2).reshape(inputs.shape))

    call = linear if "linear" in peer else lambda: module(inputs)

    def forward():
        with torch.inference_mode():
            return call()

    def training():
        module.zero_grad()
        call().square().mean().backward()

    return {"forward": forward, "training": training}


def torch_linear_attention(query: Any, key: Any, value: Any) -> Any:
    """Return causal linear attention of `(B, H, T, d)`, in the chunks of flash-linear-attention."""
    import torch
    from torch.nn import functional as F

    shape = (*value.shape[:2], -1, CHUNK, value.shape[-1])
    query, key, value = F.elu(query) + 1, F.elu(key) + 1, value
    q, k, v = (x.reshape(shape) for x in (query, key, value))
    sums = (k.transpose(-1, -2) @ v).cumsum(2)
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], dim=2)
    context = q @ before + torch.tril(q @ k.transpose(-1, -2)) @ v
    total = (query * key.cumsum(2)).sum(-1, keepdim=True)
    return context.reshape(query.shape) / total


def measure_steps(lengths: Sequence[int]) -> dict[str, list[float]]:
    """Return the seconds of a step with the last index of a cache: latent, and grouped."""
    import tensorflow as tf

    from keras_attention import MultiHeadAttention, MultiHeadLatentAttention

    latent = MultiHeadLatentAttention(HEADS, SIZE, **LATENT)
    grouped = MultiHeadAttention(
        HEADS, SIZE, num_key_value_heads=GROUPS, positions="rotary", use_bias=False
    )
    found = {}
    for length in lengths:
        x = tf.random.normal((1, WIDTH))
        steps = []
        for layer in (latent, grouped):
            layer.build((1, length, WIDTH))
            state = layer.initial_state(1, length)
            run = tf.function(step_of(layer))
            steps.append((run, state))
        best = [float("inf")] * len(steps)
        for turn in range(300):
            for place, (run, state) in enumerate(steps):
                start = time.process_time()
                run(x, state, tf.constant(length - 1))[0].numpy()
                taken = time.process_time() - start
                best[place] = min(best[place], taken) if turn else best[place]
        found[str(length)] = best
    return found


def step_of(layer: Any) -> Callable:
    """Return a step of self-attention that gives the output and the state."""
    if type(layer).__name__ == "MultiHeadLatentAttention":
        return layer.step

    def step(x, state, index):
        output, _, state = layer.step(x, None, state, index, return_attention_scores=False)
        return output, state

    return step


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of Markdown."""
    names = [name for name in rows[0] if name not in ("peer", "length")]
    lines = [
        f"| length | | {' | '.join(name.replace('_', ' ') for name in names)} |",
        "| --: | --- " + "| --: " * len(names) + "|",
    ]
    for row in rows:
        cells = [f"{row[name]:.2f}" if "seconds" in name else f"{row[name]:.0f}" for name in names]
        lines.append(f"| {row['length']} | {row['peer']} | {' | '.join(cells)} |")
    return "\n".join(lines)
