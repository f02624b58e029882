"""CTranslate2 with the same weights, its model written by this package's exporter."""

import os
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np

from benchmarks.contenders.transformers import OurModel, set_weights
from benchmarks.contenders.translators import Translator
from benchmarks.transformer_problem import FIRST_WORD, architecture_of
from keras_attention.applications.translation import TranslationPreprocessor
from keras_attention.applications.translation import Translator as TranslationTask
from keras_attention.text import WordTokenizer


class CTranslate2Translator(Translator):
    """CTranslate2, its model written by this package's exporter."""

    compute_type = "float32"

    def build(self, uses_xla):
        self._words = [f"w{index}" for index in range(self._vocabulary_size - FIRST_WORD)]
        with tempfile.TemporaryDirectory() as folder:
            self._export(Path(folder) / "exported")
            self._engine = ctranslate2.Translator(
                str(Path(folder) / "exported" / "model"),
                compute_type=self.compute_type,
                inter_threads=1,
                intra_threads=os.cpu_count() or 1,
            )
        self._sentences = [[self._words[word - FIRST_WORD] for word in row] for row in self._source]

    @property
    def _vocabulary_size(self):
        return architecture_of(self._size.units).vocabulary_size

    def _export(self, folder: Path) -> None:
        model = OurModel(self._size.units)
        set_weights(model, self._problem)
        tokenizer = WordTokenizer(self._words)
        preprocessor = TranslationPreprocessor(tokenizer, tokenizer)
        TranslationTask(model.model, preprocessor).export(folder, format="ctranslate2")

    def translate(self, beam_size):
        results = self._engine.translate_batch(
            self._sentences,
            beam_size=beam_size,
            length_penalty=0.0,
            min_decoding_length=self._size.steps,
            max_decoding_length=self._size.steps,
        )
        return np.array(
            [[FIRST_WORD + int(word[1:]) for word in each.hypotheses[0]] for each in results]
        )


class CTranslate2Int8(CTranslate2Translator):
    """The same with weights of eight bits."""

    compute_type = "int8"
