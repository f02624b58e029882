"""The decoder's whole loop as one function with a gradient of its own.

A backend's own gradient multiplies out every weight's gradient, and adds to that of the whole
memory, at every step. Here the backward loop yields only the gradients of each step's products. The
gradients of weights and memory are then one product each over the whole sequence. Those of a step
are derived, from the attention's score (`AttentionSteps`) and the cells' `Equations`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops, tree

from ...ops.loops import (
    as_floats,
    cast_to,
    dtypes_of,
    flatten,
    run_given,
    run_steps,
    swap_time,
    where_real,
    with_loop_gradient,
)
from ...ops.masks import last_real, zero_masked
from ...ops.positions import gather_windows
from ..attention.attention_steps import AttentionSteps
from .decoder_step import decoder_step
from .recurrence import DecoderCell, equations_of, input_bias, outer, recurrent_weights, shift

LOCAL_DERIVATIVES = {
    keras.activations.tanh: lambda outputs: 1 - outputs**2,
    keras.activations.linear: ops.ones_like,
}
"""Of an attentional vector's activations, from their outputs."""


def whole_loop(
    cell: Any, attention: Any, memory: dict, state: dict, activation: Callable | None = None
) -> "WholeLoop | None":
    """Return a loop that computes what the decoder's steps compute, or `None`.

    It takes cells with equations, every mechanism whose steps can be derived from its score, and an
    attentional vector that is linear or has a tanh as its `activation`.
    """
    if activation not in (None, *LOCAL_DERIVATIVES):
        return None
    view = DecoderCell(cell, attention.compute_dtype)
    if view.cells != [cell] and type(cell).call is not keras.layers.StackedRNNCells.call:
        return None
    equations = [equations_of(one) for one in view.cells]
    if None in equations or not getattr(attention, "has_derived_steps", False):
        return None
    if any(layer.compute_dtype != attention.compute_dtype for layer in [cell, *view.cells]):
        return None
    steps = AttentionSteps(attention, memory, state["attention"])
    return None if steps.has_side_effects else WholeLoop(view, equations, steps, activation)


@dataclass
class WholeLoop:
    """The loop of one call of a decoder."""

    view: DecoderCell
    equations: list
    steps: AttentionSteps
    activation: Callable | None  # of the attentional vector

    def __call__(self, inputs, state, order, kernel, masks, wanted, training, real=None):
        """Run all steps; return a dictionary of at least what is wanted.

        `kernel` makes the attentional vector; `masks` are dropout's, of the cells' inputs. Without
        `training` less is saved for a gradient. Where `real` `(B, T)` is False, all states stay.
        """
        self.order = order
        self.training = training
        self.wanted = {*wanted, "contexts"} if "state" in wanted else set(wanted)
        projected, cells = self._cells(inputs, masks)
        first = as_floats({name: part for name, part in state.items() if name != "context"})
        given = {
            "projected": swap_time(projected),
            "cells": cells,
            "attention": self.steps.given,
            "first": first,
        }
        if kernel is not None:
            given["vector"] = kernel
        if real is not None:
            given["real"] = swap_time(as_floats(real))
        results = with_loop_gradient(self._forward, self._backward, given, self._plain)
        results = {
            name: part if name == "state" else swap_time(part) for name, part in results.items()
        }
        if "state" in wanted:
            results["state"] = cast_to(results["state"], dtypes_of({n: state[n] for n in first}))
            results["state"]["context"] = _last_context(results["contexts"], state, real)
        return results

    def _cells(self, inputs, masks):
        """Return the products of inputs and first kernel, and each cell's weights."""
        dtype, size, cells = self.view.dtype, inputs.shape[2], []
        for cell, mask in zip(self.view.cells, masks, strict=True):
            weights, bias = recurrent_weights(cell, dtype), input_bias(cell, dtype)
            kernel = ops.cast(cell.kernel, dtype)
            if not cells:
                if mask is not None:
                    inputs, mask = inputs * ops.expand_dims(mask[:, :size], 1), mask[:, size:]
                projected = ops.matmul(inputs, kernel[:size])
                projected = projected if bias is None else projected + bias
                kernel, bias = kernel[size:], None
            if bias is not None:
                weights["bias"] = bias
            if kernel.shape[0] > 0:
                weights |= {"feed": kernel} | ({} if mask is None else {"dropout": mask})
            cells.append(weights)
        return projected, cells

    def _states(self, state):
        """Return the states of each cell, a list of lists."""
        left = list(state["cell"])
        return [[left.pop(0) for _ in range(one.state_count)] for one in self.equations]

    @property
    def _query_index(self):
        """Index of the top cell's output among the states, which is the query of `"previous"`."""
        return sum(one.state_count for one in self.equations[:-1])

    # Forward.

    def _plain(self, given):
        return self._forward(given, save=False, again=True)[0]

    def _forward(self, given, save=None, again=False):
        """Return the results, and what the backward pass needs."""
        save = self.training if save is None else save

        def step(index, before, given):
            saved = {"local": [], "lefts": []}

            def run_cell(products, fed, states):
                after = []
                own_states = zip(self.equations, given["cells"], self._states(before), strict=True)
                for equations, cell, own in own_states:
                    if fed is not None:
                        fed = fed * cell["dropout"] if "dropout" in cell else fed
                        products = products + ops.matmul(fed, cell["feed"])
                    products = products + cell.get("bias", 0)
                    inputs = ops.split(products, len(equations.inputs), axis=1)
                    own, values, _ = equations.step(inputs, own, cell)
                    after.append(own)
                    if save:
                        lefts = {n: values[n] for n in equations.products if n != "read"}
                        saved["local"].append(equations.local_derivatives(values))
                        saved["lefts"].append(lefts)
                    fed, products = own[0], 0
                return fed, flatten(after)

            def attend(hidden, state):
                query = self.steps.project(hidden, given["attention"])
                context, weights, state, saved["attention"] = self.steps.attend(
                    query, state, given["attention"]
                )
                return context, weights, state

            output, weights, after = decoder_step(
                self.order,
                given["projected"][index],
                before,
                run_cell,
                attend,
                self._query_index,
                given.get("vector"),
                self.activation,
            )
            outputs = {"contexts": after.pop("context")}
            if "real" in given:
                after = where_real(given["real"][index], after, before)
            outputs["outputs"] = after.get("attentional", output)
            if save:  # the weights too
                outputs["saved"] = {**saved, "cells": self._states(after)}
            else:
                outputs["scores"] = weights
            return outputs, after

        count = ops.shape(given["projected"])[0]
        sequences = ("projected", "real")
        outputs, last = run_given(step, count, given["first"], given, sequences, again)
        saved = None
        if save:
            saved = outputs | outputs.pop("saved")
            outputs["scores"] = saved["attention"]["weights"]
        outputs["state"] = last
        return {name: outputs[name] for name in self.wanted}, saved

    # Backward.

    def _backward(self, given, results, saved, upstream):
        """Return the gradients, nested as `given`."""
        saved = self._forward(given, save=True)[1] if saved is None else saved
        first, attention = given["first"], given["attention"]
        befores = [
            list(map(shift, own, after))
            for own, after in zip(self._states(first), saved["cells"], strict=True)
        ]
        local = saved["local"]
        recurrent = [ops.transpose(cell["recurrent"]) for cell in given["cells"]]
        feeds = [ops.transpose(cell["feed"]) if "feed" in cell else None for cell in given["cells"]]
        vector = ops.transpose(given["vector"]) if "vector" in given else None
        hidden = [after[0] for after in saved["cells"]]
        queries = befores[-1][0] if self.order == "previous" else hidden[-1]
        steps = {"local": local, "attention": saved["attention"], "hidden": queries}
        if vector is not None:
            steps["vector"] = LOCAL_DERIVATIVES[self.activation](saved["outputs"])
        d_last = upstream.pop("state", None)
        steps["upstream"] = upstream

        def step(index, carried):
            d_state = carried[0]
            at = tree.map_structure(lambda part: part[index], steps)
            d_after = d_state
            real = given["real"][index] if "real" in given else None
            if real is not None:  # the gradient goes past a masked step
                d_state = zero_all_masked(d_state, real)
            found = {"cells": []}

            def attend_vjp(d_context):
                d_weights = self.steps.context_vjp(d_context, attention)
                d_weights = d_weights + at["upstream"].get("scores", 0)
                d_scores, d_query, d_before, sums_after = self.steps.step_vjp(
                    d_weights, d_state["attention"], carried[1], at["attention"], attention
                )
                found.update(context=d_context, scores=d_scores, query=d_query)
                if self.steps.learned["update"]:
                    found["after"] = d_state["attention"]
                return self.steps.query_vjp(d_query, at["hidden"], attention), d_before, sums_after

            d_hidden = at["upstream"].get("outputs", 0)
            d_context = at["upstream"].get("contexts", 0)
            if vector is not None:
                found["vector"] = (d_hidden + d_state.get("attentional", 0)) * at["vector"]
                d_joined = ops.matmul(found["vector"], vector)
                size = attention["memory"]["value"].shape[2]
                d_context = d_context + d_joined[:, :size]
                d_hidden = d_joined[:, size:]
            if self.order == "current":
                d_query, d_attention, sums = attend_vjp(d_context)
                d_hidden = d_hidden + d_query
            d_cells, d_states = [], self._states(d_state)
            for i in reversed(range(len(d_states))):
                d_own = [d_states[i][0] + d_hidden, *d_states[i][1:]]
                d_cell, parts, d_own = self.equations[i].vjp(d_own, at["local"][i], recurrent[i])
                found["cells"].insert(0, d_cell)
                d_cells.insert(0, d_own)
                if feeds[i] is not None:
                    d_hidden = ops.matmul(ops.concatenate(parts, axis=1), feeds[i])
                    d_hidden = d_hidden * given["cells"][i].get("dropout", 1)
            if self.order == "previous":  # the context is fed
                d_query, d_attention, sums = attend_vjp(d_context + d_hidden)
                d_cells[-1][0] = d_cells[-1][0] + d_query
            d_before = {"cell": flatten(d_cells), "attention": d_attention}
            if "attentional" in d_state:
                d_before["attentional"] = d_hidden
            return found, (where_real(real, d_before, d_after), sums)

        if d_last is None:
            d_last = tree.map_structure(ops.zeros_like, first)
        count = ops.shape(given["projected"])[0]
        carried = (d_last, self.steps.first_sums(attention))
        found, (d_first, sums) = run_steps(step, count, carried, reverse=True)

        # The gradients of weights and memory, as products over all steps.
        gradients = {"first": d_first, "cells": []}
        fed = saved["contexts"]
        if "attentional" in first:
            fed = shift(first["attentional"], saved["outputs"])
        for i, (equations, cell) in enumerate(zip(self.equations, given["cells"], strict=True)):
            d_sums = equations.sum_gradients(found["cells"][i], local[i])
            lefts = {"read": befores[i][0]} | saved["lefts"][i]
            weights = equations.weight_gradients(d_sums, lefts, cell)
            products = ops.concatenate([d_sums[name] for name in equations.inputs], axis=2)
            if i == 0:
                gradients["projected"] = products
            if "bias" in cell:
                weights["bias"] = ops.sum(products, axis=(0, 1))
            if "feed" in cell:
                weights["feed"] = outer(fed * cell.get("dropout", 1), products)
            gradients["cells"].append(weights)
            fed = hidden[i]
        if vector is not None:
            joined = ops.concatenate([saved["contexts"], hidden[-1]], axis=2)
            gradients["vector"] = outer(joined, found["vector"])
        gradients["attention"] = self.steps.gradients(
            saved["attention"], found, sums, queries, attention
        )
        return gradients


def zero_all_masked(nested, real):
    """Return tensors `(B, ...)` with zeros where `real` `(B,)` is 0."""
    return tree.map_structure(lambda part: zero_masked(part, real), nested)


def _last_context(contexts, state, real):
    """Return the context `(B, Dv)` of the last real step, or the first state's."""
    if real is None:
        return contexts[:, -1]
    last, is_any = (part[:, -1:] for part in last_real(real))
    context = gather_windows(contexts, ops.expand_dims(last, 2))[:, 0, 0]
    return ops.where(is_any, context, state["context"])
