"""Batches: every example once, few shapes, an order that depends on seed and epoch alone."""

import itertools
import mmap
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from keras_attention.applications.text import BucketedBatches, PackedIds
from keras_attention.applications.text.batching import choose_lengths, place


def sentences(number: int, seed: int, longest: int = 23) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [
        generator.integers(4, 1000, generator.integers(1, longest + 1)).tolist()
        for _ in range(number)
    ]


@pytest.fixture
def columns():
    source = sentences(211, seed=1)
    generator = np.random.default_rng(2)
    target = [row[: generator.integers(1, len(row) + 1)] + [7] for row in source]
    return source, target


def rows_of(array) -> list[list[int]]:
    """Return padded rows without their padding (no id of the tests is 0)."""
    return [[i for i in row if i] for row in array.tolist()]


@pytest.mark.parametrize("options", [{"batch_size": 13}, {"tokens_per_batch": 150}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_once_an_epoch(columns, options, shuffle):
    batches = BucketedBatches(columns, number_of_buckets=5, shuffle=shuffle, **options)
    seen = []
    for index, (source, target) in enumerate(batches.epoch(3)):
        examples = batches.rows(3, index)
        for example, *pair in zip(examples, rows_of(source), rows_of(target), strict=True):
            expected = [[], []] if example < 0 else [column[example] for column in columns]
            assert pair == expected
            seen += [example] if example >= 0 else []
    assert sorted(seen) == list(range(211))
    assert batches.number_of_examples == 211
    assert index + 1 == len(batches)


def test_columns_hold_each_example_equally_often(columns):
    with pytest.raises(ValueError, match="equally often. Received: variants=2 of 211 sequences"):
        BucketedBatches(columns, 8, variants=2)
    one, two = (BucketedBatches([each * n for each in columns], 8, variants=n) for n in (1, 2))
    assert (two.shapes(), two.padding_fraction) == (one.shapes(), one.padding_fraction)


@pytest.mark.parametrize("ends", [{}, {"before": 2}, {"after": 3}, {"before": 2, "after": 3}])
def test_packed_ids_are_like_lists(ends):
    rows = [[], *sentences(31, seed=4), [], [9]]
    packed = PackedIds(iter(rows)).between(**ends)
    first, last = ([ends[name]] if name in ends else [] for name in ("before", "after"))
    whole = [[*first, *row, *last] for row in rows]
    assert packed == whole and packed != whole[:-1] and len(packed) == len(whole)
    assert packed.lengths.tolist() == list(map(len, whole))
    chosen = np.array([5, -1, 0, 33, 5, 32])
    padded = packed.padded(chosen, 27)
    assert padded.dtype == np.int32
    for row, index in zip(padded.tolist(), chosen, strict=True):
        expected = [] if index < 0 else whole[index]
        assert row == expected + [0] * (27 - len(expected))
    assert packed.take([3, 0, 3]) == [whole[3], whole[0], whole[3]]
    assert packed[2:5] == whole[2:5]
    assert PackedIds(rows).cut(4).between(**ends) == [[*first, *row[:4], *last] for row in rows]
    assert PackedIds() == [] and PackedIds([[]]).padded([0, -1], 2).tolist() == [[0, 0]] * 2


def test_packed_ids_take_four_bytes_an_id():
    rows = ([i % 9999] * 20 for i in range(20_000))
    tracemalloc.start()
    packed = PackedIds(rows)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(packed) == 20_000
    assert now < 20_000 * 120  # lists take 216 bytes a row, and share their integers here
    assert peak < 20_000 * 180


def test_packed_columns_give_the_same_batches(columns):
    """An order that was trained with must stay, or a run would not go on as it was."""
    options = {"batch_size": 13, "number_of_buckets": 5, "seed": 3}
    one = BucketedBatches(columns, **options)
    other = BucketedBatches([PackedIds(column) for column in columns], **options)
    for a, b in zip(one.epoch(1), other.epoch(1), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
    total = sum(int(batch[0].sum()) * (n + 1) for n, batch in enumerate(one.epoch(1)))
    assert total == 13083584  # as before ids were packed


def test_few_shapes(columns):
    batches = BucketedBatches(columns, batch_size=13, number_of_buckets=5)
    seen = {tuple(array.shape for array in batch) for e in range(2) for batch in batches.epoch(e)}
    assert seen == set(batches.shapes())
    assert len(seen) == len(batches.lengths) == 5
    assert all(array.dtype == np.int32 for array in batches.batch(0, 0))


def test_the_last_batch_of_a_bucket_may_have_fewer_rows(columns):
    full = BucketedBatches(columns, batch_size=13, number_of_buckets=5)
    batches = BucketedBatches(columns, batch_size=13, number_of_buckets=5, fill=False)
    for index in range(len(full)):
        real = full.rows(2, index) >= 0
        assert list(batches.rows(2, index)) == list(full.rows(2, index)[real])
        for one, other in zip(batches.batch(2, index), full.batch(2, index), strict=True):
            np.testing.assert_array_equal(one, other[real])
    seen = {tuple(array.shape for array in batch) for batch in batches.epoch(0)}
    assert set(batches.shapes()) == seen > set(full.shapes())
    area = sum(array.size for batch in batches.epoch(0) for array in batch)
    tokens = sum(len(ids) for column in columns for ids in column)
    assert batches.padding_fraction == pytest.approx(1 - tokens / area)


def test_tokens_per_batch_bounds_the_area(columns):
    batches = BucketedBatches(columns, tokens_per_batch=150)
    for shapes in batches.shapes():
        rows, longest = shapes[0][0], max(length for _, length in shapes)
        assert rows * longest <= 150 < (rows + 1) * longest
    assert BucketedBatches(([[5] * 9],), tokens_per_batch=4).shapes() == [((1, 9),)]


def test_order_is_a_function_of_seed_and_epoch(columns):
    def order(seed, epoch):
        batches = BucketedBatches(columns, batch_size=13, seed=seed)
        return [batches.rows(epoch, index).tolist() for index in range(len(batches))]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)
    one, other = ({tuple(sorted(rows)) for rows in order(1, epoch)} for epoch in (2, 3))
    assert len(one & other) < len(one) / 3  # batches are drawn anew, not only their order


def test_any_batch_at_any_time(columns):
    batches = BucketedBatches(columns, batch_size=13, seed=5)
    in_turn = [batch for epoch in range(3) for batch in batches.epoch(epoch)]
    generator = np.random.default_rng(3)
    for step in generator.permutation(len(in_turn)):
        epoch, index = divmod(int(step), len(batches))
        for got, expected in zip(batches.batch(epoch, index), in_turn[step], strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("start", [0, 1, 16, 17, 40])
def test_stream_goes_on_from_any_step(columns, start):
    batches = BucketedBatches(columns, batch_size=13, seed=5)
    whole = itertools.islice(batches.stream(), start, start + 30)
    resumed = itertools.islice(batches.stream(start), 30)
    for a, b in zip(whole, resumed, strict=True):
        for got, expected in zip(b, a, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_unshuffled_keeps_the_order_in_a_bucket(columns):
    batches = BucketedBatches(columns, batch_size=13, number_of_buckets=3, shuffle=False)
    rows = [batches.rows(0, index) for index in range(len(batches))]
    heights = [array.shape[1] for array, _ in batches.epoch()]
    assert heights == sorted(heights)
    for _, group in itertools.groupby(zip(heights, rows, strict=True), lambda pair: pair[0]):
        members = np.concatenate([rows for _, rows in group])
        members = members[members >= 0]
        assert (np.diff(members) > 0).all()


def test_padding_fraction_is_what_is_padded(columns):
    batches = BucketedBatches(columns, batch_size=13)
    ids = np.concatenate([array.ravel() for batch in batches.epoch() for array in batch])
    assert batches.padding_fraction == pytest.approx((ids == 0).mean(), abs=1e-12)
    assert (
        0
        < batches.padding_fraction
        < BucketedBatches(columns, batch_size=13, number_of_buckets=1).padding_fraction
    )


def test_dataset_from_any_step(columns):
    tf = pytest.importorskip("tensorflow")
    batches = BucketedBatches(
        columns, batch_size=13, assemble=lambda a, b: ({"source": a}, b.astype("int64"))
    )
    dataset = batches.to_dataset(start_step=5, epochs=2)
    spec = tf.TensorSpec([None, None], tf.int32)
    assert dataset.element_spec == ({"source": spec}, tf.TensorSpec([None, None], tf.int64))
    got = list(dataset.as_numpy_iterator())
    expected = [batch for epoch in range(2) for batch in batches.epoch(epoch)][5:]
    assert len(got) == len(expected)
    for (inputs, labels), (source, target) in zip(got, expected, strict=True):
        np.testing.assert_array_equal(inputs["source"], source["source"])
        np.testing.assert_array_equal(labels, target)
    endless = batches.to_dataset().take(2 * len(batches) + 1)
    assert len(list(endless)) == 2 * len(batches) + 1
    assert len(batches.to_dataset(start_step=5, epochs=2)) == len(got)
    assert len(batches.to_dataset(start_step=5, epochs=0)) == 0


def test_without_tensorflow_keras_gets_the_same_batches(columns, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import fails
    batches = BucketedBatches(columns, batch_size=13)
    expected = [batch for epoch in range(2) for batch in batches.epoch(epoch)][5:]
    some, endless = batches.to_dataset(start_step=5, epochs=2), batches.to_dataset(start_step=5)
    assert (some.num_batches, endless.num_batches) == (len(expected), None)
    assert len(list(some)) == len(expected)
    for got in (some, endless):
        for index, batch in enumerate(expected):
            for one, other in zip(got[index], batch, strict=True):
                np.testing.assert_array_equal(one, other)
    assert list(batches.to_dataset(start_step=5, epochs=0)) == []


@pytest.mark.slow
def test_a_dataset_leaves_tensors_their_pages():
    """TensorFlow makes memory fresh for each tensor after its `from_generator` (Python 3.11 on)."""
    pytest.importorskip("resource")  # not on Windows
    code = """
import resource
import tensorflow as tf
from keras_attention.applications.text import BucketedBatches
list(BucketedBatches(([[5, 6]],), 2).to_dataset(epochs=1))
for step in range(250):
    if step == 50:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x = tf.random.uniform([2**18])
    y = tf.concat([x + x, x * x], 0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200 * 5 * 2**20 / mmap.PAGESIZE / 2


def test_given_lengths(columns):
    lengths = [(23, 24), (7, 8)]
    batches = BucketedBatches(columns, batch_size=13, lengths=lengths)
    assert batches.lengths == [(7, 8), (23, 24)]
    short = sum(len(s) <= 7 and len(t) <= 8 for s, t in zip(*columns, strict=True))
    rows = [batches.rows(0, i) for i in range(len(batches)) if batches.batch(0, i)[0].shape[1] == 7]
    assert sum((row >= 0).sum() for row in rows) == short


def test_an_unused_bucket_has_no_shape():
    batches = BucketedBatches(([[5, 6]],), batch_size=2, lengths=[(1,), (3,), (9,)])
    assert batches.shapes() == [((2, 3),)]


def test_empty_sequences_are_padding():
    batches = BucketedBatches(([[], [5]], [[], []]), batch_size=2, shuffle=False)
    got = batches.batch(0, 0)
    np.testing.assert_array_equal(got[0], [[0], [5]])
    np.testing.assert_array_equal(got[1], [[0], [0]])


@pytest.mark.parametrize("multiple_of", [1, 4])
def test_chosen_lengths_waste_least(multiple_of):
    """Against every way to cut the lengths."""
    generator = np.random.default_rng(4)
    sizes = generator.integers(1, 12, (67, 2))
    rounded = -(-sizes // multiple_of) * multiple_of
    keys = rounded.max(axis=1)

    def cost(groups):
        total = 0
        for group in groups:
            inside = rounded[np.isin(keys, group)]
            total += -(-len(inside) // 5) * 5 * inside.max(axis=0).sum()
        return total

    values = sorted(set(keys.tolist()))
    ways = [
        [values[a:b] for a, b in itertools.pairwise((0, *cut, len(values)))]
        for count in range(3)
        for cut in itertools.combinations(range(1, len(values)), count)
    ]
    chosen = choose_lengths(sizes, 3, multiple_of, lambda longest: np.full_like(longest, 5))
    edges = [max(bucket) for bucket in chosen]
    groups = [
        [v for v in values if low < v <= high] for low, high in itertools.pairwise([0, *edges])
    ]
    assert cost(groups) == min(map(cost, ways))
    assert all(length % multiple_of == 0 for bucket in chosen for length in bucket)


def test_many_different_lengths_are_taken_together():
    sizes = np.arange(1, 2001)[:, None]
    chosen = choose_lengths(sizes, 4, 1, lambda longest: np.full_like(longest, 1))
    assert len(chosen) == 4
    assert place(sizes, chosen).max() == 3
    assert abs(chosen[0][0] - 500) < 20  # equal parts are best for a flat distribution


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"columns": (), "batch_size": 2}, "one or more lists"),
        ({"columns": ([],), "batch_size": 2}, "Received: columns of \\[0\\] sequences"),
        ({"columns": ([[1]], []), "batch_size": 2}, "Received: columns of \\[1, 0\\] sequences"),
        ({"columns": ([[1]],)}, "Give one of `batch_size` and `tokens_per_batch`"),
        ({"columns": ([[1]],), "batch_size": 2, "tokens_per_batch": 9}, "Give one of"),
        (
            {"columns": ([[1]],), "batch_size": 0},
            "`batch_size` must be a whole number of at least 1. Received: 0",
        ),
        ({"columns": ([[1]],), "batch_size": 1, "number_of_buckets": 0}, "`number_of_buckets`"),
        (
            {"columns": ([[1], [1, 2]], [[1], [1]]), "batch_size": 1, "lengths": [(1, 5)]},
            "Received: example 1 with lengths \\(2, 1\\)",
        ),
        (
            {"columns": ([[1]], [[1]]), "batch_size": 1, "lengths": [(1,)]},
            "must have 2 lengths, one for each column",
        ),
        (
            {"columns": ([[1], [2]],), "batch_size": 1, "values": (np.ones(2), np.ones(3))},
            "a row for each of 2 examples. Received: \\[2, 3\\] rows",
        ),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BucketedBatches(**arguments)


def test_batches_like_others_and_values_of_rows():
    first = BucketedBatches(([[5]] * 3 + [[5] * 4],), batch_size=2, lengths=[(1,), (4,)])
    weights, names = np.array([0.5, 1.5]), np.array([[1, 2], [3, 4]], "int32")
    more = {"shuffle": False, "values": (weights, names)}
    own = BucketedBatches(([[7, 8], [9]],), batch_size=2, like=first, **more)
    assert own.lengths == [(1,), (4,)]
    short, long = own.epoch()
    np.testing.assert_array_equal(short[1], [1.5, 0])  # a row of padding has zeros
    np.testing.assert_array_equal(long[2], [[1, 2], [0, 0]])
    assert BucketedBatches(([[5] * 6],), batch_size=2, like=own).lengths == [(1,), (4,), (6,)]


def test_values_choose_the_lengths_of_earlier_versions(columns):
    """These had a column with one id, and a run would not go on as it was."""
    options = {"batch_size": 13, "number_of_buckets": 5}
    other = BucketedBatches((*columns, [[1]] * 211), **options)
    own = BucketedBatches(columns, values=[np.ones(211)], **options)
    assert own.lengths == [each[:-1] for each in other.lengths]
    for index in range(len(own)):
        np.testing.assert_array_equal(own.rows(1, index), other.rows(1, index))
