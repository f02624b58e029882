"""Scores of labels by a linear model of words and pairs of words, which join those of a network."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..errors import check_choice
from ..text import END_ID, PAD_ID
from .networks.layers import PACKAGE, Part

KINDS = ("naive_bayes", "nb_svm")
ROWS = 1 << 20
"""How many rows the pairs of words share."""
FACTOR = 2039
"""Spreads pairs over rows; a prime, and `ROWS * FACTOR` is below 2**31."""


@keras.saving.register_keras_serializable(PACKAGE)
class LinearScores(Part):
    """Scores labels by the words of a text and by its pairs of neighbours, without a network.

    Label `l` gets `s_l = b_l + weight / sqrt(n) * sum_g r_l(g) w_l(g)`, summed over the `n` words
    and the pairs of a text. The log-count ratio is `r_l(g) = log((p(g) / |p|) / (q(g) / |q|))`,
    with `p(g)` one more than the training texts of the label that have `g`, and `q(g)` one more
    than the others that have it; it is 0 where no training text has `g`. For naive Bayes `w = 1`
    and `b = 0`. For NB-SVM a linear support vector machine over `r_l(g) / sqrt(n)` learns both.
    The root keeps the scores of long texts near those of a network.

    `count` sets the scores from training texts; gradients do not change them. Pairs share rows by a
    hash, 4 MB for each label.

    Args:
        vocabulary_size: how many ids there are, padding included.
        outputs: how many labels there are.
        kind: `"naive_bayes"`, better for sentences, or `"nb_svm"`, better for long texts.
        weight: of the scores beside those of a network.
        **kwargs: arguments of every Keras layer; it computes in float32.

    Call arguments:
        ids: `(B, S)`, or in sentences `(B, N, W)`; 0 is padding.

    Returns:
        The scores `(B, outputs)`.

    Reference:
        Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic
        classification", section 2; Mesnil et al. 2015, "Ensemble of generative and discriminative
        techniques for sentiment analysis of movie reviews", which adds NB-SVM to a recurrent
        network.
    """

    def __init__(
        self,
        vocabulary_size: int,
        outputs: int,
        kind: str = "naive_bayes",
        weight: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**{**kwargs, "dtype": "float32"})
        check_choice("kind", kind, KINDS)
        self.keep(vocabulary_size=vocabulary_size, outputs=outputs, kind=kind, weight=weight)

        def constant(name, *shape):
            return self.add_weight(shape=shape, initializer="zeros", trainable=False, name=name)

        self.words = constant("words", vocabulary_size, outputs)
        self.pairs = constant("pairs", ROWS, outputs)
        self.bias = constant("bias", outputs)

    def call(self, ids):
        axes = list(range(1, len(ids.shape)))
        before = ops.pad(ids, [[0, 0]] * len(axes) + [[1, 0]])[..., :-1]
        found = ops.take(self.words, ids, axis=0)
        found += ops.take(self.pairs, rows_of(before, ids), axis=0)
        is_word = ops.cast(ops.not_equal(ids, PAD_ID), "float32")
        total = ops.sum(found * ops.expand_dims(is_word, -1), axis=axes)
        length = ops.maximum(ops.sum(is_word, axis=axes), 1.0)
        return self.weight * (self.bias + total * ops.expand_dims(ops.rsqrt(length), 1))

    def count(
        self,
        texts: Iterable[Sequence[int]],
        targets: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        """Set the scores from training texts.

        Args:
            texts: the ids of each text, with `END_ID` between sentences.
            targets: `(texts, outputs)`, 1 where a text has a label.
            weights: how often each text counts; once by default.
        """
        from scipy import sparse

        rows = list(map(self._grams, texts))
        shape = len(rows), self.vocabulary_size + ROWS
        ends = np.cumsum([0, *map(len, rows)], dtype="int32")
        counts = np.ones(ends[-1]), np.concatenate(rows, dtype="int32"), ends
        counts = sparse.csr_array(counts, shape=shape)
        counts.sum_duplicates()
        has = (counts > 0).astype("float64")
        weights = np.ones(len(rows)) if weights is None else np.asarray(weights, "float64")
        counted = weights > 0
        seen = has[counted].sum(axis=0) > 0
        roots = np.repeat(np.sqrt([len(row) / 2 for row in rows]), np.diff(counts.indptr))
        scores, biases = np.zeros((shape[1], self.outputs)), np.zeros(self.outputs)
        for label, is_label in enumerate(np.asarray(targets).T > 0):
            sides = (is_label, ~is_label)
            p, q = (np.where(seen, 1 + (weights * of) @ has, 0) for of in sides)
            ratio = np.zeros(shape[1])
            ratio[seen] = np.log(p[seen] / p.sum()) - np.log(q[seen] / q.sum())
            if self.kind == "nb_svm" and len(set(is_label[counted])) == 2:
                from sklearn.svm import LinearSVC  # slow to import

                features = counts.copy()
                features.data *= ratio[features.indices] / roots
                machine = LinearSVC(C=10.0, random_state=0)
                machine.fit(features[counted], is_label[counted], weights[counted])
                ratio, biases[label] = ratio * machine.coef_[0], machine.intercept_[0]
            scores[:, label] = ratio
        self.words.assign(scores[: self.vocabulary_size])
        self.pairs.assign(scores[self.vocabulary_size :])
        self.bias.assign(biases)

    def _grams(self, row):
        """Return the numbers of the words of a text, and of its pairs behind those of all words."""
        ids = np.where(np.equal(row, END_ID), PAD_ID, row)
        pairs = self.vocabulary_size + rows_of(np.pad(ids, (1, 0))[:-1], ids)
        return np.concatenate([ids, pairs])[np.tile(ids != PAD_ID, 2)]


def rows_of(before, ids):
    """Return the rows of pairs of ids, of arrays or tensors; pairs may share one."""
    return (before % ROWS * FACTOR % ROWS + ids) % ROWS
