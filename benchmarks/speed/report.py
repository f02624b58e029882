"""From measurements to figures: rows and ratios, as JSON and as tables for people."""

import numpy as np

from benchmarks.speed import contenders
from benchmarks.speed.children import Measurement
from benchmarks.speed.problems import (
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


def finished(measurements: list[Measurement]) -> list[Measurement]:
    """Those of programs whose process did not end by itself."""
    return [each for each in measurements if each.error is None]


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
    for name in measurements[0].rounds if measurements else ():
        for own, sides in COMPARED.items():
            ours = _fastest(measurements, own, name)
            peers = [_fastest(measurements, side, name) for side in sides]
            results += [_comparison(ours, peer, name) for peer in peers if ours and peer]
    return results


def to_json(problem: Problem, measurements: list[Measurement]) -> dict:
    """One problem's figures as plain data: seconds a step, megabytes above the baseline."""
    size = problem.size
    whole = finished(measurements)
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
            for m in whole
        ],
        "failed": [
            {"name": m.contender.name, "error": m.error, "round_medians": m.rounds}
            for m in measurements
            if m.error
        ],
        "comparisons": comparisons(whole),
    }


def table(problem: Problem, measurements: list[Measurement]) -> str:
    """One problem's figures for people, in Markdown."""
    failed = [each for each in measurements if each.error]
    measurements = finished(measurements)
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
    lines += [f"- Not measured to the end: {each.error}." for each in failed]
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
