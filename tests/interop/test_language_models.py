"""The attention of gpt-oss, Gemma 2, DiffLlama: what Hugging Face's modules gave is recorded."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attention.layers import MultiHeadAttention
from keras_attention.mods import softcap
from tests.contracts.backend import to_numpy

RECORDED = Path(__file__).parent / "recorded"
B, T, D, HEADS, SIZE, WINDOW, THETA, CAP = 2, 7, 20, 4, 6, 3, 50.0, 1.5
DEPTH = 3
OPTIONS = {
    "gpt_oss": {"sink_logits": True, "window": WINDOW},
    "gemma2": {"score_mod": softcap(CAP)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_modules_of_hugging_face(name):
    with np.load(RECORDED / f"{name}.npz") as file:
        arrays = dict(file)
    layer = MultiHeadAttention(
        HEADS,
        SIZE,
        num_key_value_heads=HEADS // 2,
        positions="rotary",
        max_wavelength=THETA,
        **OPTIONS[name],
    )
    layer.build((None, None, D))
    for part in ("query", "key", "value", "output"):
        kernel = getattr(layer, f"{part}_kernel")
        kernel.assign(arrays[f"{part[0]}_proj.weight"].T.reshape(kernel.shape))
        bias = getattr(layer, f"{part}_bias")
        bias.assign(arrays[f"{part[0]}_proj.bias"].reshape(bias.shape))
    if name == "gpt_oss":
        layer.sink_logits.assign(arrays["sinks"])
    x = arrays["x"]
    output, scores = layer(x, use_causal_mask=True, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(output), arrays["output"], atol=1e-5)
    np.testing.assert_allclose(to_numpy(scores), arrays["scores"], atol=1e-6)
    state = layer.initial_state(B, None if layer.window else T)  # that of a window rolls
    for t in range(T):
        step, _, state = layer.step(x[:, t], None, state, t)
        np.testing.assert_allclose(to_numpy(step), arrays["output"][:, t], atol=1e-5)


def differential():
    """What the example of the docs defines."""
    page = (Path(__file__).parents[2] / "docs/layers/newer_options.md").read_text("utf-8")
    (code,) = (
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "lambdas" in each
    )
    names = {"np": np, "x": np.ones((2, 9, 8), "float32")}
    exec(code, names)
    return names


def test_the_differential_attention_of_the_docs():
    names = differential()
    with np.load(RECORDED / "diffllama.npz") as file:
        arrays = dict(file)
    half = HEADS // 2
    layer = names["DifferentialAttention"](half, SIZE, depth=DEPTH)
    layer.build((None, None, D))
    kernels = [arrays[f"{part}_proj.weight"].T.reshape(D, 2, half, SIZE) for part in "qkv"]
    layer.project.kernel.assign(np.concatenate(kernels, axis=1))
    layer.output_layer.kernel.assign(arrays["o_proj.weight"].T)
    layer.lambdas.assign(np.stack([arrays[f"lambda_{name}"] for name in ("q1", "k1", "q2", "k2")]))
    np.testing.assert_allclose(to_numpy(layer(arrays["x"])), arrays["output"], atol=1e-5)


def test_the_differential_attention_of_the_docs_takes_a_mask(tmp_path):
    layer_type = differential()["DifferentialAttention"]
    words = np.array([[0, 0, 3, 4, 5], [6, 7, 8, 0, 0]])
    embedding = keras.layers.Embedding(9, D, mask_zero=True)
    layer = layer_type(HEADS // 2, SIZE)
    outputs = to_numpy(layer(embedding(words)))
    other = np.where((words != 0)[:, :, None], to_numpy(embedding(words)), 7)
    changed = to_numpy(layer(other, mask=words != 0))
    np.testing.assert_allclose(changed[words != 0], outputs[words != 0], atol=1e-5)
    model = keras.Sequential([keras.Input((None,)), embedding, layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(words)), outputs, atol=1e-5)
