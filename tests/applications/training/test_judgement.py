"""Which epoch is the best one: the score, the loss where scores tie, and never by other data."""

import contextlib
import io
import itertools
import json
import math
import shutil

import keras
import numpy as np
import pytest

from keras_attention.applications.base import presets
from keras_attention.applications.base.train import resume_task, train_task
from keras_attention.applications.classification import TextClassifier
from keras_attention.applications.classification.data import in_memory
from keras_attention.applications.command.tasks import TOKENIZE
from keras_attention.applications.errors import Preempted, UserError
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.judgement import Judge, figures_of
from keras_attention.applications.training.reporting import Progress
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.config import TranslationConfig
from keras_attention.applications.translation.metrics import bleu
from keras_attention.applications.translation.results import blind_bleu
from tests.applications import small_training
from tests.applications.commands import call_command
from tests.applications.small_training import assert_same_runs, make_run, saved, terminate_at

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


def fit(*arguments, **settings):
    """A small training whose epochs are one batch."""
    return small_training.fit(*arguments, **{"steps_per_epoch": 1, **settings})


def epochs(*pairs):
    """What an evaluation gives in each epoch: a score and a loss."""
    return {"values": [{"val_score": score, "val_loss": loss} for score, loss in pairs]}


def figures(score, loss):
    return figures_of({"val_score": score, "val_loss": loss, "loss": 9.0})


FROM_WORST_TO_BEST = [
    *[figures(math.nan, math.inf), figures(math.nan, 3.0), figures(math.nan, 2.0)],
    *[figures(-1.0, 9.0), figures(0.0, 5.0), figures(0.0, 4.0), figures(0.5, math.nan)],
    *[figures(0.5, 8.0), figures(0.5, 7.9), figures(1.0, 100.0)],
]


@pytest.mark.parametrize("judge", [Judge("val_score"), Judge("val_score", "", "a set")])
def test_the_score_decides_and_the_loss_where_scores_are_equal(judge):
    assert judge.monitor == "val_score"
    for (place, one), (other_place, other) in itertools.product(
        enumerate(FROM_WORST_TO_BEST), repeat=2
    ):
        assert judge.is_better(one, other) == (place > other_place)
        assert not judge.is_better(one, one)
    assert judge.is_tie(figures(0.5, 1.0), figures(0.5, 2.0))
    assert not judge.is_tie(figures(0.5, 1.0), figures(0.4, 1.0))


@pytest.mark.parametrize("judge", [Judge(), Judge("val_score", "no text has a label")])
def test_the_loss_decides_alone_without_a_score_that_can_tell(judge):
    assert judge.monitor == "val_loss"
    assert judge.is_better(figures(0.0, 1.0), figures(1.0, 1.1))
    assert not judge.is_better(figures(1.0, 1.1), figures(0.0, 1.1))
    assert not judge.is_tie(figures(0.5, 1.0), figures(0.5, 1.0))


def test_a_score_that_stays_the_same_leaves_it_to_the_loss(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    values = epochs((0.0, 3.0), (0.0, 2.0), (0.0, 1.0), (0.0, 1.5), (0.0, 0.5), (0.0, 0.5))
    settings = {"epochs": 6, "patience": 2, "schedule": "halve", "learning_rate": 0.5}
    outcome, model = fit(run, values, judge=Judge("val_score"), **settings)
    assert (outcome.epoch, outcome.best_epoch, outcome.monitor) == (6, 5, "val_score")
    # Halved after epochs 4 and 6 alone, as the loss fell in the others.
    assert [line["learning_rate"] for line in read_metrics(run.metrics)] == [0.5] * 4 + [0.25] * 2
    assert float(model.optimizer.learning_rate) == 0.125
    note = "note: val_score of epoch 2 is that of epoch 1, 0: of equal scores the lower val_loss"
    said = capsys.readouterr().err
    assert said.count("note:") == said.count(note) == 1


def test_a_tie_is_told_once_in_a_run_of_several_sittings(tmp_path, capsys):
    run, judge = make_run(tmp_path / "run"), Judge("val_score")
    fit(run, epochs((0.5, 4.0), (1.0, 3.0), (0.5, 3.0)), judge=judge, epochs=3)
    assert "of equal scores" not in capsys.readouterr().err  # with the best one
    fit(run, epochs((1.0, 2.0)), judge=judge, epochs=4)
    note = "note: val_score of epoch 4 is that of epoch 2, 1: of equal scores the lower val_loss"
    assert note in capsys.readouterr().err
    fit(run, epochs((1.0, 1.0)), judge=judge, epochs=5)
    assert "of equal scores" not in capsys.readouterr().err


def test_patience_counts_epochs_that_tie_with_a_higher_loss(tmp_path):
    run = make_run(tmp_path / "run")
    values = epochs((1.0, 2.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.5), (1.0, 0.5))
    outcome, _ = fit(run, values, judge=Judge("val_score"), epochs=5, patience=2)
    assert (outcome.epoch, outcome.best_epoch) == (4, 2)
    assert outcome.reason == "no better val_score in 2 epochs"


def test_a_score_that_is_no_number_is_worse_than_any_and_is_resumed(tmp_path):
    run, judge = make_run(tmp_path / "run"), Judge("val_score")
    first, _ = fit(run, epochs((math.nan, 1.0)), judge=judge, epochs=1)
    assert first.best_epoch == 1 and math.isnan(first.best)
    outcome, _ = fit(run, epochs((-0.5, 2.0), (math.nan, 0.1)), judge=judge, epochs=3)
    assert (outcome.best_epoch, outcome.best) == (2, -0.5)


def test_a_score_that_cannot_tell_is_named_and_the_loss_decides(tmp_path, capsys):
    """Wrong answers may have the higher one, as BLEU of words that are too many."""
    run = make_run(tmp_path / "run")
    judge = Judge("val_score", "no reference has four tokens")
    values = epochs((9.0, 3.0), (0.0, 2.0), (5.0, 2.5), (0.0, 1.0))
    outcome, _ = fit(run, values, judge=judge, epochs=4, patience=2)
    assert (outcome.best_epoch, outcome.best, outcome.monitor) == (4, 1.0, "val_loss")
    said = capsys.readouterr().err
    assert said.count("note:") == 1 and "of equal scores" not in said
    assert "val_score cannot tell models apart on this development set: no reference has" in said


# ---- Figures of different data.

ONE, OTHER = Judge("val_score", "", "one set"), Judge("val_score", "", "another set")


class Weights(keras.callbacks.Callback):
    """Keeps the weights at each epoch's end."""

    def on_epoch_end(self, epoch, logs=None):
        self.each = [*getattr(self, "each", []), self.model.get_weights()]


def best_of(run):
    return saved(run)[3]


def assert_same_weights(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_best_weights_are_measured_first_where_the_development_set_has_changed(
    tmp_path, capsys
):
    run, weights = make_run(tmp_path / "run"), Weights()
    fit(run, epochs((0.9, 1.0), (0.8, 2.0)), judge=ONE, epochs=2, callbacks=[weights])
    measured = []

    class Looks(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            measured.append(self.model.get_weights())

    # On the new set the old weights have 0.1, and then 0.68 is better.
    later = {"callbacks": [Looks(), weights], "epochs": 3, "judge": OTHER}
    outcome, _ = fit(run, epochs((0.1, 3.0), (0.68, 2.0)), **later)
    assert (outcome.best_epoch, outcome.best, outcome.updates) == (3, 0.68, 1)
    assert_same_weights(best_of(run), weights.each[2])
    assert_same_weights(measured[0], weights.each[1])  # training goes on from its own
    said = capsys.readouterr().err
    assert "the best weights so far, of epoch 1, have val_score 0.1, val_loss 3 there" in said
    # The next sitting is of the same set.
    outcome, _ = fit(run, epochs((0.6, 2.0)), judge=OTHER, epochs=4)
    assert (outcome.best_epoch, outcome.epoch) == (3, 4)
    assert [line["measured_on"] for line in read_metrics(run.metrics)] == [
        *["one set"] * 2,
        *["another set"] * 2,
    ]


def test_the_old_weights_stay_where_they_are_better_on_the_new_set(tmp_path):
    run, weights = make_run(tmp_path / "run"), Weights()
    fit(run, epochs((0.2, 1.0)), judge=ONE, epochs=1, callbacks=[weights])
    outcome, _ = fit(run, epochs((0.7, 1.0), (0.5, 0.1)), judge=OTHER, epochs=2)
    assert (outcome.best_epoch, outcome.best) == (1, 0.7)
    assert_same_weights(best_of(run), weights.each[0])


def test_measuring_again_changes_nothing_of_the_training(tmp_path):
    whole, parts = make_run(tmp_path / "whole"), make_run(tmp_path / "parts")
    settings = {"schedule": "halve", "halve_after": 9, "early_stopping": "none"}
    fit(whole, epochs(*[(0.1, 1.0)] * 3), judge=OTHER, epochs=3, **settings)
    fit(parts, epochs((0.1, 1.0)), judge=ONE, epochs=1, **settings)
    fit(parts, epochs(*[(0.1, 1.0)] * 3), judge=OTHER, epochs=3, **settings)
    one, other = saved(whole), saved(parts)
    other[4][0]["measured_on"] = "another set"
    other[2]["best"]["wait"] = one[2]["best"]["wait"]
    assert_same_runs(one, other)


def test_a_run_that_had_stopped_early_goes_on_with_another_set(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    settings = {"patience": 1, "epochs": 5, "schedule": "halve", "halve_after": 3}
    outcome, _ = fit(run, epochs((0.9, 1.0), (0.8, 1.0)), judge=ONE, **settings)
    assert outcome.reason == "no better val_score in 1 epochs"
    again, _ = fit(run, {}, judge=ONE, **settings)
    assert (again.updates, again.best) == (0, 0.9)
    assert "Nothing was trained: no better val_score in 1 epochs." in capsys.readouterr().err
    other, _ = fit(run, epochs((0.1, 9.0), (0.2, 9.0), (0.1, 9.0)), judge=OTHER, **settings)
    assert (other.epoch, other.best_epoch, other.best, other.updates) == (4, 3, 0.2, 2)


def test_where_nothing_is_trained_the_figure_is_that_of_the_new_set(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    fit(run, epochs((0.9, 1.0)), judge=ONE, epochs=1)
    for values in (epochs((0.3, 2.0)), {}):  # measured once
        outcome, _ = fit(run, values, judge=OTHER, epochs=1)
        assert (outcome.best_epoch, outcome.best, outcome.updates) == (1, 0.3, 0)
        assert "Nothing was trained: all 1 epochs are done." in capsys.readouterr().err


def test_a_new_set_without_a_finite_loss_is_refused_and_nothing_changes(tmp_path):
    run = make_run(tmp_path / "run")
    fit(run, epochs((0.9, 1.0)), judge=ONE, epochs=1)
    before = saved(run)
    with pytest.raises(UserError, match="have a loss that is NaN or infinite on the development"):
        fit(run, epochs((0.3, math.nan)), judge=OTHER, epochs=2)
    assert_same_runs(saved(run), before)


def test_a_run_without_an_epoch_has_nothing_to_measure_again(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    settings = {"epochs": 1, "steps_per_epoch": 3}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Preempted):
        patch.setattr(Progress, "on_train_batch_end", terminate_at(2))
        fit(run, epochs((0.9, 1.0)), judge=ONE, **settings)
    outcome, _ = fit(run, epochs((0.4, 1.0)), judge=OTHER, **settings)
    assert (outcome.best, outcome.best_epoch) == (0.4, 1)
    assert "has changed" not in capsys.readouterr().err
    again, _ = fit(run, {}, judge=OTHER, **settings)
    assert again.best == 0.4


# ---- Each task.


SOURCES = ["rot blau", "blau rot", "rot rot", "blau blau"] * 2
TARGETS = ["red blue", "blue red", "red red", "blue blue"] * 2
IN_A_RUN = {"validation_split": 0.25, "batch_size": 8, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def pairs(module_traced_nowhere, tmp_path_factory):
    """A run on two-word sentences, which have no run of four tokens, what it said, and its task."""
    path, said = tmp_path_factory.mktemp("pairs") / "run", io.StringIO()
    keras.utils.set_random_seed(1)
    task = Translator.from_texts(SOURCES, TARGETS, units=6)
    with contextlib.redirect_stderr(said):
        outcome = task.fit(SOURCES, TARGETS, run=path, epochs=2, **IN_A_RUN)
    return task, path, outcome, said.getvalue()


def test_two_word_sentences_are_judged_by_the_loss(pairs):
    _, run, outcome, said = pairs
    lines = read_metrics(RunFolder(run).metrics)
    best = min(lines, key=lambda line: line["val_loss"])
    assert (outcome.monitor, outcome.best_epoch) == ("val_loss", best["epoch"])
    reason = "no reference has four tokens (tok:13a), and BLEU counts runs of four"
    assert said.count(reason) == said.count("note:") == 1
    card = (run / "README.md").read_text()
    assert f"after epoch {best['epoch']} ({best['step']} updates)" in card
    assert f"- `val_loss`: {best['val_loss']:.5g}\n" in card


def test_a_run_goes_on_with_other_data_from_python(pairs, tmp_path, capsys):
    task, path, *_ = pairs
    run, held_out = shutil.copytree(path, tmp_path / "run"), (["rot rot"], ["red red"])
    options = {**IN_A_RUN, "validation_split": 0.0, "validation_data": held_out, "epochs": 2}
    with pytest.raises(ValueError, match="go on with `accept_changes=True`, which the run folder"):
        task.fit(SOURCES, TARGETS, run=run, **options)
    capsys.readouterr()
    outcome = task.fit(SOURCES, TARGETS, run=run, accept_changes=True, **options)
    said = capsys.readouterr().err
    assert "accepted: the data to judge by are others" in said
    assert "have val_loss" in said and "Nothing was trained: all 2 epochs are done." in said
    expected = Translator.from_preset(run).perplexity(*held_out)
    assert outcome.best == pytest.approx(math.log(expected), rel=1e-4)
    about = json.loads((run / "FORMAT").read_text())
    assert any("judge by" in each for record in about["accepted"] for each in record["changes"])
    assert f"- `val_loss`: {outcome.best:.5g}\n" in (run / "README.md").read_text()
    task.fit(SOURCES, TARGETS, run=run, **options)  # these are the run's own data now
    assert "has changed" not in capsys.readouterr().err
    with pytest.raises(ValueError, match="`accept_changes` goes with `run`"):
        task.fit(SOURCES, TARGETS, accept_changes=True)


def translation(*options):

    return load_config(TranslationConfig, [], options)


@pytest.fixture(scope="module")
def chinese(module_traced_nowhere, tmp_path_factory):
    """A run into Chinese that was trained as if it were German, and its options."""

    folder = tmp_path_factory.mktemp("chinese")
    lines = ["rote blumen\t我喜欢红色的花朵", "blauer himmel\t他喜欢蓝色的天空"] * 3
    (folder / "train.tsv").write_text("\n".join(lines))
    (folder / "dev.tsv").write_text("\n".join(lines[:2]))
    options = [f"--data.{split}={folder / split}.tsv" for split in ("train", "dev")]
    options += ["--model.embedding_size=5", "--model.units=5", "--training.epochs=1"]
    options += ["--decoding.max_length=12", "--training.tensorboard=false"]
    options += ["--tokenizer.vocabulary_size=40"]
    train_task(Translator, translation(*options), folder / "run")
    return folder / "run", options


def test_bleu_follows_the_target_language_and_a_change_measures_again(chinese, tmp_path, capsys):

    path, options = chinese
    run = shutil.copytree(path, tmp_path / "run")
    assert Translator.from_preset(run).bleu_tokenizer == "13a"
    changed = translation(*options, "--data.target_language=zh-CN")
    capsys.readouterr()
    outcome = resume_task(Translator, changed, run, accept_changes=True)
    said = capsys.readouterr().err
    assert "The development set, or how it is measured, has changed" in said
    assert "cannot tell" not in said and outcome.monitor == "val_bleu" and outcome.updates == 0
    assert "|tok:zh|" in (run / "README.md").read_text()
    task = Translator.from_preset(run)
    assert (task.target_language, task.bleu_tokenizer) == ("zh-CN", "zh")
    task.save_to_preset(tmp_path / "preset")
    assert Translator.from_preset(tmp_path / "preset").bleu_tokenizer == "zh"
    resume_task(Translator, changed, run)
    assert "has changed" not in capsys.readouterr().err


def test_another_search_judges_again_and_is_that_of_the_run(chinese, tmp_path, capsys):

    path, options = chinese
    run = shutil.copytree(path, tmp_path / "run")
    changed = translation(*options, "--decoding.max_length=3", "--decoding.beam_size=2")
    resume_task(Translator, changed, run, accept_changes=True)
    assert "has changed" in capsys.readouterr().err
    search = Translator.from_preset(run).search
    assert (search.max_length, search.beam_size) == (3, 2)


def test_the_description_of_a_task_follows_its_settings_and_not_those_of_its_parts(pairs, tmp_path):
    """A training in 16 bits does not make the run's preset one of 16 bits."""
    task = pairs[0]
    task.save_to_preset(tmp_path / "preset")
    before = (tmp_path / "preset" / "task.json").read_bytes()
    trained = Translator.from_preset(tmp_path / "preset", dtype="mixed_bfloat16")
    presets.update_task(presets.parts_of(trained), tmp_path / "preset")
    assert (tmp_path / "preset" / "task.json").read_bytes() == before
    trained.search = trained.search.replace(beam_size=7)
    presets.update_task(presets.parts_of(trained), tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")  # whose checksums are right
    assert again.search.beam_size == 7
    assert again.backbone.dtype_policy.name == task.backbone.dtype_policy.name == "float32"


@pytest.mark.slow
def test_moved_training_data_are_no_other_development_set(chinese, tmp_path, capsys):

    path, options = chinese
    run = shutil.copytree(path, tmp_path / "run")
    for split in ("train", "dev"):
        shutil.copy(path.parent / f"{split}.tsv", tmp_path / f"{split}.tsv")
    moved = [each.replace(str(path.parent), str(tmp_path)) for each in options]
    resume_task(Translator, translation(*moved), run, accept_changes=True)
    said = capsys.readouterr().err
    assert "accepted: data.dev of the configuration" in said and "has changed" not in said


def test_several_references_and_a_tokenizer_of_an_evaluation(chinese, tmp_path, capsys):

    path, _ = chinese
    task = Translator.from_preset(path)
    sources, targets = ["rote blumen", "blauer himmel"], ["我喜欢红色的花朵", "他喜欢蓝色的天空"]
    found = [each.text for each in task.translate(sources)]
    both = [[a, b] for a, b in zip(targets, found, strict=True)]
    report = task.evaluate_text(sources, both, tokenize="char")
    assert report["exact_match"] == 100 and report["chrf"] > 99
    assert report["signature"].startswith("nrefs:2|") and "|tok:char|" in report["signature"]
    assert report["perplexity"] == task.perplexity(sources, targets)
    mixed = task.evaluate_text(sources, [targets[0], both[1]])
    assert mixed["signature"].startswith("nrefs:var|") and mixed["exact_match"] == 50
    with pytest.raises(ValueError, match=r"one reference at least. Received: targets\[1\]=\[\]"):
        task.evaluate_text(sources, [targets[0], []])
    with pytest.raises(ValueError, match="`tokenize` must be one of .* Received: tokenize='moses'"):
        task.evaluate_text(sources, targets, tokenize="moses")
    files = {"src": sources, "ref": targets, "own": found, "short": found[:1], "gap": ["", "x"]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    call = ["evaluate", path, "--source", tmp_path / "src", "--json"]
    call += ["--target", tmp_path / "ref"]
    done = call_command(capsys, *call, "--target", tmp_path / "own", "--tokenize", "char")
    assert done.status == 0, done.err
    assert json.loads(done.out)["signature"] == report["signature"]
    done = call_command(capsys, *call, "--target", tmp_path / "gap")
    assert json.loads(done.out)["signature"].startswith("nrefs:var|")
    assert "note: BLEU cannot tell right translations from wrong ones here" in done.err
    done = call_command(capsys, *call, "--target", tmp_path / "short")
    assert done.status == 2 and "equally many lines" in done.err and "short has 1" in done.err


def test_the_tokenizers_of_the_command_are_those_of_sacrebleu():
    from sacrebleu import BLEU

    assert set(TOKENIZE.settings["choices"]) == set(BLEU.TOKENIZERS)


def test_wrong_translations_have_a_higher_bleu_than_right_ones_without_four_tokens():

    right = ["red blue", "blue red"]
    assert bleu(["red blue red blue", "x"], right).value > bleu(right, right).value == 0
    assert "tok:13a" in blind_bleu(right, "13a") and not blind_bleu(right, "char")
    assert not blind_bleu(["red blue", "a b c d"], "13a")
    assert not blind_bleu([["red blue", "a b c d"], ["blue", "x"]], "char")


def test_scores_of_classification_that_cannot_tell():

    texts = ["good fun", "bad film"]
    many = TextClassifier.from_texts(texts, [("a", "b"), ()], units=4)
    number = TextClassifier.from_texts(texts, [0.5, 2.0], units=4)
    one = TextClassifier.from_texts(texts, ["yes", "no"], units=4)
    for task, labels, words in (
        (many, [(), ()], "no text of it has a label"),
        (many, [(), ("b",)], ""),
        (number, [2.0, 2.0], "all texts of it have the number 2"),
        (number, [2.0, 1.0], ""),
        (one, ["yes", "yes"], ""),
    ):
        found = task.blind_score(in_memory([texts], labels))
        assert words in found and bool(words) == bool(found)
