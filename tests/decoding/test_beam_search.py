"""Beam search: when it ends, penalties, ties, wide vocabularies. `test_oracle.py` has the rest."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import CoveragePenalty, LengthPenalty, beam_search
from keras_attention.decoding.loop import chunked_top_k, ordered_top_k
from tests.contracts.backend import to_numpy
from tests.decoding.chains import (
    END,
    START,
    Chain,
    Rules,
    check_result,
    search_narrowly,
)
from tests.decoding.running import USUAL, in_python, prepare


def search(chain, rules, **options):
    """Run beam search as the rules say."""
    options = {
        "start_id": START,
        "end_id": END,
        "max_length": rules.max_length,
        "length_penalty": rules.alpha,
        "coverage_penalty": rules.beta,
        "attention_mask": chain.mask,
        "attention_key": "attention_scores",
        "constant_keys": ("memory",),
        **options,
    }
    return prepare(lambda state: beam_search(chain.step, state, **options), USUAL)(chain.state())


@pytest.mark.parametrize("seed,alpha", [(11, 0.0), (11, 1.0), (12, 1.0), (13, 4.0)])
def test_the_loop_ends_as_soon_as_nothing_can_change(seed, alpha):
    chain, rules = Chain(seed=seed), Rules(max_length=9, alpha=alpha)
    chain.table[:, :, END] += 2.0
    expected = [search_narrowly(chain, b, rules, 3, 2) for b in range(chain.batch)]
    calls = []

    def step(tokens, state, index):
        calls.append(index)
        return chain.step(tokens, state, index)

    with in_python():
        result = beam_search(
            step,
            chain.state(),
            start_id=START,
            end_id=END,
            max_length=rules.max_length,
            beam_size=3,
            n_best=2,
            length_penalty=alpha,
        )
    check_result(result, [hypotheses for hypotheses, _ in expected])
    assert len(calls) == max(enough for _, enough in expected)
    assert [int(index) for index in calls] == list(range(len(calls)))


def test_the_steps_that_end_early_differ_with_the_penalty():
    """The test above would hold for a search that never stops, or always at once."""
    chain = Chain(seed=11)
    chain.table[:, :, END] += 2.0
    steps = [
        max(search_narrowly(chain, b, Rules(9, alpha=alpha), 3, 2)[1] for b in range(chain.batch))
        for alpha in (0.0, 1.0, 4.0)
    ]
    assert 1 < steps[0] < steps[1] <= steps[2] <= 9 and steps[0] < steps[2]


@pytest.mark.parametrize("after_end", [-9.0, 9.0])
def test_a_complete_hypothesis_is_never_scored_again(after_end):
    """Whatever the model says after the end, and however long the others go on."""
    # From the start: the end (60 %) or 2 (40 %); 2 leads to itself, and hardly ever ends.
    table = np.log([[1, 1, 1], [0.6, 1e-9, 0.4], [0.01, 1e-9, 0.99]])
    table[0] = [0.0, 0.0, after_end]

    def step(tokens, state, index):
        return ops.take(ops.convert_to_tensor(table, dtype="float32"), tokens, axis=0), state

    for max_length in (1, 2, 5, 8):
        result = beam_search(
            step,
            {"row": ops.zeros((2, 1))},
            start_id=START,
            end_id=END,
            max_length=max_length,
            beam_size=2,
            n_best=2,
            length_penalty=3.0,
        )
        tokens = ops.convert_to_numpy(result.tokens)
        ended = (ops.convert_to_numpy(result.lengths) == 1) & (tokens[:, :, 0] == END)
        assert ended.sum(axis=1).tolist() == [1, 1]
        scores = ops.convert_to_numpy(result.scores)[ended]
        np.testing.assert_allclose(scores, np.log(0.6), rtol=1e-5)


def test_another_default_dtype_changes_nothing():
    table = ops.convert_to_tensor(np.log([[0.2, 0.3, 0.5]]).astype("float32"))

    def step(tokens, state, index):
        return ops.take(table, tokens * 0, axis=0), state

    def scores():
        state = {"row": ops.zeros((1, 1), "float32")}
        return to_numpy(beam_search(step, state, start_id=1, end_id=0, max_length=5).scores)

    expected = scores()
    keras.config.set_floatx("float16")
    np.testing.assert_array_equal(scores(), expected)


def test_own_penalty_objects():
    chain, rules = Chain(vocabulary=3, seed=23), Rules(max_length=4)
    plain = search(chain, rules, beam_size=40, n_best=31)
    mean = search(chain, rules, beam_size=40, n_best=31, length_penalty=lambda length: length)
    lengths, scores = (ops.convert_to_numpy(x) for x in (plain.lengths, plain.scores))
    expected = -np.sort(-scores / lengths, axis=1)
    np.testing.assert_allclose(ops.convert_to_numpy(mean.scores), expected, rtol=1e-5)

    for number, same in [(0.7, LengthPenalty(0.7)), (0.3, LengthPenalty(0.3))]:
        one = search(chain, rules, beam_size=4, length_penalty=number, coverage_penalty=number)
        other = search(
            chain,
            rules,
            beam_size=4,
            length_penalty=same,
            coverage_penalty=CoveragePenalty(number),
        )
        assert (ops.convert_to_numpy(one.scores) == ops.convert_to_numpy(other.scores)).all()


def test_padding_counts_as_uncovered_only_without_a_mask():
    chain, rules = Chain(batch=2, memory=5, seed=29), Rules(max_length=3, beta=0.4)
    masked = search(chain, rules, beam_size=2)
    check_result(masked, [search_narrowly(chain, b, rules, 2, 1)[0] for b in range(2)])
    unmasked = search(chain, rules, beam_size=2, attention_mask=None)
    change = ops.convert_to_numpy(unmasked.scores - masked.scores)[:, 0]
    # The second sentence lacks one memory step, which costs the floor of the penalty.
    np.testing.assert_allclose(change, [0.0, 0.4 * np.log(1e-6)], rtol=1e-3)


def test_ties_go_to_the_earlier_the_better_and_the_lower():
    def step(tokens, state, index):
        return ops.zeros((ops.shape(tokens)[0], 4)), state

    result = beam_search(
        step, {"row": ops.zeros((1, 1))}, start_id=START, end_id=3, max_length=2, beam_size=4,
        n_best=4,
    )  # fmt: skip
    tokens = ops.convert_to_numpy(result.tokens)[0].tolist()
    assert tokens == [[3, 0], [0, 0], [0, 1], [0, 2]]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_wide_vocabulary_is_searched_in_chunks(backwards):
    """More tokens than the chunks of `chunked_top_k` are worth, and equal logits among them."""
    random = np.random.default_rng(31)
    table = np.round(random.normal(size=(1009, 1009)), 1).astype("float32")
    table = table[:, ::-1] if backwards else table

    def step(tokens, state, index):
        return ops.take(ops.convert_to_tensor(table), tokens, axis=0), state

    result = beam_search(
        step, {"row": ops.zeros((1, 1))}, start_id=START, end_id=END, max_length=3, beam_size=3,
        n_best=3,
    )  # fmt: skip
    log_probabilities = table - np.log(np.exp(table.astype("float64")).sum(axis=1, keepdims=True))
    live = [((), 0.0, START)]
    for _ in range(3):  # no hypothesis ends here
        grown = [
            ((*tokens, v), total + log_probabilities[last, v], v)
            for tokens, total, last in live
            for v in np.argsort(-log_probabilities[last], kind="stable")[:6]
        ]
        live = sorted(grown, key=lambda one: -np.round(one[1], 5))[:3]
    assert all(END not in tokens for tokens, _, _ in live)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(result.tokens)[0], [tokens for tokens, _, _ in live]
    )


@pytest.mark.parametrize("size", [7, 320, 641, 1009, 8000])
@pytest.mark.parametrize("kind", ["distinct", "ties", "all alike", "mostly impossible"])
def test_top_k_is_a_stable_sort(size, kind):
    random = np.random.default_rng(size)
    x = {
        "distinct": random.normal(size=(3, size)),
        "ties": random.integers(0, 4, size=(3, size)),
        "all alike": np.zeros((3, size)),
        "mostly impossible": np.where(random.random((3, size)) < 0.999, -np.inf, 1.0),
    }[kind].astype("float32")
    for k in (1, 2, 5):
        order = np.argsort(-x, axis=-1, kind="stable")[:, :k]
        for top_k in (ordered_top_k, chunked_top_k):
            values, places = (ops.convert_to_numpy(y) for y in top_k(ops.convert_to_tensor(x), k))
            np.testing.assert_array_equal(places, order)
            np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=-1))
