"""The tokenizer of a backbone inside a graph. Importing this imports TensorFlow."""

import tensorflow as tf


class TokenizerGraph(tf.Module):
    """The tokenizer of a backbone as a `tf.Module`, which a SavedModel can hold.

    Args:
        tokenizer: a tokenizer of `keras_nlp`.
        offset: what is added to its ids.
    """

    def __init__(self, tokenizer, offset: int):
        super().__init__()
        self._tokenizer = tokenizer
        self._offset = offset

    def encode(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of strings `(B,)`, ragged `(B, None)` int32."""
        return tf.cast(self._tokenizer(strings), tf.int32) + self._offset
