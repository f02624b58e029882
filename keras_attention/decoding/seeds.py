"""Random numbers for sampling, which depend only on a seed and a counter.

There is no state, so that calls in several threads do not change each other's numbers, and every
backend draws the same numbers, compiled or not.
"""

from numbers import Integral
from typing import Any

import keras
from keras import ops

from ..ops.shapes import size_of
from ..ops.types import Tensor

PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
WORD = 2**32
Words = tuple[Tensor, Tensor]


def threefry(key: Words, counter: Words) -> Words:
    """Return 64 random bits for each 64 bits of a counter: Threefry-2x32 with 20 rounds.

    [Salmon et al. 2011](https://doi.org/10.1145/2063384.2063405). Words of 32 bits are int32, which
    every backend adds modulo 2^32.
    """
    keys = (*key, key[0] ^ key[1] ^ PARITY)
    first = counter[0] + keys[0]
    second = counter[1] + keys[1]
    for turn in range(5):
        for bits in ROTATIONS[turn % 2]:
            first = first + second
            second = _rotated(second, bits) ^ first
        first = first + keys[(turn + 1) % 3]
        second = second + keys[(turn + 2) % 3] + (turn + 1)
    return first, second


def _rotated(word: Tensor, bits: int) -> Tensor:
    # The shift to the right copies the sign bit; the mask removes the copies.
    low = ops.right_shift(word, 32 - bits) & ((1 << bits) - 1)
    return ops.left_shift(word, bits) | low


def words_of_seed(seed: int) -> list[int]:
    """Return the two words of 32 bits, as int32, of an integer modulo 2^64."""
    words = (seed % WORD, seed // WORD % WORD)
    return [word - WORD if word >= WORD // 2 else word for word in words]


def seeds_of_rows(seed: Any, count: Tensor) -> Tensor:
    """Return a seed for each of `count` sentences, int32 `(B, 2)`, from the seed of `sample`."""
    if _is_tensor(seed) and len(seed.shape) == 2:
        return ops.cast(seed, "int32")
    words = _words(seed)
    rows = ops.arange(count, dtype="int32")
    return ops.stack(threefry((words[0], words[1]), (rows, ops.zeros_like(rows))), axis=-1)


def sentence_seeds(seed: Any, ids: Tensor, mask: Tensor = None) -> Tensor:
    """Return a seed for each sentence that depends on its ids and on `seed` alone.

    Samples then depend neither on the rest of the batch nor on its padding. Sentences with the same
    ids get the same seed.

    Args:
        seed: As in `sample`.
        ids: Integer tensor `(B, S)`.
        mask: Boolean tensor `(B, S)`, False for padding. Default: True where an id is not 0.

    Returns:
        Integer tensor `(B, 2)`, which `sample` and `search` take as `seed`.

    Raises:
        ValueError: If `seed` is not one of these.

    Example:

    >>> alone = sentence_seeds(7, ops.convert_to_tensor([[5, 9]]))
    >>> beside = sentence_seeds(7, ops.convert_to_tensor([[5, 9, 0], [8, 5, 9]]))
    >>> bool(ops.all(alone[0] == beside[0])), bool(ops.all(alone[0] == beside[1]))
    (True, False)
    """
    ids = ops.cast(ids, "int32")
    mask = ops.not_equal(ids, 0) if mask is None else ops.cast(mask, "bool")
    given = ops.cast(seed, "int32") if _is_tensor(seed) else None
    if given is not None and len(given.shape) == 2:
        key = (given[:, :1], given[:, 1:])
    else:
        words = _words(seed)
        key = (words[0], words[1])
    # The index of each word among the real words: padding before it changes nothing.
    number = ops.cumsum(ops.cast(mask, "int32"), axis=1)
    words = threefry(key, (ids, number))
    # A sum of hashes of (id, index) modulo 2^32, which depends on the order.
    totals = [ops.sum(ops.where(mask, each, 0), axis=1) for each in words]
    return ops.cast(ops.stack(totals, axis=-1), "int32")


def uniform_numbers(seeds: Tensor, steps: Tensor, copies: int) -> Tensor:
    """Return float32 numbers in [0, 1) for `copies` samples of each seed, `(steps, 2, B copies)`.

    The numbers of a sample depend only on the seed, the step and the index of the sample.
    """
    key = [ops.repeat(seeds[:, part], copies)[None] for part in (0, 1)]
    copy = ops.arange(size_of(seeds, 0) * copies, dtype="int32") % copies
    step = ops.arange(steps, dtype="int32")
    words = threefry((key[0], key[1]), (step[:, None], copy[None]))
    # The 24 highest bits: as many as float32 holds.
    bits = ops.right_shift(ops.stack(words, axis=1), 8) & 0xFFFFFF
    return ops.cast(bits, "float32") / 2.0**24


def _words(seed: Any) -> Tensor:
    """Return the two words `(2,)` of a seed that all sentences share."""
    if isinstance(seed, Integral) and not isinstance(seed, bool):
        return ops.convert_to_tensor(words_of_seed(int(seed)), dtype="int32")
    if seed is None or isinstance(seed, keras.random.SeedGenerator):
        return keras.random.randint((2,), -(2**31), 2**31 - 1, dtype="int32", seed=seed)
    if _is_tensor(seed) and tuple(seed.shape) == (2,):
        return ops.cast(seed, "int32")
    raise ValueError(
        "`seed` should be an integer, a `keras.random.SeedGenerator`, None, or integers of shape "
        f"(2,) or (sentences, 2). Received: {seed!r}"
    )


def _is_tensor(seed: Any) -> bool:
    return hasattr(seed, "shape") and hasattr(seed, "dtype") and not isinstance(seed, Integral)
