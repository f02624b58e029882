"""A Transformer that others have trained: its description, its vocabularies, and our network."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ...errors import UserError, not_yaml, shown
from ...store.tensors import LONGEST_NAME, Tensors
from ...text import START_ID
from ..networks.transformer import Transformer

MOST_REASONS = 12
LOW = -30.0
"""Bias of padding and the start, which such a network never writes.

No search writes them anyway. Minus infinity would spoil the loss of a training that smooths labels.
"""


class Refusal:
    """The reasons why something cannot be read, which are raised together.

    Args:
        path: the file or folder.
    """

    def __init__(self, path: Path):
        self.path = path
        self.reasons: list[str] = []

    def need(self, holds: bool, reason: str) -> bool:
        """Note a reason unless something holds; return whether it does."""
        if not holds and reason not in self.reasons:
            self.reasons.append(reason)
        return holds

    def check(self) -> None:
        """Raise a UserError with all reasons so far, if any."""
        if not self.reasons:
            return
        parts, more = self.reasons[:MOST_REASONS], len(self.reasons) - MOST_REASONS
        if more > 0:
            parts = [*parts, f"and {more} more"]
        raise UserError(
            f"{self.path} cannot be read as a Transformer of this package: {'; '.join(parts)}."
        )


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words of one side of a network of others, by their ids there.

    Args:
        words: the word of each id.
        unknown: the id of the token for unknown words.
        end: the id of the end of a sentence.
        pad: the id of padding; None where there is none.
        start: the id whose embedding a translation starts from; None for zeros.
    """

    words: Sequence[str]
    unknown: int
    end: int
    pad: int | None = None
    start: int | None = None

    @property
    def others(self) -> list[int]:
        """The ids that are not special, in order."""
        special = {self.unknown, self.end, self.pad, self.start}
        return [each for each in range(len(self.words)) if each not in special]

    @property
    def rows(self) -> np.ndarray:
        """The id there for each id here, -1 for none."""
        special = [self.pad, self.unknown, self.start, self.end]
        return np.array([-1 if each is None else each for each in special] + self.others)

    @property
    def pieces(self) -> list[str]:
        """The words of the ids here, without the special ones."""
        return [self.words[each] for each in self.others]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What a network of others is made of; all its kernels are named `(inputs, outputs)` here."""

    source_words: int
    target_words: int
    width: int
    heads: int
    feed_forward: int
    layers: int
    decoder_layers: int
    epsilon: float
    sinusoids: Mapping[str, Any]
    activation: str = "relu"
    norm: str = "post"
    autoregression: str = "self-attention"
    shared: bool = True
    tied: bool = True
    has_output_bias: bool = True
    source_end: bool = True

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the name of each array, and its shape."""
        width, inner = self.width, self.feed_forward
        if self.shared:
            yield "embeddings", (self.source_words, width)
        else:
            yield "source.embeddings", (self.source_words, width)
            yield "target.embeddings", (self.target_words, width)
        for side, depth in (("encoder", self.layers), ("decoder", self.decoder_layers)):
            for index in range(depth):
                for part in self._parts(side):
                    name = f"{side}.{index}.{part}"
                    if part == "ssru":
                        yield f"{name}.kernel", (width, width)
                        yield f"{name}.forget_kernel", (width, width)
                        yield f"{name}.forget_bias", (width,)
                    elif part == "feed_forward":
                        yield f"{name}.kernel", (width, inner)
                        yield f"{name}.bias", (inner,)
                        yield f"{name}.output_kernel", (inner, width)
                        yield f"{name}.output_bias", (width,)
                    else:
                        for each in ("query", "key", "value", "output"):
                            yield f"{name}.{each}_kernel", (width, width)
                            yield f"{name}.{each}_bias", (width,)
                    yield f"{name}_norm.gamma", (width,)
                    yield f"{name}_norm.beta", (width,)
            if self.norm == "pre":
                yield f"{side}.norm.gamma", (width,)
                yield f"{side}.norm.beta", (width,)
        if not self.tied:
            yield "output.kernel", (width, self.target_words)
        if self.has_output_bias:
            yield "output.bias", (self.target_words,)

    def _parts(self, side: str) -> list[str]:
        if side == "encoder":
            return ["self_attention", "feed_forward"]
        own = "ssru" if self.autoregression == "ssru" else "self_attention"
        return [own, "cross_attention", "feed_forward"]

    def network(
        self,
        read: Callable[[str], np.ndarray],
        source: Vocabulary,
        target: Vocabulary,
        dtype: Any = None,
        **options: Any,
    ) -> Transformer:
        """Return the network with the arrays that `read` gives by their names.

        Args:
            read: function of a name.
            source, target: the vocabularies.
            dtype: dtype policy of the network.
            **options: more arguments of `Transformer`.
        """
        rows, written = source.rows, target.rows
        network = Transformer(
            len(rows),
            len(written),
            embedding_size=self.width,
            layers=self.layers,
            decoder_layers=self.decoder_layers,
            feed_forward_size=self.feed_forward,
            heads=self.heads,
            activation=self.activation,
            norm=self.norm,
            autoregression=self.autoregression,
            layer_norm_epsilon=self.epsilon,
            sinusoids=self.sinusoids,
            share_embeddings=self.shared,
            tie_embeddings=self.tied,
            source_end=self.source_end,
            dtype=dtype,
            **options,
        )
        if self.shared:
            network.target_embedding.embeddings.assign(taken(read("embeddings"), written, 0.0))
        else:
            sides = (("source", rows), ("target", written))
            for side, ids in sides:
                layer = getattr(network, f"{side}_embedding")
                layer.embeddings.assign(taken(read(f"{side}.embeddings"), ids, 0.0))
        for side, blocks in (("encoder", network.encoders), ("decoder", network.decoders)):
            for index, block in enumerate(blocks):
                for part in self._parts(side):
                    _fill(block, part, f"{side}.{index}.{part}", read)
            if self.norm == "pre":
                _fill_norm(getattr(network, f"{side}_norm"), f"{side}.norm", read)
        logits = network.word_logits
        if not self.tied:
            logits.kernel.assign(taken(read("output.kernel").T, written, 0.0).T)
        bias = np.zeros(self.target_words, "float32")
        if self.has_output_bias:
            bias = read("output.bias").ravel()
        of_words = written.copy()
        if target.start == target.pad:
            of_words[START_ID] = -1  # it is read, and never written
        logits.bias.assign(taken(bias, of_words, LOW))
        return network


def taken(array: np.ndarray, rows: np.ndarray, missing: float) -> np.ndarray:
    """Return rows of an array, and a number in place of each row -1."""
    found = array[np.maximum(rows, 0)]
    found[rows < 0] = missing
    return found


def _fill(block: Any, part: str, name: str, read: Callable[[str], np.ndarray]) -> None:
    layer = getattr(block, part)
    if part == "ssru":
        both = [read(f"{name}.forget_kernel"), read(f"{name}.kernel")]
        layer.kernel.assign(np.concatenate(both, axis=1))
        layer.bias.assign(read(f"{name}.forget_bias").ravel())
    else:
        names = ["kernel", "bias", "output_kernel", "output_bias"]
        if part != "feed_forward":
            sides = ("query", "key", "value", "output")
            names = [f"{side}_{kind}" for side in sides for kind in ("kernel", "bias")]
        for each in names:
            variable = getattr(layer, each)
            variable.assign(read(f"{name}.{each}").reshape(variable.shape))
    _fill_norm(getattr(block, f"{part}_norm"), f"{name}_norm", read)


def _fill_norm(layer: Any, name: str, read: Callable[[str], np.ndarray]) -> None:
    layer.gamma.assign(read(f"{name}.gamma").ravel())
    layer.beta.assign(read(f"{name}.beta").ravel())


def check_depth(layers: int, decoder_layers: int, tensors: Tensors, refusal: Refusal) -> None:
    """Note more layers than a file has arrays, before their names would fill the memory."""
    deepest = max(layers, decoder_layers)
    refusal.need(deepest <= len(tensors.shapes), f"it says that it has {deepest:,} layers")


def check_tensors(
    tensors: Tensors,
    wanted: Iterable[tuple[str, tuple[int, ...]]],
    unused: Callable[[str], bool],
    refusal: Refusal,
) -> None:
    """Note what a file lacks, has in another shape, or has beyond what is wanted."""
    left = {name for name in tensors.shapes if not unused(name)}
    for name, shape in wanted:
        found = tensors.shapes.get(name)
        if refusal.need(found is not None, f"it has no array {name}"):
            has = _without_ones(found)
            refusal.need(has == shape, f"{name} has the shape {shown(found)}, not {shape}")
        left.discard(name)
    for name in sorted(left):
        refusal.need(False, f"it has an array {shown(name)}, which this package does not know")


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without leading axes of one."""
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return tuple(shape)


def check_special(vocabulary: Vocabulary, refusal: Refusal) -> None:
    """Note special ids that a vocabulary does not have."""
    for name in ("unknown", "end", "pad", "start"):
        value = getattr(vocabulary, name)
        is_id = isinstance(value, int) and 0 <= value < len(vocabulary.words)
        refusal.need(is_id or (value is None and name in ("pad", "start")), f"no id of `{name}`")


def yaml_mapping(text: str, where: str, as_text: bool = False) -> dict[str, Any]:
    """Return a mapping of YAML; with `as_text`, its scalars as they are written.

    Aliases are refused: a few lines of them describe more than fits into the memory.
    """
    names = ("CBaseLoader", "BaseLoader") if as_text else ("CSafeLoader", "SafeLoader")
    loader = getattr(yaml, names[0], None) or getattr(yaml, names[1])
    try:
        _check_events(yaml.parse(text, loader), where)
        found = yaml.load(text, loader)
    except UserError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise not_yaml(where, error) from None
    if not isinstance(found, dict):
        raise UserError(f"{where} is no mapping of YAML. Received: {shown(found)}")
    return found


def _check_events(events: Iterable[yaml.Event], where: str) -> None:
    """Refuse aliases, and a key that a mapping has twice, of which only the last would count."""
    depth, is_key, keys = 0, True, set()
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise UserError(f"{where} has aliases of YAML: write out what they stand for.")
        if depth == 1 and isinstance(event, yaml.NodeEvent):
            key = getattr(event, "value", None) if is_key else None
            if key is not None and key in keys:
                raise UserError(f"{where} has {shown(key)} twice.")
            keys.add(key)
            is_key = not is_key
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)


def check_spelling(given: Iterable[Any], known: Iterable[str], refusal: Refusal) -> None:
    """Note names that are unknown and close to a known one that is not given."""
    known, given = set(known), {str(each) for each in given}
    for name in sorted(given - known):
        close = get_close_matches(name[:LONGEST_NAME], known - given, n=1, cutoff=0.88)
        for each in close:
            refusal.need(False, f"it has {shown(name)}, which may be meant as `{each}`")
