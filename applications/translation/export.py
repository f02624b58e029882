"""Writing a run for use elsewhere: as a SavedModel of strings, or as a Keras model of ids."""

from pathlib import Path

from keras_attention.applications.common.files import new_folder
from keras_attention.applications.translation.run import SOURCE, TARGET, TranslationRun, load_run
from keras_attention.applications.translation.search import options_of

MODEL_FILE = "model.keras"


def export_saved_model(
    run: TranslationRun | Path | str,
    output: Path | str,
    beam_size: int | None = None,
    n_best: int = 1,
    length_penalty: float | None = None,
) -> None:
    """Write a SavedModel that translates strings, tokenisers and search inside its graph.

    It needs `tensorflow` and, for its operations, `tensorflow_text`; not Keras, not this package:

    ```python
    import tensorflow as tf
    import tensorflow_text

    translate = tf.saved_model.load("exported").signatures["serving_default"]
    print(translate(text=tf.constant(["A man rides a horse."]))["text"])
    ```

    The signature `serving_default` takes `text`, `(B,)` strings, and gives what
    `Translator.translate` gives:

    - `text` `(B,)` strings, `scores` and `log_probabilities` `(B,)`;
    - `tokens` `(B, T)`, the written tokens, and `source_tokens` `(B, S)`, both padded with `""`;
    - `alignments` `(B, T, S)`, a row of attention weights for each token, zeros after the last;
      absent where the model has no attention.

    With `n_best` above 1, all but `source_tokens` have the translations of a line as their second
    axis, best first; where there are fewer, the rest are empty with a score of minus infinity.

    Args:
        run: a run folder, or a run that is loaded.
        output: the folder to write; it must not exist.
        beam_size: hypotheses kept at each step; None for the run's own.
        n_best: translations of each line.
        length_penalty: alpha of GNMT's length penalty; None for the run's own.

    Raises:
        UserError: if `output` exists, or there is no such run.
    """
    import tensorflow as tf

    from keras_attention.applications.translation.serving import TranslationService

    run = run if isinstance(run, TranslationRun) else load_run(run)
    options = options_of(
        run.config.decoding, beam_size=beam_size, n_best=n_best, length_penalty=length_penalty
    )
    with new_folder(output) as folder:
        service = TranslationService(run, options)
        tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})


def export_keras(run: TranslationRun | Path | str, output: Path | str) -> None:
    """Write the model as a `.keras` file, ids in and logits out, with the tokenizers beside it.

    ```python
    import keras
    from keras_attention.applications.translation.model import TranslationModel  # registers classes
    from keras_attention.text import load_tokenizer

    model = keras.models.load_model("exported/model.keras")
    source = load_tokenizer("exported/tokenizers", "source")
    ```

    Args:
        run: a run folder, or a run that is loaded.
        output: the folder to write; it must not exist.

    Raises:
        UserError: if `output` exists, or there is no such run.
    """
    run = run if isinstance(run, TranslationRun) else load_run(run, precision="float32")
    with new_folder(output) as folder:
        folder.mkdir()
        run.model.save(folder / MODEL_FILE)
        run.source_tokenizer.save(folder / "tokenizers", SOURCE)
        run.target_tokenizer.save(folder / "tokenizers", TARGET)
