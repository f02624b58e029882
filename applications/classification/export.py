"""Writing a run for use elsewhere, as a SavedModel of strings."""

from pathlib import Path

from keras_attention.applications.classification.run import ClassificationRun, load_run
from keras_attention.applications.common.files import new_folder


def export_saved_model(run: ClassificationRun | Path | str, output: Path | str) -> None:
    """Write a SavedModel that classifies strings, the tokenizer inside its graph.

    It needs `tensorflow` and, for its operations, `tensorflow_text`; not Keras, not this package:

    ```python
    import tensorflow as tf
    import tensorflow_text

    classify = tf.saved_model.load("exported").signatures["serving_default"]
    print(classify(text=tf.constant(["It was not bad at all."]))["labels"])
    ```

    The signature `serving_default` takes `text` `(B,)` strings, and of a run of pairs `second`. It
    gives what `TextClassifier.predict` gives:

    - `labels` `(B, L)`, the names of all labels, the likeliest first, and `probabilities` `(B, L)`
      in the same order; or `numbers` `(B,)`;
    - `truncated` `(B,)`, whether a text was longer than `data.max_length` and was cut.

    Args:
        run: a run folder, or a run that is loaded.
        output: the folder to write; it must not exist.

    Raises:
        UserError: if `output` exists, or there is no such run.
    """
    import tensorflow as tf

    from keras_attention.applications.classification.serving import ClassificationService

    run = run if isinstance(run, ClassificationRun) else load_run(run)
    with new_folder(output) as folder:
        service = ClassificationService(run)
        tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})
