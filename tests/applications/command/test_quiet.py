"""`quiet` holds back what TensorFlow writes as it starts, and nothing else."""

import os
import subprocess
import sys

import pytest

from keras_attention.applications.command import quiet
from keras_attention.applications.command.quiet import held_back_unless_error

PROGRAM = """
from keras_attention_command import quiet

quiet()

import sys
import keras_attention
from keras_attention.applications.translation import Translator

print(Translator.from_preset("dates").translate("4 juin 1999").text)
print("mine", file=sys.stderr)
"""


def test_what_is_written_meanwhile_is_held_back(capfd):
    with held_back_unless_error():
        os.write(2, b"noise of C++\n")
    print("mine", file=sys.stderr)
    assert capfd.readouterr().err == "mine\n"


def test_an_error_shows_what_was_held_back(capfd):
    with pytest.raises(ImportError), held_back_unless_error():
        os.write(2, b"the reason\n")
        raise ImportError
    assert capfd.readouterr().err == "the reason\n"


def test_a_level_that_was_chosen_stays(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    quiet()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    quiet()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"


@pytest.mark.slow
def test_a_fresh_process_writes_nothing_of_its_own():
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and done.stdout == "1999-06-04\n" and done.stderr == "mine\n"
