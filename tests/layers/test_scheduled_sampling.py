"""Scheduled sampling (Bengio et al. 2015) in the recurrent decoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.layers import AttentionDecoder, BahdanauAttention
from tests.contracts.backend import BACKEND, at_once, random, to_numpy
from tests.contracts.kinds import randomise

B, T, S, E, M, WORDS = 3, 5, 7, 6, 11, 13
X, MEMORY = random(1, B, T, E), random(2, B, S, M)
MASK = np.array([[True] * 5, [False, True, True, True, False], [True, True, False, True, True]])


def decoder_of(units=E, **options):
    decoder = AttentionDecoder(keras.layers.GRUCell(units), BahdanauAttention(4), **options)
    decoder.build((None, None, E), (None, None, M))
    return randomise(decoder)


def by_steps(decoder, following, mask):
    """The outputs of steps whose inputs are those that `following` makes of the last output."""
    memory = decoder.prepare_memory(MEMORY)
    outputs = np.zeros((B, T, decoder.output_size), "float32")
    for b in range(B):
        row = {name: part[b : b + 1] for name, part in memory.items()}
        state, last, output = decoder.initial_state(row), None, np.zeros((1, decoder.output_size))
        for t in range(T):
            if mask[b, t]:
                inputs = X[b : b + 1, t] if last is None else following(last)
                last, _, state = decoder.step(inputs, row, state)
                output = to_numpy(last)
            outputs[b, t] = output[0]
    return outputs


@pytest.mark.parametrize("mask", [MASK, np.ones((B, T), bool)])
def test_outputs_are_the_next_inputs(mask):
    options = {"attention_size": E, "query": "current", "input_feeding": True}
    decoder = decoder_of(8, sampling_probability=1.0, **options)
    found = decoder(X, MEMORY, inputs_mask=mask, training=True)
    wanted = by_steps(decoder, lambda last: last, mask)
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-5)
    taught = to_numpy(decoder_of(8, **options)(X, MEMORY, inputs_mask=mask))
    np.testing.assert_allclose(to_numpy(decoder(X, MEMORY, inputs_mask=mask)), taught, atol=1e-5)
    assert np.abs(taught - wanted).max() > 1e-2


def test_a_function_makes_the_next_inputs():
    following = keras.layers.Dense(E, activation="tanh")
    decoder = decoder_of(4, sampling_probability=1.0, next_inputs=following)
    assert any(weight is following.kernel for weight in decoder.trainable_weights)
    found = decoder(X, MEMORY, training=True)
    wanted = by_steps(decoder, following, np.ones((B, T), bool))
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-5)


def test_tokens_are_drawn_and_embedded():
    project, embed = keras.layers.Dense(WORDS), keras.layers.Embedding(WORDS, E)
    decoder = decoder_of(4, sampling_probability=1.0, next_inputs=(project, embed), seed=3)
    project.kernel.assign(1e4 * random(5, *project.kernel.shape))  # the likeliest word is drawn
    found = decoder(X, MEMORY, training=True)

    def following(last):
        return embed(ops.argmax(project(last), axis=-1))

    wanted = by_steps(decoder, following, np.ones((B, T), bool))
    np.testing.assert_allclose(to_numpy(found), wanted, atol=1e-5)


def test_the_probability_is_that_of_each_step():
    decoder = decoder_of(sampling_probability=0.3, next_inputs=ops.zeros_like, seed=1)
    probe = ops.ones((400, T, E))
    drawn = to_numpy(decoder._draw_steps(probe, None))
    assert not drawn[:, 0].any()
    np.testing.assert_allclose(drawn[:, 1:].mean(), 0.3, atol=0.04)
    assert drawn[:, 1:].mean(axis=(1, 2)).std() > 0  # each example has its own


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_trains_by_a_schedule_and_is_saved_with_its_shared_layers(compiled, tmp_path):
    schedule = keras.optimizers.schedules.PolynomialDecay(0.0, 4, 0.5)
    project, embed = keras.layers.Dense(WORDS), keras.layers.Embedding(WORDS, E)
    decoder = AttentionDecoder(
        keras.layers.LSTMCell(4),
        BahdanauAttention(4),
        sampling_probability=schedule,
        next_inputs=(project, embed),
    )
    words, memory = keras.Input((None,), dtype="int32"), keras.Input((None, M))
    model = keras.Model([words, memory], project(decoder(embed(words), memory)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True), jit_compile=compiled)
    ids = np.random.default_rng(0).integers(0, WORDS, (B, T))
    if compiled and BACKEND == "torch":
        pytest.skip("PyTorch compiles with a C++ compiler that need not be there")
    history = model.fit([ids, MEMORY], ids, batch_size=1, epochs=2, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    assert int(decoder.sampling_step) == 6
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = next(layer for layer in loaded.layers if isinstance(layer, AttentionDecoder))
    assert again.next_inputs[1] in loaded.layers and len(loaded.weights) == len(model.weights)
    given = [ids, MEMORY]
    np.testing.assert_allclose(
        loaded.predict(given, verbose=0), model.predict(given, verbose=0), atol=1e-6
    )


def test_what_does_not_fit_is_refused():
    parts = keras.layers.GRUCell(4), BahdanauAttention(4)
    for options in (
        {"sampling_probability": 1.5},
        {"sampling_probability": "often"},
        {"next_inputs": ops.tanh},
        {"sampling_probability": 0.5, "next_inputs": 3},
    ):
        with pytest.raises(ValueError, match="Received: "):
            AttentionDecoder(*parts, **options)
    decoder = AttentionDecoder(*parts, sampling_probability=0.5)
    with pytest.raises(ValueError, match="`next_inputs` must make inputs of 6 .* gives 4 features"):
        decoder(X, MEMORY)


def test_a_function_may_read_layers_that_the_decoder_does_not_have():
    """In a compiled loop, too, where a custom gradient reaches only what it is given."""
    project, embed = keras.layers.Dense(WORDS), keras.layers.Dense(E, use_bias=False)
    project.build((None, E))
    embed.build((None, WORDS))
    randomise(project)
    randomise(embed)

    def following(last):
        return ops.matmul(ops.softmax(project(last)), ops.convert_to_tensor(embed.kernel))

    decoder = decoder_of(sampling_probability=1.0, next_inputs=following)
    assert not any(weight is project.kernel for weight in decoder.weights)
    wanted = by_steps(decoder, following, np.ones((B, T), bool))
    run = at_once(lambda given: decoder(given["x"], MEMORY, training=True))
    np.testing.assert_allclose(to_numpy(run({"x": ops.convert_to_tensor(X)})), wanted, atol=1e-5)
    inputs, memory = keras.Input((None, E)), keras.Input((None, M))
    outputs = project(embed(project(decoder(inputs, memory))))
    model = keras.Model([inputs, memory], outputs)
    before = [to_numpy(layer.kernel) for layer in (project, embed)]
    model.compile("sgd", "mse")
    model.fit([X, MEMORY], random(6, B, T, WORDS), verbose=0)
    for layer, kernel in zip((project, embed), before, strict=True):
        assert np.all(np.isfinite(to_numpy(layer.kernel)))
        assert np.abs(to_numpy(layer.kernel) - kernel).max() > 0
