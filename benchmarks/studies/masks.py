"""Known faults of masks, tried on four libraries.

Each fault is one check, and every library is called through the same few methods, so that all are
asked the same question. A cell is `right`, `wrong`, `refused` (an exception) or `—` (the library
has no such thing). The table and the findings stand on the page docs/masks.md.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.machine import installed
from benchmarks.common.options import add_only

RIGHT, WRONG, REFUSED, ABSENT = "right", "wrong", "refused", "—"
HEADS, STEPS, SIZE = 2, 5, 8
TOLERANCE = 1e-4
LENGTHS = (3, 4)
"""Steps of the two examples of a batch that are no padding."""


class Absent(Exception):
    """A library has no such thing."""


class Keras:
    """`keras.layers.MultiHeadAttention`."""

    name = "keras.layers"
    package = "keras"

    def __init__(self, dropout: float = 0.0):
        self.dropout = dropout

    @cached_property
    def layer(self) -> Any:
        """The layer that is tried."""
        import keras

        return keras.layers.MultiHeadAttention(HEADS, SIZE // HEADS, dropout=self.dropout)

    def attend(self, x, mask=None, causal=False, weights=False, training=False):
        """Self-attention over `x`, `mask` its padding (True = attend): the output as it comes."""
        y = self.layer(
            x,
            x,
            query_mask=mask,
            value_mask=mask,
            key_mask=mask,
            use_causal_mask=causal,
            return_attention_scores=weights,
            training=training,
        )
        return y[0] if weights else y

    def attend_pairs(self, x, pairs):
        """Self-attention in which `pairs` say which key each query attends to."""
        return self.layer(x, x, attention_mask=pairs)

    def attend_elsewhere(self, x, mask):
        """The same by another function of the library: the attended values."""
        import keras

        heads = x[:, :, None]
        pairs = np.broadcast_to(mask[:, None, None, :], (len(x), 1, STEPS, STEPS))
        return keras.ops.dot_product_attention(heads, heads, heads, mask=pairs)[:, :, 0]

    def with_cache(self) -> "Keras":
        """The library's layer that keeps a cache of keys and values."""
        raise Absent

    def foreign(self, mask):
        """A mask as another library has it, of numbers: here it is added to the scores."""
        return np.where(mask, 0, -1e9).astype("float32")

    def gradients(self, x, mask):
        """The gradients of the weights, where only the first example counts."""
        import tensorflow as tf

        self.attend(x)  # builds the layer
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(self.attend(x, mask)[0])
        variables = [weight.value for weight in self.layer.trainable_weights]
        found = tape.gradient(total, variables)
        return [np.asarray(each) for each in found if each is not None]


class KerasHub(Keras):
    """`keras_hub.layers.TransformerEncoder`, and `TransformerDecoder` where it is causal."""

    name = "KerasHub"
    package = "keras-hub"

    @cached_property
    def layer(self):
        from keras_hub.layers import TransformerEncoder

        return TransformerEncoder(2 * SIZE, HEADS, dropout=self.dropout)

    @cached_property
    def decoder(self):
        """The causal block."""
        from keras_hub.layers import TransformerDecoder

        return TransformerDecoder(2 * SIZE, HEADS, dropout=self.dropout)

    def attend(self, x, mask=None, causal=False, weights=False, training=False):
        if causal:
            return self.decoder(x, decoder_padding_mask=mask, training=training)
        y = self.layer(x, padding_mask=mask, training=training, return_attention_scores=weights)
        return y[0] if weights else y

    def attend_pairs(self, x, pairs):
        return self.layer(x, attention_mask=pairs)

    def attend_elsewhere(self, x, mask):
        return self.layer(x, attention_mask=np.repeat(mask[:, None], STEPS, 1))

    def with_cache(self):
        from keras_hub.layers import CachedMultiHeadAttention

        cached = Keras()
        cached.layer = CachedMultiHeadAttention(HEADS, SIZE // HEADS)
        cached.attend = lambda x: cached.layer(x, x)
        return cached


class Ours(Keras):
    """`keras_attention.MultiHeadAttention`."""

    name = "this package"
    package = "keras-attention"

    @cached_property
    def layer(self):
        import keras_attention

        return keras_attention.MultiHeadAttention(HEADS, SIZE // HEADS, dropout=self.dropout)

    def attend(self, x, mask=None, causal=False, weights=False, training=False):
        y = self.layer(
            x,
            query_mask=mask,
            use_causal_mask=causal,
            return_attention_scores=weights,
            training=training,
        )
        return y[0] if weights else y

    def attend_pairs(self, x, pairs):
        return self.layer(x, attention_mask=pairs)

    def attend_elsewhere(self, x, mask):
        import keras_attention

        return keras_attention.LuongAttention("dot")(x, x, value_mask=mask)

    def with_cache(self):
        return self  # the same layer, by `initial_state` and `step`


class Torch:
    """`torch.nn.MultiheadAttention`, as it is called by default; its masks are True = hide."""

    name = "PyTorch"
    package = "torch"

    def __init__(self, dropout: float = 0.0):
        self.dropout = dropout

    @cached_property
    def layer(self) -> Any:
        """The layer that is tried."""
        import torch

        layer = torch.nn.MultiheadAttention(SIZE, HEADS, self.dropout, batch_first=True)
        return layer.eval()

    @cached_property
    def encoder(self) -> Any:
        """The stack of blocks, which has a fast path where it is not trained."""
        import torch

        block = torch.nn.TransformerEncoderLayer(SIZE, HEADS, 2 * SIZE, 0.0, batch_first=True)
        return torch.nn.TransformerEncoder(block, 1)

    def attend(self, x, mask=None, causal=False, weights=True, training=None):
        import torch

        inputs = torch.tensor(np.asarray(x))
        padding = None if mask is None else self._tensor(mask)
        if training is not None:
            with torch.no_grad():
                return self.encoder.train(training)(inputs, src_key_padding_mask=padding)
        future = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1) if causal else None
        options = {"key_padding_mask": padding, "attn_mask": future, "need_weights": weights}
        return self.layer(inputs, inputs, inputs, is_causal=causal, **options)[0]

    @staticmethod
    def _tensor(mask):
        import torch

        mask = np.asarray(mask)
        return torch.tensor(~mask if mask.dtype == bool else mask)

    def attend_pairs(self, x, pairs):
        import torch

        inputs = torch.tensor(x)
        return self.layer(inputs, inputs, inputs, attn_mask=self._tensor(pairs))[0]

    def attend_elsewhere(self, x, mask):
        import torch

        inputs = torch.tensor(x)
        hide = self._tensor(mask)[:, None].expand(-1, STEPS, -1)  # as for `MultiheadAttention`
        return torch.nn.functional.scaled_dot_product_attention(
            inputs, inputs, inputs, attn_mask=hide
        )

    def with_cache(self):
        raise Absent

    def foreign(self, mask):
        return mask.astype("float32")  # as most other libraries have it: 1 = attend

    def gradients(self, x, mask):
        self.layer.zero_grad()
        self.attend(x, mask)[0].sum().backward()
        return [each.grad.numpy() for each in self.layer.parameters()]


LIBRARIES = (Keras, KerasHub, Torch, Ours)


def array(x) -> np.ndarray:
    """The numbers of a tensor of any library."""
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def inputs(batch: int = len(LENGTHS)) -> np.ndarray:
    """Random inputs, `(batch, STEPS, SIZE)`."""
    return np.random.default_rng(5).normal(size=(batch, STEPS, SIZE)).astype("float32")


def padding(*lengths: int) -> np.ndarray:
    """The mask of sequences of these lengths, padded behind."""
    return np.arange(STEPS) < np.array(lengths)[:, None]


def differ(first, second) -> bool:
    """Whether two results differ by more than rounding."""
    return not np.allclose(array(first), array(second), atol=TOLERANCE)


def reads_padding(attend: Callable, mask: np.ndarray) -> bool:
    """Whether what is in the padding changes the result of real steps."""
    x = inputs(len(mask))
    other = np.where(mask[..., None], x, x + 3).astype("float32")
    return differ(array(attend(x))[mask], array(attend(other))[mask])


def from_embedding(run: Callable) -> bool:
    """The same where the padding is word 0 of an embedding with `mask_zero`."""
    import keras

    mask = padding(*LENGTHS)
    words = np.where(mask, np.arange(1, 1 + mask.size).reshape(mask.shape), 0)
    embedding = keras.layers.Embedding(mask.size + 1, SIZE, mask_zero=True)
    outputs = []
    for add in (0, 3):
        embedding(words)  # builds it
        weights = embedding.get_weights()[0]
        weights[0] += add
        embedding.set_weights([weights])
        outputs.append(array(run(embedding(words))))
    first, second = outputs
    return differ(first[mask], second[mask]) if first.ndim == 3 else differ(first, second)


# The checks: each returns the fault that it finds, or nothing.


def causal(library) -> str | None:
    x = inputs()
    later = x.copy()
    later[:, 3:] += 1
    options = {"causal": True, "weights": True}
    with_dropout = type(library)(dropout=0.1)
    now, then = (array(with_dropout.attend(each, **options))[:, :3] for each in (x, later))
    return "A query attends to later positions." if differ(now, then) else None


def implicit(library) -> str | None:
    _needs_keras(library)
    if from_embedding(library.attend):
        return "The padding is attended to."
    return None


def implicit_with_cache(library) -> str | None:
    _needs_keras(library)
    cached = library.with_cache()
    if from_embedding(cached.attend):
        name = type(cached.layer).__name__
        return f"`{name}` takes the mask from no input, and attends to the padding."
    return None


def passed_on(library) -> str | None:
    import keras

    _needs_keras(library)
    average = keras.layers.GlobalAveragePooling1D()
    if from_embedding(lambda x: average(library.attend(x))):
        return "The average of the outputs counts the padding."
    return None


def compiled(library) -> str | None:
    _needs_keras(library)
    import tensorflow as tf

    library.attend(inputs())  # builds the layer
    # A function that is run as it is would keep the mask.
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(False)
    try:
        lost = from_embedding(tf.function(lambda x: library.attend(x), autograph=False))
    finally:
        tf.config.run_functions_eagerly(before)
    if lost:
        return (
            "TensorFlow makes new tensors of a function's arguments, without what Keras attached "
            "to them, and the padding is attended to. A mask that is an argument arrives."
        )
    return None


def operator(library) -> str | None:
    _needs_keras(library)
    if from_embedding(lambda x: library.attend(x * 2)):
        return (
            "An operator of the backend makes a tensor without the mask, and the padding is "
            "attended to. `keras.layers.Rescaling` keeps it."
        )
    return None


def nothing_to_attend(library) -> str | None:
    found = _of_nothing(library)
    return None if found == NOTHING else f"{found}.".capitalize().replace("Nan", "NaN")


NOTHING = "nothing is attended to"


def _of_nothing(library, **options):
    """What a library does in an example whose steps are all padding."""
    mask, x = padding(3, 0), inputs()
    other = x.copy()
    other[1, 4] += 3
    before, after = (array(library.attend(each, mask, **options))[1, :4] for each in (x, other))
    if np.isnan(before).all():
        return "NaN comes out"
    return "the padding is averaged" if differ(before, after) else NOTHING


def gradient_of_nothing(library) -> str | None:
    found = library.gradients(inputs(), padding(3, 0))
    if not all(np.isfinite(each).all() for each in found):
        return "The gradients of the weights are NaN, even if only other examples count."
    return None


def with_weights(library) -> str | None:
    with_them, without = (_of_nothing(library, weights=each) for each in (True, False))
    if with_them != without:
        return f"Where the weights are returned, {with_them}; where they are not, {without}."
    return None


def left_padding(library) -> str | None:
    mask = padding(*LENGTHS)[:, ::-1]
    x = inputs()

    def two_layers(x, mask):
        for _ in range(2):
            x = x + array(library.attend(x, mask, causal=True))
        return x

    padded = two_layers(x, mask)[mask]
    if not np.isfinite(padded).all():
        return (
            "A query in the padding has nothing to attend to and becomes NaN, and the second layer "
            "carries that to every word."
        )
    other = np.where(mask[..., None], x, x + 3).astype("float32")
    return "The padding is attended to." if differ(padded, two_layers(other, mask)[mask]) else None


def not_a_number(library) -> str | None:
    mask = padding(*LENGTHS)
    x = np.where(mask[..., None], inputs(), np.nan).astype("float32")
    found = array(library.attend(x, mask))[mask]
    if np.isnan(found).all():
        return "Every step of the example becomes NaN, since 0 times NaN is NaN."
    return None if np.isfinite(found).all() else "Some steps become NaN."


def foreign_numbers(library) -> str | None:
    mask, x = padding(*LENGTHS), inputs()
    expected = array(library.attend(x, mask))[mask]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one that warns does not fail silently
        found = array(library.attend(x, library.foreign(mask)))[mask]
    if not differ(found, expected):
        return None
    if isinstance(library, Torch):
        return "Numbers are added to the scores, as documented: 1 and 0 hide nothing."
    return "What is not 0 counts as True: a mask of 0 and -1e9 hides the words, not the padding."


def stretched(library) -> str | None:
    library.attend(inputs(), padding(*LENGTHS)[:, :1])
    return "The mask of the first step is taken for all five."


def ambiguous(library) -> str | None:
    mask = padding(2, 5, 1, 4, 3)  # as many examples as steps
    if reads_padding(lambda x: library.attend_pairs(x, mask), mask):
        return (
            "With as many examples as steps, nothing tells one from the other: the mask of the "
            "second example is that of the second query."
        )
    return None


def one_convention(library) -> str | None:
    mask = padding(*LENGTHS)
    if reads_padding(lambda x: library.attend_elsewhere(x, mask), mask):
        return (
            "True hides a position from `MultiheadAttention`, and shows it to "
            "`scaled_dot_product_attention`, as documented."
        )
    return None


def training_and_not(library) -> str | None:
    mask, x = padding(2, 4), inputs()  # the last step is padding in all examples
    trained, not_trained = (library.attend(x, mask, training=each) for each in (True, False))
    if trained.shape != not_trained.shape:
        return "Outside training the outputs are cut to the longest example."
    return (
        "Outside training it computes something else."
        if differ(array(trained)[mask], array(not_trained)[mask])
        else None
    )


def _needs_keras(library):
    if isinstance(library, Torch):
        raise Absent


@dataclass(frozen=True)
class Fault:
    """A known fault.

    Args:
        title: What should hold.
        reports: Where it was reported, as `owner/name#number`.
        check: Takes a library; returns the fault that it finds, or `None`.
    """

    title: str
    reports: tuple[str, ...]
    check: Callable[[Any], str | None]


FAULTS = (
    Fault(
        "A causal mask holds with dropout, and where weights are returned",
        ("keras-team/keras#23038",),
        causal,
    ),
    Fault("The mask of an embedding is used", ("keras-team/keras-hub#2220",), implicit),
    Fault("… by a layer with a cache", (), implicit_with_cache),
    Fault("… by the layer that follows", ("keras-team/keras-hub#137",), passed_on),
    Fault("… in a `tf.function` that gets the input", ("keras-team/keras#17655",), compiled),
    Fault("… after `x * 2`", ("keras-team/keras#18416",), operator),
    Fault(
        "An example that is all padding is not read", ("pytorch/pytorch#27968",), nothing_to_attend
    ),
    Fault("… has finite gradients", ("pytorch/pytorch#41508",), gradient_of_nothing),
    Fault("… is the same with weights returned", ("pytorch/pytorch#160064",), with_weights),
    Fault("Padding before the words, two causal layers", ("pytorch/pytorch#110213",), left_padding),
    Fault(
        "NaN in the padding stays there",
        ("keras-team/keras#16108", "pytorch/pytorch#101967"),
        not_a_number,
    ),
    Fault("Numbers as a mask mean what they say", ("pytorch/pytorch#21518",), foreign_numbers),
    Fault("A mask `(B, 1)` for five steps is an error", (), stretched),
    Fault("A mask `(B, S)` is not taken for pairs `(T, S)`", (), ambiguous),
    Fault("All functions agree what True is", ("pytorch/pytorch#170415",), one_convention),
    Fault(
        "Padding is the same in training and outside",
        ("pytorch/pytorch#86120", "pytorch/pytorch#97111"),
        training_and_not,
    ),
)


@dataclass(frozen=True)
class Cell:
    """What a library did: the verdict, and the finding where it is wrong or refused."""

    verdict: str
    finding: str = ""


def try_fault(fault: Fault, library: type) -> Cell:
    """Try one fault on a new instance of one library."""
    import keras

    keras.utils.set_random_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            finding = fault.check(library())
        except Absent:
            return Cell(ABSENT)
        except ImportError as error:
            raise BenchmarkError(f"{library.name} is missing: {error}.") from None
        except Exception as error:  # a refusal, whatever its class
            return Cell(REFUSED, f"refused, by `{type(error).__name__}`.")
    return Cell(WRONG, finding) if finding else Cell(RIGHT)


def _link(report: str) -> str:
    repository, number = report.split("#")
    return (
        f"[{repository.split('/')[1]} #{number}](https://github.com/{repository}/issues/{number})"
    )


def versions(libraries=LIBRARIES) -> str:
    """The line that names what was tried."""
    packages = ["tensorflow", *(each.package for each in libraries if each is not Ours)]
    return ", ".join(f"{name} {(installed(name) or 'none').split('+')[0]}" for name in packages)


def report(libraries=LIBRARIES) -> str:
    """Run every cell; return the table, what is wrong where it is, and the versions."""
    head = ["", "what should hold", *(each.name for each in libraries)]
    rows = [head, ["---"] * len(head)]
    findings: list[str] = []
    for number, fault in enumerate(FAULTS, 1):
        cells = {library.name: try_fault(fault, library) for library in libraries}
        links = ", ".join(map(_link, fault.reports))
        title = f"{fault.title} ({links})" if links else fault.title
        verdicts = [each.verdict for each in cells.values()]
        verdicts = [f"**{each}**" if each == WRONG else each for each in verdicts]
        rows.append([str(number), title, *verdicts])
        for finding in dict.fromkeys(each.finding for each in cells.values() if each.finding):
            names = [name for name, cell in cells.items() if cell.finding == finding]
            findings.append(f"- **{number}**, {', '.join(names)}: {finding}")
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*table, "", *findings, "", f"Versions: {versions(libraries)}."])


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_only(parser, [each.package for each in LIBRARIES], "libraries")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise BenchmarkError(
            "The study needs Keras on TensorFlow, which has `tf.function`. Received: "
            f"KERAS_BACKEND={keras.backend.backend()}."
        )
    print(report([each for each in LIBRARIES if each.package in (options.only or [each.package])]))
