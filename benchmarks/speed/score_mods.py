"""Functions of positions, beside causal attention and dense scores.

Self-attention of one sequence, width 512, 8 heads: causal; causal within documents, by `mask_mod`;
causal with a learned bias, by `score_mod`; and the two with all scores at once, in plain Keras.
Each runs in a process of its own, in turns. Outputs, gradients of inputs and weights, and of what
is learned, are compared with the dense form's, and both with the dense form in float64.
"""

import argparse
import functools
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import add_rounds, positive
from benchmarks.common.processes import alone, peak_megabytes
from benchmarks.common.tables import machine_line
from benchmarks.speed.problems import PASSES
from benchmarks.speed.worker import WARM_UP_STEPS, time_steps

WIDTH, HEADS, DOCUMENTS = 512, 8, 4
DENSE = {"documents": "dense documents", "bias": "dense bias"}
FORMS = ("causal", *DENSE, *DENSE.values())
MOST_DIFFERENCE = 1e-3  # the goal is 1e-5
BY_KEY_BIAS = "gradient 4"  # after the inputs', and those of three weights


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--length",
        type=positive(int),
        default=4096,
        help="steps of the sequence (default: %(default)s)",
    )
    add_rounds(parser, 3)


def run(options: argparse.Namespace) -> None:
    """Print a table, where every form gives what the dense one gives."""
    print(machine_line(machine.facts()), flush=True)
    rounds: dict[str, list[dict]] = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(options.rounds):
            for form in FORMS[turn % len(FORMS) :] + FORMS[: turn % len(FORMS)]:
                results = str(folder / f"{form}.npz")
                rounds[form].append(alone(measure, form, options.length, results, "float32"))
        for dense in DENSE.values():
            alone(measure, dense, options.length, str(folder / f"exact {dense}.npz"), "float64")
        for form, dense in DENSE.items():
            for one, other in ((form, dense), (form, f"exact {dense}"), (dense, f"exact {dense}")):
                found = difference(folder / f"{one}.npz", folder / f"{other}.npz")
                shares = ", ".join(f"{name} by {share:.1e}" for name, share in found.items())
                print(f"{one} against {other}: {shares} of the greatest value at most")
                if not all(share <= MOST_DIFFERENCE for share in found.values()):  # or a NaN
                    raise BenchmarkError(
                        f"{one} and {other} differ by more than {MOST_DIFFERENCE} of that value."
                    )
    print(table(rounds))


def table(rounds: dict[str, list[dict]]) -> str:
    """Return seconds and peak memory by form, and the times as ratios to causal attention's."""
    header = [f"{name} {what}" for name in PASSES for what in ("s", "/ causal", "peak MB")]
    lines = [f"| form | {' | '.join(header)} |", "| --- |" + " --: |" * len(header)]
    for form, found in rounds.items():
        cells = []
        for name in PASSES:
            ratios = [
                mine[name] / causal[name]
                for mine, causal in zip(found, rounds["causal"], strict=True)
            ]
            cells += [
                f"{statistics.median(one[name] for one in found):.2f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{statistics.median(one[f'{name}_peak_mb'] for one in found):.0f}",
            ]
        lines.append(f"| {' | '.join([form, *cells])} |")
    return "\n".join(lines)


def difference(ours: Path, dense: Path) -> dict[str, float]:
    """Return the greatest difference of outputs and of gradients, as shares of an array's greatest
    value; without the gradient of the keys' bias, which is 0 but for rounding."""
    with np.load(ours) as mine, np.load(dense) as theirs:
        shares = {
            name: float(np.abs(mine[name] - theirs[name]).max() / np.abs(theirs[name]).max())
            for name in theirs.files
            if name != BY_KEY_BIAS
        }
    outputs = shares.pop("outputs")
    return {"outputs": outputs, "gradients": max(shares.values())}


def measure(form: str, length: int, results: str, floatx: str) -> dict:
    """Return the least time of each pass and its peak; the arrays lie in `results` then."""
    import tensorflow as tf
    from keras import config, ops, random

    config.set_floatx(floatx)
    normal = functools.partial(random.normal, dtype="float32")
    layer = build(form, length)
    inputs = tf.Variable(ops.cast(normal((1, length, WIDTH), seed=1), floatx))
    attend = functools.partial(layer, **({"use_causal_mask": True} if form == "causal" else {}))
    attend(inputs[:, :32])
    for seed, weight in enumerate(layer.weights):
        weight.assign(normal(weight.shape, stddev=WIDTH**-0.5, seed=seed))
    factor = ops.cast(normal((1, length, WIDTH), seed=2), floatx)

    @tf.function
    def forward():
        return attend(inputs)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            loss = ops.sum(attend(inputs) * factor)
        return tape.gradient(loss, [inputs, *(one.value for one in layer.trainable_weights)])

    baseline = peak_megabytes()
    found = {}
    for name, step in zip(PASSES, (forward, train), strict=True):
        for _ in range(WARM_UP_STEPS):
            step()
        found[f"{name}_peak_mb"] = peak_megabytes() - baseline
        found[name] = min(time_steps(step, 2.0))
    gradients = {f"gradient {index}": one.numpy() for index, one in enumerate(train())}
    np.savez(results, outputs=forward().numpy(), **gradients)
    return found


def build(form: str, length: int):
    """Return the layer of a form."""
    import keras
    from keras import ops

    from keras_attention.layers import MultiHeadAttention
    from keras_attention.mods import all_of, causal, document, look_up

    ends = np.sort(np.random.default_rng(5).choice(length, DOCUMENTS - 1, replace=False))
    packed = np.searchsorted(ends, np.arange(length), side="right")[None].astype("int32")

    class Slope(keras.layers.Layer):
        """A learned slope of distance for each head."""

        def build(self, score_shape, *places):
            self.slope = self.add_weight((HEADS,), name="slope")

        def call(self, score, batch, head, query, key):
            distance = ops.cast(ops.abs(query - key), score.dtype)
            return score - look_up(self.slope, head) * distance

    class Dense(keras.layers.Layer):
        """Attention with all scores at once."""

        def __init__(self):
            super().__init__()
            axes, split = (None, HEADS, WIDTH // HEADS), "btd,dhc->bthc"
            self.query = keras.layers.EinsumDense(split, axes, bias_axes="hc")
            self.key = keras.layers.EinsumDense(split, axes, bias_axes="hc")
            self.value = keras.layers.EinsumDense(split, axes, bias_axes="hc")
            self.out = keras.layers.EinsumDense("bthc,hcd->btd", (None, WIDTH), bias_axes="d")
            self.score_mod = Slope() if form == "dense bias" else None
            if self.score_mod is not None:
                self.score_mod.build((1, HEADS))

        def call(self, inputs):
            query, key, value = self.query(inputs), self.key(inputs), self.value(inputs)
            scores = ops.einsum("bthc,bshc->bhts", query * (WIDTH // HEADS) ** -0.5, key)
            places = ops.arange(ops.shape(inputs)[1])
            rows, columns = places[:, None], places[None]
            seen = rows >= columns
            if self.score_mod is None:
                text = ops.convert_to_tensor(packed[0])
                seen = seen & (ops.take(text, rows) == ops.take(text, columns))
            else:
                head = ops.reshape(ops.arange(HEADS), (HEADS, 1, 1))
                scores = self.score_mod(scores, ops.zeros((1,), "int32"), head, rows, columns)
            weights = ops.softmax(ops.where(seen, scores, -1e9))
            return self.out(ops.einsum("bhts,bshc->bthc", weights, value))

    if form in DENSE.values():
        return Dense()
    mods = {"documents": {"mask_mod": all_of(causal, document(packed))}}
    mods["bias"] = {"score_mod": Slope(), "mask_mod": causal}
    return MultiHeadAttention(HEADS, WIDTH // HEADS, **mods.get(form, {}))
