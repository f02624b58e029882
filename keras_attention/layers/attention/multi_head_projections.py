"""The weights of multi-head attention, products with them, and attention one query at a time."""

import itertools
import math
from numbers import Integral
from typing import Any

import keras
from keras import ops

from ...ops.axes import reshaped, size_of, sizes_from, sizes_of
from ...ops.dot_product.attention import attention_with_scores
from ...ops.dot_product.mods import Mods
from ...ops.dot_product.reach import Reach, Span
from ...ops.masks import check_dense, check_mask, for_batch, zero_masked
from ...ops.positions import alibi_slopes, relative_buckets, rotate
from ...ops.types import Tensor, accumulator_dtype, at_least_float32
from .. import arguments
from ..lora_and_quantization import AdaptableKernels


class HeadProjections(AdaptableKernels, keras.layers.Layer):
    """Projects queries, keys and values to heads, and heads to an output."""

    def _add_kernel(self, name, inputs, outputs):
        """Make `name_kernel` of shape `inputs + outputs` and `name_bias` of shape `outputs`."""
        self._sizes[name] = outputs
        initializer = arguments.fresh(self.kernel_initializer)

        def as_matrix(shape, dtype=None):
            matrix = (math.prod(inputs), math.prod(outputs))
            return ops.reshape(initializer(matrix, dtype=dtype), shape)

        first = as_matrix if name == "output" else initializer
        of_kernel = {"regularizer": self.kernel_regularizer, "constraint": self.kernel_constraint}
        of_bias = {"regularizer": self.bias_regularizer, "constraint": self.bias_constraint}
        self._make_weight(f"{name}_kernel", (*inputs, *outputs), first, **of_kernel)
        if self.use_bias:
            self._make_weight(
                f"{name}_bias", outputs, arguments.fresh(self.bias_initializer), **of_bias
            )

    @property
    def _of_queries(self):
        """The names of the kernels that read the queries."""
        return ("query", "gate") if self.use_gate else ("query",)

    def kernels_to_adapt(self) -> dict[str, int]:
        names = ("query", "key", "value", *self._of_queries[1:])  # in the order of their files
        return {**{f"{name}_kernel": 1 for name in names}, "output_kernel": 2}

    def project(self, inputs, *names: str) -> list:
        """Return the products of `(B, T, D)` with kernels by name, each `(B, T, heads, size)`."""
        shapes = [self._sizes[name] for name in names]
        kernels = [self._matrix(f"{name}_kernel", inputs.shape[-1]) for name in names]
        biases = [self._matrix(f"{name}_bias", 1)[0] for name in names if self.use_bias]
        sizes = [math.prod(shape) for shape in shapes]
        # One product for all: they read the same inputs, and share the inputs' gradient.
        kernel = kernels[0] if len(names) == 1 else ops.concatenate(kernels, axis=1)
        bias = None if not biases else ops.concatenate(biases) if biases[1:] else biases[0]
        products, steps = _dense(inputs, kernel, bias), sizes_of(inputs)[:2]
        places = list(itertools.accumulate(sizes))[:-1]
        parts = ops.split(products, places, axis=-1) if places else [products]
        return [
            ops.reshape(part, (*steps, *shape)) for part, shape in zip(parts, shapes, strict=True)
        ]

    def _project_inputs(self, query, value, key, places=(None, None)):
        """Return queries `(B, H, T, d)`, keys and values `(B, G, S, d)`, and the gate."""
        if query is value is key:
            *own, key, value = self.project(query, *self._of_queries, "key", "value")
            memory = self._keys(key, places[1]), _heads_first(value)
        else:
            own = self.project(query, *self._of_queries)
            memory = self._project_memory(value, key, places[1])
        query, gate = self._scaled(own, places[0])
        return query, *memory, gate

    def _scaled(self, projected, places):
        """Return scaled queries `(B, H, T, d)`, and the gate or `None`."""
        query, *gate = projected
        query = self._placed(query, "query_gain", places)
        query = _heads_first(query * self.key_dim**-0.5)
        return query, ops.sigmoid(gate[0]) if gate else None

    def _project_memory(self, value, key, places=None):
        if key is value:
            key, value = self.project(value, "key", "value")
        else:
            (key,), (value,) = self.project(key, "key"), self.project(value, "value")
        return self._keys(key, places), _heads_first(value)

    def _keys(self, key, places):
        return _heads_first(self._placed(key, "key_gain", places))

    def _placed(self, heads, gain, places):
        """Normalise and turn `(B, T, H, d)`; its places are given, or count from 0."""
        if self.query_key_norm:
            squares = ops.mean(ops.square(at_least_float32(heads)), axis=-1, keepdims=True)
            heads = heads * ops.cast(ops.rsqrt(squares + 1e-6), heads.dtype)
            heads = heads * self.cast(getattr(self, gain))
        if self.positions != "rotary":
            return heads
        places = Span(0, size_of(heads, 1)).places() if places is None else places
        options = (self.max_wavelength, self.rotary_dim, self.rotary_scaling)
        return rotate(heads, ops.expand_dims(places, -1), *options)

    def _bias_table(self, first, size, causal):
        """Return what `size` distances from the first add to the scores, `(H, size)`, or `None`."""
        if self.positions not in ("alibi", "relative"):
            return None
        size = max(size, 0) if isinstance(size, int) else size  # -1 of no steps and no places
        distances = Span(first, size).places()
        if self.positions == "alibi":
            dtype = accumulator_dtype(self.compute_dtype)
            slopes = ops.expand_dims(alibi_slopes(self.num_heads, dtype), 1)
            return -slopes * ops.cast(ops.abs(distances), dtype)
        buckets = relative_buckets(distances, self.num_buckets, self.max_distance, not causal)
        return ops.transpose(ops.take(ops.convert_to_tensor(self.relative_bias), buckets, axis=0))

    def _output(self, context, gate):
        """Return the output `(B, T, ...)` of contexts `(B, H, T, dv)`."""
        context = _heads_first(context)
        context = context if gate is None else context * gate
        bias = self._matrix("output_bias", 1)[0] if self.use_bias else None
        kernel = self._matrix("output_kernel", math.prod(context.shape[2:]))
        steps = sizes_of(context)[:2]
        return ops.reshape(_dense(context, kernel, bias), (*steps, *self._sizes["output"]))

    def _matrix(self, name, rows):
        return ops.reshape(self.cast(getattr(self, name)), (rows, -1))

    # One query at a time.

    def prepare_memory(self, value: Tensor, key: Tensor = None, mask: Tensor = None) -> dict:
        """Project once the values `(B, S, Dv)` and keys `(B, S, Dk)` that every query step reads.

        Returns a dictionary: `key` `(B, G, S, key_dim)` and `value` `(B, G, S, value_dim)` of `G`
        heads, and the `mask` `(B, S)`, True = attend, where there is one.
        """
        self._check_steps()
        check_dense([value, key], "value and key")
        value = self.cast(value)
        key = value if key is None else self.cast(key)
        self.check_features("value", value.shape)
        self.check_features("key", key.shape)
        check_mask(mask, tuple(value.shape[:2]), "value_mask")
        cleared = zero_masked(value, mask)
        key = cleared if key is value else zero_masked(key, mask)
        key, value = self._project_memory(cleared, key)
        memory = {"key": key, "value": value}
        return (
            memory if mask is None else {**memory, "mask": for_batch(ops.cast(mask, "bool"), value)}
        )

    def initial_state(self, batch_size: Tensor, max_length: int) -> dict:
        """Return the empty cache of self-attention, `key` and `value` `(B, G, max_length, ...)`."""
        shape = (batch_size, self.num_key_value_heads, max_length)
        return {
            "key": ops.zeros((*shape, self.key_dim), self.compute_dtype),
            "value": ops.zeros((*shape, self.value_dim), self.compute_dtype),
        }

    def step(
        self,
        query: Tensor,
        memory: Any,
        state: dict,
        index: Tensor,
        attention_mask: Tensor = None,
        return_attention_scores: bool = True,
        copies: int = 1,
    ) -> tuple:
        """Attend with one query a row.

        With a memory this is cross-attention, and the state stays as it is. Without one (`None`) it
        is causal self-attention, which writes the query's key and value to the cache at `index`.

        Args:
            query: `(B, D)`.
            memory: What `prepare_memory` gave, or `None`.
            state: What `initial_state` or the step before gave.
            index: The query's position, from 0: an integer or a scalar tensor, the same for all
                rows. A tensor outside of the cache gives NaN, which it also writes to the nearest
                step of the same row.
            attention_mask: Boolean `(B, S)` or `(B, H, S)`: which places the query may see.
            return_attention_scores: Whether the weights are wanted; else they are `None`.
            copies: How many neighbouring queries share a row of memory or state. A cache then has
                as many places for each step, and `attention_mask` must say which places belong to
                a query (`decoding.mask_of_origins`).

        Returns:
            The output `(B, O)`, the weights `(B, H, S)` (`S` is `max_length` in self-attention),
            and the state after the step.

        Raises:
            ValueError: If a known `index` lies outside of the cache, or shapes do not fit.
        """
        self._check_steps()
        query = self.cast(query)
        self.check_features("query", query.shape)
        query = ops.reshape(query, (-1, copies, query.shape[-1]))
        self._check_copies(copies, memory, attention_mask)
        # Positions are int32, whatever integers an index is: NumPy's uint8 has no -1.
        index = int(index) if isinstance(index, Integral) else ops.cast(index, "int32")
        is_own, here = memory is None, Span(index, 1).places()
        # One product each: to lay the kernels side by side would take as long as it saves.
        own = [self.project(query, name)[0] for name in self._of_queries]
        if is_own:
            self.check_features("value", query.shape)
            key, value = (self.project(query, name)[0] for name in ("key", "value"))
            key, value = self._keys(key, here), _heads_first(value)
            room = size_of(state["key"], 2) // copies
            index, value = within_cache(index, room, value)
            entries = {"key": key, "value": value}
            memory = state = write_places(state, index, entries, copies)
        query, gate = self._scaled(own, here)
        key, value, length = memory["key"], memory["value"], size_of(memory["key"], 2)
        if attention_mask is not None:
            queries = None if key.shape[0] is None else key.shape[0] * copies
            heads = (self.num_heads,) if len(attention_mask.shape) == 3 else ()
            expected = (queries, *heads, key.shape[2])
            check_mask(attention_mask, expected, "attention_mask")
            attention_mask = _by_copies(attention_mask, copies)
        causal = is_own and copies == 1
        masks = (None, memory.get("mask"), attention_mask)
        mods = Mods.of(self.score_mod, self.mask_mod)
        reach = Reach(causal, self.window, self.num_sinks, *masks, mods)
        table = self._bias_table(-index, length, causal)
        rows = Span(index, 1) if copies == 1 else Span(0, copies)  # whose mask says all
        options = {"table": table, "normalizer": self.normalizer, "rows": rows}
        context, scores = attention_with_scores(query, key, value, reach, **options)
        output = self._output(context, gate)
        if copies == 1:
            output, scores = ops.squeeze(output, 1), ops.squeeze(scores, 2)
        else:
            output = ops.reshape(output, (-1, *output.shape[2:]))
            scores = ops.reshape(_heads_first(scores), (-1, self.num_heads, length))
        return output, scores if return_attention_scores else None, state

    def _check_copies(self, copies, memory, attention_mask):
        if copies == 1:
            return
        depends_on_places = (
            self.window is not None
            or self.positions in ("alibi", "relative")
            or self.score_mod is not None
            or self.mask_mod is not None
        )
        if depends_on_places or (memory is None and attention_mask is None):
            raise ValueError(
                "Queries that share a row (`copies` above 1) need an `attention_mask` in "
                "self-attention, and scores and masks that depend on no distance: no window, no "
                f"'alibi' or 'relative' positions, no `score_mod` or `mask_mod`. Received: copies="
                f"{copies}, attention_mask={'None' if attention_mask is None else 'a mask'}"
            )

    def check_features(self, name: str, shape):
        """Raise a ValueError where an input is not as wide as the kernel that projects it."""
        arguments.check_features(name, shape, self._features[name])

    def _check_steps(self):
        if not self.built or not self.axes.is_plain:
            raise ValueError(
                "Call MultiHeadAttention once, or `build(query_shape, value_shape)`, on inputs "
                "(batch, steps, features) before its memory is prepared or a step taken. Received: "
                + ("several axes of steps" if self.built else "a layer without weights")
            )


def rank_4(mask):
    """Give an attention mask `(T, S)`, `(B, T, S)` or `(B, H, T, S)` four axes."""
    if mask is None or len(mask.shape) == 4:
        return mask
    return ops.expand_dims(mask, (0, 1) if len(mask.shape) == 2 else 1)


def _heads_first(heads):
    """Swap the second axis and the third; where one has a single entry, nothing has to move."""
    if 1 in heads.shape[1:3]:
        batch_size, steps, count, size = sizes_of(heads)
        return ops.reshape(heads, (batch_size, count, steps, size))
    return ops.transpose(heads, (0, 2, 1, 3))


def _dense(inputs, kernel, bias):
    """Return `x W + b` of `(B, T, ...)`, as one product of matrices: `(B T, O)`."""
    rows = ops.matmul(ops.reshape(inputs, (-1, kernel.shape[0])), kernel)
    return rows if bias is None else rows + bias


def _by_copies(mask, copies):
    """Return a mask `(B K, S)` or `(B K, H, S)` of queries, `K` of which share a row, of rank 4."""
    if copies == 1:
        return rank_4(ops.expand_dims(mask, -2))
    parts = ops.reshape(mask, (-1, copies, *sizes_from(mask, 1)))
    return _heads_first(parts) if len(parts.shape) == 4 else rank_4(parts)


def within_cache(index: Tensor, room: Tensor, value: Tensor) -> tuple:
    """Return an index that lies in a cache of `room` steps, and the value to write there.

    A known index outside is refused. Otherwise the value is NaN: so are the output of the step,
    which adds up all values, and those of later steps. No other row's memory is touched.
    """
    if isinstance(index, Integral) and isinstance(room, int):
        if not 0 <= index < room:
            raise ValueError(
                f"`index` must lie in the {room} positions of the state; make a state of a larger "
                f"`max_length`. Received: index={index}"
            )
        return index, value
    index = ops.cast(index, "int32")
    nearest = ops.clip(index, 0, room - 1)
    return nearest, ops.where(ops.equal(nearest, index), value, float("nan"))


def write_places(state: dict, index: Tensor, entries: dict, copies: int) -> dict:
    """Return caches `(B, G, L K, d)` with entries `(B, G, K, d)` at the places of a step."""
    if keras.backend.backend() != "tensorflow":
        start = (0, 0, index * copies, 0)
        return {name: ops.slice_update(state[name], start, entries[name]) for name in entries}
    # There `slice_update` compiles for each shape; a scatter does not.
    batch_size, groups, length = sizes_from(state["key"], 0)[:3]
    steps = length if copies == 1 else length // copies
    places = ops.arange(batch_size * groups, dtype="int32") * steps + index
    written = {}
    for name, entry in entries.items():
        size = entry.shape[3]
        rows, entry = (ops.reshape(x, (-1, copies * size)) for x in (state[name], entry))
        rows = ops.scatter_update(rows, ops.expand_dims(places, 1), entry)
        written[name] = reshaped(rows, (batch_size, groups, length, size))
    return written
