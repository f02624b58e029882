"""GRUs with inner attention in NumPy float64, one example and one step at a time."""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def step(weights, options, x, h, query):
    """One step of one example: the state after it, and the weight of the input (or None)."""
    units = options["units"]
    gate = options["attention"] == "gate"
    reset_after = options.get("reset_after", not gate)
    bias = weights.get("bias", np.zeros((2, 3 * units) if reset_after else 3 * units))
    weight = None
    if not gate:
        asking = query @ weights["attention_kernel"]
        if options["attention"] == "context":
            asking = asking + h @ weights["recurrent_attention_kernel"]
        weight = sigmoid(asking @ x)
        x = weight * x
    z, f, candidate = np.split(x @ weights["kernel"], 3)
    kernel_z, kernel_f, kernel_h = np.split(weights["recurrent_kernel"], 3, axis=1)
    bias_z, bias_f, bias_h = np.split(bias[0] if reset_after else bias, 3)
    if gate:
        query_z, query_f = np.split(query @ weights["query_kernel"], 2)
        z, f = z + query_z, f + query_f
    again_z, again_f, again_h = np.split(bias[1], 3) if reset_after else (0.0, 0.0, 0.0)
    z = sigmoid(z + bias_z + h @ kernel_z + again_z)
    f = sigmoid(f + bias_f + h @ kernel_f + again_f)
    met = f * (h @ kernel_h + again_h) if reset_after else (f * h) @ kernel_h
    candidate = np.tanh(candidate + bias_h + met)
    after = (1 - z) * h + z * candidate if gate else z * h + (1 - z) * candidate
    return after, weight


def sequence(weights, options, arrays):
    """All steps: `outputs` `(B, T, U)`, `state`, and where there are such `scores` `(B, T)`."""
    inputs = np.float64(arrays["inputs"])
    batch, steps = inputs.shape[:2]
    mask = arrays.get("mask", np.ones((batch, steps), bool))
    outputs, scores = np.zeros((batch, steps, options["units"])), np.zeros((batch, steps))
    for b in range(batch):
        real = inputs[b][mask[b]]
        if "query" in arrays:
            query = np.float64(arrays["query"][b])
        else:
            query = real.mean(axis=0) if len(real) else np.zeros(inputs.shape[2])
        h = np.float64(arrays["state"][b]) if "state" in arrays else np.zeros(options["units"])
        for t in range(steps):
            if mask[b, t]:
                h, weight = step(weights, options, inputs[b, t], h, query)
                scores[b, t] = 0.0 if weight is None else weight
            outputs[b, t] = h
    results = {"outputs": outputs, "state": outputs[:, -1]}
    return results if options["attention"] == "gate" else results | {"scores": scores}
