"""Addresses such as `gs://...` as outputs and inputs, and `~`: in every function and verb."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from keras_attention import applications, metrics, visualization
from keras_attention.applications.answer_selection import AnswerRanker, DataConfig, load_corpus
from keras_attention.applications.answer_selection.metrics import read_trec_run
from keras_attention.applications.base.backbones import Pretrained
from keras_attention.applications.base.presets import preset_folder
from keras_attention.applications.base.train import average_tasks, resume_task, train_task
from keras_attention.applications.classification import TextClassifier
from keras_attention.applications.classification.results import draw_confusion
from keras_attention.applications.schema.reading import load_config, read_yaml
from keras_attention.applications.store import files
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.text import WordTokenizer, load_tokenizer
from keras_attention.applications.training.run_folder import RunFolder, is_free, refuse_existing
from keras_attention.applications.translation import TranslationConfig, Translator
from keras_attention.applications.translation.demo import run_demo
from keras_attention.applications.translation.engines.litert import export_litert
from keras_attention.applications.translation.shortlist import Shortlist
from keras_attention.applications.translation.web_export import export_web
from keras_attention.paths import input_path, is_address, output_path
from tests.applications.commands import call_command

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
ADDRESSES = ["gs://bucket/x", "s3://bucket/x", "hf://me/x", "abfss+v2://a@b/x"]
QUESTIONS = [("who is it ?", ["it is a dog .", "the sky is blue ."], [1, 0])] * 3
WEIGHTS = np.array([[0.25, 0.75]])
SHADED = [visualization.ShadedTokens(["a", "b"], WEIGHTS[0])]


@pytest.fixture(scope="module")
def tasks():
    translator = Translator.from_preset("dates")
    classifier = TextClassifier.from_texts(["a b", "b c"], ["x", "y"], units=4)
    summarizer = Summarizer.from_texts(["a b ."], ["a"], units=4, embedding_size=4)
    ranker = AnswerRanker.from_questions(QUESTIONS, units=4, embedding_size=4)
    return {"t": translator, "c": classifier, "s": summarizer, "r": ranker}


def lora(tasks, path):
    network = TextClassifier.from_texts(["a b", "b c"], ["x", "y"], units=4).backbone
    network.enable_lora(1)
    network.save_lora_weights(f"{path}.lora.h5")


def config():
    return load_config(TranslationConfig, [], ["--data.dataset=dates"])


FIT = {"epochs": 1, "verbose": 0, "validation_split": 0.5}
WRITERS = {
    **{
        f"{kind}.{name}": (
            lambda tasks, path, kind=kind, name=name, suffix=suffix: getattr(tasks[kind], name)(
                f"{path}{suffix}"
            )
        )
        for kind in "tcsr"
        for name, suffix in {
            "save_to_preset": "",
            "save": ".keras",
            "save_weights": ".weights.h5",
            "export": "",
        }.items()
    },
    "fit": lambda tasks, path: tasks["c"].fit(["a b", "b"] * 4, ["x", "y"] * 4, run=path, **FIT),
    "Network.save_to_preset": lambda tasks, path: tasks["t"].backbone.save_to_preset(path),
    "Network.save": lambda tasks, path: tasks["t"].backbone.save(f"{path}.keras"),
    "Network.save_weights": lambda tasks, path: tasks["t"].backbone.save_weights(f"{path}.h5"),
    "Network.save_lora_weights": lora,
    "preprocessor": lambda tasks, path: tasks["t"].preprocessor.save_to_preset(path),
    "Tokenizer.save": lambda tasks, path: WordTokenizer(["a"]).save(path),
    "Pretrained.save": lambda tasks, path: Pretrained(None, None, {}).save(path),
    "Shortlist.save": lambda tasks, path: Shortlist.learn(tasks["t"], ["1"], ["1"]).save(path),
    "export_litert": lambda tasks, path: export_litert(tasks["t"], path),
    "export_keras": lambda tasks, path: tasks["t"].export(path, format="keras"),
    "Translator.draw": lambda tasks, path: tasks["t"].draw("4 juin 1999", f"{path}.png"),
    "Translation.plot": lambda tasks, path: (
        tasks["t"].translate("4 juin 1999", max_length=3).plot(f"{path}.png")
    ),
    "TextClassifier.draw": lambda tasks, path: tasks["c"].draw("a b", f"{path}.html"),
    "Prediction.plot": lambda tasks, path: tasks["c"].classify("a b").plot(f"{path}.png"),
    "Ranking.plot": lambda tasks, path: tasks["r"].rank("a ?", ["a", "b"]).plot(f"{path}.png"),
    "AnswerRanker.draw": lambda tasks, path: tasks["r"].draw("a ?", ["a"], f"{path}.svg"),
    "Summarizer.draw": lambda tasks, path: tasks["s"].draw("a b .", f"{path}.png"),
    "Explanation.save": lambda tasks, path: tasks["c"].explain("a b").save(f"{path}.html"),
    "Explanation.plot": lambda tasks, path: tasks["c"].explain("a b").plot(f"{path}.png"),
    "trec_run": lambda tasks, path: tasks["r"].evaluate_text(QUESTIONS, trec_run=path),
    "draw_confusion": lambda tasks, path: draw_confusion(
        {"confusion": [[1, 0], [0, 1]], "label_names": ["x", "y"]}, f"{path}.png"
    ),
    "plot_alignment": lambda tasks, path: visualization.plot_alignment(
        WEIGHTS, ["a", "b"], ["c"], f"{path}.png"
    ),
    "plot_heads": lambda tasks, path: visualization.plot_heads(
        WEIGHTS[None], ["a", "b"], ["c"], f"{path}.png"
    ),
    "plot_shaded": lambda tasks, path: visualization.plot_shaded(SHADED, f"{path}.png"),
    "train_task": lambda tasks, path: train_task(Translator, config(), path),
    "resume_task": lambda tasks, path: resume_task(Translator, config(), path),
    "average_tasks": lambda tasks, path: average_tasks(Translator, [Path("no")], path),
    "export_web": lambda tasks, path: export_web(tasks["t"], path),
    "run_demo": lambda tasks, path: run_demo(path),
    "replacing": lambda tasks, path: files.replacing(path).__enter__(),
    "new_folder": lambda tasks, path: files.new_folder(path).__enter__(),
    "output_file": lambda tasks, path: files.output_file(path).__enter__(),
    "write_text": lambda tasks, path: files.write_text(path, ""),
    "check_new_file": lambda tasks, path: files.check_new_file(path),
    "refuse_existing_output": lambda tasks, path: files.refuse_existing_output(path),
    "is_free": lambda tasks, path: is_free(path),
    "refuse_existing": lambda tasks, path: refuse_existing(path),
}
PRESETS = ("save_to_preset", "fit", "preprocessor", "train_task", "resume_task", "average_tasks")
PRESETS += ("is_free", "refuse_existing")


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_takes_an_address_for_a_folder(tasks, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for address in ADDRESSES:
        # As a string and, where it is not made longer, as a `Path`, which writes `gs:/`.
        for given in (address, Path(address)):
            with pytest.raises(ValueError, match=r"^Expected an output on this machine") as caught:
                WRITERS[name](tasks, given)
            assert address.partition("/")[0] in str(caught.value).partition("Received: ")[2]
            is_preset = name.rpartition(".")[2] in PRESETS
            assert ("keras_hub.upload_preset(" in str(caught.value)) == is_preset
    assert not list(tmp_path.iterdir())


# Arguments that name what is written, and functions that have one and write nothing themselves: a
# new writer has to be among WRITERS or here.
NAMES = {"output", "filepath", "preset_dir", "trec_run", "run"}
WRITE_NOTHING = {
    *("load_weights", "load_lora_weights", "load", "config_of", "preprocessor_of"),
    *("fit_new_run", "fit_in_run", "train", "run_of_port"),  # `fit` hands the run on
    # Their path is one that a function above has checked.
    *("check_picture", "check_drawn", "check_page", "show_or_draw", "write_lines"),
    *("prepare", "read_config", "writing", "check_run", "write_card_of_run"),
    "export_ctranslate2",  # by `new_folder`, once that package is there and knows the network
    # These name a ranking or a step so.
    *("ranking_score", "pair_accuracy", "trec_run_lines", "unfold"),
}


def test_every_writer_is_tried():
    found = set()
    # Where the package is installed to be edited, its applications lie elsewhere.
    modules = [
        *pkgutil.walk_packages(keras_attention.__path__, "keras_attention."),
        *pkgutil.walk_packages(applications.__path__, "keras_attention.applications."),
    ]
    for each in modules:
        if "_command" in each.name or each.name.endswith(("__main__", "serve")):
            continue
        module = importlib.import_module(each.name)
        for owner in [module, *vars(module).values()]:
            is_own = getattr(owner, "__module__", each.name) == each.name
            if not (is_own and (inspect.isclass(owner) or owner is module)):
                continue
            for name, member in vars(owner).items():
                function = getattr(member, "__func__", member)
                if not inspect.isfunction(function) or name.startswith("_"):
                    continue
                if function.__module__ == each.name and NAMES & set(
                    inspect.signature(function).parameters
                ):
                    found.add(name)
    tried = {name.rpartition(".")[2] for name in WRITERS}
    tried |= {"evaluate_text"}  # by trec_run
    assert found - tried - WRITE_NOTHING == set()
    assert len(found) > 10


@pytest.mark.parametrize("address", ADDRESSES[:3])
@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "translation", "--data.dataset=dates", "--output"],
        ["train", "translation", "--data.dataset=dates", "--resume", "--output"],
        ["train", "answer-selection", "--data.dataset=facts", "--output"],
        ["predict", "dates", "--output"],
        ["score", "dates", "--input", "no.tsv", "--output"],
        ["shortlist", "dates", "--input", "no.tsv", "--output"],
        ["visualize", "dates", "--input", "1", "--output"],
        ["export", "dates", "--output"],
        ["export", "dates", "--format", "litert", "--output"],
        ["average", "dates", "dates", "--output"],
        ["demo", "--output"],
        ["evaluate", "no-run", "--picture"],
        ["evaluate", "no-run", "--trec-run"],
    ],
    ids=lambda each: "-".join(each) if isinstance(each, list) else each[:2],
)
def test_no_verb_takes_an_address_for_an_output(tmp_path, monkeypatch, capsys, arguments, address):
    monkeypatch.chdir(tmp_path)
    done = call_command(capsys, *arguments, address)
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert done.err.startswith("keras-attention: Expected an output on this machine")
    assert done.err.endswith(f"Received: {address}\n")
    assert ("upload_preset" in done.err) == (arguments[0] in ("train", "average"))
    assert not list(tmp_path.iterdir())


READERS = {
    "predict": lambda path: list(files.lines_of(path)),
    "config": lambda path: read_yaml(path),
    "run": lambda path: RunFolder(path),
    "tokenizer": lambda path: load_tokenizer(path),
    "alignments": lambda path: metrics.read_alignments(path),
    "trec": lambda path: read_trec_run(path),
    "folder": lambda path: load_corpus(DataConfig(dataset="wikiqa", folder=path), "dev"),
    "weights": lambda path: Translator.from_preset("dates").load_weights(path),
}


@pytest.mark.parametrize("name", READERS)
def test_an_address_to_read_from_is_refused(name):
    with pytest.raises(ValueError, match=r"Expected a path on this machine.*Received: gs://b/x$"):
        READERS[name]("gs://b/x")


def test_an_address_of_no_shelf_is_no_preset(capsys):
    with pytest.raises(ValueError, match=r"no preset gs://b/x\. Expected: a folder, hf://USER"):
        preset_folder("gs://b/x")
    with pytest.raises(ValueError, match=r"no preset daets\. Did you mean 'dates'\?"):
        preset_folder("daets")
    done = call_command(capsys, "predict", "s3://b/x", "--beam", "2")
    assert done.status == 2 and "no preset s3://b/x" in done.err


@pytest.fixture
def home(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "cwd").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.chdir(tmp_path / "cwd")
    yield home
    assert not list((tmp_path / "cwd").iterdir())  # no folder called ~


def test_the_home_folder_is_known_in_python(tasks, home):
    tasks["t"].save_to_preset("~/preset")
    tasks["t"].save("~/task.keras")
    tasks["t"].backbone.save_weights("~/w.weights.h5")
    tasks["t"].backbone.load_weights("~/w.weights.h5")
    tasks["t"].preprocessor.save_to_preset("~/preprocessor")
    WordTokenizer(["a"]).save("~/words")
    visualization.plot_alignment(WEIGHTS, ["a", "b"], ["c"], "~/picture.png")
    tasks["c"].fit(["a b", "b"] * 4, ["x", "y"] * 4, run="~/run", **FIT)
    names = {"preset", "task.keras", "w.weights.h5", "preprocessor", "words", "picture.png", "run"}
    assert {each.name for each in home.iterdir()} == names
    assert Translator.from_preset("~/preset").preset_folder == home / "preset"
    assert TextClassifier.from_preset("~/run").classify("a b").label in ("x", "y")
    assert load_tokenizer("~/words").vocabulary[4:] == ["a"]
    assert keras.saving.load_model(home / "task.keras").translate("1", max_length=2)


def test_the_home_folder_is_known_to_the_command(home, capsys):
    (home / "in.txt").write_text("4 juin 1999\n")
    (home / "my.yaml").write_text("data:\n  train: ~/train.tsv\n  dev: ~/train.tsv\n")
    (home / "train.tsv").write_text("who ?\tit is\t1\nwho ?\tthe sky\t0\n" * 3)
    done = call_command(capsys, "predict", "dates", "--input=~/in.txt", "--output=~/out.txt")
    assert done.status == 0 and (home / "out.txt").read_text() == "1999-06-04\n"
    sizes = ["--model.units=4", "--model.embedding_size=4", "--training.epochs=1"]
    sizes += ["--training.tensorboard=false", "--training.steps_per_epoch=1"]
    train = ["train", "answer-selection", "--config=~/my.yaml", *sizes, "--output=~/run"]
    done = call_command(capsys, *train)
    assert done.status == 0, done.err
    own = read_yaml(home / "run" / "config.yaml")
    assert own["data"]["train"] == str(home / "train.tsv")
    # The parser looks into the folder, too, to learn the task.
    done = call_command(capsys, "predict", "~/run", "--beam", "3")
    assert "unknown argument --beam" in done.err
    done = call_command(capsys, "average", "~/run", "~/run", "--output=~/mean")
    assert done.status == 0 and (home / "mean" / "task.json").is_file()


def test_what_is_an_address():
    assert all(map(is_address, [*ADDRESSES, *map(Path, ADDRESSES)]))
    assert not any(map(is_address, ["a", "/gs://b", "./gs:/b", "C:/x", "a:b", "", "~/x"]))
    assert output_path("a/b") == input_path("a/b") == Path("a/b")
