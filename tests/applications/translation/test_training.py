"""Training a Transformer by its configuration, with all that came with it."""

import dataclasses
import json
import re

import numpy as np
import pytest

from keras_attention import BahdanauAttention
from keras_attention.applications.base.train import resume_task, train_task
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.translation import TranslationConfig, Translator
from keras_attention.applications.translation.networks.builder import NETWORKS
from tests.applications.commands import assert_same_training, run_command, write_dates
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES

CONFIG = ["--model.architecture=transformer"]


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
    outcome = train_task(Translator, training, tmp_path / "whole")
    assert (outcome.epoch, outcome.step) == (5, 17)  # 35 batches, two an update
    shorter = dataclasses.replace(training.training, epochs=2)
    short = dataclasses.replace(training, training=shorter)
    train_task(Translator, short, tmp_path / "parts")
    config = load_config(TranslationConfig, [tmp_path / "parts" / "config.yaml"])
    longer = dataclasses.replace(config, training=training.training)
    resume_task(Translator, longer, tmp_path / "parts")
    assert_same_training(tmp_path / "whole", tmp_path / "parts")
    network = Translator.load(tmp_path / "whole").backbone
    shapes = [v.shape for v in network.trainable_variables]
    assert shapes.count((120, 16)) == 1  # one table for all, as both sides share a vocabulary


@pytest.mark.slow
def test_half_precision_trains_and_the_other_verbs_compute_in_full(
    training, tmp_path, traced_nowhere
):
    section = dataclasses.replace(
        training.training,
        precision="mixed_bfloat16",
        epochs=2,
        steps_per_epoch=2,
        accumulate=1,
        average_checkpoints=1,
    )
    train_task(Translator, dataclasses.replace(training, training=section), tmp_path / "run")
    task = Translator.from_preset(tmp_path / "run", dtype="float32")
    assert {v.dtype for v in task.backbone.trainable_variables} == {"float32"}
    assert task.backbone.compute_dtype == "float32"
    assert np.isfinite(task.perplexity(SOURCE_LINES, TARGET_LINES))


@pytest.mark.slow  # two minutes; 96.5 % when it was written
def test_it_learns_to_write_dates(tmp_path):
    train = ["train", "translation", "--data.dataset=dates", *CONFIG, "--output", tmp_path / "run"]
    assert run_command(*train).returncode == 0
    report = json.loads(run_command("evaluate", tmp_path / "run", "--json").stdout)
    assert report["exact_match"] > 90


def test_a_training_chooses_how_many_lengths_its_batches_have():
    sources = [" ".join(["one", "two", "three"][: 1 + n % 3] * 2) for n in range(30)]
    translator = Translator.from_texts(sources, sources, units=3)
    encoded = translator.encode_to_train(translator.read_columns(sources, sources))
    for more, lengths in (([], 3), (["--training.buckets=2"], 2)):
        section = load_config(TranslationConfig, [], ["--training.batch_size=3", *more]).training
        batches = translator.make_batches(encoded, **translator.batch_options(section))
        assert len(batches.lengths) == lengths


def test_a_training_builds_its_network_once(tmp_path, monkeypatch):
    built = []
    configured = Translator.configured.__func__

    def count(cls, *arguments, **options):
        built.append(configured(cls, *arguments, **options))
        return built[-1]

    monkeypatch.setattr(Translator, "configured", classmethod(count))
    options = ["--data.dataset=dates", "--training.epochs=1", "--training.steps_per_epoch=1"]
    config = load_config(TranslationConfig, [], [*options, "--training.tensorboard=false"])
    train_task(Translator, config, tmp_path / "run")
    assert len(built) == 1


@pytest.mark.parametrize(
    ("architecture", "options"),
    {
        "luong": {"units": 6, "score": "dot", "layers": 1},
        "transformer": {"size": "tiny", "embedding_size": 8, "heads": 2},
        "rnnencdec": {"units": 6},
    }.items(),
)
def test_texts_make_any_architecture(architecture, options):
    texts = ["one two", "two one"] * 4
    translator = Translator.from_texts(texts, texts, architecture=architecture, **options)
    assert type(translator.backbone) is NETWORKS[architecture]
    assert translator.translate("one", max_length=3).text is not None


def test_texts_make_a_network_of_given_layers():
    texts = ["one two", "two one"] * 4
    attention = BahdanauAttention(5, name="mine")
    translator = Translator.from_texts(texts, texts, units=4, attention=attention)
    assert translator.backbone.decoder.attention is attention


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": 6}, "ModelConfig has no key 'unit'. Did you mean 'units'?"),
        ({"tokenizer": {"word": 1}}, "TokenizerConfig has no key 'word'"),
        ({"tokenizer": 3}, "`tokenizer` should be a dict. Received: 3"),
        ({"architecture": "luon"}, "must be one of"),
        ({"score": "dot"}, "model.score"),
    ],
)
def test_a_key_that_means_nothing_is_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Translator.from_texts(["one"] * 4, ["eins"] * 4, **options)
