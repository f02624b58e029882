"""CTranslate2 as the engine of `translate`: our words, kept conversions, and what it refuses."""

import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attention.applications.command import main
from keras_attention.applications.text import SPECIAL_TOKENS, WordTokenizer
from keras_attention.applications.translation import (
    Transformer,
    TranslationPreprocessor,
    Translator,
)
from keras_attention.applications.translation.engines.ctranslate2 import CTranslate2, _Search
from keras_attention.decoding import SearchOptions
from tests.applications.base.test_streams import random_lines
from tests.applications.translation_runs import MAX_LENGTH, SOURCE_LINES, make_translator

ENGINE = "ctranslate2"
ONE_BATCH = {"batch_size": 40}
ctranslate2 = pytest.importorskip(ENGINE)
# Our searches are of one batch each, by other options: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


@pytest.fixture
def conversions(monkeypatch):
    """The folders that networks were converted into."""
    from keras_attention.applications.translation.engines import ctranslate2 as ctranslate2_engine

    made, save = [], ctranslate2_engine.save_model

    def counted(task, folder):
        made.append(folder)
        save(task, folder)

    monkeypatch.setattr(ctranslate2_engine, "save_model", counted)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 1, "min_length": 2, "max_length": 5},
        {"beam_size": 3, "n_best": 3, "length_penalty": 0.0},
        {"beam_size": 3, "length_penalty": 0.0, "max_length_ratio": 0.3, "max_length": 30},
        {"beam_size": 1, "no_repeat_ngram": 2},
    ],
    ids=lambda options: " ".join(f"{key}={value}" for key, value in options.items()),
)
@pytest.mark.by_default(
    "beam_size=1 min_length=2 max_length=5", "beam_size=3 n_best=3 length_penalty=0.0"
)
def test_the_engine_gives_our_words_scores_and_alignments(transformer, options):
    lines = ["", *random_lines(31), "   "]
    ours = transformer.translate(lines, **options, **ONE_BATCH)
    theirs = transformer.translate(lines, engine=ENGINE, streams=2, **options)
    renormalises = {"min_length", "no_repeat_ngram"} & set(options)
    for own, other in zip(ours, theirs, strict=True):
        assert other.source_tokens == own.source_tokens
        assert other.tokens == own.tokens and other.text == own.text
        assert other.alignment.shape == own.alignment.shape
        np.testing.assert_allclose(other.alignment, own.alignment, atol=1e-3)
        if not renormalises:
            assert other.score == pytest.approx(own.score, rel=1e-3, abs=1e-4)
            assert other.log_probability == pytest.approx(own.log_probability, rel=1e-3, abs=1e-4)
    best = options.get("n_best", 1)
    assert {len(each.ranked) for each in theirs[1:-1] if each.source_tokens} == {best}
    assert len({each.text for each in ours}) > 3


def test_a_shallow_decoder_is_converted():
    translator = make_translator(architecture="transformer", decoder_layers=1)
    lines, options = random_lines(7), {"beam_size": 1}
    theirs = translator.translate(lines, engine=ENGINE, **options)
    ours = translator.translate(lines, **options, **ONE_BATCH)
    assert [each.tokens for each in theirs] == [each.tokens for each in ours]
    assert len(translator.backbone.decoders) == 1


def test_hypotheses_are_ranked_by_our_length_penalty(transformer):
    for each in transformer.translate(random_lines(9), engine=ENGINE, n_best=3, length_penalty=0.8):
        scores = [ranked.score for ranked in each.ranked]
        assert scores == sorted(scores, reverse=True)
        for ranked in each.ranked if each.source_tokens else ():
            length = min(len(ranked.tokens) + 1, MAX_LENGTH)
            divisor = ((5 + length) / 6) ** 0.8
            assert ranked.score == pytest.approx(ranked.log_probability / divisor, rel=1e-4)


def test_unknown_words_are_replaced_as_ours_are():
    translator = make_translator("words", architecture="transformer")
    lines = ["the zebra rides over a man", "a yak reads the book", *SOURCE_LINES]
    ours = translator.translate(lines, beam_size=1, **ONE_BATCH)
    theirs = translator.translate(lines, engine=ENGINE, beam_size=1, return_alignments=False)
    assert [each.text for each in theirs] == [each.text for each in ours]
    assert all(each.alignment is None for each in theirs)


@pytest.mark.slow
def test_figures_of_a_test_set_are_those_of_our_search(transformer):
    targets = [each.text or "x" for each in transformer.translate(SOURCE_LINES, beam_size=1)]
    found = transformer.evaluate_text(SOURCE_LINES, targets, beam_size=1, engine=ENGINE)
    assert found["exact_match"] == 100
    assert found["perplexity"] == pytest.approx(transformer.perplexity(SOURCE_LINES, targets))


@pytest.mark.slow
def test_a_preset_keeps_the_conversion_until_its_weights_change(preset, conversions):
    translator = Translator.from_preset(preset)
    texts = [each.text for each in translator.translate(SOURCE_LINES, beam_size=1)]

    def by_engine(**options):
        again = Translator.from_preset(preset)
        found = again.translate(SOURCE_LINES, beam_size=1, engine=ENGINE, **options)
        return [each.text for each in found]

    assert by_engine() == texts == by_engine()
    assert len(conversions) == 1
    (kept,) = (preset / "ctranslate2").iterdir()
    by_engine(compute_type="int8")  # quantised as it is loaded
    assert len(conversions) == 1

    (kept / "model.bin").write_bytes((kept / "model.bin").read_bytes()[:-7])  # a damaged one
    assert by_engine() == texts and len(conversions) == 2

    again = Translator.from_preset(preset)
    again.translate(SOURCE_LINES, engine=ENGINE)
    bias = again.backbone.word_logits.bias
    bias.assign(np.array(bias)[::-1])
    changed = again.translate(SOURCE_LINES, beam_size=1)
    found = again.translate(SOURCE_LINES, beam_size=1, engine=ENGINE)
    assert [each.text for each in found] == [each.text for each in changed] != texts
    assert len(conversions) == 3
    swapped = np.array(bias)  # whose bytes have the same sum
    swapped[[4, 6]] = swapped[[6, 4]]
    bias.assign(swapped)
    again.translate(SOURCE_LINES, engine=ENGINE)
    assert len(conversions) == 4
    (now,) = (preset / "ctranslate2").iterdir()  # the stale one went
    assert now != kept
    assert Translator.from_preset(preset).translate("a man", engine=ENGINE).text is not None


@pytest.mark.slow
def test_nothing_is_kept_where_nothing_can_be(transformer, preset, conversions, tmp_path):
    texts = [each.text for each in transformer.translate(SOURCE_LINES, beam_size=1)]

    def by_engine(translator):
        found = translator.translate(SOURCE_LINES, beam_size=1, engine=ENGINE)
        return [each.text for each in found]

    assert by_engine(transformer) == texts  # of no folder
    (tmp_path / "elsewhere").mkdir()
    (preset / "ctranslate2").symlink_to(tmp_path / "elsewhere")
    assert by_engine(Translator.from_preset(preset)) == texts
    (preset / "ctranslate2").unlink()
    (preset / "ctranslate2").write_text("a file in the way")
    assert by_engine(Translator.from_preset(preset)) == texts
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not any(folder.exists() for folder in conversions)


def test_one_engine_serves_all_calls_with_the_same_weights(transformer, monkeypatch):
    made = []

    def counted(*arguments, **settings):
        made.append(settings)
        return translator_of(*arguments, **settings)

    translator_of = ctranslate2.Translator
    monkeypatch.setattr(ctranslate2, "Translator", counted)
    translator = Translator(transformer.backbone, transformer.preprocessor, transformer.search)
    for beam_size in (1, 2):
        translator.translate(SOURCE_LINES[0], engine=ENGINE, beam_size=beam_size)
    translator.translate(SOURCE_LINES, engine=ENGINE, streams=2, batch_size=2)
    assert [each["inter_threads"] for each in made] == [1, 2]


def test_what_the_engine_does_not_do_is_refused_with_a_way_out(transformer, monkeypatch):
    def refused(message, translator=transformer, **options):
        with pytest.raises(ValueError, match=message):
            translator.translate("a man", **{"engine": ENGINE, **options})

    refused(
        "Transformer with sinusoidal.*Received: RNNSearch; without the engine", make_translator()
    )
    refused("does not sample.*without the engine", sample=True)
    refused("coverage_penalty=0.3; without the engine", coverage_penalty=0.3)
    refused("compute type.*int8.*Received: 'float7'", compute_type="float7")
    refused("`engine` must be one of .*ctranslate2.*Received: 'onnx'", engine="onnx")
    refused("give `engine` too", engine=None, compute_type="int8")
    refused("2048 positions.*3000", max_length=3000, max_length_ratio=999.0)
    transformer.show_attention(1, 0)
    try:
        refused("attention_head=0; leave it out")
        assert transformer.translate("a man", engine=ENGINE, return_alignments=False).text
    finally:
        transformer.show_attention()
    adapted = make_translator(architecture="transformer")
    adapted.backbone.decoders[1].feed_forward.enable_lora(2)
    refused("of LoRA or of integers; without the engine", adapted)
    monkeypatch.setitem(sys.modules, ENGINE, None)
    monkeypatch.setattr(CTranslate2, "_made", {}, raising=False)
    refused("needs the package ctranslate2: pip install ctranslate2")


@pytest.mark.slow
def test_the_command_searches_by_the_engine(preset, tmp_path, capsys):
    (tmp_path / "lines").write_text("\n".join(random_lines(9)) + "\n")
    arguments = ["predict", str(preset), "--input", str(tmp_path / "lines"), "--beam-size", "1"]
    arguments += ["--batch-size", "9"]

    def predicted(*more):
        status = main([*arguments, *more])
        out, error = capsys.readouterr()
        return status, out, error

    assert predicted() == predicted("--engine", ENGINE, "--compute-type", "float32")
    shutil.rmtree(preset / "ctranslate2")
    status, out, error = predicted("--compute-type", "int8")
    assert (status, out) == (2, "") and "--compute-type goes with --engine" in error


@pytest.mark.parametrize("count", [1, 3])
def test_a_translation_does_not_depend_on_its_batch(count):
    """A search past the limit of a sentence may settle on another short translation."""
    calls = []

    def translate_batch(rows, max_decoding_length, **_):
        calls.append((len(rows), max_decoding_length))
        end, found = "</s>", []
        for row in rows:  # of one word: what the limit cuts is the likeliest until it goes on
            best = ["x"] * max_decoding_length if max_decoding_length < 30 else [end]
            best = best if len(row) == 1 else ["y", end]
            pairs = [(best, -1.0), (["z", end], -2.0), ([end], -3.0)][:count]
            hypotheses, scores = map(list, zip(*pairs, strict=True))
            found.append(SimpleNamespace(hypotheses=hypotheses, scores=scores))
        return found

    words = ["<pad>", "<unk>", "<s>", "</s>", "x", "y", "z"]
    options = SearchOptions(beam_size=3, n_best=count, length_penalty=0.0)
    engine = SimpleNamespace(translate_batch=translate_batch)
    search = _Search(engine, words, words, options, attention=False)
    (alone,) = search(np.array([[4]])).tokens
    together = search(np.array([[4] + [0] * 19, [5] * 20])).tokens
    (own, *_), (long, *_) = together.tolist()
    length = calls[0][1]
    assert alone[0].tolist() == own[:length] == [4] * length and long[:2] == [5, 3]
    assert calls == [(1, length), (2, length)]  # none again: all others were complete


@pytest.fixture(scope="module")
def spelt_as_special():
    """A translator whose words include some that are spelt as special tokens."""
    words = ["a", "b", *SPECIAL_TOKENS, "c"]
    pre = TranslationPreprocessor(*[WordTokenizer(words, split="whitespace") for _ in range(2)])
    size, random = len(words) + 4, np.random.default_rng(0)
    network = Transformer(size, size, embedding_size=8, layers=1, feed_forward_size=8, heads=2)
    for weight in network.weights:
        weight.assign(random.normal(0, 0.7, weight.shape))
    return Translator(network, pre, {"beam_size": 1, "max_length": 7})


def test_words_that_are_spelt_as_special_tokens_are_words(spelt_as_special, tmp_path):
    lines = ["a b", "<unk> a", "q a", "</s> b c", "<s> <pad>", "c", "b b <unk> a"]
    ours, theirs = (spelt_as_special.translate(lines, engine=engine) for engine in (None, ENGINE))
    assert [each.ids for each in theirs] == [each.ids for each in ours]
    assert any(6 <= id <= 9 for each in ours for id in each.ids)
    for own, other in zip(ours, theirs, strict=True):
        assert other.score == pytest.approx(own.score, rel=1e-3, abs=1e-4)
    with pytest.raises(ValueError, match="spelt as a special token. Received: <pad>, .*saved_mod"):
        spelt_as_special.export(tmp_path / "out", format=ENGINE)
