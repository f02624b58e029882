"""Boolean masks: joining, lengths, and what is refused."""

import numpy as np
import pytest
from keras import ops

from keras_attention.ops.masks import attention_mask, check_mask, combine_masks, lengths
from tests.contracts.backend import to_numpy

QUERY_MASK = np.arange(5) < np.array([5, 2, 0])[:, None]
VALUE_MASK = np.arange(7) < np.array([3, 7, 4])[:, None]


def test_combining_is_a_logical_and_of_those_given():
    first, second = np.array([[True], [False]]), np.array([[True, False, True]])
    joined = combine_masks(ops.convert_to_tensor(first), None, ops.convert_to_tensor(second))
    np.testing.assert_array_equal(to_numpy(joined), [[True, False, True], [False] * 3])
    assert combine_masks() is None
    assert combine_masks(None, None) is None
    np.testing.assert_array_equal(
        to_numpy(combine_masks(None, ops.convert_to_tensor(first))), first
    )


def test_a_pair_is_attended_only_where_both_are_real():
    """Masking only where both positions are padding is an error seen elsewhere."""
    query, value = ops.convert_to_tensor(QUERY_MASK), ops.convert_to_tensor(VALUE_MASK)
    both = to_numpy(attention_mask(query, value))
    for b in range(3):
        for t in range(5):
            for s in range(7):
                assert both[b, t, s] == (QUERY_MASK[b, t] and VALUE_MASK[b, s])
    np.testing.assert_array_equal(
        np.broadcast_to(to_numpy(attention_mask(value_mask=value)), (3, 5, 7)),
        np.broadcast_to(VALUE_MASK[:, None], (3, 5, 7)),
    )
    np.testing.assert_array_equal(
        np.broadcast_to(to_numpy(attention_mask(query_mask=query)), (3, 5, 7)),
        np.broadcast_to(QUERY_MASK[:, :, None], (3, 5, 7)),
    )
    assert attention_mask() is None


def test_lengths_are_each_rows_own():
    np.testing.assert_array_equal(to_numpy(lengths(ops.convert_to_tensor(VALUE_MASK))), [3, 7, 4])
    np.testing.assert_array_equal(to_numpy(lengths(None, ops.ones((3, 7, 2)))), [7, 7, 7])


def test_lengths_are_exact_in_any_dtype_of_the_memory():
    """float16 counts no further than 2048."""
    assert to_numpy(lengths(None, ops.ones((1, 4099, 1), "float16"))) == [4099]
    assert to_numpy(lengths(ops.ones((1, 4099), "bool"))) == [4099]


@pytest.mark.parametrize("shape", [(3, 6), (3,), (3, 7, 1), (2, 7)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`value_mask`.*\(3, 7\).*Received: .*shape"):
        check_mask(ops.ones(shape, "bool"), (3, 7), "value_mask")


def test_open_axes_fit_any_size():
    check_mask(None, (3, 7), "value_mask")
    check_mask(ops.ones((3, 7), "bool"), (None, None), "value_mask")
    with pytest.raises(ValueError, match="Received"):
        check_mask(ops.ones((3, 7), "bool"), (None, 6), "value_mask")
