"""Sections declare their keys once: what is checked, filled and described comes from there."""

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import pytest

from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.config import ModelConfig as Classifier
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.help import commented_yaml, config_help
from keras_attention.applications.schema.keys import GIVEN, Config, Defaults, Section, key, keys_of
from keras_attention.applications.schema.reading import by_key, load_config
from keras_attention.applications.schema.search import SearchConfig
from keras_attention.applications.translation.config import ModelConfig, TranslationConfig
from keras_attention.decoding import SearchOptions


@dataclass(frozen=True)
class Shape(Section):
    """A shape, for this test."""

    section = "shape"

    kind: Literal["square", "circle", "star"] = key("square", "what it looks like", common=True)
    points: int | None = key(
        None,
        "how many points it has",
        at_least=3,
        applies_to={"kind": ("star",)},
        null={"star": 5},
        elsewhere=4,
    )
    radius: float = key(
        1.5, "how far its edge is", above=0, applies_to={"kind": ("circle", "star")}
    )
    label: str | None = key(None, "what is written on it")
    font: str = key("serif", "how that is written", applies_to={"label": GIVEN})


@dataclass(frozen=True)
class Star(Shape):
    """A shape with another default."""

    kind: Literal["square", "circle", "star"] = "star"


@dataclass(frozen=True)
class Drawing(Config):
    """A drawing."""

    shape: Shape = dataclasses.field(default_factory=Shape)

    defaults = (
        Defaults({"shape.kind": ("circle", "star")}, {"shape.label": "round", "shape.radius": 2.0}),
        Defaults({"shape.kind": "star", "shape.label": "round"}, {"shape.radius": 3.0}),
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"kind": "cirle"},
            "shape.kind must be one of square, circle, star. Did you mean 'circle'",
        ),
        (
            {"points": 6},
            r"shape.points goes with shape.kind star only: leave it out. Received: 6\.",
        ),
        ({"kind": "star", "points": 2}, "shape.points must be at least 3. Received: 2"),
        ({"radius": 2.0}, "shape.radius goes with shape.kind circle or star only: leave it out"),
        ({"kind": "circle", "radius": 0}, "shape.radius must be above 0. Received: 0"),
        ({"font": "sans"}, "shape.font goes with shape.label only: leave it out"),
    ],
)
def test_a_section_checks_itself(settings, message):
    with pytest.raises(UserError, match=message):
        Shape(**settings)


def test_null_stands_for_what_the_first_condition_says():
    assert (Shape().points, Shape(kind="star").points, Shape(kind="star", points=7).points) == (
        *(None, 5, 7),
    )
    assert Star().points == 5
    assert Shape(points=4).points == 4  # which is so
    assert keys_of(Star)["kind"].meaning == "what it looks like"
    # What null was filled with is no setting of one's own that another kind would refuse.
    assert dataclasses.replace(Shape(kind="star"), radius=1.5).own("kind") == {
        "points": 5,
        "radius": 1.5,
    }


def test_defaults_follow_from_conditions_and_from_one_another():
    assert by_key(load_config(Drawing))["shape.radius"] == 1.5
    circle = load_config(Drawing, [], ["--shape.kind=circle"]).shape
    assert (circle.label, circle.radius) == ("round", 2.0)
    assert load_config(Drawing, [], ["--shape.kind=star"]).shape.radius == 3.0
    own = ["--shape.kind=star", "--shape.label=mine"]
    assert load_config(Drawing, [], own).shape.radius == 2.0
    assert load_config(Drawing, [], [*own, "--shape.radius=4"]).shape.radius == 4.0
    assert load_config(Drawing, [], own[:1], ["--shape.radius=9"]).shape.radius == 9.0


def test_help_says_type_range_default_null_and_condition():
    text = " ".join(config_help(Drawing).split())
    assert "shape: A shape, for this test" in text
    assert (
        "--shape.points how many points it has (a whole number from 3 or null; default null; "
        "null is 5 in star; 4 elsewhere; goes with kind star only)"
    ) in text
    assert "how far its edge is (a number above 0; default 1.5; goes with kind circle or" in text
    assert (
        "with --shape.kind circle or star, these are the defaults instead: --shape.label=rou"
        in (text)
    )
    usual = config_help(Drawing, every_key=False)
    assert "--shape.kind\n" in usual and "--shape.points" not in usual and "instead" not in usual


def test_the_comments_of_a_configuration_file_can_be_read_back(tmp_path):
    path = tmp_path / "drawing.yaml"
    path.write_text(commented_yaml(Drawing), encoding="utf-8")
    assert load_config(Drawing, [path]) == Drawing()
    assert "# what is written on it (a text or null)" in path.read_text(encoding="utf-8")


def test_the_keys_of_a_search_are_those_of_the_library():
    ours, theirs = (
        {field.name: (field.type, field.default) for field in dataclasses.fields(each)}
        for each in (SearchConfig, SearchOptions)
    )
    assert ours == theirs
    assert SearchConfig(beam_size=3, n_best=2).search() == SearchOptions(beam_size=3, n_best=2)
    with pytest.raises(ValueError, match="`n_best` should be at most"):
        SearchConfig(beam_size=2, n_best=3)


@pytest.mark.parametrize("name", ["translation", "summarization", "classification"])
def test_help_of_a_task_lists_few_keys_and_can_list_all(name):
    config = {"translation": TranslationConfig, "classification": ClassificationConfig}.get(name)
    if config is None:
        from keras_attention.applications.summarization.config import SummarizationConfig as config
    usual = config_help(config, every_key=False).count("\n  --")
    assert 10 <= usual <= 28 < config_help(config).count("\n  --")


def test_settings_are_read_without_keras():
    code = (
        "import sys\n"
        "from keras_attention_command.light import light\n"
        "from keras_attention_command import TASKS\n"
        "for task in TASKS.values():\n"
        "    assert light('schema.help').config_help(task.config)\n"
        "wrong = {'keras', 'tensorflow', 'numpy', 'yaml', 'keras_attention'} & set(sys.modules)\n"
        "assert not wrong, wrong\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_an_architecture_leaves_open_is_filled_in():
    assert Classifier(architecture="self-attention").heads == 4
    assert Classifier().heads is None and Classifier().encoder == "gru"
    assert ModelConfig(architecture="transformer").own()["norm"] == "post"
