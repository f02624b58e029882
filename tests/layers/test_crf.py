"""The CRF beside a list of all paths, its constraints, masks, losses and extremes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import CRF, automatic_derivatives
from keras_attention.losses import CRFLoss
from keras_attention.ops import crf as functions
from keras_attention.ops.tag_schemes import forbidden_transitions
from tests.contracts.backend import BACKEND, compiled, gradients_of, to_numpy
from tests.crf_oracle import Chain

DTYPE = "float64" if BACKEND == "tensorflow" else "float32"
TOLERANCE = 1e-9 if BACKEND == "tensorflow" else 1e-4
BIO = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def problem(seed, batch, steps, tags, scale=1.0, forbidden=(), masked=True):
    """A layer with random weights, emissions, a mask with holes and an empty row, and oracles."""
    rng = np.random.default_rng(seed)
    emissions = (scale * rng.normal(size=(batch, steps, tags))).astype(DTYPE)
    mask = rng.random((batch, steps)) < 0.6 if masked else np.ones((batch, steps), bool)
    mask[0] = not masked
    layer = CRF(tags, forbidden=forbidden, dtype=DTYPE)
    layer.build((None, None, tags))
    shapes = ((tags, tags), (tags,), (tags,))
    layer.set_weights([(scale * rng.normal(size=shape)).astype(DTYPE) for shape in shapes])
    names = ("transitions", "start", "end")
    weights = {name: to_numpy(getattr(layer, name).value) for name in names}
    rows = zip(emissions, mask, strict=True)
    chains = [Chain(row, real, weights, forbidden) for row, real in rows]
    return layer, emissions, mask if masked else None, chains


PROBLEMS = {
    "plain": {"batch": 2, "steps": 5, "tags": 3, "masked": False},
    "masked": {"batch": 4, "steps": 6, "tags": 3},
    "one tag": {"batch": 3, "steps": 5, "tags": 1},
    "one step": {"batch": 3, "steps": 1, "tags": 4},
    "forbidden": {"batch": 4, "steps": 5, "tags": 3, "forbidden": ((0, 2), (None, 2), (1, None))},
    "no way back": {"batch": 4, "steps": 5, "tags": 3, "forbidden": ((1, 0), (2, 0), (2, 1))},
    "wide": {"batch": 4, "steps": 5, "tags": 3, "scale": 40.0},
    "wide, forbidden": {
        **{"batch": 4, "steps": 5, "tags": 5, "scale": 150.0},
        "forbidden": forbidden_transitions(BIO),
    },
}
every_problem = pytest.mark.parametrize("name", PROBLEMS)


def log_close(found, expected):
    np.testing.assert_allclose(to_numpy(found), expected, rtol=TOLERANCE, atol=10 * TOLERANCE)


def real_tags(chains, seed=3):
    """Tags of a path that is possible for each row, with ids out of range where it is masked."""
    rng = np.random.default_rng(seed)
    result = np.full((len(chains), chains[0].shape[0]), -7)
    for row, chain in enumerate(chains):
        possible = np.flatnonzero(np.isfinite(chain.scores))
        result[row, chain.real] = chain.paths[rng.choice(possible)]
    return result


@every_problem
def test_likelihood_marginals_and_best_paths_are_those_of_all_paths(name):
    layer, emissions, mask, chains = problem(len(name), **PROBLEMS[name])
    tags = real_tags(chains)
    scores = [chain.scores[chain.path_of(row)] for chain, row in zip(chains, tags, strict=True)]
    likelihoods = [chain.log_likelihood(row) for chain, row in zip(chains, tags, strict=True)]
    log_close(layer.score(emissions, tags, mask), scores)
    log_close(layer.log_partition(emissions, mask), [chain.partition for chain in chains])
    log_close(layer.log_likelihood(emissions, tags, mask), likelihoods)
    log_close(layer.marginals(emissions, mask), [chain.marginals() for chain in chains])
    log_close(layer(emissions, mask=mask), [chain.marginals() for chain in chains])
    best = to_numpy(layer.decode(emissions, mask))
    real = np.ones_like(best, bool) if mask is None else mask
    assert np.all(best[~real] == 0)
    for chain, row in zip(chains, best, strict=True):
        assert chain.paths[np.argmax(chain.scores)] == chain.paths[chain.path_of(row)]


@every_problem
def test_the_n_best_paths(name):
    layer, emissions, mask, chains = problem(len(name), **PROBLEMS[name])
    count = 7
    paths, likelihoods = map(to_numpy, layer.n_best(emissions, count, mask))
    np.testing.assert_array_equal(paths[:, 0], to_numpy(layer.decode(emissions, mask)))
    for chain, rows, found in zip(chains, paths, likelihoods, strict=True):
        order = np.argsort(-chain.scores, kind="stable")[:count]
        order = order[np.isfinite(chain.scores[order])]
        log_close(found[: len(order)], chain.scores[order] - chain.partition)
        assert [chain.path_of(row) for row in rows[: len(order)]] == list(order)
        assert np.all(np.isneginf(found[len(order) :])) and not np.any(rows[len(order) :])


@every_problem
def test_gradients_are_expected_counts(name):
    layer, emissions, mask, chains = problem(len(name), **PROBLEMS[name])
    tags = real_tags(chains)

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags, mask))

    rows = [chain.gradients(row) for chain, row in zip(chains, tags, strict=True)]
    of_emissions, *others = zip(*rows, strict=True)
    expected = [*(np.sum(part, axis=0) for part in others), np.stack(of_emissions)]
    for found, wanted in zip(gradients_of(total, emissions, layer=layer), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=10 * TOLERANCE)


@pytest.mark.parametrize("name", ["masked", "forbidden", "wide"])
def test_sets_of_allowed_tags(name):
    layer, emissions, mask, chains = problem(len(name), **PROBLEMS[name])
    sets = np.random.default_rng(5).random(emissions.shape) < 0.7
    for row, path in zip(sets, real_tags(chains), strict=True):
        for step in np.flatnonzero(path >= 0):
            row[step, path[step]] = True  # at least one path is left
    rows = zip(chains, sets, strict=True)
    expected = [chain.log_likelihood_of_sets(row) for chain, row in rows]
    log_close(layer.log_likelihood(emissions, sets, mask), expected)
    everything = np.ones_like(sets)
    log_close(layer.log_likelihood(emissions, everything, mask), np.zeros(len(chains)))
    log_close(layer.log_likelihood(emissions, np.int32(sets), mask), expected)


def test_tags_of_one_set_each_are_tags():
    layer, emissions, mask, chains = problem(2, **PROBLEMS["masked"])
    tags = real_tags(chains)
    sets = tags[..., None] == np.arange(3)
    expected = to_numpy(layer.log_likelihood(emissions, tags, mask))
    log_close(layer.log_likelihood(emissions, sets, mask), expected)


def test_a_forbidden_sequence_has_no_probability_and_finite_gradients():
    layer, emissions, _, _ = problem(4, 3, 4, 5, forbidden=forbidden_transitions(BIO), masked=False)
    tags = np.array([[0, 2, 0, 0], [1, 2, 2, 0], [2, 0, 0, 0]])

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags))

    found = to_numpy(layer.log_likelihood(emissions, tags))
    np.testing.assert_array_equal(np.isneginf(found), [True, False, True])
    np.testing.assert_array_equal(np.isneginf(to_numpy(layer.score(emissions, tags))), [1, 0, 1])
    gradients = gradients_of(total, emissions, layer=layer)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    transitions = gradients[0]
    assert np.all(transitions[~layer._constraints.allowed[0]] == 0)


@pytest.mark.parametrize("scale", [1e6, 1e32, np.inf])
def test_forbidden_transitions_hold_whatever_the_scores(scale):
    layer = CRF.from_tags(BIO, dtype=DTYPE)
    emissions = np.random.default_rng(0).normal(size=(3, 9, 5)).astype(DTYPE)
    # With infinity the best tags are B-X again and again, or I-X where it may not stand.
    emissions = scale * np.maximum(emissions, 0.1) if np.isinf(scale) else scale * emissions
    tags = to_numpy(layer.decode(emissions))
    assert np.all(np.isfinite(to_numpy(layer.log_likelihood(emissions, tags))))
    allowed, start, _ = layer._constraints.allowed
    assert np.all(start[tags[:, 0]]) and np.all(allowed[tags[:, :-1], tags[:, 1:]])


def test_emissions_may_be_minus_infinity():
    layer, emissions, mask, chains = problem(6, **PROBLEMS["masked"])
    sets = real_tags(chains)[..., None] == np.arange(3)
    emissions = np.where(sets | ~mask[..., None], emissions, -np.inf).astype(DTYPE)
    np.testing.assert_array_equal(
        to_numpy(layer.decode(emissions, mask))[mask], np.argmax(sets, -1)[mask]
    )
    log_close(layer.marginals(emissions, mask), sets * 1.0)


def test_an_emission_of_infinity_makes_its_tag_certain():
    layer, emissions, _, chains = problem(6, **PROBLEMS["plain"])
    emissions[1, 2] = [np.inf, 3.0, -np.inf]
    found = to_numpy(layer.marginals(emissions))
    log_close(found[0], chains[0].marginals())
    log_close(found[1, 2], [1.0, 0.0, 0.0])
    log_close(found[1].sum(-1), np.ones(5))
    assert to_numpy(layer.decode(emissions))[1, 2] == 0
    paths, likelihoods = map(to_numpy, layer.n_best(emissions, 3))
    assert np.all(np.isfinite(likelihoods)) and np.all(paths[1, :, 2] == 0)
    tags = real_tags(chains)
    tags[1, 2] = 0
    assert np.all(np.isfinite(to_numpy(layer.log_likelihood(emissions, tags))))


def test_a_row_that_no_sequence_is_possible_for():
    """Tag 0 must come first, and nothing may follow it: a row has one step, or no sequence."""
    forbidden = ((None, 1), (None, 2), (0, 0), (0, 1), (0, 2))
    layer, emissions, _, _ = problem(4, 2, 4, 3, forbidden=forbidden, masked=False)
    mask = np.array([[0, 1, 1, 0], [0, 1, 0, 0]], bool)
    tags = np.zeros((2, 4), "int32")

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags, mask))

    possible = to_numpy(layer.score(emissions, tags, mask))[1]
    log_close(layer.log_partition(emissions, mask), [-np.inf, possible])
    log_close(layer.log_likelihood(emissions, tags, mask), [-np.inf, 0])
    everything = np.ones(emissions.shape, bool)
    log_close(layer.log_likelihood(emissions, everything, mask), [-np.inf, 0])
    log_close(layer.marginals(emissions, mask)[0], np.zeros((4, 3)))
    log_close(layer.marginals(emissions, mask)[1, 1], [1, 0, 0])
    paths, likelihoods = map(to_numpy, layer.n_best(emissions, 2, mask))
    np.testing.assert_allclose(likelihoods, [[-np.inf] * 2, [0, -np.inf]], atol=1e-5)
    assert not paths.any()
    assert all(np.all(np.isfinite(g)) for g in gradients_of(total, emissions, layer=layer))


def test_an_id_that_is_no_tag_has_no_probability():
    layer, emissions, mask, chains = problem(6, **PROBLEMS["masked"])
    tags = real_tags(chains)
    expected = to_numpy(layer.log_likelihood(emissions, tags, mask))
    for row, other in ((1, -1), (2, 3), (3, -100)):
        tags[row, chains[row].real[0]] = other
        expected[row] = -np.inf
    log_close(layer.log_likelihood(emissions, tags, mask), expected)
    np.testing.assert_array_equal(
        np.isneginf(to_numpy(layer.score(emissions, tags, mask))), [0, 1, 1, 1]
    )

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags, mask))

    assert all(np.all(np.isfinite(g)) for g in gradients_of(total, emissions, layer=layer))


@pytest.mark.parametrize("forbidden", [(), ((0, 2), (None, 2))])
def test_a_batch_without_rows(forbidden):
    layer = CRF(3, forbidden=forbidden, dtype=DTYPE)
    nothing, tags = np.zeros((0, 5, 3), DTYPE), np.zeros((0, 5), "int32")
    assert tuple(layer(nothing, mask=tags > 0).shape) == (0, 5, 3)
    assert tuple(layer.decode(nothing).shape) == (0, 5)
    assert tuple(layer.log_likelihood(nothing, tags).shape) == (0,)
    assert tuple(layer.log_likelihood(nothing, nothing > 0).shape) == (0,)
    paths, likelihoods = layer.n_best(nothing, 2)
    assert tuple(paths.shape) == (0, 2, 5) and tuple(likelihoods.shape) == (0, 2)


@pytest.mark.filterwarnings("error:You are using a softmax")
def test_a_single_tag_does_not_warn():
    layer = CRF(1, forbidden=[(0, None)], dtype=DTYPE)  # recursions on logarithms
    log_close(layer.marginals(np.zeros((2, 3, 1), DTYPE)), np.zeros((2, 3, 1)))


def test_what_is_masked_is_not_read():
    layer, emissions, mask, chains = problem(6, **PROBLEMS["masked"])
    tags = real_tags(chains)
    garbage = np.where(mask[..., None], emissions, np.nan).astype(DTYPE)
    log_close(layer.marginals(garbage, mask), to_numpy(layer.marginals(emissions, mask)))

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags, mask))

    assert all(np.all(np.isfinite(one)) for one in gradients_of(total, garbage, layer=layer))


def test_where_the_mask_stands_makes_no_difference():
    layer, emissions, _, _ = problem(7, 1, 4, 3, masked=False)
    tags = np.array([[2, 0, 1, 1]])
    expected = to_numpy(layer.log_likelihood(emissions, tags))
    for places in ([0, 1, 2, 3], [3, 4, 5, 6], [0, 2, 5, 6]):
        mask = np.zeros((1, 7), bool)
        mask[:, places] = True
        longer, ids = np.full((1, 7, 3), 9.0, DTYPE), np.full((1, 7), 2)
        longer[:, places], ids[:, places] = emissions, tags
        log_close(layer.log_likelihood(longer, ids, mask), expected)


def test_no_steps_and_no_scores():
    layer = CRF(3, dtype=DTYPE)
    zeros = np.zeros((2, 5, 3), DTYPE)
    tags = np.zeros((2, 5), "int32")
    log_close(layer.log_likelihood(zeros, tags), np.full(2, -5 * np.log(3)))
    log_close(layer.marginals(zeros), np.full((2, 5, 3), 1 / 3))
    nothing = np.zeros((2, 0, 3), DTYPE)
    log_close(layer.log_likelihood(nothing, np.zeros((2, 0), "int32")), np.zeros(2))
    assert tuple(layer.decode(nothing).shape) == (2, 0)
    assert tuple(layer.n_best(nothing, 2)[0].shape) == (2, 2, 0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="The others take float64 for float32")
def test_second_derivatives():
    import tensorflow as tf

    layer, emissions, mask, chains = problem(8, 2, 4, 3)
    emissions, tags = tf.constant(emissions), real_tags(chains)

    def penalty(automatic=False):
        def run():
            with tf.GradientTape() as outer:
                outer.watch(emissions)
                with tf.GradientTape() as inner:
                    inner.watch(emissions)
                    value = tf.reduce_sum(layer.log_likelihood(emissions, tags, mask) ** 2)
                total = tf.reduce_sum(inner.gradient(value, emissions) ** 2)
            return outer.gradient(total, emissions)

        if not automatic:
            return run()
        with automatic_derivatives():
            return run()

    log_close(penalty(), penalty(automatic=True).numpy())


def test_dynamic_lengths_compile():
    layer, emissions, mask, chains = problem(9, **PROBLEMS["masked"])
    arrays = {"emissions": emissions, "mask": mask, "tags": np.int32(real_tags(chains))}

    def run(tensors):
        given = tensors["emissions"], tensors["mask"]
        likelihood = layer.log_likelihood(given[0], tensors["tags"], given[1])
        return likelihood, layer.decode(*given), layer.n_best(given[0], 2, given[1])[1]

    axes = {"emissions": "BTK", "mask": "BT", "tags": "BT"}
    found = compiled(run, arrays, axes)({k: ops.convert_to_tensor(v) for k, v in arrays.items()})
    for one, other in zip(found, run(arrays), strict=True):
        log_close(one, to_numpy(other))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="XLA of TensorFlow")
def test_xla_compiles_likelihood_and_gradient():
    import tensorflow as tf

    layer, emissions, mask, chains = problem(9, **PROBLEMS["forbidden"])
    tags = real_tags(chains)
    emissions = tf.constant(emissions)

    def run():
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            value = tf.reduce_sum(layer.log_likelihood(emissions, tags, mask))
        return value, tape.gradient(value, emissions), layer.decode(emissions, mask)

    for one, other in zip(tf.function(run, jit_compile=True)(), run(), strict=True):
        log_close(one, other.numpy())


def test_a_long_sequence_keeps_its_precision():
    """The difference of two numbers of ten thousand is not taken."""
    rng = np.random.default_rng(0)
    emissions = rng.normal(size=(1, 2000, 4))
    weights = [rng.normal(size=shape) for shape in ((4, 4), (4,), (4,))]
    tags = np.int32(np.argmax(emissions, axis=-1))
    found = {}
    for dtype in ("float32", DTYPE):
        layer = CRF(4, dtype=dtype)
        layer.build((None, None, 4))
        layer.set_weights(weights)
        given = {"emissions": emissions.astype(dtype), "tags": tags}

        def likelihood(tensors, layer=layer):
            return layer.log_likelihood(tensors["emissions"], tensors["tags"])

        run = compiled(likelihood, given, {"emissions": "BTK", "tags": "BT"})
        found[dtype] = to_numpy(run({k: ops.convert_to_tensor(v) for k, v in given.items()}))
    assert found[DTYPE] < -500
    np.testing.assert_allclose(found["float32"], found[DTYPE], rtol=2e-6)


def test_as_pytorch_crf():
    """Numbers of pytorch-crf 0.7.2 for these arrays, in float64."""
    layer = CRF(4, dtype=DTYPE)
    layer.build((None, None, 4))
    places = np.arange(16.0)
    layer.set_weights(
        [np.cos(places).reshape(4, 4), np.cos(3 * places[:4]), np.cos(5 * places[:4])]
    )
    emissions = (2 * np.sin(np.arange(40.0)).reshape(2, 5, 4)).astype(DTYPE)
    tags = np.array([[0, 1, 2, 3, 1], [3, 2, 0, 0, 0]])
    mask = np.arange(5) < np.array([[5], [3]])
    found = layer.log_likelihood(emissions, tags, mask)
    log_close(found, [-11.328319251664178, -6.927486288078878])
    best = [[2, 3, 1, 3, 0], [0, 3, 0, 0, 0]]
    np.testing.assert_array_equal(to_numpy(layer.decode(emissions, mask)), best)

    def total(emissions):
        return ops.sum(layer.log_likelihood(emissions, tags, mask))

    row = [-0.32578505130915697, 0.7411442980149026, -0.31494744055974333, -0.4648976807135924]
    np.testing.assert_allclose(
        gradients_of(total, emissions, layer=layer)[0][0], row, rtol=10 * TOLERANCE
    )


def model_of_words(**options):
    return keras.Sequential(
        [
            keras.layers.Embedding(20, 16, mask_zero=True),
            keras.layers.Dense(3),
            CRF(3, **options),
        ]
    )


def words_and_tags(count=32):
    """Tags that follow from the word and the one before it."""
    words = np.random.default_rng(0).integers(1, 20, (count, 6))
    tags = (words + np.roll(words, 1, axis=1)) % 3
    words[: count // 4, 4:] = 0
    return words, tags


def test_fit_on_ids_and_reload(tmp_path):
    words, tags = words_and_tags()
    model = model_of_words()
    # A few steps take less than tracing one.
    eagerly = {"run_eagerly": BACKEND == "tensorflow"}
    model.compile(keras.optimizers.Adam(0.05), CRFLoss(), metrics=["accuracy"], **eagerly)
    history = model.fit(words, tags, epochs=6, batch_size=16, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    loss = model.evaluate(words, tags, verbose=0)[0]
    emissions = keras.Model(model.inputs[0], model.layers[-2].output)(words)
    expected = model.layers[-1].log_likelihood(emissions, tags, words > 0)
    np.testing.assert_allclose(loss, -np.mean(to_numpy(expected)), rtol=1e-4)
    np.testing.assert_allclose(model.predict(words, verbose=0).sum(-1), words > 0, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is CRFLoss
    loaded.run_eagerly = eagerly["run_eagerly"]
    np.testing.assert_allclose(loaded.evaluate(words, tags, verbose=0)[0], loss, rtol=1e-5)
    loaded.compile(keras.optimizers.Adam(0.05), CRFLoss(), **eagerly)
    loaded.fit(words, tags, verbose=0)


def test_sample_weights_and_sets_in_the_loss():
    words, tags = words_and_tags(4)
    model = model_of_words()
    outputs = model(words)
    values = to_numpy(CRFLoss(reduction="none")(tags, outputs))
    weights = np.array([2.0, 0.0, 1.0, 0.5], "float32")
    np.testing.assert_allclose(
        to_numpy(CRFLoss(reduction="sum")(tags, outputs, weights)), values @ weights, rtol=1e-5
    )
    one_hot = np.eye(3)[tags]
    np.testing.assert_allclose(
        to_numpy(CRFLoss(reduction="none")(one_hot, outputs)), values, rtol=1e-4
    )
    with pytest.raises(ValueError, match="one value a sequence.*Received: sample_weight of shape"):
        CRFLoss()(tags, outputs, np.ones((4, 6)))
    with pytest.raises(ValueError, match="tag ids .batch, steps.*Received: y_true"):
        CRFLoss()(tags[:, 0], outputs)


def test_a_forbidden_sequence_without_weight_costs_nothing():
    words, tags = words_and_tags(2)
    model = model_of_words(forbidden=[(None, 2)])
    tags[:, 0] = [2, 1]
    outputs = model(words)
    assert np.isinf(to_numpy(CRFLoss()(tags, outputs)))
    assert np.isfinite(to_numpy(CRFLoss()(tags, outputs, np.array([0.0, 1.0]))))


def test_the_loss_needs_the_outputs_of_the_layer():
    with pytest.raises(ValueError, match="outputs of a CRF layer as they are.*without a chain"):
        CRFLoss()(np.zeros((2, 5), "int32"), np.full((2, 5, 3), 0.3, "float32"))


def test_tags_beside_the_probabilities():
    layer = CRF(3)
    emissions = keras.Input((None, 3))
    model = keras.Model(emissions, layer(emissions, return_tags=True))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    probabilities, tags = model(x)
    np.testing.assert_array_equal(to_numpy(tags), to_numpy(layer.decode(x)))
    np.testing.assert_allclose(to_numpy(probabilities), to_numpy(layer.marginals(x)), atol=1e-6)


def test_shapes_that_do_not_fit():
    layer = CRF(3)
    x = np.zeros((2, 5, 3), "float32")
    with pytest.raises(ValueError, match="a score for each of 3 tags.*Received"):
        layer.decode(np.zeros((2, 5, 4), "float32"))
    with pytest.raises(ValueError, match="`tags` must have the shape.*Received"):
        layer.log_likelihood(x, np.zeros((2, 4), "int32"))
    with pytest.raises(ValueError, match="`tags` must have the shape.*Received"):
        layer.score(x, np.ones((2, 5, 3), "int32"))
    with pytest.raises(ValueError, match="ids of tags.*numbers. Received: tags of dtype <U"):
        layer.log_likelihood(x, [["B-X"] * 5] * 2)
    with pytest.raises(ValueError, match="ids of tags.*numbers. Received: y_true of dtype <U"):
        CRFLoss()(np.array([["B-X"] * 5] * 2), layer(x))
    with pytest.raises(ValueError, match="`n` must be a positive integer"):
        layer.n_best(x, 0)


def test_schemes():
    assert forbidden_transitions(["O", "B-A", "I-A", "B-B"], "IOB2") == [(0, 2), (3, 2), (None, 2)]
    tags = ["O", "B-A", "I-A", "E-A", "S-A", "B-B"]
    found = set(forbidden_transitions(tags, "BIOES"))
    assert {(0, 2), (0, 3), (1, 0), (1, 4), (1, 5), (2, None), (1, None), (None, 3)} <= found
    assert not found & {(1, 2), (1, 3), (2, 3), (3, 0), (4, 1), (3, 5), (4, None), (None, 4)}
    with pytest.raises(ValueError, match="`scheme` must be one of"):
        forbidden_transitions(tags, "BILOU")
    with pytest.raises(ValueError, match="Received: 'E-A'"):
        forbidden_transitions(tags, "BIO")
    for names in ("BIO", ["O", "O"], [0, 1], None):
        with pytest.raises(ValueError, match="a list of the names of the tags, each once"):
            CRF.from_tags(names)


def test_forbidden_pairs():
    assert CRF(3, forbidden=np.array([[0, 2]])).forbidden == [[0, 2]]
    for given in (None, "ab", 5):
        with pytest.raises(ValueError, match="a sequence of pairs"):
            CRF(3, forbidden=given)
    with pytest.raises(ValueError, match="pairs of ids from 0 to 2"):
        CRF(3, forbidden=(0, 1))


def test_how_many_steps_open_all_ways():
    assert functions.Constraints(4).depth == 1
    assert functions.Constraints(5, tuple(forbidden_transitions(BIO))).depth == 2
    assert functions.Constraints(3, ((1, 0), (2, 0), (2, 1))).depth is None
