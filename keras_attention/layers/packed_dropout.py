"""Dropout that draws a third of the random numbers."""

import keras
from keras import ops

BITS = 10  # three decisions out of one number of 30 bits


@keras.saving.register_keras_serializable("keras_attention")
class PackedDropout(keras.layers.Dropout):
    """Dropout whose random numbers decide over three elements each.

    On a CPU the counter-based generators that make dropout reproducible cost more than all else in
    it: forward and backward over `(170, 24, 128)` took 2.2 ms of one core against 3.6 ms of
    `keras.layers.Dropout` in float32, and 2.1 ms against 4.1 ms in bfloat16. Ten bits decide over
    an element, so the rate is rounded to a 1024th, in half precision too, and what is kept is
    scaled by the rounded rate.

    Its arguments are those of `keras.layers.Dropout`, without `noise_shape`.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        dropped = round(self.rate * 2**BITS)
        if not training or not dropped:
            return inputs
        kept = 1.0 - dropped / 2**BITS
        mask = self._bits(ops.shape(inputs), dropped)
        return inputs * (ops.cast(mask, inputs.dtype) * ops.cast(1.0 / kept, inputs.dtype))

    def _bits(self, shape, dropped):
        """Return booleans of a shape, False with probability `dropped / 1024`."""
        count = 1
        for size in shape:
            count = count * size
        words = keras.random.randint(
            ((count + 2) // 3,), 0, 2 ** (3 * BITS), dtype="int32", seed=self.seed_generator
        )
        lowest = 2**BITS - 1
        parts = [
            ops.bitwise_and(words, lowest) >= dropped,
            ops.bitwise_and(ops.right_shift(words, BITS), lowest) >= dropped,
            ops.right_shift(words, 2 * BITS) >= dropped,
        ]
        return ops.reshape(ops.concatenate(parts)[:count], shape)

    def get_config(self):
        config = super().get_config()
        config.pop("noise_shape", None)
        return config
