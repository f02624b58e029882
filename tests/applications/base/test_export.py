"""Exported translators, read back in processes and engines that know nothing of this package."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_attention.applications.text import load_tokenizer
from keras_attention.applications.translation import Transformer, Translator
from tests.applications.translation_runs import SOURCE_LINES, make_translator

LINES = [*SOURCE_LINES, "", "the zebra rides over a man", "  ", "Ein Stra\u00dfenhund \u72ac"]

SERVE = """
import json, sys
import tensorflow as tf, tensorflow_text
before = set(sys.modules)
results = []
for folder, batches in json.loads(sys.argv[1]).items():
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    for batch in batches:
        results.append(serve(text=tf.constant(batch, tf.string, shape=[len(batch)])))
foreign = {name.split(".")[0] for name in sys.modules} & {"keras_attention", "keras_nlp"}
loaded = [name for name in set(sys.modules) - before if name.split(".")[0] == "keras"]
def plain(tensor):
    values = tensor.numpy().ravel().tolist()
    return [[v.decode() if isinstance(v, bytes) else v for v in values], list(tensor.shape)]
plain = [{name: plain(tensor) for name, tensor in result.items()} for result in results]
json.dump({"results": plain, "foreign": sorted(foreign), "loaded": loaded}, open(sys.argv[2], "w"))
"""


def serve(tmp_path, **batches):
    """Serve batches of lines from SavedModels in a fresh process: named arrays for each.

    The batches go by the name of the folder.
    """
    path = tmp_path / "results.json"
    arguments = [sys.executable, "-c", SERVE, json.dumps(batches), str(path)]
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


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["rnnsearch", "transformer"])
def test_saved_models_of_pieces_and_words_give_what_translate_gives(
    tmp_path, architecture, traced_nowhere
):
    """Of words, unknown ones are replaced, and the two best translations come back."""
    task = make_translator(architecture=architecture)
    task.export(tmp_path / "pieces")
    of_words = make_translator("words", architecture="luong")
    of_words.dictionary = {"man": "Mann", "the": "hin\u00fcber"}
    of_words.export(tmp_path / "words", beam_size=4, n_best=2, length_penalty=0.3)
    batches = [LINES, LINES[1:2], [""], []]
    *results, served = serve(tmp_path, pieces=batches, words=[LINES])
    for lines, found in zip(batches, results, strict=True):
        assert found["text"].shape == (len(lines),)
        for place, translation in enumerate(task.translate(lines)):
            assert_same(found, place, None, translation)
    assert len(set(results[0]["text"])) > 2

    assert served["text"].shape == served["scores"].shape == (len(LINES), 2)
    results = of_words.translate(LINES, beam_size=4, n_best=2, length_penalty=0.3)
    copied = looked_up = 0
    for place, result in enumerate(results):
        for rank, translation in enumerate(result.ranked):
            assert_same(served, place, rank, translation)
            copied += bool(set(translation.tokens) & set(translation.source_tokens))
            looked_up += bool({"Mann", "hin\u00fcber"} & set(translation.tokens))
        for rank in range(len(result.ranked), 2):
            assert served["text"][place, rank] == "" and served["scores"][place, rank] == -np.inf
    assert copied and looked_up


def test_how_long_a_served_text_may_be_is_told_to_export():
    import tensorflow as tf

    service = make_translator("words").service(max_letters=12, beam_size=1)
    assert service.serve(tf.constant(["a man rides ", "été " * 3]))["text"].shape == (2,)
    message = "`text` should have at most 12 letters a text .*Received:.*13"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        service.serve(tf.constant(["a", "a man rides a"]))


@pytest.mark.slow
def test_saved_model_without_attention_has_no_alignments(tmp_path):
    task = make_translator(architecture="rnnencdec")
    task.export(tmp_path / "exported", beam_size=1)
    (served,) = serve(tmp_path, exported=[LINES])
    assert "alignments" not in served
    for place, translation in enumerate(task.translate(LINES, beam_size=1)):
        assert_same(served, place, None, translation)


def test_keras_export_is_the_whole_task(tmp_path, traced_nowhere):
    task = make_translator()
    task.export(tmp_path / "exported", format="keras")
    again = keras.models.load_model(tmp_path / "exported" / "model.keras")
    one, other = (each.translate(LINES[0], max_length=3).score for each in (again, task))
    assert one == other


FORMS = {
    "post": {},
    "pre-gated-untied": {"norm": "pre", "activation": "swiglu", "tie_embeddings": "false"},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_ctranslate2_translates_as_translate_does(form, tmp_path, traced_nowhere):
    ctranslate2 = pytest.importorskip("ctranslate2")
    task = make_translator(architecture="transformer", **FORMS[form])
    task.export(tmp_path / "exported", format="ctranslate2")
    engine = ctranslate2.Translator(str(tmp_path / "exported" / "model"), compute_type="float32")
    source = load_tokenizer(tmp_path / "exported" / "tokenizers", "source")
    random, texts = np.random.default_rng(5), set()
    words = sorted({word for line in SOURCE_LINES for word in line.split()})
    lines = [" ".join(random.choice(words, random.integers(1, 13))) for _ in range(50)]
    for beam_size in (1, 3):
        found = engine.translate_batch(
            [source.tokens(line) for line in lines],
            beam_size=beam_size,
            length_penalty=0.0,
            max_decoding_length=12,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        expected = task.translate(
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


@pytest.mark.slow
def test_an_exported_sampler_draws_anew_at_each_call(tmp_path):
    task = make_translator()
    task.export(tmp_path / "sampler", sample=True, temperature=3.0)
    one, other = serve(tmp_path, sampler=[LINES, LINES])
    assert one["text"].tolist() != other["text"].tolist()


def test_ctranslate2_has_the_same_positions_under_any_policy(tmp_path):
    pytest.importorskip("ctranslate2")
    task, files = make_translator(architecture="transformer"), []
    for policy in ("mixed_bfloat16", "float32"):
        keras.config.set_dtype_policy(policy)
        task.export(tmp_path / policy, format="ctranslate2")
        files.append((tmp_path / policy / "model" / "model.bin").read_bytes())
    assert files[0] == files[1]


def test_what_cannot_be_exported_is_refused(tmp_path):
    recurrent = make_translator()
    for task, name in (
        (recurrent, "RNNSearch"),
        (
            make_translator(architecture="transformer", positions="alibi"),
            "Transformer with alibi positions and self-attention",
        ),
        (
            make_translator(architecture="transformer", autoregression="ssru"),
            "Transformer with sinusoidal positions and ssru",
        ),
    ):
        with pytest.raises(ValueError, match=f"sinusoidal.*Received: {name}; --format"):
            task.export(tmp_path / "exported", format="ctranslate2")
    preprocessor = recurrent.preprocessor
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    network = Transformer(*sizes, embedding_size=6, layers=1, heads=2, activation="tanh")
    with pytest.raises(ValueError, match="relu, gelu, .* only. Received: tanh"):
        Translator(network, preprocessor).export(tmp_path / "exported", format="ctranslate2")
    with pytest.raises(ValueError, match="`format` must be .*ctranslate2.*Received: .*'onnx'"):
        recurrent.export(tmp_path / "exported", format="onnx")
    with pytest.raises(ValueError, match="belong to a format that holds one.*'keras', beam_size"):
        recurrent.export(tmp_path / "exported", format="keras", beam_size=2)
    with pytest.raises(ValueError, match="max_letters, search, beam_size.*Received: 'nope'"):
        recurrent.export(tmp_path / "exported", nope=3)
    assert not list(tmp_path.iterdir())
