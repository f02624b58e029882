"""CTranslate2 and LiteRT with the same weights, alone and as engines of `translate`."""

import tempfile
from pathlib import Path
from typing import ClassVar

import ctranslate2
import numpy as np

from benchmarks.speed.contenders.transformers import OurModel, set_weights
from benchmarks.speed.contenders.translators import Translator
from benchmarks.speed.transformer_problem import FIRST_WORD, architecture_of
from keras_attention.applications.base.streams import usable_cores
from keras_attention.applications.text import WordTokenizer
from keras_attention.applications.translation import TranslationPreprocessor
from keras_attention.applications.translation import Translator as TranslationTask


class _WithWords(Translator):
    """Our model, with words for its ids and the source in words."""

    def build(self, uses_xla):
        count = architecture_of(self._size.units).vocabulary_size
        words = [f"w{index}" for index in range(count - FIRST_WORD)]
        self._sentences = [[words[word - FIRST_WORD] for word in row] for row in self._source]
        model, tokenizer = OurModel(self._size.units), WordTokenizer(words)
        set_weights(model, self._problem)
        self._task = TranslationTask(model.model, TranslationPreprocessor(tokenizer, tokenizer))

    def _ids(self, sentences):
        return np.array([[FIRST_WORD + int(word[1:]) for word in words] for words in sentences])


class CTranslate2Translator(_WithWords):
    """CTranslate2, its model written by this package's exporter: all cores for each batch."""

    compute_type = "float32"
    threads: ClassVar = {"inter_threads": 1, "intra_threads": usable_cores()}
    batch_size = 64

    def build(self, uses_xla):
        super().build(uses_xla)
        with tempfile.TemporaryDirectory() as folder:
            self._task.export(Path(folder) / "exported", format="ctranslate2")
            model = str(Path(folder) / "exported" / "model")
            self._engine = ctranslate2.Translator(
                model, compute_type=self.compute_type, **self.threads
            )

    def translate(self, beam_size):
        results = self._engine.translate_batch(
            self._sentences,
            max_batch_size=self.batch_size,
            beam_size=beam_size,
            length_penalty=0.0,
            min_decoding_length=self._size.steps,
            max_decoding_length=self._size.steps,
        )
        return self._ids(each.hypotheses[0] for each in results)


class CTranslate2Streams(CTranslate2Translator):
    """The same with a core for each batch, and as many batches at once as there are cores."""

    threads: ClassVar = {"inter_threads": usable_cores(), "intra_threads": 1}
    batch_size = 32


class CTranslate2Int8(CTranslate2Translator):
    """The first with weights of eight bits."""

    compute_type = "int8"


class CTranslate2Int8Streams(CTranslate2Streams):
    """The second with weights of eight bits."""

    compute_type = "int8"


class OurEngine(_WithWords):
    """CTranslate2 as the engine of `translate`, from texts to texts."""

    engine = "ctranslate2"
    compute_type = "float32"

    def build(self, uses_xla):
        super().build(uses_xla)
        self._lines = [" ".join(words) for words in self._sentences]
        self._options = {"max_length": self._size.steps, "length_penalty": 0.0}

    def translate(self, beam_size):
        results = self._task.translate(
            self._lines,
            engine=self.engine,
            compute_type=self.compute_type,
            return_alignments=False,
            beam_size=beam_size,
            **self._options,
        )
        return self._ids(each.tokens for each in results)


class OurEngineInt8(OurEngine):
    """The same with weights of eight bits."""

    compute_type = "int8"


class OurLiteRT(OurEngine):
    """Our own search as a program of LiteRT."""

    engine = "litert"


class OurLiteRTInt8(OurLiteRT):
    """The same with weights of eight bits."""

    compute_type = "int8"
