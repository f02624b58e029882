"""Scores of labels by a linear model of words and pairs of words, which join those of a network."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.text import END_ID, PAD_ID

from ..common.errors import check_choice
from .layers import PACKAGE, Part

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

    texts = 1
    """How many texts it reads; a word has a row for each."""

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

        self.words = constant("words", self.texts * vocabulary_size, outputs)
        self.pairs = constant("pairs", ROWS, outputs)
        self.bias = constant("bias", outputs)

    def call(self, *texts):
        found = words = 0.0
        for is_pair, rows, is_there in self.grams(texts, ops):
            scores = ops.take(self.pairs if is_pair else self.words, rows, axis=0)
            scores *= ops.cast(ops.expand_dims(is_there, -1), "float32")
            found += ops.sum(scores, axis=list(range(1, len(rows.shape))))
        for ids in texts:
            is_word = ops.cast(ops.not_equal(ids, PAD_ID), "float32")
            words += ops.sum(is_word, axis=list(range(1, len(ids.shape))))
        root = ops.rsqrt(ops.maximum(words, 1.0))
        return self.weight * (self.bias + found * ops.expand_dims(root, 1))

    def count(self, texts: Iterable[Sequence[Any]], targets: np.ndarray) -> None:
        """Set the scores from training texts.

        Args:
            texts: the ids of each text, with `END_ID` between sentences; of pairs, two of each.
            targets: `(texts, outputs)`, 1 where a text has a label.
        """
        from scipy import sparse

        texts = [[_words(ids) for ids in (each if self.texts > 1 else [each])] for each in texts]
        rows = list(map(self._numbers, texts))
        shape = len(rows), self.texts * self.vocabulary_size + ROWS
        ends = np.cumsum([0, *map(len, rows)], dtype="int32")
        counts = np.ones(ends[-1]), np.concatenate(rows, dtype="int32"), ends
        counts = sparse.csr_array(counts, shape=shape)
        counts.sum_duplicates()
        has = (counts > 0).astype("float64")
        seen = has.sum(axis=0) > 0
        words = [max(sum(map(np.count_nonzero, each)), 1) for each in texts]
        roots = np.repeat(np.sqrt(words), np.diff(counts.indptr))
        scores, biases = np.zeros((shape[1], self.outputs)), np.zeros(self.outputs)
        for label, is_label in enumerate(np.asarray(targets).T > 0):
            p, q = (np.where(seen, 1 + has[of].sum(axis=0), 0) for of in (is_label, ~is_label))
            ratio = np.zeros(shape[1])
            ratio[seen] = np.log(p[seen] / p.sum()) - np.log(q[seen] / q.sum())
            if self.kind == "nb_svm" and len(set(is_label)) == 2:
                from sklearn.svm import LinearSVC  # slow to import

                features = counts.copy()
                features.data *= ratio[features.indices] / roots
                machine = LinearSVC(C=10.0, random_state=0).fit(features, is_label)
                ratio, biases[label] = ratio * machine.coef_[0], machine.intercept_[0]
            scores[:, label] = ratio
        self.words.assign(scores[:-ROWS])
        self.pairs.assign(scores[-ROWS:])
        self.bias.assign(biases)

    def grams(self, texts: Sequence[Any], xp: Any) -> Iterator[tuple[bool, Any, Any]]:
        """Yield rows of ids, whether they are those of `pairs`, and which of them count.

        `xp` is `numpy` for arrays, `keras.ops` for tensors.
        """
        (ids,) = texts
        is_word = xp.not_equal(ids, PAD_ID)
        yield False, ids, is_word
        yield True, rows_of(_before(ids, xp), ids), is_word

    def _numbers(self, texts):
        """Return the numbers of the words of an example, and of its pairs behind all words."""
        offsets = {False: 0, True: self.texts * self.vocabulary_size}
        found = [(offsets[pair] + rows)[there] for pair, rows, there in self.grams(texts, np)]
        return np.concatenate(found)


@keras.saving.register_keras_serializable(PACKAGE)
class LinearPairScores(LinearScores):
    """Scores labels by what the two texts of a pair do not share.

    The equations are those of `LinearScores`, but for what `g` is: a word, or a pair of neighbours,
    that one of the texts alone has, and a word of the first alone together with one of the second
    alone, by which labels learn replacements ("man" by "woman"). `n` counts the words of both.

    Args:
        vocabulary_size, outputs, kind, weight, **kwargs: as in `LinearScores`.

    Call arguments:
        first, second: ids `(B, S)` and `(B, T)`; 0 is padding.

    Returns:
        The scores `(B, outputs)`.
    """

    texts = 2

    def grams(self, texts, xp):
        lone = []
        for side, (own, other) in enumerate([texts, texts[::-1]]):
            pairs, others = (rows_of(_before(ids, xp), ids) for ids in (own, other))
            lone.append(_lacks(own, other, own, xp))
            yield False, side * self.vocabulary_size + own, lone[-1]
            yield True, rows_of(pairs, side), _lacks(pairs, others, own, xp)
        first, second = xp.expand_dims(texts[0], 2), xp.expand_dims(texts[1], 1)
        replaced = xp.logical_and(xp.expand_dims(lone[0], 2), xp.expand_dims(lone[1], 1))
        yield True, rows_of(first, second), replaced


def _words(ids):
    """Return the ids of a text as an array of one row, with `PAD_ID` between sentences."""
    return np.where(np.equal(ids, END_ID), PAD_ID, ids)[None].astype("int32")


def _before(ids, xp):
    """Return the id before each, 0 before the first of a row."""
    return xp.pad(ids, [[0, 0]] * (len(ids.shape) - 1) + [[1, 0]])[..., :-1]


def _lacks(rows, others, ids, xp):
    """Return which rows of a text, at words, are not among those of another `(B, T)`."""
    same = xp.equal(xp.expand_dims(rows, 2), xp.expand_dims(others, 1))
    return xp.logical_and(xp.not_equal(ids, PAD_ID), xp.logical_not(xp.any(same, axis=2)))


def rows_of(before, ids):
    """Return the rows of pairs of ids, of arrays or tensors; pairs may share one."""
    return (before % ROWS * FACTOR % ROWS + ids) % ROWS
