"""How fast the sizes of the Transformer translate, one beside another.

One thread, 64 sentences of 20 words to exactly 30, random weights: the sizes are compared in time
alone. The order of the sizes turns from round to round. Several vocabularies show what the scores
of the words cost, several kinds of `--autoregression` what reads the words before.
"""

import argparse
import itertools
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.options import add_only, add_rounds, positive
from benchmarks.common.tables import markdown

SENTENCES, WORDS, STEPS = 64, 20, 30
BEAMS = (1, 4)
NAMES = ("tiny", "fast", "base")
AUTOREGRESSIONS = ("self-attention", "ssru")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_only(parser, NAMES, "sizes")
    parser.add_argument(
        "--vocabulary",
        type=positive(int),
        action="append",
        help="words of source and target; may be repeated (default: 8000)",
    )
    parser.add_argument(
        "--autoregression",
        choices=AUTOREGRESSIONS,
        action="append",
        help=f"what reads the words before; may be repeated (default: {AUTOREGRESSIONS[0]})",
    )
    add_rounds(parser, 5)


def network(size: str, vocabulary: int, autoregression: str) -> Any:
    """Return the network of a size, which writes no special token."""
    from keras_attention.applications.translation import Transformer
    from keras_attention.applications.translation.config import SIZES

    options = {"share_embeddings": True, "autoregression": autoregression}
    model = Transformer(vocabulary, vocabulary, **options, **SIZES[size])
    model.word_logits.bias.assign(np.where(np.arange(vocabulary) < 4, -1e4, 0.0))
    return model


def searches_of(model: Any) -> dict:
    """Return the search of each beam."""
    from keras_attention.applications.base.backend import compiled
    from keras_attention.applications.translation.search import search
    from keras_attention.decoding import SearchOptions

    options = {beam: SearchOptions(beam_size=beam, max_length=STEPS) for beam in BEAMS}
    return {
        beam: compiled(partial(search, model, options=how, attention=False), model, 2)
        for beam, how in options.items()
    }


def run(options: argparse.Namespace) -> None:
    """Print a line for each size."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    vocabularies = options.vocabulary or [8000]
    kinds = options.autoregression or AUTOREGRESSIONS[:1]
    words = min(vocabularies)
    source = np.random.default_rng(0).integers(4, words, (SENTENCES, WORDS)).astype("int32")
    chosen = itertools.product(options.only or NAMES, vocabularies, kinds)
    models = {each: network(*each) for each in chosen}
    programs = {size: searches_of(model) for size, model in models.items()}
    times: dict = {(size, beam): [] for size in models for beam in BEAMS}
    for turn in range(options.rounds + 1):  # the first traces
        sizes = list(models)
        for size in sizes[turn % len(sizes) :] + sizes[: turn % len(sizes)]:
            for beam in BEAMS:
                start = time.perf_counter()
                found = programs[size][beam](source)
                assert int(found.lengths.numpy().min()) == STEPS
                times[size, beam].append(time.perf_counter() - start)
    rows = [["size", "decoder", "words", "parameters", "greedy tokens/s", "beam 4 tokens/s"]]
    for (size, count, kind), model in models.items():
        medians = [np.median(times[(size, count, kind), beam][1:]) for beam in BEAMS]
        numbers = count, model.count_params(), *(SENTENCES * STEPS / each for each in medians)
        rows.append([size, kind, *(f"{each:,.0f}" for each in numbers)])
    print(markdown(rows))
