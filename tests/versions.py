"""Try the package with the oldest and the newest versions that setup.py admits: make test-versions.

The oldest is the lower bound of every requirement at once (uv's `lowest-direct`). Each combination
with a Python gets its own environment, which is removed afterwards: the wheel, not the working
tree, is what the tests import.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
TESTS = [
    f"tests/{area}"
    for area in ("ops", "layers", "contracts", "decoding", "text", "metrics", "applications")
]
SHOWN = ["keras", "tensorflow", "tensorflow-text", "keras-nlp", "numpy"]

# What a user does first. It runs outside of the repository, so that only what is installed counts.
SMOKE = """
import sys
from importlib.metadata import version
from pathlib import Path

import keras_attention
from keras_attention.applications.translation import Translator

folder = Path(keras_attention.__file__).parent
assert folder.is_relative_to(sys.prefix), folder
assert keras_attention.__version__ == version("keras-attention-layers")
assert (folder / "py.typed").is_file()
assert Translator.from_preset("dates").translate("4 juin 1999").text == "1999-06-04"
"""


def command(*words, **options) -> str:
    """Run a command; what it wrote. A failure raises `CalledProcessError` with the output."""
    done = subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions: the sdist from the working tree, the wheel from the sdist."""
    command(sys.executable, "-m", "build", "--outdir", folder, REPOSITORY)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def smoke(python: Path, folder: Path) -> None:
    """Check that the package that is installed beside `python` works."""
    program = python.with_name("keras-attention")
    assert command(program, "--version", cwd=folder).strip()
    written = command(program, "predict", "dates", cwd=folder, input="3 March 2024\n")
    assert "2024-03-03" in written, written
    command(python, "-c", SMOKE, cwd=folder)


def try_one(version: str, which: str, built: tuple[Path, Path], folder: Path, tests: list[str]):
    """The versions that were installed, and how the tests ended."""
    sdist, wheel = built
    python = folder / "environment" / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    install = [*uv, "pip", "install", "--python", python]
    resolution = ["--resolution", RESOLUTIONS[which]]
    listed = {}
    try:
        command(*uv, "venv", "--python", version, python.parent.parent)
        command(*install, *resolution, "--extra", "vectors", "-r", REPOSITORY / "setup.py")
        command(*install, wheel, "pytest", "hypothesis", "shtab")
        frozen = command(*uv, "pip", "freeze", "--python", python).splitlines()
        listed.update(line.split("==") for line in frozen if "==" in line)
        smoke(python, folder)

        # The tests come from the sdist, without the code: beside it, they would import that.
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        source = folder / sdist.name.removesuffix(".tar.gz")
        shutil.rmtree(source / "keras_attention")
        shutil.rmtree(source / "applications")
        # Old versions warn of deprecations, and new ones of others: that is no failure here.
        options = ["-q", "-W", "default", "--tb=short", "--continue-on-collection-errors"]
        output = command(python, "-m", "pytest", *options, *tests, cwd=source)
        return listed, counts_in(output)
    except subprocess.CalledProcessError as error:
        print(error.output, file=sys.stderr)
        return listed, f"FAILED: {counts_in(error.output)}"


def counts_in(output: str) -> str:
    """Return the line in which pytest counts its tests, or the last one where there is none."""
    lines = output.splitlines()
    counts = [line for line in lines if re.search(r"\d+ (passed|failed|errors?)\b", line)]
    return (counts or lines)[-1].strip("= ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help="test files or folders")
    parser.add_argument("--python", action="append", help=f"one of {PYTHONS}, or a path")
    parser.add_argument("--versions", action="append", choices=RESOLUTIONS)
    options = parser.parse_args()

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        for version in options.python or PYTHONS:
            for which in options.versions or RESOLUTIONS:
                start = time.monotonic()
                with tempfile.TemporaryDirectory() as place:
                    listed, result = try_one(version, which, built, Path(place), options.tests)
                seconds = f"{time.monotonic() - start:.0f} s"
                cells = [version, which, *(listed.get(name, "") for name in SHOWN), result, seconds]
                rows.append("| " + " | ".join(cells) + " |")
                print(rows[-1], flush=True)

    head = ["Python", "versions", *SHOWN, "tests", "time"]
    print("\n| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    print("\n".join(rows))
    return any("FAILED" in row for row in rows)


if __name__ == "__main__":
    sys.exit(main())
