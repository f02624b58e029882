"""A Transformer in CTranslate2: the same translations as `predict`."""

import ctranslate2
import numpy as np
import pytest

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.translation.ctranslate2_export import export_ctranslate2
from keras_attention.applications.translation.run import load_run
from keras_attention.applications.translation.translator import Translator
from keras_attention.text import load_tokenizer
from tests.applications.translation_runs import SOURCE_LINES, make_run

FORMS = {
    "post": {},
    "pre-gated-untied": {"norm": "pre", "activation": "swiglu", "tie_embeddings": False},
}


def random_lines(count):
    """Return lines of the words that the tokenizer was trained on."""
    random = np.random.default_rng(5)
    words = sorted({word for line in SOURCE_LINES for word in line.split()})
    return [" ".join(random.choice(words, random.integers(1, 13))) for _ in range(count)]


@pytest.mark.parametrize("form", FORMS)
def test_it_translates_as_predict_does(form, tmp_path):
    run = load_run(make_run(tmp_path / "run", architecture="transformer", **FORMS[form]))
    export_ctranslate2(run, tmp_path / "exported")
    engine = ctranslate2.Translator(str(tmp_path / "exported" / "model"), compute_type="float32")
    source = load_tokenizer(tmp_path / "exported" / "tokenizers", "source")
    ours, texts, lines = Translator(run), set(), random_lines(200)
    for beam_size in (1, 3):
        found = engine.translate_batch(
            [source.tokens(line) for line in lines],
            beam_size=beam_size,
            length_penalty=0.0,
            max_decoding_length=12,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        expected = ours.translate(
            lines,
            batch_size=50,
            beam_size=beam_size,
            length_penalty=0.0,
            min_length=1,  # which is how CTranslate2 begins
            max_length=12,
        )
        for theirs, mine in zip(found, expected, strict=True):
            assert theirs.hypotheses[0] == mine.tokens
            texts.add(mine.text)
    assert len(texts) > 5


def test_what_the_engine_does_not_know_is_refused(tmp_path):
    for name, model in (("a", {}), ("b", {"architecture": "transformer", "positions": "alibi"})):
        with pytest.raises(UserError, match="sinusoidal. Received: (rnnsearch|.*alibi); --format"):
            export_ctranslate2(make_run(tmp_path / name, **model), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()
