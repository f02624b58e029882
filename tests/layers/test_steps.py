"""What steps refuse: inputs, states, memories and sizes that do not fit, each in a sentence."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import layers
from tests.contracts.backend import random

B, S, D = 3, 5, 6
X = random(1, B, D)
MEMORY = random(2, B, S, D)
# Each layer, with its step from inputs and a state, and the arguments of its `initial_state`.
SELF = {
    "linear": (lambda: layers.LinearAttention(2, 3), lambda layer: layer.step, (B,)),
    "delta": (lambda: layers.GatedDeltaNet(2, 3), lambda layer: layer.step, (B,)),
    "ssru": (lambda: layers.SSRU(4), lambda layer: layer.step, (B,)),
    "latent": (
        lambda: layers.MultiHeadLatentAttention(2, 4, latent_dim=5),
        lambda layer: lambda x, state, index=0: layer.step(x, state, index),
        (B, S),
    ),
    "multi-head": (
        lambda: layers.MultiHeadAttention(2, 4, use_forget_gate=True),
        lambda layer: lambda x, state, index=0: layer.step(x, None, state, index),
        (B, S),
    ),
}
CROSS = {
    "bahdanau": lambda: layers.BahdanauAttention(4),
    "coverage": lambda: layers.CoverageAttention(4),
    "decoder": lambda: layers.AttentionDecoder(keras.layers.GRUCell(4), layers.LuongAttention()),
}


def built(make, *shapes):
    layer = make()
    layer.build(*shapes)
    return layer


@pytest.mark.parametrize("name", SELF)
def test_inputs_and_states_of_steps_must_fit(name):
    make, step_of, sizes = SELF[name]
    layer = built(make, (None, None, D))
    step, state = step_of(layer), layer.initial_state(*sizes)
    step(X, state)
    for x in (X[:, None], X[0], np.repeat(X[:, None], S, axis=1)):
        with pytest.raises(ValueError, match=r"A step takes .* such as x\[:, 0\]. Received: "):
            step(x, state)
    with pytest.raises(ValueError, match="of 6 features. Received: "):
        step(X[:, 1:], state)
    for wrong in (None, {}, [], {name: each[1:] for name, each in state.items()}):
        with pytest.raises(ValueError, match="`state` must be a dictionary as `initial_state`"):
            step(X, wrong)
    with pytest.raises(ValueError, match="as many rows as the inputs: .* Received: state="):
        step(X[:1], state)


@pytest.mark.parametrize("name", SELF)
def test_sizes_of_states_and_positions_must_be_integers(name):
    make, step_of, sizes = SELF[name]
    layer = built(make, (None, None, D))
    for place, argument in enumerate(("batch_size", "max_length")[: len(sizes)]):
        wrong = [-1, 2.5, "3", True, np.array([1, 2]), np.float32(2)]
        for size in wrong + ([None] if name != "multi-head" or place == 0 else []):
            with pytest.raises(ValueError, match=f"`{argument}` must be .* Received: {argument}="):
                layer.initial_state(*sizes[:place], size, *sizes[place + 1 :])
        for size in (np.int64(2), ops.convert_to_tensor(2)):
            state = layer.initial_state(*sizes[:place], size, *sizes[place + 1 :])
            assert all(2 in tuple(each.shape) for each in state.values())
    if len(sizes) == 2:
        step, state = step_of(layer), layer.initial_state(*sizes)
        for index in (0.5, np.float32(1), "0", None, False, [0], np.array([0, 1, 2])):
            with pytest.raises(ValueError, match="`index` must be an integer.*Received: index="):
                step(X, state, index)
        with pytest.raises(ValueError, match="`index` must lie in the 5 positions"):
            step(X, state, -1)


@pytest.mark.parametrize("name", CROSS)
def test_steps_over_a_memory_need_what_prepare_memory_returns(name):
    layer = built(CROSS[name], (None, None, 4), (None, None, 4))
    x, value = X[:, :4], MEMORY[:, :, :4]
    memory = layer.prepare_memory(value)
    state = layer.initial_state(memory)
    layer.step(x, memory, state)
    with pytest.raises(ValueError, match="A step takes .* Received: "):
        layer.step(x[:, None], memory, state)
    with pytest.raises(ValueError, match="of 4 features. Received: "):
        layer.step(X, memory, state)
    for wrong in (None, value):
        with pytest.raises(ValueError, match="`memory` must be a dictionary as `prepare_memory`"):
            layer.step(x, wrong, state)
    for wrong in (None, [x]) if name != "decoder" else (None, {}, {"cell": [x]}):
        with pytest.raises(ValueError, match="`state` must be a dictionary as `initial_state`"):
            layer.step(x, memory, wrong)


@pytest.mark.parametrize(
    "make", [lambda: layers.LinearAttention(2, 3), lambda: layers.MultiHeadAttention(2, 3)]
)
def test_memories_of_other_rows_are_refused(make):
    layer = built(make, (None, None, D))
    memory = layer.prepare_memory(MEMORY)
    linear = isinstance(layer, layers.LinearAttention)

    def step(x, memory):
        return layer.step(x, {}, memory) if linear else layer.step(x, memory, {}, 0)

    step(X, memory)
    for x, wrong in ((X[:2], memory), (X, MEMORY), (X, {})):
        with pytest.raises(ValueError, match="`memory` must be .* Received: memory="):
            step(x, wrong)
