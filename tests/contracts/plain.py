"""The third kind of case: a layer of any other call than a mechanism's or a decoder's.

What the checks must know of its arrays and results stands in `axes`, one letter an axis:

- `B` batch, `T` query steps, `S` memory steps, `N` sentences, `W` words, of any size;
- every other letter is a size that the layer fixes (features, heads, units).

A mask pads all of its own axes but the batch. From this follow the dynamic shapes, the padding with
garbage, what of a result is real, and the mask that a result must carry.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.contracts.backend import OPEN, symbols_of
from tests.contracts.kinds import BATCH, LENGTHS, STEPS, Padded, randomise


@dataclass(frozen=True)
class Plain(Padded):
    """A case of a layer.

    `arrays(seed, batch, steps, lengths)` gives NumPy arrays by the names of the layer's call
    arguments, the first input first, masks included; `lengths` are those of the examples of the
    batch (`max(lengths)` steps), `steps` the number of queries where there are two sequences.
    `call(layer, tensors, **options)` gives the results by name from any part of these tensors that
    suffices, and `reference(weights, options, arrays)` the same in float64. Attention weights are
    named `scores…`: they must be zero where a mask hides what they weigh. A mask that `call` does
    not take, but that passes through the layer, is among the arrays and `masks` too.
    """

    name: str
    layer: type
    options: dict
    weights: dict  # attribute path -> shape, in the order of the layer's weights
    arrays: Callable
    call: Callable
    reference: Callable
    axes: dict[str, str]  # of every array and every result
    output: str = "outputs"
    masks: dict[str, str] = field(default_factory=dict)  # mask -> the input that can carry it
    steps: Callable | None = None  # (layer, tensors) -> results, states from first to last
    alone: Callable | None = None  # (x, mask) -> the arrays that `layer(x)` stands for
    fixed: dict = field(default_factory=dict)  # arguments of every call, such as a causal mask
    wrong: Callable | None = None  # arrays -> {what is wrong: arrays that must be refused}

    def new(self, **options):
        """The layer, not built yet."""
        return self.layer(**{**self.options, **options})

    def build(self, **options):
        """A built layer with random weights, by a call with symbols: JAX compiles nothing."""
        layer = self.new(**options)
        self.call(layer, symbols_of(self.inputs()))
        return randomise(layer)

    def inputs(self, seed=0, batch=BATCH, steps=STEPS, lengths=LENGTHS):
        """The arrays of a batch."""
        return self.arrays(seed, batch, steps, lengths)

    def oracle(self, weights, inputs):
        """The results in float64."""
        return self.reference(weights, self.options, inputs)

    def run_steps(self, layer, inputs):
        """The results of one step at a time."""
        return self.steps(layer, inputs)[0]

    def carried(self, layer, inputs):
        """What search carries between steps: no memory of its own, and the first and last state."""
        states = self.steps(layer, inputs)[1] or [()]
        return (), states[0], states[-1]

    # One input, for `model.add`

    @property
    def first(self):
        """The name of the first input."""
        return next(iter(self.inputs()))

    @property
    def one_input_suffices(self):
        """Whether every call argument but the first has a default."""
        parameters = list(inspect.signature(self.layer.call).parameters.values())[2:]
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return all(p.default is not p.empty or p.kind in kinds for p in parameters)

    def self_attention(self):
        """The layer unbuilt, and its case."""
        return self.new(), self

    def of_one_input(self, x, mask):
        """The arrays that stand for a call with `x` alone, whose mask is given."""
        if self.alone:
            return self.alone(x, mask)
        return {self.first: x} | dict.fromkeys(self.masks_carried_by(self.first), mask)

    def wrong_inputs(self):
        """Inputs that fit neither each other nor the layer, by what is wrong with them."""
        good = self.inputs()
        floating = [name for name, array in good.items() if array.dtype == np.float32]
        yield "no steps", good | {self.first: good[self.first][:, 0]}
        for mask in filter(inspect.signature(self.layer.call).parameters.__contains__, self.masks):
            yield f"a shorter {mask}", good | {mask: good[mask][..., 1:]}
            added = np.where(good[mask], 0.0, -1e9).astype("float32")
            yield f"a {mask} that is added", good | {mask: added}
        for name in floating:
            if len(floating) > 1:
                yield f"{name} of another batch", good | {name: good[name][:2]}
            if self.weights and self.axes[name][-1] not in OPEN:
                wider = np.repeat(good[name][..., :1], good[name].shape[-1] + 1, axis=-1)
                yield f"wider {name}", good | {name: wider}
        yield from (self.wrong(good) if self.wrong else {}).items()
