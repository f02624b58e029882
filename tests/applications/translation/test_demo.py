"""The demo: what it prints and writes, and how it ends when its translations are wrong."""

import shutil

import pytest

from keras_attention.applications.data.made import dates
from keras_attention.applications.translation import Translator, demo
from tests.applications.commands import call_command

SIZES = {"train": 300, "dev": 10, "test": 15}
TINY = [
    "--model.embedding_size=12",
    "--model.units=16",
    "--training.epochs=1",
    "--training.steps_per_epoch=1",
    "--training.deterministic=false",
    "--training.tensorboard=false",
    "--decoding.beam_size=1",
    "--decoding.max_length=4",
]


@pytest.fixture(autouse=True)
def few_dates(monkeypatch):
    for split, size in SIZES.items():
        monkeypatch.setitem(dates.SIZES, split, size)


def written_by(output, out, err):
    """Check what a demo in `output` has printed and written; return its percentage, as printed."""
    for name in ("run/model.weights.h5", "alignment.png", "saved_model/saved_model.pb"):
        assert (output / name).is_file()
        assert str(output / name.split("/")[0]) in err
    assert f"{output / 'saved_model'} back: the same translations" in err
    *shown, last = out.splitlines()
    assert len(shown) == demo.SHOWN
    sources, targets = (side[: demo.SHOWN] for side in dates.generate("test"))
    for line, source, target in zip(shown, sources, targets, strict=True):
        given, _, text = line.partition("->")
        assert given.strip() == source
        assert text.strip() == target or text.endswith("  (wrong)")
    assert f"exact matches on {dates.SIZES['test']:,} unseen dates: " in last
    return last.split()[-2]


def test_a_demo_of_little_training_shows_draws_exports_and_reads_back(
    tmp_path, capsys, traced_nowhere
):
    output = tmp_path / "demo"
    exact = demo.run_demo(output, TINY, expected=0)
    percentage = written_by(output, *capsys.readouterr())
    assert percentage == f"{exact:.1f}"
    corpus = dates.generate("test")
    results = Translator.load(output / "run").translate(corpus[0])
    right = sum(result.text == iso for result, iso in zip(results, corpus[1], strict=True))
    assert exact == 100 * right / SIZES["test"]


def test_a_demo_that_translates_badly_ends_with_status_1(
    trained_run, monkeypatch, capsys, tmp_path
):
    """All is as in the command but for its run, which is the small one of other tests."""
    asked = []

    def train(task_class, config, output):
        asked.append(config)
        shutil.copytree(trained_run, output)

    monkeypatch.setattr(demo, "train_task", train)
    monkeypatch.setattr(demo, "_read_back", lambda *arguments: None)
    for slow in ("draw", "export"):
        monkeypatch.setattr(Translator, slow, lambda *arguments: None)
    done = call_command(capsys, "demo", "--output", tmp_path / "demo")
    assert asked[0].training.epochs == 3
    percentage = float(done.out.split()[-2])
    assert percentage < demo.EXPECTED
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith(
        f"keras-attention: the demo failed: {percentage:.1f} % of unseen dates came out exactly, "
        "where at least 98 % should"
    )


@pytest.mark.slow
def test_the_demo_translates_unseen_dates(monkeypatch, tmp_path, capsys):
    monkeypatch.undo()  # all dates
    exact = demo.run_demo(tmp_path / "demo")
    assert exact >= 98
    assert written_by(tmp_path / "demo", *capsys.readouterr()) == f"{exact:.1f}"
