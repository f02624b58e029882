"""Greedy search against its definition, token by token."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import beam_search, greedy_search, sample
from tests.decoding.chains import END, START, Chain, Rules, check_result
from tests.decoding.running import in_python

SEARCHES = {
    "greedy": greedy_search,
    "beam": lambda *args, **options: beam_search(*args, beam_size=3, **options),
    "sample": lambda *args, **options: sample(*args, seed=1, n_best=3, **options),
}
LIMITS = (6, 2, 5)


def greedy(chain, sentence, rules):
    tokens, total = (), 0.0
    while not tokens or not rules.is_complete(tokens):
        log_probabilities = chain.log_probabilities(sentence, tokens)
        token = max(rules.allowed(tokens, log_probabilities), key=lambda v: log_probabilities[v])
        tokens, total = (*tokens, token), total + log_probabilities[token]
    return rules.hypothesis(chain, sentence, tokens, total)


def test_the_loop_ends_with_the_last_row():
    chain = Chain(seed=4)
    chain.table[:, :, END] += 3.0
    expected = [[greedy(chain, sentence, Rules(max_length=19))] for sentence in range(chain.batch)]
    calls = []

    def step(tokens, state, index):
        calls.append(index)
        return chain.step(tokens, state, index)

    with in_python():
        result = greedy_search(step, chain.state(), start_id=START, end_id=END, max_length=19)
    check_result(result, expected)
    assert len(calls) == max(len(one.tokens) for (one,) in expected) < 19


def fixed(table):
    """A step whose logits are a row of the table, and a state of `rows` rows."""

    def step(tokens, state, index):
        return ops.take(ops.convert_to_tensor(table), tokens, axis=0), state

    return step, lambda rows: {"row": ops.zeros((rows, 1))}


@pytest.mark.parametrize("name", SEARCHES)
def test_each_sentence_can_have_its_own_start(name):
    never = -np.inf
    # 1 -> 2 -> end, 3 -> 4 -> 2 -> end, without a choice.
    table = np.full((5, 5), never, "float32")
    table[[0, 1, 2, 3, 4], [0, 2, 0, 4, 2]] = 0.3
    step, state = fixed(table)
    result = SEARCHES[name](
        step, state(2), start_id=ops.convert_to_tensor([3, 1], dtype="int32"), end_id=0,
        max_length=4, pad_id=1,
    )  # fmt: skip
    assert ops.convert_to_numpy(result.tokens)[:, 0].tolist() == [[4, 2, 0, 1], [2, 0, 1, 1]]
    assert ops.convert_to_numpy(result.lengths)[:, 0].tolist() == [3, 2]
    np.testing.assert_allclose(ops.convert_to_numpy(result.scores)[:, 0], 0.0, atol=1e-6)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_row_that_can_only_end_ends_before_its_minimum(name):
    table = np.zeros((4, 4), "float32")
    table[2, 1:] = -np.inf  # after 2 only the end (0)
    table[1] = [0, -np.inf, 5, -np.inf]
    step, state = fixed(table)
    result = SEARCHES[name](step, state(1), start_id=1, end_id=0, max_length=6, min_length=4)
    assert ops.convert_to_numpy(result.tokens)[0, 0].tolist() == [2, 0, 0, 0, 0, 0]
    assert int(result.lengths[0, 0]) == 2
    assert np.isfinite(float(result.scores[0, 0]))


@pytest.mark.parametrize("name", SEARCHES)
def test_blocking_every_token_leaves_the_end(name):
    step, state = fixed(np.zeros((3, 3), "float32"))
    result = SEARCHES[name](
        step, state(2), start_id=1, end_id=0, max_length=9, min_length=9, no_repeat_ngram=1
    )
    tokens = ops.convert_to_numpy(result.tokens)[:, 0]
    assert sorted(tokens[0].tolist()) == [0] * 7 + [1, 2]
    assert ops.convert_to_numpy(result.lengths)[:, 0].tolist() == [3, 3]


@pytest.mark.parametrize("name", ["greedy", "sample"])
def test_a_row_without_any_continuation_ends_with_probability_zero(name):
    table = np.zeros((3, 3), "float32")
    table[0] = -np.inf
    table[1] = [0, -np.inf, -np.inf]
    step, state = fixed(table)
    result = SEARCHES[name](step, state(2), start_id=1, end_id=2, max_length=4, pad_id=1)
    assert ops.convert_to_numpy(result.tokens)[:, 0].tolist() == [[0, 2, 1, 1]] * 2
    assert (ops.convert_to_numpy(result.log_probabilities) == -np.inf).all()
    assert (ops.convert_to_numpy(result.scores) == -np.inf).all()


def test_a_beam_without_any_continuation_is_no_hypothesis():
    table = np.zeros((4, 4), "float32")
    table[2] = -np.inf  # a dead end
    table[3] = [0, -np.inf, -np.inf, -np.inf]
    table[1] = [-np.inf, -np.inf, 5, 0]
    step, state = fixed(table)
    result = beam_search(step, state(1), start_id=1, end_id=0, max_length=4, beam_size=3, n_best=2)
    assert ops.convert_to_numpy(result.tokens)[0].tolist() == [[3, 0, 0, 0], [0, 0, 0, 0]]
    assert ops.convert_to_numpy(result.lengths)[0].tolist() == [2, 0]
    assert ops.convert_to_numpy(result.scores)[0, 1] == -np.inf


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(name, dtype):
    """The probabilities are those of the rounded logits, to float32's precision."""
    chain = Chain(batch=2, vocabulary=37, seed=6)

    def step(tokens, state, index):
        logits, state = chain.step(tokens, state, index)
        return ops.cast(20 * logits, dtype), state

    def rounded(tokens, state, index):
        logits, state = step(tokens, state, index)
        return ops.cast(logits, "float32"), state

    options = {"start_id": START, "end_id": END, "max_length": 8}
    half = SEARCHES[name](step, chain.state(), **options)
    single = SEARCHES[name](rounded, chain.state(), **options)
    for ours, theirs in zip(half[:4], single[:4], strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs))
    assert "float32" in str(half.scores.dtype) and "float32" in str(half.log_probabilities.dtype)


@pytest.mark.parametrize("name", SEARCHES)
def test_state_in_half_precision_keeps_its_attention_type(name):
    chain = Chain(batch=2, seed=8)
    result = SEARCHES[name](
        chain.step, chain.state("float16"), start_id=START, end_id=END, max_length=3,
        attention_key="attention_scores", constant_keys=["memory"],
    )  # fmt: skip
    assert "float16" in str(result.attention.dtype)
    sums = ops.convert_to_numpy(ops.sum(ops.cast(result.attention, "float32"), axis=-1))
    lengths = ops.convert_to_numpy(result.lengths)
    np.testing.assert_allclose(sums, np.arange(3) < lengths[..., None], atol=5e-3)


@pytest.mark.parametrize("name", SEARCHES)
def test_no_sentences_give_no_hypotheses(name):
    chain = Chain(batch=2, seed=8)
    state = {"trace": [ops.zeros((0,))], "attention_scores": ops.zeros((0, 7))}

    def step(tokens, state, index):
        return ops.zeros((ops.shape(tokens)[0], chain.vocabulary)), state

    result = SEARCHES[name](
        step, state, start_id=START, end_id=END, max_length=4, attention_key="attention_scores"
    )
    hypotheses = 1 if name != "sample" else 3
    assert tuple(result.tokens.shape) == (0, hypotheses, 4)
    assert tuple(result.attention.shape) == (0, hypotheses, 4, 7)
