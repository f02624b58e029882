"""Marian's models: a `.bin` or `.npz` of weights, the options in it, and SentencePiece models.

Firefox' translators are such, their weights in eight bits; and OPUS-MT's in Marian's own form.

Reference:
    [Junczys-Dowmunt et al., 2018](https://aclanthology.org/P18-4020);
    [Kim et al., 2019](https://aclanthology.org/D19-5632), for the decoder with an SSRU
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from keras_attention.decoding import SearchOptions

from ...errors import UserError, shown
from ...store.files import read_bytes
from ...store.tensors import MOST_AXES, MOST_TENSORS, Buffer, NpzTensors, Tensors
from .foreign import (
    Architecture,
    Refusal,
    Vocabulary,
    check_depth,
    check_special,
    check_tensors,
    yaml_mapping,
)
from .shortlists import read_shortlist
from .source import MOST_VOCABULARY, Source, languages_of, preprocessor_of, search_of

NAME = "Marian"
MOST_YAML = 1 << 20
OPTIONS = "special:model.yml"
FIREFOX = (
    "Not stated in the files of the model. Firefox' own have the Mozilla Public License 2.0: "
    "https://github.com/mozilla/firefox-translations-models"
)
EPSILON = 1e-6

# Types of a `.bin`. After a matrix of eight bits comes a float32: value = integer / multiplier.
DTYPES = {0x0404: "<f4", 0x0402: "<f2", 0x0101: "i1"}
INT8 = (0x4101, 0x10001)
"""The numbers of one type, intgemm8, in the Marian of Bergamot and in Marian's own."""

NO, NONE = (False,), ("", None, [], "none")
ALLOWED: dict[str, tuple] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-postprocess-emb": ("", "d"),
    "transformer-no-projection": NO,
    "transformer-rnn-projection": NO,
    "transformer-pool": NO,
    "transformer-no-bias": NO,
    "transformer-no-affine": NO,
    "transformer-train-position-embeddings": NO,
    "transformer-train-positions": NO,
    "transformer-disable-position-embeddings": NO,
    "transformer-attention-mask": ("default",),
    "transformer-tied-layers": NONE,
    "input-types": NONE,
    "lemma-dim-emb": (0,),
    "lemma-dependency": NONE,
    "right-left": NO,
    "ulr": NO,
    "output-omit-bias": (False, True),
}
"""The values that this package knows of options that say how a Transformer computes."""
NORMS = {("", "dan", ""): "post", ("", "an", ""): "post"}
NORMS |= {("n", "da", "n"): "pre", ("n", "a", "n"): "pre"}
"""Our `norm` by `transformer-preprocess`, `transformer-postprocess` and its form `-top`."""
READ = ("enc-depth", "dec-depth", "dim-emb", "dim-vocabs", "transformer-heads")
READ += ("transformer-dim-ffn", "transformer-decoder-dim-ffn", "transformer-preprocess")
READ += ("transformer-postprocess", "transformer-postprocess-top", "dec-cell")
READ += ("tied-embeddings", "tied-embeddings-src", "tied-embeddings-all", "layer-normalization")
READ += ("transformer-guided-alignment-layer", "guided-alignment", "vocabs", "version")
# Options of other models, and of parts that a Transformer of the kind above has not.
WITHOUT_EFFECT = re.compile(
    "bert-.*|enc-cell.*|enc-type|dec-cell-.*|dim-rnn|skip|transformer-aan-.*|transformer-dim-aan"
    "|ulr-.*|factors-.*|transformer-alibi-.*|special-vocab"
)


ALIGNMENT = 256
DECODER_FILE = "decoder.yml"
DECODER = re.compile(
    "|".join(READ).replace("version", "models")
    + "|"
    + "|".join(ALLOWED)
    + "|authors|cite|build-info|workspace|log|log-.*|quiet.*|seed|check-nan|clip-gemm|config"
    "|interpolate-env-vars|relative-paths|dump-config|sigterm|model-mmap|ignore-model-config|input"
    "|output|output-.*|beam-size|normalize|max-length.*|word-penalty|word-scores|allow-unk"
    "|allow-special|n-best|alignment|no-spm-.*|tsv.*|devices|num-devices|cpu-threads|mini-batch.*"
    "|maxi-batch.*|data-threads|fp16|precision|skip-cost|shortlist|weights|optimize|gemm-.*"
    "|quantize-.*|int8.*|port|ssplit-.*|quality.*|stat-freq|optimizer-.*"
)
"""Options of Marian's decoder. Most say how fast it is, and what it writes beside the words."""


class BinTensors(Tensors):
    """A `.bin` of Marian: heads, names, shapes and data, one after the other."""

    def __init__(self, path: Path):
        super().__init__(path)
        buffer = Buffer(path)
        version, count = buffer.number(), buffer.number()
        if version != 1:
            raise self.damaged(f"expected version 1 of Marian's files. Received: {version}")
        if count > MOST_TENSORS:
            raise self.damaged(f"it says that it has {count:,} arrays")
        heads = buffer.numbers(4 * count, "<u8").reshape(-1, 4).tolist()
        names = [buffer.string(length) for length, *_ in heads]
        shapes = []
        for _, _, rank, _ in heads:
            if rank > MOST_AXES:
                raise self.damaged(f"it says that an array has {rank:,} axes")
            shapes.append(tuple(buffer.numbers(rank, "<i4").tolist()))
        buffer.take(buffer.number())
        self.has_int8 = any(kind in INT8 for _, kind, *_ in heads)
        self._found: dict[str, tuple[int, memoryview]] = {}
        for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True):
            self._take(name, kind, shape, buffer.take(size))
        buffer.end()

    def _take(self, name: str, kind: int, shape: tuple[int, ...], content: memoryview) -> None:
        if name.endswith("QuantMultA"):  # the scale of activations, for products of eight bits
            return
        is_int8 = kind in INT8
        if not is_int8 and kind not in DTYPES:
            raise UserError(
                f"{self.path} holds {name} in Marian's type {kind:#06x}, which depends on a "
                "processor or is unknown here. Expected: float32, float16 or intgemm8."
            )
        if not shape or min(shape) < 1:
            raise self.damaged(f"{name} has the shape {shape}")
        count = 1
        for axis in shape:
            count *= axis
        size = count + 4 if is_int8 else count * np.dtype(DTYPES[kind]).itemsize
        # Zeros come after the numbers; after eight bits and their multiplier, anything may.
        filled = b"" if is_int8 else bytes(content[size:]).strip(b"\0")
        if not 0 <= len(content) - size < ALIGNMENT or filled:
            raise self.damaged(f"{name} of {shape} needs {size:,} bytes and has {len(content):,}")
        self.note(name, shape)
        self._found[name] = kind, content[:size]

    def _read(self, name: str) -> np.ndarray:
        kind, content = self._found[name]
        shape = self.shapes[name]
        if kind not in INT8:
            return np.frombuffer(content, DTYPES[kind]).reshape(shape)
        multiplier = float(np.frombuffer(content[-4:], "<f4")[0])
        if not 0 < multiplier < float("inf"):
            raise self.damaged(f"the multiplier of {name} is {multiplier}")
        whole = np.frombuffer(content[:-4], "i1")
        # All matrices of eight bits are turned, but for tables of embeddings.
        matrix = whole.reshape(shape) if "Wemb" in name else whole.reshape(shape[::-1]).T
        return matrix / np.float32(multiplier)


def matches(folder: Path) -> bool:
    """Whether a folder holds a model of Marian."""
    return _model_file(folder, {}) is not None


def read(folder: Path) -> Source:
    """Return what a folder of Marian's files holds.

    Raises:
        UserError: naming all reasons at once why it cannot be read.
    """
    settings, config = _decoder_settings(folder)
    path = _model_file(folder, settings)
    refusal = Refusal(path)
    tensors = (NpzTensors if path.suffix == ".npz" else BinTensors)(path)
    options = _options(tensors, refusal)
    penalty = settings.get("word-penalty", 0)
    refusal.need(penalty in (0, None), f"the decoder option word-penalty is {shown(penalty)}")
    for name, value in settings.items():
        if not (DECODER.fullmatch(str(name)) or WITHOUT_EFFECT.fullmatch(str(name))):
            refusal.need(not value, f"the decoder option {shown(name)} is {shown(value)}")
    architecture = _architecture(tensors, options, refusal)
    sides = _vocabularies(folder, settings, architecture, refusal)
    refusal.check()
    names = _names(architecture)
    layer, is_guided = _guided(options, settings, tensors, refusal)
    refusal.check()

    def array(name: str) -> np.ndarray:
        found = tensors.read(names[name])
        return found.T if names[name].endswith("_Wt") else found

    (source, source_path), (target, target_path) = sides
    alignment = {"attention_layer": layer, "attention_head": 0} if is_guided else {}
    preprocessor = preprocessor_of((source_path, source.pieces), (target_path, target.pieces))
    lists, shortlist = _shortlist_file(folder, settings), None
    if lists is not None:
        is_shared = source_path == target_path
        shortlist = read_shortlist(lists, source, target, preprocessor, is_shared)
    return Source(
        name=NAME,
        folder=folder,
        weights=path,
        network=lambda dtype: architecture.network(array, source, target, dtype, **alignment),
        preprocessor=preprocessor,
        shortlist=shortlist,
        search=_search(settings, config or path),
        about=f"Marian {options.get('version', '')}".strip(),
        licence=FIREFOX if _is_student(options, tensors) else "",
        languages=languages_of(re.search(r"\.([a-z]{2})([a-z]{2})\.", path.name)),
    )


def _options(tensors: Tensors, refusal: Refusal) -> dict[str, Any]:
    """Return the options that a file of weights holds."""
    if not refusal.need(OPTIONS in tensors.shapes, f"it has no {OPTIONS}, the model's options"):
        refusal.check()
    text = tensors.text(OPTIONS)
    options = yaml_mapping(text[:MOST_YAML], f"{tensors.path}, {OPTIONS}")
    for name, value in options.items():
        if name in ALLOWED:
            known = ALLOWED[name]
            is_known = any(value == each and type(value) is type(each) for each in known)
            refusal.need(is_known, f"the option {name} is {shown(value)}")
        elif name not in READ and not WITHOUT_EFFECT.fullmatch(str(name)):
            refusal.need(
                not value or value == "none",
                f"the option {shown(name)} is {shown(value)}, which this package does not know",
            )
    refusal.need("type" in options, "it does not say its type")
    return options


def _architecture(tensors: Tensors, options: Mapping[str, Any], refusal: Refusal) -> Architecture:
    """Return the architecture of the options, if the file has its arrays, of its shapes."""

    def count(name: str, value: Any) -> int:
        is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
        refusal.need(is_count, f"the option {name} is {shown(value)}, not a count")
        return value if is_count else 1

    words = options.get("dim-vocabs")
    is_pair = isinstance(words, list) and len(words) == 2
    refusal.need(is_pair, f"the option dim-vocabs is {shown(words)}, not two counts")
    words = [count("dim-vocabs", each) for each in words] if is_pair else [1, 1]
    keys = ("enc-depth", "dec-depth", "dim-emb", "transformer-heads", "transformer-dim-ffn")
    layers, decoder_layers, width, heads, inner = (count(key, options.get(key)) for key in keys)
    refusal.need(width % heads == 0, f"transformer-heads {heads} do not divide dim-emb {width}")
    of_decoder = options.get("transformer-decoder-dim-ffn", 0)
    refusal.need(
        of_decoder in (0, None, inner),
        f"the option transformer-decoder-dim-ffn is {shown(of_decoder)}, not the encoder's {inner}",
    )
    parts = ("preprocess", "postprocess", "postprocess-top")
    operations = tuple(str(options.get(f"transformer-{part}") or "") for part in parts)
    refusal.need(
        operations in NORMS,
        f"the options transformer-preprocess, -postprocess and -postprocess-top are {operations}",
    )
    autoregression = "self-attention"
    if options.get("transformer-decoder-autoreg") == "rnn":
        autoregression = "ssru"
        cell = options.get("dec-cell")
        refusal.need(cell == "ssru", f"the option dec-cell is {shown(cell)}, not ssru")
        has_norms = options.get("layer-normalization", False)
        refusal.need(has_norms is False, f"the option layer-normalization is {shown(has_norms)}")
    tied, of_source, of_all = (
        bool(options.get(f"tied-embeddings{end}")) for end in ("", "-src", "-all")
    )
    check_depth(layers, decoder_layers, tensors, refusal)
    refusal.check()
    architecture = Architecture(
        source_words=words[0],
        target_words=words[1],
        width=width,
        heads=heads,
        feed_forward=inner,
        layers=layers,
        decoder_layers=decoder_layers,
        epsilon=EPSILON,
        sinusoids={"layout": "halves", "endpoint": True},
        activation=options.get("transformer-ffn-activation", "relu"),
        norm=NORMS[operations],
        autoregression=autoregression,
        shared=of_all or of_source,
        tied=of_all or tied,
        has_output_bias=not options.get("output-omit-bias", False),
    )
    refusal.need(
        not architecture.shared or words[0] == words[1],
        f"it shares embeddings, and has {words[0]:,} and {words[1]:,} words",
    )
    names, wanted = _names(architecture), []
    for name, shape in architecture.shapes():
        turned = names[name].endswith("_Wt")
        wanted.append((names[name], shape[::-1] if turned else shape))
    if not architecture.tied and "decoder_ff_logit_out_Wt" in tensors.shapes:
        refusal.need(False, "its output matrix decoder_ff_logit_out_Wt is turned")
    check_tensors(tensors, wanted, lambda name: name == OPTIONS, refusal)
    refusal.check()
    return architecture


def _names(architecture: Architecture) -> dict[str, str]:
    """Return the name in Marian's files of each array."""
    pre = "_pre" if architecture.norm == "pre" else ""
    fixed = {
        "embeddings": "Wemb",
        "source.embeddings": "encoder_Wemb",
        "target.embeddings": "decoder_Wemb",
        "output.kernel": "decoder_ff_logit_out_W",
        "output.bias": "decoder_ff_logit_out_b",
    }
    for side in ("encoder", "decoder"):
        fixed[f"{side}.norm.gamma"] = f"{side}_top_ln_scale"
        fixed[f"{side}.norm.beta"] = f"{side}_top_ln_bias"
    parts = {
        "self_attention": "self",
        "cross_attention": "context",
        "feed_forward": "ffn",
        "ssru": "rnn",
    }
    arrays = {"kernel": "W", "forget_kernel": "Wf", "forget_bias": "bf"}
    of_feed_forward = {"kernel": "W1", "bias": "b1", "output_kernel": "W2", "output_bias": "b2"}
    for each in ("query", "key", "value", "output"):
        arrays |= {f"{each}_kernel": f"W{each[0]}", f"{each}_bias": f"b{each[0]}"}
    norms = {"self_attention": "Wo", "cross_attention": "Wo", "feed_forward": "ffn", "ssru": "ffn"}
    found = {}
    for name, _ in architecture.shapes():
        if name in fixed:
            found[name] = fixed[name]
            continue
        side, index, part, array = name.split(".")
        prefix = f"{side}_l{int(index) + 1}_{parts[part.removesuffix('_norm')]}"
        if part.endswith("_norm"):
            part, kind = part.removesuffix("_norm"), {"gamma": "scale", "beta": "bias"}[array]
            # Before an SSRU, Marian names the norm after the layer alone.
            suffix = "" if part == "ssru" and pre else f"_{norms[part]}"
            found[name] = f"{prefix}{suffix}_ln_{kind}{pre}"
        else:
            own = of_feed_forward if part == "feed_forward" else arrays
            found[name] = f"{prefix}_{own[array]}"
    return found


def _guided(
    options: Mapping[str, Any], settings: Mapping[str, Any], tensors: Tensors, refusal: Refusal
) -> tuple[int, bool]:
    """Return the decoder layer whose first head is trained as an alignment, and whether one is.

    Marian writes the option into the configuration of a training, not into a model. The students of
    Firefox, which have an SSRU and eight bits, are all trained so.
    """
    given = options.get("transformer-guided-alignment-layer", "last")
    layer, depth = -1, options["dec-depth"]
    if given != "last":
        is_layer = str(given).isdecimal() and 1 <= int(given) <= depth
        refusal.need(is_layer, f"the option transformer-guided-alignment-layer is {shown(given)}")
        layer = int(given) - 1 if is_layer else -1
    told = {**settings, **options}
    is_told = any(told.get(key) not in (*NONE, False) for key in ("guided-alignment", "alignment"))
    return layer, is_told or _is_student(options, tensors)


def _is_student(options: Mapping[str, Any], tensors: Tensors) -> bool:
    """Whether a model is of the kind that Firefox has: with an SSRU, and in eight bits."""
    is_int8 = isinstance(tensors, BinTensors) and tensors.has_int8
    return is_int8 and options.get("dec-cell") == "ssru"


def _search(settings: Mapping[str, Any], path: Path) -> SearchOptions:
    """Return the options of the search that a configuration of Marian's decoder asks for."""
    names = {"beam_size": "beam-size", "length_penalty": "normalize"}
    names["max_length_ratio"] = "max-length-factor"
    given = {ours: settings[name] for ours, name in names.items() if settings.get(name) is not None}
    if given.get("length_penalty") is True:  # `normalize` without a number
        given["length_penalty"] = 1.0
    return search_of(path, **given)


def _decoder_settings(folder: Path) -> tuple[dict[str, Any], Path | None]:
    """Return the configuration of Marian's decoder in a folder, and its file."""
    found = {}
    for path in sorted(folder.glob("*.yml")):
        if path.stat().st_size <= MOST_YAML:
            text = read_bytes(path, MOST_YAML).decode("utf-8", "replace")
            if path.name == DECODER_FILE or re.search(r"^models:", text, re.MULTILINE):
                found[path] = yaml_mapping(text, str(path))
    preferred = [each for each in found if each.name == DECODER_FILE] or list(found)
    if len(preferred) > 1:
        names = ", ".join(each.name for each in preferred)
        raise UserError(f"{folder} has several configurations: keep one of {names}.")
    return (found[preferred[0]], preferred[0]) if preferred else ({}, None)


def _model_file(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the file of weights in a folder of Marian's files; None where there is none."""
    named = settings.get("models") or []
    if isinstance(named, list) and len(named) > 1:
        raise UserError(
            f"{folder} is an ensemble of {len(named)} models: give each a folder of its own, and "
            "put them together with `Translator.ensemble`."
        )
    if named:
        path = folder / Path(str(named[0] if isinstance(named, list) else named)).name
        if not path.is_file():
            raise UserError(f"{folder} has no {path.name}, which its configuration names.")
        return path
    found = [each for end in ("npz", "bin") for each in sorted(folder.glob(f"*.{end}"))]
    found = [each for each in found if not each.name.startswith(("lex.", "pytorch_model", "."))]
    found = [each for each in found if each.is_file() and _looks_like_marian(each)]
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise UserError(f"{folder} has several models: keep one of {names}, or a decoder.yml.")
    return found[0] if found else None


def _shortlist_file(folder: Path, settings: Mapping[str, Any]) -> Path | None:
    """Return the binary shortlist in a folder of Marian's files; None where there is none."""
    named = settings.get("shortlist") or []
    if isinstance(named, list) and named:
        path = folder / Path(str(named[0])).name
        return path if path.suffix == ".bin" and path.is_file() else None
    found = [each for each in sorted(folder.glob("lex.*.bin")) if each.is_file()]
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise UserError(f"{folder} has several shortlists: keep one of {names}.")
    return found[0] if found else None


def _looks_like_marian(path: Path) -> bool:
    """Whether a file begins as a `.bin` of Marian, or as a `.npz` that has a vocabulary beside."""
    with open(path, "rb") as file:
        start = file.read(8)
    if path.suffix == ".bin":
        return start == (1).to_bytes(8, "little")
    return start[:2] == b"PK" and any(
        any(path.parent.glob(each)) for each in ("*.spm", "*vocab*.yml")
    )


def _vocabularies(
    folder: Path, settings: Mapping[str, Any], architecture: Architecture, refusal: Refusal
) -> list[tuple[Vocabulary, Path]]:
    """Return the vocabulary of each side, and the SentencePiece model that cuts its text."""
    named = settings.get("vocabs")
    if isinstance(named, list) and named:
        paths = [folder / Path(str(each)).name for each in (named[0], named[-1])]
    else:
        patterns = ("srcvocab*.spm", "trgvocab*.spm"), ("vocab*.spm",), ("*vocab.yml",)
        found = [[sorted(folder.glob(each)) for each in group] for group in patterns]
        whole = next((group for group in found if all(len(each) == 1 for each in group)), None)
        if whole is None:
            refusal.need(False, f"{folder} has no vocabulary, or several: vocab*.spm, vocab.yml")
            refusal.check()
        paths = [whole[0][0], whole[-1][0]]
    sides, words = [], (architecture.source_words, architecture.target_words)
    for side, path, count in zip(("source", "target"), paths, words, strict=True):
        if path.suffix == ".spm":
            cutter, vocabulary = path, _of_sentencepiece(path)
        else:
            cutter = folder / f"{side}.spm"
            if not cutter.is_file():
                raise UserError(
                    f"{folder} has the vocabulary {path.name} and no {cutter.name}, the "
                    "SentencePiece model that cuts text into its pieces."
                )
            vocabulary = _of_yaml(path, count)
        check_special(vocabulary, refusal)
        refusal.need(
            len(vocabulary.words) == count,
            f"{path.name} has {len(vocabulary.words):,} words, and the model {count:,}",
        )
        sides.append((vocabulary, cutter))
    return sides


def _of_sentencepiece(path: Path) -> Vocabulary:
    model = read_bytes(path, MOST_VOCABULARY)
    if not model:  # which the library takes
        raise UserError(f"{path} is no SentencePiece model: it is empty.")
    try:
        processor = sentencepiece.SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)  # which refuses an empty file, too
    except RuntimeError:
        raise UserError(f"{path} is no SentencePiece model, or damaged.") from None
    words = processor.id_to_piece(list(range(processor.vocab_size())))
    return Vocabulary(words, processor.unk_id(), processor.eos_id())


def _of_yaml(path: Path, count: int) -> Vocabulary:
    """Return a vocabulary that a file lists, `word: id`; ids that it leaves out get a name."""
    text = read_bytes(path, MOST_VOCABULARY).decode("utf-8", "replace")
    entries = yaml_mapping(text, str(path), as_text=True)
    words = [f"<id {place}>" for place in range(count)]
    for word, place in entries.items():
        if not (isinstance(place, str) and place.isdecimal() and int(place) < count):
            raise UserError(f"{path} gives {shown(word)} the id {shown(place)}, of {count:,}.")
        words[int(place)] = word
    ids = {word: place for place, word in enumerate(words)}
    return Vocabulary(words, ids.get("<unk>", -1), ids.get("</s>", -1))
