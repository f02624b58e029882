"""A small random model for the searches, in float64 NumPy and as a step, and its enumeration.

The next token depends on the sentence, on the last token, on the place, and through a running trace
on every token before: rows that are mixed up when beams are reordered give other probabilities.
Attention depends on the same trace, over a memory of another length in each sentence.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

END, START = 0, 1


class Hypothesis(NamedTuple):
    tokens: tuple
    log_probability: float
    score: float
    attention: np.ndarray
    terms: np.ndarray
    """The log-probability of each token."""


class Chain:
    """`vocabulary` tokens, `batch` sentences, up to `memory` memory steps in each."""

    def __init__(self, batch=3, vocabulary=5, memory=7, seed=0):
        random = np.random.default_rng(seed)
        self.batch, self.vocabulary, self.memory = batch, vocabulary, memory
        self.table = random.normal(size=(batch, vocabulary, vocabulary))
        self.frequencies = random.normal(size=(batch, vocabulary))
        self.drift = random.normal(size=(batch, vocabulary)) / 5
        self.phases = random.normal(size=(batch, memory))
        lengths = memory - np.arange(batch) % memory
        self.mask = np.arange(memory) < lengths[:, None]

    def state(self, dtype="float32"):
        return {
            "trace": [ops.zeros((self.batch,), dtype=dtype)],
            "attention_scores": ops.zeros((self.batch, self.memory), dtype=dtype),
            "memory": {
                "table": ops.convert_to_tensor(self.table, dtype=dtype),
                "frequencies": ops.convert_to_tensor(self.frequencies, dtype=dtype),
                "drift": ops.convert_to_tensor(self.drift, dtype=dtype),
                "phases": ops.convert_to_tensor(self.phases, dtype=dtype),
                "mask": ops.convert_to_tensor(self.mask),
            },
        }

    def step(self, tokens, state, index):
        memory = state["memory"]
        trace = 0.5 * state["trace"][0] + ops.cast(tokens, state["trace"][0].dtype)
        one_hot = ops.cast(tokens[:, None] == ops.arange(self.vocabulary), trace.dtype)
        logits = (
            ops.einsum("bv,bvw->bw", one_hot, memory["table"])
            + ops.sin(trace[:, None] * memory["frequencies"])
            + ops.cast(index, trace.dtype) * memory["drift"]
        )
        energies = ops.where(memory["mask"], ops.cos(trace[:, None] * memory["phases"]), -np.inf)
        scores = ops.softmax(energies, axis=-1)
        return logits, {"trace": [trace], "attention_scores": scores, "memory": memory}

    def _trace(self, prefix):
        trace = 0.0
        for token in (START, *prefix):
            trace = 0.5 * trace + token
        return trace

    def log_probabilities(self, sentence, prefix):
        trace = self._trace(prefix)
        logits = (
            self.table[sentence, (START, *prefix)[-1]]
            + np.sin(trace * self.frequencies[sentence])
            + len(prefix) * self.drift[sentence]
        )
        with np.errstate(divide="ignore"):
            return logits - np.log(np.exp(logits).sum())

    def attention(self, sentence, prefix):
        energies = np.exp(np.cos(self._trace(prefix) * self.phases[sentence]))
        weights = np.where(self.mask[sentence], energies, 0)
        return weights / weights.sum()


class Rules(NamedTuple):
    """What is asked of a search, in the words of its arguments."""

    max_length: int
    min_length: int = 0
    no_repeat_ngram: int = 0
    alpha: float = 0.0
    beta: float = 0.0
    start: tuple = ()
    """The tokens that every hypothesis begins with, whatever the other rules say."""
    ends: tuple = (END,)

    def allowed(self, prefix, log_probabilities):
        """The tokens that may follow, from the rules' definition."""
        if len(prefix) < len(self.start):
            return [self.start[len(prefix)]]
        tokens = {v for v, p in enumerate(log_probabilities) if p > -np.inf}
        size = self.no_repeat_ngram
        if size:
            seen = {prefix[i : i + size] for i in range(len(prefix) - size + 1)}
            tail = prefix[len(prefix) - size + 1 :]
            tokens -= {v for v in tokens if v not in self.ends and (*tail, v) in seen}
        if len(prefix) + 1 < self.min_length and tokens - {*self.ends}:
            tokens -= {*self.ends}
        return sorted(tokens)

    def is_complete(self, tokens):
        return tokens[-1] in self.ends or len(tokens) == self.max_length

    def length_penalty(self, length):
        return ((5 + length) / 6) ** self.alpha

    def hypothesis(self, chain, sentence, tokens, log_probability):
        rows = [chain.attention(sentence, tokens[:i]) for i in range(len(tokens))]
        attention = np.array(rows)
        coverage = attention.sum(axis=0)[chain.mask[sentence]]
        term = self.beta * np.log(np.minimum(coverage, 1)).sum() if self.beta else 0.0
        score = log_probability / self.length_penalty(len(tokens)) + term
        steps = [chain.log_probabilities(sentence, tokens[:i])[v] for i, v in enumerate(tokens)]
        return Hypothesis(tokens, log_probability, score, attention, np.array(steps))


def enumerate_hypotheses(chain, sentence, rules):
    """Every complete hypothesis, best first."""
    found = []

    def extend(prefix, log_probability):
        log_probabilities = chain.log_probabilities(sentence, prefix)
        for token in rules.allowed(prefix, log_probabilities):
            tokens = (*prefix, token)
            total = log_probability + log_probabilities[token]
            if rules.is_complete(tokens):
                found.append(rules.hypothesis(chain, sentence, tokens, total))
            else:
                extend(tokens, total)

    extend((), 0.0)
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def search_narrowly(chain, sentence, rules, beam_size, n_best):
    """Beam search in plain Python: the `n_best` hypotheses, and the steps it could stop after.

    It never stops early itself, so it also tells whether stopping changes the result.
    """
    live, done, enough = [((), 0.0)], [], None
    for step in range(1, rules.max_length + 1):
        candidates = []
        for prefix, total in live:
            log_probabilities = chain.log_probabilities(sentence, prefix)
            for token in rules.allowed(prefix, log_probabilities):
                candidates.append(((*prefix, token), total + log_probabilities[token]))
        candidates.sort(key=lambda candidate: -candidate[1])
        for tokens, total in candidates[:beam_size]:
            if rules.is_complete(tokens):
                done.append(rules.hypothesis(chain, sentence, tokens, total))
        live = [c for c in candidates if not rules.is_complete(c[0])]
        live = live[:beam_size]
        done.sort(key=lambda hypothesis: -hypothesis.score)
        worst = done[n_best - 1].score if len(done) >= n_best else -np.inf
        bounds = [total / rules.length_penalty(rules.max_length) for _, total in live]
        if enough is None and max(bounds, default=-np.inf) <= worst:
            enough = step
    return done[:n_best], enough


def check_result(result, expected, pad_id=0):
    """Compare a DecodingResult with a list of hypotheses for each sentence, best first."""
    tokens, lengths, scores, log_probabilities = (ops.convert_to_numpy(x) for x in result[:4])
    attention = None if result.attention is None else ops.convert_to_numpy(result.attention)
    terms = ops.convert_to_numpy(result.token_log_probabilities)
    assert terms.shape == tokens.shape
    assert tokens.shape[0] == len(expected)
    for sentence, hypotheses in enumerate(expected):
        for place, hypothesis in enumerate(hypotheses):
            at, size = (sentence, place), len(hypothesis.tokens)
            assert tokens[at][:size].tolist() == list(hypothesis.tokens)
            assert (tokens[at][size:] == pad_id).all()
            assert lengths[at] == size
            np.testing.assert_allclose(scores[at], hypothesis.score, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(
                log_probabilities[at], hypothesis.log_probability, rtol=1e-4, atol=1e-5
            )
            np.testing.assert_allclose(terms[at][:size], hypothesis.terms, rtol=1e-4, atol=1e-5)
            assert (terms[at][size:] == 0).all()
            if attention is not None:
                np.testing.assert_allclose(attention[at][:size], hypothesis.attention, atol=1e-5)
                assert (attention[at][size:] == 0).all()
        missing = slice(len(hypotheses), None)
        assert (tokens[sentence, missing] == pad_id).all()
        assert (lengths[sentence, missing] == 0).all()
        assert (terms[sentence, missing] == 0).all()
        assert (scores[sentence, missing] == -np.inf).all()
        assert (log_probabilities[sentence, missing] == -np.inf).all()
