"""The Transformer's blocks, beyond what the contract registry checks of every layer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import MultiHeadAttention, TransformerDecoder, TransformerEncoder
from keras_attention.layers.transformer.encoder import PackedDropout
from keras_attention.ops.dropout import dropout_factors
from tests.contracts.backend import BACKEND, to_numpy

B, T, S, D, F, H = 2, 5, 7, 12, 17, 3
OPTIONS = {
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative", "norm": "pre"},
    "grouped": {"num_key_value_heads": 1},
    "window": {"window": 2, "num_sinks": 1},
    "entmax": {"normalizer": "entmax15", "query_key_norm": True},
    "geglu": {"activation": "geglu", "use_bias": False, "norm": "pre"},
    "sink-logits": {"sink_logits": True},
    "forget": {"use_forget_gate": True},
}


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def close(first, second, atol):
    return np.allclose(to_numpy(first), to_numpy(second), rtol=1e-7, atol=atol)


def assert_close(first, second, atol):
    np.testing.assert_allclose(to_numpy(first), to_numpy(second), atol=atol)


def randomise(layer, seed=1):
    generator = np.random.default_rng(seed)
    for weight in layer.trainable_variables:
        weight.assign(generator.normal(0, 0.5, weight.shape))
    return layer


def decoder(memory=True, **options):
    block = TransformerDecoder(F, H, **options)
    block.build((None, None, D), *([(None, None, D)] if memory else []))
    return randomise(block)


def compiled_step(block, jit_compile=False):
    """A step whose place is known only when it runs, as in the loop of a search."""
    if BACKEND == "jax":
        import jax

        return jax.jit(block.step)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(block.step, jit_compile=jit_compile)
    return block.step


# All options, in as few compiled steps as they go together in.
TOGETHER = [
    ("rotary", "grouped", "geglu", "forget"),
    ("alibi", "entmax"),
    ("relative", "window", "sink-logits"),
]


@pytest.mark.parametrize("names", TOGETHER, ids="-".join)
def test_steps_over_a_cache_give_what_the_call_gives(names):
    block = decoder(**{k: v for name in names for k, v in OPTIONS[name].items()})
    x, value = random(B, T, D), random(B, S, D, seed=2)
    mask = np.arange(S) < np.array([S, 3])[:, None]
    expected, scores = block(x, value, value_mask=mask, return_attention_scores=True)
    memory, state = block.prepare_memory(value, mask), block.initial_state(B, T + 2)
    step = compiled_step(block)
    for t in range(T):
        output, weights, state = step(x[:, t], memory, state, ops.convert_to_tensor(t))
        assert_close(output, expected[:, t], atol=2e-5)
        own = to_numpy(weights["self_attention"])
        assert_close(own[..., :T], scores["self_attention"][:, :, t], atol=1e-5)
        assert not own[..., t + 1 :].any()
        crossed = scores["cross_attention"][:, :, t]
        assert_close(weights["cross_attention"], crossed, atol=1e-5)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_reach_the_attention(name):
    options = OPTIONS[name]
    plain, block = decoder(False), decoder(False, **options)
    for option, value in options.items():
        attribute = MultiHeadAttention.attribute_of.get(option, option)
        if hasattr(block.self_attention, attribute):
            assert getattr(block.self_attention, attribute) == value
    x = random(B, T, D)
    assert block(x).shape == (B, T, D)
    if block.count_params() == plain.count_params():
        block.set_weights(plain.get_weights())
        assert not close(block(x), plain(x), atol=1e-3)


@pytest.mark.parametrize("kind", ["self-attention", "ssru"])
def test_every_bias_has_the_initializer_of_biases(kind):
    layer = TransformerDecoder(F, H, autoregression=kind, bias_initializer="ones")
    layer.build((B, T, D), (B, S, D))
    biases = [each for each in layer.weights if each.name.endswith("bias")]
    assert any(kind.replace("-", "_") in each.path for each in biases)
    assert all(np.all(ops.convert_to_numpy(each) == 1) for each in biases)


def test_cross_attention_knows_no_positions_and_no_window():
    own = {"positions": "rotary", "window": 1, "use_forget_gate": True}
    block = decoder(**own, normalizer="sparsemax")
    cross = block.cross_attention
    assert (cross.positions, cross.window, cross.normalizer) == (None, None, "sparsemax")
    assert not cross.use_forget_gate and decoder(sink_logits=True).cross_attention.use_sink_logits
    x, value, order = random(B, T, D), random(B, S, D, seed=2), np.random.permutation(S)
    assert_close(block(x, value), block(x, value[:, order]), atol=1e-5)


def test_a_language_model_steps_without_a_memory():
    block, x = decoder(memory=False, norm="pre"), random(B, T, D)
    expected, state = block(x), block.initial_state(B, T)
    for t in range(T):
        output, scores, state = block.step(x[:, t], block.prepare_memory(), state, t)
        assert_close(output, expected[:, t], atol=2e-5)
        assert list(scores) == ["self_attention"]


def test_nothing_of_the_future_is_seen():
    block = decoder()
    x, value = random(B, T, D), random(B, S, D, seed=2)
    before = to_numpy(block(x, value))
    later = x.copy()
    later[:, 3] += 5.0
    after = to_numpy(block(later, value))
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-6)
    assert np.abs(after[:, 3:] - before[:, 3:]).min(axis=(0, 2)).max() > 1e-3


def test_keys_of_the_memory_are_projected_once(monkeypatch):
    block, calls = decoder(), []
    project = MultiHeadAttention._project

    def counted(layer, inputs, *names):
        calls.append((layer.name, inputs.shape[1], names))
        return project(layer, inputs, *names)

    monkeypatch.setattr(MultiHeadAttention, "_project", counted)
    memory, state = block.prepare_memory(random(B, S, D)), block.initial_state(B, 4)
    for t in range(4):
        _, _, state = block.step(random(B, D, seed=t), memory, state, t)
    read = [names for name, steps, names in calls if name == "cross_attention" and steps == S]
    assert sorted(sum(read, ())) == ["key", "value"]


def test_dropout_acts_in_training_only_and_attention_has_its_own_rate():
    x = random(B, T, D)
    block = randomise_built(TransformerEncoder(F, H, dropout=0.5, attention_dropout=0.0, seed=1))
    assert block.self_attention.dropout == 0.0
    assert_close(block(x), block(x, training=False), atol=0)
    assert not close(block(x, training=True), block(x), atol=1e-2)
    assert TransformerEncoder(F, H, dropout=0.5).dropout == 0.5
    same = randomise_built(TransformerEncoder(F, H, dropout=0.5, seed=1))
    assert same.self_attention.dropout == 0.5


def randomise_built(block):
    block.build((None, None, D))
    return randomise(block)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.75])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    kinds = {"kernel_initializer": "zeros", "bias_initializer": "ones", "norm": "pre"}
    block = TransformerEncoder(F, 2, dropout=rate, attention_dropout=0.0, seed=3, **kinds)
    inputs = random(11, 13, 16)
    # Each of the two sublayers gives ones, of which some are dropped.
    added = to_numpy(block(inputs, training=True)) - inputs
    kept = added * (1 - rate)
    np.testing.assert_allclose(kept, np.round(kept), atol=0.01)
    shares = [np.mean(np.round(kept) == count) for count in (0, 1, 2)]
    expected = [rate**2, 2 * rate * (1 - rate), (1 - rate) ** 2]
    np.testing.assert_allclose(shares, expected, atol=0.05)
    assert_close(block(inputs), inputs + 2, 1e-5)


def test_masks_come_with_the_inputs_or_by_name():
    ids = np.array([[4, 5, 6, 0, 0], [7, 8, 9, 3, 2]])
    embedding = keras.layers.Embedding(11, D, mask_zero=True)
    encoder, block = randomise_built(TransformerEncoder(F, H)), decoder()
    words = embedding(ids)
    memory = encoder(words)
    implicit = block(embedding(ids), memory)
    x = ops.convert_to_tensor(to_numpy(words))  # without the mask that it carries
    explicit = block(x, encoder(x, inputs_mask=ids > 0), inputs_mask=ids > 0, value_mask=ids > 0)
    assert_close(implicit, explicit, atol=1e-6)
    other = block(x, encoder(x), inputs_mask=ids > 0, value_mask=np.ones_like(ids, bool))
    assert not close(implicit, other, atol=1e-3)


@pytest.mark.slow
def test_a_stack_trains_by_model_add_and_reloads(tmp_path):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Embedding(13, D, mask_zero=True),
            TransformerDecoder(F, H, positions="rotary"),
            TransformerDecoder(F, H, positions="rotary", norm="pre"),
            keras.layers.Dense(13),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    ids = np.random.default_rng(2).integers(1, 13, (16, 6))
    # To repeat the word before, a block must look one place back.
    history = model.fit(ids, np.roll(ids, 1, axis=1), epochs=30, batch_size=16, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_close(again(ids), model(ids), atol=1e-6)


def test_wrong_calls_are_refused():
    x, value = random(B, T, D), random(B, S, D)
    with pytest.raises(ValueError, match="`num_heads` must divide the width.*num_heads=5"):
        TransformerEncoder(F, 5)(x)
    with pytest.raises(ValueError, match="built without a memory.*value="):
        decoder(memory=False)(x, value)
    with pytest.raises(ValueError, match="built with a memory.*value=None"):
        decoder()(x)
    with pytest.raises(ValueError, match="a value of 12 features. Received: value of shape"):
        decoder()(x, random(B, S, D + 1))
    with pytest.raises(ValueError, match="`value_mask` belongs to a memory.*value=None"):
        decoder(memory=False)(x, value_mask=np.ones((B, S), bool))
    for wrong in (value[:1], keras.Input((S, D), batch_size=B + 1)):
        given = x if wrong.shape[0] == 1 else keras.Input((T, D), batch_size=B)
        with pytest.raises(ValueError, match="inputs, value must have the same batch size"):
            decoder()(given, wrong)
    with pytest.raises(ValueError, match="of inputs, .* of value. Received: inputs of shape"):
        decoder()(x, value[:, 0])
    with pytest.raises(ValueError, match="shape .batch, steps, features.*Received"):
        TransformerEncoder(F, H)(x[:, 0])
    for built in (randomise_built(TransformerEncoder(F, H)), decoder(memory=False)):
        with pytest.raises(ValueError, match="shape .batch, steps, features.*Received"):
            built(keras.Input((D,)))
    with pytest.raises(ValueError, match="`inputs_mask` must be boolean.*Received"):
        randomise_built(TransformerEncoder(F, H))(x, inputs_mask=np.ones((B, T + 1), bool))
    with pytest.raises(ValueError, match="has no weights yet"):
        TransformerDecoder(F, H).initial_state(B, 3)
    with pytest.raises(ValueError, match="`norm` must be one of .*'post'.*Received: norm='after'"):
        TransformerDecoder(F, H, norm="after")
    with pytest.raises(ValueError, match="activation"):
        TransformerDecoder(F, H, activation="no such")


def test_a_block_works_under_time_distributed_and_says_its_shape():
    x = keras.Input((3, T, D))
    model = keras.Model(x, keras.layers.TimeDistributed(TransformerEncoder(F, 2))(x))
    assert model.output_shape == (None, 3, T, D)
    assert model(random(B, 3, T, D)).shape == (B, 3, T, D)
    assert decoder().compute_output_shape((None, T, D), (None, S, D)) == (None, T, D)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": "a"}, "`dropout` must be a number"),
        ({"layer_norm_epsilon": float("nan")}, "`layer_norm_epsilon` must be a finite number"),
        ({"seed": "nope"}, "`seed` must be an integer"),
        ({"num_heads": True}, "`num_heads` must be a positive integer"),
        ({"positions": "learned"}, "`positions` must be one of"),
        ({"num_sinks": 2}, "`num_sinks` adds the first positions"),
        ({"num_key_value_heads": 4}, "`num_heads` must be a multiple"),
        ({"normalizer": "hardmax"}, "`normalizer` must be one of"),
        ({"query_key_norm": "yes"}, "`query_key_norm` must be True or False"),
        ({"sink_logits": 1}, "`sink_logits` must be True or False"),
        ({"sink_logits": True, "normalizer": "sparsemax"}, "`sink_logits` belongs to the denom"),
        ({"use_forget_gate": "no"}, "`use_forget_gate` must be True or False"),
        ({"use_forget_gate": True, "autoregression": "ssru"}, "`use_forget_gate` are options of"),
    ],
)
def test_wrong_arguments_are_refused_by_the_constructor(options, message):
    with pytest.raises(ValueError) as error:
        TransformerDecoder(**{"intermediate_dim": F, "num_heads": H, **options})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "options", "part"),
    [
        (TransformerEncoder, {"activation": "swiglu"}, "feed_forward"),
        (TransformerDecoder, {"autoregression": "ssru"}, "ssru"),
    ],
)
def test_a_seed_leaves_the_parts_of_a_kernel_different(kind, options, part):
    def kernel():
        block = kind(F, H, kernel_initializer=keras.initializers.GlorotUniform(seed=1), **options)
        block.build((None, None, D))
        return to_numpy(getattr(block, part).kernel)

    first, second = np.split(kernel(), 2, axis=1)
    assert np.all(first != second)
    np.testing.assert_array_equal(kernel(), kernel())


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_map_of_policies_may_name_the_block_alone(norm):
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["block"] = keras.dtype_policies.get("mixed_bfloat16")
    words = random(2, 3, 4)
    decoder = TransformerDecoder(8, 2, norm=norm, name="block", dtype=policies)
    outputs = decoder(words, words)
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
    memory, state = decoder.prepare_memory(words), decoder.initial_state(2, 3)
    first, _, _ = decoder.step(words[:, 0], memory, state, 0)
    assert close(ops.cast(first, "float32"), ops.cast(outputs[:, 0], "float32"), atol=0.05)


@pytest.mark.parametrize("rate", [1e-5, 0.1, 1 / 3, 0.9, 0.99999])
def test_a_rate_is_the_rate_that_was_given(rate):
    """Not one rounded to a multiple of 1/1024."""
    count = 3_000_001
    kept = to_numpy(PackedDropout(rate, seed=3)(ops.ones((count,)), training=True))
    share, deviation = np.mean(kept == 0), np.sqrt(rate * (1 - rate) / count)
    assert abs(share - rate) < 5 * deviation
    np.testing.assert_allclose(kept[kept > 0], 1 / (1 - rate), rtol=1e-6)


def test_the_three_elements_of_a_random_number_are_independent():
    kept = to_numpy(PackedDropout(0.4, seed=5)(ops.ones((3, 200_001)), training=True)) > 0
    correlations = np.corrcoef(np.float64(kept))
    assert np.all(np.abs(correlations[np.triu_indices(3, 1)]) < 0.01)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_rate_near_one_leaves_outputs_finite(policy):
    block = TransformerEncoder(8, 2, dropout=0.99999, attention_dropout=0.5, dtype=policy)
    outputs = to_numpy(block(random(3, 7, 4), training=True))
    assert np.all(np.isfinite(outputs))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_half_precision_does_not_round_the_rate_of_attention(dtype):
    factors = to_numpy(dropout_factors((1000, 1000), 0.1, keras.random.SeedGenerator(3), dtype))
    assert abs(np.mean(factors == 0) - 0.1) < 5 * np.sqrt(0.09 / 1e6)
    np.testing.assert_allclose(factors[factors > 0], 1 / 0.9, rtol=5e-3)


@pytest.mark.parametrize("index", [4, 7, -1])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_outside_of_the_cache_is_nan_and_touches_no_other_row(index, compiled):
    block = decoder(memory=False)
    inputs = random(3, 5, D)
    state = block.initial_state(3, 4)
    for place in range(4):
        _, _, state = block.step(inputs[:, place], None, state, place)
    step = compiled_step(block, jit_compile=True) if compiled else block.step
    before = {name: to_numpy(part) for name, part in state.items()}
    index_tensor = ops.convert_to_tensor(index, "int32")
    output, _, after = step(ops.convert_to_tensor(inputs[:, 4]), None, state, index_tensor)
    assert np.all(np.isnan(to_numpy(output)))
    rest = slice(1, None) if index < 0 else slice(None, -1)
    for name, part in after.items():
        np.testing.assert_array_equal(to_numpy(part)[:, :, rest], before[name][:, :, rest])
    with pytest.raises(ValueError, match="4 positions of the state.*Received: index"):
        block.step(inputs[:, 4], None, state, np.int64(index))
