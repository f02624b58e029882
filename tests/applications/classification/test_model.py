"""Every architecture: padding has no say, and one that ignored the mask would be found out."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_attention.applications.classification import (
    Contextual,
    CrossEncoder,
    FlatEncoder,
    HierarchicalEncoder,
    InnerEncoder,
    ModelConfig,
    Pool,
    build_model,
)
from tests.applications.classification.conftest import randomize

ARCHITECTURES = {
    "pooling": {"max_pooling": True},
    "pooling, no gru": {"architecture": "pooling", "encoder": "none"},
    "pooling, convolution": {"architecture": "pooling", "encoder": "convolution"},
    "mean": {},
    "han": {},
    "self-attention": {"layers": 1, "heads": 2},
    "transformer": {"layers": 1, "heads": 2},
    "cross": {"encoder": "none"},
    "cross, gru": {"architecture": "cross"},
    "cross, exact match": {"architecture": "cross", "encoder": "none", "exact_match": True},
    "inner": {"encoder": "none"},
    "inner, gru": {"architecture": "inner"},
    "inner, context": {"architecture": "inner", "encoder": "none", "inner_attention": "context"},
}
VOCABULARY, OUTPUTS = 31, 3


@pytest.fixture(scope="module")
def models():
    """Every architecture with uneven random weights, made when it is asked for."""
    made = {}

    def make(name):
        if name not in made:
            options = {"architecture": name, **ARCHITECTURES[name]}
            config = ModelConfig(embedding_size=6, units=5, dropout=0.0, **options)
            made[name] = build_model(config, VOCABULARY, OUTPUTS)
            randomize(made[name], scale=1.5)
        return made[name]

    return make


def inputs_of(name, padding=0, seed=1):
    """Ids of two texts (pairs, sentences) of unequal length, with more padding behind."""
    draw = np.random.default_rng(seed)
    shape = (2, 3, 4) if name == "han" else (2, 5)
    ids = draw.integers(4, VOCABULARY, shape).astype("int32")
    ids[1, ..., 3:] = 0
    if name == "han":
        ids[1, 2] = 0
    second = draw.integers(4, VOCABULARY, (2, 3)).astype("int32")
    second[0, 2:] = 0
    inputs = {"text": ids}
    if name.startswith(("cross", "inner")):
        inputs["second"] = second
    return {key: pad(value, padding) for key, value in inputs.items()}


def pad(ids, padding):
    return np.pad(ids, [(0, 0)] + [(0, padding)] * (ids.ndim - 1))


def difference(model, name):
    """Return how far the scores move when padding is added."""
    plain = ops.convert_to_numpy(model(inputs_of(name)))
    padded = ops.convert_to_numpy(model(inputs_of(name, padding=2)))
    return np.abs(plain - padded).max()


def test_a_word_of_a_pair_first_attends_to_its_like():
    keras.utils.set_random_seed(2)
    config = ModelConfig("cross", embedding_size=64, units=5, encoder="none")
    encoder = build_model(config, VOCABULARY, OUTPUTS).encoder
    ids = np.arange(4, 17)[None]
    vectors, _ = encoder.vectors(ids)
    others, _ = encoder.vectors(ids[:, ::-1])
    _, weights = encoder.cross(vectors, others, return_attention_scores=True)
    found = np.argmax(ops.convert_to_numpy(weights[0]), axis=1)
    np.testing.assert_array_equal(found, np.arange(13)[::-1])


@pytest.mark.parametrize("architecture", ["cross", "inner"])
def test_a_pair_knows_the_words_that_both_texts_have(architecture):
    """Without vectors the words differ in that alone."""
    config = ModelConfig(architecture, embedding_size=5, units=5, exact_match=True)
    model = build_model(config, VOCABULARY, OUTPUTS)
    randomize(model)
    model.encoder.vectors.embedding.embeddings.assign(np.zeros((VOCABULARY, 5)))
    found = {}
    for name, first, second in (("same", 8, 6), ("none", 8, 7), ("unknown", 1, 1)):
        inputs = {"text": np.array([[first, 4, 5, 6]]), "second": np.array([[second, 0, 0]])}
        found[name] = ops.convert_to_numpy(model(inputs))
    assert np.abs(found["same"] - found["none"]).max() > 1e-3
    np.testing.assert_allclose(found["unknown"], found["none"], atol=1e-6)


# Of what differs in the encoder alone, one is a default test.
every_architecture = pytest.mark.parametrize("name", ARCHITECTURES)
most = pytest.mark.by_default(*set(ARCHITECTURES) - {"pooling, no gru", "cross", "inner"})


@every_architecture
@most
def test_padding_has_no_say(models, name):
    assert difference(models(name), name) < 1e-5


class Unmasked:
    """A stand-in for a layer that is not handed its mask."""

    def __init__(self, layer, names):
        self.layer, self.names = layer, names

    def __getattr__(self, name):
        return getattr(self.layer, name)

    def __call__(self, *arguments, **options):
        given = {k: ops.ones_like(v) if k in self.names else v for k, v in options.items()}
        return self.layer(*arguments, **given)


def attention_of(model, name):
    """Return where the attention of an architecture is: its owner and the attribute."""
    encoder = model.encoder
    if name in ("self-attention", "transformer"):
        attribute = "attention" if name == "self-attention" else "self_attention"
        return encoder.context.blocks[0], attribute
    if name.startswith("cross"):
        return encoder, "cross"
    if name.startswith("inner"):
        return encoder, "backward_gru"  # which comes to the padding first
    return encoder.pool, "attention"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "mean"])
def test_attention_without_its_mask_is_found_out(models, name, monkeypatch):
    model = models(name)
    owner, attribute = attention_of(model, name)
    layer = getattr(owner, attribute)
    without = Unmasked(layer, ("mask", "value_mask"))
    monkeypatch.setitem(owner.__dict__, attribute, without)
    assert difference(model, name) > 1e-3


def test_a_mean_that_counts_padding_is_found_out(models, monkeypatch):
    model = models("mean")
    call = type(model.encoder.pool).call
    monkeypatch.setattr(
        type(model.encoder.pool), "call", lambda self, x, mask: call(self, x, ops.ones_like(mask))
    )
    assert difference(model, "mean") > 1e-3


@every_architecture
@most
def test_weights_are_of_words_alone(models, name):
    inputs = inputs_of(name, padding=1)
    scores, weights = models(name).attend(inputs)
    assert tuple(scores.shape) == (2, OUTPUTS)
    for key, of in (("words", "text"), ("second", "second")):
        if of not in inputs:
            continue
        found = ops.convert_to_numpy(weights[key])
        assert found.shape == inputs[of].shape
        assert (found[inputs[of] == 0] == 0).all() and (found[inputs[of] > 0] > 0).all()
        if not name.startswith("inner"):  # whose weights are gates
            sums = found.sum(axis=-1)
            np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
    if name == "han":
        sentences = ops.convert_to_numpy(weights["sentences"])
        np.testing.assert_allclose(sentences.sum(axis=1), 1, rtol=1e-5)
        assert (sentences[1, 2:] == 0).all()


@every_architecture
@most
def test_a_text_without_words_gives_finite_scores(models, name):
    inputs = {key: np.zeros_like(value) for key, value in inputs_of(name).items()}
    scores = ops.convert_to_numpy(models(name)(inputs))
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-6)


@pytest.mark.parametrize("name", ["han", "self-attention", "cross, gru", "inner, gru"])
def test_saved_and_read_again(models, name, tmp_path):
    model, inputs = models(name), inputs_of(name)
    before = ops.convert_to_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(ops.convert_to_numpy(again(inputs)), before, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("mode", ["int8", "int4", "blocks"])
@pytest.mark.parametrize("name", ["han", "convolution", "self-attention", "transformer", "inner"])
@pytest.mark.by_default("han-int8-float32")
def test_quantized_saved_and_read_again(name, mode, dtype, tmp_path):
    options = ARCHITECTURES.get(name, {}) | {"architecture": name}
    if name == "convolution":
        options = ARCHITECTURES[f"pooling, {name}"]
    config = ModelConfig(embedding_size=6, units=6, dropout=0.0, **options)
    model = build_model(config, VOCABULARY, OUTPUTS, dtype=dtype)
    if mode != "blocks":
        model.quantize(mode)
    elif hasattr(keras.quantizers, "Int4QuantizationConfig"):
        model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=4))
    else:
        pytest.skip("Keras 3.13 brought blocks")
    inputs = inputs_of(name)
    for number in range(2):  # the second copy is one of a copy
        model.save(path := tmp_path / f"{number}.keras")
        read = keras.saving.load_model(path)
        np.testing.assert_array_equal(read(inputs), model(inputs))
        model = read


def test_pooling_is_the_equation():
    """The scores of a pooling model without recurrence, in NumPy, float64."""
    config = ModelConfig(encoder="none", embedding_size=6, units=5, dropout=0.0)
    model = build_model(config, VOCABULARY, OUTPUTS)
    randomize(model)
    ids = inputs_of("pooling")["text"]
    encoder = model.encoder
    layers = (encoder.vectors.embedding, encoder.pool.attention, model.answer)
    weights = [np.asarray(w, "float64") for layer in layers for w in layer.get_weights()]
    embeddings, kernel, bias, context, answer, answer_bias = weights
    for row, text in enumerate(ids):
        x = embeddings[text[text > 0]]
        e = np.tanh(x @ kernel + bias) @ context
        a = np.exp(e - e.max())
        expected = (a / a.sum()) @ x @ answer + answer_bias
        np.testing.assert_allclose(model({"text": ids})[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [Contextual, Pool])
def test_kinds_that_there_are_not_are_refused(layer):
    with pytest.raises(ValueError, match="kind must be one of .* Received: 'lstm'"):
        layer("lstm", 3)


def test_word_dropout_makes_words_unknown_in_training_only():
    config = ModelConfig(encoder="none", embedding_size=3, dropout=0.0, word_dropout=0.6)
    model = build_model(config, VOCABULARY, OUTPUTS)
    ids = np.full((1, 2000), 9, "int32")
    ids[0, 1500:] = 0
    vectors, mask = model.encoder.vectors(ids, training=True)
    vectors = ops.convert_to_numpy(vectors)[0, :1500]
    table = np.asarray(model.encoder.vectors.embedding.embeddings)
    unknown = (vectors == table[1]).all(axis=1)
    assert ((vectors == table[9]).all(axis=1) | unknown).all()
    assert 0.5 < unknown.mean() < 0.7
    still, _ = model.encoder.vectors(ids, training=False)
    assert (ops.convert_to_numpy(still)[0, :1500] == table[9]).all()
    assert ops.convert_to_numpy(mask).sum() == 1500


def test_a_functional_backbone_leaves_networks_as_they_are(tmp_path):
    """Networks written as classes stand beside KerasHub's functional backbones."""
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 4, "intermediate_dim": 4}
    config = ModelConfig(encoder="none", embedding_size=4, units=4)
    before = build_model(config, 9, 2)
    functional = [
        kind(vocabulary_size=8, max_sequence_length=5, **sizes)
        for kind in (keras_hub.models.BertBackbone, keras_hub.models.DistilBertBackbone)
    ]
    after = build_model(config, 9, 2)
    before.save_weights(tmp_path / "a.weights.h5")
    after.load_weights(tmp_path / "a.weights.h5")
    inputs = {"text": np.array([[4, 5]])}
    np.testing.assert_array_equal(before(inputs), after(inputs))
    assert [each.input["token_ids"].shape for each in functional] == [(None, None)] * 2


@pytest.mark.parametrize("encoder", [FlatEncoder, HierarchicalEncoder, CrossEncoder, InnerEncoder])
def test_no_part_has_a_name_that_pytorch_calls_a_layer_by(encoder):
    """`inner` had a part `forward`, and did not run there."""
    torch = pytest.importorskip("torch")
    assert not set(encoder.described) & set(dir(torch.nn.Module))
