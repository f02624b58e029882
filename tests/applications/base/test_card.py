"""The card of a run says what made it and how good it is; an edited one is its user's."""

import json
import shlex
import shutil

import keras
import pytest

from keras_attention.applications.base.card import MISSING
from keras_attention.applications.base.train import resume_task, train_task
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.store.files import checksum
from keras_attention.applications.training.run_folder import RunFolder
from keras_attention.applications.translation import TranslationPreprocessor, Translator
from keras_attention.applications.translation.config import TranslationConfig

LINES = [f"{first} {second} c d\t{second} {first} C D\n" for first in "abdef" for second in "abdef"]
SETTINGS = ["--tokenizer.kind=words", "--model.embedding_size=5", "--model.units=7"]
SETTINGS += ["--training.epochs=3", "--training.batch_size=25", "--training.clip_norm=null"]
SETTINGS += ["--training.learning_rate=0.01", "--tokenizer.shared=true", "--decoding.max_length=4"]


@pytest.fixture(scope="module")
def trained(module_traced_nowhere, tmp_path_factory):
    """A run of three epochs by the command, and its configuration."""
    folder = tmp_path_factory.mktemp("card")
    (folder / "all lines.tsv").write_text("".join(LINES))
    (folder / "dev.tsv").write_text("".join(LINES[::3]))
    data = [f"--data.train={folder / 'all lines.tsv'}", f"--data.dev={folder / 'dev.tsv'}"]
    config = load_config(TranslationConfig, [], [*data, *SETTINGS])
    train_task(Translator, config, folder / "run")
    return folder / "run", config


def test_the_card_of_a_run_has_its_data_its_command_and_the_figures_of_its_best_epoch(trained):
    run, config = trained
    card = (run / "README.md").read_text()
    for name, path in (("train", config.data.train), ("dev", config.data.dev)):
        file = path.rpartition("/")[2]
        assert f"- `data.{name}`: `{file}`, SHA-256 `{checksum(path)}`\n" in card
    assert str(run.parent) not in card  # where the data lay is nobody else's
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: (line["val_bleu"], -line["val_loss"]))
    assert f"after epoch {best['epoch']} ({best['step']} updates)" in card
    assert f"- `val_bleu`: {best['val_bleu']:.5g}\n" in card
    assert "greedy search: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in card
    assert f"{Translator.from_preset(run).count_params():,} weights" in card
    assert card.endswith(f"## Licence\n\n{MISSING}\n") and card.count(MISSING) == 1
    assert f"Keras {keras.__version__} on {keras.backend.backend()}" in card


def test_the_command_of_a_card_says_all_that_was_set(trained):
    run, config = trained
    command = (run / "README.md").read_text().partition("```bash\n")[2].partition("\n```")[0]
    program, verb, task, *options = shlex.split(command)
    assert (program, verb, task, *options[-2:]) == (
        *("keras-attention", "train", "translation"),
        *("--output", "RUN"),
    )
    told = load_config(TranslationConfig, [], options[:-2])
    assert told.data.train == "all lines.tsv"
    assert (told.model, told.training, told.tokenizer, told.decoding) == (
        *(config.model, config.training),
        *(config.tokenizer, config.decoding),
    )


def test_a_preset_has_the_card_of_its_run_until_something_changes(trained, tmp_path):
    run, _ = trained
    card = (run / "README.md").read_text()
    task = Translator.from_preset(run)
    task.save_to_preset(tmp_path / "same")
    assert (tmp_path / "same" / "README.md").read_text() == card
    Translator.from_preset(tmp_path / "same").save_to_preset(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == card
    task.backbone.weights[0].assign(task.backbone.weights[0] * 2)
    task.save_to_preset(tmp_path / "changed")
    other = TranslationPreprocessor(*task.preprocessor.tokenizers, replace_unknown=True)
    Translator.from_preset(run, preprocessor=other).save_to_preset(tmp_path / "read otherwise")
    for name in ("changed", "read otherwise"):
        assert (tmp_path / name / "README.md").read_text().count(MISSING) == 4


@pytest.mark.slow
def test_a_card_follows_its_run_and_an_edited_one_stays(traced_nowhere, tmp_path):
    sources, targets = zip(*(line.rstrip().split("\t") for line in LINES), strict=True)
    sides = list(sources), list(targets)

    def train(epochs):
        keras.utils.set_random_seed(3)
        task = Translator.from_texts(*sides, embedding_size=5, units=7)
        task.fit(*sides, run=tmp_path / "run", epochs=epochs, seed=3, validation_split=0.2)
        return (tmp_path / "run" / "README.md").read_text()

    first, second = train(1), train(2)
    assert "`Translator.fit(run=...)` in Python.\n\n- `training.epochs`: 1\n" in first
    assert first.count("SHA-256") == 2 and "- `training.epochs`: 2\n" in second
    (tmp_path / "run" / "README.md").write_text(first + "Licence: mine\n")
    assert train(3) == first + "Licence: mine\n"
    RunFolder(tmp_path / "run").verify_parts()


@pytest.mark.slow
def test_a_run_that_was_continued_with_changes_says_so(trained, tmp_path):
    run, _ = trained
    copied = shutil.copytree(run, tmp_path / "run")
    overrides = ["--training.clip_norm=2", "--training.epochs=4"]
    changed = load_config(TranslationConfig, [copied / "config.yaml"], overrides)
    resume_task(Translator, changed, copied, accept_changes=True)
    card = (copied / "README.md").read_text()
    assert "Continued after step-" in card
    assert "with changes: training.clip_norm of the configuration.\n" in card


def test_a_resume_that_fails_changes_nothing(trained, tmp_path):
    run, _ = trained
    copied = shutil.copytree(run, tmp_path / "run")
    overrides = ["--data.dev=missing.tsv"]
    changed = load_config(TranslationConfig, [copied / "config.yaml"], overrides)
    with pytest.raises(UserError, match="missing.tsv"):
        resume_task(Translator, changed, copied, accept_changes=True)
    for name in ("config.yaml", "FORMAT", "README.md"):
        assert (copied / name).read_bytes() == (run / name).read_bytes()


def test_a_card_that_cannot_be_written_costs_no_epoch(trained, tmp_path, capsys):
    run = RunFolder(shutil.copytree(trained[0], tmp_path / "run"))
    (run.path / "README.md").unlink()
    (run.path / "README.md").mkdir()
    config = load_config(TranslationConfig, [run.config], ["--training.epochs=4"])
    assert resume_task(Translator, config, run.path).epoch == 4
    said = "README.md could not be written: it is a folder. Move it away. The training goes on"
    assert said in capsys.readouterr().err
    assert len(list(run.checkpoints.glob("step-*"))) == 2 and "epochs: 4" in run.config.read_text()
