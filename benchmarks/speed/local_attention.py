"""Local attention: where reading windows beats reading the whole memory.

Times a decoder with local attention by both of `LocalAttention`'s paths, for memories of growing
length; `WINDOWED_FROM` in keras_attention/layers/attention/local.py is set by what it prints.
"""

import argparse
import time

BATCH, STEPS, UNITS, HALF_WIDTH = 32, 10, 256, 5
LENGTHS = (25, 50, 100, 200, 400, 800)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there is one table."""


def run(options: argparse.Namespace) -> None:
    """Print a table: milliseconds of a forward pass and of a forward and backward pass."""
    from keras_attention.layers.attention import local

    width = 2 * HALF_WIDTH + 1
    print(f"batch {BATCH}, {STEPS} steps, {UNITS} units, windows of {width}; milliseconds\n")
    print("| alignment | length | in windows | forward: whole | windows | both: whole | windows |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for alignment in local.ALIGNMENTS:
        for length in LENGTHS:
            figures = [measure(alignment, length, limit) for limit in (float("inf"), -1)]
            (whole, whole_both), (windows, windows_both) = figures
            print(
                f"| {alignment} | {length} | {length / width:.1f} | {whole:.1f} | {windows:.1f} "
                f"| {whole_both:.1f} | {windows_both:.1f} |"
            )


def measure(alignment: str, length: int, limit: float) -> tuple[float, float]:
    """Return the least time of each pass; `limit` chooses the path."""
    import keras
    import tensorflow as tf

    from keras_attention.layers import AttentionDecoder, LocalAttention
    from keras_attention.layers.attention import local

    local.WINDOWED_FROM = limit
    attention = LocalAttention(HALF_WIDTH, alignment, score="general")
    decoder = AttentionDecoder(keras.layers.LSTMCell(UNITS), attention, query="current")
    inputs = tf.random.normal((BATCH, STEPS, UNITS))
    memory = tf.random.normal((BATCH, length, UNITS))
    decoder(inputs[:, :1], memory)

    @tf.function
    def forward(inputs, memory):
        return tf.reduce_sum(decoder(inputs, memory) ** 2)

    @tf.function
    def both(inputs, memory):
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            loss = forward(inputs, memory)
        weights = [weight.value for weight in decoder.trainable_variables]
        gradients = tape.gradient(loss, [inputs, memory, *weights])
        return sum(tf.reduce_sum(gradient) for gradient in gradients)

    return tuple(least_time(lambda f=f: f(inputs, memory).numpy()) for f in (forward, both))


def least_time(function) -> float:
    """Return the least of ten times, in milliseconds; the first call compiles."""
    function()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)
