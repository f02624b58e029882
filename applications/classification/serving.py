"""The graph of an exported classifier. Importing this imports TensorFlow."""

import tensorflow as tf

from keras_attention.applications.classification.encoding import INPUTS
from keras_attention.applications.classification.reading import SENTENCE_END
from keras_attention.applications.classification.run import ClassificationRun
from keras_attention.text import PAD_ID


class ClassificationService(tf.Module):
    """A run as a `tf.Module` from strings to labels, which a SavedModel can hold.

    Args:
        run: the run.
    """

    def __init__(self, run: ClassificationRun):
        super().__init__()
        self._tokenizer = run.reader.tokenizer.in_graph()
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._weights = [variable.value for variable in run.model.weights]
        self._score = lambda inputs: run.model(inputs, training=False)
        self._labels = run.labels
        self._names = tf.constant(list(run.labels.names) or [""])
        self._max_length = run.config.data.max_length
        self._in_sentences = run.reader.in_sentences
        self._config = run.config.tokenizer
        names = INPUTS if run.config.data.second_column else INPUTS[:1]
        specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        self.serve = tf.function(self._serve, input_signature=specs, autograph=False)

    def _serve(self, text, second=None):
        """Classify strings `(B,)`; see `export_saved_model` for what is returned."""
        strings = [text] if second is None else [text, second]
        read = [self._read(each) for each in strings]
        scores = self._score({n: ids for n, (ids, _) in zip(INPUTS, read, strict=False)})
        size = tf.shape(text)[0]
        truncated = tf.reduce_any(tf.stack([cut for _, cut in read]), axis=0)
        scores = scores[:size]
        if self._labels.kind == "number":
            numbers = scores[:, 0] * self._labels.scale + self._labels.mean
            return {"numbers": numbers, "truncated": truncated}
        one = self._labels.kind == "one"
        likely = tf.nn.softmax(scores) if one else tf.sigmoid(scores)
        ranked = tf.argsort(likely, axis=1, direction="DESCENDING", stable=True)
        return {
            "labels": tf.gather(self._names, ranked),
            "probabilities": tf.gather(likely, ranked, batch_dims=1),
            "truncated": truncated,
        }

    def _read(self, strings):
        """Return ids of at least one row and column, and which texts were cut."""
        if not self._in_sentences:
            ids = self._tokenizer.encode(strings)
            cut = ids.row_lengths() > self._max_length
            ids = ids[:, : self._max_length].to_tensor(PAD_ID)
        else:
            ids, cut = self._sentences(strings)
        missing = tf.maximum(0, 1 - tf.shape(ids))
        return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1)), cut

    def _sentences(self, strings):
        """Return ids `(B, N, W)`, cut as `Reader` cuts, and which texts were cut."""
        if self._config.sentences == "punctuation":
            strings = tf.strings.regex_replace(strings, *SENTENCE_END)
        lines = tf.strings.split(strings, "\n")
        ids = self._tokenizer.encode(lines.values)
        lengths = lines.with_values(ids.row_lengths())
        before = tf.cumsum(lengths.to_tensor(0), axis=1, exclusive=True)
        before = tf.RaggedTensor.from_tensor(before, lengths=lines.row_lengths()).values
        left = tf.clip_by_value(self._max_length - before, 0, lengths.values)
        words = tf.reduce_sum(lengths, axis=1)
        padded = ids.to_tensor(PAD_ID)
        kept = tf.boolean_mask(padded, tf.sequence_mask(left, tf.shape(padded)[1]))
        return self._chunks(kept, left, lines), words > self._max_length

    def _chunks(self, words, lengths, lines):
        """Return `(B, N, W)`: sentences of `lengths` cut into chunks, empty ones dropped."""
        size = tf.constant(self._config.max_sentence_length, lengths.dtype)
        count = (lengths + size - 1) // size
        sentence = tf.repeat(tf.range(tf.shape(lengths)[0]), count)
        first = tf.repeat(tf.cumsum(count, exclusive=True), count)
        place = tf.range(tf.shape(first, lengths.dtype)[0]) - first
        chunk = tf.minimum(size, tf.gather(lengths, sentence) - place * size)
        rows = tf.RaggedTensor.from_row_lengths(words, chunk)
        per_text = tf.reduce_sum(lines.with_values(count), axis=1)
        return tf.RaggedTensor.from_row_lengths(rows, per_text).to_tensor(PAD_ID)
