"""What losses and metrics over padded token ids have in common."""

from keras import ops


def real_tokens(target, ignore_index):
    """Boolean tensor of the shape of `target`: True for the tokens that are not padding.

    Args:
        target: Integer token ids.
        ignore_index: The id of the padding, or `None` where every position counts.
    """
    if ignore_index is None:
        return ops.ones_like(target, dtype="bool")
    return ops.not_equal(target, ignore_index)


def token_weights(target, ignore_index=0, sample_weight=None):
    """What each token counts in a mean over padded sequences: 0 for padding, else 1 or its weight.

    The losses here divide by the sum of these; a loss of one's own that does so counts as they do.

    Args:
        target: Integer token ids, of shape `(...)`, commonly `(B, T)`.
        ignore_index: The id of the padding, or `None` where every position counts.
        sample_weight: Optional weights, of shape `(B,)`, `(B, 1)` or `(B, T)`.

    Returns:
        Float32 weights of the shape of `target`.

    Raises:
        ValueError: If the sample weights have more axes than the target.

    Example:

    ```python
    import numpy as np
    from keras import ops
    from keras_attention.losses import token_weights

    target = np.array([[5, 7, 0], [6, 0, 0]])
    weights = ops.convert_to_numpy(token_weights(target, sample_weight=[1.0, 0.5]))
    assert weights.tolist() == [[1, 1, 0], [0.5, 0, 0]]
    ```
    """
    target = ops.convert_to_tensor(target)
    real = ops.cast(real_tokens(target, ignore_index), "float32")
    if sample_weight is None:
        return real
    weights = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    if len(weights.shape) > len(target.shape):
        raise ValueError(
            "`sample_weight` must have a weight for each example or for each target token. "
            f"Received: sample_weight of shape {tuple(weights.shape)} for targets of shape "
            f"{tuple(target.shape)}."
        )
    while len(weights.shape) < len(target.shape):
        weights = ops.expand_dims(weights, axis=-1)
    return real * weights


def check_token_shapes(target, logits, name="logits"):
    """Raise a ValueError unless `logits`, `(..., V)`, belong to target ids `(...)`."""
    expected, received = tuple(logits.shape[:-1]), tuple(target.shape)
    fits = len(expected) == len(received) and all(
        a == b or a is None or b is None for a, b in zip(expected, received, strict=True)
    )
    if not fits:
        raise ValueError(
            f"The {name} must have the shape of the target ids and one last axis more. "
            f"Received: target of shape {received} and {name} of shape {tuple(logits.shape)}."
        )
