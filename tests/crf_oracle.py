"""A linear chain in NumPy float64, by a list of all its sequences of tags."""

import itertools

import numpy as np


class Chain:
    """All paths of one sequence: `paths` with their `scores`, forbidden ones at -inf."""

    def __init__(self, emissions, real, weights, forbidden=()):
        self.real = np.flatnonzero(real)
        self.shape = emissions.shape
        emissions = np.float64(emissions[self.real])
        steps, tags = emissions.shape
        parts = (weights[name] for name in ("transitions", "start", "end"))
        transitions, start, end = (np.array(part, "float64") for part in parts)
        for before, after in forbidden:
            if before is None:
                start[after] = -np.inf
            elif after is None:
                end[before] = -np.inf
            else:
                transitions[before, after] = -np.inf
        self.paths = list(itertools.product(range(tags), repeat=steps))
        self.scores = np.zeros(len(self.paths))
        for place, path in enumerate(self.paths):
            if path:
                self.scores[place] = start[path[0]] + end[path[-1]]
                self.scores[place] += sum(emissions[t, tag] for t, tag in enumerate(path))
                self.scores[place] += sum(transitions[pair] for pair in itertools.pairwise(path))
        self.partition = log_sum(self.scores)

    def path_of(self, tags):
        """The path of tags of all steps, and its place in the list."""
        return self.paths.index(tuple(int(tag) for tag in np.asarray(tags)[self.real]))

    def log_likelihood(self, tags):
        return self.scores[self.path_of(tags)] - self.partition

    def log_likelihood_of_sets(self, allowed):
        """The log probability of all paths within sets (T, K)."""
        allowed = allowed[self.real]
        inside = [all(allowed[t, k] for t, k in enumerate(path)) for path in self.paths]
        return log_sum(self.scores[np.array(inside)]) - self.partition

    def marginals(self):
        """Probabilities (T, K), zeros where a step is masked."""
        result = np.zeros(self.shape)
        for path, weight in zip(self.paths, np.exp(self.scores - self.partition), strict=True):
            for step, tag in zip(self.real, path, strict=True):
                result[step, tag] += weight
        return result

    def gradients(self, tags):
        """Of the log likelihood of tags, by emissions, transitions, start and end."""
        steps, size = self.shape
        emissions = np.zeros((steps, size))
        transitions, start, end = np.zeros((size, size)), np.zeros(size), np.zeros(size)
        factors = -np.exp(self.scores - self.partition)
        factors[self.path_of(tags)] += 1
        for path, factor in zip(self.paths, factors, strict=True):
            if path:
                start[path[0]] += factor
                end[path[-1]] += factor
            for step, tag in zip(self.real, path, strict=True):
                emissions[step, tag] += factor
            for pair in itertools.pairwise(path):
                transitions[pair] += factor
        return emissions, transitions, start, end


def log_sum(scores):
    """The logarithm of the sum of exponentials; -inf of nothing."""
    top = np.max(scores, initial=-np.inf)
    return top if np.isinf(top) else top + np.log(np.sum(np.exp(scores - top)))
