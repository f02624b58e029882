"""The goals of the project, and a table of which a run meets."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.common.tables import markdown
from benchmarks.speed.contenders import (
    BY_ENGINE,
    BY_ENGINE_INT8,
    BY_LITERT,
    BY_LITERT_INT8,
    ENGINE,
    ENGINE_INT8,
    GRU,
    KERAS,
    KERAS_HUB,
    OURS,
    OURS_HALF,
    TORCH,
)
from benchmarks.speed.problems import PASSES, SEARCHES, Size
from benchmarks.speed.report import NAMES, PEERS

BUSY = 0.05
"""The part of the cores that others may use in a run whose figures count."""
SIDES = {
    OURS: "ours",
    OURS_HALF: "ours, bfloat16",
    BY_ENGINE: "translate(engine=)",
    BY_ENGINE_INT8: "translate(engine=) in int8",
    BY_LITERT: "LiteRT",
    BY_LITERT_INT8: "LiteRT in int8",
}


@dataclass(frozen=True)
class Goal:
    """That a side of ours is so many times as fast as a peer, in some passes, at some sizes."""

    own: str
    peer: str
    times: float
    passes: tuple[str, ...] = PASSES
    at: Callable[[Size], bool] = lambda size: True


def _many(size: Size) -> bool:
    return size.batch >= 128


def _one(size: Size) -> bool:
    return size.batch == 1


def _is_tiny(size: Size) -> bool:
    return size.units == 128


_DECODER = [Goal(OURS, TORCH, 2.0), Goal(OURS, KERAS, 1.25)]
_TRAIN = ("train",)
GOALS = {
    **dict.fromkeys(("bahdanau", "luong"), _DECODER),
    "additive": [Goal(OURS, KERAS, 1.5)],
    "inner-gate": [Goal(OURS, TORCH, 1.5), Goal(OURS, GRU, 0.87)],
    "inner-word": [Goal(OURS, TORCH, 1.5), Goal(OURS, GRU, 0.8)],
    "inner-context": [Goal(OURS, TORCH, 1.5), Goal(OURS, GRU, 0.67)],
    "multi-head": [
        Goal(OURS, KERAS, 1.0, at=lambda size: size.steps <= 256),
        Goal(OURS, KERAS, 1.3, at=lambda size: size.steps >= 1024),
    ],
    "pointer-generator": [Goal(OURS, TORCH, 2.0, _TRAIN)],
    "transformer": [
        Goal(OURS, KERAS_HUB, 1.3, _TRAIN, _is_tiny),
        Goal(OURS, TORCH, 1.5, _TRAIN, _is_tiny),
        Goal(OURS, KERAS_HUB, 1.2, _TRAIN, lambda size: not _is_tiny(size)),
        Goal(OURS, TORCH, 1.2, _TRAIN, lambda size: not _is_tiny(size)),
    ],
    "translation": [
        Goal(OURS, ENGINE, 1.0, SEARCHES, _many),
        Goal(OURS_HALF, ENGINE, 1.5, SEARCHES, _many),
        Goal(BY_ENGINE, ENGINE, 0.95, SEARCHES, _many),
        Goal(BY_ENGINE_INT8, ENGINE_INT8, 0.95, SEARCHES, _many),
        Goal(OURS, ENGINE, 1.0, SEARCHES, _one),
        Goal(BY_LITERT, ENGINE, 1.0, SEARCHES, lambda size: _one(size) or _many(size)),
        Goal(BY_LITERT_INT8, ENGINE_INT8, 0.5, SEARCHES, lambda size: _one(size) or _many(size)),
    ],
}
"""By kind of problem. A sentence alone and 128 or more are translations that have goals."""


def why_not_quiet(facts: dict) -> str | None:
    """Return why the figures of a run prove nothing, or None where the machine was quiet."""
    if facts["load_before"] > 0.5 * facts["cores"]:
        return f"the load was {facts['load_before']} before the start"
    others = facts.get("others")
    if others is not None and others > BUSY:
        return f"other programs used {others:.0%} of the cores meanwhile"
    return None


def table(figures: dict) -> str:
    """Return one table of all ratios of a run that a goal is set for, as Markdown."""
    busy = why_not_quiet(figures["machine"])
    rows = [["problem", "pass", "ours", "peer", "times as fast", "goal", ""]]
    for problem in figures["problems"]:
        names = ("batch", "steps", "memory_steps", "units")
        size = Size(*(problem[name] for name in names))
        for goal in GOALS.get(problem["kind"], ()):
            rows += [
                [f"{problem['kind']} {size}", NAMES[found["pass"]], SIDES[goal.own]]
                + [PEERS[goal.peer], f"{found['times_faster']:.2f}", f"{goal.times:g}"]
                + ["not claimed" if busy else _verdict(found["times_faster"], goal)]
                for found in problem["comparisons"]
                if (found["ours_side"], found["peer_side"]) == (goal.own, goal.peer)
                and found["pass"] in goal.passes
                and goal.at(size)
            ]
    if len(rows) == 1:
        return "None of these problems has a goal at this size."
    note = f"This run was not quiet: {busy}. It proves no goal.\n\n" if busy else ""
    return note + markdown(rows)


def _verdict(times: float, goal: Goal) -> str:
    return "met" if times >= goal.times else "**missed**"
