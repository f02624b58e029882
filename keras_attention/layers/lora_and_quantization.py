"""LoRA, int8 and int4 for the kernels of a layer."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from ..ops.types import accumulator_dtype, at_least_float32
from .arguments import Configured, check_integer, check_number, fresh

# Entries that tell apart whether a matrix may hold integers over a scale.
SAMPLE = 512
# Two float32 that a rounded division leads to are at most so many numbers apart.
NEIGHBOURS = 3


def exact_int8(matrix: np.ndarray) -> tuple[np.ndarray, np.float32] | None:
    """Return integers of eight bits and the scale over which they are a matrix, exactly.

    Of several scales it takes the smallest. `None` of a matrix that needs rounding.

    Args:
        matrix: Float32 array; zeros alone are no such matrix.

    Example:

    >>> import numpy as np
    >>> whole = np.array([[3, -127], [50, 8]], "int8")
    >>> found, scale = exact_int8(whole / np.float32(310.7))
    >>> found.tolist(), float(scale) == np.float32(310.7)
    ([[3, -127], [50, 8]], True)
    """
    if matrix.dtype != np.float32 or not matrix.size:
        return None
    flat = matrix.reshape(-1)
    place = int(np.abs(flat).argmax())
    largest = float(abs(flat[place]))
    if not 0 < largest < np.inf:
        return None
    filled = flat[flat != 0]
    sample = filled[:: -(-filled.size // SAMPLE)].astype("float64")
    # The largest entry is the largest integer over the scale; which integer, only a trial tells.
    for integer in range(1, 129):
        near = integer / largest
        if near > float(np.finfo("float32").max):
            return None
        multiples = sample * near
        if np.abs(multiples - np.rint(multiples)).max() > 1e-3:
            continue
        whole = np.rint(matrix * near)
        if whole.max() > 127:
            continue
        scale = np.float32(near)
        for _ in range(NEIGHBOURS):
            scale = np.nextafter(scale, np.float32(0))
        for _ in range(2 * NEIGHBOURS + 1):
            if scale > 0 and np.array_equal(whole.astype("float32") / scale, matrix):
                return whole.astype("int8"), scale
            scale = np.nextafter(scale, np.float32(np.inf))
    return None


class AdaptableKernels(Configured):
    """Gives a layer `enable_lora` and `quantize`, as `keras.layers.Dense` has them.

    LoRA (Hu et al. 2022, section 4.1) learns a change of a kernel, `W + (alpha / rank) A B` with
    `A (in, rank)` and `B (rank, out)`; all other weights stop learning. A saved file holds merged
    kernels, and a layer without LoRA loads it.

    A quantized kernel is stored as integers with a scale for each output (for `"int4"` also for
    each block of inputs), and is divided by it where it is used: this saves memory, not time. A
    kernel that already holds integers of eight bits over one scale, such as one that was read from
    a file of eight bits, keeps them: nothing is rounded (`exact_int8`).

    A layer reads its kernels as `self.effective_weight(self.kernel)` alone, and ends its `build`
    with `self.restore_quantization()`, for files of quantized layers.
    """

    # The shape of each adapted kernel by name, and its shape as a matrix from inputs to outputs.
    _adapted: dict[str, tuple[tuple[int, ...], tuple[int, int]]] = {}
    # Matrices that stand side by side in a kernel: each may have a scale of its own.
    kernels_side_by_side = 1
    lora_enabled = False
    _is_quantized = False

    def kernels_to_adapt(self) -> dict[str, int]:
        """Return the names of the kernels, each with the number of axes that its input has."""
        weights = [weight for weight in self.weights if len(weight.shape) == 2]
        return {w.name: 1 for w in weights if getattr(self, w.name, None) is w}

    def effective_weight(self, weight: Any) -> Any:
        """Return a weight in the compute dtype: dequantized, with the change of LoRA."""
        if weight.name in self._adapted:
            weight = self._merged(weight.name)
        return ops.cast(weight, self.compute_dtype)

    def cast(self, tensor: Any) -> Any:
        """Return an input in the compute dtype; a weight as `effective_weight` does."""
        if isinstance(tensor, keras.Variable):
            return self.effective_weight(tensor)
        return ops.cast(tensor, self.compute_dtype)

    # LoRA.

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freeze the layer's weights, and learn a change of low rank for each kernel.

        Args:
            rank: Rank of the change.
            lora_alpha: The change is multiplied by `lora_alpha / rank`. Default: `rank`.
            a_initializer: Initializer of `A`.
            b_initializer: Initializer of `B`. At zero, the layer computes the same at first.

        Raises:
            ValueError: If the layer has no weights yet, or has LoRA already.
        """
        rank = check_integer("rank", rank)
        if lora_alpha is not None:
            check_number("lora_alpha", lora_alpha, above=True)
        if not self.built or self.lora_enabled:
            problem = "has LoRA already" if self.built else "has no weights yet; build it first"
            raise ValueError(
                "`enable_lora` expects a built layer without LoRA. "
                f"Received: {self.name}, which {problem}"
            )
        for weight in self._own_weights():
            weight.trainable = False
        self._note_kernels()
        # Keras has no public way to add a weight to a built layer.
        self._tracker.unlock()
        for name, (_, (rows, columns)) in self._adapted.items():
            # As in Keras: small changes would vanish in half precision.
            dtype = accumulator_dtype(self.compute_dtype)
            first, second = (keras.initializers.get(i) for i in (a_initializer, b_initializer))
            self._make_weight(f"{name}_lora_a", (rows, rank), fresh(first), dtype=dtype)
            self._make_weight(f"{name}_lora_b", (rank, columns), fresh(second), dtype=dtype)
        self._tracker.lock()
        self.lora_enabled = True
        self.lora_rank = rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha

    # Quantization.

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Store the kernels as integers: `"int8"`, or `"int4"` with two numbers in a byte.

        `keras.Model.quantize` skips a layer that has sublayers: call it on the sublayers.

        Args:
            mode: `"int8"` or `"int4"`.
            type_check: Ignored; `keras.Model.quantize` passes it.
            config: An `Int8QuantizationConfig` or `Int4QuantizationConfig`, whose block size
                applies.

        Raises:
            NotImplementedError: If the mode is another, or the `config` has a `weight_quantizer`.
        """
        if mode not in ("int8", "int4"):
            raise NotImplementedError(
                f"{type(self).__name__} can be quantized to 'int8' or 'int4'. "
                f"Received: mode={mode!r}"
            )
        if getattr(config, "weight_quantizer", None) is not None:  # Keras 3.12 hands over no config
            raise NotImplementedError(
                "Kernels are quantized by their largest entry alone. Expected a `config` without "
                f"`weight_quantizer`. Received: weight_quantizer={config.weight_quantizer}"
            )
        self._store(mode, getattr(config, "block_size", None))
        self.quantization_config = config  # as in Keras; a network quantizes its copy by it
        policy = self._own_policy()
        if policy.quantization_mode is None:
            has_blocks = mode == "int4" and hasattr(config, "block_size")  # not in Keras 3.12
            name = f"int4/{self._block_size or -1}" if has_blocks else mode
            self.dtype_policy = keras.dtype_policies.get(f"{name}_from_{policy.name}")

    def restore_quantization(self) -> None:
        """Quantize at the end of `build` if the dtype policy of a loaded file says so."""
        policy = self._own_policy()
        if policy.quantization_mode in ("int8", "int4"):
            self._store(policy.quantization_mode, getattr(policy, "block_size", None))

    def _own_policy(self):
        is_map = isinstance(self.dtype_policy, keras.dtype_policies.DTypePolicyMap)
        return self.dtype_policy[self.path] if is_map else self.dtype_policy

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the same as `call`: kernels are dequantized where they are read."""
        return self.call(*args, **kwargs)

    def _store(self, mode, block_size):
        """Replace every kernel by integers and their scales."""
        self._note_kernels()
        self._block_size = block_size if block_size and block_size > 0 else None
        self._bits = 4 if mode == "int4" else 8
        for name, (_, matrix) in self._adapted.items():
            kernel = ops.convert_to_tensor(getattr(self, name))
            parts = self._quantized(ops.reshape(kernel, matrix))
            delattr(self, name)
            for part, value in parts.items():
                dtype, shape = keras.backend.standardize_dtype(value.dtype), tuple(value.shape)
                options = {"dtype": dtype, "trainable": False}
                self._make_weight(name + part, shape, "zeros", **options).assign(value)
        self._is_quantized = True

    def _quantized(self, kernel):
        """Return the stored parts of a float matrix, by the suffix of their names."""
        rows, columns = kernel.shape
        if self._bits == 8 and self._block_size is None:
            exact = self._exact(ops.convert_to_numpy(kernel))
            if exact is not None:
                return exact
        block = self._block_size or rows
        padded = ops.pad(ops.cast(kernel, "float32"), [[0, -rows % block], [0, 0]])
        largest = 7 if self._bits == 4 else 127
        whole, scale = keras.quantizers.abs_max_quantize(
            ops.reshape(padded, (-1, block, columns)), axis=1, value_range=(-largest, largest)
        )
        whole = ops.reshape(whole, (-1, columns))[:rows]
        if self._bits == 4:
            whole, _, _ = keras.quantizers.pack_int4(whole, axis=-1)
        return {"": ops.cast(whole, "int8"), "_scale": ops.squeeze(scale, 1)}

    def _exact(self, kernel):
        """Return the stored parts of a matrix that rounding does not change; None of another."""
        parts = []
        for matrix in np.split(kernel, self.kernels_side_by_side, axis=1):
            found = exact_int8(matrix)
            if found is None:
                return None
            parts.append((found[0], np.full((1, matrix.shape[1]), found[1], "float32")))
        whole, scale = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return {"": ops.convert_to_tensor(whole), "_scale": ops.convert_to_tensor(scale)}

    def _merged(self, name):
        """Return a kernel in floating point: dequantized, with the change of LoRA."""
        shape, (rows, columns) = self._adapted[name]
        kernel = ops.convert_to_tensor(getattr(self, name))
        if self._is_quantized:
            if self._bits == 4:
                kernel = keras.quantizers.unpack_int4(kernel, columns, axis=-1)
            scale = ops.cast(getattr(self, f"{name}_scale"), "float32")
            scale = ops.repeat(scale, self._block_size or rows, axis=0)[:rows]
            kernel = ops.reshape(ops.cast(kernel, "float32") / scale, shape)
        if self.lora_enabled:
            a, b = (ops.convert_to_tensor(getattr(self, f"{name}_lora_{x}")) for x in "ab")
            change = ops.matmul(at_least_float32(a), at_least_float32(b))
            change = ops.reshape(change * (self.lora_alpha / self.lora_rank), shape)
            kernel = ops.cast(kernel, change.dtype) + change
        return kernel

    # Files.

    def save_own_variables(self, store: Any) -> None:
        """Write the weights of an equal layer without LoRA."""
        if not self.lora_enabled:
            return super().save_own_variables(store)
        merged = {}
        for name, (_, matrix) in self._adapted.items():
            kernel = self._merged(name)
            if not self._is_quantized:
                merged[name] = ops.cast(kernel, getattr(self, name).dtype)
                continue
            parts = self._quantized(ops.reshape(kernel, matrix))
            merged |= {name + part: value for part, value in parts.items()}
        for index, weight in enumerate(self._own_weights()):
            store[str(index)] = merged.get(weight.name, weight)

    def load_own_variables(self, store: Any) -> None:
        """Read the weights of a layer without LoRA; the change of LoRA starts at zero again."""
        if not self.lora_enabled:
            return super().load_own_variables(store)
        weights = self._own_weights()
        if len(store.keys()) != len(weights):
            raise ValueError(
                f"Layer {self.name} expected {len(weights)} weights. Received: {len(store.keys())}"
            )
        for index, weight in enumerate(weights):
            weight.assign(store[str(index)])
        for name in self._adapted:
            weight = getattr(self, f"{name}_lora_b")
            weight.assign(ops.zeros(weight.shape))

    def _note_kernels(self):
        if not self._adapted:
            adapted = {}
            for name, axes in self.kernels_to_adapt().items():
                shape = tuple(getattr(self, name).shape)
                adapted[name] = (shape, (math.prod(shape[:axes]), math.prod(shape[axes:])))
            self._adapted = adapted

    def _own_weights(self):
        """Return the layer's own weights without those of LoRA, in the order of a file."""
        own = {}
        super().save_own_variables(own)
        lora = {f"{name}_lora_{part}" for name in self._adapted for part in "ab"}
        return [weight for weight in own.values() if weight.name not in lora]
