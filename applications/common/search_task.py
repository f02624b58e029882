"""The base of the tasks that search for their output, such as a translation."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_attention.decoding import SearchOptions

from .errors import check_choice, shown
from .preprocessor import TextPreprocessor, as_texts, check_equally_many
from .streams import in_streams, rows_of_a_batch, stream_count
from .task import TextTask

UNCOMPILED_STEPS = 24
"""Steps that a search takes before it is compiled, which takes as long as some 30 of them."""


class SearchTask(TextTask):
    """Base of the tasks that search for their output, by default with the options in `search`.

    A subclass names `find(network, source, options=, seed=, attention=)`, the axes of its source,
    its default options and the `verb` that searches. Where `_planned` gets the size of a shortlist,
    `find` takes the ids of its words too, as `shortlist`, and so does the search that comes back,
    after the source.
    """

    find: ClassVar[Callable]
    verb: ClassVar[str]
    source_rank: ClassVar[int] = 2
    default_search: ClassVar[Mapping[str, Any]] = {}
    service_options = ("max_letters", "search", *SearchOptions.__dataclass_fields__)

    def __init__(
        self,
        backbone: keras_hub.models.Backbone,
        preprocessor: TextPreprocessor | None = None,
        search: SearchOptions | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ):
        self.search = self.search_with(search or self.default_search, {})
        super().__init__(backbone, preprocessor, **kwargs)
        self._seed = keras.random.SeedGenerator(0)
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
        shortlist: int | None = None,
    ) -> tuple[Callable, int, int]:
        """Return the search for sources of these lengths, the rows of a batch, and the streams."""
        if options.sample:  # the seed starts anew
            seed = np.random.SeedSequence().entropy if options.seed is None else options.seed
            self._seed.state.assign(np.array([seed % 2**32, 0], self._seed.state.dtype))
        # Samples are drawn batch after batch.
        streams = 1 if options.sample else stream_count(options.streams)
        most, is_free = options.batch_size, options.streams is None
        options = of_graph(options)
        settings = {"options": options, "seed": self._seed, "attention": attention}
        function = functools.partial(self.find, self.backbone, **settings)
        key, changing, ranks = (options, attention), [self._seed.state], [self.source_rank]
        if shortlist is not None:
            function, key = _among(function, shortlist), (*key, shortlist)
            ranks.append(1)
        rows = len(lengths)
        single = is_free and rows <= most  # with a number of streams, runs are always the same
        if single and self._is_not_worth_compiling(key, max(lengths, default=0)):
            return (lambda *ids: function(*map(ops.convert_to_tensor, ids))), most, 1
        ready = self._compiled(key, function, *ranks, changing=changing)
        return ready, rows_of_a_batch(rows, most, streams), streams

    def _is_not_worth_compiling(self, key: Any, steps: int) -> bool:
        """Whether one batch, of so many steps, is searched operation by operation."""
        if key in self._compiled_functions or keras.backend.backend() != "tensorflow":
            return False
        self._uncompiled[key] = self._uncompiled.get(key, 0) + steps
        return self._uncompiled[key] <= UNCOMPILED_STEPS

    def _in_streams(self, find: Callable, use: Callable, batches: list, streams: int) -> None:
        """Call `use` with each batch, which calls `find`, `streams` at a time."""
        streams = max(1, min(streams, len(batches)))
        if streams > 1 and hasattr(find, "get_concrete_function"):
            find.get_concrete_function()  # traced here: Keras' settings are those of a thread
        in_streams(use, batches, streams)


def of_graph(options: SearchOptions) -> SearchOptions:
    """Return the options without those that no graph depends on."""
    return dataclasses.replace(options, seed=None, batch_size=1, streams=None)


def _among(find: Callable, size: int) -> Callable:
    """Return a search that takes the ids `(size,)` of the words to write, too."""
    # A graph must know how many there are.
    return lambda source, words: find(source, shortlist=ops.reshape(words, (size,)))
