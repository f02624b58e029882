"""The programs that are compared compute the same."""

from functools import cache

import numpy as np
import pytest

from benchmarks.speed.children import deviation, disagreement
from benchmarks.speed.contenders import INEXACT, contenders_for, find
from benchmarks.speed.problems import (
    ATTENTIONS,
    DECODERS,
    INNER,
    POINTERS,
    SELF_ATTENTIONS,
    TRANSFORMERS,
    Problem,
    Size,
    make_inputs,
)
from benchmarks.speed.transformer_problem import make_ids
from benchmarks.speed.worker import prepare

LAYERS = (*DECODERS, *ATTENTIONS, *SELF_ATTENTIONS, *INNER, *POINTERS)
KINDS = (*LAYERS, *TRANSFORMERS)
TINY = Size(3, 5, 7, 11)
EVEN = Size(3, 5, 7, 12)  # two heads share the width of a Transformer

PEERS = [
    (kind, contender.name)
    for kind in KINDS
    for contender in contenders_for(kind)
    if contender.side not in ("ours", "gru") and not contender.compiled
]


@cache
def results_of(kind, name):
    problem = Problem(kind, TINY if kind in LAYERS else EVEN)
    return prepare(find(kind, name), problem)[2]


@pytest.mark.parametrize(("kind", "name"), PEERS)
@pytest.mark.by_default(kind=LAYERS)  # a whole Transformer takes as long as all of them
def test_peers_give_our_outputs_and_gradients(kind, name):
    if name == "torch":
        pytest.importorskip("torch")
    results = results_of(kind, name)
    worst, array = deviation(results, results_of(kind, "ours"))
    assert worst < 1e-5, array
    assert all(np.any(value != 0) for value in results.values())


def test_the_yardstick_reads_the_inputs_and_not_the_query():
    results = results_of("inner-word", "gru")
    assert not np.any(results["gradient value"])
    assert all(np.any(value != 0) for key, value in results.items() if key != "gradient value")
    assert set(results) - {"gradient value"} < set(results_of("inner-word", "ours"))


TRANSLATORS = [c.name for c in contenders_for("translation") if not c.compiled]


@pytest.mark.parametrize("name", [name for name in TRANSLATORS if name != "ours"])
@pytest.mark.by_default(*{*TRANSLATORS} - {"half"})
def test_translators_find_our_words(name):
    if name.startswith(("engine", "litert")):
        pytest.importorskip("ctranslate2")
    results, expected = results_of("translation", name), results_of("translation", "ours")
    assert expected["beam"].shape == (3, 5) and expected["beam"].min() >= 4
    assert np.unique(expected["beam"], axis=0).shape[0] > 1
    assert np.any(expected["beam"] != expected["greedy"])
    assert results["beam"].shape == results["greedy"].shape == (3, 5)
    if find("translation", name).side not in INEXACT:
        assert disagreement(results, expected) == (0.0, "greedy")


def test_some_memory_is_masked_and_none_wholly():
    masks = [make_inputs(Problem(kind, TINY))["mask"] for kind in LAYERS]
    for mask in [*masks, make_ids(Problem("transformer", EVEN))["source"] != 0]:
        assert not mask.all() and mask.any(axis=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_on_jax_our_programs_and_those_of_keras_are_measured(kind):
    names = [each.name for each in contenders_for(kind, backend="jax")]
    assert names[0] == "ours"
    assert not any("torch" in name or "xla" in name or "engine" in name for name in names)
