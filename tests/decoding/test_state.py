"""The caller's state and arguments: what is carried, what stays, and what is refused."""

import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import (
    CoveragePenalty,
    LengthPenalty,
    beam_search,
    greedy_search,
    sample,
)
from tests.contracts.backend import BACKEND
from tests.decoding.chains import END, START, Chain
from tests.decoding.running import in_python

SEARCHES = {
    "greedy": (greedy_search, {}, 1),
    "beam": (beam_search, {"beam_size": 3}, 3),
    "sample": (sample, {"n_best": 2, "seed": 0}, 2),
}
ASKED = {"start_id": START, "end_id": END, "max_length": 4}


@pytest.mark.parametrize("name", SEARCHES)
def test_constants_are_repeated_once_and_stay(name):
    chain = Chain(batch=2, seed=70)
    search, options, copies = SEARCHES[name]
    seen = []

    def step(tokens, state, index):
        seen.append(state["memory"]["table"])
        logits, state = chain.step(tokens, state, index)
        if len(seen) % 2:
            del state["memory"]  # what the step returns of a constant does not matter
        else:
            state["memory"] = None
        return logits, state

    with in_python():
        result = search(
            step, chain.state(), **ASKED, **options, min_length=4, constant_keys=["memory"]
        )
        assert len(seen) == 4
        assert all(one is seen[0] for one in seen)
        repeated = np.repeat(chain.table.astype("float32"), copies, axis=0)
        np.testing.assert_array_equal(ops.convert_to_numpy(seen[0]), repeated)
        carried = search(chain.step, chain.state(), **ASKED, **options, min_length=4)
    for ours, theirs in zip(result[:4], carried[:4], strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs))


@pytest.mark.parametrize("name", SEARCHES)
def test_state_comes_back_in_the_containers_it_had(name):
    """A cell that takes a tuple and returns a list would break a compiled loop."""
    search, options, _ = SEARCHES[name]

    def step(tokens, state, index):
        assert isinstance(state["cell"], tuple) and state["kept"]["length"].dtype == one.dtype
        logits = ops.tile(state["cell"][0][:, None], (1, 5)) + ops.arange(5, dtype="float32")
        return logits, {"kept": state["kept"], "cell": list(state["cell"])}

    one = ops.ones((2,), dtype="int32")
    state = {"cell": (ops.zeros((2,)), ops.zeros((2, 3, 4))), "kept": {"length": one}}
    result = search(step, state, **ASKED, **options)
    assert tuple(result.tokens.shape)[::2] == (2, 4)


@pytest.mark.parametrize("name", SEARCHES)
def test_none_may_stand_among_constants(name):
    search, options, _ = SEARCHES[name]

    def step(tokens, state, index):
        assert state["memory"]["mask"] is None
        return ops.zeros((ops.shape(tokens)[0], 5)) + state["h"], state

    state = {"h": ops.zeros((2, 1)), "memory": {"mask": None, "value": ops.zeros((2, 3))}}
    search(step, state, constant_keys=("memory",), **ASKED, **options)
    with pytest.raises(
        ValueError, match=r"None may stand.*Received: None at state\['memory'\]\['mask'\]"
    ):
        search(step, state, **ASKED, **options)


def flat_step(tokens, state, index):
    return ops.zeros((ops.shape(tokens)[0], 5)), state


def state(**entries):
    return {"h": ops.zeros((2, 3)), **entries}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"end_id": -1}, "`end_id` must be a non-negative integer. Received: end_id=-1"),
        ({"end_id": []}, r"`end_id` must be a token or a list of tokens. Received: end_id=\[\]"),
        ({"end_id": [0, -1]}, "`end_id` must be a non-negative integer. Received: end_id=-1"),
        ({"end_id": [0, 5]}, "`end_id` should be one of the 5 tokens .* Received: 5"),
        ({"end_id": 5}, "`end_id` should be one of the 5 tokens .* Received: 5"),
        ({"max_length": 0}, "`max_length` should be an integer of at least 1.* Received: 0"),
        ({"max_length": 2.5}, "`max_length` should be an integer .* Received: 2.5"),
        ({"max_length": [3, 0]}, r"`max_length` .* Received: \[3, 0\]"),
        ({"max_length": [3, 4, 5]}, r"one entry for each of the 2 sentences. Received: shape \(3,"),
        ({"min_length": 5}, "at least `min_length`. Received: max_length=4, min_length=5"),
        ({"min_length": -1}, "`min_length` must be a non-negative .* Received: min_length=-1"),
        ({"no_repeat_ngram": 1.5}, "`no_repeat_ngram` must be .* Received: no_repeat_ngram=1.5"),
        ({"attention_key": "a"}, r"entries that .* name.* Received: no \['a'\] among \['h'\]"),
        ({"constant_keys": ("m",)}, r"Received: no \['m'\] among \['h'\]"),
        ({"constant_keys": "h"}, r"Received: the string 'h'; write \('h',\)"),
        ({"constant_keys": ("h",), "attention_key": "h"}, "'h' as `attention_key` and in"),
    ],
    ids=str,
)
def test_wrong_arguments(name, wrong, message):
    search, options, _ = SEARCHES[name]
    with pytest.raises(ValueError, match=message):
        search(flat_step, state(), **{**ASKED, **options, **wrong})


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"beam_size": 0}, "`beam_size` must be a positive integer. Received: beam_size=0"),
        ({"beam_size": 2.0}, "`beam_size` must be a positive integer. Received: beam_size=2.0"),
        ({"n_best": 0}, "`n_best` must be a positive integer. Received: n_best=0"),
        ({"beam_size": 2, "n_best": 3}, "Received: n_best=3, beam_size=2"),
        ({"length_penalty": -1.0}, "`alpha` .* at least 0. Received: alpha=-1.0"),
        ({"length_penalty": float("nan")}, "`alpha` .* Received: alpha=nan"),
        ({"length_penalty": 10**400}, "`alpha` .* Received: alpha=1000"),
        ({"length_penalty": "gnmt"}, "`length_penalty` should be a number .* Received: 'gnmt'"),
        ({"coverage_penalty": True}, "`coverage_penalty` should be a number .* Received: True"),
        ({"coverage_penalty": -0.1}, "`beta` .* at least 0. Received: beta=-0.1"),
        ({"coverage_penalty": 0.1}, "needs the attention weights.* Received: attention_key=None"),
    ],
    ids=str,
)
def test_wrong_arguments_of_beam_search(wrong, message):
    with pytest.raises(ValueError, match=message):
        beam_search(flat_step, state(), **{**ASKED, **wrong})


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"temperature": 0.0}, "`temperature` .* `greedy_search` .*. Received: temperature=0.0"),
        (
            {"temperature": -1.0},
            "`temperature` must be a finite number .* Received: temperature=-1.0",
        ),
        ({"temperature": float("inf")}, "`temperature` .* Received: temperature=inf"),
        ({"temperature": float("nan")}, "`temperature` .* Received: temperature=nan"),
        ({"top_p": 0.0}, "`top_p` .* above 0 and at most 1. Received: top_p=0.0"),
        ({"top_p": 1.5}, "`top_p` .* above 0 and at most 1. Received: top_p=1.5"),
        ({"top_k": -1}, "`top_k` must be a non-negative integer. Received: top_k=-1"),
        ({"n_best": 0}, "`n_best` must be a positive integer. Received: n_best=0"),
    ],
    ids=str,
)
def test_wrong_arguments_of_sample(wrong, message):
    with pytest.raises(ValueError, match=message):
        sample(flat_step, state(), **{**ASKED, **wrong})


def test_wrong_penalties():
    with pytest.raises(ValueError, match="`alpha` .* Received: alpha=-0.5"):
        LengthPenalty(-0.5)
    with pytest.raises(ValueError, match="`beta` .* Received: beta=inf"):
        CoveragePenalty(float("inf"))
    with pytest.raises(ValueError, match="`floor` .* above 0 and at most 1. Received: floor=0"):
        CoveragePenalty(0.1, floor=0)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    "wrong,message",
    [
        (lambda: {}, "at least one tensor"),
        (lambda: state(c=ops.zeros((3, 3))), r"a row for each sentence .*state\['c'\] \(3, 3\)"),
        (lambda: state(c=ops.zeros(())), r"a row for each sentence .*state\['c'\] \(\)"),
        (lambda: [ops.zeros((2, 3)), None], r"None may stand .* Received: None at state\[1\]"),
    ],
    ids=["empty", "rows differ", "scalar", "none"],
)
def test_wrong_states(name, wrong, message):
    search, options, _ = SEARCHES[name]
    with pytest.raises(ValueError, match=message):
        search(flat_step, wrong(), **ASKED, **options)


@pytest.mark.parametrize("name", SEARCHES)
def test_keys_need_a_dictionary(name):
    search, options, _ = SEARCHES[name]
    with pytest.raises(ValueError, match="should be a dictionary then. Received: list"):
        search(flat_step, [ops.zeros((2, 3))], attention_key="a", **ASKED, **options)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    "change,message",
    [
        (lambda h: {"h": ops.concatenate([h, h], 1)}, r"buffer of full size.*\(\d, 6\)"),
        (
            lambda h: {"h": ops.cast(h, "float16")},
            r"given.* float16 for .* float32 at state\['h'\]",
        ),
        (lambda h: {"h": h[:, 0]}, r"Received: \(\d,\) .* for \(\d, 3\)"),
        (lambda h: {}, r"it was given. Received: nothing; given: state\['h'\]"),
        (lambda h: {"h": h, "g": h}, r"Received: .*state\['g'\].*; given: state\['h'\]"),
        (lambda h: {"h": None}, r"should return tensors. Received: None at state\['h'\]"),
    ],
    ids=["grown", "dtype", "rank", "less", "more", "none"],
)
def test_a_step_that_changes_the_form_of_its_state(name, change, message):
    search, options, _ = SEARCHES[name]

    def step(tokens, state, index):
        return ops.zeros((ops.shape(tokens)[0], 5)), change(state["h"])

    with pytest.raises(ValueError, match=message):
        search(step, state(), **ASKED, **options)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("sizes", [(), (1,), (1, 5)], ids=str)
def test_logits_of_a_wrong_shape(name, sizes):
    search, options, _ = SEARCHES[name]

    def step(tokens, state, index):
        return ops.zeros((ops.shape(tokens)[0], *sizes)), state

    with pytest.raises(ValueError, match=r"logits of shape \(rows, vocabulary\)"):
        search(step, state(), **ASKED, **options)


@pytest.mark.parametrize(
    "axes,constants",
    [({"cache": 1}, ()), ({"h": 0}, ()), ({"h": 2}, ()), ({"h": 1}, ("h",))],
    ids=str,
)
def test_what_cannot_grow_is_refused(axes, constants):
    with pytest.raises(ValueError, match="`growing_axes` should name entries.*Received: "):
        greedy_search(flat_step, state(), growing_axes=axes, constant_keys=constants, **ASKED)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow leaves sizes open")
@pytest.mark.parametrize("name", SEARCHES)
def test_a_vocabulary_of_unknown_size_is_refused(name):
    import tensorflow as tf

    search, options, _ = SEARCHES[name]

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def run(row):
        def step(tokens, state, index):
            return state["h"][:, :1] + row, state

        return search(step, state(), **ASKED, **options)

    with pytest.raises(ValueError, match=r"vocabulary static .* Received: shape \(\w+, None\)"):
        run(tf.zeros(5))
