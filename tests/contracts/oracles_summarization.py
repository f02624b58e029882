"""Mechanisms that remember earlier steps, in NumPy float64, one step of one example at a time.

Written from the papers' equations as the module `oracles` is. Each takes what an example's earlier
steps left as `past` (`None` before the first) and returns the step's weights and what it leaves.
"""

import numpy as np

from tests.contracts.oracles import softmax


def coverage(weights, options, query, keys, mask, past):
    """See et al. 2017: the sum of all earlier steps' weights joins the additive score."""
    past = np.zeros(len(keys)) if past is None else past
    scores = []
    for key, covered in zip(keys, past, strict=True):
        hidden = query @ weights["query_kernel"] + key @ weights["key_kernel"]
        hidden = hidden + weights["coverage_vector"] * covered + weights.get("bias", 0.0)
        scores.append(np.tanh(hidden) @ weights["score_vector"])
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
