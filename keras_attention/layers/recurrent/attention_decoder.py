"""A recurrent decoder with attention: a cell, a mechanism, and the order in which they act."""

import copy
import itertools
from typing import Any

import keras
from keras import ops, tree

from ...ops.loops import flatten, functional, packed, run_loop, where_real
from ...ops.masks import check_mask, for_batch, last_real, zero_masked
from ...ops.positions import gather_windows
from ...ops.shapes import joined
from ...ops.types import at_least_float32, is_float
from ...ops.vjp import variables_read
from .. import arguments
from ..attention.base import AttentionMechanism
from ..lora_and_quantization import AdaptableKernels
from .decoder_step import decoder_step
from .recurrence import DecoderCell
from .whole_loop import whole_loop


@keras.saving.register_keras_serializable("keras_attention")
class AttentionDecoder(AdaptableKernels, keras.layers.Layer):
    """Run a recurrent cell over target inputs, attending to a memory at every step.

    The query is the cell's output, which of `GRUCell` and `LSTMCell` is their state `h`:

    - `query="previous"` (Bahdanau): that **before** the step; the context goes into the cell
      beside the input: `c_t = attend(s_{t-1})`, `s_t = cell([x_t; c_t], s_{t-1})`.
      The output is `s_t`, or with `attention_size` `f(W [c_t; s_t])`.
    - `query="current"` (Luong): that **after** the step; the output is the attentional vector:
      `h_t = cell(x_t, h_{t-1})`, `c_t = attend(h_t)`, `o_t = f(W [c_t; h_t])`. With
      `input_feeding` the cell reads `[x_t; o_{t-1}]`, `o_0 = 0`.

    `f` is `attention_activation`, tanh as published.

    The first query `s_0` is the first value of the state that the cell returns as its output. Some
    cells return none, such as one with a projection or a residual: then `s_0` is the first state of
    the top cell, or zeros where that has another size than the output.

    At a masked step, before the words or after them, the decoder stands still, as
    `keras.layers.RNN` does: all states stay, and the last output is repeated. Weights and contexts
    are zero there.

    With a `sampling_probability`, training is by scheduled sampling: at each step after the first,
    an example's input is replaced, with that probability, by one that its last output gives.

    Weights: those of `cell` and `attention`; and with an attentional vector `attentional_kernel`
    `W (Dv + U, attention_size)`, which `enable_lora` and `quantize` adapt.

    Args:
        cell: Any Keras RNN cell, `keras.layers.StackedRNNCells` included; a list of cells makes a
            stack. The top cell's output is the query.
        attention: An `AttentionMechanism`, such as `BahdanauAttention(units)`.
        query: `"previous"` or `"current"`.
        attention_size: Size of the attentional vector. Default: with `"current"` the size of the
            cell's output; with `"previous"` there is none.
        attention_activation: Activation of the attentional vector, any of Keras', or `None` for
            none.
        input_feeding: Whether the attentional vector joins the next step's input, with `"current"`
            only.
        sampling_probability: Probability of scheduled sampling: a number, or a function of the
            number of training calls so far, such as a `keras.optimizers.schedules.PolynomialDecay`.
            It is kept in the integer weight `sampling_step`.
        next_inputs: Function of an output `(B, O)` that returns the next input `(B, E)`; or a pair
            of layers `(project, embed)`: a token is drawn from the softmax of `project(output)`,
            and embedded. Default: the output itself.
        seed: Seed of scheduled sampling.
        **kwargs: Arguments of every Keras layer.

    Call arguments:
        inputs: Target inputs `(B, T, E)`, most often embedded words.
        value: Memory `(B, S, Dv)`, or the dictionary of tensors that the mechanism takes, as
            `HierarchicalAttention` does. Default: the inputs themselves.
        initial_state: The cell's states, a tensor or a flat list in the cell's order (LSTM: h, c;
            stacks: one cell after the other); or a state that this layer returned. Default: zeros.
        value_mask: Boolean `(B, S)`, True = attend; of a dictionary, one with the same keys.
        return_attention_scores, return_state, return_context: Whether to return the weights of
            all steps, the state after the last one, the contexts of all steps.
        inputs_mask: Boolean `(B, T)`, True = a real step. Default: the mask that the inputs carry,
            which the outputs carry too.
        training: Whether dropout applies.

    Returns:
        Outputs `(B, T, O)`; where more is asked for, a tuple: outputs, contexts `(B, T, Dv)`,
        weights `(B, T, S)`, state. The state is a dictionary: `"cell"` a list of the cell's states,
        `"context"` `(B, Dv)`, `"attention"` the mechanism's state, with input feeding
        `"attentional"` `(B, O)`, and with `"previous"` and a cell whose output is none of its
        states `"output"`, that output. It is the state after the last real step.

    Raises:
        ValueError: Where arguments do not go together, or shapes do not fit.

    Reference:
        Bahdanau, Cho and Bengio 2015, section 3.1 and appendix A.1.2; Luong, Pham and Manning
        2015, section 3, equation 5, and section 3.3 (input feeding). Scheduled sampling: Bengio,
        Vinyals, Jaitly and Shazeer 2015, section 2.4.

    Example:

    ```python
    import keras
    import numpy as np
    from keras_attention.layers import AttentionDecoder, BahdanauAttention

    decoder = AttentionDecoder(keras.layers.GRUCell(16), BahdanauAttention(16))
    words, memory = np.random.normal(size=(2, 5, 8)), np.random.normal(size=(2, 7, 12))
    states, scores = decoder(words, memory, return_attention_scores=True)
    assert tuple(states.shape) == (2, 5, 16) and tuple(scores.shape) == (2, 5, 7)

    # The same, one step at a time, as search needs it.
    prepared = decoder.prepare_memory(memory)
    state = decoder.initial_state(prepared)
    output, scores, state = decoder.step(words[:, 0], prepared, state)
    np.testing.assert_allclose(np.asarray(output), np.asarray(states)[:, 0], atol=1e-5)
    ```
    """

    def __init__(
        self,
        cell: Any,
        attention: AttentionMechanism,
        query: str = "previous",
        attention_size: int | None = None,
        input_feeding: bool = False,
        attention_activation: Any = "tanh",
        sampling_probability: Any = 0.0,
        next_inputs: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        cells = cell if isinstance(cell, (list, tuple)) else [cell]
        are_cells = [hasattr(one, "call") and hasattr(one, "state_size") for one in cells]
        layer = next((one for one in cells if isinstance(one, keras.layers.RNN)), None)
        if layer is not None:
            kind = type(layer.cell).__name__
            given = f"{type(layer).__name__}({getattr(layer, 'units', '…')})"
            instead = "its `cell`"
            if hasattr(keras.layers, kind) and hasattr(layer, "units"):
                instead = f"`keras.layers.{kind}({layer.units})`"
            raise ValueError(
                f"`cell` must be one step of a recurrent layer, and {given} runs all of them: pass "
                f"{instead}. Received: cell={cell}"
            )
        if not cells or not all(are_cells):
            raise ValueError(
                "`cell` must be a Keras RNN cell (with `call` and `state_size`), such as "
                f"keras.layers.GRUCell(256), or a list of them. Received: cell={cell}"
            )
        cell = keras.layers.StackedRNNCells(list(cells)) if cells is cell else cell
        if not isinstance(attention, AttentionMechanism):
            raise ValueError(
                "`attention` must be an attention mechanism, such as BahdanauAttention(256). "
                f"Received: attention={attention}"
            )
        arguments.check_choice("query", query, ("previous", "current"))
        if arguments.check_flag("input_feeding", input_feeding) and query == "previous":
            raise ValueError(
                "`input_feeding` goes with query='current': with query='previous' the context is "
                "fed to the cell already. Received: query='previous', input_feeding=True"
            )
        if attention_size is not None:
            attention_size = arguments.check_integer("attention_size", attention_size)
        attention_activation = keras.activations.get(attention_activation)
        is_default = attention_activation is keras.activations.tanh
        if query == "previous" and attention_size is None and not is_default:
            raise ValueError(
                "`attention_activation` belongs to an attentional vector, which query='previous' "
                "has with an `attention_size` only. Received: query='previous', "
                f"attention_size=None, attention_activation={attention_activation}"
            )
        self.cell = cell
        self.attention = attention
        self.query = query
        self.attention_size = attention_size
        self.input_feeding = input_feeding
        self.attention_activation = attention_activation
        self._set_sampling(sampling_probability, next_inputs, seed)
        self.supports_masking = True

    def _set_sampling(self, sampling_probability, next_inputs, seed):
        self.has_schedule = callable(sampling_probability)
        if not self.has_schedule:
            name = "sampling_probability"
            arguments.check_number(name, sampling_probability, maximum=1.0)
        self.samples = self.has_schedule or sampling_probability > 0
        is_pair = isinstance(next_inputs, (list, tuple)) and len(next_inputs) == 2
        parts = next_inputs if is_pair else [next_inputs]
        if next_inputs is not None and not (self.samples and all(map(callable, parts))):
            raise ValueError(
                "`next_inputs` must be a function of the last output or a pair (project, embed) of "
                "layers, and belongs to a `sampling_probability`. Received: next_inputs="
                f"{next_inputs}, sampling_probability={sampling_probability}"
            )
        self.sampling_probability = sampling_probability
        self.next_inputs = tuple(next_inputs) if is_pair else next_inputs
        self.seed = arguments.check_seed(seed)
        if self.samples:
            self._sampling_seed = keras.random.SeedGenerator(seed)

    @property
    def output_size(self) -> int:
        """Size `O` of the decoder's output."""
        return self.attention_size or self._cell.output_size

    @property
    def _cell(self) -> DecoderCell:
        return DecoderCell(self.cell, self.compute_dtype)

    @property
    def has_attentional_vector(self) -> bool:
        """Whether the output is `f(W [c; h])` and not the cell's own."""
        return self.query == "current" or self.attention_size is not None

    def build(self, inputs_shape, value_shape=None):
        value_shape = inputs_shape if value_shape is None else value_shape
        _check_shapes(inputs_shape, value_shape)
        batch_size, self._input_size = inputs_shape[0], inputs_shape[-1]
        output_size = self._cell.output_size
        if not self.attention.built:
            self.attention.build((batch_size, None, output_size), value_shape)
        if not self.cell.built:
            self.cell.build((batch_size, self._cell_input_size()))
            self.cell.built = True
        if self.has_attentional_vector:
            shape = (self.attention.value_size + output_size, self.output_size)
            self._make_weight("attentional_kernel", shape, "glorot_uniform")
        if self.samples:
            self._build_sampling()
        self._output_state = self._cell.output_state(self._cell_input_size())
        self.restore_quantization()

    def _build_sampling(self):
        # Not symbolic, as calls of layers with symbols would become parts of the user's model.
        following = self._following(ops.zeros((1, self.output_size), self.compute_dtype))
        if following.shape[-1] != self._input_size:
            raise ValueError(
                f"`next_inputs` must make inputs of {self._input_size} features of the outputs; "
                "without it, inputs and outputs must have one size. Received: next_inputs="
                f"{self.next_inputs}, which gives {following.shape[-1]} features"
            )
        if self.has_schedule:
            # Each replica has its own: to update a shared one, replicas wait for each other.
            alone = {"aggregation": "only_first_replica", "synchronization": "on_read"}
            options = {"dtype": "int32", "trainable": False, "name": "sampling_step", **alone}
            self.sampling_step = keras.Variable("zeros", (), **options)

    def _cell_input_size(self):
        if self.input_feeding:
            return self._input_size + self.output_size
        return self._input_size + (self.attention.value_size if self.query == "previous" else 0)

    def prepare_memory(self, value: Any, mask: Any = None, training: bool | None = None) -> dict:
        """Compute once what every step reads of the memory `(B, S, Dv)`."""
        arguments.check_built(self, "inputs_shape, value_shape")
        return self.attention.memory_from(value, mask, training)

    def initial_state(self, memory: dict, initial_state: Any = None) -> dict:
        """Return the state before the first step; `initial_state` is that of the call."""
        if isinstance(initial_state, dict):
            # Keras hands a call's inputs over in the compute dtype: sums go on in their own.
            own, given = self.attention.initial_state(memory), initial_state["attention"]
            own = tree.map_structure(lambda part, at: ops.cast(at, part.dtype), own, given)
            return {**initial_state, "attention": own}
        value = memory["value"]
        batch_size = ops.shape(value)[0]
        state = {
            "cell": self._cell.initial_states(batch_size, initial_state),
            "context": ops.zeros((batch_size, value.shape[2]), self.compute_dtype),
            "attention": self.attention.initial_state(memory),
        }
        if self.input_feeding:
            state["attentional"] = ops.zeros((batch_size, self.output_size), self.compute_dtype)
        if self._keeps_output:
            first = state["cell"][self._cell.first_of_top]
            if first.shape[1] != self._cell.output_size:
                shape = (batch_size, self._cell.output_size)
                first = ops.zeros(shape, self.compute_dtype)
            state["output"] = first
        return state

    @property
    def _keeps_output(self) -> bool:
        """Whether the next query is no state of the cell, and is carried beside them."""
        return self.query == "previous" and self._output_state is None

    def step(self, inputs: Any, memory: dict, state: dict) -> tuple[Any, Any, dict]:
        """Decode one step of inputs `(B, E)`, over a prepared memory and with the last state.

        Returns:
            The output `(B, O)`, the weights `(B, S)`, and the state after the step.
        """
        inputs = self.cast(inputs)
        arguments.check_step("inputs", inputs.shape, self._input_size)
        arguments.check_parts("memory", memory, "`prepare_memory`")
        names = ["cell", "context", "attention"]
        names += ["attentional"] * self.input_feeding + ["output"] * self._keeps_output
        arguments.check_parts("state", state, "`initial_state`", **dict.fromkeys(names))
        return self._advance(inputs, memory, state)

    def call(
        self,
        inputs: Any,
        value: Any = None,
        initial_state: Any = None,
        value_mask: Any = None,
        return_attention_scores: bool = False,
        return_state: bool = False,
        return_context: bool = False,
        inputs_mask: Any = None,
        training: bool | None = None,
        mask: Any = None,
    ) -> Any:
        value, value_mask, inputs_mask = self._inputs(
            inputs, value, value_mask, initial_state, inputs_mask, mask
        )
        memory = self.prepare_memory(value, value_mask, training=training)
        state = self.initial_state(memory, initial_state)
        inputs = zero_masked(self.cast(inputs), inputs_mask)  # no NaN in it reaches a gradient
        flags = (True, return_context, return_attention_scores, return_state)
        names = list(itertools.compress(("outputs", "contexts", "scores", "state"), flags))
        wanted = {*names, "scores"} if self.attention.has_sequence_loss else set(names)
        found = self._run(inputs, memory, state, wanted, training, inputs_mask)
        if inputs_mask is not None:
            found = _standing_still(found, inputs_mask)
        self.attention.add_sequence_loss(found.get("scores"), inputs_mask, training)
        results = tuple(found[name] for name in names)
        return results if len(results) > 1 else results[0]

    def _run(self, inputs, memory, state, wanted, training, mask=None):
        """Run all steps; return what is wanted. The memory is a constant of the loop, no state."""
        if inputs.shape[1] == 0:  # Keras' loop needs a step: take one, and give none of it
            inputs = ops.zeros((ops.shape(inputs)[0], 1, inputs.shape[2]), inputs.dtype)
            found = self._run(inputs, memory, state, wanted, training)
            found.pop("state", None)
            return {name: part[:, :0] for name, part in found.items()} | {"state": state}
        one_dtype = self.compute_dtype == self.attention.compute_dtype
        activation = self.attention_activation if self.has_attentional_vector else None
        parts = self.cell, self.attention, memory, state, activation
        samples = bool(training) and self.samples
        loop = whole_loop(*parts) if one_dtype and not samples else None
        masks = [{} for _ in self._cell.cells]
        if training:
            masks = self._cell.draw_dropout(ops.shape(inputs)[0], self._cell_input_size())
        if loop is None:
            found = self._stepwise(inputs, memory, state, wanted, masks, training, mask)
        else:
            of_inputs = [own.get("inputs") for own in masks]
            options = (self.query, self._kernel(), of_inputs, wanted, training is not False)
            found = loop(inputs, state, *options, mask)
        self._cell.forget_dropout()
        return found

    def _stepwise(self, inputs, memory, state, wanted, masks, training, mask=None):
        """Run all steps one by one: any cell, any mechanism, with scheduled sampling.

        `masks` are those of the cells' dropout.
        """
        size, sequences = inputs.shape[2], sorted(wanted - {"state"})
        columns, first = [inputs], state
        if mask is not None:
            columns.append(ops.cast(ops.expand_dims(mask, 2), inputs.dtype))
        samples = bool(training) and self.samples
        if samples:
            columns.append(ops.cast(self._draw_steps(inputs, mask), inputs.dtype))
            zeros = ops.zeros((ops.shape(inputs)[0], self.output_size), self.compute_dtype)
            first = {**state, "last_output": zeros}
        weights, known = list(self.weights), {id(weight) for weight in self.weights}
        seeds = [v for v in self.non_trainable_variables if id(v) not in known]
        if samples:  # a function may read the variables of layers that are not this layer's
            known |= {id(seed) for seed in seeds}
            read, _ = variables_read(lambda: self._following(zeros[:1]))
            others = [v for v in read if id(v) not in known]
            weights += [v for v in others if is_float(v)]
            seeds += [v for v in others if not is_float(v)]
        count = len(flatten(first))

        def run(x, before, memory):
            inputs = x[:, :size]
            if samples:
                following = ops.cast(self._following(before.pop("last_output")), inputs.dtype)
                inputs = ops.where(x[:, -1:] > 0.5, following, inputs)
            output, scores, after = self._advance(
                inputs, memory, before, "scores" in wanted, training
            )
            return output, scores, {**after, "last_output": output} if samples else after

        advance = functional(run, [*weights, *seeds])

        def step(x, carried, given):
            before = list(carried[:count])
            values = [*given["weights"], *carried[count:]]
            with self._cell.with_dropout(given["masks"]):
                found, values = advance(values, x, packed(first, before), given["memory"])
            output, scores, after = found
            results = {"outputs": output, "contexts": after["context"], "scores": scores}
            after = flatten(after)
            if mask is not None:
                after = where_real(x[:, size] > 0.5, after, before)
            return [results[name] for name in sequences], [*after, *values[len(weights) :]]

        given = {"weights": [each.value for each in weights], "memory": memory, "masks": masks}
        carried = [*flatten(first), *(seed.value for seed in seeds)]
        inputs = joined(columns, 2)
        outputs, carried = run_loop(step, inputs, carried, given)
        for seed, value in zip(seeds, carried[count:], strict=True):
            seed.assign(value)
        found = dict(zip(sequences, outputs, strict=True))
        last = packed(first, carried[:count])
        return found | {"state": {name: last[name] for name in state}}

    def _draw_steps(self, inputs, mask):
        """Return at which steps the last output is read, `(B, T, 1)`; at no first real step."""
        probability = self.sampling_probability
        if self.has_schedule:
            probability = probability(ops.convert_to_tensor(self.sampling_step))
            self.sampling_step.assign_add(1)
        shape = ops.shape(inputs)[:2]
        drawn = keras.random.uniform(shape, dtype="float32", seed=self._sampling_seed)
        real = ops.ones(shape, "int32") if mask is None else ops.cast(mask, "int32")
        has_last = ops.cumsum(real, axis=1) > real
        return ops.expand_dims((drawn < ops.cast(probability, "float32")) & has_last, 2)

    def _following(self, output):
        """Return the inputs `(B, E)` that follow outputs `(B, O)`."""
        if not isinstance(self.next_inputs, tuple):
            return output if self.next_inputs is None else self.next_inputs(output)
        project, embed = self.next_inputs
        logits = at_least_float32(project(output))
        return embed(keras.random.categorical(logits, 1, seed=self._sampling_seed)[:, 0])

    def _advance(self, inputs, memory, state, want_scores=True, training=False):
        """Take one step with the cell and the mechanism themselves."""

        def run_cell(inputs, fed, states):
            if fed is not None:
                inputs = ops.concatenate([inputs, fed], axis=-1)
            return self._cell(inputs, states, training)

        def attend(query, state):
            context, scores, after = self.attention.step(query, memory, state, want_scores)
            return self.cast(context), None if scores is None else self.cast(scores), after

        index = None if self._keeps_output else self._output_state
        vector = self._kernel(), self.attention_activation
        return decoder_step(self.query, inputs, state, run_cell, attend, index, *vector)

    def _kernel(self):
        """Return the kernel of the attentional vector, or `None`."""
        return self.cast(self.attentional_kernel) if self.has_attentional_vector else None

    def _inputs(self, inputs, value, value_mask, initial_state, inputs_mask, mask):
        """Return the value and the masks of value and inputs, from any way to give them."""
        inputs_mask = mask if inputs_mask is None else inputs_mask
        if value is None:
            value, value_mask = inputs, inputs_mask if value_mask is None else value_mask
        _check_shapes(inputs.shape, tree.map_structure(lambda part: tuple(part.shape), value))
        _check_value_mask(value, value_mask)
        check_mask(inputs_mask, tuple(inputs.shape[:2]), "inputs_mask")
        inputs_mask = for_batch(inputs_mask, inputs)
        if self.built:
            arguments.check_features("inputs", inputs.shape, self._input_size)
            name, read = ("words", value["words"]) if isinstance(value, dict) else ("value", value)
            arguments.check_features(name, read.shape, self.attention.value_size)
        if initial_state is not None and not isinstance(initial_state, dict):
            self._cell.check_states(initial_state, inputs.shape[0])
        return value, value_mask, inputs_mask

    # Keras' bookkeeping.

    def compute_output_shape(self, inputs_shape, value_shape=None, initial_state_shape=None):
        _check_shapes(inputs_shape, inputs_shape if value_shape is None else value_shape)
        if self.built:
            arguments.check_features("inputs", inputs_shape, self._input_size)
        if value_shape is not None:
            query_shape = (*inputs_shape[:2], self._cell.output_size)
            self.attention.compute_output_shape(query_shape, value_shape)
        return (*inputs_shape[:2], self.output_size)

    @arguments.for_own_call
    def compute_output_spec(self, *args, **kwargs):
        of = arguments.call_arguments(self, args, kwargs)
        masks = (of.value_mask, of.initial_state, of.inputs_mask, of.mask)
        value, *_ = self._inputs(of.inputs, of.value, *masks)
        value_shape = tree.map_structure(lambda part: tuple(part.shape), value)
        query_shape = (*of.inputs.shape[:2], self._cell.output_size)
        context, scores = self.attention.compute_output_shape(
            query_shape, value_shape, return_attention_scores=True
        )
        shapes = [self.compute_output_shape(of.inputs.shape, value_shape)]
        shapes += [context] if of.return_context else []
        shapes += [scores] if of.return_attention_scores else []
        results = arguments.specs(shapes, self.compute_dtype)
        if not of.return_state:
            return results
        cell, read, fed, output = tree.map_structure(
            lambda size: keras.KerasTensor((of.inputs.shape[0], size), self.compute_dtype),
            [self._cell.state_sizes, context[2], self.output_size, self._cell.output_size],
        )
        memory = self.attention.memory_spec(value)
        state = {"cell": cell, "context": read, "attention": self.attention.initial_state(memory)}
        state |= {"attentional": fed} if self.input_feeding else {}
        state |= {"output": output} if self._keeps_output else {}
        return (*results, state) if len(shapes) > 1 else (results, state)

    def get_config(self):
        config = super().get_config()
        is_pair = isinstance(self.next_inputs, tuple)
        for part, given in zip(
            self.next_inputs if is_pair else [self.next_inputs],
            config["next_inputs"] if is_pair else [config["next_inputs"]],
            strict=True,
        ):
            # A model most often has these layers, too. Keras marks the second of two configurations
            # of one layer, and the first one where it was not copied, as this one will be.
            if isinstance(part, keras.layers.Layer):
                given["shared_object_id"] = id(part)
        return config

    @classmethod
    def from_config(cls, config):
        parts = {
            # A copy: the `from_config` of Keras' stack takes its cells out of what it is given.
            name: keras.saving.deserialize_keras_object(copy.deepcopy(config[name]))
            for name in ("cell", "attention", "sampling_probability", "next_inputs")
        }
        return cls(**{**config, **parts})


def _standing_still(found, mask):
    """Return the results of all steps where a masked one repeats the last output."""
    last, is_any = last_real(mask)
    held = gather_windows(found["outputs"], ops.expand_dims(last, 2))[:, :, 0]
    is_any = ops.expand_dims(is_any, 2)
    found = {**found, "outputs": ops.where(is_any, held, ops.zeros_like(held))}
    zeroed = [name for name in ("contexts", "scores") if name in found]
    return found | {name: zero_masked(found[name], mask) for name in zeroed}


def _check_value_mask(value, mask):
    """Raise a ValueError where a mask does not fit; both may be dictionaries of the same keys."""
    if not isinstance(value, dict):
        return check_mask(mask, tuple(value.shape[:-1]), "value_mask")
    mask = {} if mask is None else mask
    if not isinstance(mask, dict) or not set(mask) <= set(value):
        names = sorted(mask) if isinstance(mask, dict) else type(mask).__name__
        raise ValueError(
            "`value_mask` must be a dictionary with masks of the parts that `value` has, "
            f"{sorted(value)}. Received: {names}"
        )
    for name, part in mask.items():
        check_mask(part, tuple(value[name].shape[:-1]), f"value_mask[{name!r}]")


def _check_shapes(inputs, value):
    """Raise a ValueError unless inputs and memory are batches of sequences of one batch size."""
    if isinstance(value, dict):  # the mechanism checks all axes but the first
        parts = {
            name: (shape, ", ".join(["batch", *(f"{name} {i}" for i in range(1, len(shape)))]))
            for name, shape in value.items()
        }
    else:
        parts = {"value": (value, arguments.MEMORY)}
    arguments.check_shapes(inputs=(inputs, arguments.SEQUENCE), **parts)
