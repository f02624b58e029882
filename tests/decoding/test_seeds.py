"""The numbers of samples: known answers, independence of the batch, and what is no seed."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.decoding import sample, sentence_seeds
from keras_attention.decoding.seeds import (
    seeds_of_rows,
    threefry,
    uniform_numbers,
    words_of_seed,
)
from tests.decoding.chains import END, START, Chain
from tests.decoding.running import MODES, prepare

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)


def in_numpy(key, counter):
    """Threefry-2x32 as the paper writes it, in whole numbers of Python."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    first, second = ((counter[i] + keys[i]) % 2**32 for i in (0, 1))
    for turn in range(20):
        first = (first + second) % 2**32
        bits = ROTATIONS[turn % 8]
        second = (second << bits | second >> (32 - bits)) % 2**32 ^ first
        if turn % 4 == 3:
            added = turn // 4 + 1
            first = (first + keys[added % 3]) % 2**32
            second = (second + keys[(added + 1) % 3] + added) % 2**32
    return first, second


def words(*values):
    values = np.array(values, "uint32").view("int32")
    return tuple(ops.convert_to_tensor(each[None], dtype="int32") for each in values)


def unsigned(pair):
    return tuple(int(ops.convert_to_numpy(x)[0]) % 2**32 for x in pair)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # of Random123, the authors' own implementation
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key, counter, expected):
    assert in_numpy(key, counter) == expected
    assert unsigned(threefry(words(*key), words(*counter))) == expected


def test_seeds_of_sentences_are_sums_of_hashes():
    ids, seed = np.array([[7, 0, 5, 11], [0, 7, 5, 11], [11, 5, 7, 0]]), 3 * 2**32 + 5
    found = ops.convert_to_numpy(sentence_seeds(seed, ids)).view("uint32")
    for row, expected_ids in zip(found, ([7, 5, 11], [7, 5, 11], [11, 5, 7]), strict=True):
        hashes = [in_numpy((5, 3), (x, place)) for place, x in enumerate(expected_ids, 1)]
        assert row.tolist() == [sum(each) % 2**32 for each in zip(*hashes, strict=True)]
    masked = sentence_seeds(seed, ids, np.array([[1, 0, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0]], bool))
    assert len(np.unique(ops.convert_to_numpy(masked), axis=0)) == 2


def test_numbers_are_those_of_seed_step_and_copy():
    seeds = seeds_of_rows(2**40 + 9, 3)
    numbers = ops.convert_to_numpy(uniform_numbers(seeds, 5, 2))
    assert numbers.shape == (5, 2, 6) and numbers.dtype == np.float32
    for row, step, copy in ((0, 0, 0), (2, 4, 1), (1, 3, 0)):
        key = in_numpy((9, 2**8), (row, 0))
        expected = [word >> 8 for word in in_numpy(key, (step, copy))]
        found = numbers[step, :, 2 * row + copy] * 2.0**24
        assert found.tolist() == expected
    many = ops.convert_to_numpy(uniform_numbers(seeds_of_rows(1, 101), 53, 3)).ravel()
    assert (many >= 0).all() and (many < 1).all()
    counts = np.histogram(many, 16, (0, 1))[0]
    expected = len(many) / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # of 15 degrees of freedom


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**64 - 1])
def test_words_of_a_seed(seed):
    low, high = (word % 2**32 for word in words_of_seed(seed))
    assert high * 2**32 + low == seed


@pytest.mark.by_default("eager")
@pytest.mark.parametrize("mode", MODES)
def test_samples_of_a_sentence_do_not_depend_on_the_batch(mode):
    chain = Chain(batch=5, vocabulary=31, seed=8)
    ids = np.array([[4, 9, 2], [4, 9, 0], [7, 7, 7], [4, 9, 2], [1, 0, 0]])

    def drawn(rows):
        def run(state):
            seeds = sentence_seeds(11, ops.convert_to_tensor(ids[rows], dtype="int32"))
            options = {"start_id": START, "end_id": END, "max_length": 7, "n_best": 3}
            return sample(chain.step, state, seed=seeds, **options).tokens

        state = keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), chain.state())
        return ops.convert_to_numpy(prepare(run, mode)(state))

    together = drawn([0, 1, 2, 3, 4])
    for row in range(5):
        np.testing.assert_array_equal(drawn([row])[0], together[row])
    np.testing.assert_array_equal(drawn([4, 2, 0])[::-1], together[[0, 2, 4]])


@pytest.mark.parametrize("seed", ["one", 1.5, True, np.zeros(3, "int32")], ids=str)
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match="`seed` should be an integer.*Received"):
        seeds_of_rows(seed, 2)
    with pytest.raises(ValueError, match="`seed` should be an integer.*Received"):
        sentence_seeds(seed, np.ones((2, 3), "int32"))


def test_without_a_seed_each_call_draws_anew():
    first, second = (ops.convert_to_numpy(seeds_of_rows(None, 3)) for _ in range(2))
    assert (first != second).any() and len(np.unique(first, axis=0)) == 3
    generator = keras.random.SeedGenerator(1)
    one, other = (ops.convert_to_numpy(seeds_of_rows(generator, 3)) for _ in range(2))
    assert (one != other).any()
