"""LiteRT as the engine of `translate`: our results, kept programs, and what it refuses."""

import logging

import keras
import numpy as np
import pytest

from keras_attention.applications.command import main
from keras_attention.applications.text import load_tokenizer
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.engines import litert as litert_engine
from keras_attention.applications.translation.engines.litert import _quietly
from keras_attention.applications.translation.engines.weights import Weights
from tests.applications.base.test_streams import random_lines
from tests.applications.translation_runs import SOURCE_LINES, make_translator

ENGINE = {"engine": "litert"}
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="LiteRT converts TensorFlow's graphs"
)
PENALTIES = {"n_best": 2, "length_penalty": 0.8, "coverage_penalty": 0.3, "no_repeat_ngram": 2}
CASES = {
    "transformer": ({"architecture": "transformer"}, {"beam_size": 1}),
    "transformer, all options": (
        {"architecture": "transformer"},
        {"beam_size": 3, "min_length": 2, "max_length_ratio": 0.7, **PENALTIES},
    ),
    "rotary and ssru": (
        {"architecture": "transformer", "positions": "rotary", "autoregression": "ssru"},
        {"beam_size": 3, "n_best": 3},
    ),
    "rnnsearch": ({}, {"beam_size": 3}),
    "luong": ({"architecture": "luong", "attention": "local-p"}, {"beam_size": 1}),
    "without attention": ({"architecture": "rnnencdec"}, {"beam_size": 2}),
}


@pytest.fixture
def conversions(monkeypatch):
    """The sizes of the programs that were converted."""
    made, write = [], litert_engine._write

    def counted(task, options, compute_type, attention, sizes, folder):
        made.append(sizes)
        write(task, options, compute_type, attention, sizes, folder)

    monkeypatch.setattr(litert_engine, "_write", counted)
    return made


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert len(ours.ranked) == len(theirs.ranked)
        for mine, other in zip(ours.ranked, theirs.ranked, strict=True):
            assert (mine.text, mine.tokens) == (other.text, other.tokens)
            assert mine.score == pytest.approx(other.score, rel=1e-4, abs=1e-5)
            assert mine.log_probability == pytest.approx(other.log_probability, rel=1e-4, abs=1e-5)
            assert (mine.alignment is None) == (other.alignment is None)
            if mine.alignment is not None:
                np.testing.assert_allclose(mine.alignment, other.alignment, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_engine_finds_what_our_search_finds(case):
    model, options = CASES[case]
    translator = make_translator(**model)
    lines = ["", *random_lines(37), "   "]
    expected = translator.translate(lines, **options, batch_size=40)
    found = translator.translate(lines, **ENGINE, **options, streams=2, batch_size=16)
    assert_same(found, expected)
    assert len({ranked.text for each in found for ranked in each.ranked}) > 3
    single = translator.translate(lines[3], **ENGINE, **options)
    assert_same([single], [expected[3]])


def test_warnings_are_held_back_whatever_level_the_converter_sets(capfd):
    logger = logging.getLogger("absl")
    level, handler = logger.level, logging.StreamHandler()
    logger.addHandler(handler)
    try:
        with _quietly():
            logger.setLevel(logging.WARNING)  # as the converter does
            logger.warning("of gradients")
            logger.error("a failure")
        logger.warning("later")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    said = capfd.readouterr().err
    assert "of gradients" not in said and "a failure" in said and "later" in said


@pytest.mark.slow
def test_an_ensemble_is_one_program():
    translators = [make_translator(architecture="transformer"), make_translator()]
    ensemble = Translator.ensemble(translators)
    lines, options = SOURCE_LINES[:3], {"beam_size": 2}
    found = ensemble.translate(lines, **ENGINE, **options)
    assert_same(found, ensemble.translate(lines, **options))


def test_a_search_that_cannot_be_converted_is_refused_in_a_line(transformer, monkeypatch, tmp_path):
    import tensorflow as tf

    def convert(self):
        raise RuntimeError("first line\nof many")

    monkeypatch.setattr(tf.lite.TFLiteConverter, "from_saved_model", lambda path: tf.Module())
    monkeypatch.setattr(tf.Module, "convert", convert, raising=False)
    with pytest.raises(ValueError, match="^LiteRT could not convert .*: [^\\n]*first line[^\\n]*$"):
        transformer.export(tmp_path / "exported", format="litert")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_search_that_needs_more_steps_has_another_program(transformer, conversions):
    options = {"beam_size": 2, "max_length": 45, "max_length_ratio": None}
    for min_length, rooms in ((0, [24]), (30, [24, 45])):
        given = {**options, "min_length": min_length}
        lines = [min(SOURCE_LINES, key=len)] if min_length else ["a man"]
        found = transformer.translate(lines, **ENGINE, **given)
        assert_same(found, transformer.translate(lines, **given))
        assert min_length <= len(found[0].tokens) <= 45
        assert [sizes[2] for sizes in conversions] == rooms or (not min_length)
        conversions.clear()


@pytest.mark.slow
def test_longer_sources_have_programs_of_their_own(transformer, conversions):
    options = {"beam_size": 1, "max_length": 5, **ENGINE}
    lines = [" ".join(["a man"] * count) for count in (1, 4, 2, 5)]
    tokens = [len(transformer.preprocessor.source_tokenizer.tokens(line)) for line in lines]
    assert max(tokens[::2]) <= 16 < min(tokens[1::2]) and max(tokens) <= 32
    for line in lines:
        transformer.translate(line, **options)
    assert [sizes[1] for sizes in conversions] == [16, 32]


@pytest.mark.slow
def test_a_preset_keeps_programs_until_its_weights_change(preset, conversions):
    translator = Translator.from_preset(preset)
    lines, options = SOURCE_LINES[:2], {"beam_size": 1}
    expected = translator.translate(lines, **options)

    def by_engine(**more):
        return Translator.from_preset(preset).translate(lines, **options, **ENGINE, **more)

    assert_same(by_engine(), expected)
    assert_same(by_engine(), expected)
    assert len(conversions) == 1
    by_engine(compute_type="int8")
    assert len(conversions) == 2 and len(list((preset / "litert").iterdir())) == 2

    again = Translator.from_preset(preset)
    again.translate(lines, **options, **ENGINE)
    bias = again.backbone.word_logits.bias
    bias.assign(np.array(bias)[::-1])
    changed = again.translate(lines, **options)
    assert_same(again.translate(lines, **options, **ENGINE), changed)
    assert len(conversions) == 3
    assert len(list((preset / "litert").iterdir())) == 1  # the stale ones went
    again.show_attention(0, 1)
    shown = again.translate(lines, **options)
    assert_same(again.translate(lines, **options, **ENGINE), shown)


def test_weights_know_any_change_and_hold_what_they_were():
    network = keras.Sequential(
        [
            keras.Input((7,)),
            keras.layers.Embedding(11, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    network.compile("adam", "mse")
    before, bias = network.get_weights(), network.layers[-1].bias
    values = Weights(network)
    assert values.are(network)
    network.fit(np.arange(7)[None], np.ones((1, 3)), verbose=0)  # in place, where nobody holds them
    assert not values.are(network)
    network.set_weights(before)
    assert values.are(network)
    network.layers[0].embeddings.assign(before[0][::-1])
    assert not values.are(network)
    bias.assign([np.nan] * 3)
    values = Weights(network)
    bias.assign([np.nan] * 3)
    assert values.are(network)


@pytest.mark.slow
def test_only_the_last_programs_are_kept(preset, monkeypatch):
    from keras_attention.applications.translation.engines import weights as conversions

    monkeypatch.setattr(conversions, "MOST_KEPT", 2)
    translator = Translator.from_preset(preset)
    for length in (3, 4, 5):
        translator.translate("a man", beam_size=1, max_length=length, **ENGINE)
    assert len(list((preset / "litert").iterdir())) == 2


@pytest.mark.slow
def test_eight_bits_change_little_and_take_a_quarter(tmp_path):
    sizes = {"embedding_size": 64, "feed_forward_size": 128}
    translator = make_translator(architecture="transformer", **sizes)
    sources = np.random.default_rng(3).integers(4, 20, (13, 1, 8)).astype("int32")
    scores, files = {}, {}
    for kind in ("float32", "int8"):
        options = {"compute_type": kind, "source_length": 8, "beam_size": 1}
        translator.export(tmp_path / kind, format="litert", **options)
        files[kind] = tmp_path / kind / litert_engine.FILE
        run = litert_engine._runner(files[kind], threads=1)
        scores[kind] = np.array([run(source=source)["scores"] for source in sources])
    change = np.abs(scores["float32"] - scores["int8"]).mean()
    assert 0 < change < 0.05 * np.abs(scores["float32"]).mean()
    assert files["int8"].stat().st_size < 0.5 * files["float32"].stat().st_size


@pytest.mark.slow
def test_an_exported_program_translates_alone(transformer, tmp_path):
    options = {"beam_size": 3, "n_best": 2, "max_length": 9}
    transformer.export(tmp_path / "exported", format="litert", source_length=48, **options)
    source, target = (
        load_tokenizer(tmp_path / "exported" / "tokenizers", side) for side in ("source", "target")
    )
    run = litert_engine._runner(tmp_path / "exported" / "search.tflite", threads=1)
    for line in SOURCE_LINES:
        (ids,) = source.encode([line])
        found = run(source=np.array([ids + [0] * (48 - len(ids))], "int32"))
        expected = transformer.translate(line, **options)
        assert target.decode(found["tokens"][0]) == [each.text for each in expected.ranked]
        np.testing.assert_allclose(found["scores"][0, 0], expected.score, rtol=1e-4)
        rows, columns = expected.alignment.shape
        weights = found["attention"][0, 0, :rows, :columns]
        np.testing.assert_allclose(weights, expected.alignment, atol=1e-4)
    for options, message in (
        ({"source_length": 0}, "`source_length` .* at least 1. Received: 0"),
        ({"source_length": True}, "`source_length` .*Received: True"),
        ({"compute_type": "int4"}, "`compute_type` must be one of .*int8.*Received: 'int4'"),
        ({"sample": True}, "draws no samples: --format saved_model"),
        ({}, "exported.*exists"),
    ):
        with pytest.raises(ValueError, match=message):
            transformer.export(tmp_path / "exported", format="litert", **options)


def test_what_the_engine_does_not_do_is_refused_with_a_way_out(transformer):
    def refused(message, translator=transformer, text="a man", **options):
        with pytest.raises(ValueError, match=message):
            translator.translate(text, **ENGINE, **options)

    refused("draws no samples: without the engine", sample=True)
    refused("compute type.*float32.*int8.*Received: 'bfloat16'", compute_type="bfloat16")
    refused("sources of 1024 tokens. Received: .*; without the engine", text="a man " * 999)
    half = make_translator(architecture="transformer", dtype="bfloat16")
    refused("float32.*Received: bfloat16; load it with dtype='float32'", half)


@pytest.mark.slow
def test_the_command_searches_by_the_engine(preset, tmp_path, capsys):
    (tmp_path / "lines").write_text("\n".join(random_lines(3)) + "\n")
    arguments = ["predict", str(preset), "--input", str(tmp_path / "lines"), "--beam-size", "1"]

    def predicted(*more):
        status = main([*arguments, *more])
        return status, capsys.readouterr().out

    assert predicted() == predicted("--engine", "litert")
    assert main([*arguments, "--engine", "litert", "--compute-type", "int16"]) == 2
    assert "Received: 'int16'" in capsys.readouterr().err
    assert main(["export", str(preset), "--format", "litert", "--output", str(tmp_path / "x")]) == 0
    assert (tmp_path / "x" / "search.tflite").is_file()
