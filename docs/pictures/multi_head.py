"""What the options of multi-head attention do to weights that are equal without them."""

import numpy as np
from matplotlib.figure import Figure

from docs.pictures.panels import figure
from keras_attention import MultiHeadAttention

STEPS = 16


def options() -> Figure:
    """Queries and keys of zeros: every score is 0, and the options alone make a difference."""
    causal = {"use_causal_mask": True}
    panels = [
        ("causal", _weights({}, causal)),
        ("window of 5, causal", _weights({"window": 5}, causal)),
        ("window of 5, 2 sinks, causal", _weights({"window": 5, "num_sinks": 2}, causal)),
        ("ALiBi, slope 1/4", _weights({"positions": "alibi"}, {})),
        ("ALiBi under sparsemax", _weights({"positions": "alibi", "normalizer": "sparsemax"}, {})),
    ]
    ticks = [str(place) if place % 5 == 0 else "" for place in range(STEPS)]
    result = figure(panels, ticks, ticks, (14, 3.4))
    for axis in result.axes[: len(panels)]:
        axis.images[0].set_clim(0, 0.5)
    return result


def _weights(options, call) -> np.ndarray:
    layer = MultiHeadAttention(num_heads=4, key_dim=2, **options)
    zeros = np.zeros((1, STEPS, 2), "float32")
    return np.asarray(layer(zeros, return_attention_scores=True, **call)[1])[0, 0]
