"""The layer of `packed_dropout`."""

import keras

from keras_attention.ops.dropout import packed_dropout


@keras.saving.register_keras_serializable("keras_attention")
class PackedDropout(keras.layers.Dropout):
    """Dropout whose random numbers decide over three elements each (`packed_dropout`).

    Its arguments are those of `keras.layers.Dropout`, without `noise_shape`.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        return packed_dropout(inputs, self.rate, self.seed_generator)

    def get_config(self):
        config = super().get_config()
        config.pop("noise_shape", None)
        return config
