"""Hypotheses that begin with given tokens, and logits that are no numbers."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import SearchOptions, beam_search, greedy_search, sample, search
from tests.decoding.chains import (
    END,
    START,
    Chain,
    Rules,
    check_result,
    enumerate_hypotheses,
    search_narrowly,
)
from tests.decoding.running import BACKEND, MODES, prepare

PREFIX = np.array([[3, 2, 3], [4, END, END], [END, END, END], [2, 2, END], [4, 1, 2]])
# Padding is the end here: it is never forced.
COMMON = {"start_id": START, "end_id": END, "pad_id": END}
STARTS = [tuple(row[row != END].tolist()) for row in PREFIX]


def rules_of(row, **options):
    return Rules(start=STARTS[row], **options)


def chain_of_five():
    chain = Chain(batch=5, vocabulary=5, seed=6)
    chain.table[:, :, END] += 1.0  # so that lengths differ
    return chain


@pytest.mark.by_default("eager", "tf.function")
@pytest.mark.parametrize("mode", MODES)
def test_greedy_goes_on_from_the_prefix(mode):
    chain = chain_of_five()
    options = {"max_length": 6, "attention_key": "attention_scores", "constant_keys": ["memory"]}
    shrink = {"shrink_batch": mode != "xla"}
    run = prepare(
        lambda state: greedy_search(
            chain.step, state, prefix=PREFIX, no_repeat_ngram=1, **options, **shrink, **COMMON
        ),
        mode,
    )
    expected = [
        search_narrowly(chain, row, rules_of(row, max_length=6, no_repeat_ngram=1), 1, 1)[0]
        for row in range(5)
    ]
    assert expected[0][0].tokens[:3] == (3, 2, 3)  # which the rule would forbid
    check_result(run(chain.state()), expected, pad_id=END)


@pytest.mark.by_default("3-eager", "90-eager")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("beam_size", [3, 90])
def test_beams_go_on_from_the_prefix(beam_size, mode):
    """A narrow beam finds what one in plain Python finds, a wide one the best of all."""
    chain, options = chain_of_five(), {"max_length": 4, "alpha": 0.7}
    run = prepare(
        lambda state: beam_search(
            chain.step,
            state,
            beam_size=beam_size,
            n_best=2,
            max_length=4,
            length_penalty=0.7,
            prefix=PREFIX,
            shrink_batch=mode != "xla",
            **COMMON,
        ),
        mode,
    )
    expected = [
        search_narrowly(chain, row, rules_of(row, **options), beam_size, 2)[0]
        if beam_size == 3
        else enumerate_hypotheses(chain, row, rules_of(row, **options))[:2]
        for row in range(5)
    ]
    check_result(run(chain.state()), expected, pad_id=END)


def test_samples_begin_with_the_prefix_at_no_cost():
    """A forced token has probability 1 in the distribution that is drawn from."""
    chain = chain_of_five()
    result = sample(
        chain.step, chain.state(), max_length=5, n_best=4, seed=3, top_k=3, prefix=PREFIX, **COMMON
    )
    tokens, scores, terms = (
        ops.convert_to_numpy(x)
        for x in (result.tokens, result.scores, result.token_log_probabilities)
    )
    for row, start in enumerate(STARTS):
        for each, score, given in zip(tokens[row], scores[row], terms[row], strict=True):
            assert tuple(each[: len(start)].tolist()) == start
            expected = [chain.log_probabilities(row, start[:i])[v] for i, v in enumerate(start)]
            np.testing.assert_allclose(given[: len(start)], expected, rtol=1e-4)
            assert score <= 0
    assert len({tuple(each) for each in tokens[2].tolist()}) > 1
    whole = sample(
        chain.step, chain.state(), max_length=3, seed=3, prefix=np.full((5, 3), 4), **COMMON
    )
    np.testing.assert_allclose(ops.convert_to_numpy(whole.scores), 0.0, atol=1e-6)
    assert (ops.convert_to_numpy(whole.tokens) == 4).all()


@pytest.mark.parametrize("options", [{"sample": True, "seed": 1}, {"beam_size": 1}, {}], ids=str)
def test_what_is_no_prefix_is_refused(options):
    chain, chosen = chain_of_five(), SearchOptions(max_length=2, **options)
    for prefix, message in (
        (PREFIX[:2], r"a row of tokens for each sentence.*Received: shape \(2, 3\) for 5"),
        (PREFIX[:, 0], r"Received: shape \(5,\)"),
        (PREFIX[:, :0], r"Received: shape \(5, 0\)"),
        (PREFIX, "at most as many tokens.*Received: 3 tokens for sentence 0, which may have 2"),
    ):
        with pytest.raises(ValueError, match=message):
            search(chain.step, chain.state(), chosen, prefix=prefix, **COMMON)


SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 3, "n_best": 2},
    "sample": {"sample": True, "seed": 4},
    "nucleus": {"sample": True, "seed": 4, "top_p": 0.5},
}


@pytest.mark.by_default("greedy-eager", "beam-eager", "sample-eager")
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "xla"])
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("first", [0, 2])
def test_logits_that_are_no_numbers_are_said_for_their_sentence(name, mode, first):
    """NaN from the first step on, or later; some logits stay minus infinity."""
    chain = Chain(batch=3, vocabulary=7, seed=5)
    broken = np.array([False, True, False])
    never_ends = np.where(np.arange(7) == END, -np.inf, 0.0)  # before it breaks

    def step(tokens, state, index):
        rows = ops.shape(tokens)[0] // 3
        is_broken = ops.repeat(ops.convert_to_tensor(broken), rows)[:, None]
        logits, state = chain.step(tokens, state, index)
        logits = logits + ops.convert_to_tensor(never_ends, dtype=logits.dtype)
        is_off = is_broken & (index >= first) & (ops.arange(7) > 1)
        logits = ops.where(is_off, float("nan"), logits)
        ends = ops.where(ops.arange(7) == END, 9.0, logits)
        return ops.where(~is_broken & (index >= 3), ends, logits), state

    options = SearchOptions(max_length=6, length_penalty=0.0, **SEARCHES[name])
    run = prepare(lambda state: search(step, state, options, **COMMON), mode)
    result = run(chain.state())
    scores = ops.convert_to_numpy(result.scores)[:, 0]
    assert np.isnan(scores).tolist() == broken.tolist()
    lengths = ops.convert_to_numpy(result.lengths)
    assert (lengths[~broken] >= 4).all() and lengths[1].max() <= first + 1


def test_what_was_complete_before_stays():
    """The first token may be the end; what follows another one is no number."""
    table = np.array([[np.nan] * 4, [2.0, -np.inf, 1.0, 0.0], [np.nan] * 4, [np.nan] * 4])

    def step(tokens, state, index):
        return ops.take(ops.convert_to_tensor(table, dtype="float32"), tokens, axis=0), state

    found = beam_search(step, {"x": ops.zeros((1, 1))}, beam_size=2, max_length=5, **COMMON)
    assert ops.convert_to_numpy(found.lengths).tolist() == [[1]]
    assert np.isfinite(ops.convert_to_numpy(found.scores)).all()


def test_forced_rows_leave_the_batch_with_their_own_prefix():
    if BACKEND == "jax":
        pytest.skip("sizes cannot change there")
    chain = chain_of_five()
    limits = np.array([6, 1, 2, 4, 6])
    common = {**COMMON, "max_length": limits, "prefix": PREFIX}
    for find, more in ((greedy_search, {}), (beam_search, {"beam_size": 3})):
        results = [
            find(chain.step, chain.state(), shrink_batch=shrinks, **more, **common)
            for shrinks in (True, False)
        ]
        for one, other in zip(*results, strict=True):
            if one is not None:
                np.testing.assert_allclose(
                    ops.convert_to_numpy(one), ops.convert_to_numpy(other), rtol=1e-5, atol=1e-6
                )
