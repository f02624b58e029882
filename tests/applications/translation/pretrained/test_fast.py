"""What makes translators of others fast: their own eight bits, their shortlist, and NumPy."""

import struct

import keras
import numpy as np
import pytest

from keras_attention.applications.text import END_ID, UNK_ID
from keras_attention.applications.translation import Shortlist, Translator
from keras_attention.applications.translation import shortlist as shortlists
from keras_attention.layers.lora_and_quantization import exact_int8
from tests.applications.commands import call_command
from tests.applications.translation.pretrained.marian_files import (
    OPTIONS,
    PRE,
    SELF,
    bin_of,
    lists_of,
    rounded,
    shortlist_of,
    weights_of,
    write_folder,
)
from tests.applications.translation.pretrained.test_marian import TEXTS, UNTIED, to_ours

WORDS = OPTIONS["dim-vocabs"][0]
LITERT = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="LiteRT converts TensorFlow's graphs"
)
QUIET = pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")


# ---- Eight bits.


@pytest.mark.parametrize("multiplier", [237.17035, 1e-3, 7.7e20, 1 / 3, 64.0])
@pytest.mark.parametrize("largest", [127, 113, 6, 1])
def test_integers_over_a_scale_are_found_again(multiplier, largest):
    draw = np.random.default_rng(largest)
    whole = draw.integers(-largest, largest + 1, (13, 7)).astype("int8")
    whole[:2, 0] = -largest, 1
    found, scale = exact_int8(whole / np.float32(multiplier))
    np.testing.assert_array_equal(found, whole)
    np.testing.assert_array_equal(found / scale, whole / np.float32(multiplier))


@pytest.mark.parametrize("factor", [2, 3, 5, 7])
def test_integers_with_a_common_divisor_are_exact_too(factor):
    whole = (factor * np.random.default_rng(0).integers(-17, 18, (5, 3))).astype("int8")
    matrix = whole / np.float32(97.31)
    found, scale = exact_int8(matrix)
    np.testing.assert_array_equal(found / scale, matrix)


def test_the_smallest_integer_of_eight_bits_is_one():
    matrix = np.array([[-128, 5], [77, 0]], "int8") / np.float32(11.3)
    found, scale = exact_int8(matrix)
    assert found.tolist() == [[-128, 5], [77, 0]] and np.array_equal(found / scale, matrix)


@pytest.mark.parametrize(
    "matrix",
    [
        np.random.default_rng(1).normal(size=(11, 5)).astype("float32"),
        np.zeros((3, 2), "float32"),
        np.zeros((0, 2), "float32"),
        np.array([[1.0, np.nan], [2, 3]], "float32"),
        np.array([[1.0, np.inf], [2, 3]], "float32"),
        np.array([[1e-44, 3e-45]], "float32"),
        np.array([[1.0, 128.0]], "float32"),
        np.ones((2, 2), "float16"),
    ],
    ids=["random", "zeros", "empty", "nan", "infinite", "tiny", "large", "half"],
)
def test_other_matrices_are_none(matrix):
    assert exact_int8(matrix) is None


def kernels(translator):
    """All kernels and tables in float, as they are computed with."""
    network, found = translator.backbone, {}
    for side, blocks in (("encoder", network.encoders), ("decoder", network.decoders)):
        for place, block in enumerate(blocks):
            for part in ("self_attention", "cross_attention", "ssru", "feed_forward"):
                layer = getattr(block, part, None)
                for name in () if layer is None else layer.kernels_to_adapt():
                    if name.endswith("_scale"):
                        continue
                    kernel = keras.ops.convert_to_numpy(layer.cast(getattr(layer, name)))
                    found[f"{side}.{place}.{part}.{name}"] = kernel
    ids = np.arange(WORDS + 2)
    for side in ("source", "target"):
        table = keras.ops.convert_to_numpy(getattr(network, f"{side}_embedding")(ids))
        found[f"{side}.table"] = table
    return found


def write_eight_bits(folder, draw, **changes):
    """Write a model whose integers and multipliers are random; return them."""
    options = OPTIONS | changes
    write_folder(folder, "int8", **changes)
    weights, quantized = rounded(weights_of(options, seed=11))
    for name, (whole, _) in quantized.items():
        largest = draw.integers(20, 128)
        whole = draw.integers(-largest, largest + 1, whole.shape).astype("int8")
        quantized[name] = whole, np.float32(draw.uniform(50, 500))
    (folder / "model.bin").write_bytes(bin_of(weights, options, quantized))
    return quantized


@QUIET
@pytest.mark.parametrize("changes", [{}, SELF | PRE, SELF | UNTIED], ids=["ssru", "pre", "untied"])
def test_int8_keeps_the_integers_of_the_file(changes, tmp_path):
    quantized = write_eight_bits(tmp_path / "a", np.random.default_rng(5), **changes)
    translator = Translator.from_preset(tmp_path / "a")
    before = kernels(translator)
    translator.quantize("int8")
    after = kernels(translator)
    for name, kernel in before.items():
        np.testing.assert_array_equal(after[name], kernel, err_msg=name)
    layer = translator.backbone.encoders[1].feed_forward
    whole, multiplier = quantized["encoder_l2_ffn_W1"]
    assert layer.quantization_mode == "int8" and str(layer.kernel.dtype) == "int8"
    np.testing.assert_array_equal(after["encoder.1.feed_forward.kernel"], whole / multiplier)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer.kernel), whole)
    name = "Wemb" if "Wemb" in quantized else "encoder_Wemb"
    table = quantized[name][0] / quantized[name][1]
    np.testing.assert_array_equal(after["source.table"][to_ours(range(1, WORDS))], table[1:])
    if not changes:
        both = [quantized[f"decoder_l1_rnn_{each}"] for each in ("Wf", "W")]
        wanted = np.concatenate([whole / multiplier for whole, multiplier in both], axis=1)
        np.testing.assert_array_equal(after["decoder.0.ssru.kernel"], wanted)
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    assert again.backbone.encoders[0].feed_forward.quantization_mode == "int8"
    for name, kernel in kernels(again).items():
        np.testing.assert_array_equal(kernel, before[name], err_msg=name)
    # A preset in float is one of eight bits, too, when it is quantized later.
    Translator.from_preset(tmp_path / "a").save_to_preset(tmp_path / "float")
    later = Translator.from_preset(tmp_path / "float")
    later.quantize("int8")
    for name, kernel in kernels(later).items():
        np.testing.assert_array_equal(kernel, before[name], err_msg=name)


@QUIET
def test_weights_that_were_trained_are_rounded_as_others_are(tmp_path):
    write_folder(tmp_path / "a", "int8")
    translator = Translator.from_preset(tmp_path / "a")
    layer = translator.backbone.encoders[0].feed_forward
    kernel = keras.ops.convert_to_numpy(layer.kernel) * 1.0
    kernel[0, 0] *= 1.01
    layer.kernel.assign(kernel)
    translator.quantize("int8")
    found = keras.ops.convert_to_numpy(layer.cast(layer.kernel))
    np.testing.assert_allclose(found, kernel, atol=np.abs(kernel).max() / 250)
    assert not np.array_equal(found, kernel)
    scale = keras.ops.convert_to_numpy(layer.kernel_scale)
    np.testing.assert_allclose(scale[0], 127 / np.abs(kernel).max(axis=0), rtol=1e-5)


# ---- The shortlist.


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    """A folder of a model with its shortlist, and the lists."""
    folder = tmp_path_factory.mktemp("student") / "model"
    write_folder(folder, "int8", seed=7)
    lists = lists_of(WORDS, seed=2)
    (folder / "lex.50.50.s2t.bin").write_bytes(shortlist_of(lists, always=6))
    return folder, lists


def words_of_marian(lists, source, always):
    """Marian's choice: the first words, those of all source words, and the source's own."""
    theirs = {END_ID: 0, UNK_ID: 1}
    found = set(range(always))
    for word in source:
        word = theirs.get(word, word - 2)
        found |= {int(each) for each in lists[word]} | {word}
    return sorted({0, 1, 2, 3} | set(to_ours(found)))


def test_the_words_are_those_of_marian(student):
    folder, lists = student
    shortlist = Translator.from_preset(folder).shortlist
    draw = np.random.default_rng(0)
    for _ in range(5):
        source = draw.integers(4, WORDS + 2, 3)
        found = shortlist.words_of(np.pad(source, (0, 2))[None])
        assert found.tolist() == words_of_marian(lists, source, always=6)
    assert {9, 11} <= set(shortlist.words_of(source, [[9], [11]]).tolist())


def test_vocabularies_of_their_own_keep_their_source_words_out(tmp_path):
    folder = tmp_path / "a"
    settings = {"models": ["model.npz"], "vocabs": ["one.spm", "two.spm"]}
    settings["shortlist"] = ["lex.s2t.bin", False]
    write_folder(folder, "npz", settings=settings, **SELF, **UNTIED)
    for name in ("one.spm", "two.spm"):
        (folder / name).write_bytes((folder / "vocab.spm").read_bytes())
    (folder / "lex.s2t.bin").write_bytes(shortlist_of([[9]] * WORDS, always=0))
    (folder / "lex.t2s.bin").write_bytes(b"not read")
    shortlist = Translator.from_preset(folder).shortlist
    assert shortlist.words_of(np.array([[30, 31]])).tolist() == [0, 1, 2, 3, 11]


@pytest.mark.parametrize("options", [{}, {"engine": "numpy"}, {"beam_size": 3}], ids=str)
def test_no_other_word_is_written(student, options, tmp_path):
    folder, _ = student
    translator = Translator.from_preset(folder)
    preset = tmp_path / "preset"
    translator.save_to_preset(preset)
    for task in (translator, Translator.from_preset(preset)):
        given = {"max_length": 6, "shortlist": True, **options}
        for text in TEXTS:
            (found,) = task.translate([text], **given)
            source = task.preprocessor.source_tokenizer.encode([text])
            assert set(found.ids) <= set(task.shortlist.words_of(source).tolist())
        both = task.translate(TEXTS, batch_size=2, streams=1, **given)
        assert len(both) == len(TEXTS)


def test_a_graph_is_traced_for_few_sizes(student):
    shortlist = Translator.from_preset(student[0]).shortlist
    wide = Shortlist(shortlist.preprocessor, shortlist.probabilities, shortlist.frequencies, None)
    assert wide.room_for([np.arange(9)]) == WORDS + 2  # fewer than the smallest room
    words = np.array([0, 1, 2, 3, 7, 40])
    assert wide.filled(words, 8).tolist() == [0, 1, 2, 3, 7, 40, 0, 0]
    assert wide.filled(words, 3).tolist() == words.tolist()


def test_a_translator_without_a_shortlist_says_so(tmp_path):
    write_folder(tmp_path / "a", "bin")
    translator = Translator.from_preset(tmp_path / "a")
    assert translator.shortlist is None
    with pytest.raises(ValueError, match=r"came with the model. Received: a translator without"):
        translator.translate("Ein", shortlist=True)


def test_a_damaged_shortlist_is_one_line(student, tmp_path):
    folder, lists = student
    good = shortlist_of(lists)

    def with_number(place, number):
        return good[: 8 * place] + struct.pack("<Q", number) + good[8 * place + 8 :]

    write_folder(tmp_path / "a", "int8")
    path = tmp_path / "a" / "lex.bin"
    path = path.with_name("lex.50.50.bin")
    faults = [b"", good[:47], good[:-1], good + b"x", with_number(0, 5)]
    faults += [with_number(place, number) for place in (4, 5) for number in (0, 2**40, 2**63)]
    faults += [with_number(6, 1), with_number(9, 2**62), with_number(9, 10**6)]
    faults += [good[:-4] + struct.pack("<I", each) for each in (WORDS, 2**32 - 1)]
    faults += [shortlist_of(lists[:-1])]
    for fault in faults:
        path.write_bytes(fault)
        with pytest.raises(ValueError) as error:
            Translator.from_preset(tmp_path / "a")
        assert str(path) in str(error.value) and "\n" not in str(error.value), fault[:60]
    draw = np.random.default_rng(1)
    for _ in range(60):  # either refused in a line, or a list of words that there are
        changed = bytearray(good)
        for place in draw.integers(0, len(good), 3):
            changed[place] = draw.integers(256)
        path.write_bytes(bytes(changed[: draw.integers(len(good) - 20, len(good) + 1)]))
        try:
            shortlist = Translator.from_preset(tmp_path / "a", load_weights=False).shortlist
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert shortlist.words_of(np.arange(WORDS + 2)[None]).max() < WORDS + 2
    path.write_bytes(good)
    path.with_name("lex.other.bin").write_bytes(good)
    with pytest.raises(ValueError, match="several shortlists: keep one of"):
        Translator.from_preset(tmp_path / "a")


def test_a_damaged_shortlist_of_a_preset_is_one_line(student, tmp_path):
    translator = Translator.from_preset(student[0])
    path = tmp_path / "shortlist.npz"
    translator.shortlist.write(path)
    again = Shortlist.read(path, translator.preprocessor)
    assert again.size is None
    np.testing.assert_array_equal(
        again.probabilities.indices, translator.shortlist.probabilities.indices
    )
    arrays = dict(np.load(path))
    for name, array in (
        ("first", arrays["first"][:-1]),
        ("words", arrays["words"] + WORDS),
        ("words", arrays["words"].astype("float32")),
        ("frequencies", arrays["frequencies"][1:]),
        ("size", None),
    ):
        changed = {key: each for key, each in arrays.items() if key != name}
        np.savez(path, **changed, **({} if array is None else {name: array}))
        with pytest.raises(ValueError, match=r"^[^\n]*shortlist.npz is damaged[^\n]*$"):
            Shortlist.read(path, translator.preprocessor)


# ---- The engine in NumPy.

FORMS = {
    "firefox": ("int8", {}),
    "opus": ("npz", SELF | {"transformer-ffn-activation": "swish"}),
    "pre-norm": ("bin", SELF | PRE | UNTIED),
    "pre-norm ssru": ("bin", PRE),
}


@pytest.fixture(scope="module", params=FORMS)
def plain(request, tmp_path_factory):
    form, changes = FORMS[request.param]
    folder = tmp_path_factory.mktemp("numpy") / "model"
    write_folder(folder, form, seed=7, **changes)
    return Translator.from_preset(folder)


def assert_same(found, wanted):
    for mine, other in zip(found, wanted, strict=True):
        assert (mine.text, mine.ids) == (other.text, other.ids)
        assert mine.score == pytest.approx(other.score, rel=1e-4, abs=1e-4)
        np.testing.assert_allclose(
            mine.token_log_probabilities, other.token_log_probabilities, rtol=1e-3, atol=1e-4
        )
        assert (mine.alignment is None) == (other.alignment is None)
        if mine.alignment is not None:
            np.testing.assert_allclose(mine.alignment, other.alignment, atol=1e-4)


LIMITS = {"short": {"max_length": 5}, "long": {"max_length": 45, "max_length_ratio": None}}
LIMITS |= {"least": {"min_length": 7, "max_length": 19}}


@pytest.mark.parametrize("limits", LIMITS)
def test_numpy_finds_what_our_search_finds(plain, limits):
    options = LIMITS[limits]
    lines = ["", *TEXTS, "   "]
    wanted = plain.translate(lines, **options, beam_size=1)
    found = plain.translate(lines, **options, beam_size=1, engine="numpy", batch_size=3)
    assert_same(found, wanted)
    (one,) = plain.translate(TEXTS[:1], **options, engine="numpy", return_alignments=False)
    assert one.alignment is None and one.text == wanted[1].text


@pytest.mark.parametrize("always", [0, 40])
def test_a_draft_with_the_shortlist_ends_in_the_words_of_all(student, tmp_path, always):
    """Nearly every word is missing in these lists, or hardly any."""
    folder = tmp_path / "a"
    write_folder(folder, "int8", seed=7)
    (folder / "lex.50.bin").write_bytes(shortlist_of([[]] * WORDS, always=always))
    translator = Translator.from_preset(folder)
    for options in ({"max_length": 9}, {"min_length": 5, "max_length": 11}):
        wanted = translator.translate(TEXTS, **options)
        assert_same(translator.translate(TEXTS, **options, engine="numpy"), wanted)
    limited = translator.translate(TEXTS, max_length=9, engine="numpy", shortlist=True)
    if not always:
        assert [each.text for each in limited] != [each.text for each in wanted]


def test_numpy_with_a_shortlist_is_our_search_with_one(student):
    translator = Translator.from_preset(student[0])
    given = {"max_length": 6, "streams": 1, "batch_size": len(TEXTS), "shortlist": True}
    wanted = translator.translate(TEXTS, **given)
    assert_same(translator.translate(TEXTS, engine="numpy", **given), wanted)


@LITERT
def test_litert_with_a_shortlist_is_our_search_with_one(student):
    translator = Translator.from_preset(student[0])
    given = {"max_length": 6, "streams": 1, "shortlist": True}
    for text in TEXTS[:2]:  # both by one program, with lists of other words
        wanted = translator.translate([text], **given)
        assert_same(translator.translate([text], engine="litert", **given), wanted)
        (of_all,) = translator.translate([text], max_length=6)
        assert of_all.log_probability != pytest.approx(wanted[0].log_probability, rel=1e-2)


@pytest.mark.slow
@LITERT
@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "n_best": 2}], ids=str)
def test_litert_fills_the_lists_of_batches_up(student, options, monkeypatch):
    """Sixteen sentences share a list, or have one of a given size; the last has its own."""
    monkeypatch.setattr(shortlists, "FEWEST", 4)
    translator = Translator.from_preset(student[0])
    texts = [text for text in TEXTS if text.strip()]
    texts = (texts * 17)[:17]
    own = translator.shortlist
    sized = Shortlist(translator.preprocessor, own.probabilities, own.frequencies, size=9)
    given = {"max_length": 6, "batch_size": 16, "streams": 1, **options}
    for shortlist in (own, sized):
        wanted = translator.translate(texts, shortlist=shortlist, **given)
        found = translator.translate(texts, shortlist=shortlist, engine="litert", **given)
        assert_same(found, wanted)


@QUIET
def test_numpy_reads_lora_eight_bits_and_new_weights(tmp_path):
    write_folder(tmp_path / "a", "int8", seed=7)
    translator = Translator.from_preset(tmp_path / "a")
    options = {"max_length": 7}
    first = translator.translate(TEXTS, **options, engine="numpy")
    translator.enable_lora(2)
    for weight in translator.backbone.weights:
        if "lora_b" in weight.name:
            weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    changed = translator.translate(TEXTS, **options, engine="numpy")
    assert_same(changed, translator.translate(TEXTS, **options))
    assert [each.ids for each in changed] != [each.ids for each in first]
    other = Translator.from_preset(tmp_path / "a")
    other.quantize("int8")
    assert_same(other.translate(TEXTS, **options, engine="numpy"), first)


def test_numpy_says_what_it_does_not_do(student, tmp_path):
    translator = Translator.from_preset(student[0])
    for options, message in (
        ({"beam_size": 2}, "searches greedily.*beam_size=2"),
        ({"sample": True}, "searches greedily.*sample=True"),
        ({"no_repeat_ngram": 2}, "no_repeat_ngram=2"),
        ({"compute_type": "int8"}, "compute type of NumPy"),
        ({"prefix": "Ein"}, "engine numpy takes no prefix"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.translate("Ein Mann", engine="numpy", **options)
    half = Translator.from_preset(student[0], dtype="bfloat16")
    with pytest.raises(ValueError, match="computes in float32. Received: bfloat16"):
        half.translate("Ein", engine="numpy")
    recurrent = Translator.from_texts(["a b"] * 3, ["b a"] * 3, units=4)
    with pytest.raises(ValueError, match="runs a Transformer .*Received: RNNSearch"):
        recurrent.translate("a", engine="numpy", beam_size=1)


def test_the_command_takes_both(student, tmp_path, capsys):
    folder, _ = student
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    given = ["predict", folder, "--input", lines, "--max-length", 5]
    translator = Translator.from_preset(folder)
    for options, flags in (
        ({"engine": "numpy"}, ["--engine", "numpy"]),
        ({"engine": "numpy", "shortlist": True}, ["--engine", "numpy", "--own-shortlist"]),
        ({"shortlist": True}, ["--own-shortlist"]),
    ):
        done = call_command(capsys, *given, *flags)
        wanted = [each.text for each in translator.translate(TEXTS, max_length=5, **options)]
        assert (done.status, done.out.split("\n")[:-1]) == (0, wanted), done.err
    write_folder(tmp_path / "without", "int8")
    for arguments, message in (
        ([*given, "--own-shortlist", "--shortlist", lines], "not both"),
        ([*given, "--own-shortlist", "--engine", "ctranslate2"], "takes no shortlist: leave one"),
        (["predict", tmp_path / "without", "--own-shortlist"], "came with a shortlist"),
    ):
        done = call_command(capsys, *arguments)
        assert (done.status, done.out) == (2, "") and message in done.err
