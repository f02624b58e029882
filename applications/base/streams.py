"""Batches searched several at a time: a stream is a thread that takes one batch after another."""

import math
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import keras

MOST_STREAMS = 8
"""Streams where no number is given: each holds the state of a whole batch."""
FEWEST_ROWS = 16
"""Of a batch that is cut for a stream to have work: products of fewer rows are not faster."""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_streams() -> int:
    """Return how many streams keep the cores busy."""
    return min(usable_cores(), MOST_STREAMS)


def stream_count(wanted: int | None) -> int:
    """Return how many streams to search in: as many as wanted, or one a core where that helps.

    PyTorch has one always: it runs the search in Python, which two threads do not speed up. So does
    TensorFlow where its functions are run eagerly.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        return 1
    if wanted is not None:
        return wanted
    if backend != "tensorflow":
        return 1
    import tensorflow as tf

    has_gpu = tf.config.list_physical_devices("GPU")  # which, unlike Keras, starts no device
    return 1 if has_gpu or tf.config.functions_run_eagerly() else default_streams()


def share_cores(streams: int) -> None:
    """Let each TensorFlow operation use its stream's share of the cores.

    This holds for the whole process, and must come before TensorFlow's first operation: the
    command does it, no function that others call. TF_NUM_INTRAOP_THREADS in the environment wins.
    """
    if keras.backend.backend() != "tensorflow" or os.environ.get("TF_NUM_INTRAOP_THREADS"):
        return
    import tensorflow as tf

    share = max(1, usable_cores() // streams)
    with suppress(RuntimeError):  # there was an operation: the command was called from a program
        tf.config.threading.set_intra_op_parallelism_threads(share)


def rows_of_a_batch(rows: int, most: int, streams: int) -> int:
    """Return how many rows a batch has, so that all streams have about as many batches."""
    if streams == 1:
        return most
    count = math.ceil(math.ceil(rows / most) / streams) * streams
    return max(math.ceil(rows / max(1, count)), min(most, FEWEST_ROWS))


def in_streams(function: Callable[[Any], None], batches: Iterable[Any], streams: int) -> None:
    """Call a function with each batch, `streams` at a time.

    After an error, or Ctrl-C, no batch is begun. It is raised when those that were begun are done.
    """
    if streams == 1:
        for batch in batches:
            function(batch)
        return
    stopped = threading.Event()

    def guarded(batch: Any) -> None:
        if stopped.is_set():
            return
        try:
            function(batch)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(streams, "search") as threads:
        try:
            futures = [threads.submit(guarded, batch) for batch in batches]
            for future in futures:
                future.result()
        finally:
            stopped.set()
