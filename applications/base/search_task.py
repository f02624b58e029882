"""The base of the tasks that search for their output, such as a translation."""

import dataclasses
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_attention.decoding import DecodingResult, SearchOptions

from ..errors import check_choice, check_unicode, shown
from .backend import words_of_seed
from .preprocessor import TextPreprocessor, as_texts, check_equally_many, padded
from .streams import in_streams, rows_of_a_batch, stream_count
from .task import TextTask

DIVERGED = (
    "The network's scores are not numbers (NaN), so what a search wrote means nothing. The "
    "training has diverged, or the weights are damaged: take an earlier checkpoint, or train anew "
    "with a lower learning rate."
)
UNCOMPILED_STEPS = 24
"""Steps that a search takes before it is compiled, which takes as long as some 30 of them."""


class SearchTask(TextTask):
    """Base of the tasks that search for their output, by default with the options in `search`.

    A subclass names `find(network, source, options=, attention=, **inputs)`, the axes of its
    source and the `verb` that searches; its `config_class` has the default options.
    `_planned` gives the search in a form that takes all inputs as one dictionary: `"source"`;
    `"seed"` `(B, 2)` where tokens are sampled; `"prefix"` `(B, P)` where outputs have to begin with
    something; `"shortlist"` `(n,)` where there is one. A search reads nothing else that changes, so
    that threads may share a task.
    """

    find: ClassVar[Callable]
    verb: ClassVar[str]
    source_rank: ClassVar[int] = 2
    service_options = ("max_letters", "search", *SearchOptions.__dataclass_fields__)

    def __init__(
        self,
        backbone: keras_hub.models.Backbone,
        preprocessor: TextPreprocessor | None = None,
        search: SearchOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        self.search = self.search_with(search or self.config_class().decoding.search(), {})
        super().__init__(backbone, preprocessor, **kwargs)
        self._uncompiled: dict[Any, int] = {}

    def get_config(self) -> dict[str, Any]:
        search = dataclasses.asdict(self.search)
        if search["streams"] is None:  # as earlier versions, which know no streams, can read it
            del search["streams"]
        return {**super().get_config(), "search": search}

    def settings(self, written):
        search = dataclasses.asdict(self.search)
        return {
            **super().settings(written),
            **{f"decoding.{key}": each for key, each in search.items()},
        }

    @classmethod
    def arguments_of(cls, config):
        names = SearchOptions.__dataclass_fields__
        search = {name: getattr(config.decoding, name) for name in names}
        return {**super().arguments_of(config), "search": search}

    def as_source(self, x):
        if isinstance(x, Mapping) and {"source", "target"} <= set(x):
            x = x["source"], x["target"]
        elif type(x) is not tuple or len(x) != 2 or isinstance(x[0], (str, bytes)):
            raise ValueError(f"{self._needs_targets()} Received: x={shown(x)}")
        sources, targets = as_texts(x[0], "sources"), as_texts(x[1], "targets")
        check_equally_many(sources=sources, targets=targets)
        return sources, targets

    def call(self, inputs, training=None):
        if "target" not in inputs:
            raise ValueError(f"{self._needs_targets()} Received: no targets")
        return super().call(inputs, training)

    def _needs_targets(self) -> str:
        return (
            f"A {type(self).__name__} predicts the logits of sources with their targets, as "
            f"`predict((sources, targets))`; `{self.verb}` writes new ones."
        )

    def search_with(self, search: Any, changes: Mapping[str, Any]) -> SearchOptions:
        """Return the options of a search, the task's own where not given, with changes."""
        search = self.search if search is None else search
        for name in [*(search if isinstance(search, Mapping) else []), *changes]:
            check_choice("an option of the search", name, SearchOptions.__dataclass_fields__)
        if isinstance(search, Mapping):
            search = SearchOptions(**search)
        if not isinstance(search, SearchOptions):
            raise ValueError(f"`search` should be a SearchOptions. Received: search={search!r}")
        return search.replace(**changes)

    def _planned(
        self,
        lengths: Sequence[int],
        options: SearchOptions,
        attention: bool,
        has_prefix: bool = False,
        shortlist: int | None = None,
    ) -> tuple[Callable, int, int]:
        """Return the search for sources of these lengths, the rows of a batch, and the streams.

        `shortlist` is the size of a vocabulary shortlist, where there is one.
        """
        streams = stream_count(options.streams)
        most, is_free = options.batch_size, options.streams is None
        settings = {"options": of_graph(options), "attention": attention}
        ranks = {"source": self.source_rank}
        if options.sample:
            ranks["seed"] = 2
        if has_prefix:
            ranks["prefix"] = 2
        if shortlist is not None:
            ranks["shortlist"] = 1

        def function(inputs: dict[str, Any]) -> Any:
            inputs = dict(inputs)
            if shortlist is not None:  # a graph must know how many words there are
                inputs["shortlist"] = ops.reshape(inputs["shortlist"], (shortlist,))
            return self.find(self.backbone, **inputs, **settings)

        key = (settings["options"], attention, has_prefix, shortlist)
        self._compiled_functions.check_process()
        rows = len(lengths)
        single = is_free and rows <= most  # with a number of streams, runs are always the same
        if single and self._is_not_worth_compiling(key, max(lengths, default=0)):
            return (lambda inputs: function(_as_tensors(inputs))), most, 1
        ready = self._compiled(key, function, ranks)
        return ready, rows_of_a_batch(rows, most, streams), streams

    def _prefix_ids(
        self,
        prefix: str | Sequence[str] | None,
        texts: Any,
        name: str,
        encode: Callable[[str, int], list[int]],
        limits: Sequence[int],
    ) -> list[list[int]]:
        """Return the ids that the output of each text begins with; none where none is given.

        Args:
            prefix: a string for all texts, or one for each of several.
            texts: a text or several.
            name: the name of the argument that holds the texts.
            encode: gives the ids of the prefix of a text, by its number.
            limits: the most tokens of each text's output.
        """
        count = len(limits)
        if prefix is None or isinstance(prefix, str):
            prefixes = [prefix or ""] * count
        else:
            prefixes = list(as_texts(prefix, "prefix"))
            if isinstance(texts, str):
                raise ValueError(
                    f"`prefix` of one text should be a string. Received: prefix={shown(prefix)}"
                )
            check_equally_many(**{name: range(count), "prefix": prefixes})
        if isinstance(prefix, str):
            check_unicode("prefix", prefix)
        ids = [encode(each, row) for row, each in enumerate(prefixes)]
        for row, (each, limit) in enumerate(zip(ids, limits, strict=True)):
            if len(each) > limit:
                raise ValueError(
                    f"The prefix of {name}[{row}] is longer than what may be written: give a "
                    "shorter one, or raise `max_length` or `max_length_ratio`. Received: a prefix "
                    f"of {len(each)} tokens where at most {limit} may be written"
                )
        return ids

    def _inputs(
        self,
        source: np.ndarray,
        seed: np.ndarray | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        shortlist: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the inputs of a search for a batch."""
        inputs = {"source": source}
        if seed is not None:
            inputs["seed"] = seed
        if prefixes is not None:
            inputs["prefix"] = padded(prefixes)
        if shortlist is not None:
            inputs["shortlist"] = shortlist
        return inputs

    def _found(self, find: Callable, inputs: dict[str, np.ndarray]) -> DecodingResult:
        """Return what a search finds for a batch, as arrays."""
        found = find(inputs)
        arrays = (x if x is None else np.asarray(ops.convert_to_numpy(x)) for x in found)
        return DecodingResult(*arrays)

    def _is_not_worth_compiling(self, key: Any, steps: int) -> bool:
        """Whether one batch, of so many steps, is searched operation by operation."""
        if key in self._compiled_functions or keras.backend.backend() != "tensorflow":
            return False
        self._uncompiled[key] = self._uncompiled.get(key, 0) + steps
        return self._uncompiled[key] <= UNCOMPILED_STEPS

    def _in_streams(self, find: Callable, use: Callable, batches: list, streams: int) -> None:
        """Call `use` with each batch, which calls `find`, `streams` at a time.

        `use` returns the scores that it has got. Where some are NaN, a warning says so, once.
        """
        streams = max(1, min(streams, len(batches)))
        if streams > 1 and hasattr(find, "get_concrete_function"):
            find.get_concrete_function()  # traced here: Keras' settings are those of a thread
        diverged = threading.Event()

        def used(batch: Any) -> None:
            if np.isnan(use(batch)).any():
                diverged.set()

        in_streams(used, batches, streams)
        if diverged.is_set():
            warnings.warn(DIVERGED, RuntimeWarning, stacklevel=4)


def of_graph(options: SearchOptions) -> SearchOptions:
    """Return the options without those that no graph depends on."""
    return dataclasses.replace(options, seed=None, batch_size=1, streams=None)


def seeds_of(options: SearchOptions, rows: int) -> np.ndarray | None:
    """Return the seed of each text, int32 `(rows, 2)`: the same for all, or fresh ones where the
    options have none. None where nothing is sampled.

    With the ids of a text it makes the seed of its samples: `sentence_seeds`.
    """
    if not options.sample:
        return None
    if options.seed is None:
        words = np.random.SeedSequence().generate_state(2 * rows).astype("uint32")
        return words.view("int32").reshape(rows, 2)
    return np.tile(words_of_seed(options.seed), (rows, 1))


def _as_tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: ops.convert_to_tensor(each, dtype="int32") for name, each in inputs.items()}
