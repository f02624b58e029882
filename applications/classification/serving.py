"""The graphs of a classifier: strings to ids, and strings to labels. This imports TensorFlow."""

from typing import Any

import tensorflow as tf

from keras_attention.text import PAD_ID

from ..common.backend import of_at_most
from .classifier import ClassificationTask
from .encoders import SIDES
from .preprocessor import SENTENCE_END, ClassificationPreprocessor


class GraphReader(tf.Module):
    """A `ClassificationPreprocessor` inside a graph."""

    def __init__(self, preprocessor: ClassificationPreprocessor):
        super().__init__()
        self._tokenizer = preprocessor.tokenizer.in_graph()
        self._labels = preprocessor.labels
        self._max_length = preprocessor.max_length
        self._sentences = preprocessor.sentences
        self._size = preprocessor.max_sentence_length

    def read(self, strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ids of at least one row and column, and which texts were cut."""
        if self._sentences is None:
            ids = self._tokenizer.encode(strings)
            cut = ids.row_lengths() > self._max_length
            ids = ids[:, : self._max_length].to_tensor(PAD_ID)
        else:
            ids, cut = self._in_sentences(strings)
        missing = tf.maximum(0, 1 - tf.shape(ids))
        return tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1)), cut

    def targets(self, labels: Any) -> tf.Tensor:
        """Return targets `(B, outputs)` of labels `(B,)`; of many, ragged or padded with ""."""
        known = self._labels
        if known.kind == "number":
            return ((tf.cast(labels, tf.float32) - known.mean) / known.scale)[:, None]
        names = tf.constant(list(map(str, known.names)))
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.to_tensor()
        if labels.dtype != tf.string:
            labels = tf.strings.as_string(labels)
        several = labels if known.kind == "many" else labels[:, None]
        is_name = several[:, :, None] == names
        known_all = tf.reduce_all(tf.reduce_any(is_name, axis=2) | (several == ""))
        check = tf.debugging.Assert(known_all, ["a label is not among", names, labels])
        with tf.control_dependencies([check] if check is not None else []):
            return tf.cast(tf.reduce_any(is_name, axis=1), tf.float32)

    def _in_sentences(self, strings):
        """Return ids `(B, N, W)`, cut as in Python, and which texts were cut."""
        if self._sentences == "punctuation":
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
        size = tf.constant(self._size, lengths.dtype)
        count = (lengths + size - 1) // size
        sentence = tf.repeat(tf.range(tf.shape(lengths)[0]), count)
        first = tf.repeat(tf.cumsum(count, exclusive=True), count)
        place = tf.range(tf.shape(first, lengths.dtype)[0]) - first
        chunk = tf.minimum(size, tf.gather(lengths, sentence) - place * size)
        rows = tf.RaggedTensor.from_row_lengths(words, chunk)
        per_text = tf.reduce_sum(lines.with_values(count), axis=1)
        return tf.RaggedTensor.from_row_lengths(rows, per_text).to_tensor(PAD_ID)


class ClassificationService(tf.Module):
    """A classifier as a `tf.Module` from strings to labels, which a SavedModel can hold.

    The signature `serving_default` takes `text` `(B,)` strings, and for pairs `second`. It gives
    what `classify` gives:

    - `label` `(B,)`, the likeliest label, `labels` `(B, L)`, the names of all of them, the
      likeliest first, and `probabilities` `(B, L)` in the same order; or `numbers` `(B,)`;
    - `truncated` `(B,)`, whether a text was longer than `max_length` and was cut;
    - `tokens`, the tokens as the vocabulary has them, padded with `""`, and `weights` of the same
      shape, what the network attended to: `(B, S)`, or in sentences `(B, N, W)`, with
      `sentence_weights` `(B, N)`; for pairs `second_tokens` and `second_weights` too. Absent where
      the network has no attention.

    A text of more than `max_letters` letters (100,000) is an `InvalidArgumentError`, which says so.

    Args:
        task: the task.
        max_letters: the longest text of a call, in letters; None for the task's default.
    """

    def __init__(self, task: ClassificationTask, max_letters: int | None = None):
        super().__init__()
        network, preprocessor = task.backbone, task.preprocessor
        self._reader = GraphReader(preprocessor)
        # The variables alone: the Keras model around them does not belong in the SavedModel.
        self._variables = [variable.value for variable in network.weights]
        self._attend = lambda inputs: network.attend(inputs, training=False)
        self._labels = preprocessor.labels
        self._names = tf.constant(list(map(str, preprocessor.labels.names)) or [""])
        self._vocabulary = tf.constant(["", *preprocessor.tokenizer.vocabulary[1:]])
        self._has_attention = network.has_attention
        self._max_letters = max_letters or task.served_letters
        names = SIDES[: 1 + preprocessor.pairs]
        specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        self.serve = tf.function(self._serve, input_signature=specs, autograph=False)

    def _serve(self, text, second=None):
        """Classify strings `(B,)`; see the class for what is returned."""
        columns = {"text": text} if second is None else {"text": text, "second": second}
        strings = of_at_most(self._max_letters, **columns)
        read = [self._reader.read(each) for each in strings]
        inputs = {name: ids for name, (ids, _) in zip(SIDES, read, strict=False)}
        scores, weights = self._attend(inputs)
        size = tf.shape(text)[0]
        truncated = tf.reduce_any(tf.stack([cut for _, cut in read]), axis=0)
        results = {**self._answer(scores[:size]), "truncated": truncated}
        if not self._has_attention:
            return results
        for ids, prefix, name in zip(
            inputs.values(), ("", "second_"), ("words", "second"), strict=False
        ):
            results[f"{prefix}tokens"] = tf.gather(self._vocabulary, ids[:size])
            results[f"{prefix}weights"] = tf.cast(weights[name], tf.float32)[:size]
        if "sentences" in weights:
            results["sentence_weights"] = tf.cast(weights["sentences"], tf.float32)[:size]
        return results

    def _answer(self, scores):
        if self._labels.kind == "number":
            return {"numbers": scores[:, 0] * self._labels.scale + self._labels.mean}
        one = self._labels.kind == "one"
        likely = tf.nn.softmax(scores) if one else tf.sigmoid(scores)
        ranked = tf.argsort(likely, axis=1, direction="DESCENDING", stable=True)
        labels = tf.gather(self._names, ranked)
        probabilities = tf.gather(likely, ranked, batch_dims=1)
        return {"label": labels[:, 0], "labels": labels, "probabilities": probabilities}
