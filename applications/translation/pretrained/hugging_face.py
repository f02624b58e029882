"""Marian's models in Hugging Face's form: `config.json`, two SentencePiece models, and weights.

Most of OPUS-MT's models, `Helsinki-NLP/opus-mt-*`, are published so.
"""

import importlib.util
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.decoding import SearchOptions

from ...errors import UserError, shown
from ...store.files import MOST_JSON, json_object, open_regular, read_bytes
from ...store.tensors import Buffer, Tensors
from ...store.weights import check_weights
from .foreign import (
    Architecture,
    Refusal,
    Vocabulary,
    check_depth,
    check_special,
    check_spelling,
    check_tensors,
    yaml_mapping,
)
from .source import Source, languages_of, preprocessor_of, search_of

NAME = "Hugging Face's MarianMTModel"
CONFIG, VOCABULARY, TARGET_VOCABULARY = "config.json", "vocab.json", "target_vocab.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "tf_model.h5")
EPSILON = 1e-5
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
MUST_BE = {
    "is_encoder_decoder": (True,),
    "add_final_layer_norm": (False,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "static_position_embeddings": (True,),
    "quantization_config": (None,),
}
"""Values of settings that say how the network computes; others mean another network."""
MUST_HAVE = ("activation_function", "scale_embedding")
"""Settings that each file has, so that one without them is misspelt."""
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
SEARCH = {"num_beams": "beam_size", "length_penalty": "length_penalty"}
TIES = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True}
TIED = "model.shared.weight", "model.encoder.embed_tokens.weight"
TIED_TARGET, OUTPUT = "model.decoder.embed_tokens.weight", "lm_head.weight"
POSITIONS = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))
LANGUAGES = re.compile(r"opus-mt-(?:\w+-)*([a-z]{2})-([a-z]{2})/")
"""The languages in a model's name."""
TENSOR_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class Safetensors(Tensors):
    """A `.safetensors` file: a head of JSON, and data.

    The package `safetensors` gives NumPy no bfloat16, and needs PyTorch for it.
    """

    def __init__(self, path: Path):
        super().__init__(path)
        buffer = Buffer(path)
        head = bytes(buffer.take(buffer.number()))
        described = json_object(head, str(path), unique=True)
        self._data = buffer.take(len(buffer.content) - buffer.position)
        self._found: dict[str, tuple[str, int, int]] = {}
        for name, each in described.items():
            if name != "__metadata__":
                self._take(name, each)
        self.check_numbers(TENSOR_DTYPES[kind] for kind, *_ in self._found.values())
        end = 0
        for _, first, last in sorted(self._found.values(), key=lambda each: each[1:]):
            if first != end:
                raise self.damaged("its arrays do not follow each other")
            end = last
        if end != len(self._data):
            raise self.damaged(f"its arrays have {end:,} bytes, of {len(self._data):,}")

    def _take(self, name: str, described: Any) -> None:
        described = described if isinstance(described, dict) else {}
        kind, shape = described.get("dtype"), described.get("shape")
        offsets = described.get("data_offsets")
        is_sound = all(
            isinstance(each, list) and all(type(x) is int and x >= 0 for x in each)
            for each in (shape, offsets)
        )
        if not is_sound or len(offsets) != 2:
            raise self.damaged(f"{shown(name)} is described as {shown(described)}")
        if not (isinstance(kind, str) and kind in TENSOR_DTYPES):
            raise UserError(
                f"{self.path} holds {shown(name)} as {shown(kind)}. Expected: "
                f"{', '.join(TENSOR_DTYPES)}."
            )
        size = math.prod(shape) * np.dtype(TENSOR_DTYPES[kind]).itemsize
        first, last = offsets
        if last > len(self._data) or last - first != size:
            raise self.damaged(f"{shown(name)} of {shape} does not have its {size:,} bytes")
        self.note(name, tuple(shape))
        self._found[name] = kind, first, last

    def _read(self, name: str) -> np.ndarray:
        kind, first, last = self._found[name]
        array = np.frombuffer(self._data[first:last], TENSOR_DTYPES[kind])
        if kind == "BF16":  # the upper half of a float32
            array = (array.astype("<u4") << 16).view("<f4")
        return array.reshape(self.shapes[name])


class TorchTensors(Tensors):
    """A `pytorch_model.bin`, which PyTorch reads, weights alone."""

    def __init__(self, path: Path):
        super().__init__(path)
        open_regular(path).close()
        import torch

        with self.reading():
            found = torch.load(path, map_location="cpu", weights_only=True)
            self._found = {str(name): each for name, each in found.items()}
            for name, each in self._found.items():
                self.note(name, tuple(each.shape))

    def _read(self, name: str) -> np.ndarray:
        with self.reading():
            return self._found[name].detach().float().numpy()


class TensorFlowTensors(Tensors):
    """A `tf_model.h5`: its arrays have the names of PyTorch's here, and their shapes."""

    def __init__(self, path: Path):
        super().__init__(path)
        import h5py

        check_weights(path)
        self._found: dict[str, str] = {}

        def note(name, item):
            if isinstance(item, h5py.Dataset):
                ours, shape = _name_of_tensorflow(name), tuple(item.shape)
                if item.dtype not in TENSOR_DTYPES.values():
                    raise self.damaged(f"{shown(name)} holds {item.dtype}")
                self.note(ours, shape[::-1] if name.endswith("kernel:0") else shape)
                self._found[ours] = name

        with self.reading(), h5py.File(path, "r") as file:
            file.visititems(note)

    def _read(self, name: str) -> np.ndarray:
        import h5py

        with self.reading(), h5py.File(self.path, "r") as file:
            array = file[self._found[name]][()]
        return array.T if self._found[name].endswith("kernel:0") else array


def _name_of_tensorflow(name: str) -> str:
    """Return PyTorch's name of an array, of its path in a `tf_model.h5`.

    TensorFlow's begin with the names of the group and of the model, which differ.
    """
    name = name.removesuffix(":0")
    if found := re.search(r"(?:^|/)((?:encoder|decoder)/.*)$", name):
        *path, kind = found[1].split("/")
        ends = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}
        return ".".join(["model", *path, ends.get(kind, kind)])
    for part, whole in (("shared", TIED[0]), ("final_logits_bias", "final_logits_bias")):
        if re.search(rf"(?:^|[/.]){part}(?:/|$)", name):
            return whole
    return OUTPUT if "lm_head" in name else name


def matches(folder: Path) -> bool:
    """Whether a folder holds a Marian model in Hugging Face's form."""
    path = folder / CONFIG
    if not path.is_file() or path.stat().st_size > MOST_JSON:
        return False
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("model_type") == "marian"


def read(folder: Path) -> Source:
    """Return what a folder of Hugging Face's files holds.

    Raises:
        UserError: naming all reasons at once why it cannot be read.
    """
    config = _json(folder / CONFIG)
    refusal = Refusal(folder)
    source, target = _vocabularies(folder, config, refusal)
    architecture = _architecture(config, source, target, refusal)
    refusal.check()
    tensors = _weights(folder)
    refusal = Refusal(tensors.path)
    check_depth(architecture.layers, architecture.decoder_layers, tensors, refusal)
    refusal.check()
    names = _names(architecture, tensors)
    _check(tensors, names, architecture, refusal)
    refusal.check()

    def array(name: str) -> np.ndarray:
        found = tensors.read(names[name])
        return found.T if found.ndim == 2 and name.endswith("kernel") else found

    front = _front_matter(folder)
    origin = config.get("_name_or_path") or front.get("name") or ""
    return Source(
        name=NAME,
        folder=folder,
        weights=tensors.path,
        network=lambda dtype: architecture.network(array, source, target, dtype),
        preprocessor=preprocessor_of(
            (folder / "source.spm", source.pieces), (folder / "target.spm", target.pieces)
        ),
        search=_search(folder, config),
        about=str(origin),
        licence=str(front.get("license") or ""),
        languages=languages_of(LANGUAGES.search(f"{origin}/{folder}/")),
    )


def _architecture(
    config: Mapping[str, Any], source: Vocabulary, target: Vocabulary, refusal: Refusal
) -> Architecture:
    def count(key: str) -> int:
        value = config.get(key)
        is_count = type(value) is int and 0 < value < 1 << 31
        refusal.need(is_count, f"`{key}` is {shown(value)}, not a count")
        return value if is_count else 1

    for key, known in MUST_BE.items():
        value = config.get(key, known[0])
        refusal.need(value in known, f"`{key}` is {shown(value)}")
    sizes = {}
    for key, part in (("heads", "attention_heads"), ("feed_forward", "ffn_dim")):
        both = count(f"encoder_{part}"), count(f"decoder_{part}")
        same = both[0] == both[1]
        refusal.need(same, f"`{part}` of encoder and decoder are {both[0]} and {both[1]}")
        sizes[key] = both[0]
    width = count("d_model")
    heads = sizes["heads"]
    refusal.need(width % heads == 0, f"{heads} heads do not divide `d_model`, {width}")
    activation = config.get("activation_function", "gelu")
    is_known = isinstance(activation, str) and activation in ACTIVATIONS
    refusal.need(is_known, f"`activation_function` is {shown(activation)}")
    refusal.need(
        all(key in config for key in MUST_HAVE), f"it does not say {' or '.join(MUST_HAVE)}"
    )
    names = [*MUST_BE, *SPECIAL, *SEARCH, *TIES, "decoder_vocab_size", "_name_or_path"]
    check_spelling(config, names, refusal)
    flags = {"scale_embedding": False, **TIES}
    for key, usual in flags.items():
        flags[key] = config.get(key, usual)
        refusal.need(isinstance(flags[key], bool), f"`{key}` is {shown(flags[key])}")
    shared = flags["share_encoder_decoder_embeddings"]
    same = not shared or source == target
    refusal.need(same, f"it shares embeddings and has a {TARGET_VOCABULARY}")
    return Architecture(
        source_words=len(source.words),
        target_words=len(target.words),
        width=width,
        layers=count("encoder_layers"),
        decoder_layers=count("decoder_layers"),
        epsilon=EPSILON,
        sinusoids={"layout": "halves", "endpoint": False, "scale": flags["scale_embedding"]},
        activation=ACTIVATIONS.get(activation, "relu") if is_known else "relu",
        shared=shared,
        tied=flags["tie_word_embeddings"],
        **sizes,
    )


def _vocabularies(
    folder: Path, config: Mapping[str, Any], refusal: Refusal
) -> tuple[Vocabulary, Vocabulary]:
    has_own = (folder / TARGET_VOCABULARY).is_file()
    sizes = [config.get("vocab_size")]
    sizes.append(
        sizes[0] if config.get("decoder_vocab_size") is None else config["decoder_vocab_size"]
    )
    files = VOCABULARY, TARGET_VOCABULARY if has_own else VOCABULARY
    found = []
    for name, size in zip(files, sizes, strict=True):
        entries = _json(folder / name)
        is_count = type(size) is int and 0 < size <= 10 * len(entries) + 1000
        if not refusal.need(is_count, f"{name} has {len(entries):,} words, of {shown(size)}"):
            refusal.check()
        words = [f"<id {place}>" for place in range(size)]
        for word, place in entries.items():
            is_id = type(place) is int and 0 <= place < size
            if refusal.need(is_id, f"{name} gives {shown(word)} the id {shown(place)} of {size:,}"):
                words[place] = word
        ids = {word: place for place, word in enumerate(words)}
        special = (ids.get(each) for each in ("<unk>", "</s>", "<pad>"))
        found.append(Vocabulary(words, *special))
    start = config.get("decoder_start_token_id")
    source, target = (Vocabulary(v.words, v.unknown, v.end, v.pad, start) for v in found)
    if not has_own:
        source = target
    check_special(target, refusal)
    for side in (source, target):
        for name, token in (("unknown", "<unk>"), ("end", "</s>")):
            has = getattr(side, name) is not None
            refusal.need(has, f"a vocabulary has no {token}")
    for key, place in (("eos_token_id", target.end), ("pad_token_id", source.pad)):
        given = config.get(key, place)
        refusal.need(given == place, f"`{key}` is {shown(given)}, and the vocabulary has {place}")
    refusal.check()
    return source, target


def _names(architecture: Architecture, tensors: Tensors) -> dict[str, str]:
    """Return the name in Hugging Face's files of each array."""

    def first(*names: str) -> str:
        return next((name for name in names if name in tensors.shapes), names[0])

    ties = (OUTPUT,) if architecture.tied else ()
    found = {
        "embeddings": first(*TIED, TIED_TARGET, *ties),
        "source.embeddings": TIED[1],
        "target.embeddings": first(TIED_TARGET, *ties),
        "output.kernel": OUTPUT,
        "output.bias": "final_logits_bias",
    }
    parts = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    feed_forward = {"kernel": "fc1.weight", "bias": "fc1.bias"}
    feed_forward |= {"output_kernel": "fc2.weight", "output_bias": "fc2.bias"}
    letters = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    kinds = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
    for name, _ in architecture.shapes():
        if name in found:
            continue
        side, index, part, array = name.split(".")
        prefix = f"model.{side}.layers.{index}"
        if part.endswith("_norm"):
            layer = parts.get(part.removesuffix("_norm"))
            norm = f"{layer}_layer_norm" if layer else "final_layer_norm"
            found[name] = f"{prefix}.{norm}.{kinds[array]}"
        elif part == "feed_forward":
            found[name] = f"{prefix}.{feed_forward[array]}"
        else:
            which, kind = array.split("_")
            found[name] = f"{prefix}.{parts[part]}.{letters[which]}.{kinds[kind]}"
    return found


def _check(
    tensors: Tensors, names: Mapping[str, str], architecture: Architecture, refusal: Refusal
) -> None:
    """Note what differs between a file and the architecture that its configuration describes."""
    wanted = []
    for name, shape in architecture.shapes():
        wanted.append((names[name], shape[::-1] if name.endswith("kernel") else shape))
    group = [*TIED, TIED_TARGET] if architecture.shared else [TIED_TARGET]
    group += [OUTPUT] if architecture.tied else []
    copies = [each for each in group if each in tensors.shapes]
    # In a file with separate tables, the one that would be shared is that of the source.
    unused = {*copies, *POSITIONS} | (set() if architecture.shared else {TIED[0]})
    check_tensors(tensors, wanted, unused.__contains__, refusal)
    refusal.check()
    values = [tensors.read(each) for each in copies]
    for name, value in zip(copies[1:], values[1:], strict=True):
        same = np.array_equal(value, values[0])
        refusal.need(same, f"{name} is tied to {copies[0]} and differs from it")
    for name in POSITIONS:
        if name in tensors.shapes:
            is_formula = _are_positions(tensors.read(name), architecture.width)
            refusal.need(is_formula, f"{name} holds other positions than sinusoids in halves")


def _are_positions(table: np.ndarray, width: int) -> bool:
    if table.ndim != 2 or table.shape[1] != width:
        return False
    first = (width + 1) // 2
    angles = np.arange(len(table))[:, None] * 10000.0 ** (-2 * np.arange(first) / width)
    wanted = np.concatenate([np.sin(angles), np.cos(angles[:, : width // 2])], axis=1)
    return bool(np.allclose(table, wanted, atol=1e-2))  # some are stored in 16 bits


def _weights(folder: Path) -> Tensors:
    """Return the file of weights of a folder, the first that can be read here."""
    has_torch = importlib.util.find_spec("torch") is not None
    kinds = dict(zip(WEIGHTS, (Safetensors, TorchTensors, TensorFlowTensors), strict=True))
    there = [name for name in WEIGHTS if (folder / name).is_file()]
    for name in there:
        if name != "pytorch_model.bin" or has_torch:
            return kinds[name](folder / name)
    if there:
        raise UserError(
            f"{folder} has its weights as pytorch_model.bin only, which PyTorch reads: "
            "pip install torch, or save them as model.safetensors."
        )
    raise UserError(f"{folder} has no weights. Expected one of: {', '.join(WEIGHTS)}.")


def _search(folder: Path, config: Mapping[str, Any]) -> SearchOptions:
    """Return the search that a configuration of generation asks for."""
    path = folder / "generation_config.json"
    own = _json(path) if path.is_file() else {}
    refusal = Refusal(path)
    check_spelling(own, [*SEARCH, *SPECIAL], refusal)
    refusal.check()
    given = {**config, **own}
    options = {ours: given[key] for key, ours in SEARCH.items() if given.get(key) is not None}
    if isinstance(options.get("length_penalty"), int):
        options["length_penalty"] = float(options["length_penalty"])
    return search_of(folder, **options)


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent} has no {path.name}.")
    return json_object(read_bytes(path, MOST_JSON), str(path), unique=True)


def _front_matter(folder: Path) -> dict[str, Any]:
    """Return what the model card of a folder says of itself, for the machine."""
    path = folder / "README.md"
    if not path.is_file():
        return {}
    text = read_bytes(path, MOST_JSON).decode("utf-8", "replace")
    found = re.match(r"---\s*\n(.*?)\n---", text, re.DOTALL)
    try:
        return yaml_mapping(found[1], str(path)) if found else {}
    except UserError:  # of people, who say it in words
        return {}
