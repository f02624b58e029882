"""What positions look like, before anything is learned."""

import numpy as np
from matplotlib.figure import Figure

from keras_attention import PositionalEncoding


def encoding() -> Figure:
    """The sinusoids of fifty places, and how alike the codes of two places are."""
    codes = np.asarray(PositionalEncoding()(np.zeros((1, 50, 64), "float32")))[0]
    result = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = result.subplots(1, 2, width_ratios=[1.3, 1])
    panels = [
        (left, codes, "PE, 50 places of 64 features", "feature"),
        (right, codes @ codes.T / 32, "products of two places' codes, over D / 2", "place"),
    ]
    for axis, values, title, label in panels:
        image = axis.imshow(values, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
        axis.set_ylabel("place")
    result.colorbar(image, ax=[left, right], shrink=0.8)
    return result
