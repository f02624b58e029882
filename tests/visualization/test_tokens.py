"""Labels of tokens, and the check of weights that both pictures share."""

import numpy as np
import pytest

from keras_attention.visualization import alignment_text, display_tokens, plot_alignment


@pytest.mark.parametrize(
    ("tokens", "labels"),
    [
        (["▁Die", "▁Straßen", "bahn", "."], ["Die", "Straßen", "·bahn", "."]),
        (["▁a", "▁b", "c", "</s>", "<unk>"], ["a", "b", "·c", "</s>", "<unk>"]),
        (["▁", "彼", "は", "。"], ["␣", "彼", "は", "。"]),  # no spaces: nothing to tell apart
        (["▁Haus", "boot"], ["Haus", "boot"]),
        (["a", "▁b", "▁in▁the", "3"], ["a", "b", "in the", "·3"]),
        (["plain", "words", "-", ""], ["plain", "words", "-", ""]),
        (["don", "￭'￭", "t", "(￭", "￭."], ["don", "'", "t", "(", "."]),
        (["a b", "c\td", "e\nf", "g\x07"], ["a␣b", "c␣d", "e␣f", "g\ufffd"]),
        ([], []),
    ],
)
def test_labels(tokens, labels):
    assert display_tokens(tokens) == labels


@pytest.mark.parametrize("draw", [plot_alignment, alignment_text])
def test_weights_that_do_not_fit(draw):
    source, target = ["a", "b", "c"], ["x", "y"]
    for shape in ((3, 2), (2, 4), (2,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"the shape \(2, 3\). Received: attention of shape"):
            draw(np.zeros(shape), source, target)
    for bad in (np.nan, np.inf, -0.1):
        weights = np.zeros((2, 3))
        weights[1, 1] = bad
        with pytest.raises(ValueError, match="Received: values from"):
            draw(weights, source, target)
    with pytest.raises(ValueError, match="Received: 0 source and 2 target tokens"):
        draw(np.zeros((2, 0)), [], target)
