"""How many times as fast ours is as its peer; the figures are those of docs/lab/benchmarks.md."""

from matplotlib.figure import Figure

OURS, SLOWER = "#3f51b5", "#b0b6cc"
RATIOS = [
    ("decoder, 60 by 400 steps, training: PyTorch's loop", 4.45),
    ("additive attention, training: keras.layers.AdditiveAttention", 3.3),
    ("pointer-generator, training: PyTorch's loop", 2.93),
    ("Transformer `tiny`, training: PyTorch's blocks", 2.23),
    ("causal attention, 4,096 steps, training: keras.layers.MultiHeadAttention", 1.49),
    ("additive attention, forward: keras.layers.AdditiveAttention", 1.46),
    ("Transformer `tiny`, training: KerasHub's blocks", 1.32),
    ("translation of 320 sentences, greedy: CTranslate2", 1.18),
    ("translation of one sentence, by LiteRT: CTranslate2", 1.06),
    ("decoder, 25 by 25 steps, forward: plain Keras layers", 0.89),
    ("translation of one sentence, by TensorFlow: CTranslate2", 0.44),
]
"""What is compared, and the ratio; of several on the page, the one that is named."""


def ratios() -> Figure:
    """Draw a bar for each comparison, and a line where both are equally fast."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    names, values = zip(*reversed(RATIOS), strict=True)
    bars = axes.barh(
        range(len(names)), values, color=[OURS if value >= 1 else SLOWER for value in values]
    )
    axes.bar_label(bars, [f"{value:g}" for value in values], padding=3, fontsize=9)
    axes.set_yticks(range(len(names)), [name.replace("`", "") for name in names], fontsize=9)
    axes.axvline(1, color="0.6", linewidth=1, zorder=0)
    axes.annotate("equally fast", (1, len(names) - 0.4), ha="center", fontsize=9)
    axes.set_xlim(0, 5)
    axes.set_ylim(-0.6, len(names) + 0.2)
    axes.set_xlabel("times as fast as the peer, which stands after the colon")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
