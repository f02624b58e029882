"""Padding changes nothing, wherever it stands and whatever lies there; no layer escapes the check.

`test_masking.py` adds padding behind. Here each sequence gets padding before it, behind it, on both
sides or between its steps, of NaN and infinity: the results at real steps, and the gradients of
weights and of real inputs, are those without it.
"""

import functools

import numpy as np
import pytest

from tests.contracts.backend import (
    gradients_of,
    random,
    tensors_of,
    weighted_sum,
)
from tests.contracts.kinds import BATCH, STEPS, Mechanism, Padded, value_mask
from tests.contracts.registry import CASES
from tests.contracts.test_calls import arrays_from, built, results_of

# How many padded steps stand before each real step, and at the end.
PLACES = {
    "behind": lambda size: np.arange(size),
    "before": lambda size: np.arange(size) + 3,
    "both": lambda size: np.arange(size) + 2,
    "between": lambda size: np.arange(size) + 1 + (np.arange(size) > 0),
}
EXTRA = 3
FILLINGS = (np.nan, np.inf, -np.inf)
BY_DISTANCE = {
    "latent",
    "latent-queries",
    "multi-head-relative-entmax",
    "multi-head-rotary-sinks",
    "multi-head-alibi",
}
"""Cases that read the distance between two steps of the sequence, padding counted."""
WITH_SINKS = {"multi-head-rotary-sinks"}
"""Cases that read the first steps of the sequence: they need padding behind."""


class WithQueryMask:
    """A case of a mechanism whose queries are padded too."""

    def __init__(self, case):
        self.case = case
        self.masks = {**case.masks, "query_mask": "query"}
        self.axes = {**case.axes, "query_mask": "BT"}
        self.call = case.call

    real = Padded.real
    padded_axes = Padded.padded_axes

    def inputs(self, *sizes):
        """The arrays, with a mask of the queries."""
        arrays = self.case.inputs(*sizes)
        lengths = tuple(STEPS - place for place in range(BATCH))
        return arrays | {"query_mask": value_mask(STEPS, lengths)}


def padded_case(name):
    """The case of a name, with all the masks that its layer knows."""
    case = CASES[name]
    return WithQueryMask(case) if isinstance(case, Mechanism) else case


def expand(case, inputs, where):
    """The arrays with padding of NaN and infinity, and where the steps of each axis have gone.

    What was padding already holds these too.
    """
    indices = {}
    for letter in case.padded_axes:
        sizes = {
            array.shape[case.axes[name].index(letter)]
            for name, array in inputs.items()
            if letter in case.axes[name]
        }
        (size,) = sizes
        indices[letter] = PLACES[where](size)
    longer = {}
    for name, array in inputs.items():
        axes = case.axes[name]
        shape = [n + EXTRA * (a in indices) for n, a in zip(array.shape, axes, strict=True)]
        places = [indices.get(a, np.arange(n)) for n, a in zip(array.shape, axes, strict=True)]
        is_mask = name in case.masks
        if is_mask or name.startswith("scores") or array.dtype != np.float32:
            longer[name] = np.zeros(shape, array.dtype)
            longer[name][np.ix_(*places)] = array
            continue
        filling = np.random.default_rng(len(name)).choice(FILLINGS, shape).astype(array.dtype)
        old = filling[np.ix_(*places)]
        filling[np.ix_(*places)] = np.where(case.real(name, inputs), array, old)
        longer[name] = filling
    return longer, indices


def at_steps(case, name, array, indices):
    """The part of an expanded array or result that stands for the steps before."""
    axes = case.axes[name]
    places = [indices.get(a, np.arange(n)) for n, a in zip(array.shape, axes, strict=True)]
    return array[np.ix_(*places)]


def gradients(case, layer, inputs, factors):
    """Gradients of weights and floating point inputs, by name."""
    moving = [key for key, array in inputs.items() if array.dtype == np.float32]

    def loss(*arrays):
        given = tensors_of(inputs) | dict(zip(moving, arrays, strict=True))
        results = case.call(layer, given)
        return sum(weighted_sum(results[key], factors[key]) for key in sorted(results))

    found = gradients_of(loss, *(inputs[key] for key in moving), layer=layer)
    count = len(found) - len(moving)
    weights = [weight.path for weight in layer.trainable_weights]
    return dict(zip(weights, found[:count], strict=True)), dict(
        zip(moving, found[count:], strict=True)
    )


@functools.cache
def without_padding(name):
    """Inputs, results, their factors in a loss, and gradients of the case as it is."""
    case, layer = padded_case(name), built(name)
    inputs = case.inputs()
    results = arrays_from(lambda x: case.call(layer, x), inputs)
    factors = {
        key: np.where(case.real(key, inputs), random(40 + place, *value.shape), 0)
        for place, (key, value) in enumerate(sorted(results.items()))
    }
    return inputs, results, factors, gradients(case, layer, inputs, factors)


def with_masks():
    """The cases that have a mask, each with the places that its padding can have.

    The last one of a case has padding in all of its places, and stands for the others.
    """
    for name in CASES:
        if not padded_case(name).masks:
            continue
        allowed = list(PLACES)
        if name in BY_DISTANCE:
            allowed.remove("between")
        if name in WITH_SINKS:
            allowed = ["behind"]
        for where in allowed:
            marks = [] if where == allowed[-1] else [pytest.mark.slow]
            yield pytest.param(name, where, marks=marks)


@pytest.mark.parametrize(("name", "where"), list(with_masks()))
def test_padding_anywhere_of_anything_changes_nothing(name, where):
    case, layer = padded_case(name), built(name)
    inputs, expected, factors, (of_weights, of_inputs) = without_padding(name)
    longer, indices = expand(case, inputs, where)
    results = results_of(lambda x: case.call(layer, x), longer)
    for key, value in expected.items():
        found = at_steps(case, key, results[key], indices)
        real = case.real(key, inputs)
        np.testing.assert_allclose(
            np.where(real, found, 0), np.where(real, value, 0), atol=2e-5, rtol=1e-4, err_msg=key
        )
    wider = {}
    for key, value in results.items():
        axes = case.axes[key]
        places = [indices.get(a, np.arange(n)) for n, a in zip(value.shape, axes, strict=True)]
        wider[key] = np.zeros(value.shape, "float32")
        wider[key][np.ix_(*places)] = factors[key]
    weights, moved = gradients(case, layer, longer, wider)
    scale = max((np.max(np.abs(each)) for each in of_weights.values()), default=1.0)
    for path, value in of_weights.items():
        np.testing.assert_allclose(
            weights[path], value, atol=1e-5 * max(scale, 1), rtol=1e-3, err_msg=path
        )
    for key, value in of_inputs.items():
        assert np.all(np.isfinite(moved[key])), key
        found = at_steps(case, key, moved[key], indices)
        real = case.real(key, inputs)
        np.testing.assert_allclose(
            np.where(real, found, 0), np.where(real, value, 0), atol=2e-5, rtol=1e-3, err_msg=key
        )
