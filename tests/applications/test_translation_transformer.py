"""The Transformer as a translation architecture: parts, options, verbs, training."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.training import model_scope
from keras_attention.applications.translation.config import PRESETS, TranslationConfig
from keras_attention.applications.translation.export import export_saved_model
from keras_attention.applications.translation.model import Transformer
from keras_attention.applications.translation.run import choose_attention, load_run
from keras_attention.applications.translation.search import forced, without_unwritable
from keras_attention.applications.translation.task import TASK
from keras_attention.applications.translation.training import (
    resume_translation,
    train_translation,
)
from keras_attention.applications.translation.translator import Translator
from keras_attention.text import END_ID, START_ID
from tests.applications.commands import (
    assert_same_training,
    call_command,
    run_command,
    write_dates,
)
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES, make_run, randomize

B, S, T, V, D = 2, 5, 4, 23, 8
SIZES = {"embedding_size": D, "layers": 2, "feed_forward_size": 11, "heads": 2}
CONFIG = ["--model.architecture=transformer"]


def load(*overrides):
    return load_config(TranslationConfig, [], [*CONFIG, *overrides])


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("transformer") / "run", architecture="transformer")


# The model


def test_it_is_put_together_as_published():
    model = Transformer(V, V, share_embeddings=True, **SIZES)
    randomize(model, scale=1.0)
    source = np.array([[5, 6, 7, 8, 0], [9, 4, 0, 0, 0]], "int32")
    target = np.array([[2, 7, 7, 3], [2, 9, 0, 0]], "int32")
    table = np.asarray(model.source_embedding.embeddings, np.float64)
    places, widths = np.arange(9)[:, None], np.arange(0, D, 2)
    codes = np.zeros((9, D))
    codes[:, 0::2] = np.sin(places / 10000 ** (widths / D))
    codes[:, 1::2] = np.cos(places / 10000 ** (widths / D))

    def embedded(ids):
        words = np.sqrt(D) * table[ids] + codes[: ids.shape[1]]
        return words.astype("float32")

    memory = embedded(source)
    for block in model.encoders:
        memory = block(memory, inputs_mask=source > 0)
    x = embedded(target)
    for block in model.decoders:
        x = block(x, memory, value_mask=source > 0)
    expected = np.asarray(x) @ table.T + np.asarray(model.word_logits.bias)
    logits = np.asarray(model({"source": source, "target": target}))
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_one_table_serves_source_target_and_output():
    tables = {
        (True, True): [(V, D)],
        (False, True): [(V, D)] * 2,
        (True, False): [(V, D), (D, V)],
    }
    for (shared, tied), expected in tables.items():
        model = Transformer(V, V, share_embeddings=shared, tie_embeddings=tied, **SIZES)
        shapes = [tuple(v.shape) for v in model.trainable_variables]
        assert sorted(s for s in shapes if V in s and len(s) == 2) == sorted(expected)
    with pytest.raises(ValueError, match="one vocabulary.*Received: 23 source words and 24"):
        Transformer(V, V + 1, share_embeddings=True, **SIZES)


def test_layer_and_head_of_the_attention_are_chosen():
    model = Transformer(V, V, **SIZES)
    randomize(model)
    ids = np.random.default_rng(0).integers(4, V, (B, S)).astype("int32")
    scores = {}
    for layer, head in ((0, 0), (0, 1), (0, None), (1, None), (None, None)):
        model.show_attention(layer, head)
        logits, scores[layer, head] = map(np.asarray, model.score(ids, ids[:, :T]))
        state = model.start(ids, max_length=T)
        _, state = model.step(ids[:, 0], state, 0)
        np.testing.assert_allclose(state["attention_scores"], scores[layer, head][:, 0], atol=1e-5)
        np.testing.assert_allclose(scores[layer, head].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(scores[0, None], (scores[0, 0] + scores[0, 1]) / 2, atol=1e-6)
    np.testing.assert_array_equal(scores[1, None], scores[None, None])
    assert np.abs(scores[0, 0] - scores[0, 1]).max() > 1e-2
    assert np.abs(scores[0, None] - scores[1, None]).max() > 1e-2
    with pytest.raises(ValueError, match="one of the 2 decoder layers.*Received: 2"):
        model.show_attention(2)
    with pytest.raises(ValueError, match="one of the 2 heads.*Received: 2"):
        model.show_attention(0, 2)


def test_a_step_needs_its_number():
    model = Transformer(V, V, **SIZES)
    ids = np.full((B, S), 5, "int32")
    with pytest.raises(ValueError, match="needs its number.*Received: index=None"):
        model.step(ids[:, 0], model.start(ids))
    with pytest.raises(ValueError, match="`positions` must be one of.*Received: .*'absolute'"):
        Transformer(V, V, positions="absolute", **SIZES)


# The configuration


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [
        ([], ("tiny", 128, 256, 4, 4)),
        (["--model.size=base"], ("base", 512, 2048, 6, 8)),
        (["--model.size=base", "--model.layers=3"], ("base", 512, 2048, 3, 8)),
        (["--model.embedding_size=96"], ("tiny", 96, 256, 4, 4)),
    ],
)
def test_sizes_by_name_and_free(overrides, sizes):
    model = load(*overrides).model
    names = ("size", "embedding_size", "feed_forward_size", "layers", "heads")
    assert tuple(getattr(model, name) for name in names) == sizes
    assert (model.norm, model.activation, model.tie_embeddings) == ("post", "relu", True)
    assert dataclasses.replace(model) == model  # what is written reads back


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.units=5"], "model.units does not apply to model.architecture transformer"),
        (["--model.score=dot"], "model.score does not apply to model.architecture transformer"),
        (["--model.heads=3"], "model.heads must divide model.embedding_size .128.. Received: 3"),
        (["--model.share_embeddings=true"], "model.share_embeddings needs tokenizer.shared"),
        (["--decoding.attention_layer=4"], "has the layers 0 to 3. Received: 4"),
        (["--decoding.attention_head=4"], "has the heads 0 to 3. Received: 4"),
        (["--model.architecture=rnnsearch", "--decoding.attention_head=0"], "no heads to choose"),
        (
            ["--model.architecture=rnnsearch", "--decoding.precision=bfloat16"],
            "decoding.precision bfloat16 goes with model.architecture transformer only",
        ),
        (["--model.architecture=luong", "--model.heads=2"], "model.heads does not apply to"),
        (["--model.architecture=rnnsearch", "--model.size=tiny"], "model.size does not apply to"),
        (["--training.beta_2=1"], "training.beta_2 must be above 0 and below 1"),
        (["--training.beta_2=0.9", "--training.optimizer=sgd"], "training.beta_2 goes with"),
        (["--training.accumulate=0"], "training.accumulate must be at least 1"),
        (["--training.average_checkpoints=0"], "average_checkpoints must be at least 1"),
        (["--training.batch_tokens=0"], "training.batch_tokens must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        load(*overrides)


def test_the_dates_have_defaults_of_its_own():
    config = TASK.read_config(None, ["--data.dataset=dates", *CONFIG])
    assert config.model.feed_forward_size == 128 and config.model.units is None
    assert TASK.read_config(None, ["--data.dataset=dates"]).model.units == 96
    assert "dates with model.architecture transformer" in PRESETS


# The verbs


def test_greedy_search_takes_the_likeliest_word_each_time(run_folder):
    translator = Translator.load(run_folder)
    found = translator.translate(SOURCE_LINES, beam_size=1)
    for line, result in zip(SOURCE_LINES, found, strict=True):
        assert result.alignment.shape == (len(result.tokens), len(result.source_tokens))
        np.testing.assert_allclose(result.alignment.sum(1), 1, atol=1e-5)
        source = np.array(translator.run.source_tokenizer.encode([line]), "int32")
        vocabulary = translator.run.target_tokenizer.vocabulary
        ids = np.array([[START_ID, *map(vocabulary.index, result.tokens)]], "int32")
        logits, attention = translator.model.score(source, ids)
        likeliest = np.asarray(without_unwritable(logits))[0].argmax(-1)
        np.testing.assert_array_equal(likeliest[:-1], ids[0, 1:])
        np.testing.assert_allclose(attention[0, :-1], result.alignment, atol=1e-4)


def test_a_wider_beam_finds_what_is_likelier_and_batches_change_nothing(run_folder):
    translator = Translator.load(run_folder)
    options = {"length_penalty": 0.0}
    narrow = translator.translate(SOURCE_LINES, beam_size=1)
    wide = translator.translate(SOURCE_LINES, beam_size=4, **options)
    for one, other in zip(narrow, wide, strict=True):
        assert other.log_probability >= one.log_probability - 1e-4
    alone = [translator.translate([line], beam_size=4, **options)[0] for line in SOURCE_LINES]
    assert [result.text for result in alone] == [result.text for result in wide]


def test_verbs_show_the_layer_and_head_that_are_asked_for(run_folder, capsys, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("\n".join(SOURCE_LINES) + "\n")
    asked = ["predict", run_folder, "--input", lines, "--alignments", "--beam", 1]
    outputs = [
        call_command(capsys, *asked, *more).out
        for more in ([], ["--attention-layer", 1], ["--attention-layer", 0, "--attention-head", 1])
    ]
    assert outputs[0] == outputs[1] != outputs[2]
    texts = [[line.split(" ||| ")[0] for line in output.splitlines()] for output in outputs]
    assert texts[0] == texts[2]
    done = call_command(capsys, *asked, "--attention-layer", 2)
    assert done.status == 2 and "one of the 2 decoder layers" in done.err
    picture = tmp_path / "attention.png"
    visualize = ["visualize", run_folder, "--input", SOURCE_LINES[0], "--output", picture]
    assert call_command(capsys, *visualize, "--attention-head", 0).status == 0
    assert picture.stat().st_size > 1000


def test_other_architectures_have_no_choice(tmp_path):
    run = load_run(make_run(tmp_path / "run"))
    choose_attention(run, None, None)
    with pytest.raises(UserError, match="rnnsearch has no attention layers and heads"):
        choose_attention(run, 0, None)


def test_the_weights_may_be_rounded_to_search(run_folder, tmp_path):
    half = tmp_path / "run"
    shutil.copytree(run_folder, half)
    config = load_config(TranslationConfig, [half / "config.yaml"])
    decoding = dataclasses.replace(config.decoding, precision="bfloat16")
    save_config(dataclasses.replace(config, decoding=decoding), half / "config.yaml")
    run, full = load_run(half), load_run(run_folder)
    assert {v.dtype for v in run.model.trainable_variables} == {"bfloat16"}
    assert {v.dtype for v in full.model.trainable_variables} == {"float32"}
    for one, other in zip(run.model.weights, full.model.weights, strict=True):
        np.testing.assert_allclose(np.array(one, "float32"), np.array(other), rtol=2**-8)
    assert load_run(half, precision="float32").model.compute_dtype == "float32"  # to export
    vocabulary, longest = full.target_tokenizer.vocabulary, full.config.decoding.max_length
    translator = Translator(run)
    for line in SOURCE_LINES[:2]:
        (found,) = translator.translate([line], length_penalty=0.0)
        labels = [*map(vocabulary.index, found.tokens), END_ID][:longest]
        ids = [full.source_tokenizer.encode([line])[0], [START_ID, *labels[:-1]], labels]
        exact, _ = forced(full.model, *(np.array([each], "int32") for each in ids))
        assert abs(found.log_probability - float(exact[0])) < 0.05 * len(labels)


def test_a_saved_model_translates_as_the_run_does(run_folder, tmp_path):
    export_saved_model(run_folder, tmp_path / "exported", beam_size=3)
    serve = tf.saved_model.load(tmp_path / "exported").signatures["serving_default"]
    served = serve(text=tf.constant([*SOURCE_LINES, ""]))
    results = Translator.load(run_folder).translate([*SOURCE_LINES, ""], beam_size=3)
    for place, result in enumerate(results):
        assert served["text"][place].numpy().decode() == result.text
        given = served["alignments"][place].numpy()[: len(result.tokens)]
        np.testing.assert_allclose(
            given[:, : len(result.source_tokens)], result.alignment, atol=1e-4
        )


# Training


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A configuration of a small training that uses all that came with the Transformer."""
    data = write_dates(tmp_path_factory.mktemp("dates"))
    overrides = [
        *data,
        *CONFIG,
        "--tokenizer.shared=true",
        "--tokenizer.vocabulary_size=120",
        "--model.embedding_size=16",
        "--model.feed_forward_size=32",
        "--model.layers=1",
        "--model.heads=2",
        "--model.dropout=0.1",
        "--training.batch_tokens=400",
        "--training.accumulate=2",
        "--training.steps_per_epoch=7",
        "--training.epochs=5",
        "--training.average_checkpoints=3",
        "--training.schedule=inverse_sqrt",
        "--training.warmup_steps=9",
        "--training.learning_rate=0.01",
        "--training.beta_2=0.98",
        "--training.early_stopping=loss",
        "--training.tensorboard=false",
    ]
    return load_config(TranslationConfig, [], overrides)


@pytest.mark.slow  # traces three trainings
def test_a_training_that_is_continued_ends_as_one_that_never_stopped(training, tmp_path):
    outcome = train_translation(training, tmp_path / "whole")
    assert (outcome.epoch, outcome.step) == (5, 17)  # 35 batches, two an update
    shorter = dataclasses.replace(training.training, epochs=2)
    train_translation(dataclasses.replace(training, training=shorter), tmp_path / "parts")
    config = load_config(TranslationConfig, [tmp_path / "parts" / "config.yaml"])
    resume_translation(tmp_path / "parts", dataclasses.replace(config, training=training.training))
    assert_same_training(tmp_path / "whole", tmp_path / "parts")
    shapes = [v.shape for v in load_run(tmp_path / "whole").model.trainable_variables]
    assert shapes.count((120, 16)) == 1  # one table for all, as both sides share a vocabulary


def test_half_precision_trains_and_the_other_verbs_compute_in_full(training, tmp_path):
    section = dataclasses.replace(
        training.training,
        precision="mixed_bfloat16",
        epochs=2,
        accumulate=1,
        average_checkpoints=1,
    )
    train_translation(dataclasses.replace(training, training=section), tmp_path / "run")
    run = load_run(tmp_path / "run")
    with model_scope(run.config):
        assert load_run(tmp_path / "run", weights=False).model.compute_dtype == "bfloat16"
    assert run.model.compute_dtype == keras.config.floatx()
    assert np.isfinite(Translator(run).perplexity(SOURCE_LINES, TARGET_LINES))


@pytest.mark.slow  # two minutes; 96.5 % when it was written
def test_it_learns_to_write_dates(tmp_path):
    train = ["train", "translation", "--data.dataset=dates", *CONFIG, "--output", tmp_path / "run"]
    assert run_command(*train).returncode == 0
    report = json.loads(run_command("evaluate", tmp_path / "run", "--json").stdout)
    assert report["exact_match"] > 90
