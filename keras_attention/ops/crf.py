"""Linear-chain conditional random fields: likelihood, marginals and best paths.

The forward and backward recursions run on probabilities that are normalized at each step: a step
is one matrix product. Where scores are so far apart that a probability that matters would round to
zero, the recursions run on logarithms instead, which takes `(B, K, K)` numbers a step.
"""

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from .loops import run_given, run_steps, swap_time, with_loop_gradient
from .masks import last_real
from .normalizers import masked_softmax
from .types import Tensor, accumulator_dtype, is_float
from .vjp import is_in_graph, pullback, unwatched

FORBIDDEN = -1e35
"""The score of what never occurs: finite, so that no difference of two is NaN."""
LARGEST = 1e30
"""The largest emission: one of infinity counts as this, and makes up for no `FORBIDDEN`."""
LARGEST_SPREAD = {"float32": 60.0, "float64": 600.0}
"""How far apart logarithms may be for the recursion on probabilities, by dtype."""


@dataclass(frozen=True)
class Constraints:
    """Pairs of tags that never follow each other; `None` is the start or the end of a sequence."""

    num_tags: int
    forbidden: tuple[tuple[int | None, int | None], ...] = ()

    @functools.cached_property
    def allowed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which transitions `(K, K)`, first tags `(K,)` and last tags `(K,)` may occur."""
        size = self.num_tags
        table = np.ones((size + 1, size + 1), bool)
        for before, after in self.forbidden:
            table[size if before is None else before, size if after is None else after] = False
        return table[:size, :size], table[size, :size], table[:size, size]

    @functools.cached_property
    def depth(self) -> int | None:
        """Return after how many steps every tag can follow every tag; `None` if that never holds.

        On the way there each tag must also be able to come to an end.
        """
        transitions, _, end = self.allowed
        reached = transitions
        for steps in range(1, self.num_tags + 1):
            if reached.all():
                return steps
            if not (reached & end).any(axis=1).all():
                return None
            reached = (reached.astype("int64") @ transitions.astype("int64")) > 0
        return None


class Parameters(NamedTuple):
    """The scores of a chain over `K` tags."""

    transitions: Tensor  # (K, K), from a tag to the next
    start: Tensor  # (K,)
    end: Tensor  # (K,)
    constraints: Constraints

    def restricted(self, dtype: str) -> "Parameters":
        """Return the parameters in a dtype, with `FORBIDDEN` where nothing may occur."""
        forbidden = ops.cast(FORBIDDEN, dtype)
        scores = [ops.cast(ops.convert_to_tensor(part), dtype) for part in self[:3]]
        if self.constraints.forbidden:
            pairs = zip(self.constraints.allowed, scores, strict=True)
            scores = [ops.where(allowed, part, forbidden) for allowed, part in pairs]
        transitions, start, end = scores
        return Parameters(transitions, start, end, self.constraints)


def score(emissions: Tensor, tags: Tensor, parameters: Parameters, mask: Tensor = None) -> Tensor:
    """Return the score `(B,)` of tags `(B, T)`, -inf where a forbidden transition occurs.

    So it is for ids that are no tags.
    """
    scores = _chain(emissions, parameters, mask).scores_of(tags)
    return _where_possible(ops.sum(scores, axis=0), ops.min(scores, axis=0, initial=0))


def log_likelihood(
    emissions: Tensor, tags: Tensor, parameters: Parameters, mask: Tensor = None
) -> Tensor:
    """Return the log probability `(B,)` of tags.

    Args:
        emissions: `(B, T, K)`.
        tags: Ids `(B, T)`, or sets of allowed tags `(B, T, K)`: the probability of all sequences
            of allowed tags.
        parameters: The scores of the chain.
        mask: Boolean `(B, T)`. What is masked is not read, wherever it stands.
    """
    chain = _chain(emissions, parameters, mask)
    if len(tags.shape) == 3:
        partial = _chain(emissions, parameters, mask, tags)
        return chain.log_ratio() + partial.log_partition()
    scores = chain.scores_of(tags)
    return _where_possible(chain.log_ratio(scores), ops.min(scores, axis=0, initial=0))


def log_partition(emissions: Tensor, parameters: Parameters, mask: Tensor = None) -> Tensor:
    """Return the logarithm `(B,)` of the sum over all sequences of tags of `exp(score)`."""
    return _chain(emissions, parameters, mask).log_partition()


def marginals(emissions: Tensor, parameters: Parameters, mask: Tensor = None) -> Tensor:
    """Return the probability `(B, T, K)` of each tag at each step, zeros where it is masked.

    Where no sequence of tags is possible, all of them are zeros. It is the gradient of the log
    partition by the emissions, of any order itself.
    """
    # Outside of what is differentiated: the gradient by an emission beyond the limits is zero.
    emissions = _within_limits(emissions, parameters)
    scores = [ops.cast(ops.convert_to_tensor(part), emissions.dtype) for part in parameters[:3]]

    def total(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
        given = Parameters(transitions, start, end, parameters.constraints)
        return _Chain(emissions, given, mask).log_partition()

    partition, vjp = pullback(total, [emissions, *scores])
    return vjp(ops.ones_like(partition))[0]


def decode(emissions: Tensor, parameters: Parameters, mask: Tensor = None) -> Tensor:
    """Return the tags of the highest score, int32 `(B, T)`, 0 where a step is masked."""
    return _chain(emissions, parameters, mask).best_path()


def n_best(
    emissions: Tensor, n: int, parameters: Parameters, mask: Tensor = None
) -> tuple[Tensor, Tensor]:
    """Return the `n` best paths, int32 `(B, n, T)`, and their log probabilities `(B, n)`.

    Where fewer paths exist, the rest has the log probability -inf, and tags 0.
    """
    return _chain(emissions, parameters, mask).best_paths(n)


def _chain(
    emissions: Tensor, parameters: Parameters, mask: Tensor = None, allowed: Tensor = None
) -> "_Chain":
    return _Chain(_within_limits(emissions, parameters), parameters, mask, allowed)


def _within_limits(emissions: Tensor, parameters: Parameters) -> Tensor:
    """Return emissions in the dtype of the chain, without infinities: their difference is NaN."""
    emissions = ops.cast(ops.convert_to_tensor(emissions), _dtype(emissions, parameters))
    return ops.clip(emissions, FORBIDDEN, LARGEST)


class _Chain:
    """A batch of chains, time first; the scores of start and end are added to the emissions.

    Attributes:
        emissions: `(T, B, K)`.
        real, first: `(T, B)`, 1 where a step is real, and where it is the first real one.
        is_masked: Whether any step may be masked.
    """

    def __init__(
        self, emissions: Tensor, parameters: Parameters, mask: Tensor = None, allowed: Tensor = None
    ) -> None:
        self.dtype = _dtype(emissions, parameters)
        self.parameters = parameters.restricted(self.dtype)
        self.is_masked = mask is not None
        batch, self.steps, self.num_tags = ops.shape(emissions)
        # Keras takes no maximum of nothing.
        self.is_empty = any(isinstance(size, int) and size == 0 for size in (batch, self.steps))
        if mask is None:
            real = ops.ones((batch, self.steps), "bool")
        else:
            real = ops.broadcast_to(ops.cast(mask, "bool"), (batch, self.steps))
        self._mask = real
        wide = ops.expand_dims(real, 2)
        emissions = ops.where(wide, emissions, ops.zeros_like(emissions))
        if allowed is not None:
            is_allowed = ops.logical_or(ops.cast(allowed, "bool"), ops.logical_not(wide))
            forbidden = ops.cast(FORBIDDEN, self.dtype)
            emissions = ops.where(is_allowed, emissions, forbidden)
        self.spread = self._spread(emissions)
        count = ops.cumsum(ops.cast(real, "int32"), axis=1)
        first = ops.logical_and(real, count == 1)
        last = ops.logical_and(real, count == count[:, -1:])
        zero = ops.zeros((), self.dtype)
        emissions = emissions + ops.where(ops.expand_dims(first, 2), self.parameters.start, zero)
        emissions = emissions + ops.where(ops.expand_dims(last, 2), self.parameters.end, zero)
        self.emissions = swap_time(emissions)
        self.real = swap_time(ops.cast(real, self.dtype))
        self.first = swap_time(ops.cast(first, self.dtype))

    def _spread(self, emissions: Tensor) -> Tensor:
        """Return a bound of how much more the future of one tag can be worth than another's.

        A tag whose probability rounds to zero in the recursion must not have a future that is worth
        more than that. After `depth` steps all futures are open to all tags.
        """
        depth = self.parameters.constraints.depth
        if depth is None or self.is_empty:
            return None
        ranges = []
        allowed = self.parameters.constraints.allowed
        for scores, is_allowed in zip(self.parameters[:3], allowed, strict=True):
            top = ops.max(scores)
            ranges.append(top - ops.min(ops.where(is_allowed, scores, top)))
        bound = depth * (ranges[0] + np.log(self.num_tags)) + ranges[2]
        if depth > 1:
            widths = ops.max(emissions, axis=-1) - ops.min(emissions, axis=-1)
            widest = ops.max(widths, initial=0)
            bound = bound + (depth - 1) * (widest + ranges[1] + ranges[2])
        return ops.stop_gradient(ops.cast(bound, self.dtype))

    def scores_of(self, tags: Tensor) -> Tensor:
        """Return what the tags `(B, T)` of each step add to the score, `(T, B)`."""
        tags = ops.cast(tags, "int32")
        is_tag = ops.logical_and(tags >= 0, tags < self.num_tags)
        tags = ops.where(ops.logical_and(self._mask, is_tag), tags, 0)
        if self.is_masked:
            index, _ = last_real(self._mask)
            index = ops.minimum(index, self.steps - 1)  # of a row without real steps
            held = ops.take_along_axis(tags, index, axis=1)
        else:
            held = tags
        before = ops.pad(held[:, :-1], [[0, 0], [1, 0]])
        pairs = ops.take(
            ops.reshape(self.parameters.transitions, (-1,)), before * self.num_tags + tags
        )
        emitted = ops.take_along_axis(swap_time(self.emissions), ops.expand_dims(tags, 2), axis=2)
        moved = self.real * (1 - self.first)
        pairs = ops.where(moved > 0, swap_time(pairs), ops.zeros_like(moved))
        emitted = ops.where(is_tag, emitted[..., 0], ops.cast(FORBIDDEN, self.dtype))
        return swap_time(emitted) * self.real + pairs

    def log_partition(self) -> Tensor:
        """Return the log partition `(B,)`, -inf where no sequence of tags is possible."""
        partition = -self.log_ratio()
        return _where_possible(partition, partition)

    def log_ratio(self, scores: Tensor = None) -> Tensor:
        """Return the sum of scores `(T, B)` less the log partition, `(B,)`.

        The two are subtracted step by step: both grow with the length, their difference does not.
        """
        if self.is_empty:
            return ops.sum(self.emissions, axis=(0, 2))
        given = {
            "emissions": self.emissions,
            "transitions": self.parameters.transitions,
            "scores": ops.zeros_like(self.real) if scores is None else scores,
            "real": ops.expand_dims(self.real, 2),
            "first": ops.expand_dims(self.first, 2),
        }
        if self.spread is not None:
            given["spread"] = self.spread

        def result(given: dict, norms: Tensor) -> Tensor:
            return ops.sum(given["scores"] - ops.squeeze(norms, 2), axis=0)

        def forward(given: dict) -> tuple:
            states, norms = self._choose(_forward_of_probabilities, _forward_of_logs, given)
            return result(given, norms), {"states": states, "norms": norms}

        def backward(given: dict, _: Tensor, saved: dict, upstream: Tensor) -> dict:
            given = {**given, **saved, "upstream": upstream[:, None]}
            d_emissions, d_transitions = self._choose(
                _backward_of_probabilities, _backward_of_logs, given
            )
            d_scores = ops.broadcast_to(upstream, ops.shape(given["scores"]))
            found = {"emissions": -d_emissions, "transitions": -d_transitions}
            return {**found, "scores": d_scores}

        def plain(given: dict) -> Tensor:
            return result(given, _forward_of_logs(given, self.is_masked, again=True)[1])

        return with_loop_gradient(forward, backward, given, plain)

    def _choose(self, of_probabilities: Callable, of_logs: Callable, given: dict) -> tuple:
        """Return the results of the recursion on probabilities where that is safe."""
        if "spread" not in given:
            return of_logs(given, self.is_masked)
        names = sorted(given)
        tensors = [given[name] for name in names]
        if is_in_graph(given["emissions"]):
            tensors = unwatched(tensors)
        given = dict(zip(names, tensors, strict=True))
        is_safe = given["spread"] < LARGEST_SPREAD[self.dtype]
        return ops.cond(
            is_safe,
            lambda: of_probabilities(given, self.is_masked),
            lambda: of_logs(given, self.is_masked),
        )

    def best_path(self) -> Tensor:
        """Return the tags of the best path, `(B, T)`."""
        if self.is_empty:
            return ops.zeros_like(self._mask, "int32")
        # A step is a few small operations, so that each of them counts.
        emissions, real = self.emissions, self.real[..., None]
        after_first = real - self.first[..., None]
        is_real, is_moved = real > 0, after_first > 0
        transitions = ops.transpose(self.parameters.transitions)

        def forward(index: Tensor, before: Tensor) -> tuple:
            best = ops.max(before[:, None, :] + transitions, axis=-1)
            after = emissions[index] + best * after_first[index]
            after = after - ops.max(after, axis=-1, keepdims=True)
            if self.is_masked:
                after = ops.where(is_real[index], after, before)
            return after, after

        states, last = run_steps(forward, self.steps, ops.zeros_like(emissions[0]))
        before = ops.concatenate([states[:1], states[:-1]], axis=0)[:, :, None]

        def back(index: Tensor, tag: Tensor) -> tuple:
            scores = before[index] + ops.take(transitions, tag, axis=0)
            earlier = ops.cast(ops.argmax(scores, axis=-1), "int32")
            if self.is_masked:
                earlier = ops.where(is_moved[index], earlier, tag)
            return tag, earlier

        tag = ops.cast(ops.argmax(last, axis=-1), "int32")[:, None]
        found, _ = run_steps(back, self.steps, tag, reverse=True)
        return ops.where(self._mask, swap_time(found[..., 0]), 0)

    def best_paths(self, n: int) -> tuple[Tensor, Tensor]:
        """Return the `n` best paths `(B, n, T)`, and their log probabilities `(B, n)`."""
        size = self.num_tags
        emissions, first, real = self.emissions, self.first[..., None], self.real[..., None]
        transitions = ops.transpose(self.parameters.transitions)[None, :, :, None]
        batch = ops.shape(self._mask)[0]
        nothing = ops.cast(np.where(np.arange(n) == 0, 0.0, FORBIDDEN), self.dtype)
        alone = ops.broadcast_to(nothing, (batch, size, n))

        def forward(index: Tensor, before: Tensor) -> tuple:
            candidates = before[:, None] + transitions
            best, origin = ops.top_k(ops.reshape(candidates, (batch, size, size * n)), n)
            best = ops.where(first[index][..., None] > 0, alone, best)
            after = best + emissions[index][..., None]
            top = ops.max(after, axis=(1, 2), keepdims=True)
            after = after - top
            if self.is_masked:
                is_real = real[index][..., None] > 0
                after = ops.where(is_real, after, before)
                top = ops.where(is_real, top, ops.zeros_like(top))
            return {"origin": ops.cast(origin, "int32"), "top": top[..., 0]}, after

        if self.is_empty:
            scores = ops.broadcast_to(_where_possible(nothing, nothing), (batch, n))
            return ops.zeros((batch, n, self.steps), "int32"), scores
        saved, last = run_steps(forward, self.steps, alone)
        # A row without steps has one path.
        is_empty = ops.logical_not(ops.any(self._mask, axis=1))
        ends = ops.reshape(last, (batch, size * n))
        one = ops.broadcast_to(ops.arange(size * n) == 0, ops.shape(ends))
        empty = ops.where(one, ops.zeros_like(ends), ops.cast(FORBIDDEN, self.dtype))
        scores, end = ops.top_k(ops.where(is_empty[:, None], empty, ends), n)
        end = ops.cast(end, "int32")

        def back(index: Tensor, place: Tensor) -> tuple:
            origin = ops.reshape(saved["origin"][index], (batch, size * n))
            earlier = ops.take_along_axis(origin, place, axis=1)
            return place, ops.where(real[index] > first[index], earlier, place)

        places, _ = run_steps(back, self.steps, end, reverse=True)
        tops = saved["top"][..., 0]
        # Scores are relative to the best ones: those say whether any path is possible.
        lowest = ops.minimum(scores, ops.min(tops, axis=0)[:, None])
        scores = _where_possible(scores, lowest)
        exists = ops.logical_and(self._mask[:, None, :], ops.isfinite(scores)[..., None])
        paths = ops.where(exists, ops.transpose(places // n, (1, 2, 0)), 0)
        return paths, scores + self.log_ratio(tops)[:, None]


def _forward_of_logs(given: dict, is_masked: bool, again: bool = False) -> tuple:
    """Return the normalized log probabilities `(T, B, K)`, and their normalizers `(T, B, 1)`."""

    def step(index: Tensor, before: Tensor, given: dict) -> tuple:
        moved = ops.logsumexp(before[:, :, None] + given["transitions"], axis=1)
        moved = ops.where(given["first"][index] > 0, ops.zeros_like(moved), moved)
        after = moved + given["emissions"][index]
        norm = ops.logsumexp(after, axis=-1, keepdims=True)
        after = after - norm
        if is_masked:
            real = given["real"][index] > 0
            after = ops.where(real, after, before)
            norm = ops.where(real, norm, ops.zeros_like(norm))
        return [after, norm], after

    names = ("emissions", "first", "real")
    given = {name: given[name] for name in (*names, "transitions")}
    steps = ops.shape(given["emissions"])[0]
    start = ops.zeros_like(given["emissions"][0])
    (states, norms), _ = run_given(step, steps, start, given, names, again)
    return states, norms


def _backward_of_logs(given: dict, is_masked: bool) -> tuple:
    """Return the gradients of the log partition by emissions and transitions."""
    before = ops.concatenate([ops.zeros_like(given["states"][:1]), given["states"][:-1]], axis=0)
    transitions, upstream = given["transitions"], given["upstream"]

    def step(index: Tensor, states: dict) -> tuple:
        after = states["future"] + given["emissions"][index]
        pairs = transitions + after[:, None, :]
        future = ops.logsumexp(pairs, axis=-1)
        moved = given["real"][index] - given["first"][index]
        shape = ops.shape(pairs)
        joint = ops.reshape(before[index][:, :, None] + pairs, (shape[0], -1))
        joint = ops.reshape(masked_softmax(joint) * moved * upstream, shape)
        # One tag follows the next: only differences of the future count.
        future = future - ops.max(future, axis=-1, keepdims=True)
        if is_masked:
            future = ops.where(given["real"][index] > 0, future, states["future"])
        total = states["total"] + ops.sum(joint, axis=0)
        return states["future"], {"future": future, "total": total}

    start = {"future": ops.zeros_like(before[0]), "total": ops.zeros_like(transitions)}
    futures, last = run_steps(step, ops.shape(before)[0], start, reverse=True)
    joint = masked_softmax(given["states"] + futures)
    return joint * given["real"] * upstream, last["total"]


def _forward_of_probabilities(given: dict, is_masked: bool) -> tuple:
    """Return the normalized probabilities `(T, B, K)`, and the log normalizers `(T, B, 1)`."""
    highest = ops.max(given["transitions"])
    transitions = ops.exp(given["transitions"] - highest)
    top = ops.max(given["emissions"], axis=-1, keepdims=True)
    emitted = ops.exp(given["emissions"] - top)
    first, real = given["first"], given["real"]
    hidden = 1 - real

    def step(index: Tensor, before: Tensor) -> tuple:
        # All is zero before the first step.
        after = (ops.matmul(before, transitions) + first[index]) * emitted[index]
        scale = ops.sum(after, axis=-1, keepdims=True)
        if not is_masked:
            after = after / scale
            return [after, scale], after
        scale = scale + hidden[index]
        after = ops.where(real[index] > 0, after / scale, before)
        return [after, scale], after

    start = ops.zeros_like(emitted[0])
    (states, scales), _ = run_steps(step, ops.shape(emitted)[0], start)
    norms = (ops.log(scales) + top) * real + (real - first) * highest
    return states, norms


def _backward_of_probabilities(given: dict, is_masked: bool) -> tuple:
    """Return the gradients of the log partition by emissions and transitions."""
    states, real = given["states"], given["real"]
    highest = ops.max(given["transitions"])
    transitions = ops.exp(given["transitions"] - highest)
    turned = ops.transpose(transitions)
    top = ops.max(given["emissions"], axis=-1, keepdims=True)
    emitted = ops.exp(given["emissions"] - top)

    def step(index: Tensor, future: Tensor) -> tuple:
        earlier = ops.matmul(future * emitted[index], turned)
        earlier = earlier / ops.sum(earlier, axis=-1, keepdims=True)
        if is_masked:
            earlier = ops.where(real[index] > 0, earlier, future)
        return future, earlier

    futures, _ = run_steps(step, ops.shape(emitted)[0], ops.ones_like(emitted[0]), reverse=True)
    joint = states * futures
    # All is zero before the first real step.
    shares = ops.sum(joint, axis=-1, keepdims=True) + (1 - real)
    weighted = real * given["upstream"] / shares
    # The sum over both tags of a transition, from the tags before it to the future after it.
    scales = ops.exp(top + highest - given["norms"])
    moved = weighted * (1 - given["first"]) * scales
    before = ops.concatenate([ops.zeros_like(states[:1]), states[:-1]], axis=0)
    size = ops.shape(transitions)[0]
    left = ops.reshape(before * moved, (-1, size))
    right = ops.reshape(futures * emitted, (-1, size))
    pairs = ops.matmul(ops.transpose(left), right) * transitions
    return joint * weighted, pairs


def check_ids(tags: Any, name: str) -> None:
    """Raise a ValueError if tags are no numbers, such as names of tags."""
    dtype = str(getattr(tags, "dtype", type(tags).__name__))
    if not any(kind in dtype for kind in ("int", "float", "bool")):
        raise ValueError(
            f"`{name}` must be ids of tags, or sets of allowed tags: numbers. "
            f"Received: {name} of dtype {dtype}"
        )


def _dtype(emissions: Tensor, parameters: Parameters) -> str:
    given = [part for part in (emissions, *parameters[:3]) if is_float(part)]
    return accumulator_dtype(*[part.dtype for part in given])


def _where_possible(values: Tensor, lowest: Tensor) -> Tensor:
    """Return values, but -inf where the lowest score that they hold is of what never occurs."""
    never = ops.cast(-np.inf, values.dtype)
    return ops.where(lowest < FORBIDDEN / 2, never, values)


# Tensors that take no attributes, such as arrays of JAX, by their ids.
_chains: dict[int, Callable] = {}


def leave_chain(outputs: Tensor, log_likelihood: Callable) -> None:
    """Leave `log_likelihood(tags)` on the outputs of a layer, as Keras leaves masks there."""
    try:
        outputs._keras_attention_chain = log_likelihood
    except AttributeError:
        key = id(outputs)
        _chains[key] = log_likelihood
        weakref.finalize(outputs, _chains.pop, key, None)


def chain_of(outputs: Tensor) -> Callable | None:
    """Return the `log_likelihood(tags)` that a layer left on its outputs, or `None`."""
    found = getattr(outputs, "_keras_attention_chain", None)
    return _chains.get(id(outputs)) if found is None else found
