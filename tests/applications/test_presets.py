"""The presets that come with the package are what their cards say."""

import re

import pytest

from keras_attention.applications.common.presets import PRESETS
from keras_attention.applications.translation import Translator, dates


def test_the_figures_of_dates_hold_for_the_weights_shipped():
    card = (PRESETS / "dates" / "README.md").read_text(encoding="utf-8")
    exact, bleu = map(float, re.search(r"beam 3: ([\d.]+) % exact, ([\d.]+) BLEU", card).groups())
    perplexity = float(re.search(r"perplexity ([\d.]+)\.", card).group(1))
    translator = Translator.from_preset("dates")
    report = translator.evaluate_text(*dates.generate("test"))
    assert report["beam_size"] == 3 and report["sentences"] == 1000
    assert report["exact_match"] == pytest.approx(exact, abs=0.05)
    assert report["bleu"] == pytest.approx(bleu, abs=0.05)
    assert report["perplexity"] == pytest.approx(perplexity, abs=1e-3)
    assert f"{translator.count_params():,} weights" in card
    assert report["signature"] in card


def test_a_preset_is_small_and_whole():
    for folder in PRESETS.iterdir():
        assert sum(each.stat().st_size for each in folder.iterdir()) < 1_500_000
        assert {"task.json", "config.json", "preprocessor.json", "model.weights.h5"} <= {
            each.name for each in folder.iterdir()
        }
