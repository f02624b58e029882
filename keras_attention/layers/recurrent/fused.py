"""The decoder's fast path: its whole loop as one function with a gradient of its own.

A backend's own gradient multiplies out every weight's gradient, and adds to that of the whole
memory, at every step. Here the backward loop yields only the gradients of each step's products; the
gradients of weights and memory are then one product each over the whole sequence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import keras
from keras import ops, tree

from ...ops.loops import flatten, packed, run_given, run_places, swap_time
from ...ops.masks import last_real
from ...ops.normalizers import masked_softmax
from ...ops.positions import gather_windows
from ...ops.types import at_least_float32
from ..attention.loop_scores import LoopScore
from .recurrence import (
    DecoderCell,
    equations_of,
    input_bias,
    outer,
    recurrent_weights,
    shift,
    with_gradient,
)

# The methods of a mechanism that its `loop_score` stands for.
STANDS_FOR = ("project_query", "queries", "score", "attend", "read", "step", "initial_state")
# The derivatives of an attentional vector's activations, from their outputs.
SLOPES = {
    keras.activations.tanh: lambda outputs: 1 - outputs**2,
    keras.activations.linear: ops.ones_like,
}
# The results that have a step axis, in the order in which they are packed.
SEQUENCES = ("outputs", "contexts", "scores")


def fused(cell, attention, activation=None):
    """Return a loop that computes what the decoder's steps compute, or `None`.

    It takes cells with equations, mechanisms that override nothing `loop_score` stands for, and an
    attentional vector that is linear or has a tanh.
    """
    if activation not in (None, *SLOPES):
        return None
    view = DecoderCell(cell, attention.compute_dtype)
    if view.cells != [cell] and type(cell).call is not keras.layers.StackedRNNCells.call:
        return None
    equations = [equations_of(one) for one in view.cells]
    if None in equations or not _declares(type(attention)):
        return None
    if any(layer.compute_dtype != attention.compute_dtype for layer in [cell, *view.cells]):
        return None
    score = attention.loop_score()
    return None if score is None else FusedLoop(view, equations, score, activation)


def _declares(kind) -> bool:
    """Whether no method that `loop_score` stands for is overridden below its declaration."""

    def depth(name):
        return next(i for i, one in enumerate(kind.__mro__) if name in vars(one))

    return all(depth("loop_score") <= depth(name) for name in STANDS_FOR)


@dataclass
class FusedLoop:
    """The loop of one call of a decoder."""

    view: DecoderCell
    equations: list
    score: LoopScore
    activation: Callable | None = None  # of the attentional vector

    def __call__(
        self, inputs, memory, state, order, feeding, kernel, masks, wanted, training, real=None
    ):
        """Run all steps; return a dictionary of at least what is wanted.

        With `feeding` the attentional vector, made with `kernel`, joins the next input; `masks` are
        dropout's, of the cells' inputs. Without `training` less is kept for a gradient. Where
        `real` `(B, T)` is False, all states stay.
        """
        self.order, self.feeding, self.has_vector = order, feeding, kernel is not None
        self.training, self.wanted = training, set(wanted)
        if "state" in wanted:
            self.wanted.add("contexts")
        projected, cells = self._cells(inputs, masks)
        dtype = self.view.dtype
        given = {
            "projected": swap_time(projected),
            "cells": cells,
            "memory": {name: ops.cast(part, dtype) for name, part in memory.items()},
            "score": self.score.weights,
            "first": {name: part for name, part in state.items() if name != "context"},
        }
        if self.score.query_kernel is not None:
            given["query"] = self.score.query_kernel
        if self.has_vector:
            given["vector"] = kernel
        if real is not None:
            given["real"] = swap_time(ops.cast(ops.expand_dims(real, 2), dtype))
        row = with_gradient(self._forward, self._backward, given, self._plain)
        results = self._unpack(row, given)
        if "state" in wanted:
            context = results["contexts"][:, -1]
            if real is not None:
                last, is_any = (part[:, -1:] for part in last_real(real))
                context = gather_windows(results["contexts"], ops.expand_dims(last, 2))[:, 0, 0]
                context = ops.where(is_any, context, state["context"])
            results["state"]["context"] = context
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

    # Forward.

    def _plain(self, given):
        return self._forward(given, keep=False, again=True)[0]

    def _forward(self, given, keep=None, again=False):
        """Return the packed results, and what the backward pass needs."""
        keep = self.training if keep is None else keep
        memory = given["memory"]
        mask = memory["mask"] > 0.5 if "mask" in memory else None

        def step(place, before, given):
            states, attention, feed = self._states(before), before["attention"], None
            if self.order == "previous":
                query, scores, context = self._attend(states[-1][0], attention, mask, given)
                feed = context
            elif self.feeding:
                feed = before["attentional"]
            products, after, gates = given["projected"][place], [], []
            for equations, cell, own in zip(self.equations, given["cells"], states, strict=True):
                if feed is not None:
                    feed = feed * cell["dropout"] if "dropout" in cell else feed
                    products = products + ops.matmul(feed, cell["feed"])
                own, of_cell = equations.step(products + cell.get("bias", 0), own, cell)
                after.append(own)
                gates.append(of_cell)
                feed, products = own[0], 0
            hidden = feed
            if self.order == "current":
                query, scores, context = self._attend(hidden, attention, mask, given)
            outputs = {"outputs": hidden, "contexts": context, "scores": scores}
            state = {"cell": flatten(after), "attention": self.score.keep(attention, scores)}
            if self.has_vector:
                joined = ops.concatenate([context, hidden], axis=1)
                outputs["outputs"] = self.activation(ops.matmul(joined, given["vector"]))
            if self.feeding:
                state["attentional"] = outputs["outputs"]
            if "real" in given:
                state = _held(given["real"][place] > 0.5, state, before)
            if self.feeding:
                outputs["outputs"] = state["attentional"]
            if keep:
                after = self._states(state)
                outputs |= {"cells": after, "gates": gates, "query": query, "state": attention}
            return outputs, state

        count = ops.shape(given["projected"])[0]
        outputs, last = run_given(step, count, given["first"], given, ("projected", "real"), again)
        return self._pack(outputs, last), outputs if keep else None

    def _attend(self, hidden, state, mask, given):
        """Return the query, the weights and the context."""
        memory = given["memory"]
        query = ops.matmul(hidden, given["query"]) if "query" in given else hidden
        scores = self.score.score(query, memory["key"], state, given["score"])
        weights = ops.cast(masked_softmax(scores, mask), hidden.dtype)
        read = weights * memory["dropout"] if "dropout" in memory else weights
        context = ops.matmul(ops.expand_dims(read, 1), memory["value"])
        return query, weights, ops.squeeze(context, 1)

    # Backward.

    def _backward(self, given, row, kept, upstream):
        """Return the gradients, nested as `given`."""
        kept = self._forward(given, keep=True)[1] if kept is None else kept
        upstream = self._unpack(upstream, given)
        last = upstream.pop("state", None)
        upstream = {name: swap_time(part) for name, part in upstream.items()}
        first = given["first"]
        pairs = zip(self._states(first), kept["cells"], strict=True)
        befores = [list(map(shift, own, after)) for own, after in pairs]
        of_cells = zip(self.equations, kept["gates"], befores, kept["cells"], strict=True)
        slopes = [equations.slopes(*of_cell) for equations, *of_cell in of_cells]
        turned = {name: ops.transpose(given[name]) for name in ("query", "vector") if name in given}
        recurrent = [ops.transpose(cell["recurrent"]) for cell in given["cells"]]
        feeds = [ops.transpose(cell["feed"]) if "feed" in cell else None for cell in given["cells"]]
        seen = {"query": kept["query"], "weights": kept["scores"], "state": kept["state"]}
        if self.has_vector:
            vector_slope = SLOPES[self.activation](kept["outputs"])

        def step(place, carried):
            passed = None
            if "real" in given:  # the gradient goes past a masked step
                state, real = carried["state"], given["real"][place]
                passed = tree.map_structure(lambda part: part * (1 - real), state)
                state = tree.map_structure(lambda part: part * real, state)
                carried = {**carried, "state": state}
            at = {name: part[place] for name, part in upstream.items()}
            at |= tree.map_structure(lambda part: part[place], seen)
            by_hidden, by_context = at["outputs"], at.get("contexts", 0)
            found = {"cells": []}
            if self.has_vector:
                fed = carried["state"]["attentional"] if self.feeding else 0
                found["vector"] = (by_hidden + fed) * vector_slope[place]
                joined = ops.matmul(found["vector"], turned["vector"])
                size = given["memory"]["value"].shape[2]
                by_context, by_hidden = by_context + joined[:, :size], joined[:, size:]
            if self.order == "current":
                by_query, state, sums = self._attend_back(by_context, at, carried, given, found)
                by_hidden = by_hidden + _product(by_query, turned.get("query"))
            by_cells, states = [], self._states(carried["state"])
            for i in reversed(range(len(states))):
                own, slope = states[i], {name: part[place] for name, part in slopes[i].items()}
                own = [own[0] + by_hidden, *own[1:]]
                of_cell, own = self.equations[i].pull(own, slope, recurrent[i])
                found["cells"].insert(0, of_cell)
                by_cells.insert(0, own)
                if feeds[i] is not None:
                    parts = self.equations[i].product_gradients(of_cell, slope)
                    by_hidden = ops.matmul(ops.concatenate(parts, axis=1), feeds[i])
                    by_hidden = by_hidden * given["cells"][i].get("dropout", 1)
            if self.order == "previous":  # what is fed is the context
                by_context = by_context + by_hidden
                by_query, state, sums = self._attend_back(by_context, at, carried, given, found)
                by_cells[-1][0] = by_cells[-1][0] + _product(by_query, turned.get("query"))
            state = {"cell": flatten(by_cells), "attention": state}
            if self.feeding:
                state["attentional"] = by_hidden
            if passed is not None:
                state = tree.map_structure(ops.add, state, passed)
            return found, {"state": state, "sums": sums}

        summed = {"key": given["memory"]["key"], **given["score"]}
        summed = {name: summed[name] for name in self.score.summed}
        carried = {
            "state": tree.map_structure(ops.zeros_like, first) if last is None else last,
            "sums": {name: at_least_float32(ops.zeros_like(like)) for name, like in summed.items()},
        }
        count = ops.shape(given["projected"])[0]
        found, carried = run_places(step, count, carried, reverse=True)
        return self._gradients(given, kept, befores, slopes, found, carried)

    def _attend_back(self, by_context, at, carried, given, found):
        """Return the gradients of query and score's state, and the sums; add outputs to `found`."""
        memory, weights = given["memory"], at["weights"]
        by_state, by_kept = self.score.keep_gradients(
            carried["state"]["attention"], at["state"], weights
        )
        by_weights = ops.matmul(memory["value"], ops.expand_dims(by_context, 2))
        by_weights = ops.squeeze(by_weights, 2) * memory.get("dropout", 1) + at.get("scores", 0)
        by_weights = by_weights + ops.cast(by_kept, weights.dtype)
        mean = ops.sum(weights * by_weights, axis=1, keepdims=True)
        energy = weights * (by_weights - mean)
        by_query, by_score, parts = self.score.query_gradient(
            energy, at["query"], memory["key"], at["state"], given["score"]
        )
        found |= {"context": by_context, "energy": energy, "query": by_query}
        return by_query, _added(by_state, by_score), _added(carried["sums"], parts)

    def _gradients(self, given, kept, befores, slopes, found, carried):
        """Return all gradients, those of weights and memory as products over all steps."""
        memory, gradients = given["memory"], {"first": carried["state"], "cells": []}
        hidden = [after[0] for after in kept["cells"]]
        fed = kept["contexts"]
        if self.feeding:
            fed = shift(given["first"]["attentional"], kept["outputs"])
        for i, (equations, cell) in enumerate(zip(self.equations, given["cells"], strict=True)):
            of_cell, slope = found["cells"][i], slopes[i]
            weights = equations.weight_gradients(
                of_cell, slope, kept["gates"][i], befores[i][0], cell
            )
            products = ops.concatenate(equations.product_gradients(of_cell, slope), axis=2)
            if i == 0:
                gradients["projected"] = products
            if "bias" in cell:
                weights["bias"] = ops.sum(products, axis=(0, 1))
            if "feed" in cell:
                weights["feed"] = outer(fed * cell.get("dropout", 1), products)
            gradients["cells"].append(weights)
            fed = hidden[i]
        if "query" in given:
            asking = befores[-1][0] if self.order == "previous" else hidden[-1]
            gradients["query"] = outer(asking, found["query"])
        if self.has_vector:
            joined = ops.concatenate([kept["contexts"], hidden[-1]], axis=2)
            gradients["vector"] = outer(joined, found["vector"])
        weights = swap_time(kept["scores"] * memory.get("dropout", 1))
        by_value = ops.matmul(ops.swapaxes(weights, 1, 2), swap_time(found["context"]))
        energy, query = swap_time(found["energy"]), swap_time(kept["query"])
        of_score = self.score.memory_gradients(
            energy, query, memory["key"], given["score"], carried["sums"]
        )
        gradients["memory"] = {"value": by_value, "key": of_score.pop("key", None)}
        return gradients | {"score": of_score}

    # One tensor holds all results: on PyTorch, Keras' custom gradient takes one output only.

    def _pack(self, outputs, last):
        """Return what is wanted as one tensor, a row for each example."""
        parts = [swap_time(outputs[name]) for name in SEQUENCES if name in self.wanted]
        parts += flatten(last) if "state" in self.wanted else []
        dtypes = [keras.backend.standardize_dtype(part.dtype) for part in parts]
        dtype = "float64" if "float64" in dtypes else keras.backend.result_type(*dtypes)
        parts = [
            ops.cast(_reshaped(part, (math.prod(ops.shape(part)[1:]),)), dtype) for part in parts
        ]
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def _unpack(self, row, given):
        """Undo `_pack`, of results or of their gradients."""
        steps, value = ops.shape(given["projected"])[0], given["memory"]["value"]
        hidden = given["vector"].shape[1] if self.has_vector else self.view.output_size
        sizes = zip(SEQUENCES, (hidden, value.shape[2], ops.shape(value)[1]), strict=True)
        likes = {name: (steps, size) for name, size in sizes if name in self.wanted}
        leaves = flatten(given["first"]) if "state" in self.wanted else []
        parts, start = [], 0
        for shape in [*likes.values(), *(ops.shape(leaf)[1:] for leaf in leaves)]:
            stop = start + math.prod(shape)
            part = row if len(likes) + len(leaves) == 1 else row[:, start:stop]
            parts.append(_reshaped(part, shape))
            start = stop
        results = {name: ops.cast(parts.pop(0), self.view.dtype) for name in likes}
        if leaves:
            last = [ops.cast(*pair) for pair in zip(parts, (x.dtype for x in leaves), strict=True)]
            results["state"] = packed(given["first"], last)
        return results


def _held(real, after, before):
    """Return the states after a step, and those before it where the step is masked."""
    pairs = zip(flatten(after), flatten(before), strict=True)
    return packed(after, [ops.where(real, new, old) for new, old in pairs])


def _product(by_query, kernel):
    return by_query if kernel is None else ops.matmul(by_query, kernel)


def _added(sums, parts):
    """Return sums with parts of the same names added to them, in the sums' dtypes."""
    return {
        name: part + ops.cast(parts[name], part.dtype) if name in parts else part
        for name, part in sums.items()
    }


def _reshaped(tensor, shape):
    return ops.reshape(tensor, (ops.shape(tensor)[0], *shape))
