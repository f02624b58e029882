"""The alignment of a sentence and its translation, as a picture."""

from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import refuse_existing_output
from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.translator import Translator
from keras_attention.visualization import plot_alignment


def draw(
    translator: Translator, sentence: str, output: Path | str, target: str | None = None
) -> Translation:
    """Draw what the model attends to as it translates `sentence`, or is made to write `target`.

    Returns:
        The translation that the picture shows.

    Raises:
        UserError: if the file exists, the sentence is empty or the model has no attention.
    """
    refuse_existing_output(output)
    run = translator.run
    if not run.model.has_attention:
        raise UserError(
            f"architecture {run.config.model.architecture} has no attention to draw: train "
            "rnnsearch or luong."
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
