"""Metrics over the real tokens of padded sequences, streamed over batches."""

from typing import Any

import keras
from keras import ops

from ..ops.masks import check_dense, token_values, token_weights
from ..ops.types import Tensor


class _TokenMean(keras.metrics.MeanMetricWrapper):
    """The weighted mean of a value of each real token; a subclass says which value."""

    def __init__(self, ignore_index: int | None, name: str, dtype: Any) -> None:
        super().__init__(self._values, name=name, dtype=dtype)
        self.ignore_index = ignore_index

    def token_values(self, target: Tensor, logits: Tensor) -> Tensor:
        """Return the value of each token, `(...)`, from logits of at least float32."""
        raise NotImplementedError

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> None:
        check_dense(y_true, "y_true")
        check_dense(y_pred, "y_pred")
        target = ops.cast(ops.convert_to_tensor(y_true), "int32")
        if 0 in target.shape:  # no token, and a mean of nothing is NaN
            return
        weights = token_weights(target, self.ignore_index, sample_weight)
        # Keras averages weights and values over all axes but the first, and a token of a shorter
        # batch would weigh more: take the average back.
        steps = ops.prod(ops.shape(target)[1:]) if len(target.shape) > 1 else 1
        super().update_state(target, y_pred, weights * ops.cast(steps, weights.dtype))

    def _values(self, target: Tensor, logits: Tensor) -> Tensor:
        return token_values(target, logits, self.ignore_index, self.token_values)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype, "ignore_index": self.ignore_index}


@keras.saving.register_keras_serializable(package="keras_attention")
class Perplexity(_TokenMean):
    """Perplexity of a language or translation model, from its logits.

    `exp(-Σ_t w_t log p(y_t) / Σ_t w_t)` over all real tokens since the last reset, at least in
    float32; 1 before the first. (The mean of the batches' perplexities is larger.)

    Args:
        ignore_index: Integer id of the padding, or `None` to count every position.
        name, dtype: As of every Keras metric.

    Call arguments:
        y_true: Token ids `(B, T)`.
        y_pred: Logits `(B, T, V)`. A mask that they carry leaves out tokens too.
        sample_weight: Optional weights `(B,)`, `(B, 1)` or `(B, T)`.

    Raises:
        ValueError: If the shapes do not fit each other.

    Example:

    >>> import numpy as np
    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[1, 3, 0]]), np.zeros((1, 3, 5)))  # five tokens
    >>> round(float(metric.result()), 3)
    5.0
    """

    def __init__(
        self, ignore_index: int | None = 0, name: str = "perplexity", dtype: Any = None
    ) -> None:
        super().__init__(ignore_index, name, dtype)

    def token_values(self, target: Tensor, logits: Tensor) -> Tensor:
        logits = logits - ops.max(logits, axis=-1, keepdims=True)
        target_logit = ops.take_along_axis(logits, ops.expand_dims(target, axis=-1), axis=-1)
        return ops.log(ops.sum(ops.exp(logits), axis=-1)) - ops.squeeze(target_logit, axis=-1)

    def result(self) -> Tensor:
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="keras_attention")
class MaskedSparseCategoricalAccuracy(_TokenMean):
    """Part of the real tokens to which the model gives the highest score of the vocabulary.

    Arguments and errors are those of `Perplexity`; probabilities do as well as logits.

    Example:

    >>> import numpy as np
    >>> metric = MaskedSparseCategoricalAccuracy()
    >>> metric.update_state(np.array([[1, 2, 0]]), np.array([[[0, 9, 0], [0, 9, 0], [0, 9, 0]]]))
    >>> float(metric.result())  # one of two real tokens
    0.5
    """

    def __init__(
        self, ignore_index: int | None = 0, name: str = "token_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(ignore_index, name, dtype)

    def token_values(self, target: Tensor, logits: Tensor) -> Tensor:
        best = ops.cast(ops.argmax(logits, axis=-1), "int32")
        return ops.cast(ops.equal(best, target), logits.dtype)
