"""The least time of a pass, on paper."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.speed import roofline
from benchmarks.speed.problems import Problem, Size


def test_a_roofline_is_the_longer_of_two_times():
    size = Size(2, 3, 3, 5)
    projections, scores = 4 * 2 * (2 * 3) * 5 * 5, 2 * (2 * 3 * 3 * 5)
    work = roofline.work_of(Problem("multi-head", size), "forward")
    assert work.operations == projections + scores
    assert work.numbers == 4 * 5 * 5 + 10 * (2 * 3 * 5)
    training = roofline.work_of(Problem("multi-head", size), "train")
    assert training.operations == 3 * work.operations
    slow = roofline.Processor({"float32": 10.0}, 1e9)
    assert roofline.least_seconds(work, slow, "float32") == (work.operations / 10, "rate")
    near = roofline.Processor({"float32": 1e9}, 10.0)
    assert roofline.least_seconds(work, near, "float32") == (4 * work.numbers / 10, "memory")


def test_a_search_reads_the_weights_at_each_step():
    def numbers(steps):
        problem = Problem("translation", Size(1, steps, 20, 512))
        return roofline.work_of(problem, "greedy").numbers

    weights = 6 * (8 * 512**2 + 2 * 512 * 2048) + 8000 * 512
    assert numbers(31) - numbers(30) == pytest.approx(weights, rel=0.02)  # and the caches


def test_the_share_of_a_roofline_that_a_run_reached(tmp_path, capsys):
    size = {"batch": 1, "steps": 8, "memory_steps": 8, "units": 16}
    problem = Problem("multi-head", Size(1, 8, 8, 16))
    processor = roofline.PROCESSORS["H100"]
    least, _ = roofline.least_seconds(roofline.work_of(problem, "train"), processor, "float32")
    programs = [
        {"side": "ours", "seconds": {"forward": 1.0, "train": 4 * least}},
        {"side": "keras", "seconds": {"forward": 1.0, "train": least}},
    ]
    figures = {"precision": "float32", "problems": [{"kind": "multi-head", **size}]}
    figures["problems"][0]["programs"] = programs
    (tmp_path / "f.json").write_text(json.dumps(figures))
    options = ["--figures", str(tmp_path / "f.json"), "--processor", "H100"]
    assert main(["roofline", *options]) == 0
    assert capsys.readouterr().out.strip().endswith("| 25.0% |")
    assert main(["roofline"]) == 0
    assert "| translation 1x30x20x512 | greedy |" in capsys.readouterr().out
    assert main(["roofline", "--figures", __file__]) == 2
    assert "no figures of `python -m benchmarks layers`" in capsys.readouterr().err
