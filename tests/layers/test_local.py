"""Local attention: places, lengths, the Gaussian, and one result from both of its paths."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import LocalAttention
from keras_attention.layers.attention import local
from tests.contracts.backend import (
    compiled,
    gradients_of,
    random,
    tensors_of,
    to_numpy,
    weighted_sum,
)
from tests.contracts.kinds import randomise
from tests.layers.test_bahdanau import attend

B, T, S, D, U = 3, 11, 29, 5, 7
LENGTHS = np.array([29, 13, 2])
MASK = np.arange(S) < LENGTHS[:, None]

OPTIONS = {
    "dot": {"score": "dot"},
    "general": {"score": "general"},
    "concat": {"score": "concat", "units": U},
    "location": {"score": "location", "max_length": 9},
}


def level(layer):
    """The layer with zero weights: equal scores everywhere, and predicted positions at S / 2."""
    layer.build((None, None, D), (None, None, D))
    for weight in layer.weights:
        weight.assign(np.zeros(weight.shape))
    return layer


def test_monotonic_places_count_from_zero_and_windows_are_cut_to_the_sentence():
    layer = level(LocalAttention(2, score="general"))
    scores = attend(layer, random(1, B, T, D), random(2, B, S, D), value_mask=MASK)[1]
    for b, t in np.ndindex(B, T):
        window = [s for s in range(t - 2, t + 3) if 0 <= s < LENGTHS[b]]
        expected = np.zeros(S)
        expected[window] = 1 / max(len(window), 1)
        np.testing.assert_allclose(scores[b, t], expected, atol=1e-6)


def test_a_place_past_the_sentence_has_an_empty_window():
    layer = randomise(level(LocalAttention(2, score="general")))
    query, value = random(3, B, T, D), random(4, B, S, D)
    context, scores = attend(layer, query, value, value_mask=MASK)
    assert np.any(context[2, 3] != 0.0)  # place 3 still sees word 1
    assert np.all(context[2, 4:] == 0.0) and np.all(scores[2, 4:] == 0.0)
    shorter, _ = attend(layer, query[2:], value[2:, :2])  # without padding to stand upon
    np.testing.assert_allclose(context[2:], shorter, atol=1e-6)


def test_predicted_places_are_in_the_examples_own_length_with_an_unnormalised_gaussian():
    """Equal scores, p = S_b / 2: uniform in the window, times exp(-d^2 / (2 (D/2)^2))."""
    layer = level(LocalAttention(2, "predictive", score="general"))
    value = random(5, B, S, D)
    context, scores = attend(layer, random(6, B, T, D), value, value_mask=MASK)
    for b, length in enumerate(LENGTHS):
        centre = length / 2
        window = [s for s in range(length) if abs(s - centre) <= 2]
        expected = np.zeros(S)
        for s in window:
            expected[s] = np.exp(-((s - centre) ** 2) / 2.0) / len(window)  # sigma = 1
        np.testing.assert_allclose(scores[b, 0], expected, atol=1e-6)
        np.testing.assert_allclose(context[b, 0], expected @ value[b], atol=1e-5)
        assert scores[b, 0].sum() < 0.999


def test_sigma_is_half_of_the_half_width():
    layer = level(LocalAttention(6, "predictive", score="general"))
    scores = attend(layer, random(7, 1, 1, D), random(8, 1, 14, D))[1][0, 0]
    np.testing.assert_allclose(scores[7], 1 / 13, rtol=1e-5)  # the centre, of a window of 13
    np.testing.assert_allclose(scores[10] / scores[7], np.exp(-0.5), rtol=1e-4)  # one sigma away
    np.testing.assert_allclose(scores[13] / scores[7], np.exp(-2.0), rtol=1e-4)


def test_the_position_goes_through_tanh_and_sigmoid():
    layer = level(LocalAttention(1, "predictive", score="general", units=2))
    layer.position_kernel.assign(np.vstack([[100.0, 0.0], [0.0, 1.0], np.zeros((3, 2))]))
    layer.position_vector.assign([2.0, 1.0])
    query = np.zeros((1, 2, D), "float32")
    query[0, 0, 0], query[0, 1, 1] = 1.0, -0.5  # tanh saturates at 1; and tanh(-0.5)
    scores = attend(layer, query, random(9, 1, 20, D))[1][0]
    for row, logit in zip(scores, (2.0, np.tanh(-0.5)), strict=True):
        centre = 20 / (1 + np.exp(-logit))
        window = np.flatnonzero(row)
        np.testing.assert_array_equal(window, [np.floor(centre), np.ceil(centre)])
        gaussian = np.exp(-2 * (window - centre) ** 2) / 2  # sigma = 1/2
        np.testing.assert_allclose(row[window], gaussian, rtol=1e-4)


def both_paths(monkeypatch, compute):
    """What `compute` gives window by window and over the whole memory, and the scores' shapes."""
    results, shapes = [], []
    softmax = local.masked_softmax

    def recording(scores, *args, **options):
        shapes.append(tuple(scores.shape))
        return softmax(scores, *args, **options)

    monkeypatch.setattr(local, "masked_softmax", recording)
    for threshold in (0, 10**9):
        monkeypatch.setattr(local, "WINDOWED_FROM", threshold)
        results.append(compute())
    return results, shapes


@pytest.mark.parametrize("score", OPTIONS)
@pytest.mark.parametrize("alignment", local.ALIGNMENTS)
def test_both_paths_give_one_result_and_one_gradient(monkeypatch, alignment, score):
    options = OPTIONS[score]
    layer = LocalAttention(2, alignment, **options)
    layer.build((None, None, D), (None, None, D))
    randomise(layer)
    query, value = random(10, B, T, D), random(11, B, S, D)
    upstream = random(12, B, T, S), random(13, B, T, D)
    query_mask = np.arange(T) < np.array([11, 9, 4])[:, None]

    def loss(query, value):
        context, scores = layer(
            query,
            value,
            query_mask=ops.convert_to_tensor(query_mask),
            value_mask=ops.convert_to_tensor(MASK),
            return_attention_scores=True,
        )
        return weighted_sum(scores, upstream[0]) + weighted_sum(context, upstream[1])

    def compute():
        return [
            *attend(layer, query, value, query_mask=query_mask, value_mask=MASK),
            *gradients_of(loss, query, value, layer=layer),
        ]

    (windowed, dense), shapes = both_paths(monkeypatch, compute)
    assert {(B, T, 5), (B, T, S)} == set(shapes)
    for one, other in zip(windowed, dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_dropout_agrees_on_both_paths(monkeypatch):
    query, value = random(14, B, T, D), random(15, B, S, D)

    def compute():
        layer = LocalAttention(2, dropout=0.4, seed=7)
        return attend(layer, query, value, value_mask=MASK, training=True)

    (windowed, dense), _ = both_paths(monkeypatch, compute)
    for one, other in zip(windowed, dense, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(("length", "width"), [(20, 20), (21, 5), (200, 5)])
def test_long_memories_are_read_window_by_window(monkeypatch, length, width):
    shapes = []
    softmax = local.masked_softmax
    monkeypatch.setattr(
        local,
        "masked_softmax",
        lambda scores, mask: shapes.append(scores.shape) or softmax(scores, mask),
    )
    attend(LocalAttention(2), random(16, 1, 3, D), random(17, 1, length, D))
    assert [tuple(shape) for shape in shapes] == [(1, 3, width)]


def test_a_length_known_only_when_the_graph_runs_serves_short_memories_too():
    layer = LocalAttention(3, "predictive", score="general")
    layer.build((None, None, D), (None, None, D))
    randomise(layer)
    function = compiled(
        lambda x: dict(enumerate(layer(x["query"], x["value"], return_attention_scores=True))),
        {"query": random(18, 1, 2, D), "value": random(19, 1, 2, D)},
    )
    for steps, length in ((2, 1), (5, 3), (3, 41)):
        arrays = {"query": random(20, 2, steps, D), "value": random(21, 2, length, D)}
        expected = attend(layer, arrays["query"], arrays["value"])
        results = function(tensors_of(arrays))
        for place, value in enumerate(expected):
            np.testing.assert_allclose(to_numpy(results[place]), value, atol=1e-5)


def test_the_place_is_carried_in_the_state():
    layer = randomise(level(LocalAttention(1, score="general")))
    value = ops.convert_to_tensor(random(22, B, S, D))
    memory = layer.prepare_memory(value)
    state = layer.initial_state(memory)
    query = ops.convert_to_tensor(random(23, B, D))
    for t in range(4):
        _, scores, state = layer.step(query, memory, state)
        seen = np.flatnonzero(to_numpy(scores)[0])
        np.testing.assert_array_equal(seen, [s for s in (t - 1, t, t + 1) if s >= 0])
    # Rows of one batch may stand at different places, as reordered beams do.
    rows = {"position": ops.convert_to_tensor(np.int32([5, 0, 28]))}
    _, scores, _ = layer.step(query, memory, rows)
    seen = [list(np.flatnonzero(row)) for row in to_numpy(scores)]
    assert seen == [[4, 5, 6], [0, 1], [27, 28]]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_places_are_exact_in_half_precision(policy):
    """bfloat16 counts to 256, float16 to 2048."""
    keras.config.set_dtype_policy(policy)
    length = 3001 if policy == "mixed_float16" else 301
    layer = LocalAttention(1)
    layer.build((None, None, 2), (None, None, 2))
    value = ops.zeros((1, length, 2))
    prepared = layer.prepare_memory(value)
    state = {"position": ops.convert_to_tensor(np.int32([length - 2]))}
    _, scores, _ = layer.step(ops.zeros((1, 2)), prepared, state)
    seen = np.flatnonzero(to_numpy(scores)[0])
    np.testing.assert_array_equal(seen, [length - 3, length - 2, length - 1])
    level_out = level(LocalAttention(1, "predictive", score="general"))
    scores = attend(level_out, np.zeros((1, 1, D), "f"), np.zeros((1, length, D), "f"))[1][0, 0]
    expected = [s for s in range(length) if abs(s - length / 2) <= 1]
    np.testing.assert_array_equal(np.flatnonzero(scores), expected)


@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
def test_padding_anywhere_moves_no_window(alignment):
    """In memories that are read window by window, too."""
    rng = np.random.default_rng(3)
    layer = LocalAttention(half_width=1, alignment=alignment, score="general")
    layer.build((None, None, 5), (None, None, 7))
    randomise(layer)
    query, value = random(61, 2, 11, 5), random(62, 2, 19, 7)
    expected = attend(layer, query, value)
    steps = np.sort(rng.choice(17, 11, replace=False))
    words = np.sort(rng.choice(31, 19, replace=False))
    padded_query = np.full((2, 17, 5), np.nan, "float32")
    padded_value = np.full((2, 31, 7), np.nan, "float32")
    padded_query[:, steps], padded_value[:, words] = query, value
    masks = {
        "query_mask": np.isin(np.arange(17), steps)[None].repeat(2, 0),
        "value_mask": np.isin(np.arange(31), words)[None].repeat(2, 0),
    }
    context, scores = attend(layer, padded_query, padded_value, **masks)
    np.testing.assert_allclose(context[:, steps], expected[0], atol=1e-5)
    np.testing.assert_allclose(scores[:, steps][:, :, words], expected[1], atol=1e-5)
    assert np.all(scores[:, :, ~masks["value_mask"][0]] == 0.0)
