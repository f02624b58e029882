"""A decoder's whole loop as one function with a gradient of its own.

Differentiating a loop by the backend multiplies out each weight's gradient, and adds to the
gradients of the whole memory, at every step. Here the backward loop yields only the gradients of
each step's products; every weight's gradient is then one product over the whole sequence, the
memory's likewise, and the hidden layer of an additive score is never kept.

It serves the cells of `cell_products` and mechanisms that are a softmax over an additive or a
dot score, coverage among them (`AttentionMechanism.loop_weights`); the decoder runs all others step
by step. Coverage makes each step's hidden layer another, so that the gradient of the keys cannot
wait for the end: the backward loop carries its sum, which is as large as the keys.
"""

from keras import ops

from keras_attention.layers.cell_products import _outer
from keras_attention.layers.time_loop import pack, run_loop, shift
from keras_attention.ops.additive import additive_key_gradients, additive_query_gradient
from keras_attention.ops.coverage import coverage_gradients, coverage_hidden
from keras_attention.ops.normalizers import masked_softmax

SUMS = ("coverage", "key", "score_vector", "coverage_vector")
"""The gradients that the backward loop sums up where there is coverage, in their order."""


class DecoderLoop:
    """The loop of a decoder of one cell and one global mechanism.

    Args:
        products: What `cell_products` gave for the cell.
        order: `"previous"` or `"current"`, as in `AttentionDecoder`.
        has_attentional_vector: Whether the output is `tanh(W [c; h])`.
        input_feeding: Whether it joins the next step's input.
    """

    def __init__(self, products, order, has_attentional_vector, input_feeding):
        self.products = products
        self.order = order
        self.has_attentional_vector = has_attentional_vector
        self.input_feeding = input_feeding

    def __call__(self, sequence, states, memory, weights, attentional=None, coverage=None):
        """Run all steps.

        Args:
            sequence: The projected inputs, `(B, T, G)`.
            states: The cell's states before the first step.
            memory: The mechanism's memory.
            weights: `query`, `score_vector`, `coverage_vector` and `attentional`, those that there
                are.
            attentional: The attentional vector before the first step, with input feeding.
            coverage: The coverage before the first step, with a `coverage_vector`.

        Returns:
            Dictionary of `(B, T, ...)`: `states`, a list; `context`; `scores`; and `attentional`
            where there is one.
        """
        named = {"sequence": sequence, "value": memory["value"], "key": memory["key"]}
        named |= {f"state_{i}": state for i, state in enumerate(states)}
        named |= self.products.weights | weights
        if self.input_feeding:
            named["first_feed"] = attentional
        if coverage is not None:
            named["coverage"] = coverage
        # Masks are arguments with a gradient of zero, which all backends allow.
        for name in ("mask", "dropout"):
            if name in memory:
                named[name] = ops.cast(memory[name], sequence.dtype)
        names = list(named)

        @ops.custom_gradient
        def run(*tensors):
            inputs = dict(zip(names, tensors, strict=True))
            outputs, kept = self._forward(inputs)

            def gradient(*args, upstream=None):
                if upstream is None:
                    (upstream,) = args
                gradients = self._backward(inputs, outputs, kept, upstream)
                return tuple(
                    gradients[name] if name in gradients else ops.zeros_like(inputs[name])
                    for name in names
                )

            # One tensor, since Keras' custom gradient takes one output on PyTorch.
            return ops.concatenate(_flat(outputs), axis=2), gradient

        outputs = self._split(run(*named.values()), memory)
        units, size = self.products.units, memory["value"].shape[2]
        outputs["states"] = [_sized(state, units) for state in outputs["states"]]
        outputs["context"] = _sized(outputs["context"], size)
        if self.has_attentional_vector:
            outputs["attentional"] = _sized(outputs["attentional"], weights["attentional"].shape[1])
        return outputs

    # Forward.

    def _forward(self, inputs):
        """Return the outputs, and the residuals of the cell and the queries for the backward."""
        states = self._states(inputs)
        state_count = len(states)

        def step(x, states):
            before, feed = list(states[:state_count]), None
            coverage = states[state_count] if "coverage" in inputs else None
            if self.order == "previous":
                query, weights, context = self._attend(before[0], inputs, coverage)
                feed = context
            elif self.input_feeding:
                feed = states[-1]
            after, residuals = self.products.step(x, feed, before, inputs)
            if self.order == "current":
                query, weights, context = self._attend(after[0], inputs, coverage)
            outputs = {"states": after, "context": context, "scores": weights}
            if self.has_attentional_vector:
                joined = ops.concatenate([context, after[0]], axis=1)
                outputs["attentional"] = ops.tanh(ops.matmul(joined, inputs["attentional"]))
            if coverage is not None:
                after = [*after, coverage + ops.cast(weights, coverage.dtype)]
            after = [*after, outputs["attentional"]] if self.input_feeding else after
            return [*_flat(outputs), query, *residuals], after

        states = [*states, inputs["coverage"]] if "coverage" in inputs else states
        if self.input_feeding:
            states = [*states, inputs["first_feed"]]
        results, _ = run_loop(step, inputs["sequence"], states)
        outputs = {"states": [results.pop(0) for _ in range(state_count)]}
        outputs |= {"context": results.pop(0), "scores": results.pop(0)}
        if self.has_attentional_vector:
            outputs["attentional"] = results.pop(0)
        return outputs, {"query": results.pop(0), "residuals": results}

    def _attend(self, hidden, inputs, coverage=None):
        query = ops.matmul(hidden, inputs["query"]) if "query" in inputs else hidden
        key, value = inputs["key"], inputs["value"]
        if coverage is not None:
            coverage = ops.cast(coverage, query.dtype)
            summed = coverage_hidden(query, key, coverage, inputs["coverage_vector"])
            scores = ops.matmul(summed, inputs["score_vector"])
        elif "score_vector" in inputs:
            summed = ops.tanh(ops.expand_dims(query, 1) + key)
            scores = ops.matmul(summed, inputs["score_vector"])
        else:
            # A row by a matrix: XLA is slower with a matrix by a column.
            rows = ops.matmul(ops.expand_dims(query, 1), ops.swapaxes(key, 1, 2))
            scores = ops.squeeze(rows, 1)
        mask = inputs["mask"] > 0.5 if "mask" in inputs else None
        weights = masked_softmax(scores, mask)
        read = weights * inputs["dropout"] if "dropout" in inputs else weights
        context = ops.squeeze(ops.matmul(ops.expand_dims(read, 1), value), 1)
        return query, weights, context

    # Backward.

    def _backward(self, inputs, outputs, kept, upstream):
        """Return the gradient of every input that has one."""
        states = outputs["states"]
        firsts = self._states(inputs)
        before = [shift(first, state) for first, state in zip(firsts, states, strict=True)]
        columns = {"upstream": upstream, "scores": outputs["scores"], "query": kept["query"]}
        columns |= {f"before_{i}": state for i, state in enumerate(before)}
        if len(states) > 1:
            columns["carry"] = states[1]
        columns |= {f"residual_{i}": part for i, part in enumerate(kept["residuals"])}
        if "coverage" in inputs:
            columns["coverage"] = ops.cast(_covered(inputs, outputs["scores"]), upstream.dtype)
        if self.has_attentional_vector:
            columns["attentional"] = outputs["attentional"]
        sequence, unpack = pack(columns)

        def step(x, carried):
            return self._backward_step(unpack(x), list(carried), inputs)

        carried = [ops.zeros_like(first) for first in firsts]
        if "coverage" in inputs:
            carried += [ops.zeros_like(inputs[name], dtype="float32") for name in SUMS]
        if self.input_feeding:
            carried.append(ops.zeros_like(inputs["first_feed"]))
        results, carried = run_loop(step, sequence, carried, reverse=True)
        names = ["inputs", "recurrent", "context", "energy", "query", "attentional"]
        steps = dict(zip(names, results, strict=False))
        gradients = self._weight_gradients(inputs, outputs, kept, before, steps)
        gradients |= {f"state_{i}": carried[i] for i in range(len(firsts))}
        if "coverage" in inputs:
            gradients |= self._sums_of_coverage(inputs, carried[len(firsts) :])
        if self.input_feeding:
            gradients["first_feed"] = carried[-1]
        return gradients

    def _backward_step(self, at, carried, inputs):
        """Take one step back: gradients of its products out, of the states before it carried."""
        count = self.products.state_count
        given = self._split(at["upstream"], inputs)
        d_states = [a + b for a, b in zip(carried[:count], given["states"], strict=True)]
        d_context = given["context"]
        sums = carried[count : count + len(SUMS)] if "coverage" in inputs else []
        outputs = []
        if self.has_attentional_vector:
            d_vector = given["attentional"]
            d_vector = d_vector + carried[-1] if self.input_feeding else d_vector
            d_vector = d_vector * (1 - at["attentional"] ** 2)
            d_joined = ops.matmul(d_vector, ops.transpose(inputs["attentional"]))
            d_context = d_context + d_joined[:, : inputs["value"].shape[2]]
            d_states[0] = d_states[0] + d_joined[:, inputs["value"].shape[2] :]
            outputs = [d_vector]
        if self.order == "current":
            d_energy, d_query, d_asking, sums = self._attend_backward(
                at, given, d_context, inputs, sums
            )
            d_states[0] = d_states[0] + d_asking
        before = [at[f"before_{i}"] for i in range(count)]
        residuals = [at[f"residual_{i}"] for i in range(self.products.residual_count)]
        d_inputs, d_recurrent, d_before = self.products.backward(
            d_states, before, at.get("carry"), residuals, inputs
        )
        if "feed" in inputs:
            d_feed = ops.matmul(d_inputs, ops.transpose(inputs["feed"]))
        if self.order == "previous":
            d_context = d_context + d_feed
            d_energy, d_query, d_asking, sums = self._attend_backward(
                at, given, d_context, inputs, sums
            )
            d_before[0] = d_before[0] + d_asking
        d_before = [*d_before, *sums]
        if self.input_feeding:
            d_before.append(d_feed)
        return [d_inputs, d_recurrent, d_context, d_energy, d_query, *outputs], d_before

    def _attend_backward(self, at, given, d_context, inputs, sums):
        """Return the gradients of the energies, of the query and of the state that asked.

        With coverage, `sums` are the gradient of the coverage after the step and the sums so far of
        those of the keys and of the two vectors; they come back with this step's. Else they are
        empty.
        """
        weights = at["scores"]
        d_weights = ops.squeeze(ops.matmul(inputs["value"], ops.expand_dims(d_context, 2)), 2)
        if "dropout" in inputs:
            d_weights = d_weights * inputs["dropout"]
        d_weights = d_weights + given["scores"]
        if sums:
            d_weights = d_weights + ops.cast(sums[0], d_weights.dtype)
        mean = ops.sum(weights * d_weights, axis=1, keepdims=True)
        d_energy = weights * (d_weights - mean)
        if sums:
            d_query, d_key, d_coverage, *d_vectors = coverage_gradients(
                at["query"],
                inputs["key"],
                at["coverage"],
                inputs["score_vector"],
                inputs["coverage_vector"],
                d_energy,
            )
            parts = (d_coverage, d_key, *d_vectors)
            sums = [
                sum_ + ops.cast(part, "float32") for sum_, part in zip(sums, parts, strict=True)
            ]
        elif "score_vector" in inputs:
            d_query = additive_query_gradient(
                at["query"], inputs["key"], inputs["score_vector"], d_energy
            )
        else:
            d_query = ops.squeeze(ops.matmul(ops.expand_dims(d_energy, 1), inputs["key"]), 1)
        if "query" not in inputs:
            return d_energy, d_query, d_query, sums
        return d_energy, d_query, ops.matmul(d_query, ops.transpose(inputs["query"])), sums

    def _weight_gradients(self, inputs, outputs, kept, before, steps):
        """Return the gradients that are one product over all steps."""
        hidden, context = outputs["states"][0], outputs["context"]
        gradients = {"sequence": steps["inputs"]}
        gradients |= self.products.weight_gradients(
            before[0], kept["residuals"], steps["recurrent"]
        )
        if "feed" in inputs:
            feed = context
            if self.input_feeding:
                feed = shift(inputs["first_feed"], outputs["attentional"])
            gradients["feed"] = _outer(feed, steps["inputs"])
        if "query" in inputs:
            asking = before[0] if self.order == "previous" else hidden
            gradients["query"] = _outer(asking, steps["query"])
        if self.has_attentional_vector:
            joined = ops.concatenate([context, hidden], axis=2)
            gradients["attentional"] = _outer(joined, steps["attentional"])
        weights = outputs["scores"]
        if "dropout" in inputs:
            weights = weights * ops.expand_dims(inputs["dropout"], 1)
        gradients["value"] = _transposed_product(weights, steps["context"])
        if "coverage" in inputs:
            return gradients  # the backward loop has summed the others
        if "score_vector" in inputs:
            gradients["key"], gradients["score_vector"] = additive_key_gradients(
                kept["query"], inputs["key"], inputs["score_vector"], steps["energy"]
            )
        else:
            gradients["key"] = _transposed_product(steps["energy"], kept["query"])
        return gradients

    def _sums_of_coverage(self, inputs, sums):
        """Return the gradients of what the backward loop sums up over its steps."""
        found = dict(zip(SUMS, sums, strict=False))  # the attentional vector's may follow
        found["key"] = found["key"] * ops.cast(inputs["score_vector"], found["key"].dtype)
        return {name: ops.cast(part, inputs[name].dtype) for name, part in found.items()}

    # The layout of what goes in and out.

    def _states(self, inputs):
        return [inputs[f"state_{i}"] for i in range(self.products.state_count)]

    def _split(self, packed, memory):
        """Undo the concatenation of the outputs (or of their gradients) along the last axis."""
        units, size = self.products.units, memory["value"].shape[2]
        ends = [units * (i + 1) for i in range(self.products.state_count)]
        start = ends[-1] + size
        stop = start + ops.shape(memory["value"])[1]
        states = [packed[..., end - units : end] for end in ends]
        outputs = {"states": states, "context": packed[..., ends[-1] : start]}
        outputs["scores"] = packed[..., start:stop]
        if self.has_attentional_vector:
            outputs["attentional"] = packed[..., stop:]
        return outputs


def _flat(outputs):
    """List outputs in the order in which they are concatenated."""
    names = [name for name in ("context", "scores", "attentional") if name in outputs]
    return [*outputs["states"], *(outputs[name] for name in names)]


def _sized(part, size):
    """Give a part of the outputs its size: a graph forgets it where the memory's length is open."""
    return part if part.shape[-1] == size else ops.reshape(part, (*ops.shape(part)[:-1], size))


def _covered(inputs, scores):
    """Return the coverage before each step, `(B, T, S)`."""
    first = inputs["coverage"]
    return ops.cumsum(shift(first, ops.cast(scores, first.dtype)), axis=1)


def _transposed_product(left, right):
    """`(B, T, S)` and `(B, T, D)` to `(B, S, D)`."""
    return ops.matmul(ops.transpose(left, (0, 2, 1)), right)
