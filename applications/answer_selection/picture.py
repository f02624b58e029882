"""The words of answers, shaded by the attention that a question gives them."""

from collections.abc import Sequence
from pathlib import Path

from keras_attention.applications.answer_selection.ranker import Answer, Ranker
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file, write_text
from keras_attention.applications.common.pictures import check_picture
from keras_attention.visualization import ShadedTokens, plot_shaded, shaded_html

HTML = (".html", ".htm")


def check_shaded(output: Path | str) -> None:
    """Refuse a file that shaded words cannot be written to.

    Raises:
        UserError: if it exists, has no folder, or a suffix that is neither HTML's nor a format of
            pictures.
    """
    if Path(output).suffix.lower() in HTML:
        check_new_file(output)
    else:
        check_picture(output, more=HTML)


def shade(
    ranker: Ranker, question: str, answers: Sequence[str], output: Path | str | None = None
) -> list[ShadedTokens]:
    """Return the answers, best first, with the attention on each word, and draw them.

    The label of each is its score.

    Args:
        ranker: a run in use.
        question: the question.
        answers: one or more answers.
        output: a new file, a page of HTML or a picture; None draws nothing.

    Raises:
        UserError: if `check_shaded` refuses the file, a text has no words, or the model's
            attention gives no weights of words.
    """
    if output is not None:
        check_shaded(output)
    if not ranker.run.model.has_weights:
        raise UserError(
            f"encoder {ranker.run.config.model.encoder} gives no weights of words to draw: train "
            "outer, inner-word or inner-context."
        )
    rows = [_row(answer) for answer in ranker.rank(question, answers)]
    if output is None:
        return rows
    if Path(output).suffix.lower() in HTML:
        write_text(Path(output), shaded_html(rows, title=question))
    else:
        plot_shaded(rows, output, title=question)
    return rows


def _row(answer: Answer) -> ShadedTokens:
    return ShadedTokens(answer.tokens, answer.weights, label=f"{answer.score:.3f}")
