"""The alignment of a sentence and its translation, as a picture."""

from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file
from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.translator import Translator
from keras_attention.visualization import plot_alignment


def check_picture(output: Path | str) -> None:
    """Refuse a file that no picture can be written to.

    Raises:
        UserError: if it exists, has no folder, or a suffix that is no format of pictures.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    check_new_file(output)
    suffixes = sorted(f".{name}" for name in FigureCanvasBase.get_supported_filetypes())
    if Path(output).suffix.lower() not in suffixes:
        raise UserError(f"the suffix of {output} must be one of {', '.join(suffixes)}.")


def draw(
    translator: Translator, sentence: str, output: Path | str, target: str | None = None
) -> Translation:
    """Draw what the model attends to as it translates `sentence`, or is made to write `target`.

    Returns:
        The translation that the picture shows.

    Raises:
        UserError: if `check_picture` refuses the file, the sentence is empty or the model has no
            attention.
    """
    check_picture(output)
    run = translator.run
    if not run.model.has_attention:
        raise UserError(
            f"architecture {run.config.model.architecture} has no attention to draw: train "
            "rnnsearch, luong or transformer."
        )
    if not sentence.strip() or (target is not None and not target.strip()):
        raise UserError("there is nothing to draw: the text is empty.")
    if target is None:
        result = translator.translate([sentence])[0]
    else:
        result = translator.align([sentence], [target])[0]
    if not result.tokens:
        raise UserError("there is nothing to draw: the translation is empty.")
    plot_alignment(result.alignment, result.source_tokens, result.tokens, output)
    return result
