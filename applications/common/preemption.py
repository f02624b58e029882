"""Ending softly when the system asks for it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keras

from keras_attention.applications.common.callbacks import is_time_for_a_word
from keras_attention.applications.common.errors import Preempted
from keras_attention.applications.common.saving import SaveCheckpoint
from keras_attention.distribute import Workers


class EndOnSignal(keras.callbacks.Callback):
    """Writes a checkpoint and ends training after a SIGTERM, as schedulers send it.

    It comes after `saver`: a signal during an evaluation finds the epoch's own checkpoint written.

    Args:
        saver: what writes checkpoints.
        steps: batches in an epoch.
        workers: all of them end where one is asked to.
    """

    def __init__(self, saver: SaveCheckpoint, steps: int, workers: Workers):
        super().__init__()
        self.saver = saver
        self.steps = steps
        self.workers = workers
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take notice of the signal inside; only a program's main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _note(self, number, frame):
        self.asked = True

    def on_train_batch_end(self, batch, logs=None):
        # After the last batch of an epoch, its end is near and writes a checkpoint itself.
        if (
            self.saver.within < self.steps
            and is_time_for_a_word(self.workers, batch)
            and self.workers.any(self.asked)
        ):
            self.saver.save_within_epoch()
            self._end()

    def on_epoch_end(self, epoch, logs=None):
        if self.workers.any(self.asked):
            self._end()

    def _end(self):
        path = self.saver.newest
        raise Preempted(f"ended by SIGTERM; {path} is written, continue with --resume.")
