"""The figures of a run, a JSON line an epoch."""

import json
from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import write_text


class MetricsLog:
    """`metrics.jsonl`: read, cut back to a checkpoint, and appended to, always whole on disk.

    Args:
        path: the file; it need not exist.
        step: keep only the lines of updates up to this one, which a resumed run continues from.
    """

    def __init__(self, path: Path, step: int = 0):
        self.path = path
        self.lines = [line for line in read_metrics(path) if line["step"] <= step]
        self._write()

    def append(self, line: dict) -> None:
        """Add one epoch's figures; `line["step"]` is the number of updates made."""
        self.lines.append(line)
        self._write()

    def _write(self) -> None:
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))


def read_metrics(path: Path) -> list[dict]:
    """Return the lines of a metrics file, `[]` where there is none.

    Raises:
        UserError: naming the file, if it is damaged.
    """
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError:
        raise UserError(
            f"{path} is damaged: expected a JSON object on each line. Restore or delete it."
        ) from None
