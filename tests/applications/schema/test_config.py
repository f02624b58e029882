"""The configuration: what is accepted, what is refused and how, and that it is kept exactly."""

import dataclasses

import pytest

from keras_attention.applications.answer_selection import config as answer_selection
from keras_attention.applications.classification import config as classification
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.help import config_help
from keras_attention.applications.schema.reading import (
    by_key,
    changed_keys,
    load_config,
    save_config,
)
from keras_attention.applications.summarization import config as summarization
from keras_attention.applications.translation.config import TranslationConfig


def load(*overrides, path=None, **settings):
    return load_config(TranslationConfig, [path] if path else [], overrides, **settings)


def yaml_file(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_gives_the_defaults():
    assert load() == TranslationConfig()


def test_an_option_beats_the_file_which_beats_presets_which_beat_defaults(tmp_path):
    path = yaml_file(tmp_path, "training: {epochs: 7, batch_size: 17}\nmodel:\n")
    presets = ["--training.epochs=3", "--training.patience=2"]
    config = load("--training.batch_size", "19", path=path, defaults=presets)
    training = config.training
    assert (training.batch_size, training.epochs, training.patience) == (19, 7, 2)
    assert config.model == TranslationConfig().model


def test_values_get_the_types_of_their_fields(tmp_path):
    path = yaml_file(tmp_path, "training: {learning_rate: 1e-4, clip_norm: null}\n")
    luong = ["--model.architecture=luong", "--model.input_feeding", "false"]
    config = load("--training.max_minutes=2", *luong, path=path)
    assert config.training.learning_rate == 1e-4
    assert config.training.clip_norm is None
    assert config.training.max_minutes == 2.0
    assert config.model.input_feeding is False


def test_saved_config_reloads_equal(tmp_path):
    config = load(
        "--data.train=Straße/訓練: a.tsv",
        "--training.learning_rate=3e-05",
        "--training.steps_per_epoch=11",
        "--training.jit_compile=true",
        "--training.deterministic=false",
        "--decoding.length_penalty=0.6",
        "--training.clip_norm=null",
    )
    path = tmp_path / "config.yaml"
    save_config(config, path)
    assert load(path=path) == config
    assert all(section.name in path.read_text() for section in dataclasses.fields(config))


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ([], [None, None, None, None, None]),
        (["--model.architecture=rnnencdec"], [None, None, None, None, None]),
        (["--model.architecture=luong"], [2, "global", "general", None, True]),
        (
            ["--model.architecture=luong", "--model.attention=local-p", "--model.score=dot"],
            [2, "local-p", "dot", 10, True],
        ),
        (
            [
                *["--model.architecture=luong", "--model.attention=local-m", "--model.layers=3"],
                *["--model.half_width=4", "--model.input_feeding=false", "--model.score=concat"],
                "--model.attention_units=5",
            ],
            [3, "local-m", "concat", 4, False],
        ),
    ],
)
def test_what_an_architecture_leaves_open_is_filled_in(tmp_path, given, filled):
    config = load(*given)
    names = ("layers", "attention", "score", "half_width", "input_feeding")
    assert [getattr(config.model, name) for name in names] == filled
    save_config(config, tmp_path / "config.yaml")
    assert load(path=tmp_path / "config.yaml") == config


CONFIGS = [
    TranslationConfig,
    summarization.SummarizationConfig,
    answer_selection.AnswerSelectionConfig,
    classification.ClassificationConfig,
]


@pytest.mark.parametrize("config", CONFIGS)
def test_what_a_data_set_brings_holds_where_nothing_else_is_given(config, tmp_path):
    for each in config.defaults:
        chosen = {
            name: values[0] if isinstance(values, tuple) else values
            for name, values in each.when.items()
        }
        if chosen.get("data.dataset") not in (None, "dates", "facts", "reports", "opinions"):
            chosen["data.folder"] = str(tmp_path)
        brought = by_key(load_config(config, [], [f"--{k}={v}" for k, v in chosen.items()]))
        for name, value in each.then.items():
            assert brought[name] == chosen.get(name, value), name
        name, value = next(iter(each.then.items()))
        if name not in chosen and type(value) in (int, float):
            options = [f"--{k}={v}" for k, v in {**chosen, name: value + 1}.items()]
            assert by_key(load_config(config, [], options))[name] == value + 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--training.epoch", "3"], "no key 'epoch'. Did you mean 'epochs'? Accepted: epochs, ba"),
        (["--trainin.epochs", "3"], "no key 'trainin'. Did you mean 'training'? Accepted: data,"),
        (["--epochs", "3"], "no option --epochs. Did you mean '--training.epochs'?"),
        (["--training.epochs", "many"], "training.epochs must be a whole number. Received: 'many'"),
        (["--training.epochs", "2.5"], "training.epochs must be a whole number. Received: '2.5'"),
        (["--training.epochs", "0"], "training.epochs must be at least 1. Received: 0"),
        (["--training.epochs", "9" * 30], "training.epochs must be at most 1e+09. Received: 999"),
        (["--training.epochs"], "--training.epochs needs a value"),
        (["--model.dropout=1"], "model.dropout must be at least 0 and below 1. Received: 1.0"),
        (
            ["--model.score", "dt"],
            "model.score must be one of dot, general, concat, location or nu",
        ),
        (["--data.dataset", "x"], "data.dataset must be one of dates, multi30k or null. Received"),
        (["--training.deterministic=maybe"], "must be true or false. Received: 'maybe'"),
        (["--training.learning_rate=fast"], "must be a number. Received: 'fast'"),
        (["--training.early_stopping=chrf"], "must be one of bleu, loss, none"),
        (["positional"], "expected --section.key value. Received: 'positional'"),
        (["--training.schedule=inverse_sqrt"], "needs training.warmup_steps"),
        (["--training.schedule=halve", "--training.warmup_steps=5"], "does not go with"),
        (["--data.train_source=a"], "needs data.train_target"),
        (["--data.dev_source=a", "--data.dev_target=b", "--data.dev=c"], "not both"),
        (["--data.dataset=dates", "--data.train=c"], "do not go together"),
        (["--tokenizer.replace_unknown=true"], "goes with tokenizer.kind words"),
        (["--tokenizer.sampling=0.2"], "goes with tokenizer.variants above 1 only"),
        (
            ["--tokenizer.kind=words", "--tokenizer.model_type=bpe"],
            "model_type goes with tokenizer.kind sentencepiece only",
        ),
        (["--decoding.min_length=101"], "decoding: `min_length` should be at most `max_length`"),
        (
            ["--model.architecture=luong", "--model.attention=local-m", "--model.score=location"],
            "attention global only",
        ),
        (
            ["--model.layers=3"],
            "layers goes with model.architecture luong or transformer only: lea",
        ),
        (
            ["--model.score=dot"],
            "model.score goes with model.architecture luong only: leave",
        ),
        (["--model.half_width=5"], "half_width goes with model.architecture luong only"),
        (["--model.input_feeding=false"], "input_feeding goes with model.architecture luong only"),
        (
            ["--model.architecture=rnnencdec", "--model.attention=local-m"],
            "model.attention goes with model.architecture luong only: leave it out",
        ),
        (
            ["--model.architecture=rnnencdec", "--model.attention_units=5"],
            "attention_units goes with model.architecture rnnsearch or luong only",
        ),
        (
            ["--model.architecture=luong", "--model.half_width=5"],
            "half_width does not apply to model.architecture luong with model.attention global",
        ),
        *(
            (
                [*luong, "--model.architecture=luong", "--model.attention_units=5"],
                "attention_units does not apply to model.architecture luong with model.attention",
            )
            for luong in (
                ["--model.score=dot"],
                ["--model.score=general", "--model.attention=local-m"],
                ["--model.score=location"],
            )
        ),
        (
            ["--model.architecture=luong", "--model.attention=none", "--model.score=dot"],
            "score does not apply to model.architecture luong with model.attention none",
        ),
        (
            ["--model.architecture=luong", "--model.attention=none"]
            + ["--tokenizer.kind=words", "--tokenizer.replace_unknown=true"],
            "tokenizer.replace_unknown needs attention, which model.attention none has not",
        ),
        (["--model.reverse_source=true"], "reverse_source goes with model.architecture luong only"),
        (
            ["--model.architecture=rnnencdec", "--decoding.coverage_penalty=0.2"],
            "decoding.coverage_penalty needs attention, which model.architecture rnnencdec has not",
        ),
        (
            [
                *["--model.architecture=rnnencdec", "--tokenizer.kind=words"],
                "--tokenizer.replace_unknown=true",
            ],
            "tokenizer.replace_unknown needs attention",
        ),
    ],
)
def test_wrong_options_are_refused_in_one_line(overrides, message):
    with pytest.raises(UserError) as caught:
        load(*overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {fodler: x}", "section 'data' has no key 'fodler'. Did you mean 'folder'?"),
        ("dat: {}", "no key 'dat'. Did you mean 'data'?"),
        ("- a", "model, training, distribute, decoding. Received: ['a']"),
        ("data: [1]", "section 'data' must hold keys. Received: ['1']"),
        ("data: [", "config.yaml, line 1, column 8: this is not YAML: expected the node"),
        (
            "data:\n\tdataset: dates",
            "config.yaml, line 2, column 1: this is not YAML: found character",
        ),
        ("training: {epochs: many}", "training.epochs must be a whole number. Received: 'many'"),
        ("training: {epochs: -1}", "training.epochs must be at least 1. Received: -1"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        load(path=yaml_file(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


HOSTILE = {
    "bomb": "a: &a [x, x]\nb: &b [*a, *a]\nmodel: {units: *b}\n",
    "deep": "[" * 50_000,
    "deep mapping": "{a: " * 50_000,
    "large": "# " + "x" * (1 << 20),
    "twice": "training: {epochs: 3}\nmodel: {units: 5}\ntraining: {patience: 2}\n",
    "key twice": "training:\n  epochs: 3\n  epochs: 4\n",
    "tag": "training: !!python/object/apply:os.system [touch x]\n",
}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bomb", "anchors and aliases"),
        ("deep", "nests more deeply"),
        ("deep mapping", "nests more deeply"),
        ("large", "should have at most 1,048,576 bytes"),
        ("twice", "line 3: the key 'training' is there twice"),
        ("key twice", "line 3: the key 'epochs' is there twice"),
        ("tag", "section 'training' must hold keys"),
    ],
)
def test_hostile_files_are_refused_at_once(tmp_path, name, message):
    with pytest.raises(UserError) as caught:
        load(path=yaml_file(tmp_path, HOSTILE[name]))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("training.max_minutes", value) for value in ("1e400", ".inf", "-.inf", ".nan", "nan")),
        *(("training.max_minutes", value) for value in ("1:30", '"30"', "2001-01-01", "1e10")),
        *(("training.epochs", value) for value in ('"7"', "1:30", "0x10", "1e3", "true", "[1]")),
        *(("model.units", value) for value in ("1000000000", "9" * 40, "65537")),
        ("decoding.beam_size", "100000"),
        ("decoding.max_length_ratio", "1e9"),
        ("training.tensorboard", '"false"'),
        ("training.tensorboard", "0"),
    ],
)
def test_a_number_is_what_stands_there_or_refused(tmp_path, key, value):
    section, _, name = key.partition(".")
    with pytest.raises(UserError, match=name):
        load(path=yaml_file(tmp_path, f"{section}:\n  {name}: {value}\n"))


def test_a_text_is_what_stands_there(tmp_path):
    text = "data:\n  source_language: no\n  target_language: '1:30'\n  dev: 010\n"
    text += "  train: 2001-01-01\n  test: 'null'\n  folder: null\n"
    data = load(path=yaml_file(tmp_path, text)).data
    assert (data.source_language, data.target_language) == ("no", "1:30")
    assert (data.dev, data.train) == ("010", "2001-01-01")
    assert (data.test, data.folder) == ("null", None)


def test_a_section_made_in_python_refuses_what_is_no_number():
    with pytest.raises(UserError, match="training.epochs must be at least 1. Received: '3'"):
        TranslationConfig().training.__class__(epochs="3")


def test_messages_are_cut(tmp_path):
    with pytest.raises(UserError) as caught:
        load(path=yaml_file(tmp_path, "training: {epochs: " + "x" * 100_000 + "}"))
    assert len(str(caught.value)) < 300


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="no configuration file .*absent.yaml"):
        load(path=tmp_path / "absent.yaml")


def test_changed_keys_names_what_differs():
    old = load("--training.epochs=3", "--model.units=5")
    new = load("--training.epochs=4", "--model.units=5", "--data.max_length=9")
    assert changed_keys(old, new) == ["data.max_length", "training.epochs"]


def test_help_describes_every_key():
    text = config_help(TranslationConfig)
    for section in dataclasses.fields(TranslationConfig):
        for field in dataclasses.fields(section.type):
            assert f"--{section.name}.{field.name}\n" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: answer_selection.VectorsConfig(window=3), "goes with vectors.source train only"),
        (lambda: answer_selection.ModelConfig(occam_minimum=0.1), "goes with model.occam only"),
        (
            lambda: answer_selection.TrainingConfig(loss="log", margin=0.1),
            "margin goes with training.loss hinge only",
        ),
        (lambda: summarization.ModelConfig(layers=3), "goes with model.encoder transformer only"),
        (
            lambda: summarization.ModelConfig(coverage=False, coverage_start=9),
            "coverage_start goes with model.coverage only",
        ),
        (
            lambda: classification.TokenizerConfig(model_type="bpe"),
            "model_type goes with tokenizer.kind sentencepiece only",
        ),
        (
            lambda: load_config(
                classification.ClassificationConfig, [], ["--tokenizer.sentences=lines"]
            ).check(),
            "sentences goes with model.architecture han only",
        ),
    ],
)
def test_keys_without_effect_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
