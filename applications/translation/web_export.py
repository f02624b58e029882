"""Writing a translator for a page: a script runs it in the browser, and nothing is installed.

The page, its style and two scripts lie in the folder `web`. `network.js` holds the arithmetic, and
the file made here, `model.js`, the settings, the vocabularies and the weights.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attention.layers import BahdanauAttention, lora_and_quantization

from ..base.task import TextTask
from ..errors import UserError
from ..store.files import new_folder
from .networks.layers import BidirectionalEncoder
from .networks.rnnsearch import RNNSearch
from .networks.transformer import Transformer

PAGE = Path(__file__).with_name("web")
MODEL = "model.js"
WAY_OUT = "--format saved_model exports it."
ACTIVATIONS = {name: (name, False) for name in ("relu", "gelu", "silu")} | {
    "swish": ("silu", False),
    "geglu": ("gelu", True),
    "swiglu": ("silu", True),
    "reglu": ("relu", True),
    "glu": ("sigmoid", True),
}
"""The function of each activation, and whether it is that of a gate."""
ALIGNMENT = 4
"""The bytes at multiples of which the script can read a number of 32 bits."""


def export_web(task: TextTask, output: Path | str, example: str = "") -> None:
    """Write the translator as a folder with a page, which opens from the disk without a server.

    `index.html` shows the page; `model.js` is the one file with the weights, of 32 bits, or of
    eight where those are exact. The search of the page is greedy: it writes what
    `translate(text, beam_size=1)` does.

    Args:
        task: a `Translator` over an `RNNSearch` with the parts it has by default, or over a
            `Transformer` with sinusoidal positions.
        output: the folder to write; it must not exist.
        example: a text that the page shows at first.

    Raises:
        UserError: if `output` exists, or the page cannot run the network or its tokenizers.
    """
    content = model_script(task, example)
    with new_folder(output) as folder:
        shutil.copytree(PAGE, folder)
        (folder / MODEL).write_text(content, encoding="utf-8")


def model_script(task: TextTask, example: str = "") -> str:
    """Return the content of `model.js`."""
    network = task.backbone
    _check(network)
    preprocessor = task.require_preprocessor()
    tokenizers = []
    for tokenizer in preprocessor.tokenizers:
        try:
            tokenizers.append(tokenizer.in_web())
        except ValueError as error:
            raise UserError(f"{error}; {WAY_OUT}") from None
    source, target = tokenizers
    is_shared = source == target
    target.pop("rules", None)  # which only texts that are read need
    search = task.search
    tensors, weights = _packed(_tensors_of(network))
    described = {
        "network": _settings_of(network),
        "source": source,
        "target": "source" if is_shared else target,
        "search": {
            "maxLength": search.max_length,
            "maxLengthRatio": search.max_length_ratio,
            "minLength": search.min_length,
            "noRepeatNgram": search.no_repeat_ngram,
        },
        "replacesUnknown": preprocessor.replace_unknown,
        "dictionary": task.dictionary,
        "example": example,
        "tensors": tensors,
        "weights": weights,
    }
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"(self.kerasAttentionModels ??= []).push({text});\n"


def _check(network: Any) -> None:
    """Refuse a network that the script does not know."""
    problem = ""
    if type(network) is RNNSearch:
        attention, cell = network.decoder.attention, network.decoder.cell
        if type(network.encoder) is not BidirectionalEncoder:
            problem = f"RNNSearch with the encoder {type(network.encoder).__name__}"
        elif type(attention) is not BahdanauAttention:
            problem = f"RNNSearch with the attention {type(attention).__name__}"
        elif not _is_gru_of_paper(cell):
            problem = f"RNNSearch with the cell {type(cell).__name__}, not the paper's GRU"
    elif type(network) is Transformer:
        if network.positions != "sinusoidal":
            problem = f"Transformer with {network.positions} positions"
        elif network.activation not in ACTIVATIONS:
            problem = f"Transformer with the activation {network.activation}"
    else:
        problem = type(network).__name__
    if problem:
        raise UserError(
            "A page in the browser runs RNNSearch with the parts it has by default, and "
            "Transformer with sinusoidal positions and one of the activations "
            f"{', '.join(ACTIVATIONS)}. Received: {problem}; {WAY_OUT}"
        )
    for weight in network.weights:
        if "lora" in weight.name or "int" in weight.dtype:
            raise UserError(
                "A page in the browser gets plain weights. "
                f"Received: {weight.path}, of LoRA or of integers; {WAY_OUT}"
            )


def _is_gru_of_paper(cell: Any) -> bool:
    activations = keras.activations.tanh, keras.activations.sigmoid
    return (
        type(cell) is keras.layers.GRUCell
        and not cell.reset_after
        and cell.use_bias
        and (cell.activation, cell.recurrent_activation) == activations
    )


def _settings_of(network: Any) -> dict[str, Any]:
    if isinstance(network, RNNSearch):
        return {"kind": "rnnsearch"}
    codes = network.position_codes
    activation, is_gated = ACTIVATIONS[network.activation]
    return {
        "kind": "transformer",
        "heads": network.heads,
        "layers": len(network.encoders),
        "decoderLayers": network.depth,
        "shownLayer": network.attention_layer % network.depth,
        "shownHead": network.attention_head,
        "isPre": network.norm == "pre",
        "isSSRU": network.autoregression == "ssru",
        "activation": activation,
        "isGated": is_gated,
        "readsEnd": network.source_end,
        "epsilon": network.layer_norm_epsilon,
        "scale": network.embedding_size**0.5 if codes.scale else 1.0,
        "maxWavelength": codes.max_wavelength,
        "halves": codes.layout == "halves",
        "endpoint": codes.endpoint,
    }


def _tensors_of(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the values of each tensor that the script reads.

    Kernels are matrices of as many rows as inputs. Two names may have one variable.
    """
    yield "source", network.source_embedding.embeddings
    yield "target", network.target_embedding.embeddings
    if network.tie_embeddings:
        yield "words", network.target_embedding.embeddings
    else:  # a row a word
        yield "words", np.array(network.word_logits.kernel, "float32").T
    yield "words.bias", network.word_logits.bias
    if isinstance(network, RNNSearch):
        yield from _tensors_of_rnnsearch(network)
    else:
        yield from _tensors_of_transformer(network)


def _tensors_of_rnnsearch(network: RNNSearch) -> Iterator[tuple[str, Any]]:
    encoder, attention, cell = network.encoder, network.decoder.attention, network.decoder.cell
    yield "encoder", encoder.projection.kernel
    yield "encoder.bias", encoder.projection.bias
    for name in ("forward", "backward"):
        own = getattr(encoder, f"{name}_layer").cell
        yield f"{name}.gates", own.gate_kernel
        yield f"{name}.candidate", own.candidate_kernel
    yield "first", network.first_state.kernel
    yield "first.bias", network.first_state.bias
    yield "attention.query", attention.query_kernel
    yield "attention.key", attention.key_kernel
    if attention.use_bias:
        yield "attention.key.bias", attention.bias
    yield "attention.score", attention.score_vector
    units = cell.units
    recurrent = np.array(cell.recurrent_kernel, "float32")
    yield "cell", cell.kernel
    yield "cell.bias", cell.bias
    yield "cell.gates", recurrent[:, : 2 * units]
    yield "cell.candidate", recurrent[:, 2 * units :]
    yield "readout", network.readout.kernel
    yield "readout.bias", network.readout.bias


def _tensors_of_transformer(network: Transformer) -> Iterator[tuple[str, Any]]:
    def norm(name: str, layer: Any) -> Iterator[tuple[str, Any]]:
        yield f"{name}.gamma", layer.gamma
        yield f"{name}.beta", layer.beta

    def attention(name: str, layer: Any) -> Iterator[tuple[str, Any]]:
        for part in ("query", "key", "value", "output"):
            yield f"{name}.{part}", getattr(layer, f"{part}_kernel")
            yield f"{name}.{part}.bias", getattr(layer, f"{part}_bias")

    def feed_forward(name: str, block: Any) -> Iterator[tuple[str, Any]]:
        layer = block.feed_forward
        yield f"{name}.inner", layer.kernel
        yield f"{name}.inner.bias", layer.bias
        yield f"{name}.outer", layer.output_kernel
        yield f"{name}.outer.bias", layer.output_bias
        yield from norm(f"{name}.feed.norm", block.feed_forward_norm)

    for number, block in enumerate(network.encoders):
        name = f"encoder.{number}"
        yield from attention(f"{name}.self", block.self_attention)
        yield from norm(f"{name}.self.norm", block.self_attention_norm)
        yield from feed_forward(name, block)
    for number, block in enumerate(network.decoders):
        name = f"decoder.{number}"
        if network.autoregression == "ssru":
            yield f"{name}.ssru", block.ssru.kernel
            yield f"{name}.ssru.bias", block.ssru.bias
            yield from norm(f"{name}.self.norm", block.ssru_norm)
        else:
            yield from attention(f"{name}.self", block.self_attention)
            yield from norm(f"{name}.self.norm", block.self_attention_norm)
        yield from attention(f"{name}.cross", block.cross_attention)
        yield from norm(f"{name}.cross.norm", block.cross_attention_norm)
        yield from feed_forward(name, block)
    if network.norm == "pre":
        yield from norm("encoder.norm", network.encoder_norm)
        yield from norm("decoder.norm", network.decoder_norm)


def _packed(named: Iterator[tuple[str, Any]]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return where each tensor lies among the bytes of all, and those bytes in base 64.

    A matrix that is one of integers of eight bits over a scale, as files of such models hold it,
    is written so: no number changes.
    """
    places: dict[str, dict[str, Any]] = {}
    known: dict[int, dict[str, Any]] = {}
    content = bytearray()
    for name, value in named:
        if id(value) in known:
            places[name] = known[id(value)]
            continue
        array = np.ascontiguousarray(np.array(value, "float32"))
        shape = _shape_of(name, array)
        exact = lora_and_quantization.exact_int8(array) if len(shape) > 1 else None
        place: dict[str, Any] = {"at": len(content), "shape": shape}
        if exact is not None:
            array, scale = exact
            place["scale"] = float(scale)
        content += array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        content += bytes(-len(content) % ALIGNMENT)
        places[name] = place
        if isinstance(value, keras.Variable):  # which lives on, so that no other has its id
            known[id(value)] = place
    return places, base64.b64encode(content).decode()


def _shape_of(name: str, array: np.ndarray) -> list[int]:
    """Return the rows and columns of a kernel, whose heads may be an axis, or a vector's size."""
    if name.endswith(("bias", "gamma", "beta")) or array.ndim == 1:
        return [array.size]
    if array.ndim == 3 and name.endswith("output"):
        return [array.shape[0] * array.shape[1], array.shape[2]]
    return [array.shape[0], array.size // array.shape[0]]
