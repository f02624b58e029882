"""CTranslate2 in place of our own search: the same network, options and form of results."""

import dataclasses
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from keras import ops

from keras_attention.decoding import DecodingResult, LengthPenalty, SearchOptions

from ...base.streams import default_streams, rows_of_a_batch, usable_cores
from ...base.task import TextTask
from ...errors import UserError, check_choice
from ...text import END_ID, PAD_ID, START_ID
from .ctranslate2_export import LONGEST, check_network, require_ctranslate2, save_model
from .weights import WAY_OUT, Weights, kept, words_of

VERSION = 1
"""Of the conversion: a higher number makes folders of earlier ones stale."""


class CTranslate2:
    """The engine of a translator: its network converted, anew only when its weights have changed.

    Args:
        task: a `Translator` over a `Transformer` with sinusoidal positions.
    """

    def __init__(self, task: TextTask):
        self._task = task
        self._made: dict[tuple[str, int], Any] = {}
        self._weights: Weights | None = None
        self._layer: int | None = None
        self._lock = threading.Lock()

    def planned(
        self, options: SearchOptions, compute_type: str, attention: bool, rows: int
    ) -> tuple[Callable[[np.ndarray], DecodingResult], int, int]:
        """Return a search in the form of our own for so many rows, the rows of a batch, and the
        streams: threads that may call it at once.

        Raises:
            UserError: where CTranslate2 is not installed or does not do what is asked for.
        """
        check_network(self._task.backbone, WAY_OUT)
        require_ctranslate2("The engine ctranslate2")
        _check_options(options, self._task.backbone.attention_head if attention else None)
        import ctranslate2

        supported = ctranslate2.get_supported_compute_types("cpu")
        check_choice("the compute type of CTranslate2 here", compute_type, sorted(supported))
        streams = options.streams or default_streams()  # on any backend
        size = rows_of_a_batch(rows, options.batch_size, streams)
        streams = max(1, min(streams, math.ceil(rows / size)))
        with self._lock:  # one request converts, the others wait
            engine = self._translator(compute_type, streams)
        return _Search(engine, *words_of(self._task), options, attention), size, streams

    def _translator(self, compute_type: str, streams: int) -> Any:
        import ctranslate2

        network = self._task.backbone
        layer = network.attention_layer
        if not self._weights or layer != self._layer or not self._weights.are(network):
            self._made, self._weights, self._layer = {}, Weights(network), layer
        key = compute_type, streams
        if key not in self._made:
            threads = {"inter_threads": streams, "intra_threads": max(1, usable_cores() // streams)}
            make, has_heads = partial(save_model, self._task), {"attention_head": None}
            with kept(self._task, "ctranslate2", VERSION, make, **has_heads) as model:
                settings = {"compute_type": compute_type, **threads}
                self._made[key] = ctranslate2.Translator(str(model), **settings)
        return self._made[key]


def _check_options(options: SearchOptions, head: int | None) -> None:
    """Refuse options that CTranslate2 does not have, or not as our own search has them."""
    if options.sample:
        raise UserError(f"CTranslate2 does not sample by a seed here: {WAY_OUT}")
    if options.uses_coverage:
        raise UserError(
            "CTranslate2 knows no coverage penalty of this kind. "
            f"Received: coverage_penalty={options.coverage_penalty}; {WAY_OUT}"
        )
    if head is not None:
        raise UserError(
            "CTranslate2 gives the mean of a layer's attention heads, not a single one. "
            f"Received: attention_head={head}; leave it out, or {WAY_OUT}"
        )


@dataclasses.dataclass
class _Search:
    """Translates a batch of ids `(B, S)`; the results are those of `DecodingResult`, as arrays."""

    translator: Any
    read: list[str]
    """The vocabulary of the source."""
    written: list[str]
    """The vocabulary of the target."""
    options: SearchOptions
    attention: bool

    def __post_init__(self):
        self._ids = {token: place for place, token in enumerate(self.written)}

    def __call__(self, source: np.ndarray) -> DecodingResult:
        options = self.options
        rows = [[self.read[word] for word in row if word != PAD_ID] for row in source]
        limits = ops.convert_to_numpy(options.limits(np.array(list(map(len, rows)), "int32")))
        longest = max(int(limits.max()), source.shape[1])
        if longest > LONGEST:
            raise UserError(
                f"A network in CTranslate2 has {LONGEST} positions. Received: a sentence or a "
                f"limit of {longest} tokens; {WAY_OUT}"
            )
        found = self._each_by_its_limit(rows, limits)
        results = self._as_arrays(found, source.shape[1])
        if self.attention and options.beam_size > 1:
            self._mend_first_step(results.attention, rows)
        return results

    def _each_by_its_limit(self, rows: list[list[str]], limits: np.ndarray) -> list[Any]:
        """Translate each row as if it were alone, though CTranslate2 has one limit for a batch.

        It first searches all rows with the smallest limit. A row is done if that is its own limit,
        or if all its hypotheses have ended: the others scored less, and more words only lower a
        score. The rows that are left are searched again with the next limit.
        """
        found: list[Any] = [None] * len(rows)
        left, end = list(range(len(rows))), [self.written[END_ID]]
        while left:
            limit = int(limits[left].min())
            done = self._translated([rows[row] for row in left], limit)
            for row, each in zip(left, done, strict=True):
                if limits[row] == limit or all(words[-1:] == end for words in each.hypotheses):
                    found[row] = each
            left = [row for row in left if found[row] is None]
        return found

    def _mend_first_step(self, weights: np.ndarray, rows: list[list[str]]) -> None:
        """Write the attention of the first words, which depends on the sentence alone.

        In a beam search over several sentences CTranslate2 (4.8.5) gives the first word the
        attention of another sentence of the batch.
        """
        settings = {"max_decoding_length": 1, "max_input_length": 0, "return_attention": True}
        settings |= {"beam_size": 1, "return_end_token": True}
        for row, each in enumerate(self.translator.translate_batch(rows, **settings)):
            weights[row, :, 0, : len(rows[row])] = each.attention[0][0]

    def _translated(self, rows: list[list[str]], limit: int) -> list[Any]:
        options = self.options
        # Our length penalty ranks the whole beam. CTranslate2 then also searches until so many
        # hypotheses are complete, as it does by itself with a length penalty.
        count = options.beam_size if options.length_penalty else options.n_best
        return self.translator.translate_batch(
            rows,
            beam_size=options.beam_size,
            num_hypotheses=count,
            length_penalty=0.0,
            min_decoding_length=min(options.min_length, limit),
            max_decoding_length=limit,
            max_input_length=0,
            no_repeat_ngram_size=options.no_repeat_ngram,
            suppress_sequences=[[self.written[PAD_ID]], [self.written[START_ID]]],
            return_scores=True,
            return_attention=self.attention,
            return_end_token=True,
        )

    def _as_arrays(self, found: list[Any], width: int) -> DecodingResult:
        options, count = self.options, self.options.n_best
        divisor = LengthPenalty(options.length_penalty if options.beam_size > 1 else 0.0)
        length = max(len(words) for each in found for words in each.hypotheses)
        shape = (len(found), count)
        tokens = np.full((*shape, length), PAD_ID, "int32")
        lengths = np.zeros(shape, "int32")
        totals = np.full(shape, -np.inf, "float32")
        scores = totals.copy()
        weights = np.zeros((*shape, length, width), "float32") if self.attention else None
        for row, each in enumerate(found):
            sizes = np.array(list(map(len, each.hypotheses)))
            ranked = np.array(each.scores) / np.asarray(divisor(np.maximum(sizes, 1)))
            for rank, place in enumerate(np.argsort(-ranked, kind="stable")[:count]):
                ids = [self._ids[token] for token in each.hypotheses[place]]
                tokens[row, rank, : len(ids)], lengths[row, rank] = ids, len(ids)
                scores[row, rank], totals[row, rank] = ranked[place], each.scores[place]
                if weights is not None:
                    given = np.array(each.attention[place])
                    weights[row, rank, : len(given), : given.shape[1]] = given
        return DecodingResult(tokens, lengths, scores, totals, weights)
