"""Weights over the words of a document, joined from those of its words and of its sentences."""

from keras import ops

from keras_attention.ops.masks import combine_masks
from keras_attention.ops.normalizers import masked_softmax

# Below it a weight counts as this much where words and sentences agree on no place at all.
SMALLEST = 1e-30


def reweight(word_weights, sentence_weights, mask=None):
    """`P(j) = P_w(j) P_s(s(j)) / sum_k P_w(k) P_s(s(k))` over all words of a document.

    The product is taken by logarithms in float32, so that two small factors do not vanish. A
    word whose weight or whose sentence's weight is 0 gets 0. Where that leaves no word of a row
    (the two put all of their mass, to the last digit of float32, on different sentences), the zeros
    count as a tiny weight, and the row still sums to 1. A row in which words or sentences have no
    weight anywhere gets zeros.

    Args:
        word_weights: `P_w`, `(B, T, N, W)`.
        sentence_weights: `P_s`, `(B, T, N)`.
        mask: Boolean that broadcasts to `(B, T, N, W)`, True = attend, or `None`.

    Returns:
        Weights `(B, T, N, W)` in the dtype of `word_weights`.
    """
    dtype = word_weights.dtype
    words = ops.cast(word_weights, "float32")
    sentences = ops.expand_dims(ops.cast(sentence_weights, "float32"), 3)
    both = ops.logical_and(words > 0, sentences > 0)
    agree = ops.any(both, axis=(2, 3), keepdims=True)
    read = ops.logical_and(
        ops.any(words > 0, axis=(2, 3), keepdims=True),
        ops.any(sentences > 0, axis=(2, 3), keepdims=True),
    )
    allowed = combine_masks(ops.where(agree, both, read), mask)
    logits = ops.log(ops.maximum(words, SMALLEST)) + ops.log(ops.maximum(sentences, SMALLEST))
    count, width = ops.shape(words)[2:]
    flat = (*ops.shape(words)[:2], count * width)
    weights = masked_softmax(ops.reshape(logits, flat), ops.reshape(allowed, flat))
    return ops.cast(ops.reshape(weights, ops.shape(words)), dtype)
