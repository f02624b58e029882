"""Mechanisms that remember earlier steps, in NumPy float64, one step of one example at a time.

Written from the papers' equations as the module `oracles` is. Each takes what an example's earlier
steps left as `past` (`None` before the first) and returns the step's weights and what it leaves.
"""

import numpy as np

from tests.contracts import oracles
from tests.contracts.oracles import softmax


def coverage(weights, options, query, keys, mask, past):
    """See et al. 2017: the sum of all earlier steps' weights joins the additive score."""
    past = np.zeros(len(keys)) if past is None else past
    scores = []
    for key, covered in zip(keys, past, strict=True):
        hidden = query @ weights["query_kernel"] + key @ weights["key_kernel"]
        hidden = hidden + weights["coverage_vector"] * covered + weights.get("bias", 0.0)
        scores.append(np.tanh(hidden) @ oracles.score_vector(weights))
    attention = softmax(np.array(scores), mask)
    return attention, past + attention


def coverage_loss(scores, target_mask):
    """The mean over examples of the mean over real steps of the overlap with earlier steps."""
    of_examples = []
    for b in range(len(scores)):
        covered, costs = np.zeros(scores.shape[2]), []
        for t in np.flatnonzero(target_mask[b]):
            costs.append(sum(min(a, c) for a, c in zip(scores[b, t], covered, strict=True)))
            covered = covered + scores[b, t]
        of_examples += [np.mean(costs)] if costs else []
    return np.mean(of_examples)


def temporal(weights, options, query, keys, mask, past):
    """Nallapati et al. 2016, Paulus et al. 2017: `exp(e)` over the sum of all earlier `exp(e)`."""
    energies = np.array([query @ weights["score_kernel"] @ key for key in keys])
    energies = np.where(mask, energies, 0.0)
    scaled = np.exp(energies) if past is None else np.exp(energies) / past
    attention = np.where(mask, scaled, 0.0) / max(np.sum(scaled[mask]), 1e-300)
    return attention, np.exp(energies) + (0.0 if past is None else past)


def bahdanau(weights, options, query, keys, mask, past):
    """The additive mechanism, which remembers nothing."""
    return oracles.bahdanau(weights, options, query, keys, mask, 0), None


def general(weights, options, query, keys, mask, past):
    """Luong's general score, which remembers nothing."""
    return oracles.luong(weights, {"score": "general"}, query, keys, mask, 0), None


def intra_decoder(weights, options, arrays):
    """Contexts and weights over the earlier states `j < t` of the sequence itself."""
    states = np.float64(arrays["query"])
    everywhere = np.ones(states.shape[:2], bool)
    real = arrays.get("query_mask", everywhere) & arrays.get("mask", everywhere)
    allowed = arrays.get("value_mask", real)
    contexts, scores = np.zeros_like(states), np.zeros((*states.shape[:2], states.shape[1]))
    for b, t in np.argwhere(real):
        earlier = [j for j in range(t) if allowed[b, j]]
        energies = [states[b, t] @ weights["score_kernel"] @ states[b, j] for j in earlier]
        attention = softmax(np.array(energies), np.ones(len(earlier), bool))
        for j, weight in zip(earlier, attention, strict=True):
            scores[b, t, j] = weight
            contexts[b, t] += weight * states[b, j]
    return {"outputs": contexts, "scores": scores}


def hierarchical(of_words, of_sentences, weights, arrays):
    """Nallapati et al. 2016: weights of words times those of their sentences, normalised."""
    query, words = np.float64(arrays["query"]), np.float64(arrays["words"])
    sentences = np.float64(arrays["sentences"])
    word_mask = arrays.get("word_mask", np.ones(words.shape[:3], bool))
    sentence_mask = arrays.get("sentence_mask", np.ones(words.shape[:2], bool))
    everywhere = np.ones(query.shape[:2], bool)
    real = arrays.get("query_mask", everywhere) & arrays.get("mask", everywhere)
    parts = {
        part: {
            name.removeprefix(f"{part}."): array
            for name, array in weights.items()
            if name.startswith(part)
        }
        for part in ("word_attention", "sentence_attention")
    }
    scores = np.zeros((*query.shape[:2], *words.shape[1:3]))
    contexts = np.zeros((*query.shape[:2], words.shape[3]))
    for b in range(len(query)):
        allowed = sentence_mask[b] & word_mask[b].any(axis=1)
        mask = word_mask[b] & allowed[:, None]
        flat = words[b].reshape(-1, words.shape[3])
        past = {"words": None, "sentences": None}
        for t in np.flatnonzero(real[b]):
            p_words, past["words"] = of_words(
                parts["word_attention"], {}, query[b, t], flat, mask.ravel(), past["words"]
            )
            p_sentences, past["sentences"] = of_sentences(
                parts["sentence_attention"],
                {},
                query[b, t],
                sentences[b],
                allowed,
                past["sentences"],
            )
            joined = p_words.reshape(mask.shape) * p_sentences[:, None]
            if joined.any():
                scores[b, t] = joined / joined.sum()
            for n, w in np.argwhere(scores[b, t]):
                contexts[b, t] += scores[b, t, n, w] * words[b, n, w]
    return {"outputs": contexts, "scores": scores}


def pointer_generator(weights, extra_size, arrays):
    """See et al. 2017: log probabilities over the extended vocabulary, and `p_gen`."""
    if "mask" in arrays:  # what a padded step holds is not read
        steps = ("logits", "scores", "context", "state", "inputs")
        real = arrays["mask"][:, :, None]
        arrays = arrays | {name: np.where(real, arrays[name], 0) for name in steps}
    # NumPy 2.1 makes a number of `np.float64(array)` where the array holds one.
    logits, scores = (np.asarray(arrays[name], "float64") for name in ("logits", "scores"))
    size = logits.shape[2] + extra_size
    log_p, p_gens = np.zeros((*logits.shape[:2], size)), np.zeros(logits.shape[:2])
    for b, t in np.ndindex(*logits.shape[:2]):
        gate = weights["bias"] + sum(
            np.float64(arrays[name][b, t]) @ weights[f"{vector}_vector"]
            for name, vector in (("context", "context"), ("state", "state"), ("inputs", "input"))
        )
        p_gen = 1 / (1 + np.exp(-gate))
        p = np.zeros(size)
        exponentials = np.exp(logits[b, t] - logits[b, t].max())
        p[: logits.shape[2]] = p_gen * exponentials / exponentials.sum()
        for place, word in enumerate(arrays["source_ids"][b]):
            if 0 <= word < size:
                p[word] += (1 - p_gen) * scores[b, t, place]
        log_p[b, t], p_gens[b, t] = np.log(np.maximum(p, 1e-30)), p_gen
    return {"outputs": log_p, "p_gen": p_gens}


class Remembering:
    """One of these as a step of the module `oracles`, which knows the example and `t` alone."""

    def __init__(self, attend):
        self.attend = attend
        self.place = None

    def __call__(self, weights, options, query, keys, mask, t):
        """Attention weights (S,) of step `t`; another example, or an earlier step, begins anew."""
        example = (keys.__array_interface__["data"][0], keys.shape)
        if self.place is None or self.place[0] != example or self.place[1] >= t:
            self.past = None
        self.place = (example, t)
        attention, self.past = self.attend(weights, options, query, keys, mask, self.past)
        return attention
