"""A mean over the examples of all replicas."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


@keras.saving.register_keras_serializable(package="keras_attention")
class GlobalMean(keras.losses.Loss):
    """Another loss, whose mean is taken over all replicas and not over each by itself.

    Under `tf.distribute` a Keras loss divides by the weight of its own replica's part of the batch,
    which is not the mean of the batch where parts weigh differently. Here replica `r` computes

    `loss_r = Σ_{i in r} w_i l_i / Σ_{all i} w_i`,

    and the shares add up to what one device computes on the whole batch. A sum is passed through.
    Use it with `make_replica_safe`: Keras' own training step would average the shares.

    A loss with a `__call__` of its own takes part by a method
    `total_and_weight(y_true, y_pred, sample_weight)`: its sum, and the weight that it divides by.

    Args:
        loss: A `keras.losses.Loss` whose reduction is a mean or a sum.
        name: Name of the loss. Default: that of `loss`.

    Raises:
        ValueError: If the loss is no `keras.losses.Loss`, or does not reduce.

    Example:

    >>> loss = GlobalMean(keras.losses.MeanSquaredError())
    >>> float(loss(ops.ones((2, 3)), ops.zeros((2, 3))))
    1.0
    """

    def __init__(self, loss: keras.losses.Loss, name: str | None = None) -> None:
        if not isinstance(loss, keras.losses.Loss):
            raise ValueError(
                "`loss` must be a keras.losses.Loss; keras.losses.get makes one of a name. "
                f"Received: loss={loss!r}"
            )
        if loss.reduction not in (*MEANS, "sum"):
            raise ValueError(
                f"`loss` must have one of the reductions {', '.join(MEANS)} and sum. "
                f"Received: reduction={loss.reduction!r}"
            )
        super().__init__(name=name or loss.name, reduction=loss.reduction, dtype=loss.dtype)
        self.loss = loss

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        context = _replica_context()
        if context is None or self.reduction == "sum":
            return self.loss(y_true, y_pred, sample_weight)
        find = getattr(self.loss, "total_and_weight", self._total_and_weight)
        total, weight = find(y_true, y_pred, sample_weight)
        return ops.divide_no_nan(total, context.all_reduce("SUM", weight))

    def _total_and_weight(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple:
        kept = []

        def values(*arguments: Any) -> Any:
            kept.append(self.loss.call(*arguments))
            return kept[-1]

        total = _summed(self.loss, values)(y_true, y_pred, sample_weight)
        # The same loss, had every value been 1: what it counts, masks and weights included.
        counts = sample_weight if self.reduction == "mean_with_sample_weight" else None
        return total, _summed(self.loss, lambda *_: _ones(kept[0]))(y_true, y_pred, counts)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.loss.call(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        return {"loss": keras.saving.serialize_keras_object(self.loss), "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GlobalMean":
        return cls(keras.saving.deserialize_keras_object(config["loss"]), config["name"])


def _summed(loss: keras.losses.Loss, call: Callable) -> keras.losses.Loss:
    """Return `loss` with other values, added up."""
    changed = object.__new__(type(loss))  # copy.copy would save and load it: see its __reduce__
    changed.__dict__.update(loss.__dict__)
    changed.call = call
    changed.reduction = "sum"
    return changed


def _ones(values: Any) -> Any:
    """Return ones with the mask of `values`, by which a loss says what it ignores."""
    ones = ops.ones_like(values)
    mask = getattr(values, "_keras_mask", None)
    if mask is not None:
        ones._keras_mask = mask
    return ones


def _replica_context() -> Any:
    """Return the context of this replica where there are several, else None."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None
