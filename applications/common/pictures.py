"""Files that pictures are written to."""

from collections.abc import Sequence
from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file


def check_picture(output: Path | str, more: Sequence[str] = ()) -> None:
    """Refuse a file that no picture can be written to.

    Args:
        output: the file.
        more: suffixes that the caller writes itself, for the message.

    Raises:
        UserError: if it exists, has no folder, or a suffix that is no format of pictures.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    check_new_file(output)
    suffixes = sorted(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())
    if Path(output).suffix.lower() not in suffixes:
        accepted = ", ".join([*more, *suffixes])
        raise UserError(f"the suffix of {output} must be one of {accepted}.")
