"""Words that both sides have: as a score and as a mark, in every network; and what they are for."""

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection import (
    AnswerRanker,
    AnswerSelector,
    CompareAggregate,
    ModelConfig,
)
from keras_attention.applications.answer_selection.networks.selector import build_model
from keras_attention.applications.base.network import with_matches

VOCABULARY = 31
SIZES = {"units": 7, "embedding_size": 5}
ENCODERS = ("gru", "outer", "inner-word", "inner-context", "inner-gate", "compare-aggregate")


def build(encoder, **settings):
    config = ModelConfig(encoder=encoder, **SIZES, **settings)
    model = build_model(config, VOCABULARY, trainable_vectors=False)
    random = np.random.default_rng(5)
    for variable in model.weights:
        variable.assign(random.normal(0, 0.7, variable.shape))
    return model


def in_numpy(model, question, answer):
    """The score of the words that an answer has of a question, both without padding."""
    of = {v.path.split("/", 1)[1]: np.array(v, "float64") for v in model.weights}
    words = of["vectors/embeddings"][question]
    prices = 1 / (1 + np.exp(-(words @ of["match/price/kernel"][:, 0] + of["match/price/bias"])))
    found = prices[np.isin(question, answer)].sum()
    return of["match/weight"] @ [found, found / prices.sum()]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_shared_words_add_to_the_score(encoder):
    model, plain = build(encoder, word_match=True), build(encoder)
    own = [variable for variable in model.weights if "/match/" not in f"/{variable.path}"]
    for variable, given in zip(plain.weights, own, strict=True):
        variable.assign(given)
    question, candidates = np.array([[4, 6, 9, 0], [7, 7, 0, 0]]), np.zeros((2, 3, 5), "int32")
    for row, place, answer in ((0, 0, [6, 4, 4]), (0, 1, [5]), (1, 0, [7, 8]), (1, 2, [1, 2, 3])):
        candidates[row, place, : len(answer)] = answer
    inputs = {"question": question, "candidates": candidates}
    added = np.array(model(inputs)) - np.array(plain(inputs))
    for row in range(2):
        asked = question[row][question[row] > 0]
        expected = [in_numpy(model, asked, answer[answer > 0]) for answer in candidates[row]]
        np.testing.assert_allclose(added[row], expected, atol=1e-5)
    assert np.abs(added[:, 0]).min() > 0.01 and not np.abs(added[0, 1:]).max() > 1e-5


def test_marks_of_shared_words():
    random = np.random.default_rng(6)
    ids, other = (random.integers(0, 7, (11, size)) for size in (5, 3))
    vectors = random.normal(size=(11, 5, 2)).astype("float32")
    marked = np.array(with_matches(vectors, ids, other))
    np.testing.assert_array_equal(marked[..., :2], vectors)
    expected = [[i > 1 and i in row for i in own] for own, row in zip(ids, other, strict=True)]
    np.testing.assert_array_equal(marked[..., 2], expected)
    assert 0 < marked[..., 2].sum() < marked[..., 2].size


@pytest.mark.parametrize("encoder", ENCODERS)
def test_marks_reach_the_score_of_every_network(encoder):
    """Words whose vectors are all zero differ in the marks alone."""
    model = build(encoder, exact_match=True)
    model.set_vectors(np.zeros((VOCABULARY, 5)))
    candidates = np.array([[[7, 9, 4], [7, 9, 6], [7, 9, 8]]])
    scores = np.array(model({"question": np.array([[4, 5, 0]]), "candidates": candidates}))[0]
    assert abs(scores[0] - scores[1]) > 1e-3 and abs(scores[1] - scores[2]) < 1e-6


@pytest.mark.parametrize("name", ["word_match", "exact_match"])
@pytest.mark.parametrize("network", [AnswerSelector, CompareAggregate])
def test_they_are_arguments_of_both_networks(network, name):
    model = network(VOCABULARY, **{name: True}, **SIZES)
    again = network.from_config(model.get_config())
    assert again.get_config() == model.get_config() and getattr(again, name)
    assert [each.shape for each in again.weights] == [each.shape for each in model.weights]
    before = model.get_config()
    before.pop(name)  # as older versions saved it
    assert not getattr(network.from_config(before), name)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_shared_words_add_to_log_odds_in_mixed_precision(dtype):
    question, answers = "who is it ?", ["it is a dog", "red"]
    options = {"word_match": True, "objective": "log", "dtype": dtype, **SIZES}
    ranker = AnswerRanker.from_questions([(question, answers, [1, 0])], **options)
    assert np.isfinite([each.score for each in ranker.rank(question, answers)]).all()


@pytest.mark.by_default("options0")
@pytest.mark.parametrize("options", [("gru", "word_match"), ("compare-aggregate", "exact_match")])
def test_they_rank_by_the_very_word_and_come_back(tmp_path, options):
    """Names that training never saw have vectors of chance: only the same word tells them apart."""

    def asked(name, other):
        return (f"who is {name} ?", [f"{other} is a dog", f"{name} is a dog"], [0, 1])

    names = [f"n{number}" for number in range(80)]
    pairs = [asked(*pair) for pair in zip(names, names[1:] + names[:1], strict=True)]
    keras.utils.set_random_seed(3)
    encoder, name = options
    ranker = AnswerRanker.from_questions(pairs, encoder=encoder, **{name: True}, **SIZES)
    ranker.compile(keras.optimizers.Adam(0.02))
    ranker.fit(pairs[:40], epochs=6, batch_size=10, verbose=0)
    assert ranker.evaluate_text(pairs[41:79])["map"] > 0.95
    ranker.save_to_preset(tmp_path / "preset")
    found = AnswerRanker.from_preset(tmp_path / "preset").score(pairs[41:43])[0]
    np.testing.assert_allclose(found, ranker.score(pairs[41:43])[0], atol=1e-6)
