"""Shapes and masks that do not fit are refused by name, before a backend fails in its own words."""

import pytest

from tests.contracts.backend import tensors_of
from tests.contracts.registry import CASES, RECURRENT
from tests.contracts.test_calls import built

WRONG = [
    (name, label, inputs) for name, case in CASES.items() for label, inputs in case.wrong_inputs()
]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [(name, inputs) for name, _, inputs in WRONG],
    ids=[f"{name}-{label}" for name, label, _ in WRONG],
)
def test_inputs_that_do_not_fit_are_refused(name, inputs):
    with pytest.raises(ValueError, match="Received: "):
        CASES[name].call(built(name), tensors_of(inputs))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("luong-dot")])
def test_a_dot_score_of_unequal_sizes_names_the_way_out(name):
    layer = CASES[name].layer(**CASES[name].options)
    with pytest.raises(ValueError, match="general.*Received: .*11.*13"):
        layer.build((None, None, 11), (None, None, 13))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_memory_cannot_be_prepared_before_the_weights_exist(name):
    layer, case = CASES[name].self_attention()
    with pytest.raises(ValueError, match="no weights yet"):
        layer.prepare_memory(tensors_of(case.inputs())["value"])
