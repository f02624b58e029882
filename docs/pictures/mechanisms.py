"""What each mechanism reads: its weights are set by hand, so that the pattern is known."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.panels import figure
from keras_attention import BahdanauAttention, LocalAttention, LuongAttention, MonotonicAttention

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MEMORY = "attention"
SHARPNESS = 4.0


def one_hot(word: str) -> np.ndarray:
    """One row a letter, (1, S, 26), each letter its own direction."""
    return np.eye(len(LETTERS), dtype="float32")[None, [LETTERS.index(letter) for letter in word]]


def weights_of(layer, queries, memory, **weights) -> np.ndarray:
    """Return the attention weights (T, S) of a layer whose named weights are set."""
    layer(queries, memory)
    for name, value in weights.items():
        getattr(layer, name).assign(value)
    return np.asarray(layer(queries, memory, return_attention_scores=True)[1])[0]


def bahdanau() -> Figure:
    """Additive attention that looks letters up: a unit a letter, on where both sides have it."""
    asked = MEMORY[::-1]
    same = SHARPNESS * np.eye(len(LETTERS))
    scores = weights_of(
        BahdanauAttention(units=len(LETTERS), use_bias=True),
        one_hot(asked),
        one_hot(MEMORY),
        query_kernel=same,
        key_kernel=same,
        bias=np.full(len(LETTERS), -1.5 * SHARPNESS),
        score_vector=np.full(len(LETTERS), 2.0),
    )
    title = 'each letter of "noitnetta" looks itself up in "attention"'
    return figure([(title, scores)], asked, MEMORY, (5.5, 4))


def luong() -> Figure:
    """Scores by content, with the next letter asked for, and by place."""
    size = len(LETTERS)
    letters = one_hot(MEMORY)
    successor = np.zeros((size, size))
    for letter, following in zip(MEMORY, MEMORY[1:], strict=False):
        successor[LETTERS.index(letter), LETTERS.index(following)] = SHARPNESS
    place = np.zeros((size, len(MEMORY)))
    for letter in set(MEMORY):
        place[LETTERS.index(letter), MEMORY.index(letter)] = SHARPNESS
    panels = [
        ("dot: the same letter", weights_of(LuongAttention("dot"), SHARPNESS * letters, letters)),
        (
            "general: the letters that follow it",
            weights_of(LuongAttention("general"), letters, letters, score_kernel=successor),
        ),
        (
            "location: the first place of the letter",
            weights_of(
                LuongAttention("location", max_length=len(MEMORY)),
                letters,
                letters,
                location_kernel=place,
            ),
        ),
    ]
    return figure(panels, MEMORY, MEMORY, (11, 3.8))


def monotonic() -> Figure:
    """Letters looked up by softmax, and by both forms of monotonic attention."""
    asked = "tetnt"
    queries = 1.5 * SHARPNESS * one_hot(asked)
    panels = [("softmax: dot", weights_of(LuongAttention("dot"), queries, one_hot(MEMORY)))]
    bias = -SHARPNESS  # the letter stops a query with a probability of 0.88, another one of 0.02
    for mode in ("soft", "hard"):
        layer = MonotonicAttention(LuongAttention("dot"), mode=mode)
        weights = weights_of(layer, queries, one_hot(MEMORY), energy_bias=bias)
        panels.append((f"MonotonicAttention, {mode}", weights))
    return figure(panels, asked, MEMORY, (11, 2.6))


def local() -> Figure:
    """The windows themselves: with queries of zeros every place scores the same."""
    steps, half_width = 16, 3
    zeros = np.zeros((1, steps, 2), "float32")
    # The position's unit grows with the query's first feature: the window moves from the
    # sentence's start to its end, not in even steps.
    moving = zeros.copy()
    moving[0, :, 0] = np.linspace(-1, 1, steps)
    panels = [
        ("global", weights_of(LuongAttention("dot"), zeros, zeros)),
        (
            "monotonic: the window follows the step",
            weights_of(LocalAttention(half_width, "monotonic"), zeros, zeros),
        ),
        (
            "predictive: the query says where",
            weights_of(
                LocalAttention(half_width, "predictive", score="general", units=1),
                moving,
                zeros,
                position_kernel=np.array([[1.0], [0.0]]),
                position_vector=np.array([4.0]),
            ),
        ),
    ]
    ticks = [str(place) if place % 5 == 0 else "" for place in range(steps)]
    result = figure(panels, ticks, ticks, (11, 3.8))
    for axis in result.axes[:3]:
        axis.images[0].set_clim(0, 0.4)
    return result
