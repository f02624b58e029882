"""Beam search against exhaustive enumeration, and against beam search in plain Python."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import CoveragePenalty, LengthPenalty, beam_search, greedy_search
from tests.decoding.chains import (
    END,
    START,
    Chain,
    Rules,
    check_result,
    enumerate_hypotheses,
    search_narrowly,
)
from tests.decoding.running import MODES, USUAL, in_python, prepare

LIMITS = (4, 2, 3)  # of the sentences, where each has its own

ASKED = {
    "plain": {},
    "length penalty": {"alpha": 0.7},
    "strong length penalty": {"alpha": 3.0},
    "coverage penalty": {"beta": 0.3},
    "both penalties": {"alpha": 1.0, "beta": 0.2},
    "minimum length": {"min_length": 3},
    "no word twice": {"no_repeat_ngram": 1},
    "no bigram twice": {"no_repeat_ngram": 2},
    "no trigram twice, long enough": {"no_repeat_ngram": 3, "min_length": 4, "alpha": 0.5},
}


def search(chain, rules, limits=None, state=None, mode=USUAL, **options):
    """Run beam search as the rules say."""
    options = {
        "start_id": START,
        "end_id": END,
        "max_length": list(limits) if limits else rules.max_length,
        "min_length": rules.min_length,
        "no_repeat_ngram": rules.no_repeat_ngram,
        "length_penalty": rules.alpha,
        "coverage_penalty": rules.beta,
        "attention_mask": chain.mask,
        "attention_key": "attention_scores",
        "constant_keys": ("memory",),
        **options,
    }
    run = prepare(lambda state: beam_search(chain.step, state, **options), mode)
    return run(chain.state() if state is None else state)


def each_sentence(chain, rules, limits):
    limits = limits or (rules.max_length,) * chain.batch
    return [(b, rules._replace(max_length=limits[b])) for b in range(chain.batch)]


@pytest.mark.parametrize("limits", [None, LIMITS], ids=["one limit", "own limits"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_beam_as_wide_as_the_space_ranks_it_all(asked, limits):
    chain, rules = Chain(seed=3), Rules(max_length=4, **asked)
    expected = [enumerate_hypotheses(chain, *each) for each in each_sentence(chain, rules, limits)]
    beams = max(map(len, expected)) + 3  # so that some are missing in every sentence
    result = search(chain, rules, limits, beam_size=beams, n_best=beams)
    check_result(result, expected)
    if not asked and not limits:
        total = np.exp(ops.convert_to_numpy(result.log_probabilities)).sum(axis=1)
        np.testing.assert_allclose(total, 1.0, rtol=1e-5)


@pytest.mark.parametrize("n_best", [1, 3, 11])
@pytest.mark.parametrize("alpha", [0.0, 0.8, 3.0])
def test_stopping_early_keeps_the_optimum(alpha, n_best):
    chain, rules = Chain(vocabulary=3, seed=5), Rules(max_length=5, alpha=alpha, beta=0.1)
    expected = [
        enumerate_hypotheses(chain, sentence, rules)[:n_best] for sentence in range(chain.batch)
    ]
    check_result(search(chain, rules, beam_size=37, n_best=n_best), expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beam_size,n_best", [(1, 1), (3, 1), (5, 3)])
def test_narrow_beams_do_what_plain_python_does(beam_size, n_best, mode):
    chain = Chain(vocabulary=7, seed=7)
    rules = Rules(max_length=6, alpha=0.6, beta=0.2, no_repeat_ngram=2, min_length=2)
    limits = (6, 3, 5)
    expected = [
        search_narrowly(chain, *each, beam_size, n_best)[0]
        for each in each_sentence(chain, rules, limits)
    ]
    result = search(chain, rules, limits, beam_size=beam_size, n_best=n_best, mode=mode)
    check_result(result, expected)


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


def test_one_beam_is_greedy_search():
    chain = Chain(vocabulary=11, seed=17)
    options = {
        "start_id": START,
        "end_id": END,
        "max_length": 7,
        "no_repeat_ngram": 2,
        "attention_key": "attention_scores",
    }
    beam = beam_search(chain.step, chain.state(), beam_size=1, **options)
    greedy = greedy_search(chain.step, chain.state(), **options)
    for ours, theirs in zip(beam, greedy, strict=True):
        np.testing.assert_allclose(
            ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs), rtol=1e-6
        )


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


def test_a_sentence_does_not_depend_on_its_neighbours():
    chain, rules = Chain(batch=5, seed=19), Rules(max_length=6, alpha=0.6)
    together = search(chain, rules, beam_size=3, n_best=2)
    for sentence in range(chain.batch):
        state = keras.tree.map_structure(lambda x, b=sentence: x[b : b + 1], chain.state())
        alone = search(chain, rules, state=state, beam_size=3, n_best=2, attention_mask=None)
        for one, all_of_them in zip(alone, together, strict=True):
            np.testing.assert_allclose(
                ops.convert_to_numpy(one)[0], ops.convert_to_numpy(all_of_them)[sentence], rtol=1e-5
            )


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
