"""Additive attention (Bahdanau, Cho and Bengio 2015)."""

from typing import Any

import keras
from keras import ops

from keras_attention.layers.attention.base import AttentionMechanism, fresh
from keras_attention.layers.attention.loop_scores import AdditiveScore
from keras_attention.layers.checks import check_flag, check_integer
from keras_attention.ops.scores import additive_score


@keras.saving.register_keras_serializable("keras_attention")
class BahdanauAttention(AttentionMechanism):
    """Additive attention: a small network of one hidden layer scores each pair.

    `e_ts = v . tanh(W q_t + U k_s + b)`, `a_t = softmax(e_t)`, `c_t = sum_s a_ts v_s`

    The keys are projected once for a memory. The hidden layer, which would take `B T S U` numbers,
    is computed in blocks and again in the backward pass; it is never kept whole.

    Weights: `query_kernel` `W (Dq, U)`, `key_kernel` `U (Dk, U)`, `score_vector` `v (U,)`, and with
    `use_bias` `bias` `b (U,)`.

    Args:
        units: Size `U` of the hidden layer.
        use_bias: Whether `b` is added. The paper's formula has none.
        kernel_initializer: Initializer of `W` and `U`.
        score_initializer: Initializer of `v`. The paper starts at zero, so that every weight is
            equal at first; the default breaks that symmetry, which learns faster.
        bias_initializer: Initializer of `b`.
        dropout: Rate at which weights are dropped in training.
        seed: Seed of the dropout.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        query: `(B, T, Dq)`.
        value: `(B, S, Dv)`. Default: the queries.
        key: `(B, S, Dk)`. Default: the values.
        query_mask: Boolean `(B, T)`, True = attend.
        value_mask: Boolean `(B, S)`, True = attend.
        return_attention_scores: Whether to return the weights too.
        training: Whether dropout applies.

    Returns:
        The context `(B, T, Dv)`; with `return_attention_scores`, a tuple of it and the weights
        `(B, T, S)`.

    Raises:
        ValueError: Where `units` is not positive, or shapes or masks do not fit.

    Reference:
        Bahdanau, Cho and Bengio 2015, "Neural machine translation by jointly learning to align and
        translate", section 3.1 and appendix A.1.2. Their `s_{i-1}` is the query, `h_j` key and
        value, `W_a`, `U_a`, `v_a` are `query_kernel`, `key_kernel`, `score_vector`.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import BahdanauAttention

    states = np.random.normal(size=(2, 5, 8))    # five decoder states
    memory = np.random.normal(size=(2, 7, 12))   # seven encoder states
    context, scores = BahdanauAttention(units=16)(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and tuple(scores.shape) == (2, 5, 7)
    ```
    """

    def __init__(
        self,
        units: int,
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        score_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.units = check_integer("units", units)
        self.use_bias = check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.score_initializer = keras.initializers.get(score_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build_score(self, query_size, key_size):
        for name, size in (("query_kernel", query_size), ("key_kernel", key_size)):
            initializer = fresh(self.kernel_initializer)
            kernel = self.add_weight((size, self.units), initializer=initializer, name=name)
            setattr(self, name, kernel)
        if self.use_bias:
            self.bias = self.add_weight(
                (self.units,), initializer=self.bias_initializer, name="bias"
            )
        self.score_vector = self.add_weight(
            (self.units,), initializer=self.score_initializer, name="score_vector"
        )

    def project_query(self, query):
        return ops.matmul(query, self.cast(self.query_kernel))

    def project_key(self, key):
        # The bias joins the keys, where it costs one addition for a memory and not one a query.
        key = ops.matmul(key, self.cast(self.key_kernel))
        return key + self.cast(self.bias) if self.use_bias else key

    def score(self, query, key, positions):
        return additive_score(query, key, self.cast(self.score_vector))

    def loop_score(self):
        return AdditiveScore(self.cast(self.query_kernel), self.cast(self.score_vector))

    def get_config(self):
        serialize = keras.initializers.serialize
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": serialize(self.kernel_initializer),
            "score_initializer": serialize(self.score_initializer),
            "bias_initializer": serialize(self.bias_initializer),
        }
