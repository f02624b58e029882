"""Puts the pictures of the pages into the site, drawn with the package's own layers.

Some train for a minute. They are drawn anew only where the code that draws them, or the library,
has changed: the last ones are kept in `.cache/pictures`.
"""

import hashlib
import os
import shutil
import sys
from functools import cache
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "pictures"
sys.path.insert(0, str(ROOT))


@cache
def draw() -> dict[str, bytes]:
    """Return the PNG of every picture by its name."""
    folder = KEPT / digest()
    if not folder.is_dir():
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from docs.pictures import draw_all

        shutil.rmtree(KEPT, ignore_errors=True)
        new = KEPT / "new"
        new.mkdir(parents=True)
        for name, png in draw_all().items():
            (new / f"{name}.png").write_bytes(png)
        new.rename(folder)
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.png"))}


def digest() -> str:
    """Return a name for the code that the pictures depend on."""
    found = hashlib.sha256()
    for part in ("docs/pictures", "keras_attention"):
        for path in sorted((ROOT / part).rglob("*.py")):
            found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def on_files(files: Files, config) -> Files:
    """Add the pictures to the site."""
    for name, png in draw().items():
        files.append(File.generated(config, f"pictures/{name}.png", content=png))
    return files
