"""The graph of an exported summariser. Importing this imports TensorFlow."""

import tensorflow as tf

from keras_attention.applications.summarization.model import search
from keras_attention.applications.summarization.summarizer import Summarizer
from keras_attention.decoding import SearchOptions
from keras_attention.text import END_ID, PAD_ID


class SummarizationService(tf.Module):
    """A summariser as a `tf.Module` from documents to summaries, which a SavedModel can hold.

    The signature `serving_default` takes `text`, `(B,)` strings, each a document with a sentence on
    each line (finding the sentences of a running text is no operation of a graph; a network that
    does not read sentences does not ask where they end). It gives what `Summarizer.summarize`
    gives: `summary` `(B,)` and `scores` `(B,)`, those of the best where several are searched for.

    Args:
        summarizer: the task.
        options: how to search.
    """

    def __init__(self, summarizer: Summarizer, options: SearchOptions):
        super().__init__()
        model, preprocessor = summarizer.backbone, summarizer.preprocessor
        self._tokenizer = preprocessor.in_graph("tokenizer")
        self._vocabulary = tf.constant(preprocessor.tokenizer.vocabulary)
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._weights = [variable.value for variable in model.weights]
        self._ids = preprocessor.ids_in_graph
        self._search = lambda source: search(model, source, options, attention=False)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def serve(self, text):
        """Summarise documents `(B,)`; see the class for what is returned."""
        # One document more, of nothing: an empty batch has a shape too.
        source, _, _, unknown = self._ids(tf.concat([text, [""]], axis=0))
        result = self._search(source)
        is_empty = tf.reduce_all(source == PAD_ID, axis=[1, 2])
        found = result.tokens[:, 0]
        kept = tf.sequence_mask(result.lengths[:, 0], tf.shape(found)[1]) & (found != END_ID)
        kept &= ~is_empty[:, None]
        words = tf.tile(self._vocabulary[None], [tf.shape(found)[0], 1])
        words = tf.concat([words, unknown], axis=1)
        written = tf.gather(words, tf.where(kept, found, PAD_ID), batch_dims=1)
        summary = self._tokenizer.join(tf.ragged.boolean_mask(written, kept))
        scores = tf.where(is_empty, 0.0, result.scores[:, 0])
        return {"summary": summary[:-1], "scores": scores[:-1]}
