"""Pretrained vectors: where they go, which of them training changes, and what is refused."""

import keras
import numpy as np
import pytest

from keras_attention.applications.base.train import train_task
from keras_attention.applications.classification import (
    ClassificationConfig,
    DataConfig,
    ModelConfig,
    TextClassifier,
    TokenizerConfig,
    TrainingConfig,
    VectorsConfig,
    WordVectors,
)
from keras_attention.applications.data.vectors import read_vectors
from keras_attention.applications.errors import UserError

TEXTS = ["so Good", "so bad", "good fun", "bad fun"] * 3
LABELS = ["yes", "no"] * 6
WORDS = {"so": [1.0, 2.0, 3.0], "good": [4.0, -5.0, 6.0], "bad": [-7.0, 8.0, 0.5], "odd": [1, 0, 1]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    lines = (
        " ".join([word, *map(str, row)]) for word, row in {**WORDS, "two words": [1, 1]}.items()
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def classifier(file, channels="tuned", length=None, **options):
    sizes = {"units": 4, "embedding_size": 3, "encoder": "none"}
    vectors = {"file": str(file), "channels": channels, "extra_words": 4}
    vectors["length"] = length
    return TextClassifier.from_texts(TEXTS, LABELS, vectors=vectors, **sizes, **options)


def of_words(task, embedding, words):
    ids = [row[0] for row in task.preprocessor.tokenizer.encode(words)]
    return np.array(embedding.embeddings)[ids]


def test_words_start_from_the_file_and_others_at_random(file):
    task = classifier(file, tokenizer={"lowercase": False})
    layer = task.backbone.encoder.vectors
    known = ["so", "bad", "odd", "good"]
    np.testing.assert_allclose(of_words(task, layer.embedding, known), [WORDS[w] for w in known])
    # A word in upper case has the vector of the same in lower case.
    np.testing.assert_allclose(of_words(task, layer.embedding, ["Good"]), [WORDS["good"]])
    fun = of_words(task, layer.embedding, ["fun"])
    assert 1 < np.linalg.norm(fun) < 20
    assert task.preprocessor.tokenizer.encode(["unheard"]) != task.preprocessor.tokenizer.encode(
        ["odd"]
    )


def test_vectors_are_scaled_to_a_length_on_request(file):
    with open(file, "a", encoding="utf-8") as more:
        more.write("fun 0 0 0\n")
    task = classifier(file, length=1.5)
    found = of_words(task, task.backbone.encoder.vectors.embedding, ["so", "bad", "fun"])
    expected = [1.5 * np.array(WORDS[word]) / np.linalg.norm(WORDS[word]) for word in ("so", "bad")]
    np.testing.assert_allclose(found, [*expected, np.zeros(3)], rtol=1e-6)


@pytest.mark.by_default("both")
@pytest.mark.parametrize("channels", ["tuned", "static", "both"])
def test_training_changes_the_tuned_vectors_alone(file, channels, tmp_path):
    task = classifier(file, channels)
    layer = task.backbone.encoder.vectors
    parts = {"tuned": layer.embedding if channels != "static" else None}
    parts["static"] = layer.embedding if channels == "static" else layer.static
    start = {name: np.array(each.embeddings) for name, each in parts.items() if each is not None}
    vectors, _ = layer(np.array([[4, 5]]))
    assert vectors.shape == (1, 2, 6 if channels == "both" else 3)
    task.fit(TEXTS, LABELS, epochs=1, batch_size=4, verbose=0)
    for name, before in start.items():
        assert (np.array(parts[name].embeddings) == before).all() == (name == "static")
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    one, other = (each.classify("so good").probabilities for each in (task, again))
    assert one == pytest.approx(other, abs=1e-6)
    task.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset" / "vectors.npy").exists()


def test_the_command_trains_from_them(file, tmp_path):
    table = tmp_path / "train.csv"
    rows = (f"{text},{label}" for text, label in zip(TEXTS, LABELS, strict=True))
    table.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    config = ClassificationConfig(
        data=DataConfig(train=str(table), dev=str(table)),
        vectors=VectorsConfig(file=str(file), extra_words=4, channels="both"),
        model=ModelConfig(embedding_size=3, units=4, encoder="none"),
        training=TrainingConfig(epochs=1, tensorboard=False),
    )
    train_task(TextClassifier, config, tmp_path / "run")
    task = TextClassifier.from_preset(tmp_path / "run")
    layer = task.backbone.encoder.vectors
    np.testing.assert_allclose(of_words(task, layer.static, ["odd"]), [WORDS["odd"]])
    assert (of_words(task, layer.embedding, ["good"]) != [WORDS["good"]]).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: VectorsConfig(extra_words=3), "vectors.extra_words goes with vectors.file only"),
        (lambda: VectorsConfig(channels="both"), "vectors.channels goes with vectors.file only"),
        (lambda: VectorsConfig(length=2.0), "vectors.length goes with vectors.file only"),
        (lambda: VectorsConfig(file="x", length=0), "vectors.length must.*above 0"),
        (lambda: VectorsConfig(file="x", channels="two"), "vectors.channels"),
        (
            lambda: ClassificationConfig(
                vectors=VectorsConfig(file="x"),
                model=ModelConfig(architecture="backbone", backbone="y"),
            ).check(),
            "vectors.file does not apply to model.architecture backbone.* Received: x",
        ),
        (
            lambda: ClassificationConfig(
                vectors=VectorsConfig(file="x", extra_words=3),
                tokenizer=TokenizerConfig(kind="sentencepiece"),
            ).check(),
            "extra_words goes with tokenizer.kind words only. Received: 3 with sentencepiece",
        ),
        (lambda: WordVectors(9, 3, channels="two"), "channels must be .* Received: 'two'"),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises((UserError, ValueError), match=message):
        make()


def test_vectors_of_another_size_are_refused(file):
    with pytest.raises(UserError, match="vectors of 3 numbers, and model.embedding_size is 4"):
        TextClassifier.from_texts(
            TEXTS, LABELS, units=4, embedding_size=4, vectors={"file": str(file)}
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 3\na 1 2 3\nb 4 5 6\n", {"a": [1, 2, 3], "b": [4, 5, 6]}),
        ("a 1\nb 2\n", {"a": [1], "b": [2]}),
        ("7 1 2\n8 3 4\n", {"7": [1, 2], "8": [3, 4]}),
    ],
)
def test_a_first_line_of_two_whole_numbers_alone_is_no_word(tmp_path, text, expected):
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    found = read_vectors(path, len(next(iter(expected.values()))))
    assert {word: list(row) for word, row in found.vectors.items()} == expected
    assert (found.broken, found.first_broken, found.repeated) == (0, 0, 0)
