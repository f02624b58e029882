"""The mechanisms and the decoder in NumPy float64, one query step of one example at a time.

Written from the papers' equations, not from the layers, and slow on purpose: no batching, no
projection ahead of the loop, no masks added to scores. `weights` are dictionaries of arrays by
attribute name, `options` the layer's constructor arguments.
"""

import numpy as np

from tests.contracts.oracle_cells import step_cell


def softmax(scores, allowed):
    """Softmax over the allowed entries of a vector; zero elsewhere, also where none is allowed."""
    result = np.zeros(len(scores))
    if np.any(allowed):
        exponentials = np.exp(scores[allowed] - np.max(scores[allowed]))
        result[allowed] = exponentials / exponentials.sum()
    return result


def _dot(weights, options, query, keys):
    return np.array([query @ key for key in keys])


def _general(weights, options, query, keys):
    return np.array([query @ weights["score_kernel"] @ key for key in keys])


def _additive(weights, options, query, keys):
    scores, vector = [], score_vector(weights)
    for key in keys:
        hidden = query @ weights["query_kernel"] + key @ weights["key_kernel"]
        scores.append(np.tanh(hidden + weights.get("bias", 0.0)) @ vector)
    return np.array(scores)


def score_vector(weights):
    """The score vector, normalized where it has a gain."""
    vector = weights["score_vector"]
    return vector * weights["gain"] / np.linalg.norm(vector) if "gain" in weights else vector


def _location(weights, options, query, keys):
    scores = np.full(len(keys), -np.inf)
    positions = query @ weights["location_kernel"]
    for s in range(min(len(keys), options["max_length"])):
        scores[s] = positions[s]
    return scores


SCORES = {"dot": _dot, "general": _general, "concat": _additive, "location": _location}


def bahdanau(weights, options, query, keys, mask, t):
    """Attention weights (S,) of one additive step."""
    return softmax(_additive(weights, options, query, keys), mask)


def luong(weights, options, query, keys, mask, t):
    """Attention weights (S,) of one step of Luong's global attention."""
    scores = SCORES[options.get("score", "dot")](weights, options, query, keys)
    scores = scores * weights.get("gain", 1.0)
    return softmax(scores, mask & np.isfinite(scores))


def squashed(weights, options, query, keys, mask, t):
    """Attention weights (S,) of one step of the user's own mechanism in `registry.py`."""
    scores = [query @ np.tanh(key @ weights["projection"]) for key in keys]
    return softmax(np.array(scores), mask)


def cosine(weights, options, query, keys, mask, t):
    """Attention weights (S,) of one step of the user's own cosine."""
    lengths = [np.linalg.norm(query) * np.linalg.norm(key) for key in keys]
    scores = [query @ key / max(each, 1e-12) for key, each in zip(keys, lengths, strict=True)]
    return softmax(np.array(scores), mask)


def local(weights, options, query, keys, mask, t):
    """Attention weights (S,) of one step of local attention, `t` the query's 0-based place."""
    half_width = options.get("half_width", 10)
    scores = SCORES[options.get("score", "general")](weights, options, query, keys)
    scores = scores * weights.get("gain", 1.0)
    places = np.arange(len(keys))
    predictive = options.get("alignment", "monotonic") == "predictive"
    if predictive:
        length = np.count_nonzero(mask)  # of this sentence, not of the padded batch
        hidden = np.tanh(query @ weights["position_kernel"])
        centre = length / (1.0 + np.exp(-hidden @ weights["position_vector"]))
    else:
        centre = t
    inside = np.abs(places - centre) <= half_width
    attention = softmax(scores, mask & inside & np.isfinite(scores))
    if predictive:
        sigma = half_width / 2
        attention = attention * np.exp(-((places - centre) ** 2) / (2 * sigma**2))
    return attention


def monotonic(score, weights, options, query, keys, mask, past):
    """Raffel et al. 2017, equation 9 with its two sums: the step's weights, also what it leaves.

    The probability of `s` is that of passing all positions from some `j` on, where the query before
    stopped, times that of stopping at `s`.
    """
    own = {name.removeprefix("mechanism."): array for name, array in weights.items()}
    energies = score(own, options, query, keys) * (1.0 if score is _additive else own["gain"])
    energies = energies + weights["energy_bias"]
    stop = 1 / (1 + np.exp(-energies)) if options.get("mode") == "soft" else (energies > 0) * 1.0
    stop = np.where(mask, stop, 0.0)
    past = np.eye(len(keys))[0] if past is None else past
    attention = np.zeros(len(keys))
    for s in range(len(keys)):
        for j in range(s + 1):
            attention[s] += stop[s] * past[j] * np.prod(1 - stop[j:s])
    return attention, attention


def mechanism(attend, weights, options, inputs):
    """Contexts (B,T,Dv) and scores (B,T,S) of a mechanism over whole sequences."""
    query, value = np.float64(inputs["query"]), np.float64(inputs["value"])
    keys = np.float64(inputs.get("key", inputs["value"]))
    mask = inputs.get("value_mask", np.ones(value.shape[:2], bool))
    query_mask = inputs.get("query_mask", np.ones(query.shape[:2], bool))
    scores = np.zeros(query.shape[:2] + value.shape[1:2])
    contexts = np.zeros(query.shape[:2] + value.shape[2:])
    for b in range(len(query)):
        for t in range(query.shape[1]):
            if not query_mask[b, t]:
                continue  # a query that is padding reads nothing
            scores[b, t] = attend(weights, options, query[b, t], keys[b], mask[b], t)
            for s in np.flatnonzero(scores[b, t]):  # a weight of 0 takes nothing of its value
                contexts[b, t] += scores[b, t, s] * value[b, s]
    return {"context": contexts, "scores": scores}


def decoder(attend, weights, options, cell, inputs, states):
    """Outputs (B,T,O), contexts (B,T,Dv), scores (B,T,S) and last states of a recurrent decoder.

    `weights` has the decoder's own (`attentional_kernel`), `weights["attention"]` the mechanism's;
    `options["attention"]` are the mechanism's arguments; `cell` is the cell's specification with
    its weights, `states` the list of its first states, (B, units) each. At a masked step the
    decoder stands still: it repeats its last output and reads nothing.
    """
    x, value = np.float64(inputs["inputs"]), np.float64(inputs["value"])
    mask = inputs.get("value_mask", np.ones(value.shape[:2], bool))
    real = inputs.get("query_mask", np.ones(x.shape[:2], bool))
    results = [
        _decode_example(
            attend, weights, options, cell, x[b], real[b], value[b], mask[b], [s[b] for s in states]
        )
        for b in range(len(x))
    ]
    outputs, contexts, scores, lasts, context = (
        list(parts) for parts in zip(*results, strict=True)
    )
    return {
        "outputs": np.array(outputs),
        "contexts": np.array(contexts),
        "scores": np.array(scores),
        "states": [np.array(parts) for parts in zip(*lasts, strict=True)],
        "last_context": np.array(context),
    }


def _decode_example(attend, weights, options, cell, x, real, value, mask, states):
    kernel = weights.get("attentional_kernel")
    previous = options.get("query", "previous") == "previous"
    fed = None
    if options.get("input_feeding"):
        width = cell[-1]["units"] if kernel is None else kernel.shape[1]
        fed = np.zeros(width)
    outputs, contexts, scores = [], [], []
    asked = top_state(cell, states)
    output, last_context, place = 0.0, 0 * value[0], 0

    def look(query, t):
        attention = attend(weights["attention"], options["attention"], query, value, mask, t)
        return attention, sum(
            (a * v for a, v in zip(attention, value, strict=True) if a), 0 * value[0]
        )

    for t in range(len(x)):
        if not real[t]:
            size = cell[-1]["units"] if kernel is None else kernel.shape[1]
            outputs.append(output + np.zeros(size))
            contexts.append(0 * value[0])
            scores.append(np.zeros(len(value)))
            continue
        parts = [x[t]]
        if previous:
            attention, context = look(asked, place)
            parts.append(context)
        if fed is not None:
            parts.append(fed)
        output, states = step_cell(cell, np.concatenate(parts), states)
        asked = output
        if not previous:
            attention, context = look(output, place)
        last_context = context
        place += 1
        if kernel is not None:
            output = np.tanh(np.concatenate([context, output]) @ kernel)
        if fed is not None:
            fed = output
        outputs.append(output)
        contexts.append(context)
        scores.append(attention)
    return outputs, contexts, scores, states, last_context


def top_state(cell, states):
    """The hidden state of the topmost cell: the first query of Bahdanau's order."""
    return states[-1] if cell[-1]["kind"] != "lstm" else states[-2]
