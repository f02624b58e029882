"""Writing a run for use elsewhere, as a SavedModel of strings."""

from pathlib import Path

from keras_attention.applications.common.files import new_folder
from keras_attention.applications.summarization.run import SummarizationRun, load_run


def export_saved_model(run: SummarizationRun | Path | str, output: Path | str) -> None:
    """Write a SavedModel that summarises strings, tokeniser and search inside its graph.

    It needs `tensorflow` and, for its operations, `tensorflow_text`; not Keras, not this package:

    ```python
    import tensorflow as tf
    import tensorflow_text

    summarize = tf.saved_model.load("exported").signatures["serving_default"]
    print(summarize(text=tf.constant(["The first sentence.\\nThe second one."]))["summary"])
    ```

    The signature takes `text`, `(B,)` strings, each a document with a sentence on each line (what
    finds the sentences of a running text is no operation of a graph; a flat model does not ask
    where they end), and gives `summary` `(B,)` and `scores` `(B,)`, as `Summarizer.summarize` gives
    them with the run's own `decoding`.

    Args:
        run: a run folder, or a run that is loaded.
        output: the folder to write; it must not exist.

    Raises:
        UserError: if `output` exists, or there is no such run.
    """
    import tensorflow as tf

    from keras_attention.applications.summarization.serving import SummarizationService

    run = run if isinstance(run, SummarizationRun) else load_run(run)
    with new_folder(output) as folder:
        service = SummarizationService(run)
        tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})
