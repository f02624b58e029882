"""Translation with the same weights: by this package's search, and by KerasHub's samplers.

A program has `greedy()` and `beam()`, which return the words of each sentence's best translation,
`(B, T)`. All translations have as many words: no special token is ever the likeliest.
"""

from functools import partial

import keras_nlp
import numpy as np
from keras import ops

from benchmarks.speed.contenders import keras_program
from benchmarks.speed.contenders.transformers import KerasHubModel, OurModel, set_weights
from benchmarks.speed.problems import Problem
from benchmarks.speed.transformer_problem import BEAM_SIZE, PAD, START, make_ids
from keras_attention.applications.base.backend import compiled
from keras_attention.applications.base.streams import in_streams, rows_of_a_batch, usable_cores
from keras_attention.applications.translation.search import search
from keras_attention.decoding import SearchOptions


class Translator:
    """A subclass gives `translate(beam_size)`."""

    def __init__(self, problem: Problem, uses_xla: bool):
        self._problem, self._size = problem, problem.size
        self._source = make_ids(problem)["source"]
        self.build(uses_xla)

    def build(self, uses_xla: bool) -> None:
        raise NotImplementedError

    def translate(self, beam_size: int) -> np.ndarray:
        raise NotImplementedError

    def greedy(self) -> np.ndarray:
        """Return the words that are the likeliest at each step."""
        return self.translate(1)

    def beam(self) -> np.ndarray:
        """Return the likeliest translations that a beam finds."""
        return self.translate(BEAM_SIZE)


class OurTranslator(Translator):
    """What `predict` runs, in one stream."""

    dtype = None
    streams = 1

    def build(self, uses_xla):
        model = OurModel(self._size.units, dtype=self.dtype)
        set_weights(model, self._problem)
        self._searches = {}
        for beam_size in (1, BEAM_SIZE):
            options = SearchOptions(beam_size=beam_size, max_length=self._size.steps)
            run = partial(search, model.model, options=options, attention=False)
            self._searches[beam_size] = compiled(run, model.model, 2)

    def translate(self, beam_size):
        size = rows_of_a_batch(len(self._source), SearchOptions().batch_size, self.streams)
        found = {}

        def search_batch(first):
            source = self._source[first : first + size]
            tokens = self._searches[beam_size](source).tokens
            found[first] = ops.convert_to_numpy(tokens)[:, 0]

        firsts = range(0, len(self._source), size)
        in_streams(search_batch, firsts, min(self.streams, len(firsts)))
        return np.concatenate([found[first] for first in firsts])


class OurStreams(OurTranslator):
    """What `predict` runs, a stream a core."""

    streams = usable_cores()


class OurHalfTranslator(OurTranslator):
    """The same with `decoding.precision: bfloat16`."""

    dtype = "bfloat16"


class OurHalfStreams(OurStreams):
    """That in streams."""

    dtype = "bfloat16"


class KerasHubTranslator(Translator):
    """KerasHub's blocks with their caches, under its samplers."""

    def build(self, uses_xla):
        self._model = KerasHubModel(self._size.units)
        set_weights(self._model, self._problem)
        samplers = {
            1: keras_nlp.samplers.GreedySampler(),
            BEAM_SIZE: keras_nlp.samplers.BeamSampler(num_beams=BEAM_SIZE),
        }
        self._searches = {
            beam_size: keras_program.compiled(
                partial(self._search, sampler), self._model.variables, uses_xla
            )
            for beam_size, sampler in samplers.items()
        }

    def translate(self, beam_size):
        found = self._searches[beam_size](ops.convert_to_tensor(self._source))
        return ops.convert_to_numpy(found)[:, 1:]

    def _search(self, sampler, source):
        model, size = self._model, self._size
        memory, mask = model.encode(source)
        start = ops.full((size.batch, 1), START, dtype="int32")
        own, crossed = self._caches(memory, mask, start)

        def next_word(prompt, cache, index):
            place = index - 1
            rows = ops.shape(prompt)[0]
            last = ops.slice(prompt, (0, place), (rows, 1))

            def repeated(x):
                return ops.repeat(x, rows // size.batch, axis=0)

            x, after = model.embed(last, first=place), []
            for block, kept, read in zip(model.decoders, cache, crossed, strict=True):
                x, kept, _ = block(
                    x,
                    repeated(memory),
                    encoder_padding_mask=repeated(mask),
                    self_attention_cache=kept,
                    self_attention_cache_update_index=place,
                    cross_attention_cache=repeated(read),
                )
                after.append(kept)
            return model.logits(x)[:, 0], None, after

        prompt = ops.pad(start, [[0, 0], [0, size.steps]], constant_values=PAD)
        return sampler(next_word, prompt, cache=own, index=1)

    def _caches(self, memory, mask, start):
        """Return empty caches of the words, and those of the memory, block by block."""
        model, size = self._model, self._size
        heads = model.architecture.heads
        shape = (heads, size.units // heads)
        own, crossed, x = [], [], model.embed(start)
        for block in model.decoders:
            empty = ops.zeros((size.batch, 2, size.steps, *shape))
            _, _, read = block(
                x,
                memory,
                encoder_padding_mask=mask,
                self_attention_cache=empty,
                self_attention_cache_update_index=0,
                cross_attention_cache=ops.zeros((size.batch, 2, size.memory, *shape)),
                cross_attention_cache_update_index=0,
            )
            own.append(empty)
            crossed.append(read)
        return own, crossed
