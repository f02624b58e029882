"""Exported models, read back in processes that know nothing of this package."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.translation.export import export_keras, export_saved_model
from keras_attention.applications.translation.translator import Translator
from keras_attention.text import load_tokenizer
from tests.applications.translation_runs import SOURCE_LINES, make_run

LINES = [*SOURCE_LINES, "", "the zebra rides over a man", "  ", "Ein Stra\u00dfenhund \u72ac"]

SERVE = """
import json, sys
import tensorflow as tf, tensorflow_text
before = set(sys.modules)
folder, lines, path = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
serve = tf.saved_model.load(folder).signatures["serving_default"]
results = [serve(text=tf.constant(batch, tf.string, shape=[len(batch)])) for batch in lines]
foreign = {name.split(".")[0] for name in sys.modules} & {"keras_attention", "keras_nlp"}
loaded = [name for name in set(sys.modules) - before if name.split(".")[0] == "keras"]
def plain(tensor):
    values = tensor.numpy().ravel().tolist()
    return [[v.decode() if isinstance(v, bytes) else v for v in values], list(tensor.shape)]
plain = [{name: plain(tensor) for name, tensor in result.items()} for result in results]
json.dump({"results": plain, "foreign": sorted(foreign), "loaded": loaded}, open(path, "w"))
"""


def serve(folder, batches, tmp_path):
    """Serve batches of lines from a SavedModel in a fresh process: named arrays for each."""
    path = tmp_path / "results.json"
    arguments = [sys.executable, "-c", SERVE, str(folder), json.dumps(batches), str(path)]
    done = subprocess.run(arguments, capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(path.read_text())
    assert answer["foreign"] == [] and answer["loaded"] == []
    return [
        {name: np.array(values).reshape(shape) for name, (values, shape) in result.items()}
        for result in answer["results"]
    ]


def assert_same(served, place, rank, translation):
    """Compare one translation of a served batch, `rank` None where there is no such axis."""
    at = place if rank is None else (place, rank)
    assert served["text"][at] == translation.text
    assert served["scores"][at] == pytest.approx(translation.score, rel=1e-3)
    assert served["log_probabilities"][at] == pytest.approx(translation.log_probability, rel=1e-3)
    tokens = [token for token in served["tokens"][at] if token]
    sources = [token for token in served["source_tokens"][place] if token]
    assert tokens == translation.tokens and sources == translation.source_tokens
    if translation.alignment is not None:
        alignment = served["alignments"][at]
        np.testing.assert_allclose(
            alignment[: len(tokens), : len(sources)], translation.alignment, atol=1e-3
        )
        assert alignment.sum() == pytest.approx(translation.alignment.sum(), rel=1e-3)


def test_saved_model_of_pieces_gives_what_predict_gives(tmp_path):
    run = make_run(tmp_path / "run")
    export_saved_model(run, tmp_path / "exported")
    batches = [LINES, LINES[1:2], [""], []]
    results = serve(tmp_path / "exported", batches, tmp_path)
    translator = Translator.load(run)
    for lines, served in zip(batches, results, strict=True):
        assert served["text"].shape == (len(lines),)
        for place, translation in enumerate(translator.translate(lines)):
            assert_same(served, place, None, translation)
    assert len(set(results[0]["text"])) > 2


def test_saved_model_of_words_replaces_unknown_words_and_gives_n_best(tmp_path):
    run = Translator.load(make_run(tmp_path / "run", kind="words", architecture="luong")).run
    export_saved_model(run, tmp_path / "exported", beam_size=4, n_best=2, length_penalty=0.3)
    (served,) = serve(tmp_path / "exported", [LINES], tmp_path)
    assert served["text"].shape == served["scores"].shape == (len(LINES), 2)
    results = Translator(run).translate(LINES, beam_size=4, n_best=2, length_penalty=0.3)
    copied = 0
    for place, result in enumerate(results):
        for rank, translation in enumerate(result.ranked):
            assert_same(served, place, rank, translation)
            copied += bool(set(translation.tokens) & set(translation.source_tokens))
        for rank in range(len(result.ranked), 2):
            assert served["text"][place, rank] == "" and served["scores"][place, rank] == -np.inf
    assert copied


def test_saved_model_without_attention_has_no_alignments(tmp_path):
    run = make_run(tmp_path / "run", architecture="rnnencdec")
    export_saved_model(run, tmp_path / "exported", beam_size=1)
    (served,) = serve(tmp_path / "exported", [LINES], tmp_path)
    assert "alignments" not in served
    for place, translation in enumerate(Translator.load(run).translate(LINES, beam_size=1)):
        assert_same(served, place, None, translation)


def test_keras_export_reloads_with_its_tokenizers(tmp_path):
    run = Translator.load(make_run(tmp_path / "run")).run
    export_keras(run, tmp_path / "exported")
    model = keras.models.load_model(tmp_path / "exported" / "model.keras")
    source, target = (
        load_tokenizer(tmp_path / "exported" / "tokenizers", side) for side in ("source", "target")
    )
    assert source.encode(LINES) == run.source_tokenizer.encode(LINES)
    assert target.vocabulary == run.target_tokenizer.vocabulary
    ids = {"source": np.array(source.encode(LINES[:1])), "target": np.array([[2, 5, 7]])}
    np.testing.assert_array_equal(np.asarray(model(ids)), np.asarray(run.model(ids)))


def test_nothing_is_written_over_or_left_half_made(tmp_path, monkeypatch):
    run = Translator.load(make_run(tmp_path / "run")).run
    taken = tmp_path / "taken"
    taken.mkdir()
    for export in (export_keras, export_saved_model):
        with pytest.raises(UserError, match="taken already exists"):
            export(run, taken)
    monkeypatch.setattr(type(run.target_tokenizer), "save", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_keras(run, tmp_path / "failed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "taken"]
    with pytest.raises(UserError, match="no run folder"):
        export_saved_model(tmp_path / "nowhere", tmp_path / "exported")
