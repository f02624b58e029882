"""Marian's models in Hugging Face's form, against what transformers makes of them."""

import importlib.util
import json

import numpy as np
import pytest

from keras_attention.applications.base.presets import preset_folder
from keras_attention.applications.text import END_ID, PAD_ID, START_ID, UNK_ID
from keras_attention.applications.translation import Translator
from tests.applications.text.random_text import foreign_model
from tests.applications.translation.pretrained.hugging_face_files import (
    CASES,
    RECORDED,
    SENTENCES,
    SEPARATE,
    TARGETS,
    HuggingFaceOracle,
    safetensors_of,
    write_folder,
)

HAS_TORCH = importlib.util.find_spec("torch") is not None


def to_ours(ids, words):
    """Ids of ours for ids of Hugging Face's, whose padding is the last one."""
    special = {0: END_ID, 1: UNK_ID, len(words) - 1: PAD_ID}
    return [special.get(each, each + 2) for each in ids]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hugging_face") / "opus-mt-de-de"
    weights, config, words = write_folder(folder, CASES[request.param])
    recorded = json.loads(RECORDED.read_text())[request.param]
    return Translator.from_preset(folder), weights, config, words, recorded


def test_logits_are_those_of_transformers(case):
    translator, weights, config, words, recorded = case
    source = translator.preprocessor(SENTENCES)["source"]
    theirs = [row[: row.index(0)] for row in recorded["source"]]  # without the end
    assert [list(row[row > 0]) for row in source] == [to_ours(x, words["source"]) for x in theirs]
    target = np.array([[START_ID, *to_ours(row, words["target"])] for row in TARGETS])
    logits = np.asarray(translator.backbone({"source": source, "target": target}))
    own = to_ours(range(len(words["target"])), words["target"])
    np.testing.assert_allclose(logits[..., own], recorded["logits"], atol=1e-5, rtol=0)
    oracle = HuggingFaceOracle(weights, config)
    for row, (read, written) in enumerate(zip(theirs, TARGETS, strict=True)):
        wanted, _ = oracle.logits(read, written)
        np.testing.assert_allclose(logits[row][:, own], wanted, atol=2e-4, rtol=1e-4)


def ids_of(rows, words):
    """What is written in rows of `generate`, ids of ours: after the start, before the end."""
    kept = [[each for each in row[1:] if each != len(words) - 1] for row in rows]
    return [to_ours(row[: row.index(0)] if 0 in row else row, words) for row in kept]


@pytest.mark.parametrize("case", ["shared", "separate"], indirect=True)
def test_words_are_those_of_transformers(case):
    translator, _, _, words, recorded = case
    found = translator.translate(SENTENCES, beam_size=1, max_length=9)
    assert [list(each.ids) for each in found] == ids_of(recorded["greedy_ids"], words["target"])
    options = {"beam_size": 4, "length_penalty": 0.0, "max_length": 9}
    found = translator.translate(SENTENCES, **options)
    assert [list(each.ids) for each in found] == ids_of(recorded["beam_ids"], words["target"])


def test_settings_and_the_card(tmp_path):
    folder = tmp_path / "opus-mt-de-de"
    write_folder(folder)
    generation = {"num_beams": 4, "length_penalty": 1, "max_length": 512}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\ntags: [a]\n---\n# opus\n")
    translator = Translator.from_preset(folder)
    assert (translator.search.beam_size, translator.search.length_penalty) == (4, 1.0)
    assert translator.backbone.attention_head is None  # the mean of all
    assert "made by someone/opus-mt-de-de" in translator.card_sections["Origin"]
    assert translator.card_sections["Licence"] == "apache-2.0"
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    texts = SENTENCES[1:]
    before, after = (x.translate(texts, beam_size=1, max_length=5) for x in (translator, again))
    assert [x.text for x in before] == [x.text for x in after]
    assert again.preprocessor.source_tokenizer.tokens(texts[1])[0] == ">>fra<<"


@pytest.mark.parametrize("form", ["h5", "torch", "BF16"])
@pytest.mark.parametrize("changes", [{}, SEPARATE], ids=["shared", "separate"])
def test_all_forms_of_weights_give_the_same_network(tmp_path, form, changes):
    if form == "torch" and not HAS_TORCH:
        pytest.skip("needs PyTorch")
    weights, _, _ = write_folder(tmp_path / "a", changes)
    write_folder(tmp_path / "b", changes, form="safetensors" if form == "BF16" else form)
    if form == "BF16":
        content = safetensors_of(weights, "BF16")
        (tmp_path / "b" / "model.safetensors").write_bytes(content)
    first, second = (Translator.from_preset(tmp_path / name).backbone for name in "ab")
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-7 if form == "BF16" else 0)


def test_a_handle_of_the_hub_is_read(tmp_path, monkeypatch):
    write_folder(tmp_path / "snapshot")
    asked = []

    def snapshot_download(name, **settings):
        asked.append(name)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    translator = Translator.from_preset("hf://Helsinki-NLP/opus-mt-en-de")
    assert asked == ["Helsinki-NLP/opus-mt-en-de"] and translator.backbone.source_end


@pytest.mark.parametrize(
    ("there", "has_torch", "wanted"),
    [
        (("model.safetensors", "pytorch_model.bin", "tf_model.h5"), True, "model.safetensors"),
        (("pytorch_model.bin", "tf_model.h5"), True, "pytorch_model.bin"),
        (("pytorch_model.bin", "tf_model.h5"), False, "tf_model.h5"),
        (("tf_model.h5",), True, "tf_model.h5"),
        (("model.weights.h5",), True, "model.weights.h5"),
        (("model/model.bin",), True, "model/model.bin"),
    ],
)
def test_one_form_of_weights_is_fetched(tmp_path, monkeypatch, there, has_torch, wanted):
    from huggingface_hub.utils import filter_repo_objects

    small = ["config.json", "README.md", "LICENSE", "source.spm", "vocab.json", "CHECKSUMS"]
    large = ["rust_model.ot", "flax_model.msgpack", "onnx/model.onnx", "a.zip", "training.bin"]

    def snapshot_download(name, allow_patterns=None):
        for each in filter_repo_objects([*small, *large, *there], allow_patterns=allow_patterns):
            (tmp_path / each).parent.mkdir(exist_ok=True)
            (tmp_path / each).write_text(name)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    place = "keras_attention.applications.base.presets.find_spec"
    monkeypatch.setattr(place, lambda name: "torch" if has_torch else None)
    assert preset_folder("hf://someone/opus-mt-en-de") == tmp_path
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert {each.relative_to(tmp_path).as_posix() for each in files} == {*small, wanted}


def test_all_reasons_are_named_at_once(tmp_path):
    more = {"activation_function": "gelu_new", "normalize_before": True, "decoder_ffn_dim": 20}
    more |= {"eos_token_id": 5, "encoder_attention_heads": 5, "quantization_config": {"a": 1}}
    write_folder(tmp_path / "a", more={k: v for k, v in more.items() if k != "eos_token_id"})
    with pytest.raises(ValueError) as error:
        Translator.from_preset(tmp_path / "a")
    for reason in ("gelu_new", "normalize_before", "ffn_dim", "attention_heads", "quantization"):
        assert reason in str(error.value)
    write_folder(tmp_path / "b", more=more)
    with pytest.raises(ValueError, match="`eos_token_id` is 5, and the vocabulary has 0"):
        Translator.from_preset(tmp_path / "b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.encoder.embed_positions.weight": np.ones((9, 12))}, "other positions than"),
        ({"lm_head.weight": np.ones((75, 12))}, "lm_head.weight is tied to .* and differs"),
        ({"model.decoder.layer_norm.weight": np.ones(12)}, "which this package does not know"),
        ({"model.encoder.layers.1.fc1.bias": np.ones(3)}, r"has the shape \(3,\), not \(19,\)"),
        ({"model.encoder.layers.1.fc1.bias": None}, "has no array model.encoder.layers.1.fc1.bias"),
        ({"model.encoder.layers.1.fc1.bias": np.full(19, np.nan)}, "NaN or infinite"),
    ],
    ids=str,
)
def test_arrays_are_checked(tmp_path, change, message):
    weights, _, _ = write_folder(tmp_path / "a")
    weights |= {k: v for k, v in change.items() if v is not None}
    weights = {k: v for k, v in weights.items() if k not in change or change[k] is not None}
    (tmp_path / "a" / "model.safetensors").write_bytes(safetensors_of(weights))
    with pytest.raises(ValueError, match=message):
        Translator.from_preset(tmp_path / "a")


def test_an_empty_model_of_sentencepiece_is_refused(tmp_path):
    write_folder(tmp_path / "a")
    (tmp_path / "a" / "source.spm").write_bytes(b"")
    with pytest.raises(ValueError, match="source.spm: Expected a SentencePiece model"):
        Translator.from_preset(tmp_path / "a")


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_more_layers_than_arrays_are_refused_at_once(tmp_path, side):
    write_folder(tmp_path / "a", more={f"{side}_layers": 2**31 - 1})
    with pytest.raises(ValueError, match="it says that it has 2,147,483,647 layers"):
        Translator.from_preset(tmp_path / "a")


@pytest.mark.parametrize("dtype", [["F32"], {}, None, 4], ids=str)
def test_a_dtype_that_is_no_name_is_refused(tmp_path, dtype):
    weights, _, _ = write_folder(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").write_bytes(safetensors_of(weights, dtype))
    with pytest.raises(ValueError, match="Expected: F64, F32, F16, BF16"):
        Translator.from_preset(tmp_path / "a")


@pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch")
def test_parameters_of_pytorch_are_read_and_other_tensors_refused(tmp_path):
    import torch

    weights, _, _ = write_folder(tmp_path / "a", form="torch")
    path, name = tmp_path / "a" / "pytorch_model.bin", "model.encoder.layers.0.fc1.weight"
    tensors = {key: torch.tensor(array) for key, array in weights.items()}
    torch.save(tensors | {name: torch.nn.Parameter(tensors[name])}, path)
    found = Translator.from_preset(tmp_path / "a").backbone.encoders[0].feed_forward.kernel
    np.testing.assert_array_equal(np.asarray(found), weights[name].T)
    for wrong in (tensors[name].to_sparse(), tensors[name].to("meta")):
        torch.save(tensors | {name: wrong}, path)
        with pytest.raises(ValueError, match="pytorch_model.bin is damaged"):
            Translator.from_preset(tmp_path / "a")


def test_copies_of_tied_weights_and_tables_of_positions_are_read(tmp_path):
    weights, config, _ = write_folder(tmp_path / "a")
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        weights[f"{name}.weight"] = weights["model.shared.weight"]
    angles = np.arange(64)[:, None] * HuggingFaceOracle(weights | {}, config)._rates(12)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weight"] = table
    (tmp_path / "a" / "model.safetensors").write_bytes(safetensors_of(weights))
    assert Translator.from_preset(tmp_path / "a").backbone.share_embeddings


def test_pytorchs_file_alone_needs_pytorch(tmp_path, monkeypatch):
    write_folder(tmp_path / "a")
    path = tmp_path / "a" / "model.safetensors"
    path.rename(tmp_path / "a" / "pytorch_model.bin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pytorch_model.bin only, which PyTorch reads"):
        Translator.from_preset(tmp_path / "a")
    (tmp_path / "a" / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="has no weights. Expected one of: model.safetensors"):
        Translator.from_preset(tmp_path / "a")


@pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch")
def test_nothing_is_unpickled(tmp_path):
    import pickle

    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('unpickled')",))

    write_folder(tmp_path / "a", form="torch")
    (tmp_path / "a" / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Trap()}))
    with pytest.raises(ValueError, match="pytorch_model.bin is damaged"):
        Translator.from_preset(tmp_path / "a")


def test_vocabularies_are_checked(tmp_path):
    write_folder(tmp_path / "a")
    ids = json.loads((tmp_path / "a" / "vocab.json").read_text())
    for change, message in (
        ({"zz": 99}, "gives 'zz' the id 99 of 75"),
        ({"zz": "1"}, "gives 'zz' the id '1'"),
        ({"<unk>": None}, "no <unk>"),
    ):
        changed = {k: v for k, v in (ids | change).items() if v is not None}
        (tmp_path / "a" / "vocab.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            Translator.from_preset(tmp_path / "a")
    (tmp_path / "a" / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "a" / "target.spm").write_bytes(foreign_model()[:50])
    with pytest.raises(ValueError, match="target.spm: Expected a SentencePiece model"):
        Translator.from_preset(tmp_path / "a")
    (tmp_path / "a" / "target.spm").unlink()
    with pytest.raises(ValueError, match="has no target.spm"):
        Translator.from_preset(tmp_path / "a")
