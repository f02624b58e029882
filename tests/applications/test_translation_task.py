"""The translation task: training data and tokenizers, development figures, words, evaluation."""

import dataclasses
import math

import numpy as np
import pytest

from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import write_text
from keras_attention.applications.common.run_folder import RunFolder, writing
from keras_attention.applications.translation import training
from keras_attention.applications.translation.config import (
    PRESETS,
    DataConfig,
    TokenizerConfig,
    TranslationConfig,
)
from keras_attention.applications.translation.data import load_corpus
from keras_attention.applications.translation.evaluation import (
    alignment_errors,
    evaluate,
    evaluation_corpus,
    table,
)
from keras_attention.applications.translation.run import load_run
from keras_attention.applications.translation.task import TASK
from keras_attention.applications.translation.translator import Translator
from keras_attention.applications.translation.words import (
    align_words,
    pharaoh,
    words_of_line,
    words_of_tokens,
)
from keras_attention.metrics import bleu
from tests.applications.commands import write_dates
from tests.applications.translation_runs import make_run


@pytest.fixture(scope="module")
def loaded(trained_run):
    return load_run(trained_run)


def test_a_data_set_brings_its_defaults_which_options_beat(tmp_path):
    plain = TASK.read_config(None, [])
    dates = TASK.read_config(None, ["--data.dataset", "dates", "--model.units=7"])
    assert plain == TranslationConfig()
    assert dates.model.units == 7
    assert f"--training.epochs={dates.training.epochs}" in PRESETS["dates"]
    assert dates.training.epochs != plain.training.epochs


def test_resuming_reads_the_runs_own_configuration(trained_run):
    folder = RunFolder(trained_run)
    own = load_config(TranslationConfig, [folder.config])
    assert TASK.read_config(None, [], folder) == own
    longer = TASK.read_config(None, ["--training.epochs=99"], folder)
    assert longer.training == dataclasses.replace(own.training, epochs=99)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("constant", None),
        ("cosine", "another training.epochs, as training.schedule cosine falls to 0 over all epoc"),
    ],
)
def test_a_schedule_over_all_epochs_keeps_their_number(monkeypatch, tmp_path, schedule, message):
    monkeypatch.setattr(training, "_fit", lambda *arguments: "trained")
    run = RunFolder(make_run(tmp_path / "run"))
    write_text(run.config, f"training: {{schedule: {schedule}, epochs: 3}}\n")
    before = run.config.read_text()
    longer = TASK.read_config(None, ["--training.max_minutes=5"], run)
    assert training.resume_translation(run.path, longer) == "trained"
    more = TASK.read_config(None, ["--training.epochs=4"], run)
    if message is None:
        assert training.resume_translation(run.path, more) == "trained"
        return
    assert run.config.read_text() != before
    before = run.config.read_text()
    with pytest.raises(UserError, match=message):
        training.resume_translation(run.path, more)
    assert run.config.read_text() == before


def test_a_run_in_training_keeps_its_configuration(tmp_path):
    run = RunFolder(make_run(tmp_path / "run"))
    before = run.config.read_text()
    longer = TASK.read_config(None, ["--training.epochs=99"], run)
    with writing(run), pytest.raises(UserError, match="another process is training"):
        training.resume_translation(run.path, longer)
    assert run.config.read_text() == before


def test_paths_in_a_run_are_absolute(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = TranslationConfig(data=DataConfig(train_tsv="a/b.tsv", dev_source="c", dev_target="d"))
    data = training.with_absolute_paths(config).data
    assert data.train_tsv == str(tmp_path / "a" / "b.tsv")
    assert (data.dev_source, data.dev_target) == (str(tmp_path / "c"), str(tmp_path / "d"))
    assert data.test_tsv is None and data.folder is None


@pytest.mark.parametrize("kind", ["sentencepiece", "words"])
@pytest.mark.parametrize("shared", [True, False])
def test_tokenizers_are_of_the_configured_kind(tmp_path, capsys, kind, shared):
    write_dates(tmp_path)
    data = DataConfig(train_tsv=str(tmp_path / "train.tsv"))
    corpus = load_corpus(data, "train")
    config = TranslationConfig(
        data=data, tokenizer=TokenizerConfig(kind=kind, vocabulary_size=200, shared=shared)
    )
    source, target = training.train_tokenizers(config, corpus)
    assert source.kind == kind
    assert (source is target) == shared
    assert source.vocabulary_size <= 200
    noted = "note: The text is too small" in capsys.readouterr().err
    assert noted == (kind == "sentencepiece" and not shared)  # few pieces spell ISO dates


def test_a_model_that_cannot_be_leaves_no_run_folder(tmp_path):
    data = write_dates(tmp_path)
    wrong = ["--model.tie_embeddings=true", "--model.readout_size=5"]
    config = TASK.read_config(None, [*data, *wrong, "--tokenizer.vocabulary_size=120"])
    with pytest.raises(ValueError, match="[Tt]ied embeddings"):
        training.train_translation(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_figures_of_an_epoch_are_exact(loaded):
    corpus = load_corpus(loaded.config.data, "dev")
    development = training.Development(loaded, lengths=[(30, 12, 12), (40, 13, 13)])
    figures = development()
    translator = Translator(loaded)
    texts = [each.text for each in translator.translate(corpus.source, beam_size=1)]
    assert figures["val_bleu"] == bleu(texts, corpus.target).value
    scored = translator.align(corpus.source, corpus.target)
    nats = -sum(each.log_probability for each in scored)
    tokens = sum(len(each.tokens) + 1 for each in scored)
    np.testing.assert_allclose(figures["val_loss"], nats / tokens, rtol=1e-4)
    np.testing.assert_allclose(figures["val_perplexity"], math.exp(nats / tokens), rtol=1e-4)


def test_evaluation_measures_what_translate_gives(loaded):
    corpus = evaluation_corpus(loaded)
    assert corpus.source == load_corpus(loaded.config.data, "test").source
    report = evaluate(loaded, corpus, beam_size=2)
    texts = [each.text for each in Translator(loaded).translate(corpus.source, beam_size=2)]
    assert report["bleu"] == bleu(texts, corpus.target).value
    same = sum(map(str.__eq__, texts, corpus.target))
    assert report["exact_match"] == 100 * same / 40
    buckets = report["bleu_by_source_words"]
    assert sum(bucket["sentences"] for bucket in buckets) == 40
    assert f"{report['bleu']:.2f}" in table(report)
    assert "40 sentence pairs" in table(report)


def test_evaluation_measures_sentences_too_long_to_train_with(loaded):
    corpus = evaluation_corpus(loaded)
    report = evaluate(loaded, corpus, beam_size=1)
    for rule in ("error", "skip", "truncate"):
        data = dataclasses.replace(loaded.config.data, max_length=1, on_too_long=rule)
        config = dataclasses.replace(loaded.config, data=data)
        assert evaluate(dataclasses.replace(loaded, config=config), corpus, beam_size=1) == report
    data = dataclasses.replace(loaded.config.data, dev_tsv=loaded.config.data.test_tsv)
    same = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, data=data))
    figures = training.Development(same, lengths=[(40, 13, 13)])()
    np.testing.assert_allclose(report["perplexity"], figures["val_perplexity"], rtol=1e-4)


def test_evaluation_takes_the_dev_set_where_there_is_no_test_set(loaded):
    data = dataclasses.replace(loaded.config.data, test_tsv=None)
    config = dataclasses.replace(loaded.config, data=data)
    run = dataclasses.replace(loaded, config=config)
    assert evaluation_corpus(run).source == load_corpus(data, "dev").source


def test_alignment_errors_of_known_attention(loaded, monkeypatch, tmp_path):
    """The links are the words with the most weight; a gold file of just these has AER 0."""
    (tmp_path / "pairs.tsv").write_text("2 ottobre 1999\t1999-10-02\nle 4 juin\t4 5 6\n")
    corpus = evaluation_corpus(loaded, tsv=str(tmp_path / "pairs.tsv"))
    results = Translator(loaded).align(corpus.source, corpus.target)
    lines = []
    for result, source, target in zip(results, corpus.source, corpus.target, strict=True):
        sums = np.zeros((len(target.split()), len(source.split())))
        for row, word in enumerate(words_of_line(loaded.target_tokenizer, target)):
            for column, other in enumerate(words_of_line(loaded.source_tokenizer, source)):
                sums[word, other] += result.alignment[row, column]
        lines.append([(int(best), word) for word, best in enumerate(sums.argmax(axis=1))])
    for start, shift in ((True, 1), (False, 0)):
        gold = tmp_path / f"gold{shift}"
        text = [" ".join(f"{s + shift}-{t + shift}" for s, t in line) for line in lines]
        gold.write_text("\n".join(text) + "\n")
        report = alignment_errors(loaded, corpus, str(gold), one_indexed=start)
        assert report == {"aer": 0.0, "precision": 100.0, "recall": 100.0, "sentences": 2}


def test_a_model_without_attention_has_no_alignment_errors(loaded, monkeypatch):
    monkeypatch.setattr(type(loaded.model), "has_attention", False)
    corpus = evaluation_corpus(loaded)
    with pytest.raises(UserError, match="no attention to measure"):
        alignment_errors(loaded, corpus, "gold", one_indexed=True)


def test_words_are_linked_by_the_sum_of_their_tokens_weights():
    scores = np.array([[0.4, 0.3, 0.3], [0.0, 0.9, 0.1], [0.0, 0.0, 0.0], [0.2, 0.1, 0.7]])
    source_words, target_words = [0, 1, 1], [0, 1, 2, 3]
    links = align_words(scores, source_words, target_words)
    assert links == [(1, 0), (1, 1), (1, 3)]  # 0.3 + 0.3 beats 0.4; no weight, no link
    assert pharaoh(links) == "1-0 1-1 1-3"
    assert align_words(scores, [0, 1, 2], [0, 0, 0, 0]) == [(1, 0)]
    assert align_words(scores, [], [0]) == []


def test_words_of_tokens_are_those_between_spaces(loaded):
    line = "Freitag, 19. Dezember 1930"
    tokens = loaded.source_tokenizer.tokens(line)
    words = words_of_line(loaded.source_tokenizer, line)
    assert words == words_of_tokens(loaded.source_tokenizer, tokens)
    assert sorted(set(words)) == [0, 1, 2, 3]
    spelt = ["".join(t for t, w in zip(tokens, words, strict=True) if w == n) for n in range(4)]
    assert [word.replace("▁", "") for word in spelt] == line.split()


def test_a_run_with_damaged_weights_says_so(trained_run, tmp_path):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(trained_run, run)
    weights = run / "best.weights.h5"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(UserError, match="best.weights.h5 cannot be loaded"):
        load_run(run)
    config = load_config(TranslationConfig, [run / "config.yaml"])
    smaller = dataclasses.replace(config, model=dataclasses.replace(config.model, units=31))
    shutil.copy(trained_run / "best.weights.h5", weights)
    save_config(smaller, run / "config.yaml")
    with pytest.raises(UserError, match="best.weights.h5 cannot be loaded"):
        load_run(run)
