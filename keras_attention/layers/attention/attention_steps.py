"""The steps of attention in a loop, with gradients that are derived from the mechanism's score.

A backend that differentiates a loop adds to the gradients of the whole memory and of every weight
at each step. Here a backward step takes only the vector-Jacobian product (VJP) of the score with
its query and its state. After the loop, one VJP over all steps gives the gradients of keys, values
and variables. Only a score with a hidden layer for each pair of query and key has those of keys and
variables added up in the loop: the step has that layer at hand, and the VJP over all steps would
compute it once more.
"""

import operator
from typing import Any

import keras
from keras import ops, tree

from ...ops.loops import (
    as_floats,
    cast_to,
    dtypes_of,
    flatten,
    functional,
    nested_vjp,
    packed,
    run_given,
    run_loop,
    run_steps,
    swap_time,
    where_real,
    with_loop_gradient,
)
from ...ops.masks import zero_masked
from ...ops.normalizers import softmax_gradient
from ...ops.scores import hidden_layers
from ...ops.types import at_least_float32, is_float
from ...ops.vjp import automatic_derivatives, variables_read


class AttentionSteps:
    """What a loop needs of a `ScoredAttention`: its steps, and their gradients.

    `given` holds every tensor that a gradient can reach, all of them floating point. The methods
    get it as an argument, since a custom gradient reaches only the arguments of its function.

    Args:
        mechanism: The `ScoredAttention`.
        memory, state: Its memory, and its state before the first step.
    """

    def __init__(self, mechanism: Any, memory: dict, state: dict):
        self.mechanism = mechanism
        self.memory_dtypes = dtypes_of(memory)
        self.state_dtypes = dtypes_of(state)
        self._record_variables(memory, state)
        # Read outside of any custom gradient: TensorFlow refuses variables inside.
        values = [ops.convert_to_tensor(variable.value) for variable in self.variables]
        self.given = {"memory": as_floats(memory), "variables": as_floats(values)}

    def _record_variables(self, memory, state):
        """Find the variables that the mechanism reads, by a step of one example."""
        mechanism = self.mechanism
        memory, state = tree.map_structure(lambda part: part[:1], (memory, state))
        state = with_step_axis(state)
        shape = (ops.shape(memory["value"])[0], 1, mechanism.query_size)
        hidden = ops.zeros(shape, mechanism.compute_dtype)
        query, scores, weights = [], [], []

        def weigh():
            weights.append(mechanism.weights_of(scores[0], memory, None, state))

        functions = {
            "query": lambda: query.append(mechanism.queries(hidden)),
            "score": lambda: scores.append(mechanism.scores(query[0], memory, state)),
            "weights": weigh,
            "update": lambda: mechanism.state_after(state, scores[0], weights[0], memory),
        }
        with hidden_layers() as layers:
            found = {name: variables_read(function) for name, function in functions.items()}
        self.has_hidden_layer = bool(layers)
        # Weights that are learned by more than the score have the backend's gradient, too.
        self.has_side_effects = any(assigns for _, assigns in found.values())
        self.has_side_effects |= bool(found["weights"][0])
        self.variables = list({id(one): one for read, _ in found.values() for one in read}.values())
        # Those that each function learns, by their index.
        self.learned = {
            name: [
                index
                for index, variable in enumerate(self.variables)
                if is_float(variable) and any(variable is one for one in read)
            ]
            for name, (read, _) in found.items()
        }

    # Forward.

    def project(self, hidden: Any, given: dict) -> Any:
        """Return the projected queries of `(B, T, Dq)`."""
        with self._scope(given["variables"]):
            return self.mechanism.queries(hidden)

    def attend(self, query: Any, state: dict, given: dict) -> tuple:
        """Take a step with a projected query `(B, ...)`.

        Returns:
            The context `(B, Dv)`, the weights `(B, S)`, the state after the step, and what the
            gradients need of it.
        """
        at = with_step_axis({"query": query, "state": state})
        scores = self._scores(at, given)
        weights = self._weights({**at, "scores": scores}, given)
        context = ops.squeeze(self.mechanism.read(weights, self._memory(given)), 1)
        saved = {"query": query, "state": state, "weights": ops.squeeze(weights, 1)}
        if state or not self.mechanism.has_softmax:
            saved["scores"] = ops.squeeze(scores, 1)
        if not state:
            return context, saved["weights"], state, saved
        after = self._after({**at, "scores": scores, "weights": weights}, given)
        return context, saved["weights"], without_step_axis(after), saved

    # Backward.

    def context_vjp(self, d_context: Any, given: dict) -> Any:
        """Return the gradient of a step's weights `(B, S)` from that of its context `(B, Dv)`."""
        memory = given["memory"]
        d_weights = ops.squeeze(ops.matmul(memory["value"], ops.expand_dims(d_context, 2)), 2)
        return d_weights * memory["dropout"] if "dropout" in memory else d_weights

    def first_sums(self, given: dict) -> dict:
        """Return zeros for the gradients that a backward loop adds up, in at least float32."""
        if not self.has_hidden_layer:
            return {}
        return tree.map_structure(
            lambda part: at_least_float32(ops.zeros_like(part)), self._of_score(given)
        )

    def step_vjp(
        self, d_weights: Any, d_after: dict, sums: dict, saved: dict, given: dict
    ) -> tuple:
        """Return the gradients of a step's scores, query and state before it, and the new sums.

        Args:
            d_weights, d_after: Gradients of the step's weights `(B, S)`, and of the state after it.
            sums: Those of the steps after this one, from `first_sums` on.
            saved: What `attend` returned.
            given: All that a gradient can reach.
        """
        saved = with_step_axis(saved)
        d_weights = ops.expand_dims(d_weights, 1)
        d_state = {}
        with automatic_derivatives():  # the score of a single query needs no blocks
            if saved["state"]:
                inputs = {name: saved[name] for name in ("state", "scores", "weights")}
                found = nested_vjp(
                    lambda at: self._after(at, given), inputs, with_step_axis(d_after)
                )
                d_state = found["state"]
                d_weights = d_weights + found["weights"]
            if self.mechanism.has_softmax:
                d_scores = softmax_gradient(saved["weights"], d_weights)
            else:
                inputs = {name: saved[name] for name in ("state", "scores")}
                through = nested_vjp(lambda at: self._weights(at, given), inputs, d_weights)
                d_scores = through["scores"]
                d_state = tree.map_structure(operator.add, d_state, through["state"])
            if saved["state"]:  # whose update may read scores in a higher precision
                d_scores = found["scores"] + ops.cast(d_scores, found["scores"].dtype)
            inputs = {name: saved[name] for name in ("query", "state")}
            inputs |= self._of_score(given) if sums else {}
            found = nested_vjp(lambda at: self._scores_of(at, given), inputs, d_scores)
        sums = {
            name: tree.map_structure(
                lambda total, part: total + ops.cast(part, total.dtype), total, found[name]
            )
            for name, total in sums.items()
        }
        # Not `ops.add`, which on TensorFlow takes an empty batch for a bias.
        d_state = tree.map_structure(operator.add, found["state"], d_state)
        found = {"scores": d_scores, "query": found["query"], "state": d_state}
        found = without_step_axis(found)
        return found["scores"], found["query"], found["state"], sums

    def query_vjp(self, d_query: Any, hidden: Any, given: dict) -> Any:
        """Return the gradient of a step's `hidden` `(B, Dq)` from that of its projected query."""
        hidden, d_query = with_step_axis([hidden, d_query])
        with automatic_derivatives():
            d_hidden = nested_vjp(lambda hidden: self.project(hidden, given), hidden, d_query)
        return ops.squeeze(d_hidden, 1)

    def gradients(self, saved: dict, found: dict, sums: dict, hidden: Any, given: dict) -> dict:
        """Return the gradients of `given` through all steps at once.

        Args:
            saved: What `attend` returned, stacked: `(T, B, ...)`.
            found: Gradients of the steps' `"scores"` and, where there are any, `"context"`,
                `"query"` and `"after"`, the states after each step.
            sums: Those that the loop added up.
            hidden: Queries `(T, B, Dq)` before their projection, where `found` has `"query"`.
            given: All that a gradient can reach.
        """
        at = tree.map_structure(swap_time, saved)
        inputs = self._of_score(given)
        if sums:
            through_score = cast_to(sums, dtypes_of(inputs))
        else:
            through_score = nested_vjp(
                lambda inputs: self._scores_of({**at, **inputs}, given),
                inputs,
                swap_time(found["scores"]),
            )
        gradients = [through_score["variables"]]
        memory = {"key": through_score["key"]}
        if "context" in found:
            weights = ops.swapaxes(at["weights"], 1, 2)
            if "dropout" in given["memory"]:
                weights = weights * ops.expand_dims(given["memory"]["dropout"], 2)
            memory["value"] = ops.matmul(weights, swap_time(found["context"]))
        if "query" in found:

            def query(variables):
                return self.project(hidden, {"variables": self._replaced(variables, given)})

            gradients.append(nested_vjp(query, self._learned("query", given), found["query"]))
        if "after" in found:

            def after(variables):
                inside = {**given, "variables": self._replaced(variables, given)}
                return self._after(at, inside)

            d_after = tree.map_structure(swap_time, found["after"])
            gradients.append(nested_vjp(after, self._learned("update", given), d_after))
        variables = [None] * len(self.variables)
        for each in gradients:
            for index, gradient in each.items():
                before = variables[index]
                variables[index] = gradient if before is None else before + gradient
        return {"memory": memory, "variables": variables}

    # The mechanism's functions, as functions of floating point tensors `(B, T, ...)`.

    def _scores(self, at, given):
        state = cast_to(at["state"], self.state_dtypes)
        with self._scope(given["variables"]):
            return self.mechanism.scores(at["query"], self._memory(given), state)

    def _scores_of(self, at, given):
        """Return the scores, with the keys and variables of `at` where it has them."""
        memory = {**given["memory"], "key": at.get("key", given["memory"]["key"])}
        variables = self._replaced(at.get("variables", {}), given)
        return self._scores(at, {"memory": memory, "variables": variables})

    def _weights(self, at, given):
        state = cast_to(at["state"], self.state_dtypes)
        with self._scope(given["variables"]):
            return self.mechanism.weights_of(at["scores"], self._memory(given), None, state)

    def _after(self, at, given):
        state = cast_to(at["state"], self.state_dtypes)
        with self._scope(given["variables"]):
            after = self.mechanism.state_after(
                state, at["scores"], at["weights"], self._memory(given)
            )
        return as_floats(after)

    def _memory(self, given):
        return cast_to(given["memory"], self.memory_dtypes)

    def _scope(self, values):
        return keras.StatelessScope(list(zip(self.variables, values, strict=True)))

    def _of_score(self, given):
        """Return what all steps' scores have in common and a gradient can reach."""
        return {"key": given["memory"]["key"], "variables": self._learned("score", given)}

    def _learned(self, name, given):
        return {index: given["variables"][index] for index in self.learned[name]}

    def _replaced(self, variables, given):
        """Return the values of all variables, some of them replaced."""
        values = enumerate(given["variables"])
        return [variables.get(index, value) for index, value in values]


def weigh_in_order(
    mechanism: Any, query: Any, memory: dict, state: dict, query_mask: Any = None
) -> tuple:
    """Weigh the memory with projected queries `(B, T, ...)`, one after the other.

    Returns the weights `(B, T, S)`, and the state after the last query. A masked query has zero
    weights, and leaves the state as it is.
    """
    steps = AttentionSteps(mechanism, memory, state)
    if steps.has_side_effects:
        return _weigh_one_by_one(steps, query, memory, state, query_mask)
    given = {"query": swap_time(query), "first": as_floats(state), "attention": steps.given}
    if query_mask is not None:
        given["real"] = swap_time(as_floats(query_mask))

    def forward(given, again=False):
        def step(index, state, given):
            real = given["real"][index] if "real" in given else None
            query = given["query"][index]
            _, _, after, saved = steps.attend(query, state, given["attention"])
            return saved, where_real(real, after, state)

        count = ops.shape(given["query"])[0]
        sequences = ("query", "real")
        saved, after = run_given(step, count, given["first"], given, sequences, again)
        return {"weights": zero_masked(saved["weights"], given.get("real")), "state": after}, saved

    def backward(given, results, saved, upstream):
        def step(index, carried):
            d_state, sums = carried
            at = tree.map_structure(lambda part: part[index], saved)
            real = given["real"][index] if "real" in given else None
            d_weights = zero_masked(upstream["weights"][index], real)
            d_after = tree.map_structure(lambda part: zero_masked(part, real), d_state)
            d_scores, d_query, d_before, sums = steps.step_vjp(
                d_weights, d_after, sums, at, given["attention"]
            )
            found = {"scores": d_scores, "query": d_query}
            if steps.learned["update"]:
                found["after"] = d_after
            if real is not None:
                d_before = where_real(real, d_before, d_state)
            return found, (d_before, sums)

        count = ops.shape(given["query"])[0]
        first = (upstream["state"], steps.first_sums(given["attention"]))
        found, (d_first, sums) = run_steps(step, count, first, reverse=True)
        d_query = found.pop("query")
        d_given = steps.gradients(saved, found, sums, None, given["attention"])
        return {"query": d_query, "first": d_first, "attention": d_given}

    results = with_loop_gradient(
        forward, backward, given, lambda given: forward(given, again=True)[0]
    )
    return swap_time(results["weights"]), cast_to(results["state"], dtypes_of(state))


def _weigh_one_by_one(steps, query, memory, state, query_mask):
    """Return what `weigh_in_order` does, with the backend's gradient of a loop.

    A score that draws random numbers takes it: a step that is computed again would draw others.
    """
    count, size = len(flatten(state)), query.shape[2]
    real = ops.ones_like(query[:, :, 0]) if query_mask is None else query_mask
    column = ops.cast(ops.expand_dims(real, 2), query.dtype)

    mechanism = steps.mechanism

    def attend(x, before, memory):
        at = with_step_axis({"query": x, "state": before})
        scores = mechanism.scores(at["query"], memory, at["state"])
        weights = mechanism.weights_of(scores, memory, None, at["state"])
        after = mechanism.state_after(at["state"], scores, weights, memory)
        return ops.squeeze(weights, 1), without_step_axis(after)

    attend = functional(attend, steps.variables)

    def step(x, carried, memory):
        before, values = packed(state, carried[:count]), list(carried[count:])
        (weights, after), values = attend(values, x[:, :size], before, memory)
        is_real = x[:, size] > 0.5
        after = flatten(where_real(is_real, after, before))
        return [zero_masked(weights, is_real)], [*after, *values]

    sequence = ops.concatenate([query, column], axis=2)
    values = [ops.convert_to_tensor(variable.value) for variable in steps.variables]
    (weights,), carried = run_loop(step, sequence, [*flatten(state), *values], memory)
    for variable, value in zip(steps.variables, carried[count:], strict=True):
        if not is_float(variable):
            variable.assign(value)
    return weights, packed(state, carried[:count])


def with_step_axis(nested):
    """Return tensors `(B, ...)` of one step as `(B, 1, ...)`."""
    return tree.map_structure(lambda part: ops.expand_dims(part, 1), nested)


def without_step_axis(nested):
    return tree.map_structure(lambda part: ops.squeeze(part, 1), nested)
