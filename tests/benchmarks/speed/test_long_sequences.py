"""The benchmark of long sequences: its table, and that its peers compute the same."""

import json

import numpy as np
import pytest
from keras import ops

from benchmarks.__main__ import main
from benchmarks.speed import long_sequences
from keras_attention.layers.attention.linear import elu_plus_one
from keras_attention.ops.linear_attention import linear_attention
from tests.contracts.backend import random, to_numpy


def test_the_best_turn_of_each_peer_is_in_the_table(monkeypatch, capsys, tmp_path):
    turns = iter([3.0, 5.0, 2.0, 7.0])

    def alone(function, *arguments):
        if function is long_sequences.measure_steps:
            return {"128": [0.001, 0.002]}
        return {"forward_seconds": next(turns), "forward_peak_mb": 100.0}

    monkeypatch.setattr(long_sequences, "alone", alone)
    peers = ["--only", "LinearAttention", "--only", "GatedDeltaNet"]
    given = [*peers, "--length", "128", "--output", str(tmp_path / "found.json")]
    assert main(["long-sequences", *given]) == 0
    shown = capsys.readouterr().out
    assert "| 128 | LinearAttention | 2.00 | 100 |" in shown
    assert "| 128 | GatedDeltaNet | 5.00 | 100 |" in shown
    assert "| 128 | 1.00 | 2.00 |" in shown
    assert len(json.loads((tmp_path / "found.json").read_text())["rows"]) == 2


def test_linear_attention_in_pytorch_is_ours():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    query, key, value = (random(i, 2, 128, 3, 4) for i in range(3))
    features = [elu_plus_one(ops.convert_to_tensor(x)) for x in (query, key)]
    ours = to_numpy(linear_attention(*features, ops.convert_to_tensor(value), causal=True))
    given = [torch.tensor(x).transpose(1, 2) for x in (query, key, value)]
    theirs = long_sequences.torch_linear_attention(*given).transpose(1, 2).numpy()
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
