"""The graph of an exported answer ranker. Importing this imports TensorFlow."""

import tensorflow as tf

from keras_attention.applications.answer_selection.ranker import AnswerRanker


class AnswerSelectionService(tf.Module):
    """A ranker as a `tf.Module` from strings to scores, which a SavedModel can hold.

    It needs `tensorflow` alone; not Keras, not this package. The signature `serving_default` takes
    `question`, `(B,)` strings, and `candidates`, `(B, N)` strings, those of a question with fewer
    padded with `""`. It gives `scores`, `(B, N)`: a candidate without words gets minus infinity.

    Args:
        ranker: the task.
    """

    def __init__(self, ranker: AnswerRanker):
        super().__init__()
        model, preprocessor = ranker.backbone, ranker.preprocessor
        self._words = preprocessor.in_graph("tokenizer")
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._weights = [variable.value for variable in model.weights]
        self._encode = preprocessor.call
        self._score = lambda inputs: model.score(inputs, training=False)[0]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="question"),
            tf.TensorSpec([None, None], tf.string, name="candidates"),
        ],
        autograph=False,
    )
    def serve(self, question, candidates):
        """Score candidates `(B, N)` of questions `(B,)`."""
        inputs = self._encode({"question": question, "candidates": candidates})
        empty = ~tf.reduce_any(inputs["candidates"] != 0, axis=-1)
        scores = tf.cast(self._score(inputs), tf.float32)
        return {"scores": tf.where(empty, float("-inf"), scores)}
