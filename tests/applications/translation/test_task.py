"""What the command makes of translation: vocabularies, a run's figures and sets, alignments."""

import dataclasses
import math
import sys
from argparse import Namespace
from contextlib import nullcontext

import numpy as np
import pytest

from keras_attention.applications.base import train as tasks
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config, save_config
from keras_attention.applications.training.run_folder import RunFolder, writing
from keras_attention.applications.translation import (
    DataConfig,
    TokenizerConfig,
    TranslationConfig,
    Translator,
    load_corpus,
    verbs,
)
from keras_attention.applications.translation.metrics import bleu
from keras_attention.applications.translation.results import (
    align_words,
    pharaoh,
    table,
    words_of_line,
    words_of_tokens,
)
from keras_attention.applications.translation.verbs import alignment_errors, evaluation_corpus
from tests.applications.commands import write_dates

# Each search or score is of a batch or two: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


@pytest.fixture(scope="module")
def task(trained_run):
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def config(trained_run):
    return load_config(TranslationConfig, [trained_run / "config.yaml"])


def asked(config, **options):
    names = ("source", "target", "input", "split", "on_too_long")
    return Namespace(run="run", config=config, **{**dict.fromkeys(names), **options})


def prepared(path, training):
    with RunFolder.prepare(path, "translation") as folder:
        config = TranslationConfig()
        section = dataclasses.replace(config.training, **training)
        save_config(dataclasses.replace(config, training=section), folder / "config.yaml")
    return RunFolder(path)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("constant", None),
        ("cosine", "another training.epochs, as training.schedule cosine falls to 0 over all epoc"),
    ],
)
def test_a_schedule_over_all_epochs_keeps_their_number(monkeypatch, tmp_path, schedule, message):
    monkeypatch.setattr(tasks, "_fit", lambda *_, on_start: on_start() or "trained")
    run = prepared(tmp_path / "run", {"schedule": schedule, "epochs": 3})

    def resume(**changes):
        config = load_config(TranslationConfig, [run.config])
        section = dataclasses.replace(config.training, **changes)
        return tasks.resume_task(
            Translator, dataclasses.replace(config, training=section), run.path
        )

    assert resume(max_minutes=5.0, tensorboard=False) == "trained"
    if message is None:
        assert resume(epochs=4) == "trained"
        return
    before = run.config.read_text()
    with pytest.raises(UserError, match=message):
        resume(epochs=4)
    assert run.config.read_text() == before


def test_a_run_in_training_keeps_its_configuration(tmp_path):
    run = prepared(tmp_path / "run", {"epochs": 3})
    before = run.config.read_text()
    config = load_config(TranslationConfig, [run.config], ["--training.epochs=99"])
    with writing(run), pytest.raises(UserError, match="another process is training"):
        tasks.resume_task(Translator, config, run.path)
    assert run.config.read_text() == before


def test_paths_in_a_run_are_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = TranslationConfig(data=DataConfig(train="a/b.tsv", dev_source="c", dev_target="d"))
    data = tasks.with_absolute_paths(config).data
    assert data.train == str(tmp_path / "a" / "b.tsv")
    assert (data.dev_source, data.dev_target) == (str(tmp_path / "c"), str(tmp_path / "d"))
    assert data.test is None and data.folder is None


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
@pytest.mark.parametrize("shared", [True, False])
def test_tokenizers_are_of_the_configured_kind(tmp_path, kind, shared):
    write_dates(tmp_path)
    data = DataConfig(train=str(tmp_path / "train.tsv"))
    config = TranslationConfig(
        data=data, tokenizer=TokenizerConfig(kind=kind, vocabulary_size=200, shared=shared)
    )
    few = kind == "sentencepiece" and not shared  # few pieces spell ISO dates
    with pytest.warns(UserWarning, match="too small") if few else nullcontext():
        preprocessor = Translator.adapt(config, load_corpus(data, "train"))
    source, target = preprocessor.source_tokenizer, preprocessor.target_tokenizer
    assert source.kind == kind
    assert (source is target) == shared
    assert source.vocabulary_size <= 200


@pytest.mark.filterwarnings("ignore:The text is too small")
def test_a_model_that_cannot_be_leaves_no_run_folder(tmp_path, monkeypatch):
    data = write_dates(tmp_path)
    wrong = ["--model.tie_embeddings=true", "--model.readout_size=5"]
    overrides = [f"{name}={value}" for name, value in zip(data[::2], data[1::2], strict=True)]
    small = "--tokenizer.vocabulary_size=120"
    config = load_config(TranslationConfig, [], [*overrides, *wrong, small])
    with pytest.raises(ValueError, match="[Tt]ied embeddings"):
        tasks.train_task(Translator, config, tmp_path / "run")
    with pytest.raises(UserError, match="steps_per_execution must divide the .* Received: 97"):
        executions = "--training.steps_per_execution=97"
        config = load_config(TranslationConfig, [], [*overrides, small, executions])
        tasks.train_task(Translator, config, tmp_path / "run")
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as where it is not installed
    with pytest.raises(UserError, match="TensorBoard logs need"):
        config = load_config(TranslationConfig, [], overrides)
        tasks.train_task(Translator, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_figures_of_an_epoch_are_exact(task, config):
    corpus = load_corpus(config.data, "dev")
    corpus = corpus.take([row for row, text in enumerate(corpus["source"]) if len(text) < 12][:7])
    batches = task.make_batches(task.encode(corpus), 4, shuffle=False)
    figures = task.development(corpus, batches, config)()
    texts = [each.text for each in task.translate(corpus["source"], beam_size=1)]
    assert figures["val_bleu"] == bleu(texts, corpus["target"]).value
    scored = task.score(corpus["source"], corpus["target"])
    nats = -sum(each.log_probability for each in scored)
    tokens = sum(len(each.tokens) + 1 for each in scored)
    np.testing.assert_allclose(figures["val_loss"], nats / tokens, rtol=1e-4)
    np.testing.assert_allclose(figures["val_perplexity"], math.exp(nats / tokens), rtol=1e-4)


def test_evaluation_takes_the_runs_own_sets_or_files(task, config, tmp_path):
    test, dev = (load_corpus(config.data, split) for split in ("test", "dev"))
    assert evaluation_corpus(asked(config))["source"] == test["source"]
    assert evaluation_corpus(asked(config, split="dev"))["source"] == dev["source"]
    untested = dataclasses.replace(
        config, data=dataclasses.replace(config.data, test=None, max_length=1)
    )
    assert evaluation_corpus(asked(untested))["source"] == dev["source"]
    report = {"data": test.report.name}
    report |= task.evaluate_text(test["source"][:9], test["target"][:9], beam_size=1)
    assert f"{report['bleu']:.2f}" in table(report) and "9 sentence pairs" in table(report)
    with pytest.raises(UserError, match="run has no data of its own: give --source"):
        evaluation_corpus(asked(None))
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\n")
    assert evaluation_corpus(asked(None, input=str(path)))["target"] == ["b"]  # a preset with files


def test_scores_of_many_pairs_are_written_part_after_part(task, config, monkeypatch, tmp_path):
    test, parts = load_corpus(config.data, "test"), []

    def score(sources, targets, **options):
        parts.append(len(sources))
        return Translator.score(task, sources, targets, **options)

    (tmp_path / "pairs.tsv").write_text(
        "".join(
            f"{one}\t{other}\n" for one, other in zip(test["source"], test["target"], strict=True)
        )
    )
    expected = [each.log_probability for each in task.score(test["source"], test["target"])]
    monkeypatch.setattr(verbs, "BATCHES_IN_A_CHUNK", 1)
    monkeypatch.setattr(task, "search", task.search.replace(batch_size=16))
    monkeypatch.setattr(task, "score", score)
    options = asked(config, input=str(tmp_path / "pairs.tsv"), output=str(tmp_path / "scores"))
    verbs.score(task, options)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "scores"), expected, atol=1e-3)
    assert parts == [16, 16, 8]


def test_alignment_errors_of_known_attention(task, tmp_path):
    """The links are the words with the most weight; a gold file of just these has AER 0."""
    (tmp_path / "pairs.tsv").write_text("2 ottobre 1999\t1999-10-02\nle 4 juin\t4 5 6\n")
    corpus = evaluation_corpus(asked(None, input=str(tmp_path / "pairs.tsv")))
    read, write = task.preprocessor.source_tokenizer, task.preprocessor.target_tokenizer
    results = task.score(corpus["source"], corpus["target"])
    lines = []
    for result, source, target in zip(results, corpus["source"], corpus["target"], strict=True):
        sums = np.zeros((len(target.split()), len(source.split())))
        for row, word in enumerate(words_of_line(write, target)):
            for column, other in enumerate(words_of_line(read, source)):
                sums[word, other] += result.alignment[row, column]
        lines.append([(int(best), word) for word, best in enumerate(sums.argmax(axis=1))])
    for start, shift in ((True, 1), (False, 0)):
        gold = tmp_path / f"gold{shift}"
        text = [" ".join(f"{s + shift}-{t + shift}" for s, t in line) for line in lines]
        gold.write_text("\n".join(text) + "\n")
        report = alignment_errors(task, corpus, str(gold), one_indexed=start)
        assert report == {"aer": 0.0, "precision": 100.0, "recall": 100.0, "sentences": 2}


def test_a_model_without_attention_has_no_alignment_errors(task, monkeypatch):
    monkeypatch.setattr(type(task.backbone), "has_attention", False)
    with pytest.raises(UserError, match="no attention to measure"):
        alignment_errors(task, None, "gold", one_indexed=True)


def test_words_are_linked_by_the_sum_of_their_tokens_weights():
    scores = np.array([[0.4, 0.3, 0.3], [0.0, 0.9, 0.1], [0.0, 0.0, 0.0], [0.2, 0.1, 0.7]])
    source_words, target_words = [0, 1, 1], [0, 1, 2, 3]
    links = align_words(scores, source_words, target_words)
    assert links == [(1, 0), (1, 1), (1, 3)]  # 0.3 + 0.3 beats 0.4; no weight, no link
    assert pharaoh(links) == "1-0 1-1 1-3"
    assert align_words(scores, [0, 1, 2], [0, 0, 0, 0]) == [(1, 0)]
    assert align_words(scores, [], [0]) == []


def test_words_of_tokens_are_those_between_spaces(task):
    line, tokenizer = "Freitag, 19. Dezember 1930", task.preprocessor.source_tokenizer
    tokens = tokenizer.tokens(line)
    words = words_of_line(tokenizer, line)
    assert words == words_of_tokens(tokenizer, tokens)
    assert sorted(set(words)) == [0, 1, 2, 3]
    spelt = ["".join(t for t, w in zip(tokens, words, strict=True) if w == n) for n in range(4)]
    assert [word.replace("▁", "") for word in spelt] == line.split()


# The configuration of a Transformer


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [
        ([], ("tiny", 128, 256, 4, 4)),
        (["--model.size=base"], ("base", 512, 2048, 6, 8)),
        (["--model.size=base", "--model.layers=3"], ("base", 512, 2048, 3, 8)),
        (["--model.embedding_size=96"], ("tiny", 96, 256, 4, 4)),
        (["--model.size=fast"], ("fast", 128, 256, 6, 4)),
    ],
)
def test_sizes_by_name_and_free(overrides, sizes):
    overrides = ["--model.architecture=transformer", *overrides]
    model = load_config(TranslationConfig, [], overrides).model
    names = ("size", "embedding_size", "feed_forward_size", "layers", "heads")
    assert tuple(getattr(model, name) for name in names) == sizes
    assert (model.norm, model.activation, model.tie_embeddings) == ("post", "relu", True)
    assert model.decoder_layers == (1 if model.size == "fast" else None)
    assert dataclasses.replace(model) == model  # what is written reads back


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.units=5"], "model.units goes with model.architecture rnnsearch, rnnencdec"),
        (["--model.score=dot"], "model.score goes with model.architecture luong only"),
        (["--model.heads=3"], "model.heads must divide model.embedding_size .128.. Received: 3"),
        (["--model.share_embeddings=true"], "model.share_embeddings needs tokenizer.shared"),
        (["--decoding.attention_layer=4"], "has the layers 0 to 3. Received: 4"),
        (["--model.size=fast", "--decoding.attention_layer=1"], "has the layers 0 to 0. Received"),
        (["--decoding.attention_head=4"], "has the heads 0 to 3. Received: 4"),
        (["--model.architecture=rnnsearch", "--decoding.attention_head=0"], "no heads to choose"),
        (
            ["--model.architecture=rnnsearch", "--decoding.precision=bfloat16"],
            "decoding.precision bfloat16 goes with model.architecture transformer only",
        ),
        (["--model.architecture=luong", "--model.heads=2"], "model.heads goes with"),
        (["--model.architecture=rnnsearch", "--model.size=tiny"], "model.size goes with"),
        (["--training.beta_2=1"], "training.beta_2 must be above 0 and below 1"),
        (["--training.beta_2=0.9", "--training.optimizer=sgd"], "training.beta_2 goes with"),
        (["--training.accumulate=0"], "training.accumulate must be at least 1"),
        (["--training.average_checkpoints=0"], "average_checkpoints must be at least 1"),
        (["--training.batch_tokens=0"], "training.batch_tokens must be at least 1"),
        (["--training.buckets=0"], "training.buckets must be at least 1"),
        (["--data.dev_fraction=1"], "data.dev_fraction must be at least 0 and below 1"),
    ],
)
def test_what_cannot_be_is_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        load_config(TranslationConfig, [], ["--model.architecture=transformer", *overrides])
