"""The translation models against float64 oracles, and their contract with training and search."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attention import LocalAttention, LuongAttention
from keras_attention.applications.text import END_ID
from keras_attention.applications.translation import Luong, RNNEncDec, RNNSearch, Transformer
from keras_attention.applications.translation.networks.layers import (
    BidirectionalEncoder,
    StackedEncoder,
)
from keras_attention.applications.translation.search import search
from keras_attention.decoding import SearchOptions
from tests.applications.translation_runs import randomize
from tests.attention_oracle import softmax
from tests.docs_examples import run_fences

B, S, T, SOURCE, TARGET, E, U, A, R = 3, 5, 4, 23, 29, 7, 11, 13, 5
SIZES = {"embedding_size": E, "units": U}
BLOCKS = {"embedding_size": 8, "layers": 2, "feed_forward_size": U, "heads": 2}


def stacked():
    return keras.layers.StackedRNNCells([keras.layers.GRUCell(U), keras.layers.LSTMCell(U)])


MODELS = {
    "rnnsearch": lambda: RNNSearch(SOURCE, TARGET, attention_units=A, readout_size=R, **SIZES),
    "rnnsearch-tied": lambda: RNNSearch(SOURCE, TARGET, tie_embeddings=True, **SIZES),
    "rnnencdec": lambda: RNNEncDec(SOURCE, TARGET, readout_size=R, **SIZES),
    "rnnsearch-lstm": lambda: RNNSearch(
        SOURCE, TARGET, attention=LuongAttention("general"), cell=keras.layers.LSTMCell(U), **SIZES
    ),
    "rnnsearch-stacked": lambda: RNNSearch(
        SOURCE, TARGET, cell=stacked(), encoder=keras.layers.GRU(9, return_sequences=True), **SIZES
    ),
    "luong-dot": lambda: Luong(SOURCE, TARGET, layers=1, attention=LuongAttention("dot"), **SIZES),
    "luong-general-2": lambda: Luong(SOURCE, TARGET, layers=2, readout_size=R, **SIZES),
    "luong-reversed": lambda: Luong(
        SOURCE, TARGET, layers=2, readout_size=R, reverse_source=True, **SIZES
    ),
    "luong-gru": lambda: Luong(
        SOURCE,
        TARGET,
        cell=keras.layers.GRUCell(U),
        encoder=keras.layers.GRU(U, return_sequences=True, return_state=True),
        **SIZES,
    ),
    "luong-none": lambda: Luong(SOURCE, TARGET, layers=2, readout_size=R, attention=False, **SIZES),
    "luong-concat": lambda: Luong(
        SOURCE,
        TARGET,
        layers=1,
        attention=LuongAttention("concat", units=A),
        input_feeding=False,
        **SIZES,
    ),
    "luong-location": lambda: Luong(
        SOURCE, TARGET, layers=1, attention=LuongAttention("location", max_length=S), **SIZES
    ),
    "luong-local-m": lambda: Luong(
        SOURCE, TARGET, layers=1, attention=LocalAttention(2, alignment="monotonic"), **SIZES
    ),
    "luong-local-p": lambda: Luong(
        SOURCE,
        TARGET,
        layers=1,
        attention=LocalAttention(2, alignment="predictive", units=A),
        **SIZES,
    ),
    "transformer": lambda: Transformer(SOURCE, TARGET, **BLOCKS),
    "transformer-pre-rotary": lambda: Transformer(
        SOURCE,
        TARGET,
        norm="pre",
        positions="rotary",
        activation="swiglu",
        decoder_layers=1,
        **BLOCKS,
    ),
    "transformer-ssru": lambda: Transformer(SOURCE, TARGET, autoregression="ssru", **BLOCKS),
}


# The contracts of layers test each attention: here one of each kind is a default test.
SLOW = {"rnnsearch-lstm", "luong-dot", "luong-reversed", "luong-location", "luong-local-m"}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MODELS],
)
def model(request):
    built = MODELS[request.param]()
    randomize(built)
    return built


@pytest.fixture(scope="module")
def ids():
    random = np.random.default_rng(5)
    source = random.integers(4, SOURCE, (B, S)).astype("int32")
    source[1, 3:] = 0
    source[2, 1:] = 0
    target = random.integers(4, TARGET, (B, T)).astype("int32")
    target[:, 0] = 2
    return source, target


def run(model, source, target):
    return np.asarray(model({"source": source, "target": target}))


@pytest.fixture(scope="module")
def whole(model, ids):
    """The logits of whole sequences."""
    return run(model, *ids)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weights(model) -> dict:
    """Weights in float64 by the end of their paths."""
    return {v.path.split("/", 1)[1]: np.asarray(v, np.float64) for v in model.trainable_variables}


def gru(x, h, gates, candidate):
    """One step of a GRU on projected inputs, gates in Keras' order z, r, candidate."""
    z = sigmoid(x[:U] + h @ gates[:, :U])
    r = sigmoid(x[U : 2 * U] + h @ gates[:, U:])
    return z * h + (1 - z) * np.tanh(x[2 * U :] + (r * h) @ candidate)


def encode(w, source):
    """Annotations of the words of one sentence, by the bidirectional encoder."""
    words = w["source_embedding/embeddings"][source[source > 0]]
    projected = words @ w["encoder/projection/kernel"] + w["encoder/projection/bias"]
    states = {"forward": [], "backward": []}
    for name, order in (("forward", range(len(words))), ("backward", range(len(words))[::-1])):
        half = slice(0, 3 * U) if name == "forward" else slice(3 * U, None)
        kernels = [
            next(w[k] for k in w if f"encoder/{name}/" in k and k.endswith(kind))
            for kind in ("gate_kernel", "candidate_kernel")
        ]
        h = np.zeros(U)
        for s in order:
            h = gru(projected[s, half], h, *kernels)
            states[name].append(h)
    return np.concatenate([states["forward"], states["backward"][::-1]], axis=1)


def dense(w, name, x):
    return x @ w[f"{name}/kernel"] + w.get(f"{name}/bias", 0)


def maxout_logits(w, *parts):
    sums = dense(w, "readout", np.concatenate(parts))
    return dense(w, "word_logits", np.maximum(sums[0::2], sums[1::2]))


def one(w, *endings):
    """The one weight whose path ends so."""
    found = [value for path, value in w.items() if any(path.endswith(end) for end in endings)]
    assert len(found) == 1, (endings, list(w))
    return found[0]


def test_rnnsearch_is_the_papers(ids):
    model = MODELS["rnnsearch"]()
    randomize(model)
    source, target = ids
    logits, scores = (np.asarray(x) for x in model.score(source, target))
    w = weights(model)
    kernel, bias = one(w, "decoder/cell/kernel"), one(w, "decoder/cell/bias")
    recurrent = one(w, "decoder/cell/recurrent_kernel")
    for b in range(B):
        annotations = encode(w, source[b])
        s = np.tanh(dense(w, "first_state", annotations[0, U:]))
        for t in range(T):
            y = w["target_embedding/embeddings"][target[b, t]]
            hidden = np.tanh(s @ one(w, "query_kernel") + annotations @ one(w, "key_kernel"))
            a = softmax(hidden @ one(w, "score_vector"))
            c = a @ annotations
            np.testing.assert_allclose(logits[b, t], maxout_logits(w, s, y, c), atol=2e-4)
            np.testing.assert_allclose(scores[b, t], np.pad(a, (0, S - len(a))), atol=2e-5)
            x = np.concatenate([y, c]) @ kernel + bias
            s = gru(x, s, recurrent[:, : 2 * U], recurrent[:, 2 * U :])


def test_rnnencdec_is_the_papers(ids):
    model = MODELS["rnnencdec"]()
    randomize(model)
    source, target = ids
    logits = run(model, source, target)
    w = weights(model)
    gates = next(w[k] for k in w if k.startswith("decoder") and k.endswith("gate_kernel"))
    candidate = next(w[k] for k in w if k.startswith("decoder") and k.endswith("candidate_kernel"))
    for b in range(B):
        annotations = encode(w, source[b])
        ends = np.concatenate([annotations[-1, :U], annotations[0, U:]])
        c = np.tanh(dense(w, "sentence", ends))
        s = np.tanh(dense(w, "first_state", c))
        for t in range(T):
            y = w["target_embedding/embeddings"][target[b, t]]
            x = dense(w, "word_projection", y) + dense(w, "sentence_projection", c)
            s = gru(x, s, gates, candidate)
            np.testing.assert_allclose(logits[b, t], maxout_logits(w, s, y, c), atol=2e-4)
    assert model.score(source, target)[1] is None


def lstm(x, h, c, kernel, recurrent, bias):
    i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("kind", ["general-2", "reversed", "none"])
def test_luong_is_the_papers(ids, kind):
    model = MODELS[f"luong-{kind}"]()
    randomize(model)
    source, target = ids
    logits, scores = model.score(source, target)
    assert (scores is None) == (kind == "none")
    w = weights(model)
    below = [np.asarray(v, np.float64) for layer in model.encoder.stack for v in layer.weights]
    above = [np.asarray(v, np.float64) for cell in model.decoder.cell.cells for v in cell.weights]
    score_kernel = np.asarray(getattr(model.decoder.attention, "score_kernel", 0), np.float64)
    attentional_kernel = np.asarray(model.decoder.attentional_kernel, np.float64)
    for b in range(B):
        h, c = np.zeros((2, U)), np.zeros((2, U))
        annotations = []
        words = source[b][source[b] > 0]
        for word in words[::-1] if kind == "reversed" else words:
            x = w["source_embedding/embeddings"][word]
            for layer in range(2):
                h[layer], c[layer] = lstm(x, h[layer], c[layer], *below[3 * layer : 3 * layer + 3])
                x = h[layer].copy()
            annotations.append(x)
        annotations = np.array(annotations[::-1] if kind == "reversed" else annotations)
        attentional = np.zeros(R)
        for t in range(T):
            x = np.concatenate([w["target_embedding/embeddings"][target[b, t]], attentional])
            for layer in range(2):
                h[layer], c[layer] = lstm(x, h[layer], c[layer], *above[3 * layer : 3 * layer + 3])
                x = h[layer].copy()
            a = np.zeros(len(words))
            if kind != "none":
                a = softmax(annotations @ (x @ score_kernel))
            attentional = np.tanh(np.concatenate([a @ annotations, x]) @ attentional_kernel)
            expected = dense(w, "word_logits", attentional)
            np.testing.assert_allclose(logits[b, t], expected, atol=2e-4)
            if kind != "none":
                np.testing.assert_allclose(scores[b, t], np.pad(a, (0, S - len(a))), atol=2e-5)


def test_encoder_gives_what_keras_gru_gives():
    encoder = BidirectionalEncoder(U)
    x = np.random.default_rng(1).normal(size=(B, S, E)).astype("float32")
    mask = np.array([[1] * 5, [1, 1, 1, 0, 0], [0] * 5], bool)
    encoder(x, mask=mask)
    randomize(encoder)
    annotations, last, first = (np.asarray(y) for y in encoder(x, mask=mask))
    for index, layer in enumerate((encoder.forward_layer, encoder.backward_layer)):
        stock = keras.layers.GRU(
            U, reset_after=False, return_sequences=True, return_state=True, go_backwards=index
        )
        stock.build(x.shape)
        columns = slice(3 * U * index, 3 * U * (index + 1))
        kernel, bias = (np.asarray(v)[..., columns] for v in encoder.projection.weights)
        gates, candidate = map(np.asarray, layer.cell.weights)
        stock.set_weights([kernel, np.concatenate([gates, candidate], axis=1), bias])
        outputs, state = (np.asarray(y) for y in stock(x, mask=mask))
        outputs = outputs[:, ::-1] if index else outputs
        ours = annotations[..., U * index : U * (index + 1)]
        np.testing.assert_allclose(ours[mask], outputs[mask], atol=1e-5)
        np.testing.assert_allclose((last, first)[index], state, atol=1e-5)
        assert not np.any(ours[2]) and not np.any((last, first)[index][2])


@pytest.mark.by_default("transformer", "transformer-ssru", "rnnsearch", "luong-general-2")
def test_steps_give_what_the_whole_sequence_gives(model, ids, whole):
    source, target = ids
    logits, scores = model.score(source, target)
    np.testing.assert_allclose(np.asarray(logits), whole, atol=1e-5)
    state = model.start(source)
    assert all(leaf.shape[0] == B for leaf in keras.tree.flatten(state))
    for t in range(T):
        step_logits, state = model.step(target[:, t], state, t)
        np.testing.assert_allclose(np.asarray(step_logits), np.asarray(logits)[:, t], atol=2e-4)
        if model.has_attention:
            weights = np.asarray(state["attention_scores"])
            np.testing.assert_allclose(weights, np.asarray(scores)[:, t], atol=2e-5)


def test_padding_changes_nothing_and_the_source_is_read(model, ids, whole):
    source, target = ids
    other = np.where(source == 0, 0, 4 + (source - 3) % (SOURCE - 4)).astype("int32")
    sources, targets = np.concatenate([source, other]), np.concatenate([target, target])
    wider = run(model, np.pad(sources, ((0, 0), (0, 2))), np.pad(targets, ((0, 0), (0, 1))))
    np.testing.assert_allclose(wider[:B, :T], whole, atol=2e-4)
    assert np.abs(wider[B:, :T] - whole).max() > 1e-2
    alone = run(model, source[1:2, :3], target[1:2])
    np.testing.assert_allclose(alone, whole[1:2], atol=2e-4)
    assert np.abs(whole - whole[:, :1]).max() > 0.1  # the comparison could fail


def test_a_row_of_padding_is_finite(model, ids):
    source, target = (np.pad(x, ((0, 1), (0, 0))) for x in ids)
    with tf.GradientTape() as tape:
        logits = model({"source": source, "target": target}, training=True)
        loss = tf.reduce_mean(tf.square(logits))
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    assert np.all(np.isfinite(np.asarray(logits)))
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert gradient is not None, variable.path
        gradient = np.asarray(tf.convert_to_tensor(gradient))
        assert np.all(np.isfinite(gradient)) and np.any(gradient), variable.path


def test_reloads_without_custom_objects(model, ids, whole, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    np.testing.assert_array_equal(run(loaded, *ids), whole)


@pytest.mark.parametrize("kind", [RNNSearch, RNNEncDec, Luong, Transformer])
def test_config_covers_every_argument(kind):
    names = set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
    sizes = BLOCKS if kind is Transformer else SIZES
    assert names <= set(kind(SOURCE, TARGET, **sizes).get_config())


@pytest.mark.by_default("rnnsearch", "luong-local-p")
def test_one_trace_serves_all_shapes(model):
    traces = []
    spec = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[spec, spec])
    def logits(source, target):
        traces.append(1)
        return model({"source": source, "target": target})

    for rows, sources, targets in ((1, 2, 3), (5, 3, 2)):
        ids = np.ones((rows, sources), "int32"), np.ones((rows, targets), "int32")
        found = logits(*ids)
        assert found.shape == (rows, targets, TARGET)
        np.testing.assert_allclose(np.asarray(found), run(model, *ids), atol=2e-4)
    assert len(traces) == 1


@pytest.mark.by_default("Transformer", "RNNSearch")
@pytest.mark.parametrize("kind", [RNNSearch, RNNEncDec, Luong, Transformer])
def test_dropout_acts_in_training_only(kind, ids):
    extra = {"layers": 2} if kind is Luong else {}
    model = kind(SOURCE, TARGET, dropout=0.4, **(BLOCKS if kind is Transformer else SIZES), **extra)
    randomize(model)
    inputs = dict(zip(("source", "target"), ids, strict=True))
    first, second = (np.asarray(model(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-2
    np.testing.assert_array_equal(run(model, *ids), run(model, *ids))


def test_tied_embeddings_are_the_output_matrix(ids):
    model = MODELS["rnnsearch-tied"]()
    randomize(model)
    shapes = [tuple(v.shape) for v in model.trainable_variables]
    assert shapes.count((TARGET, E)) == 1 and (E, TARGET) not in shapes
    features, _ = model.decode(*ids)
    table = np.asarray(model.target_embedding.embeddings)
    expected = np.asarray(features) @ table.T + np.asarray(model.word_logits.bias)
    np.testing.assert_allclose(run(model, *ids), expected, atol=1e-4)


def test_mixed_precision_stays_close(ids):
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    half = RNNSearch(SOURCE, TARGET, dtype=policy, **SIZES)
    full = RNNSearch(SOURCE, TARGET, **SIZES)
    full.set_weights(half.get_weights())
    logits = half({"source": ids[0], "target": ids[1]})
    assert keras.backend.standardize_dtype(logits.dtype) == "bfloat16"
    np.testing.assert_allclose(
        np.asarray(keras.ops.cast(logits, "float32")), run(full, *ids), atol=0.05
    )


def test_stacked_encoder_hands_over_the_states_of_the_last_words():
    encoder = StackedEncoder(U, layers=2)
    x = np.random.default_rng(2).normal(size=(B, S, E)).astype("float32")
    mask = np.arange(S) < np.array([5, 3, 1])[:, None]
    outputs, states = encoder(x, mask=mask)
    assert len(states) == 4
    last = np.asarray(outputs)[np.arange(B), mask.sum(1) - 1]
    np.testing.assert_allclose(np.asarray(states[2]), last, atol=1e-6)


@pytest.mark.parametrize("kind", [RNNSearch, Transformer])
def test_the_example_of_the_docstring_runs(kind):
    assert run_fences(inspect.getdoc(kind), kind.__name__) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "shared_keys"),
    [
        ({"positions": "sinusoidal"}, {"memory", "decoder"}),
        ({"positions": "rotary"}, {"memory", "decoder"}),
        ({"autoregression": "ssru"}, {"memory"}),
    ],
)
def test_hypotheses_that_share_memory_and_caches_find_the_same(option, shared_keys):
    sizes = {"embedding_size": 12, "layers": 2, "feed_forward_size": 17, "heads": 3}
    model = Transformer(31, 37, **option, **sizes)
    rng = np.random.default_rng(11)
    for weight in model.weights:  # larger than they start: the hypotheses differ
        weight.assign(weight + 0.4 * rng.normal(size=weight.shape))
    model.word_logits.bias.assign(np.where(np.arange(37) == END_ID, 4.0, 0.0))
    source = rng.integers(4, 31, (5, 7)).astype("int32")
    source[np.arange(7) >= rng.integers(3, 8, (5, 1))] = 0
    options = SearchOptions(beam_size=4, n_best=3, max_length=12, max_length_ratio=None)
    options = options.replace(coverage_penalty=0.2)
    assert set(model.sentence_keys) == shared_keys
    shared = search(model, source, options)
    model.sentence_keys = ()
    for ours, theirs in zip(shared, search(model, source, options), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-3, atol=1e-5)
    assert len(np.unique(np.asarray(shared.lengths))) > 1


@pytest.mark.parametrize("layers", [1, 2])
def test_what_luong_attends_to_differs_from_the_start(layers):
    """From Keras' own start of embeddings two LSTMs leave a deviation of 0.003 (ADR 16)."""
    keras.utils.set_random_seed(5)
    ids = np.random.default_rng(5).integers(4, 500, (7, 13))

    def deviation(**options):
        model = Luong(500, 500, embedding_size=128, units=128, layers=layers, **options)
        return float(np.std(model.encode(ids)[0]))

    assert deviation() > 0.03
    small = keras.initializers.RandomUniform(-0.05, 0.05)
    assert deviation(embeddings_initializer=small) < 0.01


@pytest.mark.parametrize("name", ["rnnsearch", "rnnencdec", "luong-dot", "transformer"])
def test_source_and_target_embeddings_start_apart(name):
    model = MODELS[name]()
    source, target = (
        np.asarray(each.embeddings) for each in (model.source_embedding, model.target_embedding)
    )
    rows = min(len(source), len(target))
    assert not np.any(source[:rows] == target[:rows])


def source_end(positions="sinusoidal", **options):
    model = Transformer(SOURCE, TARGET, positions=positions, source_end=True, **BLOCKS, **options)
    randomize(model)
    return model


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "relative"])
def test_the_end_token_after_a_source_is_read_at_its_own_position(positions):
    """As if it were a word of the source, whatever padding follows; its weights are left out."""
    model = source_end(positions)
    plain = Transformer(SOURCE, TARGET, positions=positions, **BLOCKS)
    plain.set_weights(model.get_weights())
    source = np.array([[5, 9, 0, 0, 0], [7, 4, 8, 11, 6]])
    target = np.array([[2, 5, 6], [2, 7, 0]])
    logits, scores = model.score(source, target)
    maps = model.attention_maps(source, target)
    assert tuple(scores.shape) == (2, 3, 5)
    for row, length in enumerate((2, 5)):
        ended = np.append(source[row, :length], END_ID)[None]
        wanted, weights = plain.score(ended, target[row : row + 1])
        np.testing.assert_allclose(logits[row], wanted[0], atol=2e-5)
        np.testing.assert_allclose(scores[row, :, :length], weights[0, :, :-1], atol=1e-6)
        assert not np.any(scores[row, :, length:])
        for name, each in plain.attention_maps(ended, target[row : row + 1]).items():
            kept = maps[name][row]
            if name == "encoder self-attention":
                assert kept.shape[-2:] == (5, 5)
                kept, each = kept[..., :length, :length], each[..., :-1, :-1]
            elif name == "cross-attention":
                kept, each = kept[..., :length], each[..., :-1]
            np.testing.assert_allclose(kept, each[0], atol=2e-6)
        assert not np.any(maps["encoder self-attention"][row, ..., length:])


def test_a_search_reads_the_end_of_the_source_in_any_padding():
    model = source_end(sinusoids={"layout": "halves"}, activation="swish", layer_norm_epsilon=0.1)
    model = Transformer.from_config(model.get_config())
    randomize(model)
    sources = np.array([[5, 9, 0, 0], [7, 4, 8, 11]])
    options = SearchOptions(beam_size=2, max_length=6)
    found = search(model, sources, options)
    for row, length in enumerate((2, 4)):
        alone = search(model, sources[row : row + 1, :length], options)
        size = alone.tokens.shape[2]
        np.testing.assert_array_equal(found.tokens[row, :, :size], alone.tokens[0])
        np.testing.assert_allclose(found.scores[row], alone.scores[0], rtol=1e-5)
        attention = found.attention[row, 0, :size, :length]
        np.testing.assert_allclose(attention, alone.attention[0, 0], atol=1e-5)


def test_sinusoids_go_with_sinusoidal_positions_only():
    with pytest.raises(ValueError, match="`sinusoids` goes with positions='sinusoidal' only"):
        Transformer(SOURCE, TARGET, positions="rotary", sinusoids={"layout": "halves"}, **BLOCKS)
