"""The graph of an exported answer selector. Importing this imports TensorFlow."""

import tensorflow as tf

from keras_attention.applications.answer_selection.run import AnswerSelectionRun


class AnswerSelectionService(tf.Module):
    """A run as a `tf.Module` from strings to scores, which a SavedModel can hold.

    Args:
        run: the run.
    """

    def __init__(self, run: AnswerSelectionRun):
        super().__init__()
        self._words = run.words
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._weights = [variable.value for variable in run.model.weights]
        model = run.model
        self._score = lambda inputs: model.score(inputs, training=False)[0]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="question"),
            tf.TensorSpec([None, None], tf.string, name="candidates"),
        ],
        autograph=False,
    )
    def serve(self, question, candidates):
        """Score candidates `(B, N)` of questions `(B,)`; see `export_saved_model`."""
        shape = tf.shape(candidates)
        ids = self._words.in_graph(tf.reshape(candidates, [-1]))
        inputs = {
            "question": _padded(self._words.in_graph(question)),
            "candidates": tf.reshape(_padded(ids), [shape[0], shape[1], -1]),
        }
        empty = tf.reshape(ids.row_lengths() == 0, shape)
        return {"scores": tf.where(empty, float("-inf"), self._score(inputs))}


def _padded(ids: tf.RaggedTensor) -> tf.Tensor:
    """Return ids (B, T) with at least one column."""
    dense = ids.to_tensor(0)
    return tf.pad(dense, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(dense)[1])]])
