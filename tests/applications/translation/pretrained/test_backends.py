"""JAX and PyTorch read the same files, and write the same words."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_attention.applications.translation import Translator
from tests.applications.translation.pretrained import hugging_face_files, marian_files

pytestmark = pytest.mark.slow
TEXTS = ["Ein Mann steht auf", "a", "Zwei Kinder putzen 3 Äpfel"]
CODE = """
import json, sys
from keras_attention.applications.translation import Translator
translator = Translator.from_preset(sys.argv[1])
found = translator.translate(json.loads(sys.argv[2]), beam_size=2, max_length=9)
print(json.dumps([[each.ids, each.score] for each in found]))
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("form", ["marian", "hugging_face"])
def test_a_backend_reads_and_translates_the_same(tmp_path, backend, form):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"needs {backend}")
    folder = tmp_path / "model"
    if form == "marian":
        marian_files.write_folder(folder, "int8", seed=4)
    else:
        hugging_face_files.write_folder(folder)
    wanted = Translator.from_preset(folder).translate(TEXTS, beam_size=2, max_length=9)
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(folder), json.dumps(TEXTS)],
        env=os.environ | {"KERAS_BACKEND": backend},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert [ids for ids, _ in found] == [list(each.ids) for each in wanted]
    assert [score for _, score in found] == pytest.approx([each.score for each in wanted], abs=1e-4)
