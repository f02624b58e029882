"""Cross-entropy over padded sequences of token ids, from logits or from log probabilities."""

from typing import Any

import keras
from keras import ops

from ..ops.crossentropy import linear_crossentropy, smoothed_crossentropy
from ..ops.masks import check_dense, check_token_shapes, real_tokens, token_values, token_weights
from ..ops.types import Tensor, accumulator_dtype

REDUCTIONS = ("mean_with_sample_weight", "sum", "none", None)


def masked_sparse_categorical_crossentropy(
    target: Tensor, logits: Tensor, label_smoothing: float = 0.0, ignore_index: int | None = 0
) -> Tensor:
    """Cross-entropy of each target token, 0 where the target is padding.

    With `ε` the label smoothing, `V` the vocabulary's size and `z` the logits,

    `loss = -Σ_v q_v log softmax(z)_v`, where `q_v = (1 - ε) [v = target] + ε / V`,

    computed as `logsumexp(z) - (1 - ε) z_target - ε mean(z)`, without smoothed one-hot targets. The
    gradient is written out: without XLA it took a third of TensorFlow's time.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        logits: Of shape `(..., V)`, in any float dtype.
        label_smoothing: The part `ε` of the probability, in `[0, 1)`, that all words share.
        ignore_index: The id of the padding, whose positions cost nothing, or `None` where every
            position counts. It may lie outside the vocabulary, as -1 does.

    Returns:
        A tensor with the shape of `target`, in float32, or in float64 for float64 logits.

    Raises:
        ValueError: If the smoothing lies outside `[0, 1)`, or the shapes do not fit each other.

    Reference:
        Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision",
        section 7 (label smoothing).

    Example:

    >>> import numpy as np
    >>> logits = np.zeros((1, 3, 4), "float32")  # four tokens, all equally likely
    >>> values = masked_sparse_categorical_crossentropy(np.array([[2, 3, 0]]), logits)
    >>> [round(float(value), 3) for value in values[0]]  # log 4 twice, padding
    [1.386, 1.386, 0.0]
    """
    check_smoothing(label_smoothing)

    def of_token(target: Tensor, logits: Tensor) -> Tensor:
        index = ops.expand_dims(target, axis=-1)
        return smoothed_crossentropy(index, logits, float(label_smoothing))

    return token_values(target, logits, ignore_index, of_token)


class TokenLoss(keras.losses.Loss):
    """A loss over the real tokens of a batch; a subclass says in `call` what each one costs."""

    def __init__(
        self, ignore_index: int | None, reduction: str | None, name: str, dtype: Any = None
    ):
        if reduction not in REDUCTIONS:  # another one divides by padding
            raise ValueError(
                "`reduction` must be 'mean_with_sample_weight' (the mean over real tokens), 'sum' "
                f"or 'none'. Received: reduction={reduction!r}"
            )
        # Keras casts token ids too to the loss' dtype: half precisions have no room for them.
        policy = keras.dtype_policies.get(dtype) if dtype else keras.config.dtype_policy()
        default = policy.compute_dtype if dtype else keras.config.floatx()
        dtype = accumulator_dtype(policy.compute_dtype, default)
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.ignore_index = ignore_index

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Tensor:
        check_dense(y_true, "y_true")
        check_dense(y_pred, "y_pred")
        target = ops.cast(ops.convert_to_tensor(y_true), "int32")
        # As weights, so that Keras takes them into the sum and the count.
        weight = token_weights(target, self.ignore_index, sample_weight)
        return super().__call__(target, y_pred, sample_weight=weight)

    def get_config(self) -> dict[str, Any]:
        config = {"ignore_index": self.ignore_index, "dtype": self.dtype}
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_attention")
class MaskedSparseCategoricalCrossentropy(TokenLoss):
    """Cross-entropy between token ids and logits, averaged over the real tokens of the batch.

    Keras' own default divides by every position, so that a batch with more padding weighs less.
    This loss divides by the number of real tokens: those whose target is not `ignore_index` and
    that a mask on the predictions keeps. A batch of padding costs 0, with gradients of 0.

    Args:
        label_smoothing, ignore_index: As in `masked_sparse_categorical_crossentropy`.
        reduction: `"mean_with_sample_weight"`, the weighted sum over real tokens by the sum of
            their weights (1 by default), or `"sum"`, or `"none"`, each token's weighted value.
        name: Name of the loss.
        dtype: Dtype of the loss, float32 or float64. Default: float64 where Keras' dtype policy or
            `floatx` says so, else float32.

    Call arguments:
        y_true, y_pred: Token ids `(B, T)`, and logits `(B, T, V)` in any float dtype.
        sample_weight: Optional weights `(B,)`, `(B, 1)` or `(B, T)`.

    Returns:
        A scalar of the loss' dtype, or a `(B, T)` tensor with `reduction="none"`.

    Raises:
        ValueError: If the reduction is none of the above, and as the function.

    Example:

    ```python
    import keras
    from keras_attention.losses import MaskedSparseCategoricalCrossentropy

    model = keras.Sequential([keras.layers.Embedding(50, 8), keras.layers.Dense(50)])
    model.compile("adam", MaskedSparseCategoricalCrossentropy(label_smoothing=0.1))
    ```
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        ignore_index: int | None = 0,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "masked_sparse_categorical_crossentropy",
        dtype: Any = None,
    ):
        check_smoothing(label_smoothing)
        super().__init__(ignore_index, reduction, name, dtype)
        self.label_smoothing = float(label_smoothing)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return masked_sparse_categorical_crossentropy(
            y_true, y_pred, self.label_smoothing, self.ignore_index
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


def masked_linear_crossentropy(
    target: Tensor,
    features: Tensor,
    kernel: Tensor,
    bias: Tensor,
    label_smoothing: float = 0.0,
    ignore_index: int | None = 0,
    sample_weight: Tensor = None,
) -> Tensor:
    """Mean cross-entropy of the real tokens, without a tensor of all logits: for training.

    The value is that of `MaskedSparseCategoricalCrossentropy` on the logits `x W + b`. Logits and
    gradients are computed together for a part of the tokens at a time. Products have the precision
    of the features, all else at least float32.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        features, kernel, bias: `x` `(..., D)`, `W` `(D, V)` (of tied embeddings, their transposed
            table) and `b` `(V,)`.
        label_smoothing, ignore_index, sample_weight: As in the loss; no gradient goes to weights.

    Returns:
        A scalar, in float32 or, for float64 features, in float64: the weighted sum divided by the
        sum of the weights, or 0 where that is 0.

    Raises:
        ValueError: If the smoothing lies outside `[0, 1)`, or the shapes do not fit each other.

    Example:

    >>> import numpy as np
    >>> features, target = np.ones((1, 3, 2), "float32"), np.array([[2, 3, 0]])
    >>> kernel, bias = np.zeros((2, 4), "float32"), np.zeros(4, "float32")
    >>> round(float(masked_linear_crossentropy(target, features, kernel, bias)), 3)
    1.386
    """
    check_smoothing(label_smoothing)
    check_dense(target, "target")
    check_dense(features, "features")
    target = ops.cast(ops.convert_to_tensor(target), "int32")
    features = ops.convert_to_tensor(features)
    check_token_shapes(target, features, "features")
    if tuple(kernel.shape) != (features.shape[-1], bias.shape[0]):
        raise ValueError(
            "`kernel` must have a row for each feature and a column for each entry of `bias`. "
            f"Received: kernel of shape {tuple(kernel.shape)}, features of shape "
            f"{tuple(features.shape)} and bias of shape {tuple(bias.shape)}."
        )
    weights = token_weights(target, ignore_index, sample_weight)
    weights = ops.cast(weights, accumulator_dtype(features.dtype))
    # An ignored id may lie outside the vocabulary, so it must not reach the gather.
    index = ops.where(real_tokens(target, ignore_index), target, ops.zeros_like(target))
    total = linear_crossentropy(
        ops.reshape(features, (-1, features.shape[-1])),
        kernel,
        bias,
        ops.reshape(index, (-1,)),
        ops.reshape(weights, (-1,)),
        float(label_smoothing),
    )
    return ops.divide_no_nan(total, ops.sum(weights))


def masked_negative_log_likelihood(
    target: Tensor, log_probabilities: Tensor, ignore_index: int | None = 0
) -> Tensor:
    """`-log P(y)` of each target token, 0 where the target is padding.

    It serves models of log probabilities, such as a `PointerGenerator`, which has no logits.

    Args:
        target, ignore_index: As in `masked_sparse_categorical_crossentropy`, and so is the result.
        log_probabilities: Of shape `(..., V)`.

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

    Otherwise as `MaskedSparseCategoricalCrossentropy`, without label smoothing.

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
        dtype: Any = None,
    ):
        super().__init__(ignore_index, reduction, name, dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return masked_negative_log_likelihood(y_true, y_pred, self.ignore_index)


def check_smoothing(label_smoothing: float) -> None:
    """Raise a ValueError for a smoothing that is no part of 1."""
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(
            "`label_smoothing` must be at least 0 and less than 1. "
            f"Received: label_smoothing={label_smoothing}"
        )
