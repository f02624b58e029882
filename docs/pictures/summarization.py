"""What the layers of summarisation read: weights are set by hand, so that the pattern is known."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.mechanisms import LETTERS, MEMORY, SHARPNESS, one_hot, weights_of
from docs.pictures.panels import COLORS, figure
from keras_attention import (
    AttentionPooling,
    BahdanauAttention,
    CoverageAttention,
    HierarchicalAttention,
    IntraDecoderAttention,
    LuongAttention,
    PointerGenerator,
    TemporalAttention,
)


def pooling() -> Figure:
    """Words pooled by a context vector that asks for vowels; each place shows its letter."""
    words = ["attention", "pooling", "rhythm", "a"]
    width = max(map(len, words))
    inputs = np.zeros((len(words), width, len(LETTERS)), "float32")
    mask = np.zeros((len(words), width), bool)
    for row, word in enumerate(words):
        inputs[row, : len(word)] = one_hot(word)[0]
        mask[row, : len(word)] = True
    layer = AttentionPooling(units=len(LETTERS))
    layer(inputs)
    layer.kernel.assign(4 * np.eye(len(LETTERS)))
    layer.context_vector.assign([3.0 * (letter in "aeiou") for letter in LETTERS])
    weights = np.asarray(layer(inputs, mask=mask, return_attention_scores=True)[1])

    result = Figure(figsize=(6, 2.8), layout="constrained")
    axis = result.subplots()
    image = axis.imshow(weights, cmap=COLORS, vmin=0, vmax=1, aspect="auto")
    for row, word in enumerate(words):
        for place, letter in enumerate(word):
            color = "white" if weights[row, place] > 0.6 else "black"
            axis.text(place, row, letter, ha="center", va="center", color=color)
    axis.set_title("the context vector asks for vowels", fontsize=10)
    axis.set_xticks([])
    axis.set_xlabel("place")
    axis.set_yticks(range(len(words)), [f"word {row + 1}" for row in range(len(words))])
    result.colorbar(image, ax=axis, shrink=0.8, label="weight")
    return result


def repeated(layer, **weights) -> np.ndarray:
    """Weights (T, S) of one question asked six times; its letter stands at three places."""
    return weights_of(layer, np.repeat(one_hot("t"), 6, axis=1), one_hot(MEMORY), **weights)


def coverage() -> Figure:
    """Coverage beside additive attention: asked again, it goes on to what was read least."""
    same = SHARPNESS * np.eye(len(LETTERS))
    additive = {
        "query_kernel": same,
        "key_kernel": same,
        "score_vector": np.full(len(LETTERS), 2.0),
        "bias": np.full(len(LETTERS), -1.5 * SHARPNESS),
    }
    ranked = one_hot(MEMORY)
    ranked[0, :, :] *= np.linspace(1.3, 1, len(MEMORY))[:, None]  # the first is a little better
    asked = np.repeat(one_hot("t"), 6, axis=1)
    units = len(LETTERS)
    panels = [
        (
            "BahdanauAttention",
            weights_of(BahdanauAttention(units, use_bias=True), asked, ranked, **additive),
        ),
        (
            "CoverageAttention",
            weights_of(
                CoverageAttention(units, use_bias=True),
                asked,
                ranked,
                **additive,
                coverage_vector=-SHARPNESS * one_hot("t")[0, 0] * 2,
            ),
        ),
    ]
    return figure(panels, ["t"] * 6, MEMORY, (9, 3.2))


def temporal() -> Figure:
    """Temporal attention beside the same score without memory."""
    kernel = 3 * np.eye(len(LETTERS))
    panels = [
        ("general score", repeated(LuongAttention("general"), score_kernel=kernel)),
        ("TemporalAttention", repeated(TemporalAttention(), score_kernel=kernel)),
    ]
    return figure(panels, ["t"] * 6, MEMORY, (9, 3.2))


def intra_decoder() -> Figure:
    """Each letter looks itself up among those before it."""
    letters = one_hot(MEMORY)
    scores = weights_of(
        IntraDecoderAttention(), letters, letters, score_kernel=SHARPNESS * np.eye(len(LETTERS))
    )
    return figure([("the same letter, earlier", scores)], MEMORY, MEMORY, (5.5, 4))


def hierarchical() -> Figure:
    """Words and sentences read alone, and their product: rows are sentences, columns words."""
    words = np.array([[1.0, 5, 1, 1], [1, 5, 1, 3], [1, 1, 2, 1]])
    sentences = np.array([1.0, 3.0, 2.0])
    query = np.ones((1, 1, 1), "float32")
    layer = HierarchicalAttention(LuongAttention("dot"), LuongAttention("dot"))
    memory = words[None, :, :, None], sentences[None, :, None]
    joined = np.asarray(layer(query, *memory, return_attention_scores=True)[1])[0, 0]
    parts = [
        np.asarray(part(query, value, return_attention_scores=True)[1]).ravel()
        for part, value in (
            (layer.word_attention, words.reshape(1, -1, 1)),
            (layer.sentence_attention, sentences.reshape(1, -1, 1)),
        )
    ]
    panels = [
        ("words", parts[0].reshape(words.shape)),
        ("sentences", np.repeat(parts[1][:, None], words.shape[1], axis=1)),
        ("their product, normalised", joined),
    ]
    rows = [f"sentence {n + 1}" for n in range(len(words))]
    columns = [f"word {w + 1}" for w in range(words.shape[1])]
    result = figure(panels, rows, columns, (11, 2.8))
    result.axes[0].set_ylabel("memory")
    return result


def pointer_generator() -> Figure:
    """The mixture over a vocabulary and two unknown words, as the gate closes."""
    vocabulary = ["the", "team", "won", "lost", "a"]
    source = ["the", "Foxes", "won", "in", "Leicester"]
    ids, extra = np.array([[0, 5, 2, 4, 6]]), ["Foxes", "Leicester"]
    steps = 5
    logits = np.zeros((1, steps, len(vocabulary)))
    scores = np.tile([[[0.05, 0.6, 0.05, 0.1, 0.2]]], (1, steps, 1))
    gates = np.linspace(4, -4, steps)[None, :, None]
    nothing = np.zeros((1, steps, 1))
    layer = PointerGenerator(kernel_initializer="ones")
    log_p, p_gen = layer(
        logits, scores, ids, gates, nothing, nothing, extra_size=len(extra), return_p_gen=True
    )
    assert len(source) == ids.shape[1]
    columns = [f"{float(gate):.2f}" for gate in np.asarray(p_gen)[0]]
    panel = np.exp(np.asarray(log_p)[0]).T
    result = figure([("P(w)", panel)], vocabulary + extra, columns, (6, 3.6))
    result.axes[0].set_xlabel("p_gen")
    result.axes[0].set_ylabel("word")
    return result
