"""The tagger in use: from Python, by the command, and as a SavedModel."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.tagging import TokenClassifier
from tests.applications.commands import call_command

WORDS = [["Anna", "lives", "in", "Rome"], ["Rome", "likes", "Bob", "Stone"]] * 20
TAGS = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "B-PER", "I-PER"]] * 20
CONLL = "".join(
    "".join(f"{w} {t}\n" for w, t in zip(words, tags, strict=True)) + "\n"
    for words, tags in zip(WORDS, TAGS, strict=True)
)

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


@pytest.fixture(scope="module")
def tagger(module_traced_nowhere):
    keras.utils.set_random_seed(1)
    task = TokenClassifier.from_texts(WORDS, TAGS, units=12, word_dropout=0.0)
    return fitted(task, WORDS, TAGS)[0]


def fitted(task, *data, epochs=5):
    """A task after a few large steps."""
    task.compile(keras.optimizers.Adam(0.03))
    history = task.fit(*data, epochs=epochs, batch_size=20, verbose=0).history
    return task, history["loss"]


def untrained(**options):
    return TokenClassifier.from_texts(WORDS, TAGS, units=4, **options)


def test_spans_of_a_text_have_characters(tagger):
    found = tagger.tag("Anna likes Rome")
    assert [(s.label, s.text, s.start, s.end) for s in found.spans] == [
        ("PER", "Anna", 0, 4),
        ("LOC", "Rome", 11, 15),
    ]
    assert all(0 < span.probability <= 1 for span in found.spans)
    html = found._repr_html_()
    assert "<mark" in html and "PER" in html and "Probabilities" in html
    assert found.as_json()["spans"][1]["text"] == "Rome"
    assert "B-PER" in found.show() and found.plot() is not None


def test_words_texts_and_many(tagger):
    one = tagger.tag(["Anna", "likes", "Rome"])
    assert one.text == "Anna likes Rome" and one.tags == tagger.tag("Anna likes Rome").tags
    many = tagger.tag(["Anna likes Rome", "Rome"])
    assert [len(each.words) for each in many] == [3, 1]
    assert many._repr_html_()
    mixed = tagger.tag([["Anna"], "Rome is big."])
    assert mixed[1].words == ["Rome", "is", "big", "."] and mixed[1].offsets[-1] == (11, 12)
    assert tagger.tag("").tags == [] and tagger.tag("").spans == []
    assert tagger.tag(["a", "b"], are_words=False)[1].words == ["b"]
    with pytest.raises(ValueError, match="Received: x="):
        tagger.tag(3)
    texts = ["Anna likes Rome", "Rome is"]
    for given in ((text for text in texts), tf.constant(texts), np.array(texts)):
        assert [each.tags for each in tagger.tag(given)] == [tagger.tag(x).tags for x in texts]
    words = ["Anna", "likes"]
    for given in ((word for word in words), tf.constant(words), [b"Anna", b"likes"]):
        assert tagger.tag(given).words == words


def test_alternatives_are_the_best_sequences(tagger):
    found = tagger.tag("Anna likes Rome", alternatives=3)
    (best, first), (_, second), _ = found.alternatives
    assert best == found.tags and first > second


def test_figures_and_their_signature(tagger):
    report = tagger.evaluate_text(WORDS[:4], TAGS[:4])
    assert report["f1"] > 0.9 and "seqeval" in report["signature"]
    json.dumps(report)
    with pytest.raises(ValueError, match="no tag 'B-ORG'.*Known: LOC, O, PER"):
        tagger.evaluate_text([["a"]], [["B-ORG"]])
    nothing = tagger.evaluate_text([["Anna", "in"]], [["O", "O"]])
    assert nothing["f1"] == nothing["spans"] == 0 and "seqeval" in nothing["signature"]
    broken = tagger.evaluate_text([["Anna", "lives"]], [["I-PER", "O"]])
    assert broken["broken"] == 1 and broken["spans"] == 1


def test_broken_training_tags_give_a_finite_loss():
    tags = [["I-PER", "O", "O", "I-LOC"], ["I-LOC", "O", "I-PER", "I-PER"]] * 20
    task = TokenClassifier.from_texts(WORDS, tags, units=4)
    assert np.isfinite(task.fit(WORDS, tags, verbose=0).history["loss"]).all()
    assert all(not tag.startswith("I-") for tag in task.tag(["Anna"]).tags)


def test_spans_of_a_single_type_without_a_name():
    tags = [["B", "O", "O", "B"], ["B", "O", "B", "I"]] * 20
    task = TokenClassifier.from_texts(WORDS, tags, units=4)
    assert task.preprocessor.tags == ["O", "B", "I"] and task.preprocessor.scheme == "BIO"
    assert np.isfinite(task.fit(WORDS, tags, verbose=0).history["loss"]).all()
    assert "f1" in task.evaluate_text(WORDS[:2], tags[:2])
    found = dataclasses.replace(task.tag("Anna lives"), tags=["B", "I"])
    assert [span.text for span in found.spans] == ["Anna lives"] and "<mark" in found._repr_html_()


def test_a_width_of_zero_is_refused():
    with pytest.raises(ValueError, match="model.embedding_size must be at least 1"):
        untrained(embedding_size=0)


def test_empty_sentences_are_refused_in_training():
    with pytest.raises(ValueError, match=r"x\[1\] without any"):
        untrained().fit([["a"], []], [["O"], []])


def test_tags_without_spans():
    tags = [["N", "V", "P", "N"], ["N", "V", "N", "N"]] * 20
    task = TokenClassifier.from_texts(WORDS, tags, units=4)
    assert set(task.evaluate_text(WORDS[:2], tags[:2])) >= {"accuracy", "signature"}
    found = task.tag("Anna lives")
    assert found.spans == [] and "<mark" in found._repr_html_()


@pytest.mark.by_default("self-attention")
@pytest.mark.parametrize("architecture", ["gru", "self-attention", "transformer"])
def test_other_encoders_with_roles_learn_and_come_back(architecture, tmp_path):
    pairs = [(words, 1) for words in WORDS]
    options = {"letters": "gru" if architecture == "gru" else "none", "dropout": 0.0, "heads": 2}
    options = options if architecture != "gru" else {**options, "heads": None}
    task = TokenClassifier.from_texts(pairs, TAGS, units=4, architecture=architecture, **options)
    _, losses = fitted(task, pairs, TAGS, epochs=2)
    assert losses[-1] < losses[0]
    found = task.tag((["Anna", "likes", "Rome"], 1), return_attention=True)
    assert found.predicate == 1 and len(found.maps) == (architecture != "gru")
    task.save_to_preset(tmp_path / "preset")
    again = TokenClassifier.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(
        again.tag((found.words, 1)).probabilities, found.probabilities, atol=1e-6
    )
    assert again.explain("Anna *likes* Rome").to_json()
    with pytest.raises(ValueError, match="put asterisks around the predicate"):
        again.explain("Anna likes Rome")


def test_the_predicate_changes_the_answer():
    pairs = [(words, place) for words in WORDS[:2] for place in (0, 1)]
    tags = [["B-V", "O", "O", "O"], ["O", "B-V", "O", "O"]] * 2
    task = TokenClassifier.from_texts(pairs, tags, units=8, dropout=0.0)
    fitted(task, pairs, tags, epochs=15)
    assert task.tag((WORDS[0], 0)).tags == tags[0] and task.tag((WORDS[0], 1)).tags == tags[1]


def test_long_sentences_are_read_in_windows():
    task = untrained(max_length=7, layers=2)
    network = task.backbone
    words = (WORDS[0] + WORDS[1]) * 3
    inputs = task.preprocessor([words])
    whole, _ = network.emissions(inputs)
    assert whole.shape == (1, 24, 5)
    # The first words stand in the first window, and those in the middle in the middle of another.
    first = network.emissions({k: v[:, :7] for k, v in inputs.items()})[0]
    np.testing.assert_allclose(whole[:, :5], first[:, :5], atol=1e-5)
    window = network.emissions({k: v[:, 6:13] for k, v in inputs.items()})[0]
    np.testing.assert_allclose(whole[:, 8:11], window[:, 2:5], atol=1e-5)
    assert len(task.tag([words])[0].tags) == 24
    assert np.isfinite(task.fit([words], [["O"] * 24], verbose=0).history["loss"]).all()


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_a_span_over_the_cut_of_a_long_sentence_goes_on_as_one(scheme):
    task = untrained(max_length=3, scheme=scheme)
    words, tags = ["Bob", "x", "Bob", "Stone", "Bob"], ["O", "O", "B-PER", "I-PER", "I-PER"]
    assert np.isfinite(task.fit([words], [tags], verbose=0).history["loss"]).all()
    encoded = task.encode_to_train(task.read_columns([words], [tags], [2.0]))
    end = {"BIO": "I-PER", "BIOES": "E-PER"}[scheme]
    single = {"BIO": "B-PER", "BIOES": "S-PER"}[scheme]
    names = task.preprocessor.tags
    assert [[names[tag] for tag in row] for row in encoded["targets"]] == [
        ["O", "O", single],
        ["B-PER", end],
    ]
    assert encoded.weights.tolist() == [2.0, 2.0]


def test_the_parts_of_a_long_sentence_have_its_predicate_and_its_places():
    pairs = [(["a", "b", "c", "d", "e"], 3)]
    task = TokenClassifier.from_texts(pairs, [["O", "O", "O", "B-V", "O"]], units=4, max_length=2)
    encoded = task.encode_to_train(task.read_columns(pairs, [["O", "O", "O", "B-V", "O"]]))
    assert list(encoded["marks"]) == [[0, 0], [0, 1], [0]]
    with pytest.raises(ValueError, match=r"x\[0\]\[4\]"):
        task.encode_to_train(task.read_columns(pairs, [["O", "O", "O", "B-V", "B-X"]]))


def test_a_saved_model_answers_as_tag_does(tagger, tmp_path):
    tagger.export(tmp_path / "served")
    serve = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    texts = ["Anna likes Rome", "", "Bob Stone lives, in Zürich!"]
    found = {name: each.numpy() for name, each in serve(text=tf.constant(texts)).items()}
    for row, expected in enumerate(tagger.tag(texts)):
        count = len(expected.words)
        assert [word.decode() for word in found["words"][row, :count]] == expected.words
        assert [tag.decode() for tag in found["tags"][row, :count]] == expected.tags
        pairs = zip(found["start"][row, :count], found["end"][row, :count], strict=True)
        assert list(pairs) == expected.offsets
        likely = found["probabilities"][row, :count]
        np.testing.assert_allclose(likely, expected.of_tags, atol=1e-5)
        assert not found["words"][row, count:].any()


def test_the_command_trains_measures_tags_and_draws(tmp_path, capsys):
    (tmp_path / "train.conll").write_text(CONLL)
    run = tmp_path / "run"
    options = ["--model.units=8", "--training.epochs=2", "--training.tensorboard=false"]
    options += ["--data.train", tmp_path / "train.conll", "--training.batch_size=8"]
    options += ["--data.test", tmp_path / "train.conll", "--vectors.file", vectors(tmp_path)]
    options += ["--model.embedding_size=3"]
    done = call_command(capsys, "train", "tagging", *options, "--output", run)
    assert done.status == 0, done.err
    assert "36 sentences" in done.err and "They have 144 words" in done.err
    assert "of the vocabulary's 7 words" in done.err
    report = json.loads(call_command(capsys, "evaluate", run, "--json").out)
    assert report["sentences"] == 40 and "f1" in report
    assert "F1 of spans" in call_command(capsys, "evaluate", run, "--split", "dev").out
    (tmp_path / "lines.txt").write_text("Anna likes Rome.\n\nBob\n")
    done = call_command(capsys, "predict", run, "--input", tmp_path / "lines.txt")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [len(row["tags"]) for row in rows] == [4, 0, 1]
    done = call_command(capsys, "predict", run, "--columns", "--input", tmp_path / "train.conll")
    assert len(done.out.split("\n\n")) == 41
    done = call_command(capsys, "predict", run, "--columns")
    assert done.status == 2 and "give --input" in done.err
    done = call_command(
        capsys, "visualize", run, "--input", "Anna", "--output", tmp_path / "a.html"
    )
    assert done.status == 0 and (tmp_path / "a.html").is_file()
    done = call_command(capsys, "visualize", run, "--input", "Anna")
    assert "Anna" in done.out
    done = call_command(
        capsys,
        *("visualize", run, "--input", "Anna", "--output", tmp_path / "a.png"),
        *("--attention", "self-attention"),
    )
    assert done.status == 2 and "no self-attention" in done.err


def test_unknown_tags_of_the_test_set_are_found_before_the_training(tmp_path, capsys):
    (tmp_path / "train.conll").write_text(CONLL)
    (tmp_path / "test.conll").write_text("Anna B-PER\nIBM B-ORG\n")
    given = ["--data.train", tmp_path / "train.conll", "--data.test", tmp_path / "test.conll"]
    done = call_command(capsys, "train", "tagging", *given, "--output", tmp_path / "run")
    assert done.status == 2 and "test.conll, line 2: the training data have no tag" in done.err
    assert not (tmp_path / "run").exists()


def vectors(folder):
    path = folder / "vectors.txt"
    path.write_text("anna 1 2 3\nrome 2 1 3\n")
    return path


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("Anna O\nlikes\n\n", [], "train.conll, line 2: expected 2 columns"),
        (CONLL, ["--data.tag_column=5"], "the file has 2 columns"),
        (CONLL, ["--data.scheme=IOB"], "data.scheme must be one of own, BIO, BIOES"),
        (CONLL.replace("B-", "").replace("I-", ""), ["--data.scheme=BIOES"], "needs tags of spans"),
        (CONLL, ["--model.heads=2"], "model.heads goes with model.architecture"),
        (CONLL, ["--training.label_smoothing=0.1"], "label_smoothing"),
    ],
)
def test_a_wrong_run_ends_in_one_line(content, options, message, tmp_path, capsys):
    (tmp_path / "train.conll").write_text(content)
    given = ["--data.train", tmp_path / "train.conll", *options, "--output", tmp_path / "run"]
    done = call_command(capsys, "train", "tagging", *given)
    assert done.status == 2 and message in done.err, done.err
    assert not (tmp_path / "run").exists() and "Traceback" not in done.err
