"""What attention since 2017 keeps of the past."""

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from docs.pictures.panels import figure
from keras_attention.layers.attention.linear import elu_plus_one
from keras_attention.ops.linear_attention import gated_delta_rule, linear_attention

LETTERS = "abcabdba"


def _keys() -> np.ndarray:
    """A direction for each letter, `(1, T, 1, 4)`."""
    return np.eye(4, dtype="float32")[None, [ord(each) - ord("a") for each in LETTERS]][:, :, None]


def _steps() -> np.ndarray:
    """Values that name their step, so that a context is the weights that it was read with."""
    return np.eye(len(LETTERS), dtype="float32")[None, :, None]


def linear() -> Figure:
    """The weights of softmax and of linear attention, with equal queries and keys."""
    keys = 3 * _keys()
    scores = np.einsum("bthd,bshd->ts", keys, keys) / 2
    exponentials = np.exp(scores) * np.tri(len(LETTERS))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)

    def weights(feature_map):
        features = feature_map(ops.convert_to_tensor(keys - 1))
        return np.asarray(linear_attention(features, features, _steps(), causal=True))[0, :, 0]

    panels = [
        ("softmax", softmax),
        ("linear, elu + 1", weights(elu_plus_one)),
        ("linear, ReLU", weights(ops.relu)),
    ]
    return figure(panels, LETTERS, LETTERS, (11, 3.8))


def delta() -> Figure:
    """What a letter reads of the steps before: all of its values, or the last one written."""
    keys, ones = _keys(), np.ones((1, len(LETTERS), 1), "float32")

    def weights(decay, strength):
        logs = np.full_like(ones, np.log(decay))
        given = (keys, keys, _steps(), logs, np.full_like(ones, strength))
        found = gated_delta_rule(*map(ops.convert_to_tensor, given))
        return np.asarray(found)[0, :, 0]

    same = np.einsum("bthd,bshd->ts", keys, keys) * np.tri(len(LETTERS))
    panels = [
        ("a sum of products (not normalized)", same),
        ("delta rule, β = 1", weights(1.0, 1.0)),
        ("delta rule, β = 0.5", weights(1.0, 0.5)),
        ("gated delta rule, β = 0.5, α = 0.8", weights(0.8, 0.5)),
    ]
    return figure(panels, LETTERS, LETTERS, (14, 3.8))


def latent() -> Figure:
    """Numbers that a cache holds for each position, of the sizes of DeepSeek-V2."""
    heads, size = 128, 128
    sizes = {
        "all heads": 2 * heads * size,
        "8 groups": 2 * 8 * size,
        "1 group": 2 * size,
        "latent, 512 + 64": 512 + 64,
    }
    result = Figure(figsize=(7, 2.6), layout="constrained")
    axis = result.subplots()
    bars = axis.barh(list(sizes), list(sizes.values()), color="#4a7ab5")
    axis.bar_label(bars, [f"{each:,}" for each in sizes.values()], padding=4)
    axis.set_xscale("log")
    axis.set_xlim(100, 200_000)
    axis.invert_yaxis()
    axis.set_xlabel("numbers for each position and layer (128 heads of size 128)")
    return result
