"""What one step of an `AttentionDecoder` is, in either order."""

from collections.abc import Callable
from typing import Any

from keras import ops


def decoder_step(
    order: str,
    inputs: Any,
    state: dict,
    run_cell: Callable,
    attend: Callable,
    query_index: int | None,
    kernel: Any = None,
    activation: Callable | None = None,
) -> tuple:
    """Take one step; search, the loop of steps and the whole loop all call this.

    `"previous"`: `c_t = attend(s_{t-1})`, `s_t = cell([x_t; c_t], s_{t-1})`;
    `"current"`: `h_t = cell([x_t; o_{t-1}], h_{t-1})`, `c_t = attend(h_t)`;
    `o_t = f(W [c_t; h_t])`, or the cell's output where there is no kernel `W`.

    Args:
        order: `"previous"` or `"current"`.
        inputs: What `run_cell` takes as the step's inputs.
        state: The decoder's state. It holds `"output"` or `"attentional"` where the next step
            reads them.
        run_cell: `run_cell(inputs, fed, states) -> (output, states)`; `fed` is joined with the
            inputs, or `None`.
        attend: `attend(query, state) -> (context, weights, state)`.
        query_index: Which of the cell's states is the query of `"previous"`; `None` where the state
            holds the `"output"`.
        kernel: `W`, or `None`.
        activation: `f`, where there is a kernel.

    Returns:
        The output, the weights, and the state after the step.
    """
    cell = state["cell"]
    if order == "previous":
        query = state["output"] if query_index is None else cell[query_index]
        context, weights, attention = attend(query, state["attention"])
        hidden, cell = run_cell(inputs, context, cell)
    else:
        hidden, cell = run_cell(inputs, state.get("attentional"), cell)
        context, weights, attention = attend(hidden, state["attention"])
    output = hidden
    if kernel is not None:
        output = activation(ops.matmul(ops.concatenate([context, hidden], axis=-1), kernel))
    after = {"cell": cell, "context": context, "attention": attention}
    if "output" in state:
        after["output"] = hidden
    if "attentional" in state:
        after["attentional"] = output
    return output, weights, after
