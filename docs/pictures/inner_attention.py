"""What each kind of inner attention takes in of a word; its weights are set by hand."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.mechanisms import LETTERS, one_hot
from docs.pictures.panels import figure
from keras_attention import InnerAttentionGRU

TEXT, ASKED = "attention", "nite"
SIZE = len(LETTERS)
ALL, SAME, NONE = np.ones((SIZE, SIZE)), np.eye(SIZE), np.zeros((1, SIZE))


def inner_attention() -> Figure:
    """One row for each letter that is asked for."""
    panels = [
        ("word: a letter counts by itself", _word()),
        ("context: and what was read before it", _context()),
        ("gate: the state takes in what is asked for", _gate()),
    ]
    result = figure(panels, ASKED, TEXT, (11, 2.6))
    for axis in result.axes[:3]:
        axis.set_xlabel("text")
    result.axes[0].set_ylabel("asked for")
    return result


def _layer(attention, units, **weights) -> InnerAttentionGRU:
    """A layer whose named weights are set, and whose others are zero."""
    layer = InnerAttentionGRU(units, attention, return_sequences=True)
    layer.build((None, None, SIZE), (None, SIZE))
    for weight in layer.cell.trainable_weights:
        value = weights.get(weight.path.split("/")[-1], 0.0)
        weight.assign(np.broadcast_to(value, weight.shape))
    return layer


def _inputs():
    return np.repeat(one_hot(TEXT), len(ASKED), axis=0), one_hot(ASKED)[0]


def _word() -> np.ndarray:
    """The letter that is asked for, and no other."""
    layer = _layer("word", 1, attention_kernel=8 * SAME - 4 * ALL)
    return np.asarray(layer(*_inputs(), return_attention_scores=True)[1])


def _context() -> np.ndarray:
    """One unit tells whether the letter has come; from then on every letter counts.

    The unit is at -1 until a letter with a weight comes, and then stays at 1.
    """
    kernel = np.concatenate([NONE, NONE, np.full((1, SIZE), 12.0)]).T
    layer = _layer(
        "context",
        1,
        attention_kernel=8 * SAME - ALL,
        recurrent_attention_kernel=4.0,
        kernel=kernel,
        recurrent_kernel=np.array([[0.0, 0.0, 4.0]]),
        bias=np.array([[-9.0, 9.0, 0.0], [0.0, 0.0, 0.0]]),
    )
    start = np.full((len(ASKED), 1), -1.0)
    scores = layer(*_inputs(), initial_state=start, return_attention_scores=True)[1]
    return np.asarray(scores)


def _gate() -> np.ndarray:
    """A unit a letter, which renews itself where its letter both comes and is asked for."""
    kernel = np.concatenate([8 * SAME, 0 * SAME, 4 * SAME], axis=1)
    layer = _layer(
        "gate",
        SIZE,
        kernel=kernel,
        query_kernel=np.concatenate([8 * SAME, 0 * SAME], axis=1),
        bias=np.repeat([-12.0, 0.0, 0.0], SIZE),
    )
    return np.max(np.asarray(layer(*_inputs())), axis=2)
