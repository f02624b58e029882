"""From a decoder's vectors to the scores of the target words."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_attention.translation")
class MaxoutReadout(keras.layers.Layer):
    """Maxout over what the decoder knows of the next word.

    $$\\tilde t_i = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i + b, \\qquad
      t_{i,j} = \\max(\\tilde t_{i,2j}, \\tilde t_{i,2j+1}).$$

    The three matrices stand one above the other in one kernel, so that the sum is one product.

    Args:
        units: Integer, the width of the result (half that of $\\tilde t$).
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: List of tensors `(..., D_i)`, alike but for the last axis: state, word, context.

    Returns:
        Tensor `(..., units)`.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473), appendix A.2.2
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        width = sum(shape[-1] for shape in input_shape)
        self.kernel = self.add_weight((width, 2 * self.units), name="kernel")
        self.bias = self.add_weight((2 * self.units,), initializer="zeros", name="bias")

    def call(self, inputs):
        joined = ops.concatenate(inputs, axis=-1)
        sums = flat_matmul(joined, self.kernel) + self.bias
        pairs = ops.reshape(sums, (*ops.shape(sums)[:-1], self.units, 2))
        return ops.max(pairs, axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[0][:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("keras_attention.translation")
class WordLogits(keras.layers.Layer):
    """Scores of every word of the vocabulary, $W_o t + b$.

    Args:
        vocabulary_size: Integer, how many words there are.
        tied: Boolean. True where the target embedding serves as $W_o$, handed over at each call
            (Press and Wolf, 2017); the layer then owns a bias only.
        **kwargs: `name`, `dtype` and the like of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor `(..., D)`.
        table: The embedding's table `(V, D)`, where `tied`.

    Returns:
        Tensor `(..., V)`.

    Reference:
        - [Press and Wolf, 2017](https://arxiv.org/abs/1608.05859)
    """

    def __init__(self, vocabulary_size: int, tied: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.tied = tied

    def build(self, input_shape):
        if not self.tied:
            self.kernel = self.add_weight((input_shape[-1], self.vocabulary_size), name="kernel")
        self.bias = self.add_weight((self.vocabulary_size,), initializer="zeros", name="bias")

    def call(self, inputs, table=None):
        if self.tied != (table is not None):
            raise ValueError(
                "`table` must be given where `tied=True`, and only there. "
                f"Received: tied={self.tied}, table={table}"
            )
        kernel = ops.cast(ops.transpose(table), self.compute_dtype) if self.tied else self.kernel
        return flat_matmul(inputs, kernel) + self.bias

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.vocabulary_size)

    def get_config(self):
        config = {"vocabulary_size": self.vocabulary_size, "tied": self.tied}
        return {**super().get_config(), **config}


def flat_matmul(inputs, kernel):
    """Return `inputs (..., D) @ kernel (D, V)` as one product over all rows.

    What a backend makes of a product of rank 3 by rank 2 differs between releases of Keras; a
    broadcast batch product would make a gradient `(D, V)` for each sentence and add them up.
    """
    shape = ops.shape(inputs)
    rows = ops.matmul(ops.reshape(inputs, (-1, shape[-1])), kernel)
    return ops.reshape(rows, (*shape[:-1], kernel.shape[-1]))
