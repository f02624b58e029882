"""Figures and goals are what they say."""

import json

import pytest

from benchmarks.speed import goals, report
from benchmarks.speed.children import Measurement
from benchmarks.speed.contenders import contenders_for, find
from benchmarks.speed.problems import Problem, Size


def test_the_faster_variant_of_each_side_is_compared():
    def measured(name, forward, train):
        peaks = {"forward_peak_mb": 10.0 * forward[0], "train_peak_mb": 100.0}
        return Measurement(find("additive", name), peaks, {"forward": forward, "train": train})

    results = report.comparisons(
        [
            measured("ours", [4.0, 4.0, 4.0], [1.0, 1.0, 1.0]),
            measured("ours-xla", [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]),
            measured("keras", [6.0, 5.0, 8.0], [9.0, 9.0, 9.0]),
            measured("keras-xla", [7.0, 7.0, 7.0], [2.0, 2.0, 2.0]),
        ]
    )
    forward, train = results
    assert (forward["ours"], forward["peer"]) == ("ours-xla", "keras")
    assert forward["times_faster"] == 3.0 and forward["times_faster_range"] == [2.5, 4.0]
    assert forward["memory_share"] == pytest.approx(20 / 60)
    assert (train["ours"], train["peer"], train["times_faster"]) == ("ours", "keras-xla", 2.0)


def test_translations_are_told_in_tokens_a_second():
    def measured(name, deviation, *seconds):
        firsts = {f"{search}_first_seconds": 1.0 for search in ("greedy", "beam")}
        peaks = {f"{search}_peak_mb": 1.0 for search in ("greedy", "beam")}
        rounds = {"greedy": [seconds[0]] * 2, "beam": [seconds[1]] * 2}
        found = Measurement(find("translation", name), {**firsts, **peaks}, rounds)
        found.deviation = deviation
        return found

    problem = Problem("translation", Size(2, 30, 20, 512))
    rows = [measured("ours", 0, 0.1, 0.3), measured("half", 0.5, 0.05, 0.1)]
    text = report.table(problem, [*rows, measured("engine", 0.0, 0.2, 0.15)])
    assert "Batch 2, 20 tokens to 30, 512 units." in text
    assert "| Transformer | 600 | 200 | 100% | 2.0 |" in text
    assert "| bfloat16 | 1200 | 600 | 50% | 2.0 |" in text
    assert "greedy: 2.00 times as fast as CTranslate2 in float32 (2.00 to 2.00 by round) (" in text
    assert "beam 4: 1.50 times as fast as CTranslate2 in float32" in text
    assert json.loads(json.dumps(report.to_json(problem, rows)))["kind"] == "translation"


def figures_of(kind, size, *comparisons, load=0.1, others=0.01):
    """A run's figures with comparisons `(our side, peer side, pass, times as fast)`."""
    keys = ("ours_side", "peer_side", "pass", "times_faster")
    sizes = dict(zip(("batch", "steps", "memory_steps", "units"), size, strict=True))
    found = [dict(zip(keys, each, strict=True)) for each in comparisons]
    facts = {"load_before": load, "cores": 2, "others": others}
    return {"machine": facts, "problems": [{"kind": kind, **sizes, "comparisons": found}]}


def test_goals_are_met_or_missed_where_the_machine_was_quiet():
    found = [
        ("ours", "engine", "greedy", 1.0),
        ("ours", "engine", "beam", 0.99),
        ("ours", "engine-int8", "beam", 9.0),  # no goal
        ("ours-by-engine", "engine", "greedy", 0.96),
    ]
    text = goals.table(figures_of("translation", (320, 30, 20, 512), *found))
    rows = [line.split(" | ") for line in text.splitlines()[2:]]
    assert [row[2:4] + row[5:] for row in rows] == [
        ["ours", "CTranslate2 in float32", "1", "met |"],
        ["ours", "CTranslate2 in float32", "1", "**missed** |"],
        ["translate(engine=)", "CTranslate2 in float32", "0.95", "met |"],
    ]
    few = goals.table(figures_of("translation", (32, 30, 20, 512), *found))
    assert few == "None of these problems has a goal at this size."
    for busy in ({"load": 1.5}, {"others": 0.06}):
        text = goals.table(figures_of("translation", (320, 30, 20, 512), *found, **busy))
        assert text.startswith("This run was not quiet: ")
        assert text.count("not claimed") == 3 and "met |" not in text and "missed" not in text


def test_every_goal_is_of_sides_that_are_compared():
    for kind, wanted in goals.GOALS.items():
        sides = {contender.side for contender in contenders_for(kind)}
        for goal in wanted:
            assert goal.own in sides and goal.peer in report.COMPARED[goal.own]
            assert goal.peer in sides
