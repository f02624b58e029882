"""A small BERT as the encoder of a tagger: pieces joined to words, windows, every verb."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.base.backbones import BackboneTokenizer, load_pretrained
from keras_attention.applications.errors import UserError
from keras_attention.applications.tagging import (
    ModelConfig,
    TaggingConfig,
    TokenClassifier,
    TokenizerConfig,
    VectorsConfig,
)
from tests.applications.commands import call_command

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["anna", "lives", "in", "rom", "##e", "likes", "bob", "st", "##on", ".", "a", "##b"]
LONGEST = 23
WORDS = [["Anna", "lives", "in", "Rome"], ["Rome", "likes", "Bob", "Stone"]] * 12
TAGS = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "B-PER", "I-PER"]] * 12
TEXTS = ["Anna likes Rome.", "", "Stone  \u200d lives in Zürich", "Rome " * 30]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a small BERT with uneven random weights, and its tokenizer."""
    import keras_hub

    folder = tmp_path_factory.mktemp("bert")
    vocabulary = [*SPECIAL, *PIECES]
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=LONGEST,
    )
    random = np.random.default_rng(3)
    for weight in backbone.weights:
        weight.assign(weight + random.normal(0, 0.3, weight.shape))
    backbone.save_to_preset(str(folder))
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=vocabulary, lowercase=True)
    tokenizer.save_to_preset(str(folder))
    return folder


def made(bert, words=WORDS, tags=TAGS, **options):
    options = {"architecture": "backbone", "backbone": str(bert), "units": 6, **options}
    return TokenClassifier.from_texts(words, tags, **options)


@pytest.fixture(scope="module")
def tagger(bert):
    keras.utils.set_random_seed(2)
    task = made(bert, dropout=0.0)
    task.compile(keras.optimizers.Adam(0.05))
    task.fit(WORDS, TAGS, epochs=12, batch_size=12, verbose=0)
    return task


def states_of(bert, pieces):
    """The states of pieces, ids of the vocabulary, in the backbone alone."""
    ids = np.array([[SPECIAL.index("[CLS]"), *pieces, SPECIAL.index("[SEP]")]], "int32")
    given = {"token_ids": ids, "padding_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    found = load_pretrained(bert).backbone(given)["sequence_output"]
    return keras.ops.convert_to_numpy(found)[0, 1:-1]


def pieces_of(words):
    """The pieces of each word, cut by hand."""
    cut = {"rome": ["rom", "##e"], "stone": ["st", "##on", "##e"]}
    vocabulary = [*SPECIAL, *PIECES]
    known = [cut.get(word.lower(), [word.lower()]) for word in words]
    unknown = vocabulary.index("[UNK]")
    return [[vocabulary.index(p) if p in vocabulary else unknown for p in row] for row in known]


def test_a_word_is_the_state_of_its_first_piece(bert, tagger):
    sentences = [["Stone", "lives", "Zürich"], ["Rome"], ["Bob", "in", "Rome", "in", "Stone", "."]]
    inputs = tagger.preprocessor(sentences)
    assert inputs["words"].tolist()[0] == [1, 4, 5, 0, 0, 0]
    found = keras.ops.convert_to_numpy(tagger.backbone._states(inputs, False))
    for row, words in enumerate(sentences):
        pieces = pieces_of(words)
        assert inputs["pieces"][row][: sum(map(len, pieces))].tolist() == [
            4 + piece for each in pieces for piece in each
        ]
        first = np.cumsum([0, *map(len, pieces)])[:-1]
        expected = states_of(bert, [piece for each in pieces for piece in each])[first]
        np.testing.assert_allclose(found[row, : len(words)], expected, atol=1e-5)


def test_words_without_pieces_and_of_very_many(tagger):
    """One that the tokenizer drops is unknown; of a long one the first pieces are read."""
    inputs = tagger.preprocessor([["\u200d", "Anna"], ["a" + "b" * 90, "Bob"]])
    unknown = 4 + SPECIAL.index("[UNK]")
    assert inputs["pieces"][0, 0] == unknown and inputs["words"][0].tolist() == [1, 2]
    assert inputs["words"][1].tolist() == [1, 17]
    assert tagger.tag(["\u200d"]).words == ["\u200d"] and tagger.tag("").tags == []


@pytest.mark.slow  # tracing KerasHub's byte pairs takes 20 seconds
def test_byte_pairs_are_those_of_words_inside_of_a_text(tmp_path):
    import keras_hub

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "ab", "Ġ", "Ġa", "Ġab"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = ["a b", "Ġ a", "Ġ ab"]
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    backbone = keras_hub.models.RobertaBackbone(
        vocabulary_size=len(pieces), max_sequence_length=12, **sizes
    )
    backbone.save_to_preset(str(tmp_path))
    tokenizer = keras_hub.models.RobertaTokenizer(vocabulary=vocabulary, merges=merges)
    tokenizer.save_to_preset(str(tmp_path))
    task = made(tmp_path, [["ab", "b"]] * 4, [["A", "B"]] * 4)
    inputs = task.preprocessor([["ab", "b", "a"]])
    cut = [pieces[index - 4] for index in inputs["pieces"][0]]
    assert cut == ["Ġab", "Ġ", "b", "Ġa"] and inputs["words"].tolist() == [[1, 2, 4]]
    again = TokenClassifier.from_config(task.get_config())
    np.testing.assert_array_equal(
        again.preprocessor([["ab", "b", "a"]])["pieces"], inputs["pieces"]
    )


@pytest.mark.parametrize("is_open", [False, True], ids=["known lengths", "open lengths"])
def test_long_texts_are_read_in_windows_that_agree(bert, tagger, is_open):
    """21 pieces fit between the marks: windows begin at every tenth piece, and a word takes the
    state of the one in whose middle its first piece is, whatever the other rows are."""
    random = np.random.default_rng(5)
    names = np.array(["Anna", "lives", "Rome", "Stone", "Bob"])
    sentences = [random.choice(names, size).tolist() for size in (29, 11, 3, 17)]
    states = tagger.backbone._states
    if is_open:
        names = {"words": tf.TensorSpec([None, None], "int32")}
        names["pieces"] = names["words"]
        states = tf.function(lambda inputs: tagger.backbone._states(inputs, False), [names])
    else:
        states = lambda inputs: tagger.backbone._states(inputs, False)  # noqa: E731
    found = keras.ops.convert_to_numpy(states(tagger.preprocessor(sentences)))
    size, stride = LONGEST - 2, (LONGEST - 2) // 2
    for row, words in enumerate(sentences):
        pieces = pieces_of(words)
        first = np.cumsum([0, *map(len, pieces)])[:-1]
        flat = [piece for each in pieces for piece in each]
        last = max(0, -(-(len(flat) - size) // stride))
        windows = [
            states_of(bert, flat[at * stride : at * stride + size]) for at in range(last + 1)
        ]
        for place, index in enumerate(first):
            window = min(max(0, (index - (size - stride) // 2) // stride), last)
            expected = windows[window][index - window * stride]
            np.testing.assert_allclose(found[row, place], expected, atol=1e-5)


@pytest.mark.parametrize("architecture", ["lstm", "transformer", "backbone"])
def test_a_sentence_has_the_same_tags_in_any_batch(bert, architecture):
    """Windows of words, too, are those of its own length."""
    options = {"backbone": str(bert)} if architecture == "backbone" else {}
    task = TokenClassifier.from_texts(
        WORDS, TAGS, architecture=architecture, units=4, max_length=7, **options
    )
    sentences = [(WORDS[0] + WORDS[1]) * count for count in (2, 5)] + [WORDS[0] + WORDS[1][:2]]
    together = task.tag(sentences, are_words=False)
    for sentence, result in zip(sentences, together, strict=True):
        alone = task.tag(sentence)
        np.testing.assert_allclose(result.probabilities, alone.probabilities, atol=1e-5)
        assert result.tags == alone.tags


def test_it_learns_and_the_frozen_backbone_stays(bert, tagger):
    assert tagger.evaluate_text(WORDS, TAGS)["f1"] == 1.0
    before = load_pretrained(bert).backbone.get_weights()
    for weight, own in zip(before, tagger.backbone.reader.backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, own)
    found = tagger.tag("Anna likes Rome")
    assert [(s.label, s.text, s.start, s.end) for s in found.spans] == [
        ("PER", "Anna", 0, 4),
        ("LOC", "Rome", 11, 15),
    ]


@pytest.mark.slow
def test_fine_tuning_changes_the_backbone(bert):
    task = made(bert, fine_tune=True)
    assert float(task.optimizer.learning_rate) == pytest.approx(3e-5)
    before = task.backbone.reader.backbone.get_weights()
    task.fit(WORDS, TAGS, epochs=1, verbose=0)
    moved = [
        not np.array_equal(a, b)
        for a, b in zip(before, task.backbone.reader.backbone.get_weights(), strict=True)
    ]
    # The pooled output of the first token is not used: its layer has no gradient.
    assert sum(moved) == len(moved) - 2


@pytest.mark.slow
def test_roles_go_with_a_backbone(bert):
    pairs = [(words, place) for words in WORDS[:2] for place in (0, 2)] * 6
    tags = [["B-V", "O", "O", "O"], ["O", "O", "B-V", "O"]] * 12
    keras.utils.set_random_seed(3)
    task = made(bert, pairs, tags, dropout=0.0)
    task.compile(keras.optimizers.Adam(0.05))
    task.fit(pairs, tags, epochs=10, verbose=0)
    assert [each.tags for each in task.tag(pairs[:4])] == tags[:4]


def test_in_a_preset_and_a_file(tagger, tmp_path):
    """With the tokenizer inside: none of them needs the folder of the backbone."""
    expected = tagger.tag(TEXTS, are_words=False)
    tagger.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset" / "backbone").exists()  # the weights are in the task's
    tagger.save(tmp_path / "task.keras")
    again = TokenClassifier.from_preset(tmp_path / "preset")
    assert isinstance(again.preprocessor.tokenizer, BackboneTokenizer)
    for task in (again, keras.saving.load_model(tmp_path / "task.keras")):
        assert len(task.trainable_variables) == len(tagger.trainable_variables)  # still frozen
        for result, wanted in zip(task.tag(TEXTS, are_words=False), expected, strict=True):
            np.testing.assert_allclose(result.probabilities, wanted.probabilities, atol=1e-5)


@pytest.mark.slow
def test_a_saved_model_answers_as_tag_does(tagger, tmp_path):
    expected = tagger.tag(TEXTS, are_words=False)
    tagger.export(tmp_path / "served")
    serve = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    found = {name: each.numpy() for name, each in serve(text=tf.constant(TEXTS)).items()}
    for row, wanted in enumerate(expected):
        count = len(wanted.words)
        assert [each.decode() for each in found["words"][row, :count]] == wanted.words
        assert [each.decode() for each in found["tags"][row, :count]] == wanted.tags
        assert (found["words"][row, count:] == b"").all()


def test_a_dataset_of_words_is_read_in_its_graph(tagger):
    words = tf.ragged.constant([["Stone", "likes", "Rome"], ["Bob"]])
    found = tagger.preprocessor(words)
    expected = tagger.preprocessor([["Stone", "likes", "Rome"], ["Bob"]])
    for name, each in expected.items():
        np.testing.assert_array_equal(found[name], each)


@pytest.mark.slow
def test_the_command_trains_resumes_and_measures(bert, tmp_path, capsys):
    """A run keeps its own copy of the backbone: the folder may go."""
    own = shutil.copytree(bert, tmp_path / "own")
    rows = zip(WORDS, TAGS, strict=True)
    lines = "".join(json.dumps({"words": w, "tags": t}) + "\n" for w, t in rows)
    (tmp_path / "train.jsonl").write_text(lines)
    run = tmp_path / "run"
    options = [f"--data.train={tmp_path / 'train.jsonl'}", "--model.architecture=backbone"]
    options += [f"--model.backbone={own}", "--model.units=6", "--training.tensorboard=false"]
    done = call_command(
        capsys, "train", "tagging", *options, "--training.epochs=1", "--output", run
    )
    assert done.status == 0, done.err
    shutil.rmtree(own)
    again = ["train", "tagging", "--output", run, "--resume", "--training.epochs=2"]
    assert "continuing after epoch 1" in call_command(capsys, *again).err
    report = json.loads(
        call_command(capsys, "evaluate", run, "--input", tmp_path / "train.jsonl", "--json").out
    )
    assert report["sentences"] == 24
    more = ["train", "tagging", "--from", run, options[0], "--training.epochs=1"]
    done = call_command(capsys, *more, "--output", tmp_path / "more")
    assert done.status == 0, done.err
    done = call_command(capsys, "visualize", run, "--input", "Anna likes Rome.")
    assert done.status == 0 and "Rome" in done.out


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig(architecture="backbone"), "needs model.backbone"),
        (lambda: ModelConfig(backbone="b"), "backbone goes with model.architecture backbone only"),
        (
            lambda: ModelConfig(architecture="backbone", backbone="b", letters="gru"),
            "letters goes with model.architecture lstm, gru",
        ),
        (
            lambda: TaggingConfig(
                model=ModelConfig(architecture="backbone", backbone="b"),
                tokenizer=TokenizerConfig(lowercase=False),
            ).check(),
            "tokenizer.lowercase does not apply to model.architecture backbone",
        ),
        (
            lambda: TaggingConfig(
                model=ModelConfig(architecture="backbone", backbone="b"),
                vectors=VectorsConfig(file="glove.txt"),
            ).check(),
            "vectors.file does not apply to model.architecture backbone",
        ),
    ],
)
def test_keys_that_do_not_go_with_a_backbone(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_a_network_and_a_preprocessor_that_do_not_fit(tagger):
    other = TokenClassifier.from_texts(WORDS, TAGS, units=4)
    with pytest.raises(ValueError, match="reader.*architecture='lstm'"):
        type(other.backbone)(9, 3, 2, [0, 0], reader=tagger.backbone.reader)
    with pytest.raises(ValueError, match="vocabulary_size|backbone's tokenizer"):
        TokenClassifier(other.backbone, tagger.preprocessor)


def test_words_with_an_unknown_piece_are_said(tagger):
    texts = [["Anna", "zzz", "Rome", "likesq", "Stone", "Ω"], ["Bob"], ["Ω"], ["zzz", "zzz", "a"]]
    found = [each.unknown for each in tagger.tag(texts)]
    assert found == [(1, 3, 5), (), (0,), (0, 1)]
    assert [each.unknown for each in map(tagger.tag, ("Anna zzz", "Bob"))] == [(1,), ()]
