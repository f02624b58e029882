"""Which lengths to pad to, so that the least is wasted."""

from collections.abc import Callable, Sequence

import numpy as np

Lengths = tuple[int, ...]
MOST_LENGTHS = 512
"""Of more different lengths than this, neighbours are taken together."""


def choose_lengths(
    sizes: np.ndarray,
    number_of_buckets: int,
    multiple_of: int,
    rows: Callable[[np.ndarray], np.ndarray],
) -> list[Lengths]:
    """Return the lengths of at most `number_of_buckets` buckets that waste least.

    Examples are ranked by their longest column and cut into consecutive buckets, each as long in
    every column as its longest example there. Of all such cuts the one with the fewest ids in an
    epoch is found, padding and the rows that fill up a last batch included (dynamic programming
    over the different lengths).

    Args:
        sizes: (examples, columns) lengths.
        number_of_buckets: the most buckets to give.
        multiple_of: lengths are rounded up to multiples of this.
        rows: the rows of a batch, as a function of the bucket's longest column.

    Returns:
        For each bucket the length of each column.
    """
    sizes = np.maximum(1, -(-sizes // multiple_of) * multiple_of)
    keys, key_of = _grouped(*np.unique(sizes.max(axis=1), return_inverse=True))
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
    """Return for each example the first of `buckets` that holds it.

    Args:
        sizes: (examples, columns) lengths.
        buckets: for each bucket the length of each column, smallest bucket first.

    Raises:
        ValueError: where a bucket has another number of columns, or an example fits none.
    """
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


def _grouped(keys: np.ndarray, key_of: np.ndarray) -> tuple[int, np.ndarray]:
    """Join neighbouring lengths where there are more than the search takes in its stride."""
    groups = min(len(keys), MOST_LENGTHS)
    return groups, (np.arange(len(keys)) * groups // len(keys))[key_of.ravel()]
