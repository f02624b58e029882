"""The pictures of the pages as files: drawn by `make pictures`, kept beside the code that draws."""

import hashlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
DRAWN = HERE / "drawn.txt"
"""Says which code drew the pictures."""


class PicturesError(ValueError):
    """Pictures that do not belong to the code that draws them, and the way out."""


def digest() -> str:
    """Which code the pictures are drawn by."""
    code = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        code.update(path.name.encode() + b"\0" + path.read_bytes())
    return code.hexdigest()[:16]


def keep(pictures: dict[str, bytes]) -> None:
    """Write the PNG of every picture by its name, and what drew them; remove others."""
    for old in HERE.glob("*.png"):
        if old.stem not in pictures:
            old.unlink()
    for name, png in pictures.items():
        (HERE / f"{name}.png").write_bytes(png)
    DRAWN.write_text(f"{digest()}\n", encoding="utf-8")


def check_drawn() -> None:
    """Raise an error where the code has changed since it drew the pictures."""
    drawn = DRAWN.read_text(encoding="utf-8").strip() if DRAWN.exists() else "none"
    if drawn != digest():
        raise PicturesError(
            "The pictures of docs/pictures were drawn by other code: run `make pictures`. "
            f"Received: pictures of code {drawn}, expected {digest()}"
        )
