"""The table of training's throughput is of what the real command measured."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.common.errors import BenchmarkError
from benchmarks.speed import strategies
from keras_attention.applications.command.cli import read_config
from keras_attention.applications.translation import Translator


@pytest.mark.parametrize("name", strategies.STRATEGIES)
def test_the_command_accepts_the_settings(name):
    settings = [f"--{key}={value}" for key, value in strategies.SETTINGS.items()]
    config = read_config(Translator, None, settings + strategies.STRATEGIES[name])
    assert config.distribute.strategy == name
    assert config.model.units == strategies.SETTINGS["model.units"]


def test_the_first_epoch_is_not_counted():
    rates, traces = (10.0, 400.0, 300.0, 800.0), (7, 7, 8, 9)
    lines = [
        {"tokens_per_second": rate, "traces": trace, "loss": 1.5}
        for rate, trace in zip(rates, traces, strict=True)
    ]
    row = strategies.row_of("none", lines)
    assert row == {"strategy": "none", "tokens_per_second": 400.0, "retraces": 2, "loss": 1.5}
    text = strategies.table({"rows": [row], "pipeline_tokens_per_second": 3000.0})
    assert "| none | 400 | 2 | 7.5 times that |" in text
    assert text.endswith("The input pipeline alone: 3,000 tokens a second.")


@pytest.mark.slow
def test_all_strategies_are_measured(tmp_path, capsys):
    file = tmp_path / "figures.json"
    assert main(["strategies", "--steps", "4", "--epochs", "2", "--output", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert [row["strategy"] for row in figures["rows"]] == list(strategies.STRATEGIES)
    assert figures["pipeline_tokens_per_second"] > 0
    losses = [row["loss"] for row in figures["rows"]]
    assert losses == pytest.approx([losses[0]] * 3, rel=0.05)  # dropout differs between replicas
    assert "| multi-worker |" in capsys.readouterr().out


def test_figures_of_another_training_are_refused():
    def rows(*losses):
        lines = ([{"loss": loss, "tokens_per_second": 1, "traces": 1}] * 2 for loss in losses)
        return list(map(strategies.row_of, strategies.STRATEGIES, lines))

    strategies.check_same_training(rows(1.1, 1.12, 1.09))
    refusal = "^mirrored trains otherwise .* loss is (1|nan), and not 1.1"
    for loss in (1.0, float("nan")):
        with pytest.raises(BenchmarkError, match=refusal):
            strategies.check_same_training(rows(1.1, loss, 1.1))
