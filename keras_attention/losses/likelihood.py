"""The negative log likelihood of tokens whose probabilities are normalised already."""

import keras
from keras import ops

from ..ops.masks import token_values
from ..ops.types import Tensor
from .crossentropy import TokenLoss


def masked_negative_log_likelihood(
    target: Tensor, log_probabilities: Tensor, ignore_index: int | None = 0
) -> Tensor:
    """`-log P(y)` of each target token, 0 where the target is padding.

    For models whose output is a log probability already, as that of a `PointerGenerator` is: a
    mixture of distributions has no logits.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        log_probabilities: Of shape `(..., V)`.
        ignore_index: As in `masked_sparse_categorical_crossentropy`.

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

    def of_token(target: Tensor, log_probabilities: Tensor) -> Tensor:
        index = ops.expand_dims(target, axis=-1)
        return -ops.squeeze(ops.take_along_axis(log_probabilities, index, axis=-1), axis=-1)

    return token_values(target, log_probabilities, ignore_index, of_token)


@keras.saving.register_keras_serializable(package="keras_attention")
class MaskedNegativeLogLikelihood(TokenLoss):
    """`-log P(y)`, averaged over the real tokens of the batch, for models of log probabilities.

    It is `MaskedSparseCategoricalCrossentropy` with log probabilities `(B, T, V)` in place of
    logits, and without label smoothing: arguments, result and errors are as there.

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
        ignore_index: int | None = 0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "masked_negative_log_likelihood",
    ):
        super().__init__(ignore_index, reduction, name)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return masked_negative_log_likelihood(y_true, y_pred, self.ignore_index)
