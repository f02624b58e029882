"""A linear-chain conditional random field (Lafferty, McCallum & Pereira 2001)."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ..ops import crf
from ..ops.masks import check_dense, check_mask, for_batch
from ..ops.shapes import can_be_one
from ..ops.tag_schemes import forbidden_transitions
from ..ops.types import Tensor
from . import arguments


@keras.saving.register_keras_serializable("keras_attention")
class CRF(arguments.Configured, keras.layers.Layer):
    """Linear-chain conditional random field: a tag for every step, chosen together.

    With the emissions `e (B, T, K)`, one score for each of `K` tags at each step, the score of a
    sequence of tags over its `L` unmasked steps, and its probability, are

    `s(y) = start_{y_1} + Σ_t e_{t,y_t} + Σ_{t>1} A_{y_{t-1},y_t} + end_{y_L}`

    `log p(y) = s(y) - log Σ_{y'} exp s(y')`

    `call` returns the probability of each tag at each step, `p(y_t = k)`. Train a model that ends
    in this layer with [CRFLoss][keras_attention.losses.CRFLoss], on tag ids: it is `-log p(y)`.
    The methods give the rest: the best tags, the `n` best, and the probability of given ones.

    Weights: `transitions` `A (K, K)`, from a tag to the next, `start (K,)` and `end (K,)`.

    Args:
        num_tags: Number of tags `K`.
        forbidden: Pairs of tag ids that never follow each other, `None` for the start or the end of
            a sequence: `(None, 2)` forbids tag 2 in front. `CRF.from_tags` finds those of a scheme,
            such as BIO. Where they leave a sequence no tags, its marginals are zeros, and every
            log probability is -inf.
        transitions_initializer: Initializer of `transitions`.
        boundary_initializer: Initializer of `start` and `end`.
        **kwargs: The arguments of every Keras layer, and a regularizer and a constraint beside each
            initializer, such as `transitions_regularizer`.

    Call arguments:
        inputs: Emissions `(B, T, K)`: outputs of `Dense(K)`, say, without an activation.
        mask: Boolean `(B, T)`, True = a real step. What is masked is skipped, at the sides or in
            the middle: the chain goes on from the last real step. Default: Keras' implicit mask.
        return_tags: Whether to return the best tags too.

    Returns:
        The probabilities `(B, T, K)`, zeros where a step is masked; with `return_tags` also the
        best tags, int32 `(B, T)`, 0 where a step is masked.

    Raises:
        ValueError: If an argument is out of its range, or shapes or masks do not fit.

    Reference:
        Lafferty, McCallum and Pereira 2001, "Conditional random fields: probabilistic models for
        segmenting and labeling sequence data"; over neural networks Collobert et al. 2011,
        "Natural language processing (almost) from scratch", section 3.3.2.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention import CRF
    from keras_attention.losses import CRFLoss

    model = keras.Sequential()
    model.add(keras.layers.Embedding(100, 16, mask_zero=True))
    model.add(keras.layers.Dense(3))
    model.add(CRF.from_tags(["O", "B-PER", "I-PER"], scheme="BIO"))
    model.compile("adam", CRFLoss(), metrics=["accuracy"])
    model.fit(np.array([[7, 8, 9, 0]]), np.array([[1, 2, 0, 0]]), verbose=0)

    emissions = np.random.normal(size=(2, 5, 3))
    crf = model.layers[-1]
    tags = crf.decode(emissions)
    print(tags.shape, crf.log_likelihood(emissions, tags).shape)  # (2, 5) (2,)
    ```
    """

    has_weight_options = True

    def __init__(
        self,
        num_tags: int,
        forbidden: Sequence[Sequence[int | None]] = (),
        transitions_initializer: Any = "zeros",
        boundary_initializer: Any = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_tags = arguments.check_integer("num_tags", num_tags)
        if isinstance(forbidden, str) or not hasattr(forbidden, "__iter__"):
            raise ValueError(
                "`forbidden` must be a sequence of pairs, such as [(0, 2), (None, 2)]. "
                f"Received: forbidden={forbidden!r}"
            )
        self.forbidden = [self._pair(pair) for pair in forbidden]
        self.transitions_initializer = keras.initializers.get(transitions_initializer)
        self.boundary_initializer = keras.initializers.get(boundary_initializer)
        self.supports_masking = True
        pairs = tuple((before, after) for before, after in self.forbidden)
        self._constraints = crf.Constraints(self.num_tags, pairs)

    def _pair(self, pair: Any) -> list:
        """Return a pair of tag ids in the form of JSON."""
        ids = [None, *range(self.num_tags)]
        pair = pair.tolist() if isinstance(pair, np.ndarray) else pair
        is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not is_pair or pair[0] not in ids or pair[1] not in ids or tuple(pair) == (None, None):
            raise ValueError(
                f"`forbidden` must have pairs of ids from 0 to {self.num_tags - 1}, or None for "
                f"the start or the end. Received: {pair!r}"
            )
        return [tag if tag is None else int(tag) for tag in pair]

    @classmethod
    def from_tags(cls, tags: Sequence[str], scheme: str = "BIO", **kwargs: Any) -> "CRF":
        """Return a layer for tags of a scheme, which forbids what the scheme does not know.

        Args:
            tags: The names of the tags, in the order of their ids.
            scheme: `"BIO"` (also called `"IOB2"`) or `"BIOES"`.
            **kwargs: Further arguments of the layer.

        Raises:
            ValueError: If the scheme is another, a tag does not belong to it, or comes twice.
        """
        forbidden = forbidden_transitions(tags, scheme)
        return cls(len(tags), forbidden=forbidden, **kwargs)

    def build(self, inputs_shape: tuple) -> None:
        self._check_shape(inputs_shape)
        size = self.num_tags
        # Half precisions lose what a step adds to a long chain.
        options = {"autocast": False}
        shape = (size, size)
        self._make_weight(
            "transitions", shape, self.transitions_initializer, "transitions", **options
        )
        for name in ("start", "end"):
            initializer = arguments.fresh(self.boundary_initializer)
            self._make_weight(name, (size,), initializer, "boundary", **options)

    def call(self, inputs: Tensor, mask: Tensor = None, return_tags: bool = False) -> Tensor:
        mask = self._checked(inputs, mask)
        parameters = self._chain_parameters()
        found = crf.marginals(inputs, parameters, mask)
        found = ops.cast(found, self.compute_dtype)
        crf.leave_chain(
            found,
            functools.partial(_log_likelihood, inputs, parameters, mask),
        )
        return (found, crf.decode(inputs, parameters, mask)) if return_tags else found

    def log_likelihood(self, emissions: Tensor, tags: Tensor, mask: Tensor = None) -> Tensor:
        """Return the log probability `(B,)` of the tags of each sequence.

        Args:
            emissions: `(B, T, K)`.
            tags: Tag ids `(B, T)`; or, for sequences that are labelled in part, sets of allowed
                tags `(B, T, K)`, True for an allowed one: the log probability that every tag lies
                in its set.
            mask: Boolean `(B, T)`, True = a real step.

        Returns:
            `(B,)`, at least float32: -inf for a forbidden sequence and for ids that are no tags, 0
            for a row without real steps.
        """
        emissions, mask = self._ready(emissions, mask)
        tags = self._checked_tags(emissions, tags)
        return crf.log_likelihood(emissions, tags, self._chain_parameters(), mask)

    def score(self, emissions: Tensor, tags: Tensor, mask: Tensor = None) -> Tensor:
        """Return the score `s(y)` `(B,)` of tag ids `(B, T)`.

        It is -inf for a forbidden sequence and for ids that are no tags.
        """
        emissions, mask = self._ready(emissions, mask)
        tags = self._checked_tags(emissions, tags, ranks=(2,))
        return crf.score(emissions, tags, self._chain_parameters(), mask)

    def log_partition(self, emissions: Tensor, mask: Tensor = None) -> Tensor:
        """Return `log Σ_y exp s(y)`, `(B,)`: -inf where no sequence of tags is possible."""
        emissions, mask = self._ready(emissions, mask)
        return crf.log_partition(emissions, self._chain_parameters(), mask)

    def marginals(self, emissions: Tensor, mask: Tensor = None) -> Tensor:
        """Return the probability `(B, T, K)` of each tag at each step, at least float32."""
        emissions, mask = self._ready(emissions, mask)
        return crf.marginals(emissions, self._chain_parameters(), mask)

    def decode(self, emissions: Tensor, mask: Tensor = None) -> Tensor:
        """Return the best tags of each sequence, by Viterbi's algorithm.

        Returns:
            int32 `(B, T)`, 0 where a step is masked. Where no sequence is possible, the tags mean
            nothing: its log probability is -inf.
        """
        emissions, mask = self._ready(emissions, mask)
        return crf.decode(emissions, self._chain_parameters(), mask)

    def n_best(self, emissions: Tensor, n: int, mask: Tensor = None) -> tuple[Tensor, Tensor]:
        """Return the `n` best sequences of tags, and their log probabilities.

        Returns:
            int32 `(B, n, T)`, 0 where a step is masked, and `(B, n)`, the highest first: -inf where
            fewer than `n` sequences are possible.
        """
        arguments.check_integer("n", n)
        emissions, mask = self._ready(emissions, mask)
        return crf.n_best(emissions, n, self._chain_parameters(), mask)

    def _chain_parameters(self) -> crf.Parameters:
        weights = (ops.convert_to_tensor(x) for x in (self.transitions, self.start, self.end))
        return crf.Parameters(*weights, self._constraints)

    def _ready(self, emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        check_dense(emissions, "emissions")
        emissions = ops.convert_to_tensor(emissions)
        self._check_shape(emissions.shape)
        if not self.built:
            self.build(tuple(emissions.shape))
            self.built = True
        return emissions, self._checked(emissions, mask)

    def _checked(self, emissions: Tensor, mask: Tensor) -> Tensor:
        self._check_shape(emissions.shape)
        check_mask(mask, tuple(emissions.shape[:2]), "mask")
        return for_batch(mask, emissions)

    def _checked_tags(self, emissions: Tensor, tags: Tensor, ranks: tuple = (2, 3)) -> Tensor:
        check_dense(tags, "tags")
        tags = np.asarray(tags) if isinstance(tags, (list, tuple)) else tags
        crf.check_ids(tags, "tags")
        tags = ops.convert_to_tensor(tags)
        expected = [tuple(emissions.shape[:rank]) for rank in ranks]
        if not any(can_be_one(tuple(tags.shape), shape) for shape in expected):
            forms = " or ".join(map(str, expected))
            raise ValueError(
                f"`tags` must have the shape {forms}. Received: tags of shape {tuple(tags.shape)}"
            )
        return tags

    def _check_shape(self, shape: tuple) -> None:
        arguments.check_shapes(inputs=(shape, arguments.SEQUENCE))
        if shape[-1] != self.num_tags:
            raise ValueError(
                f"The emissions must have a score for each of {self.num_tags} tags on their last "
                f"axis. Received: inputs of shape {tuple(shape)}"
            )

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        given = arguments.call_arguments(self, args, kwargs)
        self._checked(given.inputs, given.mask)
        found = keras.KerasTensor(tuple(given.inputs.shape), self.compute_dtype)
        tags = keras.KerasTensor(tuple(given.inputs.shape[:2]), "int32")
        return (found, tags) if given.return_tags else found

    def compute_output_shape(self, inputs_shape: tuple) -> tuple:
        self._check_shape(inputs_shape)
        return tuple(inputs_shape)


def _log_likelihood(
    emissions: Tensor, parameters: crf.Parameters, mask: Tensor, tags: Tensor
) -> Tensor:
    return crf.log_likelihood(emissions, tags, parameters, mask)
