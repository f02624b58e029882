"""Small models of Marian with random weights, their files, and a forward pass in float64."""

import struct

import numpy as np
import yaml
from scipy.special import erf

from tests.applications.text.random_text import foreign_model

OPTIONS = {
    "version": "v1.9.56 94aeaa46",
    "type": "transformer",
    "enc-depth": 2,
    "dec-depth": 2,
    "dim-emb": 12,
    "dim-vocabs": [73, 73],
    "dim-rnn": 1024,
    "enc-type": "bidirectional",
    "dec-cell": "ssru",
    "layer-normalization": False,
    "input-types": [],
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "transformer-aan-depth": 2,
    "transformer-heads": 3,
    "transformer-dim-ffn": 19,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-decoder-autoreg": "rnn",
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "right-left": False,
    "ulr": False,
}
SELF = {"transformer-decoder-autoreg": "self-attention", "dec-cell": "gru"}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da"}
PRE |= {"transformer-postprocess-top": "n"}
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
}


def weights_of(options, seed=0):
    """Random arrays by Marian's names and in its shapes, biases and norms too."""
    draw = np.random.default_rng(seed)
    width, inner = options["dim-emb"], options["transformer-dim-ffn"]
    source, target = options["dim-vocabs"]
    shapes = {}
    is_pre = options["transformer-preprocess"] == "n"

    def norm(name):
        shapes[f"{name}_ln_scale"] = shapes[f"{name}_ln_bias"] = (1, width)

    def block_norm(name, pre_name):
        if is_pre:
            shapes[f"{pre_name}_ln_scale_pre"] = shapes[f"{pre_name}_ln_bias_pre"] = (1, width)
        else:
            norm(name)

    def attention(name):
        for letter in "qkvo":
            shapes[f"{name}_W{letter}"] = (width, width)
            shapes[f"{name}_b{letter}"] = (1, width)
        block_norm(f"{name}_Wo", f"{name}_Wo")

    def feed_forward(name):
        shapes[f"{name}_W1"], shapes[f"{name}_b1"] = (width, inner), (1, inner)
        shapes[f"{name}_W2"], shapes[f"{name}_b2"] = (inner, width), (1, width)
        block_norm(f"{name}_ffn", f"{name}_ffn")

    for layer in range(1, options["enc-depth"] + 1):
        attention(f"encoder_l{layer}_self")
        feed_forward(f"encoder_l{layer}_ffn")
    for layer in range(1, options["dec-depth"] + 1):
        own = f"decoder_l{layer}"
        if options["transformer-decoder-autoreg"] == "rnn":
            shapes[f"{own}_rnn_W"] = shapes[f"{own}_rnn_Wf"] = (width, width)
            shapes[f"{own}_rnn_bf"] = (1, width)
            block_norm(f"{own}_rnn_ffn", f"{own}_rnn")
        else:
            attention(f"{own}_self")
        attention(f"{own}_context")
        feed_forward(f"{own}_ffn")
    if is_pre:
        norm("encoder_top")
        norm("decoder_top")
    if options["tied-embeddings-all"] or options["tied-embeddings-src"]:
        shapes["Wemb"] = (source, width)
    else:
        shapes["encoder_Wemb"], shapes["decoder_Wemb"] = (source, width), (target, width)
    if not (options["tied-embeddings"] or options["tied-embeddings-all"]):
        shapes["decoder_ff_logit_out_W"] = (width, target)
    shapes["decoder_ff_logit_out_b"] = (1, target)
    scales = {name: 1.0 if "_ln_" in name or "_b" in name else 0.5 for name in shapes}
    return {
        name: draw.normal(0, scales[name], shape).astype("float32")
        for name, shape in shapes.items()
    }


def rounded(weights):
    """The weights with matrices of eight bits, and the integers and multipliers of such a file."""
    quantized, back = {}, {}
    for name, array in weights.items():
        if "_W" in name and "_ln_" not in name or "Wemb" in name:
            multiplier = np.float32(127 / np.abs(array).max())
            whole = np.round(array * multiplier).astype("int8")
            quantized[name] = whole, multiplier
            back[name] = whole / multiplier
        else:
            back[name] = array
    return back, quantized


def bin_of(weights, options, quantized=(), int8=0x4101):
    """The bytes of a `.bin`, matrices in `quantized` of eight bits."""
    entries = []
    for name, array in weights.items():
        if name in quantized:
            whole, multiplier = quantized[name]
            turned = whole if "Wemb" in name else whole.T
            raw = np.ascontiguousarray(turned).tobytes() + multiplier.tobytes()
            entries.append((name, int8, array.shape, raw))
            scale = np.full((1, 1), 9.5, "float32").tobytes()
            entries.append((f"{name}_QuantMultA", 0x404, (1, 1), scale))
        else:
            raw = np.ascontiguousarray(array, "<f4").tobytes()
            entries.append((name, 0x404, array.shape, raw))
    text = yaml.safe_dump(options).encode() + b"\0"
    entries.append(("special:model.yml", 0x101, (len(text),), text))
    entries = [(n, k, s, raw + b"\0" * (-len(raw) % 256)) for n, k, s, raw in sorted(entries)]
    head = struct.pack("<QQ", 1, len(entries))
    for name, kind, shape, raw in entries:
        head += struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(raw))
    head += b"".join(name.encode() + b"\0" for name, *_ in entries)
    head += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in entries)
    offset = ((len(head) + 8) // 256 + 1) * 256 - len(head) - 8
    head += struct.pack("<Q", offset) + b"\0" * offset
    return head + b"".join(raw for *_, raw in entries)


def write_folder(folder, form="bin", seed=0, settings=None, **changes):
    """Write a folder of Marian's files; return its weights, as a reader has them, and options."""
    options = OPTIONS | changes
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_of(options, seed)
    if form == "npz":
        text = yaml.safe_dump(options).encode() + b"\0"
        np.savez(
            folder / "model.npz", **weights, **{"special:model.yml": np.frombuffer(text, "i1")}
        )
    else:
        quantized = {}
        if form == "int8":
            weights, quantized = rounded(weights)
        (folder / "model.bin").write_bytes(bin_of(weights, options, quantized))
    (folder / "vocab.spm").write_bytes(foreign_model())
    if settings is not None:
        (folder / "decoder.yml").write_text(yaml.safe_dump(settings))
    return weights, options


def lists_of(words, seed=0, most=5):
    """Random target words of each source word; some have none."""
    draw = np.random.default_rng(seed)
    return [
        draw.choice(words, size=draw.integers(0, most + 1), replace=False) for _ in range(words)
    ]


def shortlist_of(lists, always=3, magic=0xF11A48D5013417F5):
    """The bytes of a `lex.bin`."""
    first = np.cumsum([0, *map(len, lists)]).astype("<u8")
    words = np.concatenate(lists).astype("<u4")
    head = struct.pack("<6Q", magic, 7, always, 5, len(first), len(words))
    return head + first.tobytes() + words.tobytes()


class Oracle:
    """Marian's Transformer in float64, one sentence at a time, ids as in the file."""

    epsilon, scale, start = 1e-6, None, None

    def __init__(self, weights, options):
        self.weights = {name: array.astype("float64") for name, array in weights.items()}
        self.options = options

    def logits(self, source, target):
        """Logits `(T + 1, V)` of a source without its end, and of the words before; first head."""
        options = self.options
        memory = self._embedded("encoder", [*source, 0])
        for layer in range(1, options["enc-depth"] + 1):
            name = f"encoder_l{layer}"
            memory, _ = self._attention(f"{name}_self", memory, None)
            memory = self._feed_forward(f"{name}_ffn", memory)
        memory = self._top("encoder", memory)
        x, first = self._embedded("decoder", [None, *target]), None
        for layer in range(1, options["dec-depth"] + 1):
            name = f"decoder_l{layer}"
            if options["transformer-decoder-autoreg"] == "rnn":
                x = self._ssru(f"{name}_rnn", x)
            else:
                x, _ = self._attention(f"{name}_self", x, None, causal=True)
            x, first = self._attention(f"{name}_context", x, memory)
            x = self._feed_forward(f"{name}_ffn", x)
        x = self._top("decoder", x)
        kernel = self.weights.get("decoder_ff_logit_out_W")
        if kernel is None:
            kernel = self._table("decoder").T
        return x @ kernel + self.weights["decoder_ff_logit_out_b"], first[:, :-1]

    def greedy(self, source, longest):
        written = []
        while len(written) < longest:
            best = int(self.logits(source, written)[0][-1].argmax())
            if best == 0:
                break
            written.append(best)
        return written

    def _table(self, side):
        found = self.weights.get("Wemb")
        return self.weights[f"{side}_Wemb"] if found is None else found

    def _embedded(self, side, ids):
        table = self._table(side)
        width = table.shape[1]
        first = np.zeros(width) if self.start is None else table[self.start]
        rows = np.array([first if each is None else table[each] for each in ids])
        angles = np.arange(len(ids))[:, None] * self._rates(width)
        scale = width**0.5 if self.scale is None else self.scale
        return rows * scale + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def _rates(self, width):
        return 10000.0 ** (-np.arange(width // 2) / (width // 2 - 1))

    def _norm(self, name, x, end=""):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + self.epsilon)
        return x * self.weights[f"{name}_ln_scale{end}"] + self.weights[f"{name}_ln_bias{end}"]

    def _residual(self, name, pre_name, x, function):
        if self.options["transformer-preprocess"] == "n":
            return x + function(self._norm(pre_name, x, "_pre"))
        return self._norm(name, x + function(x))

    def _top(self, side, x):
        is_pre = self.options["transformer-postprocess-top"] == "n"
        return self._norm(f"{side}_top", x) if is_pre else x

    def _attention(self, name, x, memory, causal=False):
        heads, found = self.options["transformer-heads"], []

        def function(y):
            read = y if memory is None else memory
            parts = [
                each @ self.weights[f"{name}_W{letter}"] + self.weights[f"{name}_b{letter}"]
                for letter, each in (("q", y), ("k", read), ("v", read))
            ]
            q, k, v = (np.array(np.split(each, heads, axis=1)) for each in parts)
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
            if causal:
                scores = np.where(np.tri(len(y), dtype=bool), scores, -np.inf)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores = scores / scores.sum(-1, keepdims=True)
            found.append(scores[0])
            joined = np.concatenate(list(scores @ v), axis=1)
            return joined @ self.weights[f"{name}_Wo"] + self.weights[f"{name}_bo"]

        return self._residual(f"{name}_Wo", f"{name}_Wo", x, function), found[0]

    def _feed_forward(self, name, x):
        def function(y):
            hidden = y @ self.weights[f"{name}_W1"] + self.weights[f"{name}_b1"]
            hidden = ACTIVATIONS[self.options["transformer-ffn-activation"]](hidden)
            return hidden @ self.weights[f"{name}_W2"] + self.weights[f"{name}_b2"]

        return self._residual(f"{name}_ffn", f"{name}_ffn", x, function)

    def _ssru(self, name, x):
        def function(y):
            gate = y @ self.weights[f"{name}_Wf"] + self.weights[f"{name}_bf"]
            gate = 1 / (1 + np.exp(-gate))
            candidate, cell, outputs = y @ self.weights[f"{name}_W"], 0.0, []
            for f, each in zip(gate, candidate, strict=True):
                cell = f * cell + (1 - f) * each
                outputs.append(np.maximum(cell, 0))
            return np.array(outputs)

        return self._residual(f"{name}_ffn", name, x, function)
