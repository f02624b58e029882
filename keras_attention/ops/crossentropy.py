"""Cross-entropy of single targets, with its gradient written out."""

from keras import ops


def smoothed_crossentropy(index, logits, smoothing=0.0):
    """The value of each position, with its gradient written out: softmax minus smoothed labels.

    Left to the backend, the gradients of the gather, the mean and the exponential are so many
    tensors of the logits' size, to be kept and added; here one is made and patched at the targets.

    Args:
        index: int32 `(..., 1)`, the targets.
        logits: float32 `(..., V)`.
        smoothing: The part of the probability that is spread evenly over the vocabulary.

    Returns:
        float32 `(...)`.
    """
    vocabulary = logits.shape[-1]

    @ops.custom_gradient
    def crossentropy(logits):
        # Against the largest logit, so that differences of large logits keep their digits.
        largest = ops.max(logits, axis=-1, keepdims=True)
        shifted = logits - largest
        exponentials = ops.exp(shifted)  # kept for the gradient, in the place of the logits
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        at_target = ops.take_along_axis(shifted, index, axis=-1)
        values = ops.log(total) - (1.0 - smoothing) * at_target
        if smoothing:
            values = values - smoothing * ops.mean(shifted, axis=-1, keepdims=True)

        def gradient(*args, upstream=None):
            upstream = ops.expand_dims(args[0] if upstream is None else upstream, axis=-1)
            slope = exponentials * (upstream / total)
            if smoothing:
                slope = slope - upstream * (smoothing / vocabulary)
            label = 1.0 - smoothing + smoothing / vocabulary
            patch = upstream * (ops.exp(at_target) / total - label)
            rows = ops.reshape(slope, (-1, vocabulary))
            columns = ops.reshape(index, (-1,))
            places = ops.stack([ops.arange(ops.shape(rows)[0], dtype="int32"), columns], axis=-1)
            rows = ops.scatter_update(rows, places, ops.reshape(patch, (-1,)))
            return ops.reshape(rows, ops.shape(logits))

        return ops.squeeze(values, axis=-1), gradient

    return crossentropy(logits)
