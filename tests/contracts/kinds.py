"""The two kinds of layer that recur over queries, each with its own form of every check.

A layer of any other call has the kind of `plain.py`.

A case is one way to build one layer: its options, its pinned weights, its oracle. Both kinds
offer the same methods, so that a check is written once:

- `build()` a layer with random weights; `inputs()` arrays by argument name;
- `call(layer, inputs)` and `run_steps(layer, inputs)` give the same dictionary of results;
- `oracle(weights, inputs)` gives that dictionary in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import keras
import numpy as np
from keras import ops

from tests.contracts import oracles
from tests.contracts.backend import open_shape, random
from tests.contracts.oracle_cells import state_sizes

BATCH, STEPS, LENGTH, VALUE_SIZE = 3, 5, 7, 13
LENGTHS = (LENGTH, 4, 1)  # of the memories of the batch


def value_mask(length=LENGTH, lengths=LENGTHS):
    """Boolean (B, S), True where a memory has an entry."""
    return np.arange(length) < np.array(lengths)[:, None]


def weight_of(layer, path: str):
    """The variable that a path of attributes and indices (`cell.cells.0.kernel`) leads to."""
    for part in path.split("."):
        layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
    return layer


def randomise(layer, seed=0):
    """Gives every weight normal values, the zeros of initializers (biases, gates) among them."""
    for place, weight in enumerate(layer.weights):
        if "seed" not in weight.path:
            weight.assign(random(seed + 100 + place, *weight.shape, scale=0.4))
    return layer


def model_of(case, layer, arrays):
    """A functional model of a layer: open batch and lengths, results by name."""
    symbols = {
        name: keras.Input(
            batch_shape=open_shape(case.axes[name], array), dtype=str(array.dtype), name=name
        )
        for name, array in arrays.items()
    }
    for symbol in symbols.values():  # Keras 3.12 refuses an input that nothing reads
        keras.layers.Identity(autocast=False)(symbol)
    return keras.Model(symbols, case.call(layer, symbols))


def trainable_model(case, layer, arrays):
    """A model of the layer's main output through a dense layer, which trains in any case."""
    model = model_of(case, layer, arrays)
    return keras.Model(model.input, keras.layers.Dense(2)(model.output[case.output]))


HUGE = 1e18  # its square is still a float32


class Padded:
    """Tells a case's padding from what is real.

    `axes` has a letter for each axis of an array; `masks` names the input that can carry a mask.
    """

    def masks_carried_by(self, name):
        """The masks that an input carries, at most one."""
        return [mask for mask, carrier in self.masks.items() if carrier == name]

    def output_mask(self):
        """The name of the mask that the main result must carry, or None."""
        axes = self.axes[self.output]
        return next((mask for mask in self.masks if axes.startswith(self.axes[mask])), None)

    def real(self, name, inputs):
        """Where an array or result is not padding: boolean, broadcasts to it."""
        axes = self.axes[name]
        result = np.ones((1,) * len(axes), bool)
        for mask in filter(inputs.__contains__, self.masks):
            *leading, last = self.axes[mask]
            if set(leading) <= set(axes):
                for place in [i for i, letter in enumerate(axes) if letter == last]:
                    result = result & aligned(inputs[mask], axes, leading, place)
        return result

    def attended(self, name, inputs):
        """Where the last axis of a result of weights is not padding: boolean, broadcasts to it."""
        axes = self.axes[name]
        result = np.ones((1,) * len(axes), bool)
        for mask in filter(inputs.__contains__, self.masks):
            *leading, last = self.axes[mask]
            if axes.endswith(last) and set(leading) <= set(axes):
                result = result & aligned(inputs[mask], axes, leading, len(axes) - 1)
        return result

    @property
    def padded_axes(self):
        """The letters of the axes that can be padded."""
        scores = [self.axes[name][-1] for name in self.inputs() if name.startswith("scores")]
        return {*scores, *(letter for mask in self.masks for letter in self.axes[mask][1:])}

    def padded(self, inputs, extra):
        """The same examples in longer sequences, with garbage in all padding, old and new.

        Padded attention weights stay zero: that is what every attention gives.
        """
        garbage, longer = np.random.default_rng(5), {}
        for name, array in inputs.items():
            widths = [(0, extra * (letter in self.padded_axes)) for letter in self.axes[name]]
            longer[name] = np.pad(array, widths)
        for name, array in longer.items():
            if name in self.masks or name.startswith("scores"):
                continue
            if array.dtype == np.float32:
                noise = HUGE * garbage.choice([-1.0, 1e-9, 1.0], array.shape)
            else:
                noise = garbage.choice(inputs[name].ravel(), array.shape)
            inside = np.zeros(array.shape, bool)
            inside[tuple(slice(size) for size in inputs[name].shape)] = True
            inside = inside & self.real(name, longer)
            longer[name] = np.where(inside, array, noise).astype(array.dtype)
        return longer

    def example(self, inputs, b):
        """One example of a batch, without padding."""
        sizes = {}
        for mask in filter(inputs.__contains__, self.masks):
            for axis, letter in enumerate(self.axes[mask][1:]):
                others = tuple(i for i in range(inputs[mask].ndim - 1) if i != axis)
                places = np.flatnonzero(inputs[mask][b].any(axis=others))
                sizes[letter] = max(sizes.get(letter, 1), *(places + 1))
        return {
            name: array[b : b + 1][tuple(slice(sizes.get(a)) for a in self.axes[name])]
            for name, array in inputs.items()
        }


def aligned(mask, axes, leading, place):
    """A mask's array in the shape that broadcasts to an array of `axes`, its last axis at `place`.

    The leading letters of the mask stand in `axes` in the same order.
    """
    places = [*(axes.index(letter) for letter in leading), place]
    shape = [1] * len(axes)
    for size, at in zip(mask.shape, places, strict=True):
        shape[at] = size
    return mask.reshape(shape)


@dataclass(frozen=True)
class Mechanism(Padded):
    """A case of a mechanism: queries read a memory."""

    name: str
    layer: type
    options: dict
    attend: Callable
    weights: dict
    query_size: int = 11
    key_size: int | None = None

    main_inputs = ("query", "value")
    masks = {"value_mask": "value"}
    context, output = "context", "context"
    one_input_suffices, first = True, "value"
    axes = {
        **{"query": "BTQ", "value": "BSV", "key": "BSK", "value_mask": "BS"},
        **{"context": "BTV", "scores": "BTS"},
    }

    def build(self, **options):
        """A built layer with random weights."""
        layer = self.layer(**{**self.options, **options})
        key_size = self.key_size or VALUE_SIZE
        layer.build((None, None, self.query_size), (None, None, VALUE_SIZE), (None, None, key_size))
        return randomise(layer)

    def inputs(self, seed=0, batch=BATCH, steps=STEPS, lengths=LENGTHS):
        """Queries and a memory whose examples have unequal lengths."""
        length = max(lengths)
        arrays = {
            "query": random(seed + 1, batch, steps, self.query_size),
            "value": random(seed + 2, batch, length, VALUE_SIZE),
        }
        if self.key_size:
            arrays["key"] = random(seed + 3, batch, length, self.key_size)
        return arrays | {"value_mask": value_mask(length, lengths)}

    def call(self, layer, inputs, **options):
        """Contexts and scores of whole sequences."""
        inputs = dict(inputs)
        query, value = inputs.pop("query"), inputs.pop("value")
        context, scores = layer(query, value, **inputs, return_attention_scores=True, **options)
        return {"context": context, "scores": scores}

    def run_steps(self, layer, inputs):
        """The same, one query step at a time."""
        memory = layer.prepare_memory(inputs["value"], inputs.get("key"), inputs.get("value_mask"))
        state = layer.initial_state(memory)
        contexts, scores = [], []
        for t in range(inputs["query"].shape[1]):
            context, score, state = layer.step(inputs["query"][:, t], memory, state)
            contexts.append(context)
            scores.append(score)
        return {"context": ops.stack(contexts, 1), "scores": ops.stack(scores, 1)}

    def carried(self, layer, inputs):
        """What search carries between steps: the memory, and the states before and after one."""
        memory = layer.prepare_memory(inputs["value"], inputs.get("key"), inputs.get("value_mask"))
        state = layer.initial_state(memory)
        return memory, state, layer.step(inputs["query"][:, 0], memory, state)[2]

    def oracle(self, weights, inputs):
        """The results in float64."""
        return oracles.mechanism(self.attend, weights, self.options, inputs)

    def self_attention(self, size=VALUE_SIZE):
        """The layer unbuilt, and this case with queries, keys and values of one size."""
        case = Mechanism(self.name, self.layer, self.options, self.attend, self.weights, size)
        return self.layer(**self.options), case

    def of_one_input(self, x, mask):
        """The inputs of self-attention."""
        return {"query": x, "value": x, "value_mask": mask}

    def wrong_inputs(self):
        """Inputs that fit neither each other nor the layer, by what is wrong with them."""
        good = self.inputs()
        mask, value = good["value_mask"], good["value"]
        yield "query without steps", good | {"query": good["query"][:, 0]}
        yield "value without steps", good | {"value": value[:, 0]}
        yield "another batch", good | {"query": good["query"][:2]}
        yield (
            "fewer keys",
            good | {"key": random(0, BATCH, LENGTH - 1, self.key_size or VALUE_SIZE)},
        )
        yield "a shorter mask", good | {"value_mask": mask[:, 1:]}
        yield "a mask of pairs", good | {"value_mask": np.repeat(mask[:, None], STEPS, 1)}
        yield "a mask that is added", good | {"value_mask": np.where(mask, 0, -1e9).astype("f")}
        yield "a query mask of the memory", good | {"query_mask": mask}
        yield "other queries", good | {"query": random(0, BATCH, STEPS, self.query_size + 1)}
        keys = good.get("key", value)
        yield "other keys", good | {"key": random(0, BATCH, LENGTH, keys.shape[2] + 1)}


@dataclass(frozen=True)
class Decoder(Padded):
    """A case of a recurrent decoder: a cell that reads a memory through a mechanism."""

    name: str
    layer: type
    make_cell: Callable
    cells: list  # from the bottom up: kind, units, attribute path
    make_attention: Callable
    attention_options: dict
    attend: Callable
    weights: dict
    options: dict = field(default_factory=dict)
    input_size: int = 2

    main_inputs = ("inputs", "value")
    masks = {"value_mask": "value"}
    context, output = "contexts", "outputs"
    one_input_suffices, first = True, "value"
    axes = {
        **{"inputs": "BTD", "value": "BSV", "value_mask": "BS"},
        **{"outputs": "BTU", "contexts": "BTV", "scores": "BTS"},
        **{f"state_{place}": "BU" for place in range(4)},
        **{"last_context": "BV", "attentional": "BA"},
    }

    def new(self, **options):
        """The layer, not built yet."""
        return self.layer(self.make_cell(), self.make_attention(), **{**self.options, **options})

    def build(self, **options):
        """A built layer with random weights."""
        layer = self.new(**options)
        layer.build((None, None, self.input_size), (None, None, VALUE_SIZE))
        return randomise(layer)

    @property
    def state_sizes(self):
        """Widths of the cell's flat states."""
        return state_sizes([{"kind": kind, "units": units} for kind, units, _ in self.cells])

    def inputs(self, seed=0, batch=BATCH, steps=STEPS, lengths=LENGTHS):
        """Inputs, a memory whose examples have unequal lengths, and first states."""
        length = max(lengths)
        arrays = {
            "inputs": random(seed + 1, batch, steps, self.input_size),
            "value": random(seed + 2, batch, length, VALUE_SIZE),
            "value_mask": value_mask(length, lengths),
        }
        for place, size in enumerate(self.state_sizes):
            arrays[f"state_{place}"] = random(seed + 3 + place, batch, size, scale=0.5)
        return arrays

    def _first_states(self, inputs):
        return (
            [inputs[f"state_{i}"] for i in range(len(self.state_sizes))]
            if "state_0" in inputs
            else None
        )

    def call(self, layer, inputs, **options):
        """Outputs, contexts, scores and last states of whole sequences."""
        outputs, contexts, scores, state = layer(
            inputs["inputs"],
            inputs["value"],
            initial_state=self._first_states(inputs),
            value_mask=inputs.get("value_mask"),
            return_attention_scores=True,
            return_state=True,
            return_context=True,
            **options,
        )
        return self._results(outputs, contexts, scores, state)

    def _results(self, outputs, contexts, scores, state):
        results = {"outputs": outputs, "contexts": contexts, "scores": scores}
        for place, last in enumerate(state["cell"]):
            results[f"state_{place}"] = last
        results["last_context"] = state["context"]
        if self.options.get("input_feeding"):
            results["attentional"] = state["attentional"]
        return results

    def run_steps(self, layer, inputs):
        """The same, one step at a time."""
        memory = layer.prepare_memory(inputs["value"], inputs.get("value_mask"))
        state = layer.initial_state(memory, self._first_states(inputs))
        parts = []
        for t in range(inputs["inputs"].shape[1]):
            output, scores, state = layer.step(inputs["inputs"][:, t], memory, state)
            parts.append((output, state["context"], scores))
        sequences = (ops.stack(part, 1) for part in zip(*parts, strict=True))
        return self._results(*sequences, state)

    def carried(self, layer, inputs):
        """What search carries between steps: the memory, and the states before and after one."""
        memory = layer.prepare_memory(inputs["value"], inputs.get("value_mask"))
        state = layer.initial_state(memory, self._first_states(inputs))
        return memory, state, layer.step(inputs["inputs"][:, 0], memory, state)[2]

    def oracle(self, weights, inputs):
        """The results in float64."""
        of_attention = {
            name.removeprefix("attention."): array
            for name, array in weights.items()
            if name.startswith("attention.")
        }
        own = {name: array for name, array in weights.items() if "." not in name}
        cells = []
        for kind, units, path in self.cells:
            of_cell = {
                n.rpartition(".")[2]: a for n, a in weights.items() if n.startswith(path + ".")
            }
            cells.append({"kind": kind, "units": units, **of_cell})
        states = [
            np.float64(inputs.get(f"state_{place}", np.zeros((len(inputs["inputs"]), size))))
            for place, size in enumerate(self.state_sizes)
        ]
        options = {**self.options, "attention": self.attention_options}
        results = oracles.decoder(
            self.attend, own | {"attention": of_attention}, options, cells, inputs, states
        )
        results |= {f"state_{place}": last for place, last in enumerate(results.pop("states"))}
        if self.options.get("input_feeding"):
            results["attentional"] = results["outputs"][:, -1]
        return results

    def self_attention(self, size=VALUE_SIZE):
        """The layer unbuilt, and this case with inputs of the memory's size."""
        case = Decoder(**{**self.__dict__, "input_size": size})
        return self.new(), case

    def of_one_input(self, x, mask):
        """The inputs of a decoder that reads its own inputs."""
        return {"inputs": x, "value": x, "value_mask": mask}

    def wrong_inputs(self):
        """Inputs that fit neither each other nor the layer, by what is wrong with them."""
        good = self.inputs()
        mask, value, x = good["value_mask"], good["value"], good["inputs"]
        yield "inputs without steps", good | {"inputs": x[:, 0]}
        yield "value without steps", good | {"value": value[:, 0]}
        yield "another batch", good | {"inputs": x[:2]}
        yield "a shorter mask", good | {"value_mask": mask[:, 1:]}
        yield "a mask of pairs", good | {"value_mask": np.repeat(mask[:, None], STEPS, 1)}
        yield "a mask that is added", good | {"value_mask": np.where(mask, 0, -1e9).astype("f")}
        yield "other inputs", good | {"inputs": random(0, BATCH, STEPS, self.input_size + 1)}
        yield "another memory", good | {"value": random(0, BATCH, LENGTH, VALUE_SIZE + 1)}
        yield "a state too wide", good | {"state_0": random(0, BATCH, self.state_sizes[0] + 1)}
        yield "a state of another batch", good | {"state_0": good["state_0"][:2]}
