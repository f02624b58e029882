"""The negative log likelihood of tokens whose probabilities are normalised already."""

import keras
from keras import ops

from keras_attention.losses.reductions import check_reduction
from keras_attention.ops.tokens import check_token_shapes, real_tokens, token_weights


def masked_negative_log_likelihood(target, log_probabilities, ignore_index=0):
    """`-log P(y)` of each target token, 0 where the target is padding.

    For models whose output is a log probability already, as that of a `PointerGenerator` is: a
    mixture of distributions has no logits.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        log_probabilities: Of shape `(..., V)`.
        ignore_index: Integer id whose positions cost nothing (the padding), or `None` to count
            every position. It may lie outside the vocabulary, as -1 does.

    Returns:
        A float32 tensor with the shape of `target`.

    Raises:
        ValueError: If the shapes do not fit each other.

    Example:

    >>> import numpy as np
    >>> log_p = np.log([[[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]])
    >>> values = masked_negative_log_likelihood(np.array([[1, 0]]), log_p)
    >>> [round(float(value), 3) for value in values[0]]    # log 4, padding
    [1.386, 0.0]
    """
    log_probabilities = ops.cast(ops.convert_to_tensor(log_probabilities), "float32")
    target = ops.cast(ops.convert_to_tensor(target), "int32")
    check_token_shapes(target, log_probabilities)
    real = real_tokens(target, ignore_index)
    # An ignored id may lie outside the vocabulary, so it must not reach the gather.
    index = ops.expand_dims(ops.where(real, target, ops.zeros_like(target)), axis=-1)
    values = -ops.squeeze(ops.take_along_axis(log_probabilities, index, axis=-1), axis=-1)
    return ops.where(real, values, ops.zeros_like(values))


@keras.saving.register_keras_serializable(package="keras_attention")
class MaskedNegativeLogLikelihood(keras.losses.Loss):
    """`-log P(y)`, averaged over the real tokens of the batch, for models of log probabilities.

    As in `MaskedSparseCategoricalCrossentropy`, real tokens are those whose target is not
    `ignore_index` (and that an implicit Keras mask on the predictions, where there is one, keeps);
    a batch of padding alone costs 0.

    Args:
        ignore_index: Integer id of the padding, or `None` to count every position.
        reduction: `"mean_with_sample_weight"`: the weighted sum over the real tokens, divided by
            the sum of their weights. `"sum"`: the weighted sum. `"none"`: the weighted value of
            each token.
        name: Name of the loss.

    Call arguments:
        y_true: Token ids, of shape `(B, T)`.
        y_pred: Log probabilities, of shape `(B, T, V)`, in any float dtype; the loss is float32.
        sample_weight: Optional weights, of shape `(B,)`, `(B, 1)` or `(B, T)`.

    Returns:
        A float32 scalar, or a `(B, T)` tensor with `reduction="none"`.

    Raises:
        ValueError: If the reduction is none of the above, or the shapes do not fit each other.

    Example:

    ```python
    import keras
    from keras_attention.losses import MaskedNegativeLogLikelihood

    log_softmax = keras.layers.Dense(50, activation="log_softmax")
    model = keras.Sequential([keras.layers.Embedding(50, 8), log_softmax])
    model.compile("adam", MaskedNegativeLogLikelihood())
    ```
    """

    def __init__(
        self,
        ignore_index=0,
        reduction="mean_with_sample_weight",
        name="masked_negative_log_likelihood",
    ):
        check_reduction(reduction)
        # float32 whatever keras.config.floatx() says: Keras casts token ids too to the loss' dtype.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.ignore_index = ignore_index

    def __call__(self, y_true, y_pred, sample_weight=None):
        target = ops.cast(ops.convert_to_tensor(y_true), "int32")
        # As weights, and not left to `call`, so that Keras takes them into the sum and the count.
        weight = token_weights(target, self.ignore_index, sample_weight)
        return super().__call__(target, y_pred, sample_weight=weight)

    def call(self, y_true, y_pred):
        return masked_negative_log_likelihood(y_true, y_pred, self.ignore_index)

    def get_config(self):
        return {**super().get_config(), "ignore_index": self.ignore_index}
