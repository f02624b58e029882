"""A classifier inside a graph: strings to ids, and strings to labels. This imports TensorFlow."""

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_text

from ..base.backend import of_at_most, service_of
from ..text import PAD_ID
from ..text.sentences import SENTENCE_END
from .networks.encoders import SIDES

if TYPE_CHECKING:
    from .preprocessor import ClassificationPreprocessor, Labels


def read(preprocessor: "ClassificationPreprocessor", strings: tf.Tensor) -> tuple[Any, Any]:
    """Return the ids of strings, of at least one row and column, and which texts were cut."""
    tokenizer, longest = preprocessor.in_graph("tokenizer"), preprocessor.max_length
    if preprocessor.sentences is None:
        words = tokenizer.encode(strings)
        ids = words[:, :longest]
    else:
        if preprocessor.sentences == "punctuation":
            strings = tf.strings.regex_replace(strings, *SENTENCE_END)
        lines = tf.strings.split(strings, "\n")
        of_lines = tokenizer.encode(lines.values)
        in_line = tf.ragged.range(of_lines.row_lengths())
        words, place = (lines.with_values(each).merge_dims(1, 2) for each in (of_lines, in_line))
        kept, place = words[:, :longest], place[:, :longest]
        # A sentence begins with its line, and again where it would be too long.
        begins = tf.cast(place % preprocessor.max_sentence_length == 0, tf.int64)
        sentences = tf.RaggedTensor.from_value_rowids(kept.values, tf.cumsum(begins.values) - 1)
        ids = tf.RaggedTensor.from_row_lengths(sentences, tf.reduce_sum(begins, axis=1))
    ids = ids.to_tensor(PAD_ID)
    missing = tf.maximum(0, 1 - tf.shape(ids))
    ids = tf.pad(ids, tf.stack([tf.zeros_like(missing), missing], axis=1))
    return ids, words.row_lengths() > longest


def targets(known: "Labels", labels: Any) -> tf.Tensor:
    """Return targets `(B, outputs)` of labels `(B,)`; of many, ragged or padded with ""."""
    if known.kind == "number":
        numbers = tf.debugging.check_numerics(tf.cast(labels, tf.float32), "a label")
        return ((numbers - known.mean) / known.scale)[:, None]
    names = tf.constant(list(map(str, known.names)))
    if labels.dtype == tf.bool:  # 0 and 1, as in Python
        labels = tf.cast(labels, tf.int32)
    if labels.dtype != tf.string:
        labels = tf.strings.as_string(labels)
    labels = tensorflow_text.normalize_utf8(labels, "NFC")
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_tensor("")
    several = labels if known.kind == "many" else labels[:, None]
    is_name = several[:, :, None] == names
    known_all = tf.reduce_all(tf.reduce_any(is_name, axis=2) | (several == ""))
    check = tf.debugging.Assert(known_all, ["a label is not among", names, labels])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.cast(tf.reduce_any(is_name, axis=1), tf.float32)


def service(task: Any, max_letters: int | None = None) -> tf.Module:
    """Return a classifier as a `tf.Module` from strings to labels, which a SavedModel can hold.

    The signature `serving_default` takes `text` `(B,)` strings, and for pairs `second`. It gives
    what `classify` gives:

    - `label` `(B,)`, the likeliest label, `labels` `(B, L)`, the names of all of them, the
      likeliest first, and `probabilities` `(B, L)` in the same order; of many labels `chosen`
      `(B, L)` too, whether a text has each, as its threshold says; or `numbers` `(B,)`;
    - `truncated` `(B,)`, whether a text was longer than `max_length` and was cut;
    - `tokens`, the tokens as the vocabulary has them, padded with `""`, and `weights` of the same
      shape, what the network attended to: `(B, S)`, or in sentences `(B, N, W)`, with
      `sentence_weights` `(B, N)`; for pairs `second_tokens` and `second_weights` too. Absent where
      the network has no attention.

    Args:
        task: the task.
        max_letters: the longest text of a call, as of `export`.
    """
    network, preprocessor = task.backbone, task.preprocessor
    sides, thresholds = SIDES[: 1 + preprocessor.pairs], [*task.thresholds.values()]
    signature = [tf.TensorSpec([None], tf.string, name=side) for side in sides]

    @tf.function(input_signature=signature, autograph=False)
    def serve(text, second=None):
        size, given = tf.shape(text)[0], dict(zip(sides, (text, second), strict=False))
        strings = of_at_most(max_letters or task.served_letters, **given)
        ids, cut = zip(*(read(preprocessor, each) for each in strings), strict=True)
        scores, weights = network.attend(dict(zip(sides, ids, strict=True)), training=False)
        results = _answer(scores[:size], preprocessor.labels, thresholds)
        results["truncated"] = tf.reduce_any(tf.stack(cut), axis=0)
        if not network.has_attention:
            return results
        vocabulary = tf.constant(["", *preprocessor.tokenizer.vocabulary[1:]])
        names = {"weights": "words", "second_weights": "second", "sentence_weights": "sentences"}
        for name, own in names.items():
            if own in weights:
                results[name] = tf.cast(weights[own], tf.float32)[:size]
        for prefix, own in zip(("", "second_"), ids, strict=False):
            results[f"{prefix}tokens"] = tf.gather(vocabulary, own[:size])
        return results

    return service_of(serve, network, preprocessor.in_graph("tokenizer"))


def _answer(scores: tf.Tensor, labels: "Labels", thresholds: list[float]) -> dict[str, tf.Tensor]:
    if labels.kind == "number":
        return {"numbers": scores[:, 0] * labels.scale + labels.mean}
    # In float64, as `probabilities` does it: in float32 near labels tie, and others are chosen.
    scores = tf.cast(scores, tf.float64)
    likely = tf.nn.softmax(scores) if labels.kind == "one" else tf.sigmoid(scores)
    ranked = tf.argsort(likely, axis=1, direction="DESCENDING", stable=True)
    names = tf.gather(tf.constant(list(map(str, labels.names))), ranked)
    probabilities = tf.gather(likely, ranked, batch_dims=1)
    answer = {"label": names[:, 0], "labels": names}
    answer["probabilities"] = tf.cast(probabilities, tf.float32)
    if labels.kind == "many":
        answer["chosen"] = probabilities >= tf.gather(tf.constant(thresholds, tf.float64), ranked)
    return answer
