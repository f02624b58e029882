"""Writing a Transformer for CTranslate2, an engine that serves Transformers."""

from pathlib import Path

import numpy as np

from keras_attention.layers import PositionalEncoding

from ...base.task import TextTask
from ...errors import UserError
from ...store.files import new_folder
from ...text import END_ID, SPECIAL_TOKENS, START_ID, UNK_ID
from ..networks.transformer import Transformer
from .weights import words_of

MODEL_FOLDER = "model"
LONGEST = 2048
"""Places of the table of positions: CTranslate2 refuses a longer sentence or translation."""
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH", "silu": "SWISH"}
ACTIVATIONS |= {"geglu": "GELU", "swiglu": "SWISH"}


def export_ctranslate2(task: TextTask, output: Path | str) -> None:
    """Write the model as CTranslate2 reads it, with the tokenizers beside it.

    Needs the package `ctranslate2`, here and where the model is served. The weights are float32;
    `compute_type="int8"` quantises them as they are loaded.

    ```
    import ctranslate2
    from ..text import load_tokenizer

    source, target = (load_tokenizer("exported/tokenizers", name) for name in ("source", "target"))
    translator = ctranslate2.Translator("exported/model", compute_type="float32")
    results = translator.translate_batch(
        [source.tokens("A dog runs.")],
        beam_size=5,
        length_penalty=1.0,  # divides by the length, and not as `decoding.length_penalty` (GNMT's)
        suppress_sequences=[["<pad>"], ["<s>"]],  # as `predict` never writes them
    )
    print(results[0].hypotheses[0])  # tokens
    ```

    Args:
        task: a `Translator` over a `Transformer` with sinusoidal positions.
        output: the folder to write; it must not exist.

    Raises:
        UserError: if `output` exists, CTranslate2 is not installed or does not know the network.
    """
    check_network(task.backbone, "--format saved_model exports it.")
    require_ctranslate2("--format ctranslate2")
    for words in words_of(task):
        if spelt := [token for token in SPECIAL_TOKENS if f" {token}" in words]:
            raise UserError(
                "CTranslate2 tells tokens apart by their spelling: no word of a vocabulary may be "
                f"spelt as a special token. Received: {', '.join(spelt)}; --format saved_model "
                "exports it."
            )
    with new_folder(output) as folder:
        save_model(task, folder / MODEL_FOLDER)
        for side in ("source", "target"):
            getattr(task.preprocessor, f"{side}_tokenizer").save(folder / "tokenizers", side)


def check_network(network, way_out: str) -> None:
    """Refuse a network that CTranslate2 does not know, and name the way out."""
    name, is_known = type(network).__name__, isinstance(network, Transformer)
    if is_known:
        name += f" with {network.positions} positions and {network.autoregression}"
        is_known = (network.positions, network.autoregression) == ("sinusoidal", "self-attention")
    if not is_known:
        raise UserError(
            "CTranslate2 runs a Transformer with sinusoidal positions and self-attention only. "
            f"Received: {name}; {way_out}"
        )
    if network.activation not in ACTIVATIONS:
        raise UserError(
            f"CTranslate2 runs the activations {', '.join(ACTIVATIONS)} only. "
            f"Received: {network.activation}; {way_out}"
        )
    for weight in network.weights:
        if "lora" in weight.name or "int" in weight.dtype:
            raise UserError(
                "CTranslate2 gets plain weights. "
                f"Received: {weight.path}, of LoRA or of integers; {way_out}"
            )


def require_ctranslate2(action: str) -> None:
    """Refuse to go on where CTranslate2 is not installed."""
    try:
        import ctranslate2  # noqa: F401
    except ImportError:
        raise UserError(
            f"{action} needs the package ctranslate2: pip install ctranslate2."
        ) from None


def save_model(task: TextTask, folder: Path) -> None:
    """Write the model alone, in float32, into a new folder."""
    specification = _specification(task)
    specification.validate()
    specification.optimize()
    folder.mkdir(parents=True)
    specification.save(str(folder))


def _specification(task):
    from ctranslate2.specs import TransformerSpec, common_spec

    model = task.backbone
    specification = TransformerSpec.from_config(
        (len(model.encoders), model.depth),
        model.heads,
        pre_norm=model.norm == "pre",
        activation=getattr(common_spec.Activation, ACTIVATIONS[model.activation]),
        ffn_glu=model.activation.endswith("glu"),
        alignment_layer=model.attention_layer % model.depth,
        alignment_heads=model.heads,
    )
    encoder, decoder = specification.encoder, specification.decoder
    places = np.zeros((1, LONGEST, model.embedding_size), "float32")
    settings = {**(model.sinusoids or {}), "scale": False}
    codes = _array(PositionalEncoding(**settings, dtype="float32")(places))[0]
    for side, spec, embeddings, layers, norm in (
        ("source", encoder, model.source_embedding, model.encoders, model.encoder_norm),
        ("target", decoder, model.target_embedding, model.decoders, model.decoder_norm),
    ):
        table = spec.embeddings[0] if side == "source" else spec.embeddings
        table.weight = _array(embeddings.embeddings)
        spec.position_encodings.encodings = codes
        spec.scale_embeddings = model.position_codes.scale
        for block_spec, block in zip(spec.layer, layers, strict=True):
            _set_block(block_spec, block)
        if model.norm == "pre":
            _set_norm(spec.layer_norm, norm)
    _set_linear(decoder.projection, *model.output_matrix())
    source_words, words = words_of(task)
    specification.register_source_vocabulary(source_words)
    specification.register_target_vocabulary(words)
    settings = specification.config
    settings.unk_token, settings.eos_token = words[UNK_ID], words[END_ID]
    settings.bos_token = settings.decoder_start_token = words[START_ID]
    settings.layer_norm_epsilon = model.layer_norm_epsilon
    settings.add_source_eos = model.source_end
    return specification


def _set_block(spec, block):
    _set_attention(spec.self_attention, block.self_attention, ("query", "key", "value"))
    _set_norm(spec.self_attention.layer_norm, block.self_attention_norm)
    if hasattr(spec, "attention"):
        _set_attention(spec.attention, block.cross_attention, ("query",), ("key", "value"))
        _set_norm(spec.attention.layer_norm, block.cross_attention_norm)
    network = block.feed_forward
    kernel, bias = _array(network.kernel), _array(network.bias)
    if network.gated:
        (gate, kernel), (gate_bias, bias) = np.split(kernel, 2, 1), np.split(bias, 2)
        _set_linear(spec.ffn.linear_0, gate, gate_bias)
        _set_linear(spec.ffn.linear_0_noact, kernel, bias)
    else:
        _set_linear(spec.ffn.linear_0, kernel, bias)
    _set_linear(spec.ffn.linear_1, network.output_kernel, network.output_bias)
    _set_norm(spec.ffn.layer_norm, block.feed_forward_norm)


def _set_attention(spec, attention, *groups):
    """Set the projections, those of a group side by side, and the output's."""
    for linear, names in zip(spec.linear[:-1], groups, strict=True):
        kernels = [_array(getattr(attention, f"{name}_kernel")) for name in names]
        biases = [_array(getattr(attention, f"{name}_bias")).ravel() for name in names]
        kernels = [kernel.reshape(len(kernel), -1) for kernel in kernels]
        _set_linear(linear, np.concatenate(kernels, 1), np.concatenate(biases))
    output = _array(attention.output_kernel)
    _set_linear(spec.linear[-1], output.reshape(-1, output.shape[-1]), attention.output_bias)


def _set_linear(spec, kernel, bias):
    spec.weight, spec.bias = np.ascontiguousarray(_array(kernel).T), _array(bias)


def _set_norm(spec, norm):
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(variable):
    return np.array(variable, "float32")
