"""The entry point to all searches, and its options."""

import dataclasses
import inspect
import math

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_attention.decoding import SearchOptions, beam_search, greedy_search, sample, search
from tests.decoding.chains import END, START, Chain
from tests.decoding.running import MODES, prepare

COMMON = {
    "start_id": START,
    "end_id": END,
    "pad_id": -1,
    "attention_key": "attention_scores",
    "constant_keys": ("memory",),
}
LENGTHS = np.array([1, 5, 3])


def check_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))


@pytest.mark.by_default("beam")
@pytest.mark.parametrize(
    "options,function,arguments",
    [
        (
            {"beam_size": 3, "n_best": 2, "length_penalty": 0.7, "coverage_penalty": 0.3},
            beam_search,
            {"beam_size": 3, "n_best": 2, "length_penalty": 0.7, "coverage_penalty": 0.3},
        ),
        ({"beam_size": 1, "coverage_penalty": 0.3}, greedy_search, {}),
        (
            {"sample": True, "n_best": 7, "temperature": 0.8, "top_k": 4, "top_p": 0.9, "seed": 3},
            sample,
            {"n_best": 7, "temperature": 0.8, "top_k": 4, "top_p": 0.9, "seed": 3},
        ),
    ],
    ids=["beam", "greedy", "sample"],
)
def test_search_does_what_the_options_say(options, function, arguments):
    chain = Chain(vocabulary=7, seed=3)
    options = SearchOptions(max_length=17, min_length=3, no_repeat_ngram=2, **options)
    common = {**COMMON, "min_length": 4, "no_repeat_ngram": 2}
    masked = {"attention_mask": chain.mask}
    if function is beam_search:
        arguments = {**arguments, **masked}
    state = chain.state()
    found = search(chain.step, state, options, **masked, **COMMON)
    check_equal(found, function(chain.step, state, max_length=17, **common, **arguments))
    # Three times the source's tokens and ten to spare, where that is less.
    found = search(chain.step, state, options, lengths=LENGTHS, **masked, **COMMON)
    limits = np.array([13, 17, 17])
    check_equal(found, function(chain.step, state, max_length=limits, **common, **arguments))


def test_the_options_that_are_not_given():
    assert SearchOptions() == SearchOptions(
        beam_size=5,
        n_best=1,
        length_penalty=1.0,
        coverage_penalty=0.0,
        max_length=100,
        max_length_ratio=3.0,
        min_length=0,
        no_repeat_ngram=0,
        sample=False,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
    )
    assert inspect.signature(beam_search).parameters["beam_size"].default == 4


@pytest.mark.by_default("eager")
@pytest.mark.parametrize("mode", MODES)
def test_source_lengths_that_only_the_graph_knows(mode):
    chain = Chain(seed=5)
    options = SearchOptions(beam_size=2, max_length=19, max_length_ratio=0.5)
    longest = options.longest(5)
    assert longest == 13

    def run(state):
        lengths = state["memory"]["lengths"]
        return search(chain.step, state, options, lengths=lengths, longest=longest, **COMMON)

    state = chain.state()
    state["memory"]["lengths"] = ops.convert_to_tensor(LENGTHS, dtype="int32")
    found = prepare(run, mode)(state)
    expected = search(chain.step, state, options, lengths=LENGTHS, longest=longest, **COMMON)
    assert found.tokens.shape[2] == 13
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found.tokens), ops.convert_to_numpy(expected.tokens)
    )


def test_a_seed_generator_takes_the_place_of_the_seed():
    chain, options = Chain(vocabulary=97, seed=7), SearchOptions(sample=True, max_length=9, seed=3)
    generator = keras.random.SeedGenerator(5)
    first, second = (
        search(chain.step, chain.state(), options, seed=generator, **COMMON).tokens
        for _ in range(2)
    )
    assert (ops.convert_to_numpy(first) != ops.convert_to_numpy(second)).any()


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=5),
    st.one_of(st.none(), st.floats(1e-3, 50), st.just(1e38)),
    st.integers(1, 500),
    st.integers(0, 30),
)
def test_the_longest_is_the_limit_of_the_longest_source(lengths, ratio, max_length, min_length):
    """Were they rounded differently, the limit of a sentence would be cut."""
    max_length = max(max_length, min_length)
    options = SearchOptions(max_length=max_length, max_length_ratio=ratio, min_length=min_length)
    limits = ops.convert_to_numpy(options.limits(ops.convert_to_tensor(lengths, dtype="int32")))
    most = max(max_length, min_length + 1)
    assert limits.max() == options.longest(max(lengths)) <= options.longest() == most
    assert limits.min() >= min_length + 1
    if ratio is not None:
        with np.errstate(over="ignore"):
            words = np.float32(ratio) * np.array(lengths, "float32")
        exact = [math.ceil(min(x, 1e9)) + 10 for x in words]
        np.testing.assert_array_equal(limits, np.clip(exact, min_length + 1, most))


INTEGERS = {0: "non-negative integer", 1: "positive integer"}


@pytest.mark.parametrize(
    "wrong,message",
    [
        *(
            ({name: value}, f"`{name}` must be a {INTEGERS[least]}. Received: {name}={value}")
            for name, least in {
                "beam_size": 1, "n_best": 1, "max_length": 1, "batch_size": 1, "min_length": 0,
                "no_repeat_ngram": 0, "top_k": 0, "seed": 0,
            }.items()
            for value in (least - 1, 2.0, True)
        ),
        *(
            ({name: value}, f"`{name}` must be a finite number .* Received: {name}={value!r}")
            for name, values in {
                "length_penalty": (-0.1, math.nan, math.inf, True, "1"),
                "coverage_penalty": (-0.1, math.nan, math.inf, None),
                "max_length_ratio": (0.0, math.nan, math.inf),
                "temperature": (0.0, -1.0, math.nan, math.inf),
                "top_p": (0.0, 1.1, math.nan),
            }.items()
            for value in values
        ),
        ({"sample": 1}, "`sample` must be True or False. Received: sample=1"),
        ({"beam_size": 2, "n_best": 3}, "Received: n_best=3, beam_size=2"),
        ({"min_length": 101}, "Received: min_length=101, max_length=100"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options(wrong, message):
    with pytest.raises(ValueError, match=message):
        SearchOptions(**wrong)


def test_options_are_values():
    options = SearchOptions(beam_size=3, n_best=2)
    assert options == SearchOptions(n_best=2, beam_size=3)
    assert len({options, SearchOptions(n_best=2, beam_size=3)}) == 1
    changed = options.replace(n_best=None, max_length_ratio=None, beam_size=4)
    assert changed == SearchOptions(beam_size=4, n_best=2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.beam_size = 5
    with pytest.raises(ValueError, match="n_best=2, beam_size=1"):
        options.replace(beam_size=1)


@pytest.mark.parametrize(
    "changes,uses", [({}, True), ({"beam_size": 1}, False), ({"sample": True}, False)], ids=str
)
def test_a_coverage_penalty_needs_attention(changes, uses):
    options = SearchOptions(coverage_penalty=0.2, max_length=3).replace(**changes)
    assert options.uses_coverage == uses
    chain, asked = Chain(seed=3), {**COMMON, "attention_key": None}
    if uses:
        with pytest.raises(ValueError, match="needs the attention weights"):
            search(chain.step, chain.state(), options, **asked)
    else:
        assert search(chain.step, chain.state(), options, **asked).attention is None
