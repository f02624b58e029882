"""The model: padding, batching, queries and weights, poolings against NumPy, Occam's penalty."""

import keras
import numpy as np
import pytest

from keras_attention import LuongAttention
from keras_attention.applications.answer_selection import AnswerSelector, ModelConfig, Reader
from keras_attention.applications.errors import UserError
from tests.applications.answer_selection.conftest import VOCABULARY, ids

ENCODERS = ("gru", "outer", "inner-word", "inner-context", "inner-gate")
CASES = [
    *({"encoder": encoder} for encoder in ENCODERS),
    {"encoder": "outer", "pooling": "max", "shared": False, "attention_units": 3},
    {"encoder": "inner-context", "bidirectional": True, "pooling": "max", "occam": True},
    {"encoder": "inner-gate", "bidirectional": True, "shared": False},
    {"encoder": "inner-word", "bidirectional": True, "shared": False, "occam": True},
]


def build(seed=5, log_odds=False, **settings):
    sizes = {"embedding_size": 5, "units": 7}
    model = AnswerSelector(VOCABULARY, **{**sizes, **settings}, log_odds=log_odds)
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.7, variable.shape))
    return model


def name(settings):
    return "-".join(str(value) for value in settings.values())


@pytest.mark.parametrize("settings", [*CASES, {"exact_match": True}], ids=name)
def test_padding_and_company_change_nothing(settings):
    model = build(**settings)
    question, candidates = ids(2, 3), ids(2, 3, 4, seed=4)
    question[1, 2:] = 0
    candidates[0, 1, 2:] = 0
    scores, weights = model.score({"question": question, "candidates": candidates})
    assert scores.shape == (2, 3)
    wider = {
        "question": np.pad(question, [(0, 0), (0, 4)]),
        "candidates": np.pad(candidates, [(0, 0), (0, 0), (0, 5)]),
    }
    more, more_weights = model.score(wider)
    np.testing.assert_allclose(more, scores, atol=1e-6)
    for row, place, length in ((0, 1, 2), (1, 2, 4)):
        one = {
            "question": question[row : row + 1, : 3 - row],
            "candidates": candidates[row : row + 1, place : place + 1, :length],
        }
        alone, alone_weights = model.score(one)
        np.testing.assert_allclose(alone[0, 0], scores[row, place], atol=1e-6)
        if model.has_weights:
            expected = np.zeros(9)
            expected[:length] = alone_weights[0, 0]
            np.testing.assert_allclose(more_weights[row, place], expected, atol=1e-6)
    if model.has_weights:
        assert weights.shape == (2, 3, 4) and not np.any(weights[0, 1, 2:])
    else:
        assert weights is None


@pytest.mark.parametrize("settings", CASES, ids=name)
def test_the_question_is_the_query(settings):
    """Another question changes an answer's vector, but for the reader without attention."""
    model = build(**settings)
    embedded = model.embedding(ids(2, 4))
    mask = np.ones((2, 4), bool)
    size = model.reader.size
    one, other = (np.full((2, size), value, "float32") for value in (0.5, -0.5))
    vector = model.reader(embedded, mask, query=one)[0]
    changed = not np.allclose(vector, model.reader(embedded, mask, query=other)[0])
    assert vector.shape == (2, size) and changed == (settings["encoder"] != "gru")


def test_outer_attention_and_poolings_against_numpy():
    random = np.random.default_rng(8)
    states = random.normal(size=(2, 4, 7)).astype("float32")
    mask = np.array([[True] * 4, [True, True, False, False]])
    query = random.normal(size=(2, 7)).astype("float32")
    for pooling, pool in (("mean", np.mean), ("max", np.max)):
        reader = build(encoder="outer", pooling=pooling).reader
        plain = reader._pool(keras.ops.convert_to_tensor(states), keras.ops.convert_to_tensor(mask))
        vectors, weights = reader._attend(states, keras.ops.convert_to_tensor(mask), query)
        outer = {v.path.split("/")[-1]: np.array(v, "float64") for v in reader.outer.weights}
        for row, length in enumerate((4, 2)):
            some = states[row, :length].astype("float64")
            np.testing.assert_allclose(plain[row], pool(some, axis=0), atol=1e-6)
            hidden = np.tanh(query[row] @ outer["query_kernel"] + some @ outer["key_kernel"])
            scores = np.exp(hidden @ outer["score_vector"])
            expected = scores / scores.sum()
            np.testing.assert_allclose(weights[row, :length], expected, atol=1e-6)
            weighed = some * expected[:, None] * length
            np.testing.assert_allclose(vectors[row], pool(weighed, axis=0), atol=1e-5)


def test_scores_are_cosines_or_log_odds():
    inputs = {"question": ids(3, 4), "candidates": ids(3, 5, 6)}
    cosine = np.array(build(encoder="gru")(inputs))
    assert np.abs(cosine).max() <= 1 + 1e-6 and cosine.std() > 0.01
    log_odds = build(encoder="gru", log_odds=True)
    log_odds.scale.assign(3.0)
    log_odds.offset.assign(-0.5)
    for variable, other in zip(
        log_odds.reader.weights, build(encoder="gru").reader.weights, strict=True
    ):
        variable.assign(other)
    log_odds.embedding.set_weights(build(encoder="gru").embedding.get_weights())
    np.testing.assert_allclose(log_odds(inputs), 3.0 * cosine - 0.5, atol=1e-5)


def test_a_shared_reader_reads_both_sides_alike():
    """An inner attention has no query for a question: then both sides are read the same way."""
    model = build(encoder="gru")
    same = ids(2, 4)
    scores = model({"question": same, "candidates": same[:, None]})
    np.testing.assert_allclose(scores, 1.0, atol=1e-6)
    unshared = build(encoder="gru", shared=False)
    assert unshared.count_params() > model.count_params()
    assert np.abs(unshared({"question": same, "candidates": same[:, None]})).max() < 0.999


@pytest.mark.parametrize("encoder", ["inner-word", "inner-context"])
def test_weights_of_a_half_read_as_a_plain_gru(encoder):
    inputs = {"question": ids(2, 3), "candidates": ids(2, 3, 4)}
    inner, plain = build(encoder=encoder), build(encoder="gru", seed=6)
    inner.embedding.set_weights(plain.embedding.get_weights())
    kernels = {variable.path.split("/")[-1]: variable for variable in inner.reader.weights}
    for variable in plain.reader.weights:
        kernels.pop(variable.path.split("/")[-1]).assign(variable)
    for variable in kernels.values():  # those of the attention
        variable.assign(np.zeros(variable.shape))
    scores, weights = inner.score(inputs)
    np.testing.assert_allclose(weights, 0.5, atol=1e-6)
    np.testing.assert_allclose(scores, plain(inputs), atol=1e-5)


@pytest.mark.parametrize("encoder", ["inner-word", "inner-context"])
def test_occam_adds_a_loss_on_the_weights(encoder):
    inputs = {"question": ids(2, 3), "candidates": ids(2, 3, 4)}
    plain, priced = (
        build(encoder=encoder, shared=False, occam=occam, occam_minimum=0.25)
        for occam in (False, True)
    )
    plain(inputs)
    assert plain.losses == []
    priced.reader.nets[0].cell.occam_vector.assign(np.zeros(7))  # then the price is the least
    _, weights = priced.score(inputs)
    assert len(priced.losses) == 1
    assert float(priced.losses[0]) == pytest.approx(0.25 * np.sum(weights) / 6, rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_nothing_to_read_scores_zero(dtype):
    model = build(encoder="inner-word", pooling="max", dtype=dtype)
    empty = {"question": np.zeros((1, 2), "int32"), "candidates": np.zeros((1, 2, 3), "int32")}
    np.testing.assert_array_equal(model(empty), [[0.0, 0.0]])


def test_vectors_can_be_kept():
    model = AnswerSelector(VOCABULARY, 7, 5, trainable_vectors=False)
    vectors = np.random.default_rng(1).normal(size=(VOCABULARY, 5))
    model.set_vectors(vectors)
    np.testing.assert_allclose(model.embedding(np.arange(VOCABULARY)), vectors, atol=1e-6)
    assert not any("vectors" in variable.path for variable in model.trainable_variables)


def test_parts_are_given_as_layers_and_come_back():
    layers = {
        "attention": lambda: {"encoder": "outer", "attention": LuongAttention("general")},
        "reader": lambda: {"reader": Reader(7, LuongAttention("general"), "max")},
        "question": lambda: {"question_reader": Reader(7, bidirectional=False)},
    }
    inputs = {"question": ids(2, 3), "candidates": ids(2, 3, 4)}
    for make in layers.values():
        model = build(**make())
        again = AnswerSelector.from_config(model.get_config())
        again.set_weights(model.get_weights())
        np.testing.assert_array_equal(again(inputs), model(inputs))
    assert isinstance(again.question_reader, Reader) and again.question_reader is not again.reader


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "cnn"}, "`encoder` should be one of .* Received: encoder='cnn'"),
        ({"pooling": "sum"}, "pooling must be one of mean, max. Received: 'sum'"),
        ({"encoder": "gru", "occam": True}, "Received: encoder='gru'"),
        ({"reader": "gru"}, "`reader` of AnswerSelector should be a Keras layer"),
        ({"attention": LuongAttention()}, "goes with encoder='outer'"),
        ({"question_reader": Reader(3)}, "vectors of one size.*Received: 3 of the question, 7"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        AnswerSelector(VOCABULARY, 7, 5, **settings)


@pytest.mark.parametrize("settings", [{"attention": "inner-word"}, {"pooling": "sum"}])
def test_a_reader_knows_its_attentions_and_poolings(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be one of .* Received: '{settings[name]}'"):
        Reader(3, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"encoder": e, "occam": True}, "word a weight before") for e in ENCODERS[:2]),
        ({"encoder": "inner-gate", "occam": True}, "Received: model.encoder inner-gate"),
        ({"encoder": "gru", "attention_units": 3}, "goes with model.encoder outer only"),
        ({"dropout": 1.0}, "below 1"),
        ({"occam_minimum": 0.0}, "above 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        ModelConfig(**settings)
