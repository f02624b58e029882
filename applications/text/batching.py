"""Batches of a few fixed shapes from sequences of many lengths."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from .packed import PackedIds

if TYPE_CHECKING:
    import tensorflow as tf

Lengths = tuple[int, ...]
# Of more different lengths than this, neighbours are taken together.
MOST_LENGTHS = 512


class BucketedBatches:
    """Batches of parallel sequences, padded to the lengths of a few buckets.

    An example, one sequence from each column (a sentence and its translation), goes to the smallest
    bucket that holds it: compiled code meets `len(batches.lengths)` shapes. Rows of padding fill up
    a bucket's last batch. `(seed, epoch, index)` decides which examples a batch has, so that
    training can go on from any step.

    Args:
        columns: a tuple of columns, each a list of id lists or a `PackedIds`; all have the same
            number of rows.
        batch_size: rows of a batch. Give this or `tokens_per_batch`.
        tokens_per_batch: ids of a batch, padding included, in its longest column.
        lengths: the length of each column in each bucket, `[(10, 12), (30, 35)]`. Default: at most
            `number_of_buckets` that waste least on padding, multiples of `multiple_of`.
        like: other batches. The buckets have their lengths, so that nothing new is compiled. If
            the longest sequences of all columns fit none of these buckets, one more holds them.
        seed, shuffle: draw a new order in each epoch; else examples keep their order in each
            bucket, and buckets follow one another from the shortest.
        values: arrays with a row for each example, such as weights.
        assemble: makes a batch of the padded arrays, one for each column, and the rows of `values`,
            which are zeros for rows of padding; a tuple by default.
        variants: in how many ways the columns and `values` hold each example: all examples in the
            first, then all in the second. Epoch `e` has each once, in way `e % variants`; its
            bucket holds all its ways, so that all epochs have the same batches.
        fill: whether rows of padding fill up a bucket's last batch. Without them it has fewer rows,
            by which Keras weighs its loss.

    Raises:
        ValueError: where columns or `values` differ in rows, there are no rows, or an example fits
            no bucket.

    Example:

    >>> columns = ([[5, 6], [7]], [[8], [9, 4]])
    >>> source, target = BucketedBatches(columns, batch_size=2, shuffle=False).batch(0, 0)
    >>> source.tolist(), target.tolist()
    ([[5, 6], [7, 0]], [[8, 0], [9, 4]])
    """

    def __init__(
        self,
        columns: Sequence[Sequence[Sequence[int]]],
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
        lengths: Sequence[Lengths] | None = None,
        number_of_buckets: int = 8,
        multiple_of: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        assemble: Callable[..., Any] | None = None,
        *,
        like: "BucketedBatches | None" = None,
        values: Sequence[np.ndarray] = (),
        variants: int = 1,
        fill: bool = True,
    ) -> None:
        _check(
            columns,
            values,
            batch_size=batch_size,
            tokens_per_batch=tokens_per_batch,
            number_of_buckets=number_of_buckets,
            multiple_of=multiple_of,
            variants=variants,
        )
        self.seed = seed
        self.shuffle = shuffle
        self.fill = fill
        self._assemble = assemble or (lambda *arrays: arrays)
        self._columns = [
            column if isinstance(column, PackedIds) else PackedIds(column) for column in columns
        ]
        # Zeros come first: row -1, of padding, has them.
        self._values = [np.concatenate([np.zeros_like(each[:1]), each]) for each in values]
        sizes = np.stack([column.lengths for column in self._columns], axis=1)
        self._tokens, self._variants = int(sizes.sum()) / variants, variants
        sizes = sizes.reshape(variants, -1, sizes.shape[1]).max(axis=0)

        def rows(longest: np.ndarray) -> np.ndarray:
            if batch_size is not None:
                return np.full_like(longest, batch_size)
            return np.maximum(1, tokens_per_batch // longest)

        if like is not None:
            lengths = _with_room(like.lengths, sizes)
        if lengths is None:
            # With values a row counts as one id more, as in earlier versions: their runs go on.
            more = np.ones((len(sizes), int(bool(self._values))), sizes.dtype)
            counted = np.concatenate([sizes, more], axis=1)
            lengths = choose_lengths(counted, number_of_buckets, multiple_of, rows)
            lengths = [each[: sizes.shape[1]] for each in lengths]
        self.lengths: list[Lengths] = sorted(
            (tuple(map(int, bucket)) for bucket in lengths), key=sum
        )
        self._bucket_of = place(sizes, self.lengths)
        self._rows = [int(rows(np.array(max(bucket)))) for bucket in self.lengths]
        counts = np.bincount(self._bucket_of, minlength=len(self.lengths))
        self._batches_of = [
            math.ceil(count / rows) for count, rows in zip(counts, self._rows, strict=True)
        ]
        self._epoch: tuple[int, list[tuple[int, np.ndarray]]] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return sum(self._batches_of)

    @property
    def number_of_examples(self) -> int:
        """How many examples an epoch has."""
        return len(self._bucket_of)

    @property
    def padding_fraction(self) -> float:
        """The part of an epoch's ids that is padding, rows that fill up a batch included."""
        batches = self._order(0)
        area = sum(len(rows) * sum(self.lengths[bucket]) for bucket, rows in batches)
        return 1 - self._tokens / area if area else 0.0

    def shapes(self) -> list[tuple[tuple[int, int], ...]]:
        """Return the shapes that occur, by bucket: the shape of each column."""
        of_batches = sorted((bucket, len(rows)) for bucket, rows in self._order(0))
        return [
            tuple((rows, length) for length in self.lengths[bucket])
            for bucket, rows in dict.fromkeys(of_batches)
        ]

    def rows(self, epoch: int, index: int) -> np.ndarray:
        """Return which example each row of a batch is, -1 for a row of padding alone."""
        return self._order(epoch)[index][1]

    def batch(self, epoch: int, index: int) -> Any:
        """Return batch `index` of `epoch`, as `assemble` makes it from int32 arrays."""
        bucket, rows = self._order(epoch)[index]
        first = epoch % self._variants * self.number_of_examples
        rows = np.where(rows < 0, rows, rows + first)
        columns = zip(self._columns, self.lengths[bucket], strict=True)
        arrays = [column.padded(rows, length) for column, length in columns]
        arrays += [each[rows + 1] for each in self._values]
        return self._assemble(*arrays)

    def epoch(self, epoch: int = 0) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        for index in range(len(self)):
            yield self.batch(epoch, index)

    def stream(self, start_step: int = 0) -> Iterator[Any]:
        """Yield batches without end, from step `start_step` of the whole training on."""
        for step in itertools.count(start_step):
            yield self.batch(*divmod(step, len(self)))

    def to_dataset(
        self, start_step: int = 0, epochs: int | None = None
    ) -> "tf.data.Dataset | keras.utils.PyDataset":
        """Return the stream as a dataset with open dimensions, of `epochs` counted from step 0.

        Without TensorFlow, as JAX can train, it is a `PyDataset` of the same batches.
        """
        try:
            import tensorflow as tf
        except ImportError:
            return _Steps(self, start_step, epochs)

        first = self.batch(0, 0)
        kinds = [np.asarray(array).dtype for array in tf.nest.flatten(first)]
        ranks = [np.ndim(array) for array in tf.nest.flatten(first)]

        def read(step: int) -> list[Any]:
            return tf.nest.flatten(self.batch(*divmod(int(step), len(self))))

        def load(step: "tf.Tensor") -> Any:
            arrays = tf.numpy_function(read, [step], kinds)
            for array, rank in zip(arrays, ranks, strict=True):
                array.set_shape([None] * rank)
            return tf.nest.pack_sequence_as(first, arrays)

        # Not `from_generator`: on Python 3.11 and later TensorFlow then gives each large tensor
        # fresh pages, and a step of training takes up to twice as long (docs/lab/benchmarks.md).
        if epochs is None:
            steps = tf.data.Dataset.counter(start_step)
        else:
            steps = tf.data.Dataset.range(start_step, max(start_step, epochs * len(self)))
        return steps.map(load).prefetch(tf.data.AUTOTUNE)

    def _order(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """Return (bucket, rows) of each batch of an epoch; the last epoch asked for is kept."""
        kept = self._epoch  # one read: a prefetching thread may replace it
        if kept is None or kept[0] != epoch:
            kept = self._epoch = (epoch, self._draw(epoch))
        return kept[1]

    def _draw(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        order = np.arange(self.number_of_examples)
        generator = np.random.default_rng([self.seed, epoch])
        if self.shuffle:
            generator.shuffle(order)
        batches = []
        for bucket, (rows, count) in enumerate(zip(self._rows, self._batches_of, strict=True)):
            members = order[self._bucket_of[order] == bucket]
            filled = np.full(rows * count, -1)
            filled[: len(members)] = members
            parts = filled.reshape(count, rows)
            batches += [(bucket, part if self.fill else part[part >= 0]) for part in parts]
        if self.shuffle:
            batches = [batches[i] for i in generator.permutation(len(batches))]
        return batches


class _Steps(keras.utils.PyDataset):
    """The batches from one step of the whole training on, for Keras."""

    def __init__(self, batches: BucketedBatches, start: int, epochs: int | None) -> None:
        super().__init__()
        self._batches, self._start = batches, start
        self._count = None if epochs is None else max(0, epochs * len(batches) - start)

    @property
    def num_batches(self) -> int | None:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if self._count is not None and not 0 <= index < self._count:
            raise IndexError(index)  # which ends a loop over the batches
        return self._batches.batch(*divmod(self._start + index, len(self._batches)))


def _check(
    columns: Sequence[Sequence[Sequence[int]]], values: Sequence[np.ndarray], **sizes: int | None
) -> None:
    counts = [len(column) for column in columns]
    if not counts or len(set(counts)) > 1 or counts[0] == 0:
        raise ValueError(
            "`columns` must be one or more lists of sequences, equally many in each and at least "
            f"one. Received: columns of {counts} sequences"
        )
    batch_size, tokens_per_batch = sizes["batch_size"], sizes["tokens_per_batch"]
    if (batch_size is None) == (tokens_per_batch is None):
        raise ValueError(
            "Give one of `batch_size` and `tokens_per_batch`. "
            f"Received: batch_size={batch_size}, tokens_per_batch={tokens_per_batch}"
        )
    for name, size in sizes.items():
        if size is not None and (not isinstance(size, Integral) or size < 1):
            raise ValueError(f"`{name}` must be a whole number of at least 1. Received: {size}")
    if any(len(each) != counts[0] for each in values):
        raise ValueError(
            f"Each of `values` must have a row for each of {counts[0]} examples. "
            f"Received: {[len(each) for each in values]} rows"
        )
    if counts[0] % (sizes["variants"] or 1):
        raise ValueError(
            "`columns` must hold each example equally often. "
            f"Received: variants={sizes['variants']} of {counts[0]} sequences"
        )


def _with_room(lengths: list[Lengths], sizes: np.ndarray) -> list[Lengths]:
    """Return lengths, and one more bucket if the longest sequences fit none of theirs."""
    longest = sizes.max(axis=0)
    if any((longest <= each).all() for each in lengths):
        return lengths
    return [*lengths, tuple(longest.tolist())]


def choose_lengths(
    sizes: np.ndarray,
    number_of_buckets: int,
    multiple_of: int,
    rows: Callable[[np.ndarray], np.ndarray],
) -> list[Lengths]:
    """Return the lengths of at most `number_of_buckets` buckets with the fewest ids an epoch.

    Dynamic programming over examples that are ranked by their longest column, which sets `rows`.
    """
    sizes = np.maximum(1, -(-sizes // multiple_of) * multiple_of)
    different, key_of = np.unique(sizes.max(axis=1), return_inverse=True)
    keys = min(len(different), MOST_LENGTHS)
    key_of = (np.arange(len(different)) * keys // len(different))[key_of.ravel()]
    count = np.bincount(key_of)
    longest = np.zeros((keys, sizes.shape[1]), np.int64)
    np.maximum.at(longest, key_of, sizes)

    cost = np.full((keys + 1, keys + 1), np.inf)  # [i, j]: keys i to j-1 in one bucket
    for first in range(keys):
        members = np.cumsum(count[first:])
        lengths = np.maximum.accumulate(longest[first:], axis=0)
        height = rows(lengths.max(axis=1))
        cost[first, first + 1 :] = -(-members // height) * height * lengths.sum(axis=1)

    totals = [cost[0]]  # [buckets - 1][j]: the least cost of keys 0 to j-1 in so many buckets
    cuts = []
    for _ in range(min(number_of_buckets, keys) - 1):
        candidates = totals[-1][:, None] + cost
        cuts.append(np.argmin(candidates, axis=0))
        totals.append(np.min(candidates, axis=0))
    buckets = int(np.argmin([total[-1] for total in totals]))
    ends = [keys]
    for cut in reversed(cuts[:buckets]):
        ends.append(int(cut[ends[-1]]))
    edges = [0, *reversed(ends)]
    return [
        tuple(map(int, longest[first:last].max(axis=0)))
        for first, last in zip(edges[:-1], edges[1:], strict=True)
    ]


def place(sizes: np.ndarray, buckets: Sequence[Lengths]) -> np.ndarray:
    """Return for each example `(examples, columns)` the first of `buckets` that holds it."""
    if any(len(bucket) != sizes.shape[1] for bucket in buckets):
        raise ValueError(
            f"Each bucket must have {sizes.shape[1]} lengths, one for each column. "
            f"Received: {list(buckets)}"
        )
    bucket_of = np.full(len(sizes), -1)
    for index, bucket in reversed(list(enumerate(buckets))):
        bucket_of[(sizes <= bucket).all(axis=1)] = index
    if (bucket_of < 0).any():
        example = int(np.argmax(bucket_of < 0))
        raise ValueError(
            f"Every example must fit one of the buckets {list(buckets)}. Received: example "
            f"{example} with lengths {tuple(sizes[example].tolist())}"
        )
    return bucket_of
