"""Batches of texts that Python makes: a `keras.utils.PyDataset`, or an iterator of batches.

A batch is `(x, y)` or `(x, y, sample_weight)`, each a column of the batch as a `tf.data.Dataset`
has it: lists of texts and of labels.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from ..errors import shown


class IteratorOfBatches:
    """An iterator of batches, which can be gone through once."""

    def __init__(self, batches: Iterable[Any]):
        self.batches = iter(batches)


class EncodedBatches(keras.utils.PyDataset):
    """The batches of a `PyDataset` of texts as ids, made by as many workers as there.

    Args:
        source: the batches of texts.
        encode: from a batch of texts to one of arrays.
    """

    def __init__(self, source: keras.utils.PyDataset, encode: Callable[[Any], Any]):
        names = ("workers", "use_multiprocessing", "max_queue_size")
        super().__init__(**{name: getattr(source, name) for name in names})
        self.source, self.encode = source, encode

    @property
    def num_batches(self) -> int | None:
        return self.source.num_batches

    def __getitem__(self, index: int) -> Any:
        return self.encode(self.source[index])

    def on_epoch_begin(self) -> None:
        getattr(self.source, "on_epoch_begin", lambda: None)()  # not in early Keras 3

    def on_epoch_end(self) -> None:
        self.source.on_epoch_end()


def encoded_batches(
    source: keras.utils.PyDataset | IteratorOfBatches,
    preprocessor: Any,
    has_targets: bool = True,
    repeat: bool = False,
) -> Any:
    """Return batches of texts as batches of ids, in a form that Keras takes.

    On TensorFlow they become a `tf.data.Dataset`, whose shapes are open: Keras would take the
    lengths of the first two batches for those of all where they are the same.

    Args:
        source: the batches of texts.
        preprocessor: what encodes them.
        has_targets: whether a batch has targets, to train with.
        repeat: whether the batches start again when all were seen.
    """

    def encode(batch):
        return _encoded(batch, preprocessor, has_targets)

    if isinstance(source, keras.utils.PyDataset):
        encoded = EncodedBatches(source, encode)
        if keras.backend.backend() != "tensorflow":
            return encoded
        return _as_dataset(encoded[0], lambda: _epoch_of(encoded), encoded.num_batches, repeat)
    batches = map(encode, source.batches)
    if keras.backend.backend() != "tensorflow":
        return (each for each in batches)
    first = list(itertools.islice(batches, 1))
    if not first:
        raise ValueError("An iterator of batches should give one at least. Received: none")
    return _as_dataset(first[0], lambda: itertools.chain(first, batches), None, False)


def _encoded(batch: Any, preprocessor: Any, has_targets: bool) -> Any:
    """Return a batch of texts as arrays."""
    columns = batch if isinstance(batch, tuple) else (batch,)
    if not has_targets:
        return (preprocessor(columns[0]),)
    if not 2 <= len(columns) <= 3:
        raise ValueError(
            "A batch should be `(x, y)` or `(x, y, sample_weight)`, with lists of texts and of "
            f"their targets. Received: {shown(batch)}"
        )
    x, y, *weights = columns
    inputs, targets, *weights = preprocessor(x, y, *weights)
    return (inputs, np.asarray(targets), *(np.asarray(each, "float32") for each in weights))


def _epoch_of(batches: EncodedBatches) -> Iterator[Any]:
    """Yield the batches of an epoch in their order; its end comes before the last is handed out.

    Nobody asks for one more than there are.
    """
    batches.on_epoch_begin()
    for number, batch in enumerate(_made_by_workers(batches), 1):
        if number == batches.num_batches:
            batches.on_epoch_end()
        yield batch


def _made_by_workers(batches: EncodedBatches) -> Iterator[Any]:
    """Yield the batches in their order, with threads for workers."""
    count = batches.num_batches
    indices = iter(itertools.count() if count is None else range(count))
    if batches.workers < 2:
        yield from map(batches.__getitem__, indices)
        return
    with ThreadPoolExecutor(batches.workers) as pool:
        ahead = max(batches.workers, batches.max_queue_size)
        first = itertools.islice(indices, ahead)
        waiting = deque(pool.submit(batches.__getitem__, index) for index in first)
        while waiting:
            yield waiting.popleft().result()
            following = itertools.islice(indices, 1)
            waiting.extend(pool.submit(batches.__getitem__, index) for index in following)


def _as_dataset(
    first: Any, batches: Callable[[], Iterable[Any]], count: int | None, repeat: bool
) -> Any:
    """Return a `tf.data.Dataset` of batches like the first, of open shapes; `count` of them."""
    import tensorflow as tf

    signature = keras.tree.map_structure(
        lambda array: tf.TensorSpec([None] * array.ndim, array.dtype), first
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if count is not None:  # or Keras would warn that the data ran out
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return (dataset.repeat() if repeat else dataset).prefetch(1)
