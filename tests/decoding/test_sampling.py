"""Sampling: frequencies against the distribution asked for, support, seeds, temperatures."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import greedy_search, sample
from keras_attention.decoding.greedy_and_sampling import _draw
from tests.decoding.chains import END, START, Chain
from tests.decoding.running import MODES, USUAL, prepare

SAMPLES = 20_000


def asked_distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """The distribution of one token in float64, from the definition."""
    logits = np.asarray(logits, "float64") / temperature
    weights = np.exp(logits - logits.max())
    order = np.argsort(-weights, kind="stable")
    kept = order[:top_k] if top_k else order
    if top_p < 1:
        before = np.cumsum(weights[kept]) - weights[kept]
        kept = kept[before < top_p * weights[kept].sum()]
    chosen = np.zeros_like(weights)
    chosen[kept] = weights[kept]
    return chosen / chosen.sum()


def draw_tokens(logits, count=SAMPLES, seed=0, mode=USUAL, **options):
    """Draw single tokens from rows of logits `(B, V)`: the tokens and the result."""
    logits = ops.convert_to_tensor(logits, dtype="float32")

    def search(state):
        return sample(
            lambda tokens, state, index: (state["logits"], state),
            state,
            start_id=START,
            end_id=END,
            max_length=1,
            n_best=count,
            seed=seed,
            **options,
        )

    result = prepare(search, mode)({"logits": logits})
    return ops.convert_to_numpy(result.tokens)[:, :, 0], result


def check_frequencies(outcomes, probabilities):
    """Pearson's statistic lies within five deviations of what it is for the true distribution."""
    counts = np.bincount(outcomes, minlength=len(probabilities))
    assert (counts[probabilities == 0] == 0).all()
    expected = len(outcomes) * probabilities
    # Rare outcomes are taken together: the statistic is not chi-square with counts of a few.
    rare = expected < 10
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    statistic = ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    freedom = len(expected) - 1
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


TRUNCATIONS = {
    "whole": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 3.0},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.7},
    "top-k, top-p, warm": {"top_k": 4, "top_p": 0.8, "temperature": 1.5},
}


@pytest.mark.by_default("613-8000-top-p", "101-7000-top-k, top-p, warm", vocabulary=[5])
@pytest.mark.parametrize("options", TRUNCATIONS.values(), ids=TRUNCATIONS)
@pytest.mark.parametrize("vocabulary,count", [(5, SAMPLES), (101, 7_000), (613, 8_000)])
def test_frequencies_are_the_distribution(vocabulary, count, options):
    logits = 1.5 * np.random.default_rng(1).normal(size=(2, vocabulary))
    tokens, result = draw_tokens(logits, count, **options)
    log_model = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    for sentence in range(2):
        asked = asked_distribution(logits[sentence], **options)
        drawn = tokens[sentence]
        check_frequencies(drawn, asked)
        np.testing.assert_allclose(
            ops.convert_to_numpy(result.scores)[sentence], np.log(asked[drawn]), atol=1e-4
        )
        np.testing.assert_allclose(
            ops.convert_to_numpy(result.log_probabilities)[sentence],
            log_model[sentence][drawn],
            atol=1e-4,
        )
    assert (np.diff(ops.convert_to_numpy(result.scores), axis=1) <= 0).all()


def test_the_frequency_check_notices_a_wrong_distribution():
    probabilities = np.array([0.5, 0.3, 0.2])
    outcomes = np.random.default_rng(0).choice(3, size=SAMPLES, p=[0.48, 0.31, 0.21])
    with pytest.raises(AssertionError):
        check_frequencies(outcomes, probabilities)


@pytest.mark.parametrize("sharpness,sorts_all", [(4.0, False), (0.1, True)])
def test_a_nucleus_within_the_head_and_beyond_it(sharpness, sorts_all):
    """The vocabulary is sorted in full only where the nucleus is larger than what is looked at."""
    logits = sharpness * np.random.default_rng(2).normal(size=(2, 613))
    asked = [asked_distribution(row, top_p=0.9) for row in logits]
    assert ((max((row > 0).sum() for row in asked)) > 256) == sorts_all
    tokens, _ = draw_tokens(logits, count=12_000, top_p=0.9)
    for drawn, probabilities in zip(tokens, asked, strict=True):
        check_frequencies(drawn, probabilities)


@pytest.mark.parametrize("number,place", [(0.0, 5), (0.4, 2), (0.6, 1), (1 - 2.0**-24, 1)])
def test_no_number_draws_what_has_no_weight(number, place):
    """At both ends of [0, 1) and between: the impossible first, last and in the middle."""
    weights = ops.convert_to_tensor([[0.0, 0.5, 0.1, 0.0, 0.0, 0.4, 0.0]], dtype="float32")
    places, log_probabilities = _draw(weights, ops.convert_to_tensor([number], dtype="float32"))
    assert int(places[0]) == place
    expected = np.log(ops.convert_to_numpy(weights)[0, place])
    np.testing.assert_allclose(float(log_probabilities[0]), expected, atol=1e-6)


def test_frequencies_of_whole_sequences():
    chain = Chain(batch=2, vocabulary=3, seed=9)
    result = sample(
        chain.step, chain.state(), start_id=START, end_id=END, max_length=3, n_best=SAMPLES, seed=3
    )
    tokens = ops.convert_to_numpy(result.tokens)
    sequences = [
        one
        for one in itertools.product(range(3), repeat=3)
        if END not in one or not any(one[one.index(END) :])
    ]
    for sentence in range(2):
        probabilities = []
        for one in sequences:
            real = one[: one.index(END) + 1] if END in one else one
            steps = [chain.log_probabilities(sentence, real[:i])[v] for i, v in enumerate(real)]
            probabilities.append(np.exp(sum(steps)))
        outcomes = [sequences.index(tuple(row)) for row in tokens[sentence].tolist()]
        np.testing.assert_allclose(sum(probabilities), 1.0)
        check_frequencies(np.array(outcomes), np.array(probabilities))


@pytest.mark.parametrize(
    "options,support",
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 2}, {1, 2}),  # of the two equal ones the lower number
        ({"top_k": 3}, {1, 2, 4}),
        ({"top_k": 99}, {0, 1, 2, 4}),  # one is impossible
        ({"top_p": 0.39}, {2}),
        ({"top_p": 0.41}, {1, 2}),
        ({"top_p": 0.66}, {1, 2, 4}),
        ({"top_p": 0.91}, {0, 1, 2, 4}),
        ({"top_p": 1e-9}, {2}),
        ({"top_k": 3, "top_p": 0.45}, {1, 2}),  # of the three 0.4 is 0.44
        ({"top_k": 3, "top_p": 0.43}, {2}),
        ({}, {0, 1, 2, 4}),
    ],
    ids=str,
)
def test_support(options, support):
    with np.errstate(divide="ignore"):
        logits = np.log([[0.1, 0.25, 0.4, 0.0, 0.25]])
    tokens, _ = draw_tokens(logits, count=2000, **options)
    assert set(tokens.ravel().tolist()) == support


@pytest.mark.by_default("eager")
@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_draws_the_same(mode):
    logits = np.random.default_rng(4).normal(size=(3, 50))
    first, _ = draw_tokens(logits, count=20, seed=7, mode=mode)
    second, _ = draw_tokens(logits, count=20, seed=7, mode=mode)
    other, _ = draw_tokens(logits, count=20, seed=8, mode=mode)
    eager, _ = draw_tokens(logits, count=20, seed=7, mode="eager")
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    if mode != "xla":  # which has a generator of its own
        np.testing.assert_array_equal(first, eager)


def test_a_seed_generator_goes_on():
    logits = np.zeros((3, 50))
    generator = keras.random.SeedGenerator(5)
    same = keras.random.SeedGenerator(5)
    first, second, again = (
        draw_tokens(logits, count=20, seed=seed, mode="eager")[0]
        for seed in (generator, generator, same)
    )
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_steps_samples_and_sentences_draw_for_themselves():
    def step(tokens, state, index):
        return ops.zeros((ops.shape(tokens)[0], 1000)), state

    result = sample(
        step, {"row": ops.zeros((5, 1))}, start_id=START, end_id=END, max_length=11, min_length=11,
        n_best=7, seed=1,
    )  # fmt: skip
    tokens = ops.convert_to_numpy(result.tokens)
    assert len(set(tokens.ravel().tolist())) > 300  # 385 draws out of 999
    assert not (tokens == END).any()


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-5])
def test_cold_is_greedy(temperature):
    chain = Chain(batch=3, vocabulary=11, seed=10)
    options = {"start_id": START, "end_id": END, "max_length": 6, "no_repeat_ngram": 2}
    cold = sample(chain.step, chain.state(), temperature=temperature, seed=0, **options)
    greedy = greedy_search(chain.step, chain.state(), **options)
    for ours, theirs in zip(cold[:2], greedy[:2], strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs))
    np.testing.assert_allclose(
        ops.convert_to_numpy(cold.log_probabilities),
        ops.convert_to_numpy(greedy.log_probabilities),
        rtol=1e-5,
    )
    np.testing.assert_allclose(ops.convert_to_numpy(cold.scores), 0.0, atol=1e-5)


def test_hot_is_uniform_over_what_is_possible():
    logits = np.array([[1e4, 0.0, -np.inf, -1e4, 30.0]])
    tokens, _ = draw_tokens(logits, temperature=1e30)
    check_frequencies(tokens[0], np.array([0.25, 0.25, 0.0, 0.25, 0.25]))


def test_constraints_hold_in_samples():
    chain = Chain(batch=3, vocabulary=4, seed=11)
    result = sample(
        chain.step, chain.state(), start_id=START, end_id=END, max_length=9, min_length=3,
        no_repeat_ngram=2, n_best=200, seed=2, pad_id=-1,
    )  # fmt: skip
    tokens, lengths = ops.convert_to_numpy(result.tokens), ops.convert_to_numpy(result.lengths)
    assert lengths.min() == 3 and lengths.max() == 9
    for row, length in zip(tokens.reshape(-1, 9), lengths.ravel(), strict=True):
        bigrams = list(zip(row[: length - 1], row[1:length], strict=True))
        assert len(set(bigrams)) == len(bigrams)
        assert (row[length:] == -1).all() and not (row[: length - 1] == END).any()


def test_samples_end_with_any_of_several_tokens():
    chain = Chain(batch=2, vocabulary=5, seed=11)
    ends = (END, 3)
    result = sample(
        chain.step, chain.state(), start_id=START, end_id=[*ends], max_length=9, min_length=3,
        n_best=50, seed=3, pad_id=-1, constant_keys=["memory"],
    )  # fmt: skip
    tokens, lengths = ops.convert_to_numpy(result.tokens), ops.convert_to_numpy(result.lengths)
    assert lengths.min() == 3
    rows = [
        row[:length] for row, length in zip(tokens.reshape(-1, 9), lengths.ravel(), strict=True)
    ]
    assert {row[-1] for row in rows if len(row) < 9} == {*ends}
    assert not any(np.isin(row[:-1], ends).any() for row in rows)


def test_attention_is_of_the_sample_it_comes_with():
    chain = Chain(batch=2, seed=12)
    result = sample(
        chain.step, chain.state(), start_id=START, end_id=END, max_length=5, n_best=6, seed=2,
        attention_key="attention_scores", constant_keys=["memory"],
    )  # fmt: skip
    tokens, lengths = ops.convert_to_numpy(result.tokens), ops.convert_to_numpy(result.lengths)
    attention = ops.convert_to_numpy(result.attention)
    for at in np.ndindex(2, 6):
        prefix = tuple(tokens[at][: lengths[at]].tolist())
        for place in range(lengths[at]):
            expected = chain.attention(at[0], prefix[:place])
            np.testing.assert_allclose(attention[at][place], expected, atol=1e-5)
        assert (attention[at][lengths[at] :] == 0).all()
