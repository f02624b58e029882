"""Additive attention (Bahdanau, Cho and Bengio 2015)."""

import math
from typing import Any

import keras
from keras import ops

from ...ops.scores import additive_score
from ...ops.shapes import product
from ...ops.types import Tensor, at_least_float32
from .. import arguments
from .scored import ScoredAttention, ignores_positions


@keras.saving.register_keras_serializable("keras_attention")
class BahdanauAttention(ScoredAttention):
    """Additive attention: a small network of one hidden layer scores each pair.

    `e_ts = v . tanh(W q_t + U k_s + b)`, `a_t = softmax(e_t)`, `c_t = sum_s a_ts v_s`

    With `normalize` the score vector is `g v / |v|`, so that its length is learned apart from its
    direction (weight normalization).

    The keys are projected once for a memory. The hidden layer of `B T S U` numbers is computed in
    blocks, again in the backward pass, and never kept.

    Weights: `query_kernel` `W (Dq, U)`, `key_kernel` `U (Dk, U)`, `score_vector` `v (U,)`, and with
    `use_bias` `bias` `b (U,)`, with `normalize` `gain` `g ()`, which starts at `sqrt(1 / U)`.

    Args:
        units: Size `U` of the hidden layer.
        use_bias: Whether `b` is added. Default: `normalize`. The paper's formula has none.
        kernel_initializer: Initializer of `W` and `U`.
        score_initializer: Initializer of the score vector `v`. The paper starts it at zero, which
            learns more slowly.
        bias_initializer: Initializer of `b`.
        dropout: As in `ScoredAttention`, and so are the call and its results.
        seed: Seed of the dropout.
        normalize: Whether the score vector is `g v / |v|`.
        **kwargs: As in `ScoredAttention`.

    Reference:
        Bahdanau, Cho and Bengio 2015, "Neural machine translation by jointly learning to align and
        translate", section 3.1 and appendix A.1.2. Their `s_{i-1}` is the query, `h_j` key and
        value, `W_a`, `U_a`, `v_a` are `query_kernel`, `key_kernel`, `score_vector`.
        Normalized vector: Salimans and Kingma 2016, "Weight normalization", section 2, equation 2.

    Example:

    ```python
    import numpy as np
    from keras_attention.layers import BahdanauAttention

    states, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12))
    context, scores = BahdanauAttention(units=16)(states, memory, return_attention_scores=True)
    assert tuple(context.shape) == (2, 5, 12) and tuple(scores.shape) == (2, 5, 7)
    ```
    """

    def __init__(
        self,
        units: int,
        use_bias: bool | None = None,
        kernel_initializer: Any = "glorot_uniform",
        score_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        dropout: float = 0.0,
        seed: int | None = None,
        normalize: bool = False,
        **kwargs: Any,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        self.units = arguments.check_integer("units", units)
        self.normalize = arguments.check_flag("normalize", normalize)
        use_bias = normalize if use_bias is None else use_bias
        self.use_bias = arguments.check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.score_initializer = keras.initializers.get(score_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build_score(self, query_size, key_size):
        for name, size in (("query_kernel", query_size), ("key_kernel", key_size)):
            initializer = arguments.fresh(self.kernel_initializer)
            self._make_weight(name, (size, self.units), initializer, "kernel")
        if self.use_bias:
            self._make_weight("bias", (self.units,), self.bias_initializer, "bias")
        self._make_weight("score_vector", (self.units,), self.score_initializer, "score")
        if self.normalize:
            self._make_weight("gain", (), keras.initializers.Constant(math.sqrt(1 / self.units)))

    def project_query(self, query):
        return product(query, self.cast(self.query_kernel))

    def project_key(self, key):
        # The bias joins the keys, where it costs one addition for a memory and not one a query.
        key = ops.matmul(key, self.cast(self.key_kernel))
        return key + self.cast(self.bias) if self.use_bias else key

    @ignores_positions
    def score(self, query, key, positions):
        return additive_score(query, key, self.effective_score_vector())

    def effective_score_vector(self) -> Tensor:
        """Return the vector `(U,)` of the score: `v`, or with `normalize` `g v / |v|`."""
        if not self.normalize:
            return self.cast(self.score_vector)
        vector = at_least_float32(ops.convert_to_tensor(self.score_vector))
        square = ops.sum(ops.square(vector))
        length = ops.sqrt(ops.where(square > 0, square, 1.0))  # a vector of zeros has no direction
        gain = ops.cast(self.gain, vector.dtype)
        return self.cast(gain * vector / length)
