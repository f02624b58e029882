"""Writing a run for use elsewhere: as a SavedModel of strings."""

from pathlib import Path

from keras_attention.applications.answer_selection.run import AnswerSelectionRun, load_run
from keras_attention.applications.common.files import new_folder


def export_saved_model(run: AnswerSelectionRun | Path | str, output: Path | str) -> None:
    """Write a SavedModel that scores strings, the vocabulary inside its graph.

    It needs `tensorflow` alone; not Keras, not this package:

    ```python
    import tensorflow as tf

    score = tf.saved_model.load("exported").signatures["serving_default"]
    print(score(
        question=tf.constant(["when was it opened ?"]),
        candidates=tf.constant([["It opened in 1931 .", "It is in Oslo ."]]),
    )["scores"])
    ```

    The signature `serving_default` takes `question`, `(B,)` strings, and `candidates`, `(B, N)`
    strings, those of a question with fewer padded with `""`. It gives `scores`, `(B, N)`: a
    candidate without words gets minus infinity.

    Args:
        run: a run folder, or a run that is loaded.
        output: the folder to write; it must not exist.

    Raises:
        UserError: if `output` exists, or there is no such run.
    """
    import tensorflow as tf

    from keras_attention.applications.answer_selection.serving import AnswerSelectionService

    run = run if isinstance(run, AnswerSelectionRun) else load_run(run)
    with new_folder(output) as folder:
        service = AnswerSelectionService(run)
        tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})
