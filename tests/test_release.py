"""The files of a release agree; what `make dist` builds installs and works."""

import re
import venv
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest
import tensorflow as tf
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.speed.soak import growth, operations
from keras_attention import __version__
from tests.versions import build, command, smoke

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = [Requirement(each) for each in requires("keras-attention-layers")]
# conda's names of the same packages.
CONDA = {"matplotlib": "matplotlib-base"}


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def needed() -> dict[str, str]:
    """What is installed without any extra, with its bounds."""
    found = [each for each in REQUIREMENTS if each.marker is None]
    return {canonicalize_name(each.name): str(each.specifier) for each in found}


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load(text("CITATION.cff"))["version"] == __version__
    assert f'{{% set version = "{__version__}" %}}' in text("conda/meta.yaml")
    assert re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1] == __version__


def test_each_requirement_has_a_lower_bound():
    assert [name for name, bounds in needed().items() if ">=" not in bounds] == []


def test_the_conda_recipe_asks_for_the_same():
    recipe = re.sub(r"{%.*?%}", "", text("conda/meta.yaml")).replace("{{ version }}", __version__)
    listed = dict(line.split(" ", 1) for line in yaml.safe_load(recipe)["requirements"]["run"])
    assert listed.pop("python").startswith(">=3.10")
    listed = {canonicalize_name(name): bounds for name, bounds in listed.items()}
    assert listed == {CONDA.get(name, name): bounds for name, bounds in needed().items()}


def test_the_lock_fits_to_every_extra():
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    lock = {canonicalize_name(name): each for name, each in (line.split("==") for line in lines)}
    for each in REQUIREMENTS:
        assert lock[canonicalize_name(each.name)] in each.specifier, each


def test_public_ci_calls_the_targets_that_are_there():
    workflow = yaml.safe_load(text(".github/workflows/ci.yml"))
    jobs = workflow["jobs"]
    targets = jobs["target"]["strategy"]["matrix"]["target"]
    calls = [row["call"] for row in jobs["weekly"]["strategy"]["matrix"]["include"]]
    existing = re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE)
    assert {*targets, *(call.split()[1] for call in calls)} <= {*existing}
    local = re.search(r"for target in (.*); do", text(".ci/run"))[1].split()
    assert {*local} <= {*targets}


@pytest.mark.slow
def test_wheel_and_sdist_install_and_work(tmp_path):
    sdist, wheel = build(tmp_path / "dist")
    packed = set(zipfile.ZipFile(wheel).namelist())
    for folder in (REPOSITORY / "keras_attention", REPOSITORY / "applications"):
        place = Path("keras_attention", "applications" if folder.name == "applications" else "")
        files = [*folder.rglob("*.py"), *folder.rglob("*.html"), *(folder / "presets").glob("*/*")]
        missing = [
            each for each in files if (place / each.relative_to(folder)).as_posix() not in packed
        ]
        assert not missing

    python = tmp_path / "environment" / "bin" / "python"
    venv.create(python.parent.parent, with_pip=True)
    command(python, "-m", "pip", "install", wheel)
    command(python, "-m", "pip", "check")
    smoke(python, tmp_path)
    command(python, "-m", "pip", "install", "--force-reinstall", "--no-deps", sdist)
    smoke(python, tmp_path)


def test_a_soak_tells_growth_from_warming_up():
    warming = [(minute, minute, 900.0 + 100 * min(minute, 7)) for minute in range(1, 19)]
    assert growth(warming) == pytest.approx(0, abs=1e-6)
    assert growth([(a, b, c + 0.5 * b) for a, b, c in warming]) == pytest.approx(0.5)


def test_a_soak_counts_the_operations_of_graphs_that_are_held():
    before = operations()
    graph = tf.Graph()
    with graph.as_default():
        tf.constant(1)
    assert operations() == before + 1
