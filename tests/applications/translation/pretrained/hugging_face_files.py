"""Small models of Hugging Face's `MarianMTModel` with random weights, and their files.

`python -m tests.applications.translation.pretrained.hugging_face_files` records what transformers
and PyTorch make of them into `hugging_face.json`, which the tests compare with where neither is
installed.
"""

import json
import struct
from pathlib import Path

import numpy as np
import sentencepiece

from tests.applications.text.random_text import foreign_model
from tests.applications.translation.pretrained.marian_files import OPTIONS, SELF, Oracle

RECORDED = Path(__file__).with_name("hugging_face.json")
CONFIG = {
    "model_type": "marian",
    "_name_or_path": "someone/opus-mt-de-de",
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 19,
    "decoder_ffn_dim": 19,
    "activation_function": "swish",
    "scale_embedding": True,
    "max_position_embeddings": 64,
    "add_final_layer_norm": False,
    "normalize_before": False,
    "normalize_embedding": False,
    "static_position_embeddings": True,
    "is_encoder_decoder": True,
    "eos_token_id": 0,
    "num_beams": 3,
}
SEPARATE = {"share_encoder_decoder_embeddings": False}
CASES = {
    "shared": {},
    "plain": {"scale_embedding": False, "activation_function": "gelu", "decoder_layers": 2},
    "separate": SEPARATE,
    "untied": SEPARATE | {"tie_word_embeddings": False, "activation_function": "relu"},
}
SENTENCES = ["Ein Mann steht auf", "a", ">>fra<< Zwei Kinder putzen 3 Äpfel xq"]
TARGETS = [[5, 9, 20, 7], [3, 4, 4, 4], [11, 2, 60, 1]]


def vocabulary(side="source"):
    """The words of a side in the order of their ids."""
    model = foreign_model(lowercase=side == "target")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = processor.id_to_piece(list(range(2, processor.vocab_size())))[::-1]
    return ["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"]


def described(changes):
    """The configuration of a case, and the words of both sides."""
    config = CONFIG | changes
    words = {"source": vocabulary()}
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    words["target"] = words["source"] if is_shared else vocabulary("target")
    config |= {"vocab_size": len(words["source"]), "pad_token_id": len(words["source"]) - 1}
    if not is_shared:
        config["decoder_vocab_size"] = len(words["target"])
    config["decoder_start_token_id"] = len(words["target"]) - 1
    return config, words


def weights_of(config, words, seed=0):
    """Random arrays by the names of PyTorch, and in its shapes."""
    draw, found = np.random.default_rng(seed), {}
    width, inner = config["d_model"], config["encoder_ffn_dim"]

    def make(name, *shape, scale=0.5):
        found[name] = draw.normal(0, scale, shape).astype("float32")

    def linear(name, inputs, outputs):
        make(f"{name}.weight", outputs, inputs)
        make(f"{name}.bias", outputs)

    def norm(name):
        make(f"{name}.weight", width, scale=1.0)
        make(f"{name}.bias", width)

    for side in ("encoder", "decoder"):
        for layer in range(config[f"{side}_layers"]):
            name = f"model.{side}.layers.{layer}"
            for part in ["self_attn"] + ["encoder_attn"] * (side == "decoder"):
                for each in "qkv":
                    linear(f"{name}.{part}.{each}_proj", width, width)
                linear(f"{name}.{part}.out_proj", width, width)
                norm(f"{name}.{part}_layer_norm")
            linear(f"{name}.fc1", width, inner)
            linear(f"{name}.fc2", inner, width)
            norm(f"{name}.final_layer_norm")
    sizes = {side: len(each) for side, each in words.items()}
    if config.get("share_encoder_decoder_embeddings", True):
        make("model.shared.weight", sizes["source"], width)
        found["model.shared.weight"][-1] = 0.0
    else:
        for side, end in (("encoder", "source"), ("decoder", "target")):
            make(f"model.{side}.embed_tokens.weight", sizes[end], width)
            found[f"model.{side}.embed_tokens.weight"][-1] = 0.0
    if not config.get("tie_word_embeddings", True):
        make("lm_head.weight", sizes["target"], width)
    make("final_logits_bias", 1, sizes["target"])
    return found


def safetensors_of(weights, dtype="F32"):
    """The bytes of a `.safetensors` file."""
    head, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in weights.items():
        raw = np.ascontiguousarray(array, "<f4").tobytes()
        if dtype == "BF16":
            raw = (np.frombuffer(raw, "<u4") >> 16).astype("<u2").tobytes()
        offsets = [len(data), len(data) + len(raw)]
        head[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_h5(path, weights):
    """Write weights as TensorFlow's models of transformers did."""
    import h5py

    kinds = {"bias": "bias"}
    with h5py.File(path, "w") as file:
        for name, array in weights.items():
            *parts, kind = name.removeprefix("model.").split(".")
            if parts and parts[0] in ("encoder", "decoder") and len(parts) > 2:
                is_norm = parts[-1].endswith("layer_norm")
                kind = {"weight": "gamma" if is_norm else "kernel"}.get(kind, kind)
                kind = "beta" if is_norm and kind == "bias" else kind
                path = "/".join([parts[0], ".".join(parts[1:3]), *parts[3:]])
                path = f"model/tf_marian_mt_model/model/{path}/{kind}:0"
                file[path] = array.T if kind == "kernel" else array
            elif name == "model.shared.weight":
                file["model.shared/model.shared/weight:0"] = array
            elif name == "final_logits_bias":
                file["final_logits_bias/tf_marian_mt_model/final_logits_bias:0"] = array
            else:
                kinds[name] = array
                path = "/".join([parts[0], *parts[1:]])
                file[f"model/tf_marian_mt_model/model/{path}/embeddings:0"] = array


def write_folder(folder, changes=(), form="safetensors", seed=0, more=()):
    """Write a folder of Hugging Face's files; return its weights, configuration and words.

    `changes` are of the configuration, and `more` of what is written of it alone.
    """
    config, words = described(dict(changes))
    weights = weights_of(config, words, seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | dict(more)))
    for side, lowercase in (("source", False), ("target", True)):
        (folder / f"{side}.spm").write_bytes(foreign_model(lowercase))
    names = {"vocab.json": "source"}
    if words["source"] != words["target"]:
        names["target_vocab.json"] = "target"
    for name, side in names.items():
        ids = {word: place for place, word in enumerate(words[side])}
        (folder / name).write_text(json.dumps(ids))
    if form == "h5":
        write_h5(folder / "tf_model.h5", weights)
    elif form == "torch":
        import torch

        tensors = {name: torch.tensor(array) for name, array in weights.items()}
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        (folder / "model.safetensors").write_bytes(safetensors_of(weights))
    return weights, config, words


class HuggingFaceOracle(Oracle):
    """The same network as Marian's, but for positions, a small number and the start."""

    epsilon = 1e-5

    def __init__(self, weights, config):
        names = {"model.shared.weight": "Wemb", "final_logits_bias": "decoder_ff_logit_out_b"}
        for side in ("encoder", "decoder"):
            names[f"model.{side}.embed_tokens.weight"] = f"{side}_Wemb"
            for layer in range(config[f"{side}_layers"]):
                theirs, ours = f"model.{side}.layers.{layer}", f"{side}_l{layer + 1}"
                for part, own in (("self_attn", "self"), ("encoder_attn", "context")):
                    for letter, each in zip("qkvo", ("q", "k", "v", "out"), strict=True):
                        names[f"{theirs}.{part}.{each}_proj.weight"] = f"{ours}_{own}_W{letter}"
                        names[f"{theirs}.{part}.{each}_proj.bias"] = f"{ours}_{own}_b{letter}"
                    norm = f"{theirs}.{part}_layer_norm"
                    names[f"{norm}.weight"] = f"{ours}_{own}_Wo_ln_scale"
                    names[f"{norm}.bias"] = f"{ours}_{own}_Wo_ln_bias"
                for number in (1, 2):
                    names[f"{theirs}.fc{number}.weight"] = f"{ours}_ffn_W{number}"
                    names[f"{theirs}.fc{number}.bias"] = f"{ours}_ffn_b{number}"
                names[f"{theirs}.final_layer_norm.weight"] = f"{ours}_ffn_ffn_ln_scale"
                names[f"{theirs}.final_layer_norm.bias"] = f"{ours}_ffn_ffn_ln_bias"
        names["lm_head.weight"] = "decoder_ff_logit_out_W"
        marian = {}
        for name, array in weights.items():
            is_kernel = array.ndim == 2 and ("proj" in name or ".fc" in name or "lm_head" in name)
            marian[names[name]] = array.T if is_kernel else array
        options = OPTIONS | SELF | {"transformer-ffn-activation": config["activation_function"]}
        options |= {"enc-depth": config["encoder_layers"], "dec-depth": config["decoder_layers"]}
        options["transformer-heads"] = config["encoder_attention_heads"]
        super().__init__(marian, options)
        self.scale = None if config["scale_embedding"] else 1.0
        self.start = config["decoder_start_token_id"]

    def _rates(self, width):
        return 10000.0 ** (-2 * np.arange(width // 2) / width)


def record():
    """Write what transformers makes of each case: logits, greedy words, and those of a beam."""
    import tempfile

    import torch
    from transformers import MarianMTModel, MarianTokenizer

    found = {}
    for name, changes in CASES.items():
        folder = Path(tempfile.mkdtemp())
        weights, config, words = write_folder(folder, changes)
        model = MarianMTModel.from_pretrained(folder).eval()
        separate = {"separate_vocabs": True, "target_vocab_file": str(folder / "target_vocab.json")}
        has_own = (folder / "target_vocab.json").is_file()
        files = [str(folder / each) for each in ("source.spm", "target.spm", "vocab.json")]
        tokenizer = MarianTokenizer(*files, **(separate if has_own else {}))
        batch = tokenizer(SENTENCES, return_tensors="pt", padding=True)
        start = torch.full((len(TARGETS), 1), config["decoder_start_token_id"])
        read = torch.cat([start, torch.tensor(TARGETS)], dim=1)
        options = {"max_new_tokens": 9, "bad_words_ids": [[config["decoder_start_token_id"]]]}
        options |= {"forced_eos_token_id": None, "do_sample": False}
        with torch.no_grad():
            logits = model(**batch, decoder_input_ids=read).logits
            greedy = model.generate(**batch, num_beams=1, **options)
            beam = {"num_beams": 4, "length_penalty": 0.0, "early_stopping": False}
            beams = model.generate(**batch, renormalize_logits=True, **beam, **options)
        found[name] = {
            "source": batch["input_ids"].tolist(),
            "logits": logits.numpy().astype(float).round(6).tolist(),
            "greedy": [tokenizer.decode(row, skip_special_tokens=True) for row in greedy],
            "greedy_ids": greedy.tolist(),
            "beam_ids": beams.tolist(),
        }
    RECORDED.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    record()
