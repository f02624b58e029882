"""Cross-entropy of tokens from what a model's last matrix is multiplied with."""

from keras import ops

from keras_attention.losses.crossentropy import check_smoothing
from keras_attention.ops.crossentropy import linear_crossentropy
from keras_attention.ops.tokens import check_token_shapes, real_tokens, token_weights


def masked_linear_crossentropy(
    target, features, kernel, bias, label_smoothing=0.0, ignore_index=0, sample_weight=None
):
    """Mean cross-entropy of the real tokens, whose logits never exist as a whole.

    With the logits `z = x W + b`, the value is that of
    [`MaskedSparseCategoricalCrossentropy`][keras_attention.losses.MaskedSparseCategoricalCrossentropy]
    on them, for training: logits and their gradient, a model's largest tensors where the vocabulary
    is large, are computed for a part of the tokens at a time, the gradient together with the value.
    No product is computed twice, but without a backward pass two of three are for nothing. Of
    features in half precision the products are computed in it, and everything else in float32.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        features: `x`, of shape `(..., D)`.
        kernel: `W`, of shape `(D, V)`; of tied embeddings, their transposed table.
        bias: `b`, of shape `(V,)`.
        label_smoothing: Float in `[0, 1)`, the part of the probability that is spread evenly over
            the whole vocabulary.
        ignore_index: Integer id whose positions cost nothing (the padding), or `None` to count
            every position. It may lie outside the vocabulary, as -1 does.
        sample_weight: Optional weights, of shape `(B,)`, `(B, 1)` or `(B, T)`; no gradient goes to
            them.

    Returns:
        A float32 scalar: the weighted sum divided by the sum of the weights, or 0 where that is 0.

    Raises:
        ValueError: If the smoothing lies outside `[0, 1)`, or the shapes do not fit each other.

    Example:

    ```python
    import numpy as np
    from keras_attention.losses import masked_linear_crossentropy

    features = np.ones((1, 3, 2), "float32")
    kernel, bias = np.zeros((2, 4), "float32"), np.zeros(4, "float32")
    target = np.array([[2, 3, 0]])  # the last one is padding
    loss = masked_linear_crossentropy(target, features, kernel, bias)
    assert abs(float(loss) - np.log(4)) < 1e-6
    ```
    """
    check_smoothing(label_smoothing)
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
