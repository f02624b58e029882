"""`python -m benchmarks.sizes`: how fast the sizes of a Transformer translate, one beside another.

One thread, 64 sentences of 20 words to exactly 30, random weights: the sizes are compared in time
alone. The order of the sizes turns from round to round. Several vocabularies show what the scores
of the words cost, `--no-self-attention` what a decoder without any would save: more than any
cheaper layer in its place can.
"""

import argparse
import time
from functools import partial

import numpy as np
import tensorflow as tf

from benchmarks.report import markdown
from keras_attention.applications.common.backend import compiled
from keras_attention.applications.translation import Transformer
from keras_attention.applications.translation.config import SIZES
from keras_attention.applications.translation.search import search
from keras_attention.decoding import SearchOptions

SENTENCES, WORDS, STEPS = 64, 20, 30
BEAMS = (1, 4)
WITHOUT = ", no self-attention in the decoder"


def network(size: str, vocabulary: int) -> Transformer:
    """Return the network of a size, which writes no special token."""
    sizes = SIZES[size.removesuffix(WITHOUT)]
    model = Transformer(vocabulary, vocabulary, share_embeddings=True, **sizes)
    for layer in model.decoders if size.endswith(WITHOUT) else ():
        layer.self_attention.step = lambda y, memory, state, *args, **options: (y, y, state)
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
    parser.add_argument("--no-self-attention", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    words = min(options.vocabulary)
    source = np.random.default_rng(0).integers(4, words, (SENTENCES, WORDS)).astype("int32")
    wanted = [""] + [WITHOUT] * options.no_self_attention
    models = {
        (size + other, each): network(size + other, each)
        for size in options.size
        for each in options.vocabulary
        for other in wanted
    }
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
    rows = [["size", "words", "parameters", "greedy tokens/s", "beam 4 tokens/s"]]
    for (size, count), model in models.items():
        speeds = [SENTENCES * STEPS / np.median(times[(size, count), beam][1:]) for beam in BEAMS]
        rows.append(
            [size, f"{count:,}", f"{model.count_params():,}", *(f"{each:,.0f}" for each in speeds)]
        )
    print(markdown(rows))


if __name__ == "__main__":
    main()
