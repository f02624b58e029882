"""Searches of random problems, against beam search and enumeration in plain Python."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_attention.decoding import beam_search, greedy_search
from tests.decoding.chains import (
    END,
    START,
    Chain,
    Rules,
    check_result,
    enumerate_hypotheses,
    search_narrowly,
)
from tests.decoding.running import BACKEND, USUAL, prepare

# JAX compiles each example.
FEW = 6 if BACKEND == "jax" else 20
PROPERTY = settings(max_examples=FEW, derandomize=True, deadline=None, database=None)


@st.composite
def problems(draw, longest, vocabularies):
    """A chain, the limit of each sentence, and the rules of all."""
    batch, memory, seed = (draw(st.integers(*span)) for span in ((1, 3), (2, 7), (0, 99)))
    chain = Chain(batch, draw(st.sampled_from(vocabularies)), memory, seed)
    chain.table[:, :, END] += draw(st.sampled_from([-1.0, 0.0, 2.0]))
    limits = draw(st.lists(st.integers(1, longest), min_size=batch, max_size=batch))
    rules = Rules(
        max_length=max(limits),
        min_length=draw(st.integers(0, max(limits))),
        no_repeat_ngram=draw(st.integers(0, 3)),
        alpha=draw(st.sampled_from([0.0, 0.7, 3.0])),
        beta=draw(st.sampled_from([0.0, 0.3])),
        ends=draw(st.sampled_from([(END,), (END, 2), (2, END)])),
    )
    return chain, limits, rules


def run(search, chain, limits, rules, **options):
    """Search as the rules say, in the mode that is usual for the backend."""
    options = {
        "start_id": START,
        "end_id": rules.ends if len(rules.ends) > 1 else END,
        "max_length": limits,
        "min_length": rules.min_length,
        "no_repeat_ngram": rules.no_repeat_ngram,
        "attention_key": "attention_scores",
        "constant_keys": ("memory",),
        "pad_id": -1,
        **options,
    }
    return prepare(lambda state: search(chain.step, state, **options), USUAL)(chain.state())


def beam(chain, limits, rules, **options):
    penalties = {"length_penalty": rules.alpha, "coverage_penalty": rules.beta}
    return run(beam_search, chain, limits, rules, attention_mask=chain.mask, **penalties, **options)


def each_sentence(limits, rules):
    return [(b, rules._replace(max_length=limit)) for b, limit in enumerate(limits)]


@PROPERTY
@given(problems(6, (3, 5, 7)), st.integers(1, 5), st.data())
def test_a_narrow_beam_does_what_plain_python_does(problem, beam_size, data):
    chain, limits, rules = problem
    n_best = data.draw(st.integers(1, beam_size))
    shrink_batch = data.draw(st.booleans())
    expected = [
        search_narrowly(chain, *each, beam_size, n_best)[0] for each in each_sentence(limits, rules)
    ]
    found = beam(
        chain, limits, rules, beam_size=beam_size, n_best=n_best, shrink_batch=shrink_batch
    )
    check_result(found, expected, pad_id=-1)


@PROPERTY
@given(problems(6, (3, 5, 41)), st.booleans())
def test_greedy_search_is_a_beam_of_one(problem, shrink_batch):
    chain, limits, rules = problem
    rules = rules._replace(alpha=0.0, beta=0.0)
    expected = [search_narrowly(chain, *each, 1, 1)[0] for each in each_sentence(limits, rules)]
    found = run(greedy_search, chain, limits, rules, shrink_batch=shrink_batch)
    check_result(found, expected, pad_id=-1)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(found.scores), ops.convert_to_numpy(found.log_probabilities)
    )


@PROPERTY
@given(problems(4, (3,)), st.data())
def test_a_beam_as_wide_as_the_space_ranks_it_all(problem, data):
    """Stopping early keeps the optimum, and the hypotheses that do not exist come last."""
    chain, limits, rules = problem
    expected = [enumerate_hypotheses(chain, *each) for each in each_sentence(limits, rules)]
    beams = max(map(len, expected)) + 3
    n_best = data.draw(st.sampled_from([1, 3, beams]))
    found = beam(chain, limits, rules, beam_size=beams, n_best=n_best)
    check_result(found, [hypotheses[:n_best] for hypotheses in expected], pad_id=-1)
