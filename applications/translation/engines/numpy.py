"""NumPy in place of Keras: greedy search by a Transformer, one product at a time.

A step of one sentence is a dozen products of a vector and a matrix. They take less time than a
framework needs to start them, so plain calls of BLAS are faster than any graph.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.decoding import DecodingResult, SearchOptions

from ...base.streams import default_streams, rows_of_a_batch
from ...base.task import TextTask
from ...errors import UserError, check_choice
from ...text import END_ID, PAD_ID, START_ID
from ..networks.transformer import Transformer
from .weights import WAY_OUT, Weights

COMPUTE_TYPES = ("float32",)
NEVER = np.float32(-np.inf)
ROUNDS = 3
"""How often a draft is mended before its sentence is searched among all words."""
CHECKED_ROWS = 128
"""Steps of a draft that are checked at once: the logits of all words are held for them."""
OPEN = 0.75
"""The batch shrinks when at most this part of it is open."""
FIRST_ROOM = 32
FEW_ROWS = 64


class NumPy:
    """The engine of a translator: its weights as arrays, read anew when they have changed.

    Args:
        task: a `Translator` over a `Transformer` with sinusoidal positions.
    """

    def __init__(self, task: TextTask):
        self._task = task
        self._model: _Model | None = None
        self._weights: Weights | None = None
        self._lock = threading.Lock()

    def planned(
        self, options: SearchOptions, compute_type: str, attention: bool, rows: int
    ) -> tuple[Callable[..., DecodingResult], int, int]:
        """Return a search in the form of our own for so many rows, the rows of a batch, and the
        streams: threads that may call it at once.

        Raises:
            UserError: where the engine does not do what is asked for.
        """
        check_choice("the compute type of NumPy", compute_type, COMPUTE_TYPES)
        network = self._task.backbone
        _check(network, options)
        with self._lock:
            if self._model is None or not self._weights.are(network):
                self._model, self._weights = _Model(network), Weights(network)
        streams = options.streams or default_streams()
        size = rows_of_a_batch(rows, options.batch_size, streams)
        shown = None
        if attention:
            shown = network.attention_layer % network.depth, network.attention_head
        return partial(_search, self._model, options, shown), size, streams


def _check(network: Any, options: SearchOptions) -> None:
    """Refuse what the engine does not do."""
    name, is_known = type(network).__name__, isinstance(network, Transformer)
    if is_known:
        name += f" with {network.positions} positions and the activation {network.activation}"
        is_known = network.positions == "sinusoidal" and network.activation in ACTIVATIONS
    if not is_known:
        raise UserError(
            "The engine numpy runs a Transformer with sinusoidal positions and one of the "
            f"activations {', '.join(ACTIVATIONS)}. Received: {name}; {WAY_OUT}"
        )
    if network.compute_dtype != "float32":
        raise UserError(
            f"The engine numpy computes in float32. Received: {network.compute_dtype}; load the "
            f"network with dtype='float32', or {WAY_OUT}"
        )
    problem = ""
    if options.sample:
        problem = "sample=True"
    elif options.beam_size > 1:
        problem = f"beam_size={options.beam_size}"
    elif options.no_repeat_ngram:
        problem = f"no_repeat_ngram={options.no_repeat_ngram}"
    if problem:
        raise UserError(
            f"The engine numpy searches greedily, with beam_size=1. Received: {problem}; {WAY_OUT}"
        )


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0, out=x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # By tanh, which overflows nowhere.
    x *= 0.5
    np.tanh(x, out=x)
    x *= 0.5
    x += 0.5
    return x


def _swish(x: np.ndarray) -> np.ndarray:
    return x * _sigmoid(x.copy())


ACTIVATIONS = {"relu": _relu, "swish": _swish, "silu": _swish}


class _Norm:
    def __init__(self, layer: Any):
        self.gamma, self.beta = _array(layer.gamma), _array(layer.beta)
        self.epsilon = layer.epsilon
        self.mean = np.full(len(self.gamma), 1 / len(self.gamma), "float32")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Normalise rows, which are overwritten."""
        x -= (x @ self.mean)[:, None]
        variance = np.einsum("ij,ij->i", x, x)
        variance *= self.mean[0]
        variance += self.epsilon
        np.sqrt(variance, out=variance)
        x /= variance[:, None]
        x *= self.gamma
        x += self.beta
        return x


class _Affine:
    def __init__(self, kernel: np.ndarray, bias: np.ndarray | None):
        self.kernel, self.bias = np.ascontiguousarray(kernel), bias

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = x @ self.kernel
        if self.bias is not None:
            x += self.bias
        return x


def _projections(layer: Any, *names: str) -> _Affine:
    """Return projections of an attention as one product."""
    size = layer.query_kernel.shape[0]
    kernels = [_kernel(layer, f"{name}_kernel").reshape(size, -1) for name in names]
    biases = [_array(getattr(layer, f"{name}_bias")).ravel() for name in names]
    return _Affine(np.concatenate(kernels, axis=1), np.concatenate(biases))


def _output(layer: Any) -> _Affine:
    kernel = _kernel(layer, "output_kernel")
    return _Affine(kernel.reshape(-1, kernel.shape[-1]), _array(layer.output_bias))


class _FeedForward:
    def __init__(self, layer: Any, activation: Callable):
        self.first = _Affine(_kernel(layer, "kernel"), _array(layer.bias))
        self.second = _Affine(_kernel(layer, "output_kernel"), _array(layer.output_bias))
        self.activation = activation

    def __call__(self, x: np.ndarray) -> np.ndarray:
        first, second = self.first, self.second
        if len(x) == 1 and self.activation is _relu:
            # Reading weights takes the time, and most rows of the second kernel meet a zero.
            hidden = _relu(first(x))
            active = np.flatnonzero(hidden[0])
            found = hidden[:, active] @ second.kernel.take(active, axis=0)
            found += second.bias
            return found
        if 1 < len(x) <= FEW_ROWS:  # BLAS is a quarter faster with the kernels on the left
            hidden = first.kernel.T @ x.T
            hidden += first.bias[:, None]
            found = np.ascontiguousarray((second.kernel.T @ self.activation(hidden)).T)
            found += second.bias
            return found
        return second(self.activation(first(x)))


def _residual(norm: _Norm, pre: bool, x: np.ndarray, function: Callable) -> np.ndarray:
    """Return a sublayer's result with what it reads added, and normalised before or after."""
    if pre:
        return function(norm(x.copy())) + x
    found = function(x)
    found += x
    return norm(found)


def _softmax(scores: np.ndarray) -> np.ndarray:
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, axis=-1, keepdims=True)
    return scores


class _Model:
    """The weights of a network, and what it computes."""

    def __init__(self, network: Transformer):
        self.width, self.heads = network.embedding_size, network.heads
        self.pre, self.source_end = network.norm == "pre", network.source_end
        self.is_ssru = network.autoregression == "ssru"
        self.factor = np.float32((self.width // self.heads) ** -0.5)
        codes = network.position_codes
        self.scale = np.float32(self.width**0.5 if codes.scale else 1.0)
        self._codes = codes
        self._positions = self._coded(FIRST_ROOM)
        self.target_table = _table(network.target_embedding)
        self.source_table = self.target_table
        if not network.share_embeddings:
            self.source_table = _table(network.source_embedding)
        self.output = self.target_table
        if not network.tie_embeddings:
            self.output = np.ascontiguousarray(_array(network.word_logits.kernel).T)
        self.bias = _array(network.word_logits.bias).copy()
        self.bias[[PAD_ID, START_ID]] = NEVER
        activation = ACTIVATIONS[network.activation]
        self.encoders = [
            (
                (_Norm(each.self_attention_norm),),
                _projections(each.self_attention, "query", "key", "value"),
                _output(each.self_attention),
                _Norm(each.feed_forward_norm),
                _FeedForward(each.feed_forward, activation),
            )
            for each in network.encoders
        ]
        self.decoders = [_Decoder(each, self, activation) for each in network.decoders]
        self.encoder_norm = _Norm(network.encoder_norm) if self.pre else None
        self.decoder_norm = _Norm(network.decoder_norm) if self.pre else None

    def _coded(self, count: int) -> np.ndarray:
        return _array(self._codes.encodings(np.arange(count), self.width))

    def positions(self, count: int) -> np.ndarray:
        """Return the codes of the first positions, `(count, D)` or more."""
        if count > len(self._positions):
            self._positions = self._coded(1 << (count - 1).bit_length())
        return self._positions

    def encode(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the annotations `(S, D)` of each sentence.

        All sentences' words stand one below the other, so that no product reads padding.
        """
        lengths = [len(each) for each in rows]
        ends = np.cumsum(lengths)
        x = self.source_table[np.concatenate(rows)] * self.scale
        codes = self.positions(max(lengths))
        # Neighbours of one length attend together.
        groups, first = [], 0
        for index, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            if index + 1 == len(lengths) or lengths[index + 1] != length:
                groups.append((slice(first, end), length))
                first = end
        for group, length in groups:
            x[group].reshape(-1, length, self.width)[...] += codes[:length]
        size = self.width // self.heads
        for (norm,), project, output, feed_norm, feed in self.encoders:

            def attend(y: np.ndarray, project=project, output=output) -> np.ndarray:
                parts = project(y)
                found = np.empty_like(y)
                for group, length in groups:
                    q, k, v = (
                        parts[group]
                        .reshape(-1, length, 3, self.heads, size)
                        .transpose(2, 0, 3, 1, 4)
                    )
                    scores = q @ k.transpose(0, 1, 3, 2)
                    scores *= self.factor
                    context = _softmax(scores) @ v
                    found[group] = context.transpose(0, 2, 1, 3).reshape(-1, self.width)
                return output(found)

            x = _residual(norm, self.pre, x, attend)
            x = _residual(feed_norm, self.pre, x, feed)
        if self.encoder_norm is not None:
            x = self.encoder_norm(x)
        return np.split(x, ends[:-1])

    def word_logits(self, x: np.ndarray, words: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        kernel, bias = words
        logits = x @ kernel.T
        logits += bias
        return logits

    def words(self, ids: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows and the biases of words; None for all."""
        return (self.output, self.bias) if ids is None else (self.output[ids], self.bias[ids])


class _Decoder:
    """A block of the decoder, which takes one step of `R` rows at a time."""

    def __init__(self, block: Any, model: _Model, activation: Callable):
        self.pre, self.heads, self.width = model.pre, model.heads, model.width
        self.factor = model.factor
        if model.is_ssru:
            own = block.ssru
            self.own = _Affine(_kernel(own, "kernel"), None)
            self.forget_bias = _array(own.bias)
            self.own_norm = _Norm(block.ssru_norm)
        else:
            self.own = _projections(block.self_attention, "query", "key", "value")
            self.own_output = _output(block.self_attention)
            self.own_norm = _Norm(block.self_attention_norm)
        cross = block.cross_attention
        self.query = _projections(cross, "query")
        self.key_value = _projections(cross, "key", "value")
        self.output, self.cross_norm = _output(cross), _Norm(block.cross_attention_norm)
        self.feed = _FeedForward(block.feed_forward, activation)
        self.feed_norm = _Norm(block.feed_forward_norm)
        self.is_ssru = model.is_ssru

    def start(self, memory: Sequence[np.ndarray], room: int) -> dict[str, np.ndarray]:
        """Return the state before the first step."""
        rows, longest, size = len(memory), max(map(len, memory)), self.width // self.heads
        found = self.key_value(np.concatenate(memory))
        if rows * longest == len(found):
            parts = found.reshape(rows, longest, 2, self.heads, size)
        else:
            parts = np.zeros((rows, longest, 2, self.heads, size), "float32")
            first = 0
            for row, each in enumerate(memory):
                own = found[first : first + len(each)]
                parts[row, : len(each)] = own.reshape(-1, 2, self.heads, size)
                first += len(each)
        keys = np.ascontiguousarray(parts[:, :, 0].transpose(0, 2, 3, 1))
        keys *= self.factor
        state = {"keys": keys, "values": np.ascontiguousarray(parts[:, :, 1].swapaxes(1, 2))}
        if self.is_ssru:
            state["cell"] = np.zeros((rows, self.width), "float32")
        else:
            state["own"] = np.zeros((rows, 2, self.heads, room, size), "float32")
        return state

    def step(self, x: np.ndarray, state: dict, index: int, mask: Any) -> tuple[np.ndarray, Any]:
        """Return the output `(R, D)` and the weights `(R, H, S)`; the state is changed."""
        rows, size = len(x), self.width // self.heads

        def recur(y: np.ndarray) -> np.ndarray:
            products = self.own(y)
            forget, cell = products[:, : self.width], products[:, self.width :]
            forget += self.forget_bias
            kept = state["cell"]
            kept -= cell
            kept *= _sigmoid(forget)
            kept += cell
            return np.maximum(kept, 0)

        def attend_to_own(y: np.ndarray) -> np.ndarray:
            query, key, value = self.own(y).reshape(rows, 3, self.heads, size).transpose(1, 0, 2, 3)
            room = state["own"].shape[3]
            if index >= room:
                more = [(0, 0)] * 3 + [(0, room), (0, 0)]
                state["own"] = np.pad(state["own"], more)
            state["own"][:, 0, :, index], state["own"][:, 1, :, index] = key, value
            keys, values = (state["own"][:, each, :, : index + 1] for each in (0, 1))
            scores = query[:, :, None] @ keys.swapaxes(2, 3)
            scores *= self.factor
            return self.own_output((_softmax(scores) @ values).reshape(rows, self.width))

        x = _residual(self.own_norm, self.pre, x, recur if self.is_ssru else attend_to_own)
        weights = None

        def attend(y: np.ndarray) -> np.ndarray:
            nonlocal weights
            scores = self.query(y).reshape(rows, self.heads, 1, size) @ state["keys"]
            if mask is not None:
                scores += mask
            weights = _softmax(scores)
            return self.output((weights @ state["values"]).reshape(rows, self.width))

        x = _residual(self.cross_norm, self.pre, x, attend)
        x = _residual(self.feed_norm, self.pre, x, self.feed)
        return x, weights[:, :, 0]


def _search(
    model: _Model,
    options: SearchOptions,
    shown: tuple[int, int | None] | None,
    source: np.ndarray,
    shortlist: np.ndarray | None = None,
    draft: np.ndarray | None = None,
) -> DecodingResult:
    """Search a batch of ids `(B, S)` greedily; the results are arrays.

    With `shortlist` no other words are scored. With `draft` all are, and the results are those of a
    search among all words: it writes with the words of the draft's list first, and checks all its
    steps in one product, which is faster than a product at each.
    """
    lengths = np.count_nonzero(source != PAD_ID, axis=1)
    limits = np.array([options.longest(length) for length in lengths.tolist()])
    rows = [each[:length] for each, length in zip(source, lengths, strict=True)]
    ends = [np.append(each, END_ID) for each in rows] if model.source_end else rows
    minimum = options.min_length + 1
    find = partial(_greedy, model, minimum=minimum, shown=shown)
    # Products of BLAS report overflows that are none; numbers that are not finite are looked for.
    with np.errstate(all="ignore"):
        memory = model.encode(ends)
        if draft is None:
            found = find(memory, limits, shortlist)
        else:
            found = _checked(model, find, memory, limits, draft, minimum)
    return _as_result(found, lengths, int(limits.max()), shown is not None, source.shape[1])


class _Written:
    """A translation as it is written: ids, log-probabilities, features, attention."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.terms: list[float] = []
        self.features: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []


def _greedy(
    model: _Model,
    memory: Sequence[np.ndarray],
    limits: np.ndarray,
    ids: np.ndarray | None,
    minimum: int,
    shown: tuple[int, int | None] | None,
    keeps_features: bool = False,
) -> list[_Written]:
    """Write translations of sentences with words of some `ids`; None for all."""
    count = len(memory)
    written = [_Written() for _ in range(count)]
    words = model.words(ids)
    states = [each.start(memory, FIRST_ROOM) for each in model.decoders]
    sizes = np.array([len(each) for each in memory])
    mask = None
    if sizes.min() < sizes.max():
        outside = np.arange(sizes.max()) >= sizes[:, None]
        mask = np.where(outside, NEVER, np.float32(0))[:, None, None]
    open_rows = np.arange(count)
    tokens = np.full(count, START_ID)
    index = 0
    while True:
        x = model.target_table[tokens]
        x *= model.scale
        x += model.positions(index + 1)[index]
        weights = None
        for place, (layer, state) in enumerate(zip(model.decoders, states, strict=True)):
            x, found = layer.step(x, state, index, mask)
            if shown is not None and place == shown[0]:
                weights = found.mean(axis=1) if shown[1] is None else found[:, shown[1]]
        if model.decoder_norm is not None:
            x = model.decoder_norm(x)
        logits = model.word_logits(x, words)
        places, terms = _chosen(logits, ids, index + 1 < minimum)
        tokens = places if ids is None else ids[places]
        is_open = np.empty(len(open_rows), bool)
        for place, (row, token, term) in enumerate(
            zip(open_rows.tolist(), tokens.tolist(), terms.tolist(), strict=True)
        ):
            if row < 0:
                is_open[place] = False
                continue
            each = written[row]
            each.ids.append(token)
            each.terms.append(term)
            if keeps_features:
                each.features.append(x[place])
            if weights is not None:
                each.weights.append(weights[place])
            is_open[place] = token != END_ID and index + 1 < limits[row]
        index += 1
        left = np.count_nonzero(is_open)
        if not left:
            return written
        if left <= OPEN * len(is_open):
            kept = np.flatnonzero(is_open)
            open_rows, tokens = open_rows[kept], tokens[kept]
            states = [{key: array[kept] for key, array in each.items()} for each in states]
            mask = None if mask is None else mask[kept]
        else:
            open_rows = np.where(is_open, open_rows, -1)


def _chosen(
    logits: np.ndarray, ids: np.ndarray | None, without_end: bool | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of the likeliest word of each row, and its log-probability.

    A row that nothing can follow, or whose numbers are not finite, ends.
    """
    end = END_ID if ids is None else int(np.searchsorted(ids, END_ID))
    rows = np.arange(len(logits))
    largest = np.maximum.reduce(logits, axis=1)
    early = np.flatnonzero(np.broadcast_to(without_end, len(logits)))
    of_end = logits[early, end]
    logits[early, end] = NEVER
    places = logits.argmax(axis=1)
    chosen = logits[rows, places]
    logits[early, end] = of_end
    is_stuck = early[chosen[early] == NEVER]
    places[is_stuck] = end
    chosen[is_stuck] = logits[is_stuck, end]
    logits -= largest[:, None]
    np.exp(logits, out=logits)
    terms = chosen - largest - np.log(np.add.reduce(logits, axis=1))
    places[~np.isfinite(terms)] = end
    return places, terms


def _checked(
    model: _Model,
    find: Callable,
    memory: Sequence[np.ndarray],
    limits: np.ndarray,
    draft: np.ndarray,
    minimum: int,
) -> list[_Written]:
    """Write what a search among all words writes, by drafts with some.

    A draft is right up to the first step at which a word that is not in its list is likelier than
    the one written. That word joins the list, and the sentence is written anew.
    """
    results: list[Any] = [None] * len(memory)
    left = list(range(len(memory)))
    for _ in range(ROUNDS):
        found = find([memory[row] for row in left], limits[left], draft, keeps_features=True)
        wrong, missing = [], []
        places = [(row, step) for row, each in enumerate(found) for step in range(len(each.ids))]
        features = [each for one in found for each in one.features]
        is_wrong: set[int] = set()
        for first in range(0, len(places), CHECKED_ROWS):
            part = slice(first, first + CHECKED_ROWS)
            logits = model.word_logits(np.array(features[part]), model.words(None))
            early = np.array([step + 1 < minimum for _, step in places[part]])
            best, terms = _chosen(logits, None, early)
            for (row, step), token, term in zip(
                places[part], best.tolist(), terms.tolist(), strict=True
            ):
                if row in is_wrong:
                    continue
                each = found[row]
                if token == each.ids[step]:
                    each.terms[step] = term
                else:
                    is_wrong.add(row)
                    missing.append(token)
        for place, row in enumerate(left):
            if place in is_wrong:
                wrong.append(row)
            else:
                results[row] = found[place]
        if not wrong:
            return results
        left = wrong
        draft = np.union1d(draft, missing).astype(draft.dtype)
    for row, each in zip(left, find([memory[x] for x in left], limits[left], None), strict=True):
        results[row] = each
    return results


def _as_result(
    found: Sequence[_Written], lengths: np.ndarray, longest: int, attention: bool, width: int
) -> DecodingResult:
    shape = (len(found), 1)
    tokens = np.full((*shape, longest), PAD_ID, "int32")
    terms = np.zeros((*shape, longest), "float32")
    weights = np.zeros((*shape, longest, width), "float32") if attention else None
    sizes = np.array([[len(each.ids)] for each in found], "int32")
    for row, each in enumerate(found):
        count = len(each.ids)
        tokens[row, 0, :count], terms[row, 0, :count] = each.ids, each.terms
        if weights is not None:
            own = int(lengths[row])
            weights[row, 0, :count, :own] = np.array(each.weights)[:, :own]
    totals = terms.sum(axis=-1)
    return DecodingResult(tokens, sizes, totals, totals.copy(), weights, terms)


def _array(variable: Any) -> np.ndarray:
    return np.asarray(ops.convert_to_numpy(variable), "float32")


def _kernel(layer: Any, name: str) -> np.ndarray:
    """Return a kernel in float32: dequantized, with LoRA's change."""
    return _array(layer.cast(getattr(layer, name)))


def _table(layer: keras.layers.Embedding) -> np.ndarray:
    if layer.quantization_mode is None and not layer.lora_enabled:
        return _array(layer.embeddings)
    return _array(layer(np.arange(layer.input_dim, dtype="int32")))
