"""A small BERT, made here: frozen and fine-tuned, alone and in pairs, through every verb."""

import base64
import io
import json
import shutil
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention.applications.base import backbones
from keras_attention.applications.base.backbones import BackboneTokenizer
from keras_attention.applications.classification import (
    ClassificationConfig,
    ClassificationPreprocessor,
    ClassificationTask,
    Labels,
    ModelConfig,
    PairClassifier,
    TextClassifier,
    TokenizerConfig,
    build_model,
    load_pretrained,
)
from keras_attention.applications.data.made import opinions
from keras_attention.applications.errors import UserError
from tests.applications.classification.conftest import randomize
from tests.applications.commands import assert_same_training, call_command

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGEST = 90
TEXTS = [
    "the food was bad . overall , it was good .",
    "unseenword",
    "",
    "in the end, it was terrible",
]
OTHERS = [
    "the room was not good .",
    "",
    "it rained",
    "the host was excellent . the town is small .",
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a small BERT with uneven random weights, and its tokenizer."""
    import keras_hub

    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for row in opinions.generate("train") for word in row["text"].split()})
    words.remove("terrible")
    vocabulary = [*SPECIAL, "terr", "##ible", *words]
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=LONGEST,
    )
    randomize(backbone)
    backbone.save_to_preset(str(folder))
    tokenizer = keras_hub.models.BertTokenizer(vocabulary=vocabulary, lowercase=True)
    tokenizer.save_to_preset(str(folder))
    return folder


@pytest.fixture(scope="module")
def model(bert):
    config = ModelConfig(architecture="backbone", backbone=str(bert), units=5, dropout=0.0)
    pretrained = load_pretrained(bert)
    made = build_model(config, pretrained.tokenizer.vocabulary_size, 3, pretrained)
    randomize(made.encoder.pool)
    randomize(made.answer)
    return made


def padded(rows, length):
    return np.array([row + [0] * (length - len(row)) for row in rows], "int32")


def inputs_of(bert, pairs, padding=0):
    encode = load_pretrained(bert, weights=False).tokenizer.encode
    inputs = {"text": padded(encode(TEXTS), 14 + padding)}
    return {**inputs, "second": padded(encode(OTHERS), 12 + padding)} if pairs else inputs


@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pairs"])
def test_texts_are_packed_as_the_backbones_own_preprocessor_does(bert, model, pairs):
    import keras_hub

    inputs = inputs_of(bert, pairs, padding=3)
    packed = model.encoder.reader.packed(list(inputs.values()))[0]
    own = keras_hub.models.TextClassifierPreprocessor.from_preset(
        str(bert), sequence_length=packed["token_ids"].shape[1]
    )
    texts = (tf.constant(TEXTS), tf.constant(OTHERS))
    expected = own(texts if pairs else texts[0], y=None)
    assert packed.keys() == expected.keys()
    for name, value in packed.items():
        np.testing.assert_array_equal(value, ops.cast(expected[name], "int32"))


@pytest.mark.slow
def test_the_marks_of_a_family_with_two_separators(tmp_path):
    import keras_hub

    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "a": 5, "b": 6, "ab": 7}
    tokenizer = keras_hub.models.RobertaTokenizer(vocabulary=vocabulary, merges=["a b"])
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    backbone = keras_hub.models.RobertaBackbone(vocabulary_size=8, max_sequence_length=12, **sizes)
    backbone.save_to_preset(str(tmp_path))
    tokenizer.save_to_preset(str(tmp_path))
    pretrained = load_pretrained(tmp_path)
    assert pretrained.marks == {"start": [0], "separator": [2, 2], "end": [2], "padding": 1}
    again = BackboneTokenizer.from_config(pretrained.tokenizer.get_config())
    assert again.tokens("abb") == ["ab", "b"]
    assert again.decode(again.encode(["abb"])) == ["abb"] == [again.join(["ab", "b"])]


def test_a_folder_in_the_users_home(bert, monkeypatch):
    monkeypatch.setenv("HOME", str(bert.parent))
    assert load_pretrained(f"~/{bert.name}", weights=False).marks["padding"] == 0


def test_a_vocabulary_that_inflates_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(backbones, "LARGEST_VOCABULARY", 10**6)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vocabulary.txt", bytes(10**6 + 1))
    config = {"vocabulary": base64.b64encode(content.getvalue()).decode(), "tokenizer": {}}
    with pytest.raises(UserError, match="an archive that inflates to more"):
        BackboneTokenizer.from_config(config)


@pytest.mark.by_default("single")
@pytest.mark.parametrize("pairs", [False, True], ids=["single", "pairs"])
def test_weights_are_of_words_alone_and_padding_has_no_say(bert, model, pairs):
    inputs, more = inputs_of(bert, pairs), inputs_of(bert, pairs, padding=5)
    scores, weights = model.attend(inputs)
    np.testing.assert_allclose(scores, model(more), atol=1e-5)
    assert np.ptp(scores, axis=0).min() > 1e-3  # the texts do not all get the same
    total = np.zeros(len(TEXTS))
    for name, ids in zip(weights, inputs.values(), strict=True):
        found = ops.convert_to_numpy(weights[name])
        assert ((found > 0) == (ids > 0)).all()
        total += found.sum(axis=1)
    np.testing.assert_allclose(total, [1, 1, 1 if pairs else 0, 1], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", ["pool", "backbone"])
def test_a_forgotten_mask_is_found_out(bert, model, forgotten, monkeypatch):
    reader = type(model.encoder.reader)
    packed = reader.packed

    def unmasked(self, texts):
        given, is_word, places = packed(self, texts)
        if forgotten == "pool":
            return given, ops.ones_like(is_word), places
        return {**given, "padding_mask": ops.ones_like(given["padding_mask"])}, is_word, places

    monkeypatch.setattr(reader, "packed", unmasked)
    inputs, more = inputs_of(bert, False), inputs_of(bert, False, padding=5)
    assert np.abs(model(inputs) - model(more)).max() > 1e-3


def test_saved_and_read_again(bert, model, tmp_path):
    inputs = inputs_of(bert, True)
    before = ops.convert_to_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(inputs), before, rtol=1e-5)
    assert len(again.trainable_variables) == len(model.trainable_variables) == 5  # frozen


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Options that name a few generated reviews."""
    folder, options = tmp_path_factory.mktemp("tables"), ["--data.label_column=sentiment"]
    for split in ("train", "dev", "test"):
        rows = "".join(json.dumps(row) + "\n" for row in opinions.generate(split)[:24])
        (folder / f"{split}.jsonl").write_text(rows)
        options.append(f"--data.{split}={folder / split}.jsonl")
    return options


def arguments(tables, output, backbone, *more):
    options = [*tables, "--data.max_length=88", "--model.architecture=backbone"]
    options += [f"--model.backbone={backbone}", "--model.units=6", "--training.batch_size=8"]
    options += ["--training.steps_per_epoch=3", "--training.tensorboard=false"]
    return ["train", "classification", *options, "--output", str(output), *more]


def served(folder, **texts):
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return {k: v.numpy() for k, v in serve(**{k: tf.constant(v) for k, v in texts.items()}).items()}


def assert_served(task, folder, texts, seconds=None):
    """An exported task gives what its predictions are."""
    expected = task.classify(texts if seconds is None else (texts, seconds))
    task.export(folder)
    found = served(folder, text=texts, **({"second": seconds} if seconds else {}))
    for each, labels, likely in zip(expected, found["labels"], found["probabilities"], strict=True):
        named = {label.decode(): p for label, p in zip(labels, likely, strict=True)}
        assert named == pytest.approx(each.probabilities, abs=1e-5)
        assert labels[0].decode() == each.label
    return expected


@pytest.mark.slow
@pytest.mark.parametrize("fine_tune", ["false", "true"], ids=["frozen", "fine-tuned"])
def test_a_run_needs_nothing_of_the_folder_any_more(bert, tables, fine_tune, tmp_path, capsys):
    own = shutil.copytree(bert, tmp_path / "own")
    run, more = tmp_path / "run", [f"--model.fine_tune={fine_tune}", "--training.epochs=1"]
    done = call_command(capsys, *arguments(tables, run, own, *more))
    assert done.status == 0, done.err
    shutil.rmtree(own)
    if fine_tune == "false":  # the other one, bit for bit, below
        again = ["train", "classification", "--output", run, "--resume", "--training.epochs=2"]
        assert "continuing after epoch 1" in call_command(capsys, *again).err

    task = ClassificationTask.from_preset(run)
    expected = assert_served(task, tmp_path / "saved", TEXTS)
    assert np.ptp([each.probabilities["good"] for each in expected]) > 1e-4
    report = json.loads(call_command(capsys, "evaluate", run, "--json").out)
    assert report["examples"] == 24
    done = call_command(capsys, "visualize", run, "--input", "It was terrible.")
    assert done.status == 0 and "terr[" in done.out and "##ible[" in done.out

    before = load_pretrained(bert).backbone.get_weights()
    after = task.backbone.encoder.reader.backbone.get_weights()
    moved = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    # The pooled output of the first token is not used: its layer has no gradient.
    assert sum(moved) == (len(moved) - 2 if fine_tune == "true" else 0)


@pytest.mark.slow
def test_fine_tuning_resumes_bit_for_bit_without_the_folder(bert, tables, tmp_path, capsys):
    """With dropout inside the backbone, and its weights on the way; killed before a checkpoint."""
    own = shutil.copytree(bert, tmp_path / "own")
    whole, run = tmp_path / "whole", tmp_path / "run"
    for name, epochs in ((whole, 2), (run, 1)):
        more = ["--model.fine_tune=true", f"--training.epochs={epochs}"]
        assert call_command(capsys, *arguments(tables, name, own, *more)).status == 0
    shutil.rmtree(own)
    again = ["train", "classification", "--output", run, "--resume", "--training.epochs=2"]
    for beginning in (False, True):
        if beginning:  # as after a kill in the first epoch: the run's own copy is all there is
            for path in (run / "checkpoints").iterdir():
                path.unlink()
            (run / "metrics.jsonl").unlink()
        assert call_command(capsys, *again).status == 0
        assert_same_training(whole, run)


@pytest.mark.slow
def test_pairs_in_a_preset_a_file_and_exported(bert, model, tmp_path):
    """With its tokenizer inside: none of them needs the folder of the backbone."""
    labels = Labels("one", ("no", "open", "yes"))
    tokenizer = load_pretrained(bert, weights=False).tokenizer
    preprocessor = ClassificationPreprocessor(tokenizer, labels, True, 43)
    task = PairClassifier(model, preprocessor)
    task.optimizer.build(task.trainable_variables)  # or a file of it cannot be read whole
    expected = assert_served(task, tmp_path / "saved", TEXTS, OTHERS)
    task.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset" / "backbone").exists()  # the weights are in the task's
    task.save(tmp_path / "task.keras")
    preset = PairClassifier.from_preset(tmp_path / "preset")
    for again in (preset, keras.saving.load_model(tmp_path / "task.keras")):
        for each, wanted in zip(again.classify((TEXTS, OTHERS)), expected, strict=True):
            assert each.probabilities == pytest.approx(wanted.probabilities, abs=1e-6)
    first, second = preset.classify((TEXTS[0], OTHERS[0])).weights
    assert second.tokens == [OTHERS[0].split()]
    assert first.words[0].sum() + second.words[0].sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # KerasHub leaves its file of pieces open
@pytest.mark.parametrize("family", ["Roberta", "Albert"])
@pytest.mark.by_default("Albert")  # tracing KerasHub's byte pairs takes 20 seconds
def test_tokenizers_with_tables_are_exported(family, tmp_path):
    import keras_hub
    import sentencepiece

    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    if family == "Roberta":
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "ab"]
        vocabulary = {piece: index for index, piece in enumerate(pieces)}
        given = {"vocabulary": vocabulary, "merges": ["a b"]}
    else:
        content, sizes["embedding_dim"] = io.BytesIO(), 4
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ab ba", "a b"]), model_writer=content, vocab_size=9,
            pad_id=0, unk_id=1, bos_id=2, eos_id=3, pad_piece="<pad>", unk_piece="<unk>",
            bos_piece="[CLS]", eos_piece="[SEP]", user_defined_symbols="[MASK]",
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        given = {"proto": content.getvalue()}
    tokenizer = getattr(keras_hub.models, f"{family}Tokenizer")(**given)
    size = tokenizer.vocabulary_size()
    kind = getattr(keras_hub.models, f"{family}Backbone")
    kind(vocabulary_size=size, max_sequence_length=12, **sizes).save_to_preset(str(tmp_path))
    tokenizer.save_to_preset(str(tmp_path))
    options = {"architecture": "backbone", "backbone": str(tmp_path), "units": 5, "max_length": 8}
    task = TextClassifier.from_texts(["abb", "ba"], ["yes", "no"], **options)
    assert_served(task, tmp_path / "saved", ["abb", "", "baab"])


def test_a_whole_task_around_a_backbone_in_one_line(bert):
    options = {"architecture": "backbone", "backbone": str(bert), "units": 5, "max_length": 20}
    task = TextClassifier.from_texts(TEXTS[:1] * 8 + TEXTS[3:] * 8, [1] * 8 + [0] * 8, **options)
    assert isinstance(task.preprocessor.tokenizer, BackboneTokenizer)
    (found,) = task.classify(["the unseenword was good"])
    assert found.unknown == (4, ["[UNK]"])
    in_graph, expected = task.preprocessor(tf.constant(TEXTS)), task.preprocessor(TEXTS)
    np.testing.assert_array_equal(in_graph["text"], expected["text"])
    frozen = task.backbone.encoder.reader.backbone.get_weights()
    task.fit(TEXTS[:1] * 8 + TEXTS[3:] * 8, [1] * 8 + [0] * 8, epochs=1, verbose=0)
    for before, after in zip(
        frozen, task.backbone.encoder.reader.backbone.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_folders_that_are_no_backbone(bert, tables, tmp_path, capsys):
    def refused(folder):
        done = call_command(capsys, *arguments(tables, tmp_path / "run", folder))
        assert done.status == 2 and len(done.err.strip().splitlines()) == 1
        assert not (tmp_path / "run").exists()
        return done.err

    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no config.json. Expected a folder that backbone.save_to_preset" in refused(empty)
    assert "is neither a folder nor a preset of keras_hub" in refused(tmp_path / "nowhere")
    assert "Did you mean 'bert_tiny_en_uncased'?" in refused("bert_tiny_en_uncase")
    broken = shutil.copytree(bert, tmp_path / "broken")
    (broken / "tokenizer.json").unlink()
    assert "tokenizer.json" in refused(broken)
    (broken / "config.json").write_text("{")
    assert "cannot be loaded" in refused(broken)
    cut = shutil.copytree(bert, tmp_path / "cut")
    (cut / "model.weights.h5").write_bytes(b"no weights")
    assert "cannot be loaded" in refused(cut)


def test_a_backbone_that_does_not_read_texts(tmp_path):
    import keras_hub

    backbone = keras_hub.models.FNetBackbone(
        vocabulary_size=7, num_layers=1, hidden_dim=4, intermediate_dim=4, max_sequence_length=8
    )
    backbone.save_to_preset(str(tmp_path))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    keras_hub.models.BertTokenizer(vocabulary=vocabulary).save_to_preset(str(tmp_path))
    with pytest.raises(UserError, match=r"FNetBackbone\) is not one that reads .* padding_mask"):
        load_pretrained(tmp_path)


def test_texts_longer_than_the_backbones_places(bert):
    pretrained = load_pretrained(bert, weights=False)

    pretrained.check_length(LONGEST - 2, "b")
    pretrained.check_length(43, "b", texts=2)
    with pytest.raises(UserError, match="reads 90 tokens .* must be at most 88. Received: 89"):
        pretrained.check_length(89, "b")
    with pytest.raises(UserError, match="at most 43 for each text of a pair. Received: 44"):
        pretrained.check_length(44, "b", texts=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig(architecture="backbone"), "needs model.backbone"),
        (lambda: ModelConfig(backbone="b"), "backbone goes with model.architecture backbone only"),
        (lambda: ModelConfig(fine_tune=True), "fine_tune goes with model.architecture backbone"),
        (
            lambda: ModelConfig(architecture="backbone", backbone="b", word_dropout=0.1),
            "word_dropout goes with model.architecture pooling, mean",
        ),
        (
            lambda: ClassificationConfig(
                model=ModelConfig(architecture="backbone", backbone="b"),
                tokenizer=TokenizerConfig(lowercase=False),
            ).check(),
            "tokenizer.lowercase does not apply to model.architecture backbone",
        ),
    ],
)
def test_keys_that_do_not_go_with_a_backbone(make, message):
    with pytest.raises(UserError, match=message):
        make()
