"""Transformers in CTranslate2's form, with SentencePiece models beside them; Argos' packages too.

What this package exports for CTranslate2 is read back, with its own tokenizers.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError, one_line, shown
from ...store.files import MOST_JSON, json_object, read_bytes
from ...store.tensors import MOST_AXES, MOST_TENSORS, Buffer, Tensors
from ...text import load_tokenizer
from ..preprocessor import TranslationPreprocessor, distinct_words
from .foreign import Architecture, Refusal, Vocabulary, check_special, check_spelling, check_tensors
from .source import Source, preprocessor_of, search_of

NAME = "CTranslate2"
WEIGHTS, CONFIG = "model.bin", "config.json"
TABLES = ("encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight")
VERSION, SPECIFICATION = 6, "TransformerSpec"
DTYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "<u2")  # the last: bfloat16
BFLOAT16 = 5
# By the numbers of CTranslate2's `Activation`: ReLU, GELU by tanh, SiLU, GELU.
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu"}
SETTINGS = ("num_heads", "pre_norm", "activation", "scale_embeddings", "embeddings_merge")
OF_DECODER = ("alignment_layer", "alignment_heads", "start_from_zero_embedding")
OF_CONFIG = ("unk_token", "eos_token", "bos_token", "decoder_start_token", "layer_norm_epsilon")
OF_CONFIG += ("add_source_bos", "add_source_eos")
MUST_BE_ZERO = ("embeddings_merge", "alibi", "alibi_use_positive_positions", "scale_alibi")


class CTranslate2Tensors(Tensors):
    """A `model.bin`: arrays and numbers by names, and other names of the same arrays."""

    def __init__(self, path: Path):
        super().__init__(path)
        buffer = Buffer(path)
        version = buffer.number("<u4")
        if version != VERSION:
            raise self.damaged(f"expected version {VERSION} of CTranslate2's. Received: {version}")
        specification = self._string(buffer)
        if specification != SPECIFICATION:
            raise UserError(f"{path} holds a {shown(specification)}. Expected: {SPECIFICATION}.")
        self.revision = buffer.number("<u4")
        self._found: dict[str, tuple[int, tuple[int, ...], memoryview]] = {}
        self.settings: dict[str, float] = {}
        for _ in range(self._count(buffer)):
            name = self._string(buffer)
            rank = buffer.number("<u1")
            if rank > MOST_AXES:
                raise self.damaged(f"{shown(name)} has {rank} axes")
            shape = tuple(buffer.numbers(rank, "<u4").tolist())
            kind, size = buffer.number("<u1"), buffer.number("<u4")
            if kind >= len(DTYPES):
                raise self.damaged(f"{shown(name)} is of an unknown type, {kind}")
            if math.prod(shape) * np.dtype(DTYPES[kind]).itemsize != size:
                raise self.damaged(f"{shown(name)} of {shape} does not have {size:,} bytes")
            self.note(name, shape)
            self._found[name] = kind, shape, buffer.take(size)
        for _ in range(self._count(buffer)):
            name, of = self._string(buffer), self._string(buffer)
            if of not in self._found:
                raise self.damaged(f"{shown(name)} stands for {shown(of)}, which is not there")
            for end in ("", "_scale"):  # an alias of whole numbers has their scale, too
                if f"{of}{end}" in self._found:
                    self.note(f"{name}{end}", self.shapes[f"{of}{end}"])
                    self._found[f"{name}{end}"] = self._found[f"{of}{end}"]
        buffer.end()
        self.check_numbers(DTYPES[kind] for kind, shape, _ in self._found.values() if shape)
        for name in list(self._found):
            is_scale = name.endswith("_scale") and name.removesuffix("_scale") in self._found
            if not self.shapes[name] and not is_scale:
                self.settings[name] = float(self.read(name))
                del self.shapes[name]

    def _count(self, buffer: Buffer) -> int:
        count = buffer.number("<u4")
        if count > MOST_TENSORS:
            raise self.damaged(f"it says that it has {count:,} arrays")
        return count

    def _string(self, buffer: Buffer) -> str:
        return buffer.string(buffer.number("<u2"))

    def _read(self, name: str) -> np.ndarray:
        kind, shape, content = self._found[name]
        array = np.frombuffer(content, DTYPES[kind])
        if kind == BFLOAT16:  # the upper half of a float32
            array = (array.astype("<u4") << 16).view("<f4")
        array = array.reshape(shape)
        scale = f"{name}_scale"
        if scale not in self._found:
            if shape and array.dtype.kind == "i":
                raise self.damaged(f"{name} holds whole numbers and has no {scale}")
            return array
        scales = self.read(scale)
        if not (scales > 0).all():
            raise self.damaged(f"{scale} has scales of 0 or below")
        return array / (scales[:, None] if scales.ndim == 1 and array.ndim == 2 else scales)


def _model_folder(folder: Path) -> Path:
    """Return where the model lies: in the folder, or as packages have it in `model`."""
    return folder if (folder / WEIGHTS).is_file() else folder / "model"


def matches(folder: Path) -> bool:
    """Whether a folder holds a model of CTranslate2."""
    model = _model_folder(folder)
    vocabularies = [*model.glob("shared_vocabulary.*"), *model.glob("source_vocabulary.*")]
    return (model / WEIGHTS).is_file() and bool(vocabularies)


def read(folder: Path) -> Source:
    """Return what a folder of CTranslate2's files holds.

    Raises:
        UserError: naming all reasons at once why it cannot be read.
    """
    model = _model_folder(folder)
    if not (model / CONFIG).is_file():
        raise UserError(f"{model} has no {CONFIG}: convert the model anew with CTranslate2 3 or 4.")
    config = json_object(read_bytes(model / CONFIG, MOST_JSON), str(model / CONFIG), unique=True)
    tensors = CTranslate2Tensors(model / WEIGHTS)
    refusal = Refusal(model)
    check_spelling(config, OF_CONFIG, refusal)
    source, target = _vocabularies(model, config, tensors, refusal)
    architecture = _architecture(tensors, config, source, target, refusal)
    names = _names(architecture)
    _check(tensors, names, architecture, refusal)
    refusal.check()

    def array(name: str) -> np.ndarray:
        whole, part, parts = names[name]
        found = tensors.read(whole)
        found = np.split(found, parts)[part]
        return found.T if found.ndim == 2 and name.endswith("kernel") else found

    heads = int(tensors.settings.get("decoder/alignment_heads", 0))
    shown_head = {"attention_layer": int(tensors.settings.get("decoder/alignment_layer", -1))}
    if heads == 1 and not (folder / "tokenizers").is_dir():
        shown_head["attention_head"] = 0
    return Source(
        name=NAME,
        folder=folder,
        weights=tensors.path,
        network=lambda dtype: architecture.network(array, source, target, dtype, **shown_head),
        preprocessor=_preprocessor(folder, model, source, target),
        search=search_of(folder, beam_size=2),  # CTranslate2's own beam
        languages=_languages(folder),
    )


def _languages(folder: Path) -> dict[str, str]:
    """Return the languages that a package of Argos names."""
    path = folder / "metadata.json"
    if not path.is_file():
        return {}
    described = json_object(read_bytes(path, MOST_JSON), str(path))
    codes = {"source_language": "from_code", "target_language": "to_code"}
    found = {ours: described.get(theirs) for ours, theirs in codes.items()}
    return {name: code for name, code in found.items() if isinstance(code, str)}


def _architecture(
    tensors: CTranslate2Tensors,
    config: Mapping[str, Any],
    source: Vocabulary,
    target: Vocabulary,
    refusal: Refusal,
) -> Architecture:
    settings, shapes = tensors.settings, tensors.shapes
    layers = [
        sum(f"{side}/layer_{i}/ffn/linear_0/weight" in shapes for i in range(len(shapes)))
        for side in ("encoder", "decoder")
    ]
    refusal.need(min(layers) > 0, f"it has {layers[0]} and {layers[1]} layers")
    found: dict[str, float] = {}
    for key in SETTINGS:
        both = [settings.get(f"{side}/{key}", 0) for side in ("encoder", "decoder")]
        if key in ("num_heads", "pre_norm", "activation", "scale_embeddings"):
            refusal.need(both[0] == both[1], f"{key} of encoder and decoder are {both}")
        found[key] = both[0]
    gated = next((name for name in shapes if name.endswith("linear_0_noact/weight")), None)
    refusal.need(gated is None, f"its feed-forward layers are gated: it has {gated}")
    of_decoder = [name.removeprefix("decoder/") for name in settings if name.startswith("decoder/")]
    check_spelling(of_decoder, [*SETTINGS, *OF_DECODER], refusal)
    for name, value in settings.items():
        side, _, key = name.rpartition("/")
        known = key in SETTINGS or (side == "decoder" and key in OF_DECODER)
        if key in MUST_BE_ZERO or not known:
            refusal.need(value == 0, f"the setting {name} is {value:g}")
    heads = int(found["num_heads"])
    table = shapes.get("encoder/embeddings_0/weight", (1, 1))
    width = int(table[-1])
    refusal.need(heads > 0 and width % max(1, heads) == 0, f"{heads} heads do not divide {width}")
    activation = ACTIVATIONS.get(int(found["activation"]))
    refusal.need(activation is not None, f"the activation is number {found['activation']:g}")
    epsilon = config.get("layer_norm_epsilon")
    epsilon = 1e-5 if epsilon is None else epsilon
    is_number = isinstance(epsilon, float) and 0 < epsilon < 1
    refusal.need(is_number, f"`layer_norm_epsilon` is {shown(epsilon)}")
    refusal.need(not config.get("add_source_bos"), "`add_source_bos` is true")
    inner = shapes.get("encoder/layer_0/ffn/linear_0/weight", (1, 1))[0]
    scale = found["scale_embeddings"]
    refusal.need(scale in (0, 1), f"the setting scale_embeddings is {scale:g}")
    layout = _layout(tensors, width, refusal)
    for name in TABLES:
        refusal.need(name in shapes, f"it has no array {name}")
    refusal.check()
    embeddings, table, output = map(tensors.read, TABLES)
    shared = source == target and np.array_equal(embeddings, table)
    return Architecture(
        source_words=len(source.words),
        target_words=len(target.words),
        width=width,
        heads=heads,
        feed_forward=int(inner),
        layers=layers[0],
        decoder_layers=layers[1],
        epsilon=epsilon,
        sinusoids={**layout, "scale": bool(scale)},
        activation=str(activation),
        norm="pre" if found["pre_norm"] else "post",
        shared=shared,
        tied=np.array_equal(output, table),
        has_output_bias="decoder/projection/bias" in shapes,
        source_end=bool(config.get("add_source_eos")),
    )


def _layout(tensors: CTranslate2Tensors, width: int, refusal: Refusal) -> dict[str, Any]:
    """Return which of our sinusoids the tables of positions hold."""
    pairs = (width + 1) // 2
    steps = np.arange(pairs)
    found: list[dict[str, Any]] = []
    for side in ("encoder", "decoder"):
        name = f"{side}/position_encodings/encodings"
        if not refusal.need(name in tensors.shapes, f"it has no {name}"):
            continue
        shape = tensors.shapes[name]
        if not refusal.need(shape[-1] == width and len(shape) == 2, f"{name} has {shape}"):
            continue
        table = tensors.read(name)
        for layout in ("interleaved", "halves"):
            for endpoint in (False, True):
                exponents = steps / max(1, pairs - 1) if endpoint else 2 * steps / width
                angles = np.arange(len(table))[:, None] * 10000.0**-exponents
                sines, cosines = np.sin(angles), np.cos(angles)
                halves = np.concatenate([sines, cosines[:, : width // 2]], axis=1)
                stacked = np.stack([sines, cosines], -1).reshape(len(table), -1)[:, :width]
                wanted = halves if layout == "halves" else stacked
                if np.allclose(table, wanted, atol=1e-2):
                    found.append({"layout": layout, "endpoint": endpoint})
    refusal.need(
        len(found) >= 2 and found.count(found[0]) == 2,
        "its tables of positions are not of sinusoids that count from 0",
    )
    return found[0] if found else {}


def _names(architecture: Architecture) -> dict[str, tuple[str, int, int]]:
    """Return for each array its name in CTranslate2's files, and which part of how many it is."""
    found = {
        "embeddings": ("decoder/embeddings/weight", 0, 1),
        "source.embeddings": ("encoder/embeddings_0/weight", 0, 1),
        "target.embeddings": ("decoder/embeddings/weight", 0, 1),
        "output.kernel": ("decoder/projection/weight", 0, 1),
        "output.bias": ("decoder/projection/bias", 0, 1),
    }
    kinds = {"kernel": "weight", "bias": "bias"}
    of_self = {"query": (0, 0, 3), "key": (0, 1, 3), "value": (0, 2, 3), "output": (1, 0, 1)}
    of_cross = {"query": (0, 0, 1), "key": (1, 0, 2), "value": (1, 1, 2), "output": (2, 0, 1)}
    groups = {"self_attention": of_self, "cross_attention": of_cross}
    parts = {"self_attention": "self_attention", "cross_attention": "attention"}
    for name, _ in architecture.shapes():
        if name in found:
            continue
        side, *middle, array = name.split(".")
        if middle == ["norm"]:
            found[name] = (f"{side}/layer_norm/{array}", 0, 1)
            continue
        index, part = middle
        layer = f"{side}/layer_{index}"
        own = part.removesuffix("_norm")
        if part.endswith("_norm"):
            found[name] = (f"{layer}/{parts.get(own, 'ffn')}/layer_norm/{array}", 0, 1)
        elif part == "feed_forward":
            linear = 1 if array.startswith("output") else 0
            kind = kinds[array.removeprefix("output_")]
            found[name] = (f"{layer}/ffn/linear_{linear}/{kind}", 0, 1)
        else:
            which, kind = array.split("_")
            linear, place, count = groups[part][which]
            found[name] = (f"{layer}/{parts[part]}/linear_{linear}/{kinds[kind]}", place, count)
    return found


def _check(
    tensors: CTranslate2Tensors,
    names: Mapping[str, tuple[str, int, int]],
    architecture: Architecture,
    refusal: Refusal,
) -> None:
    wanted = {}
    for name, shape in architecture.shapes():
        whole, _, parts = names[name]
        turned = shape[::-1] if name.endswith("kernel") else shape
        wanted[whole] = (turned[0] * parts, *turned[1:])
    copies = {"encoder/embeddings_0/weight", "decoder/projection/weight"}
    positions = {f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")}

    def is_unused(name: str) -> bool:
        scales = name.endswith("_scale") and name.removesuffix("_scale") in tensors.shapes
        return name in copies | positions or scales

    check_tensors(tensors, wanted.items(), is_unused, refusal)


def _vocabularies(
    model: Path, config: Mapping[str, Any], tensors: CTranslate2Tensors, refusal: Refusal
) -> tuple[Vocabulary, Vocabulary]:
    found = []
    tables = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
    from_zero = bool(tensors.settings.get("decoder/start_from_zero_embedding"))
    for side, table in zip(("source", "target"), tables, strict=True):
        words, path = _words(model, side)
        ids = {word: place for place, word in enumerate(words)}
        special = [config.get(key) for key in ("unk_token", "eos_token")]
        start = config.get("decoder_start_token", "<s>")
        unknown, end = (ids.get(each) if isinstance(each, str) else None for each in special)
        first = ids.get(start) if isinstance(start, str) and not from_zero else None
        refusal.need(from_zero or first is not None or side == "source", f"no {shown(start)}")
        pad = next((ids[each] for each in ("<pad>", "<blank>") if each in ids), None)
        vocabulary = Vocabulary(words, unknown, end, pad, first)  # type: ignore[arg-type]
        check_special(vocabulary, refusal)
        rows = tensors.shapes.get(table, (0,))[0]
        refusal.need(rows == len(words), f"{path.name} has {len(words):,} words, of {rows:,} rows")
        found.append(vocabulary)
    refusal.check()
    return found[0], found[1]


def _words(model: Path, side: str) -> tuple[list[str], Path]:
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        for end in ("json", "txt"):
            path = model / f"{name}.{end}"
            if not path.is_file():
                continue
            content = read_bytes(path, MOST_JSON)
            if end == "txt":
                try:
                    return content.decode("utf-8").removesuffix("\n").split("\n"), path
                except UnicodeDecodeError:
                    raise UserError(f"{path} is no UTF-8.") from None
            words = json_object(b'{"words":' + content + b"}", str(path))["words"]
            if not (isinstance(words, list) and all(isinstance(each, str) for each in words)):
                raise UserError(f"{path} is no list of words.")
            return words, path
    raise UserError(f"{model} has no {side}_vocabulary and no shared_vocabulary.")


def _preprocessor(
    folder: Path, model: Path, source: Vocabulary, target: Vocabulary
) -> TranslationPreprocessor:
    """Return the tokenizers beside a model: our own, or those of SentencePiece."""
    own = folder / "tokenizers"
    if own.is_dir():
        try:
            tokenizers = [load_tokenizer(own, side) for side in ("source", "target")]
        except ValueError as error:
            raise UserError(one_line(error)) from None
        for tokenizer, side in zip(tokenizers, (source, target), strict=True):
            if distinct_words(tokenizer) != list(side.words):
                raise UserError(f"{own} has other vocabularies than the model beside it.")
        if tokenizers[0].get_config() == tokenizers[1].get_config():
            tokenizers = tokenizers[:1] * 2
        return TranslationPreprocessor(*tokenizers)
    sides = []
    for side, vocabulary in (("source", source), ("target", target)):
        names = (f"{side}.spm", f"{side}.model", "sentencepiece.model", "spm.model")
        paths = [place / name for name in names for place in (folder, model)]
        path = next((each for each in paths if each.is_file()), None)
        if path is None:
            raise UserError(f"{folder} has no SentencePiece model: {', '.join(names)}.")
        sides.append((path, vocabulary.pieces))
    return preprocessor_of(*sides)
