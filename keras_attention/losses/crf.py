"""The loss of models that end in a CRF."""

from typing import Any

import keras
from keras import ops

from ..ops.crf import chain_of, check_ids
from ..ops.masks import check_dense
from ..ops.shapes import can_be_one
from ..ops.types import Tensor, accumulator_dtype


@keras.saving.register_keras_serializable(package="keras_attention")
class CRFLoss(keras.losses.Loss):
    """Negative log probability of the tags of each sequence, for models that end in a `CRF`.

    `loss = -log p(y | x)`, with `p` the probability of a whole sequence of tags under the chain of
    [CRF][keras_attention.layers.CRF]. The outputs of that layer are the probabilities of single
    tags, from which the probability of a sequence cannot be computed. So the layer leaves the chain
    on its outputs, as Keras leaves masks there, and this loss reads it: the outputs of the layer
    must be those of the model, as they are.

    Args:
        reduction: Keras' reductions. The default is the weighted mean over the sequences.
        name: Name of the loss.
        dtype: Dtype of the loss. Default: that of the chain, at least float32.

    Call arguments:
        y_true: Tag ids `(B, T)`, or sets of allowed tags `(B, T, K)`, 1 for an allowed one: the
            probability of all sequences of allowed tags. One-hot tags are sets of one. What the
            mask of the layer hides is not read. Another id that is no tag has an infinite loss.
        y_pred: The outputs of a `CRF`.
        sample_weight: Optional weights of the sequences, `(B,)` or `(B, 1)`.

    Raises:
        ValueError: If `y_pred` are not the outputs of a `CRF`, or shapes do not fit.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention import CRF
    from keras_attention.losses import CRFLoss

    model = keras.Sequential([
        keras.layers.Embedding(100, 16, mask_zero=True),
        keras.layers.Dense(5),
        CRF(5),
    ])
    model.compile("adam", CRFLoss(), metrics=["accuracy"])
    words, tags = np.array([[7, 8, 9, 0]]), np.array([[1, 2, 1, 0]])
    model.fit(words, tags, verbose=0)
    ```
    """

    def __init__(
        self,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "crf_loss",
        dtype: Any = None,
    ):
        # Keras casts targets too to the loss' dtype: half precisions have no room for ids.
        policy = keras.dtype_policies.get(dtype) if dtype else keras.config.dtype_policy()
        super().__init__(
            name=name, reduction=reduction, dtype=accumulator_dtype(policy.compute_dtype)
        )

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Tensor:
        values, weights = self._values(y_true, y_pred, sample_weight)
        return super().__call__(ops.zeros_like(values), values, sample_weight=weights)

    def total_and_weight(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted sum over the sequences, and what their mean divides it by."""
        values, weights = self._values(y_true, y_pred, sample_weight)
        counts = ops.ones_like(values)
        weights = counts if weights is None else ops.cast(weights, self.dtype)
        counts = weights if self.reduction == "mean_with_sample_weight" else counts
        return ops.sum(values * weights), ops.sum(counts)

    def _values(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor) -> tuple:
        """Return the loss of each sequence, and their weights `(B,)`."""
        check_dense(y_true, "y_true")
        check_ids(y_true, "y_true")
        log_likelihood = chain_of(y_pred)
        if log_likelihood is None and _is_symbolic():
            log_likelihood = _zeros
        if log_likelihood is None:
            raise ValueError(
                "CRFLoss needs the outputs of a CRF layer as they are: make it the last layer of "
                f"the model. Received: y_pred of shape {tuple(y_pred.shape)}, without a chain"
            )
        y_true = ops.convert_to_tensor(y_true)
        self._check_shapes(y_true, y_pred, sample_weight)
        values = -ops.cast(log_likelihood(y_true), self.dtype)
        if sample_weight is None:
            return values, None
        weights = ops.reshape(ops.convert_to_tensor(sample_weight), (-1,))
        # A forbidden sequence has an infinite loss, and 0 times infinity is NaN.
        return ops.where(weights == 0, ops.zeros_like(values), values), weights

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred

    def _check_shapes(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor) -> None:
        shape = tuple(y_true.shape)
        expected = tuple(y_pred.shape)
        if not (can_be_one(shape, expected[:2]) or can_be_one(shape, expected)):
            raise ValueError(
                "`y_true` must be tag ids (batch, steps), or sets of allowed tags (batch, steps, "
                f"tags). Received: y_true of shape {shape} for y_pred of shape "
                f"{tuple(y_pred.shape)}"
            )
        weights = () if sample_weight is None else tuple(sample_weight.shape)
        if len(weights) > 1 and weights[1:] != (1,):
            raise ValueError(
                "The loss of a CRF has one value a sequence: `sample_weight` must have the shape "
                f"(batch,). A mask hides steps. Received: sample_weight of shape {weights}"
            )


def _is_symbolic() -> bool:
    """Whether Keras infers shapes: before `fit` it calls a loss on placeholders of the outputs."""
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


def _zeros(tags: Tensor) -> Tensor:
    return ops.zeros(ops.shape(tags)[:1])
