"""A model's attention over its training, an epoch a frame, for TensorBoard."""

import os
from collections.abc import Callable
from typing import Any

import keras

from .figures import png


class AttentionImages(keras.callbacks.Callback):
    """Draws a model's attention before training and after epochs, and logs it to TensorBoard.

    TensorBoard shows it under "Images", with a slider over the epochs. On every backend it needs
    TensorFlow and tensorboard.

    Args:
        draw: Function without arguments that returns a `matplotlib.figure.Figure`, such as
            [`plot_alignment`][keras_attention.visualization.plot_alignment] of the model's weights
            as they are now. For a translator: `lambda: translator.draw(text, target=given).plot()`.
        log_dir: Folder of TensorBoard's logs.
        name: What TensorBoard calls the picture.
        every: Epochs from one picture to the next.

    Raises:
        ValueError: If `draw` cannot be called or `every` is no positive whole number.

    Example:

    ```python
    from keras_attention.visualization import AttentionImages, plot_alignment

    def draw():  # in your program, with weights of the model that trains
        return plot_alignment([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])

    film = AttentionImages(draw, "logs/attention")  # model.fit(..., callbacks=[film])
    # tensorboard --logdir logs
    ```
    """

    def __init__(
        self,
        draw: Callable[[], Any],
        log_dir: str | os.PathLike,
        name: str = "attention",
        every: int = 1,
    ):
        super().__init__()
        if not callable(draw):
            raise ValueError(
                "`draw` should be a function that returns a figure: "
                f"lambda: plot_alignment(...). Received: draw={draw!r}"
            )
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(
                f"`every` should be a positive whole number. Received: every={every!r}"
            )
        self.draw, self.log_dir, self.name, self.every = draw, log_dir, name, every
        self._writer: Any = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 0:
            self._write(0)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self.every == 0:
            self._write(epoch + 1)

    def on_train_end(self, logs: Any = None) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, step: int) -> None:
        import tensorflow as tf

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(os.fspath(self.log_dir))
        with self._writer.as_default():
            picture = tf.io.decode_png(png(self.draw()), channels=3)
            tf.summary.image(self.name, picture[None], step=step)
        self._writer.flush()
