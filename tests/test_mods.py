"""The score and mask functions against their formulas in float64, in every way of computing."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import mods
from keras_attention.layers import MultiHeadAttention
from keras_attention.ops.dot_product import block_sparse, blocks
from tests.contracts.backend import gradients_of, random, to_numpy, weighted_sum
from tests.contracts.kinds import randomise

BATCH, HEADS, STEPS, LENGTH, SIZE, WIDTH = 3, 4, 13, 11, 5, 7
IDS = np.sort(np.random.default_rng(3).integers(0, 4, (BATCH, STEPS)), axis=1).astype("int32")
KEY_IDS = np.sort(np.random.default_rng(5).integers(0, 4, (BATCH, LENGTH)), axis=1).astype("int32")
PREFIXES = np.array([1, 7, 4])

# Each mask function, and whether it shows a pair.
MASKS = {
    "causal": (mods.causal, lambda b, h, t, s: s <= t),
    "sliding_window": (mods.sliding_window(3), lambda b, h, t, s: abs(t - s) < 3),
    "sinks": (mods.sinks(2), lambda b, h, t, s: s < 2),
    "prefix": (mods.prefix(5), lambda b, h, t, s: s <= t or s < 5),
    "prefixes": (mods.prefix(PREFIXES), lambda b, h, t, s: s <= t or s < PREFIXES[b]),
    "document": (
        mods.document(IDS, KEY_IDS),
        lambda b, h, t, s: IDS[b, t] == KEY_IDS[b, s],
    ),
    "all_of": (
        mods.all_of(mods.causal, mods.sliding_window(4)),
        lambda b, h, t, s: s <= t and t - s < 4,
    ),
    "any_of": (
        mods.any_of(mods.sliding_window(2), mods.sinks(3)),
        lambda b, h, t, s: abs(t - s) < 2 or s < 3,
    ),
}
# Each score function, and the score that it returns.
SCORES = {
    "alibi": (mods.alibi(HEADS), lambda e, h, t, s: e - 2.0 ** (-2 * (h + 1)) * abs(t - s)),
    "softcap": (mods.softcap(0.7), lambda e, h, t, s: 0.7 * np.tanh(e / 0.7)),
}


def expected_weights(layer, query, value, shows=None, score=None):
    """The weights `(B, H, T, S)` of a layer, pair by pair in float64."""
    named = {weight.name: np.float64(to_numpy(weight)) for weight in layer.weights}
    q, k = (
        np.einsum("btd,dhk->bhtk", np.float64(x), named[f"{name}_kernel"])
        + named[f"{name}_bias"][:, None]
        for name, x in (("query", query), ("key", value))
    )
    scores = np.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(SIZE)
    for b, h, t, s in np.ndindex(scores.shape):
        if score is not None:
            scores[b, h, t, s] = score(scores[b, h, t, s], h, t, s)
        if shows is not None and not shows(b, h, t, s):
            scores[b, h, t, s] = -np.inf
    exponentials = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e9))
    return exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-300)


@pytest.fixture(scope="module")
def case():
    """A layer with random weights, queries and values."""
    query, value = random(1, BATCH, STEPS, WIDTH), random(2, BATCH, LENGTH, WIDTH)
    layer = MultiHeadAttention(HEADS, SIZE)
    layer.build(query.shape, value.shape)
    return randomise(layer), query, value


@pytest.mark.parametrize("name", [*MASKS, *SCORES])
def test_a_function_is_its_formula(name, case):
    layer, query, value = case
    if name in MASKS:
        function, shows = MASKS[name]
        given, expected = {"mask_mod": function}, {"shows": shows}
    else:
        function, score = SCORES[name]
        given, expected = {"score_mod": function}, {"score": score}
    _, weights = layer(query, value, return_attention_scores=True, **given)
    wanted = expected_weights(layer, query, value, **expected)
    np.testing.assert_allclose(to_numpy(weights), wanted, atol=2e-6)
    assert np.all((to_numpy(weights) == 0) >= (wanted == 0))


@pytest.mark.parametrize("name", ["softcap-prefixes", "alibi-document"])
def test_blocks_equal_the_dense_form(name, case, monkeypatch):
    monkeypatch.setattr(blocks, "KEPT_PAIRS", 10)
    monkeypatch.setattr(block_sparse, "MIN_POSITIONS", 4)
    layer, query, value = case
    score, mask = name.split("-")
    given = {"score_mod": SCORES[score][0], "mask_mod": MASKS[mask][0]}
    upstream = random(4, BATCH, STEPS, WIDTH)

    def loss(query, value, dense):
        result = layer(query, value, return_attention_scores=dense, **given)
        return weighted_sum(result[0] if dense else result, upstream)

    found, wanted = (
        gradients_of(lambda q, v, dense=dense: loss(q, v, dense), query, value, layer=layer)
        for dense in (False, True)
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize(
    ("score_mod", "mask_mod"),
    [
        (mods.softcap(0.4), mods.prefix(4)),
        (mods.alibi(HEADS), mods.all_of(mods.prefix([1, 3, 6]), mods.any_of(mods.sinks(2)))),
    ],
)
def test_functions_are_saved(score_mod, mask_mod, tmp_path):
    layer = MultiHeadAttention(HEADS, SIZE, score_mod=score_mod, mask_mod=mask_mod)
    model = keras.Sequential([keras.Input((STEPS, WIDTH)), layer])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = random(1, BATCH, STEPS, WIDTH)
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


def test_a_table_is_read_at_the_nearest_index():
    table = np.arange(6).reshape(2, 3)
    found = mods.look_up(table, ops.convert_to_tensor([[0], [9]]), ops.convert_to_tensor([-1, 2]))
    np.testing.assert_array_equal(to_numpy(found), [[0, 2], [3, 5]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mods.sliding_window(0), "`size` must be a positive integer. Received: size=0"),
        (lambda: mods.sinks(1.5), "`count` must be a positive integer. Received: count=1.5"),
        (lambda: mods.prefix(-1), "`length` must be a positive integer. Received: length=-1"),
        (lambda: mods.alibi(True), "`num_heads` must be a positive integer. Received"),
        (lambda: mods.softcap(0), "`cap` must be a finite number above 0. Received: cap=0"),
        (lambda: mods.softcap(float("nan")), "`cap` must be a finite number above 0"),
        (lambda: mods.document(np.zeros(3)), r"`query_ids` must .* Received: query_ids of shape"),
        (lambda: mods.all_of(), "At least one mask function is expected. Received: none"),
        (lambda: mods.any_of(), "At least one mask function is expected. Received: none"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_empty_table_has_zeros():
    index = ops.zeros((1, 2, 3), "int32")
    for shape in ((0,), (0, 4), (3, 0)):
        found = mods.look_up(np.zeros(shape, "float32"), *[index] * len(shape))
        assert to_numpy(found).tolist() == np.zeros((1, 2, 3)).tolist()
    layer = MultiHeadAttention(2, 3)
    layer.build((None, None, WIDTH))
    for rows, steps in ((0, STEPS), (2, 0)):
        ids = np.zeros((rows, steps), int)
        output = layer(random(1, rows, steps, WIDTH), mask_mod=mods.document(ids))
        assert output.shape == (rows, steps, WIDTH)
