"""Folders of CTranslate2, which this package writes too, and Argos' packages."""

import json
import shutil

import numpy as np
import pytest
import sentencepiece

from keras_attention.applications.translation import (
    Transformer,
    TranslationPreprocessor,
    Translator,
)
from tests.applications.text.random_text import SENTENCES, foreign_model
from tests.applications.translation.pretrained.hugging_face_files import SENTENCES as TAGGED
from tests.applications.translation.pretrained.hugging_face_files import write_folder
from tests.applications.translation_runs import randomize

ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the package ctranslate2")
SIZES = {"embedding_size": 12, "feed_forward_size": 19, "heads": 3, "layers": 2}
CASES = {
    "paper": {},
    "pre-norm": {"norm": "pre", "activation": "gelu", "layer_norm_epsilon": 1e-3},
    "marian": {"source_end": True, "activation": "swish"}
    | {"sinusoids": {"layout": "halves"}, "layer_norm_epsilon": 1e-6, "decoder_layers": 1},
    "unscaled": {"sinusoids": {"layout": "halves", "endpoint": False, "scale": False}}
    | {"tie_embeddings": False},
}


def translator_of(options, shared=False):
    preprocessor = TranslationPreprocessor.adapt(
        SENTENCES, [each[::-1] for each in SENTENCES], vocabulary_size=70, shared=shared
    )
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    network = Transformer(*sizes, **SIZES, share_embeddings=shared, **options)
    randomize(network)
    return Translator(network, preprocessor)


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ctranslate2") / "exported"
    options = CASES[request.param]
    task = translator_of(options, shared=request.param in ("marian", "pre-norm"))
    task.export(folder, format="ctranslate2")
    return task, folder


def test_what_is_exported_is_read_back(pair):
    task, folder = pair
    again = Translator.from_preset(folder)
    inputs, _ = task.preprocessor(SENTENCES, y=[each[::-1] for each in SENTENCES])
    found, _ = again.preprocessor(SENTENCES, y=[each[::-1] for each in SENTENCES])
    for name, ids in inputs.items():
        np.testing.assert_array_equal(ids, found[name])
    wanted, logits = (np.asarray(each.backbone(inputs)) for each in (task, again))
    np.testing.assert_allclose(logits, wanted, atol=1e-5)
    own, theirs = (each.backbone.get_config() for each in (task, again))
    for name in ("norm", "activation", "tie_embeddings", "share_embeddings", "source_end"):
        assert own[name] == theirs[name]


def test_the_engine_writes_the_same_words(pair):
    task, _ = pair
    options = {"beam_size": 1, "max_length": 6}
    wanted = task.translate(SENTENCES, **options)
    found = task.translate(SENTENCES, engine="ctranslate2", **options)
    assert [each.ids for each in found] == [each.ids for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_packed_numbers_are_read(tmp_path, quantization):
    """Argos' packages: eight bits with a scale for each row, one list of words, one model."""
    if quantization == "bfloat16":
        pytest.importorskip("torch", reason="CTranslate2 rounds to bfloat16 by PyTorch")
    write_folder(tmp_path / "theirs")
    task = Translator.from_preset(tmp_path / "theirs")
    task.export(tmp_path / "ours", format="ctranslate2")
    folder = tmp_path / "argos"
    specification = _specification(task)
    specification.validate()
    specification.optimize(quantization)
    (folder / "model").mkdir(parents=True)
    specification.save(str(folder / "model"))
    (folder / "sentencepiece.model").write_bytes(foreign_model())
    again = Translator.from_preset(folder)
    for one, other in zip(task.backbone.weights, again.backbone.weights, strict=True):
        scale = np.abs(np.asarray(one)).max()
        np.testing.assert_allclose(one, other, atol=scale / 80)
    assert again.backbone.source_end
    processor = sentencepiece.SentencePieceProcessor(model_proto=foreign_model())
    wanted = processor.encode(TAGGED[0], out_type=str)
    assert again.preprocessor.source_tokenizer.tokens(TAGGED[0]) == wanted


def _specification(task):
    from keras_attention.applications.translation.engines import ctranslate2_export

    return ctranslate2_export._specification(task)


def test_all_reasons_are_named_at_once(tmp_path):
    task = translator_of({})
    specification = _specification(task)
    specification.encoder.num_heads = np.dtype("int16").type(5)
    specification.decoder.scale_outputs = np.dtype("float32").type(2)
    specification.config.add_source_bos = True
    specification.validate()
    (tmp_path / "a").mkdir()
    specification.save(str(tmp_path / "a"))
    with pytest.raises(ValueError) as error:
        Translator.from_preset(tmp_path / "a")
    for reason in ("num_heads", "scale_outputs is 2", "`add_source_bos` is true"):
        assert reason in str(error.value)


def test_what_is_missing_is_named(pair, tmp_path):
    _, folder = pair
    shutil.copytree(folder, tmp_path / "a")
    (tmp_path / "a" / "model" / "config.json").unlink()
    with pytest.raises(ValueError, match="has no config.json: convert the model anew"):
        Translator.from_preset(tmp_path / "a")
    shutil.copytree(folder / "model", tmp_path / "b")
    with pytest.raises(ValueError, match="has no SentencePiece model: source.spm"):
        Translator.from_preset(tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    config["unk_token"] = "nothing"
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="no id of `unknown`"):
        Translator.from_preset(tmp_path / "b")
