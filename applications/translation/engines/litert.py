"""LiteRT in place of TensorFlow: our own search as one program, of the same results.

LiteRT runs a program of fixed sizes without the overhead of single operations, and products of a
few rows by XNNPACK, in float32 or with weights of eight bits.
"""

import logging
import math
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import LifoQueue
from typing import Any

import keras
import numpy as np

from keras_attention.decoding import DecodingResult, SearchOptions

from ...base.backend import require_backend
from ...base.search_task import of_graph
from ...base.streams import default_streams, usable_cores
from ...base.task import TextTask
from ...errors import UserError, check_choice, check_number, one_line
from ...store.files import digest, new_folder
from ...text import PAD_ID
from ..search import search
from .weights import WAY_OUT, Weights, kept

COMPUTE_TYPES = ("float32", "int8")
VERSION = 2
"""Of the conversion: a higher number makes programs of earlier ones stale."""
FILE = "search.tflite"
ROWS = 16
"""Sentences of a program for many: more are hardly faster."""
SHORTEST, LONGEST = 16, 1024
"""Tokens of the sources of the smallest program, and of the largest; each has twice as many."""
STEPS = 1.5
"""Steps that a program first has room for, as a multiple of the source's: each step copies it."""


class LiteRT:
    """The engine of a translator: its search converted, anew only when something has changed.

    A program has one sentence or 16, of up to 16, 32, 64, … tokens, one choice of search options,
    and room for half as many steps again. A search that needs more has another program, and so has
    a shortlist, for each number of words that lists are filled up to.

    Args:
        task: a `Translator`.
    """

    def __init__(self, task: TextTask):
        self._task = task
        self._made: dict[tuple, LifoQueue] = {}
        self._weights: Weights | None = None
        self._shown: list = []
        self._lock = threading.Lock()

    def planned(
        self, options: SearchOptions, compute_type: str, attention: bool, rows: int
    ) -> tuple[Callable[[np.ndarray], DecodingResult], int, int]:
        """Return a search in the form of our own for so many rows, the rows of a batch, and the
        streams: threads that may call it at once.

        Raises:
            UserError: where the engine does not do what is asked for.
        """
        check_choice("the compute type of LiteRT", compute_type, COMPUTE_TYPES)
        _check(self._task.backbone, options, WAY_OUT)
        network = self._task.backbone
        shown = [getattr(network, f"attention_{name}", None) for name in ("layer", "head")]
        with self._lock:  # requests in several threads share the engine
            if not self._weights or shown != self._shown or not self._weights.are(network):
                self._made, self._weights, self._shown = {}, Weights(network), shown
        streams = options.streams or default_streams()
        size = ROWS if rows > streams and options.batch_size >= ROWS else 1
        streams = max(1, min(streams, math.ceil(rows / size)))
        kind = (of_graph(options), compute_type, attention)
        return partial(self._search, kind, size, streams), size, streams

    def _search(
        self,
        kind: tuple,
        rows: int,
        streams: int,
        source: np.ndarray,
        shortlist: np.ndarray | None = None,
    ) -> DecodingResult:
        length, width = source.shape[1], _width(source.shape[1])
        # Empty places are padding, and empty rows the last sentence again.
        source = np.pad(source, ((0, 0), (0, width - length)), constant_values=PAD_ID)
        filled = np.pad(source, ((0, rows - len(source)), (0, 0)), mode="edge").astype("int32")
        inputs = {"source": filled}
        if shortlist is not None:
            inputs["shortlist"] = shortlist
        words = None if shortlist is None else len(shortlist)
        longest = kind[0].longest(width)
        for room in sorted({min(longest, int(STEPS * width)), longest}):
            key = (*kind, (rows, width, room, words), streams)
            with self._lock:  # one stream converts, the others wait
                if key not in self._made:
                    self._made[key] = self._runners(*key)
                runners = self._made[key]
            run = runners.get()  # another call in another thread may have it: it waits
            try:
                found = run(**inputs)
            finally:
                runners.put(run)
            if not np.isnan(found["scores"]).any():
                break
        found = {name: array[: len(source)] for name, array in found.items()}
        if "attention" in found:
            found["attention"] = found["attention"][..., :length]
        return DecodingResult(**found)

    def _runners(self, options, compute_type, attention, sizes, streams) -> LifoQueue:
        """Return a function for each stream, which runs the program on its share of the cores."""
        make = partial(_write, self._task, options, compute_type, attention, sizes)
        name = f"-{digest([options, compute_type, attention, sizes])[:8]}"
        threads = max(1, usable_cores() // streams)
        with kept(self._task, "litert", VERSION, make, name) as folder:
            file = folder / FILE
            runners: LifoQueue = LifoQueue()
            for _ in range(streams):
                runners.put(_runner(file, threads))
            return runners


def export_litert(
    task: TextTask,
    output: Path | str,
    search: SearchOptions | None = None,
    source_length: int = 64,
    compute_type: str = "float32",
    **options: Any,
) -> None:
    """Write the search as one LiteRT program for a sentence, with the tokenizers beside it.

    The program needs no TensorFlow where it runs. Its signature takes `source`, ids `(1, S)`
    padded with 0, and gives `tokens (1, N, L)`, `lengths`, `scores` and `log_probabilities` `(1,
    N)` and, where the network has attention, `attention (1, N, L, S)`, as a `DecodingResult`.

    ```
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter
    from ..text import load_tokenizer

    source, target = (load_tokenizer("exported/tokenizers", name) for name in ("source", "target"))
    run = Interpreter("exported/search.tflite").get_signature_runner()
    ids = source.encode(["A dog runs."])[0]
    found = run(source=np.array([ids + [0] * (64 - len(ids))], "int32"))
    print(target.decode(found["tokens"][:, 0])[0])
    ```

    Args:
        task: a `Translator`.
        output: the folder to write; it must not exist.
        search: how to search; None for the task's own options.
        source_length: most tokens `S` of a source.
        compute_type: `"float32"`, or `"int8"` for weights of eight bits.
        **options: fields of `SearchOptions` to change.

    Raises:
        UserError: if `output` exists, or the network or the options cannot be converted.
    """
    check_choice("`compute_type`", compute_type, COMPUTE_TYPES)
    check_number("`source_length`", source_length, 1, whole=True)
    chosen = task.search_with(search, options)
    _check(task.backbone, chosen, "--format saved_model exports it.")
    with new_folder(output) as folder:
        sizes = 1, source_length, chosen.longest(source_length), None
        kind = of_graph(chosen), compute_type, task.backbone.has_attention
        _write(task, *kind, sizes, folder)
        for side in ("source", "target"):
            getattr(task.preprocessor, f"{side}_tokenizer").save(folder / "tokenizers", side)


def _check(network: Any, options: SearchOptions, way_out: str) -> None:
    """Refuse what cannot be converted."""
    require_backend("a program of LiteRT")
    if options.sample:
        raise UserError(f"A program of LiteRT draws no samples: {way_out}")
    kinds = {str(weight.dtype) for weight in network.weights} - {"float32"}
    if kinds or network.compute_dtype != "float32":
        raise UserError(
            "LiteRT gets a network of float32, and quantises it itself. "
            f"Received: {', '.join(sorted(kinds | {network.compute_dtype}))}; load it with "
            f"dtype='float32', or {way_out}"
        )


def _width(length: int) -> int:
    """Return the tokens of the smallest program that holds a source."""
    if length > LONGEST:
        raise UserError(
            f"A program of LiteRT holds sources of {LONGEST} tokens. Received: {length}; {WAY_OUT}"
        )
    return max(SHORTEST, 1 << (length - 1).bit_length())


def _write(
    task: TextTask,
    options: SearchOptions,
    compute_type: str,
    attention: bool,
    sizes: tuple[int, int, int, int | None],
    folder: Path,
) -> None:
    """Write a program into a new folder, for these numbers of sources, of their tokens, of steps,
    and of the words of a shortlist, `None` to score all words."""
    import tensorflow as tf

    network, (*shape, room, words) = task.backbone, sizes
    contents = [weight.numpy() for weight in network.weights]
    inputs = [tf.TensorSpec(shape, tf.int32, name="source")]
    if words is not None:
        inputs.append(tf.TensorSpec((words,), tf.int32, name="shortlist"))

    @tf.function(input_signature=inputs, autograph=False)
    def find(source, shortlist=None):
        # The converter leaves variables in a loop: as constants they are products' weights.
        constants = [tf.constant(content) for content in contents]
        with keras.StatelessScope(zip(network.weights, constants, strict=True)):
            given = {"attention": attention, "shortlist": shortlist, "room": room}
            found = search(network, source, options, **given)
        return {name: x for name, x in found._asdict().items() if x is not None}

    module = tf.Module()
    module.search = find
    plain = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with _quietly(), tempfile.TemporaryDirectory() as temporary:
        tf.saved_model.save(module, temporary, signatures=find, options=plain)
        converter = tf.lite.TFLiteConverter.from_saved_model(temporary)
        if compute_type == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        try:
            content = converter.convert()
        except Exception as error:
            raise UserError(
                f"LiteRT could not convert this network and search: {one_line(error)}"
            ) from error
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(content)


@contextmanager
def _quietly() -> Iterator[None]:
    """Hold back TensorFlow's warnings of gradients, which a search has none of."""
    logger = logging.getLogger("absl")

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    logger.addFilter(is_error)  # not a level: the converter sets that itself
    try:
        yield
    finally:
        logger.removeFilter(is_error)


def _runner(file: Path, threads: int) -> Callable[..., dict[str, np.ndarray]]:
    """Return a function that runs a program."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        import tensorflow as tf

        Interpreter = tf.lite.Interpreter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, which has a package for it now
        return Interpreter(str(file), num_threads=threads).get_signature_runner()
