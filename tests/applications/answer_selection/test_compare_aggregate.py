"""Compare-aggregate: its comparison against NumPy, padding, and its use as a task."""

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker, CompareAggregate
from keras_attention.applications.answer_selection.config import ModelConfig
from keras_attention.applications.answer_selection.networks.selector import build_model
from keras_attention.applications.errors import UserError
from tests.applications.answer_selection.conftest import VOCABULARY, ids

# The fixture trains in graphs; what a test then asks once is not traced.
pytestmark = pytest.mark.usefixtures("traced_nowhere")


def build(**settings):
    model = CompareAggregate(VOCABULARY, units=7, embedding_size=5, **settings)
    random = np.random.default_rng(5)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.7, variable.shape))
    return model


def softmax(scores):
    found = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return found / found.sum(axis=-1, keepdims=True)


def in_numpy(model, question, answer):
    """The score of one pair without padding and the weights, in float64, word by word."""
    of = {v.path.split("/", 1)[1]: np.array(v, "float64") for v in model.weights}

    def filtered(words):
        gate = 1 / (1 + np.exp(-(words @ of["gate/kernel"] + of["gate/bias"])))
        return gate * np.tanh(words @ of["content/kernel"] + of["content/bias"])

    q, a = (filtered(of["vectors/embeddings"][words]) for words in (question, answer))
    weights = softmax(q @ a.T)
    read = []
    for side, products in (
        ("of_answer", a * (softmax(a @ q.T) @ q)),
        ("of_question", q * (weights @ a)),
    ):
        for width in range(1, 6):
            before = (width - 1) // 2
            padded = np.pad(products, [(before, width - 1 - before), (0, 0)])
            kernel, bias = (of[f"{side}/width_{width}/{name}"] for name in ("kernel", "bias"))
            places = [
                np.einsum("wu,wuf->f", padded[t : t + width], kernel) + bias
                for t in range(len(products))
            ]
            read.append(np.maximum(places, 0).max(axis=0))
    hidden = np.tanh(np.concatenate(read) @ of["hidden/kernel"] + of["hidden/bias"])
    return (hidden @ of["answer/kernel"] + of["answer/bias"])[0], weights


@pytest.mark.parametrize("lengths", [(1, 1), (3, 7), (5, 2)])
def test_scores_and_weights_against_numpy(lengths):
    model, (length, longest) = build(), lengths
    question, candidates = ids(2, length), ids(2, 3, longest, seed=4)
    scores, weights = model.score({"question": question, "candidates": candidates})
    for row in range(2):
        for place in range(3):
            score, shades = in_numpy(model, question[row], candidates[row, place])
            np.testing.assert_allclose(scores[row, place], score, atol=1e-4)
            np.testing.assert_allclose(weights[row, place], shades, atol=1e-5)


def test_padding_and_company_change_nothing():
    model = build()
    question, candidates = ids(2, 3), ids(2, 3, 4, seed=4)
    question[1, 2:], candidates[0, 1, 2:] = 0, 0
    wider = {
        "question": np.pad(question, [(0, 0), (0, 4)]),
        "candidates": np.pad(candidates, [(0, 0), (0, 0), (0, 5)]),
    }
    scores, weights = model.score(wider)
    for row, place, length in ((0, 1, 2), (1, 2, 4)):
        asked, answer = question[row, : 3 - row], candidates[row, place, :length]
        score, shades = in_numpy(model, asked, answer)
        np.testing.assert_allclose(scores[row, place], score, atol=1e-4)
        expected = np.zeros((7, 9))
        expected[: len(asked), :length] = shades
        np.testing.assert_allclose(weights[row, place], expected, atol=1e-5)


def test_nothing_to_read_is_finite():
    empty = {"question": np.zeros((1, 2), "int32"), "candidates": np.zeros((1, 2, 3), "int32")}
    scores, weights = build().score(empty)
    assert np.isfinite(scores).all() and not np.any(weights)


QUESTIONS = [
    (f"who is {name} ?", [f"{name} is a {what} .", "it rains in the old park"], [1, 0])
    for name, what in (("ada", "dog"), ("bob", "cat"), ("eve", "bird"))
] * 4


@pytest.fixture(scope="module")
def ranker():
    keras.utils.set_random_seed(3)
    network = {"encoder": "compare-aggregate", "units": 6, "embedding_size": 5}
    ranker = AnswerRanker.from_questions(QUESTIONS, objective="listwise", **network)
    ranker.compile(keras.optimizers.Adam(0.01))
    ranker.fit(QUESTIONS, epochs=8, batch_size=6, verbose=0)
    return ranker


def test_it_learns_ranks_and_comes_back(ranker, tmp_path):
    assert ranker.evaluate_text(QUESTIONS)["map"] == 1.0
    ranker.save(tmp_path / "ranker.keras")
    ranker.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "ranker.keras"),
        AnswerRanker.from_preset(tmp_path / "preset"),
    ):
        assert again.objective == "listwise"
        found, expected = (each.score(QUESTIONS[:2])[0] for each in (again, ranker))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_its_matrix_is_shown(ranker, tmp_path):
    best = ranker.draw("who is ada ?", ["ada is a dog .", "no ."], tmp_path / "shaded.html")[0]
    assert best.matrix.shape == (4, len(best.tokens)) == (len(best.question), len(best.tokens))
    np.testing.assert_allclose(best.matrix.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(best.weights, best.matrix.mean(axis=0), atol=1e-6)
    (shown,) = ranker.explain("who is ada ?", ["ada is a dog ."]).answers[0].maps
    assert list(shown.rows.tokens) == ["who", "is", "ada", "?"]
    assert np.shape(shown.weights)[-2:] == (4, 5)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="export is TensorFlow's")
def test_an_export_gives_the_same_scores(ranker, tmp_path):
    import tensorflow as tf

    ranker.export(tmp_path / "served")
    serve = tf.saved_model.load(tmp_path / "served").signatures["serving_default"]
    question, candidates, _ = QUESTIONS[0]
    found = serve(question=tf.constant([question]), candidates=tf.constant([[*candidates, ""]]))
    ranked = {each.position: each.score for each in ranker.rank(question, candidates)}
    np.testing.assert_allclose(found["scores"][0, :2], [ranked[0], ranked[1]], atol=1e-5)
    assert np.isneginf(found["scores"][0, 2])


def test_the_configuration_names_it():
    config = ModelConfig(encoder="compare-aggregate", units=6, embedding_size=5)
    model = build_model(config, VOCABULARY, log_odds=False, trainable_vectors=False)
    again = CompareAggregate.from_config(model.get_config())
    assert again.get_config() == model.get_config() and not again.trainable_vectors
    assert [each.shape for each in again.weights] == [each.shape for each in model.weights]
    for settings in ({"pooling": "max"}, {"shared": False}, {"bidirectional": True}):
        with pytest.raises(
            UserError, match=f"model.{next(iter(settings))} goes with model.encoder"
        ):
            ModelConfig(encoder="compare-aggregate", **settings)


def test_an_objective_that_does_not_fit_is_refused(ranker):
    with pytest.raises(ValueError, match="objective"):
        AnswerRanker(ranker.backbone, ranker.preprocessor, objective="pairwise")
    with pytest.raises(
        ValueError, match="needs a network of logits.*AnswerSelector with log_odds=False"
    ):
        of_cosines = AnswerRanker.from_questions(QUESTIONS, encoder="gru", units=6)
        AnswerRanker(of_cosines.backbone, objective="listwise")


def test_a_misspelt_encoder_is_told_all_there_are():
    with pytest.raises(ValueError, match="gru, .*Did you mean 'compare-aggregate'.*Received: "):
        AnswerRanker.from_questions(QUESTIONS, encoder="compare-agregate")
