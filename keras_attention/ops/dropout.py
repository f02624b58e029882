"""Factors of dropout that keep the rate in half precision, and that repeat for a known seed."""

import math
from typing import Any

import keras
from keras import ops, random

from .types import Tensor

# `1 / (1 - rate)` may exceed this number, and infinity times 0 is NaN.
MAX_NUMBERS = {"float16": 65504.0}


class KnownSeed(random.SeedGenerator):
    """A seed that has been drawn, in the form that `keras.random` accepts."""

    def __init__(self, seed: Tensor) -> None:
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


def dropout_scale(rate: float, dtype: str) -> float:
    """Return `1 / (1 - rate)`, or the largest number of a dtype if that is smaller."""
    return min(1.0 / (1.0 - rate), MAX_NUMBERS.get(dtype, math.inf))


def dropout_factors(shape: tuple, rate: float, seed: Any, dtype: str) -> Tensor:
    """Return factors in a dtype: 0 with the probability `rate`, otherwise `1 / (1 - rate)`.

    The random numbers are float32 for every dtype: half precision has few numbers in [0, 1), and
    would round the rate to one of them, as `keras.random.dropout` does.

    Args:
        shape: Shape of the factors.
        rate: Probability of 0.
        seed: A seed as `keras.random` takes it, or a seed that a generator has drawn.
        dtype: Dtype of the factors.
    """
    seed = KnownSeed(seed) if ops.is_tensor(seed) else seed
    numbers = random.uniform(shape, dtype="float32", seed=seed)
    return ops.cast(numbers >= rate, dtype) * dropout_scale(rate, dtype)


def packed_dropout(inputs: Tensor, rate: float, seed: Any) -> Tensor:
    """Drop elements with one random number for three of them, which is most of the cost on a CPU.

    Each of the three reads all 30 bits of the number, rotated by 0, 10 or 20 bits, so that its rate
    is the given one. All but one in 1024 elements are decided by their own first ten bits.

    Args:
        inputs: Tensor of any shape.
        rate: Probability that an element is dropped.
        seed: A seed as `keras.random` takes it.
    """
    shape = ops.shape(inputs)
    count, bits, turn = math.prod(shape), 30, 10
    words = random.randint(((count + 2) // 3,), 0, 2**bits, dtype="int32", seed=seed)
    threshold = round(rate * 2**bits)
    kept = [words >= threshold]
    for left in (turn, 2 * turn):
        high = ops.left_shift(ops.bitwise_and(words, 2 ** (bits - left) - 1), left)
        kept.append(high + ops.right_shift(words, bits - left) >= threshold)
    kept = ops.reshape(ops.concatenate(kept)[:count], shape)
    scale = dropout_scale(rate, keras.backend.standardize_dtype(inputs.dtype))
    return inputs * (ops.cast(kept, inputs.dtype) * scale)
