"""The graph of an exported translator. Importing this imports TensorFlow."""

from typing import TYPE_CHECKING

import tensorflow as tf

from keras_attention.decoding import SearchOptions

from ..base.backend import of_at_most, seeds_in_graph, service_of
from ..text import END_ID, PAD_ID, UNK_ID
from .search import search

if TYPE_CHECKING:
    from .task import Translator

_NO_WORD = "\0"
"""The answer of the dictionary for a word that it lacks."""


def service(translator: "Translator", options: SearchOptions, max_letters: int) -> tf.Module:
    """Return a translator as a `tf.Module` from strings to strings, which a SavedModel can hold.

    The signature `serving_default` takes `text`, `(B,)` strings, and gives what
    `Translator.translate` gives:

    - `text` `(B,)` strings, `scores` and `log_probabilities` `(B,)`;
    - `tokens` `(B, T)`, the written tokens, and `source_tokens` `(B, S)`, both padded with `""`;
    - `token_log_probabilities` `(B, T + 1)`, of each token and of the end, padded with 0;
    - `alignments` `(B, T, S)`, a row of attention weights for each token, zeros after the last;
      absent where the network has no attention.

    A text of more than `max_letters` letters (10,000) is an `InvalidArgumentError`, which says so.

    With `n_best` above 1, all but `source_tokens` have the translations of a line as their second
    axis, best first; where there are fewer, the rest are empty with a score of minus infinity.

    Args:
        translator: the task.
        options: how to search.
        max_letters: the longest text of a call, in letters.
    """
    model, preprocessor = translator.backbone, translator.preprocessor
    source, target = map(preprocessor.in_graph, ("source_tokenizer", "target_tokenizer"))
    vocabulary = tf.constant(preprocessor.target_tokenizer.vocabulary)
    replaces = preprocessor.replace_unknown and model.has_attention
    parts = [source, target]
    if pairs := translator.dictionary:
        pairs = tf.lookup.KeyValueTensorInitializer(list(pairs), list(pairs.values()))
        parts.append(dictionary := tf.lookup.StaticHashTable(pairs, default_value=_NO_WORD))

    def tokens_of(ids, source_tokens, alignments):
        tokens = tf.gather(vocabulary, ids)
        if not replaces:
            return tokens
        # One more column, so that there is a place to read where all lines are empty.
        weights = tf.pad(alignments, [[0, 0]] * 3 + [[0, 1]])
        places = tf.argmax(weights, axis=-1)
        words = tf.gather(tf.pad(source_tokens, [[0, 0], [0, 1]]), places, batch_dims=1)
        if translator.dictionary:
            translated = dictionary.lookup(words)
            words = tf.where(translated == _NO_WORD, words, translated)
        attends = tf.reduce_max(weights, axis=-1) > 0
        return tf.where((ids == UNK_ID) & attends, words, tokens)

    def text_of(ids, tokens, kept):
        shape = tf.shape(ids)
        rows = [shape[0] * shape[1], shape[2]]
        if replaces:
            kept = tf.reshape(kept, rows)
            text = target.join(tf.ragged.boolean_mask(tf.reshape(tokens, rows), kept))
        else:
            text = target.decode(tf.reshape(ids, rows))
        return tf.reshape(text, shape[:2])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def serve(text):
        (text,) = of_at_most(max_letters, text=text)
        ids = source.encode(text)
        empty = ids.row_lengths() == 0
        source_tokens = source.tokens(text).to_tensor("")
        size, length = tf.shape(source_tokens)[0], tf.shape(source_tokens)[1]
        # The search needs a row and a column, which no texts, or empty ones, do not give.
        missing = [[0, tf.maximum(0, 1 - size)], [0, tf.maximum(0, 1 - length)]]
        words = tf.pad(ids.to_tensor(PAD_ID), missing)
        found = search(model, words, options, seeds_in_graph(options, words))
        kept = tf.sequence_mask(found.lengths[:size], tf.shape(found.tokens)[2])
        kept &= (found.tokens[:size] != END_ID) & ~empty[:, None, None]
        longest = tf.reduce_max(tf.reduce_sum(tf.cast(kept, tf.int32), axis=-1))
        longest = tf.maximum(longest, 0)
        kept = kept[..., :longest]
        ids = tf.where(kept, found.tokens[:size, :, :longest], PAD_ID)
        alignments = None
        if found.attention is not None:
            alignments = tf.cast(found.attention, tf.float32)[:size, :, :longest, :length]
            alignments = tf.where(kept[..., None], alignments, 0.0)
        tokens = tokens_of(ids, source_tokens, alignments)
        results = {
            "text": text_of(ids, tokens, kept),
            "tokens": tf.where(kept, tokens, ""),
            "scores": _scores(found.scores[:size], empty),
            "log_probabilities": _scores(found.log_probabilities[:size], empty),
        }
        terms = found.token_log_probabilities[:size, :, : longest + 1]  # and of the end
        results["token_log_probabilities"] = tf.where(empty[:, None, None], 0.0, terms)
        if alignments is not None:
            results["alignments"] = alignments
        if options.n_best == 1:
            results = {name: tensor[:, 0] for name, tensor in results.items()}
        return {**results, "source_tokens": source_tokens}

    return service_of(serve, model, *parts)


def _scores(scores, empty):
    """Return scores `(B, N)`: of an empty line 0 for its one, empty, translation."""
    first = tf.range(tf.shape(scores)[1]) == 0
    nothing = tf.where(first, 0.0, float("-inf"))
    return tf.where(empty[:, None], nothing, scores)
