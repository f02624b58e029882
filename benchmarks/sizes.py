"""`python -m benchmarks.sizes`: how fast the sizes of a Transformer translate, one beside another.

One thread, 64 sentences of 20 words to exactly 30, random weights: the sizes are compared in time
alone. The order of the sizes turns from round to round. Several vocabularies show what the scores
of the words cost, several kinds of `--autoregression` what reads the words before.
"""

import argparse
import itertools
import time
from functools import partial

import numpy as np
import tensorflow as tf

from benchmarks.report import markdown
from keras_attention.applications.base.backend import compiled
from keras_attention.applications.translation import Transformer
from keras_attention.applications.translation.config import SIZES
from keras_attention.applications.translation.search import search
from keras_attention.decoding import SearchOptions
from keras_attention.layers.transformer.decoder import AUTOREGRESSIONS

SENTENCES, WORDS, STEPS = 64, 20, 30
BEAMS = (1, 4)
PUBLISHED = [AUTOREGRESSIONS[0]]


def network(size: str, vocabulary: int, autoregression: str) -> Transformer:
    """Return the network of a size, which writes no special token."""
    options = {"share_embeddings": True, "autoregression": autoregression}
    model = Transformer(vocabulary, vocabulary, **options, **SIZES[size])
    model.word_logits.bias.assign(np.where(np.arange(vocabulary) < 4, -1e4, 0.0))
    return model


def searches_of(model: Transformer) -> dict:
    """Return the search of each beam."""
    options = {beam: SearchOptions(beam_size=beam, max_length=STEPS) for beam in BEAMS}
    return {
        beam: compiled(partial(search, model, options=how, attention=False), model, 2)
        for beam, how in options.items()
    }


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizes")
    parser.add_argument("--size", nargs="+", choices=list(SIZES), default=["tiny", "fast"])
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[8000])
    parser.add_argument("--autoregression", nargs="+", choices=AUTOREGRESSIONS, default=PUBLISHED)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    words = min(options.vocabulary)
    source = np.random.default_rng(0).integers(4, words, (SENTENCES, WORDS)).astype("int32")
    chosen = itertools.product(options.size, options.vocabulary, options.autoregression)
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


if __name__ == "__main__":
    main()
