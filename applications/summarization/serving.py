"""The graph of an exported summariser. Importing this imports TensorFlow."""

import tensorflow as tf

from keras_attention.applications.summarization.run import SummarizationRun
from keras_attention.applications.summarization.summarizer import search
from keras_attention.text import END_ID, PAD_ID, UNK_ID


class SummarizationService(tf.Module):
    """A run as a `tf.Module` from documents to summaries, which a SavedModel can hold.

    Args:
        run: the run.
    """

    def __init__(self, run: SummarizationRun):
        super().__init__()
        config = run.config
        self._tokenizer = run.encoder.tokenizer.in_graph()
        self._vocabulary = tf.constant(run.encoder.tokenizer.vocabulary)
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._weights = [variable.value for variable in run.model.weights]
        self._data = config.data
        self._extra_words = run.encoder.extra_words
        self._is_hierarchical = run.model.is_hierarchical
        model = run.model
        self._search = lambda source: search(model, source, config.decoding, attention=False)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def serve(self, text):
        """Summarise documents `(B,)`; see `export_saved_model` for what is returned."""
        # One document more, of nothing: an empty batch has a shape too.
        ids, unknown = tf.map_fn(
            self._document,
            tf.concat([text, [""]], axis=0),
            fn_output_signature=(
                tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1),
                tf.TensorSpec([self._extra_words], tf.string),
            ),
        )
        source = ids.to_tensor(PAD_ID)
        source = tf.pad(source, [[0, 0], [0, 1], [0, 1]])[:, : tf.maximum(tf.shape(source)[1], 1)]
        source = source[:, :, : tf.maximum(tf.shape(source)[2] - 1, 1)]
        tokens, lengths, scores, _ = self._search(source)
        is_empty = tf.reduce_all(source == PAD_ID, axis=[1, 2])
        found = tokens[:, 0]
        kept = tf.sequence_mask(lengths[:, 0], tf.shape(found)[1]) & (found != END_ID)
        kept &= ~is_empty[:, None]
        words = tf.concat(
            [tf.tile(self._vocabulary[None], [tf.shape(found)[0], 1]), unknown], axis=1
        )
        written = tf.gather(words, tf.where(kept, found, PAD_ID), batch_dims=1)
        summary = self._tokenizer.join(tf.ragged.boolean_mask(written, kept))
        scores = tf.where(is_empty, 0.0, scores[:, 0])
        return {"summary": summary[:-1], "scores": scores[:-1]}

    def _document(self, text):
        """Return the ids of a document by sentence, and its unknown words in their order."""
        lines = tf.strings.split(text, "\n")
        words, ids = self._tokenizer.tokens(lines), self._tokenizer.encode(lines)
        has_words = words.row_lengths() > 0
        words = tf.ragged.boolean_mask(words, has_words)[: self._data.max_sentences]
        ids = tf.ragged.boolean_mask(ids, has_words)[: self._data.max_sentences]
        room = self._data.max_words
        rows, words, ids = words.value_rowids()[:room], words.values[:room], ids.values[:room]
        places = tf.where(ids == UNK_ID)
        unknown, numbers = tf.unique(tf.gather_nd(words, places))
        numbered = tf.where(
            numbers < self._extra_words, numbers + tf.size(self._vocabulary), UNK_ID
        )
        ids = tf.tensor_scatter_nd_update(ids, places, numbered)
        if not self._is_hierarchical:
            rows = tf.zeros_like(rows)
        unknown = unknown[: self._extra_words]
        missing = self._extra_words - tf.size(unknown)
        unknown = tf.concat([unknown, tf.fill([missing], self._vocabulary[UNK_ID])], axis=0)
        unknown = tf.ensure_shape(unknown, [self._extra_words])
        return tf.RaggedTensor.from_value_rowids(ids, rows), unknown
