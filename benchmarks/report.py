"""From measurements to figures: rows and ratios, as JSON and as tables for people."""

import numpy as np

from benchmarks import contenders
from benchmarks.children import Measurement
from benchmarks.problems import (
    INNER,
    PASSES,
    POINTERS,
    SEARCHES,
    Problem,
    passes_of,
    vocabulary_of,
)

TITLES = {
    "bahdanau": "Decoder, Bahdanau: additive attention by the state before the step, GRU",
    "luong": "Decoder, Luong: general attention by the state after the step, input feeding, LSTM",
    "additive": "Additive attention over a whole sequence",
    "inner-gate": "InnerAttentionGRU, gate",
    "multi-head": "Causal self-attention, 8 heads",
    "inner-word": "InnerAttentionGRU, word",
    "inner-context": "InnerAttentionGRU, context",
    "pointer-generator": "Pointer-generator: coverage and its loss, copying, LSTM",
    "transformer": "Transformer, a translation model in training",
    "translation": "Translation by a Transformer",
}
NAMES = {
    "forward": "forward pass",
    "train": "training step",
    "greedy": "greedy",
    "beam": "beam 4",
}
PEERS = {
    contenders.TORCH: "PyTorch",
    contenders.KERAS: "plain Keras",
    contenders.KERAS_HUB: "KerasHub",
    contenders.GRU: "keras.layers.GRU, which attends to nothing",
    contenders.ENGINE: "CTranslate2 in float32",
    contenders.ENGINE_INT8: "CTranslate2 in int8",
}
COMPARED = {
    contenders.OURS: tuple(PEERS),
    contenders.OURS_HALF: tuple(PEERS),
    contenders.BY_ENGINE: (contenders.ENGINE,),
    contenders.BY_ENGINE_INT8: (contenders.ENGINE_INT8,),
    contenders.BY_LITERT: (contenders.ENGINE,),
    contenders.BY_LITERT_INT8: (contenders.ENGINE, contenders.ENGINE_INT8),
}
"""The peers that each of our programs is compared with."""


def _fastest(measurements: list[Measurement], side: str, name: str) -> Measurement | None:
    of_side = [m for m in measurements if m.contender.side == side]
    return min(of_side, key=lambda m: m.median(name), default=None)


def _comparison(ours: Measurement, peer: Measurement, name: str) -> dict:
    """How many times the peer's time ours is, round by round, and the share of its memory."""
    ratios = np.asarray(peer.rounds[name]) / np.asarray(ours.rounds[name])
    memory = f"{name}_peak_mb"
    return {
        "pass": name,
        "ours": ours.contender.name,
        "ours_side": ours.contender.side,
        "peer": peer.contender.name,
        "peer_side": peer.contender.side,
        "times_faster": float(np.median(ratios)),
        "times_faster_range": [float(ratios.min()), float(ratios.max())],
        "memory_share": ours.report[memory] / max(peer.report[memory], 1e-9),
    }


def comparisons(measurements: list[Measurement]) -> list[dict]:
    """For each pass, our faster program against each peer's fastest; with rounded weights, too."""
    results = []
    for name in measurements[0].rounds:
        for own, sides in COMPARED.items():
            ours = _fastest(measurements, own, name)
            peers = [_fastest(measurements, side, name) for side in sides]
            results += [_comparison(ours, peer, name) for peer in peers if ours and peer]
    return results


def to_json(problem: Problem, measurements: list[Measurement]) -> dict:
    """One problem's figures as plain data: seconds a step, megabytes above the baseline."""
    size = problem.size
    return {
        "kind": problem.kind,
        "batch": size.batch,
        "steps": size.steps,
        "memory_steps": size.memory,
        "units": size.units,
        "programs": [
            {
                "name": m.contender.name,
                "side": m.contender.side,
                "compiled": m.contender.compiled,
                "deviation": m.deviation,
                "seconds": {name: m.median(name) for name in m.rounds},
                "round_medians": m.rounds,
                "timed_steps": m.steps,
                **m.report,
            }
            for m in measurements
        ],
        "comparisons": comparisons(measurements),
    }


def table(problem: Problem, measurements: list[Measurement]) -> str:
    """One problem's figures for people, in Markdown."""
    size, searches = problem.size, passes_of(problem.kind) == SEARCHES
    steps = f"{size.steps} queries by {size.memory} memory steps"
    if problem.kind in INNER:
        steps = f"{size.steps} steps"
    if searches:
        steps = f"{size.memory} tokens to {size.steps}"
    if problem.kind in POINTERS:
        steps += f", {vocabulary_of(size.units):,} words"
    lines = [f"### {TITLES[problem.kind]}", "", f"Batch {size.batch}, {steps}, {size.units} units."]
    lines += ["", *(_searches if searches else _passes)(problem, measurements), ""]
    labels = {m.contender.name: m.contender.label for m in measurements}
    for found in comparisons(measurements):
        low, high = found["times_faster_range"]
        memory = "" if searches else f", {found['memory_share']:.1%} of its peak memory"
        lines.append(
            f"- {NAMES[found['pass']]}: {found['times_faster']:.2f} times as fast as "
            f"{PEERS[found['peer_side']]} ({low:.2f} to {high:.2f} by round){memory} "
            f"({labels[found['ours']]} against {labels[found['peer']]})"
        )
    return "\n".join(lines)


def _passes(problem: Problem, measurements: list[Measurement]) -> list[str]:
    lines = [
        "| program | forward ms | training step ms | forward peak MB | training peak MB "
        "| first steps s |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for m in measurements:
        times = [f"{1e3 * m.median(name):.1f}" for name in PASSES]
        peaks = [f"{m.report[f'{name}_peak_mb']:.0f}" for name in PASSES]
        first = sum(m.report[f"{name}_first_seconds"] for name in PASSES)
        cells = [m.contender.label, *times, *peaks, f"{first:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _searches(problem: Problem, measurements: list[Measurement]) -> list[str]:
    """Return rows of tokens a second, and how many sentences have the first program's words."""
    tokens = problem.size.batch * problem.size.steps
    lines = [
        "| program | greedy tokens/s | beam 4 tokens/s | the same words | first searches s |",
        "| --- | --: | --: | --: | --: |",
    ]
    for m in measurements:
        speeds = [f"{tokens / m.median(name):.0f}" for name in SEARCHES]
        first = sum(m.report[f"{name}_first_seconds"] for name in SEARCHES)
        cells = [m.contender.label, *speeds, f"{1 - m.deviation:.0%}", f"{first:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(rows: list[list[str]]) -> str:
    """Rows of cells, the first of them the head, as a table in Markdown."""
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine_line(facts: dict) -> str:
    """The machine and the versions, in one sentence."""
    versions = ", ".join(
        f"{name} {facts[key]}"
        for name, key in (
            ("Python", "python"),
            ("Keras", "keras"),
            ("TensorFlow", "tensorflow"),
            ("JAX", "jax"),
            ("PyTorch", "torch"),
            ("KerasHub", "keras-hub"),
            ("CTranslate2", "ctranslate2"),
            ("NumPy", "numpy"),
        )
        if facts[key]
    )
    return (
        f"{facts['gpu'] + ', ' if facts.get('gpu') else ''}{facts['processor']}, "
        f"{facts['cores']} cores, {facts['system']}; {versions}; "
        f"load average before the start {facts['load_before']}."
    )
