"""`keras-attention predict` for classification: texts in, JSON lines out."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from keras_attention.applications.classification.classifier import Prediction, TextClassifier
from keras_attention.applications.classification.data import read_examples
from keras_attention.applications.classification.run import load_run
from keras_attention.applications.classification.tables import SUFFIXES
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import check_new_file
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.text_files import decode_line, output_file, read_lines

TEXTS_IN_A_CHUNK = 1024


def predict(options: Namespace) -> None:
    """Classify each text of the input, a JSON object a line.

    The input is a table with the run's text columns, or a text a line; the two texts of a pair
    stand on one line with a tab between.
    """
    if options.output:
        check_new_file(options.output)
    run = load_run(options.run)
    texts = _texts(options.input, run.config.data)
    classifier = TextClassifier(run)
    count = cut = empty = 0
    with output_file(options.output) as file:
        for chunk in texts:
            for result in classifier.predict(chunk):
                print(json.dumps(as_json(result), ensure_ascii=False), file=file)
                cut += result.truncated
                empty += result.empty
            count += len(chunk)
            file.flush()
        if not count:
            raise UserError("the input is empty: expected one text a line.")
    if cut:
        say(f"{cut:,} of {count:,} texts were cut to data.max_length {run.config.data.max_length}")
    if empty:
        say(f"{empty:,} of {count:,} texts have no words: what is said of them says nothing")


def as_json(prediction: Prediction) -> dict:
    """Return a prediction as JSON types."""
    if prediction.number is not None:
        result = {"number": prediction.number}
    else:
        several = list(prediction.labels)
        result = {"labels": several, "probabilities": prediction.probabilities}
    marks = {"truncated": prediction.truncated, "empty": prediction.empty}
    return {**result, **{name: True for name, holds in marks.items() if holds}}


def _texts(path: str | None, data) -> Iterator[list]:
    pairs = bool(data.second_column)
    if path is None:
        return _standard_input(pairs)
    if Path(path.removesuffix(".gz")).suffix.lower() in SUFFIXES:
        texts = [item.texts for item in read_examples(data, path, labelled=False).items]
    else:
        lines = enumerate(read_lines(path, data.encoding), 1)
        texts = [_text(line, pairs, f"{path}, line {number}") for number, line in lines]
    return (
        texts[first : first + TEXTS_IN_A_CHUNK] for first in range(0, len(texts), TEXTS_IN_A_CHUNK)
    )


def _text(line: str, pairs: bool, place: str) -> tuple[str, ...]:
    parts = tuple(line.split("\t")) if pairs else (line,)
    if pairs and len(parts) != 2:
        raise UserError(f"{place}: expected two texts with a tab between. Received: {line[:40]!r}.")
    return parts


def _standard_input(pairs: bool) -> Iterator[list]:
    """Yield chunks of texts; one at a time where a person types them."""
    size = 1 if sys.stdin.isatty() else TEXTS_IN_A_CHUNK
    chunk: list = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = decode_line(line.removesuffix(b"\n"), "standard input", number)
        chunk.append(_text(text, pairs, f"standard input, line {number}"))
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
