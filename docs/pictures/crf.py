"""Tags of single words, and the same emissions under a chain; its scores are set by hand."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.panels import figure
from keras_attention import CRF

WORDS = ["he", "left", "New", "York", "City"]
TAGS = ["O", "B-LOC", "I-LOC"]
EMISSIONS = np.array(
    [[4.0, 0.0, 0.0], [4.0, 0.0, 0.0], [1.4, 1.2, 0.2], [0.0, 1.6, 1.4], [1.6, 0.0, 1.2]], "float32"
)


def tags() -> Figure:
    """One row for each tag."""
    alone = np.exp(EMISSIONS) / np.exp(EMISSIONS).sum(-1, keepdims=True)
    layer = CRF.from_tags(TAGS, scheme="BIO")
    layer.build((None, None, len(TAGS)))
    transitions = [[0.0, 0.0, 0.0], [-1.0, -2.0, 2.0], [0.0, -2.0, 1.5]]
    layer.transitions.assign(transitions)
    chained = np.asarray(layer(EMISSIONS[None])[0])
    panels = [("each word by itself", alone.T), ("CRF: all words together", chained.T)]
    result = figure(panels, TAGS, WORDS, (8, 2.2))
    for axis in result.axes[:2]:
        axis.set_xlabel("")
    result.axes[0].set_ylabel("tag")
    result.axes[-1].set_ylabel("probability")
    return result
