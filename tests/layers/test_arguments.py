"""The checks of constructor arguments: what they refuse, and the type that they return."""

import numpy as np
import pytest

from keras_attention.layers.arguments import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_rate,
    check_seed,
)


@pytest.mark.parametrize("value", [True, 0, -1, 2.0, "2", None, float("nan")])
def test_what_is_no_positive_integer_is_refused(value):
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units="):
        check_integer("units", value)


@pytest.mark.parametrize("value", [True, 1, -0.1, "a", None, float("nan"), float("inf")])
def test_what_is_no_rate_is_refused(value):
    with pytest.raises(ValueError, match=r"`dropout` must be a number in \[0, 1\)"):
        check_rate("dropout", value)


@pytest.mark.parametrize("value", [True, -1e-9, "a", None, float("nan"), float("inf"), 10**400])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="`weight` must be a finite number of at least 0"):
        check_number("weight", value)
    with pytest.raises(ValueError, match="above 0"):
        check_number("weight", 0, above=True)


@pytest.mark.parametrize("value", ["nope", True, 1.5, [1]])
def test_what_is_no_seed_is_refused(value):
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        check_seed(value)


def test_choices_and_flags():
    assert check_choice("kind", "a", ("a", "b")) == "a" and check_flag("use_bias", False) is False
    with pytest.raises(ValueError, match="`kind` must be one of .*Received: kind='c'"):
        check_choice("kind", "c", ("a", "b"))
    with pytest.raises(ValueError, match="`use_bias` must be True or False"):
        check_flag("use_bias", "no")


def test_numbers_of_numpy_come_back_as_those_of_python():
    """A configuration is written as JSON."""
    assert type(check_integer("units", np.int64(3))) is int
    assert type(check_rate("dropout", np.float32(0.5))) is float
    assert type(check_seed(np.int32(3))) is int
    assert check_seed(None) is None
