"""A translation model of Firefox in NumPy's float64, read by code of its own.

It shares nothing with the package, so that both can only agree where both are right.

Reference:
    [Kim et al., 2019](https://aclanthology.org/D19-5632), the students of Marian, with an SSRU
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sentencepiece

INT8, FLOAT32 = 0x4101, 0x0404
END = 0
MOST_STEPS = 3  # tokens written for each one read, and ten more: as of the translator


class FirefoxOracle:
    """Greedy translations by a folder of Firefox' files; ids are those of the file.

    Args:
        folder: the folder, with a `model*.bin` and a `vocab*.spm`.
        heads: heads of each attention.
    """

    def __init__(self, folder: Path, heads: int = 8):
        self.folder = folder
        self.heads = heads
        self.weights = read_weights(next(folder.glob("model*.bin")))
        vocabulary = str(next(folder.glob("vocab*.spm")))
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
        self.width = self.weights["Wemb"].shape[1]
        names = [name for name in self.weights if name.endswith("_ffn_W1")]
        self.depths = [
            sum(name.startswith(side) for name in names) for side in ("encoder", "decoder")
        ]

    def translate(
        self, texts: Sequence[str], shortlist: bool = False
    ) -> list[tuple[list[int], float]]:
        """Return the ids of each translation, and the smallest lead of a chosen word.

        The lead is how much higher its logit is than that of the second best word.

        Args:
            texts: the sentences.
            shortlist: whether to write words of the model's own shortlist alone.
        """
        sources = [[*self.pieces.encode(text), END] for text in texts]
        memories = [self._encode(source) for source in sources]
        hidden = np.zeros((len(texts), len(self.weights["Wemb"])), bool)
        if shortlist:
            hidden[:] = True
            for row, source in enumerate(sources):
                hidden[row, self._shortlist(source)] = False
        keys = [
            [self._split(memory, f"decoder_l{i + 1}_context", "kv") for memory in memories]
            for i in range(self.depths[1])
        ]
        written: list[list[int]] = [[] for _ in texts]
        leads = np.full(len(texts), np.inf)
        cells = np.zeros((self.depths[1], len(texts), self.width))
        alive = np.arange(len(texts))
        limits = np.array([int(np.ceil(MOST_STEPS * (len(x) - 1))) + 10 for x in sources])
        step = 0
        while len(alive):
            ids = [written[row][-1] if step else None for row in alive]
            x = self._embedded(ids, [step] * len(alive))
            for i in range(self.depths[1]):
                name = f"decoder_l{i + 1}"
                x, cells[i, alive] = self._ssru(f"{name}_rnn", x, cells[i, alive])
                queries = self._split(x, f"{name}_context", "q")[0]
                mixed = [
                    self._mixed(queries[:, place : place + 1], *keys[i][row])
                    for place, row in enumerate(alive)
                ]
                x = self._after_attention(f"{name}_context", x, np.concatenate(mixed))
                x = self._feed_forward(f"{name}_ffn", x)
            logits = x @ self.weights["Wemb"].T + self.weights["decoder_ff_logit_out_b"]
            logits = np.where(hidden[alive], -np.inf, logits)
            best = np.argmax(logits, axis=1)
            two = np.partition(logits, -2, axis=1)[:, -2:]
            leads[alive] = np.minimum(leads[alive], two[:, 1] - two[:, 0])
            for row, word in zip(alive, best, strict=True):
                written[row].append(int(word))
            step += 1
            alive = alive[(best != END) & (step < limits[alive])]
        kept = [ids[:-1] if ids[-1] == END else ids for ids in written]
        return list(zip(kept, leads.tolist(), strict=True))

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self.pieces.decode(list(ids))

    def _shortlist(self, source: Sequence[int]) -> np.ndarray:
        """Return the words that go with those of a source: the most frequent, and its own."""
        data = next(self.folder.glob("lex*.bin")).read_bytes()
        _, _, frequent, _, offsets, size = np.frombuffer(data, "<u8", 6).tolist()
        places = np.frombuffer(data, "<u8", offsets, 48)
        words = np.frombuffer(data, "<u4", size, 48 + 8 * offsets)
        own = [words[places[each] : places[each + 1]] for each in source]
        return np.unique(np.concatenate([np.arange(frequent), *own]))

    def _encode(self, ids):
        x = self._embedded(ids, range(len(ids)))
        for i in range(self.depths[0]):
            name = f"encoder_l{i + 1}"
            mixed = self._mixed(*self._split(x, f"{name}_self", "qkv"))
            x = self._after_attention(f"{name}_self", x, mixed)
            x = self._feed_forward(f"{name}_ffn", x)
        return x

    def _embedded(self, ids, positions):
        pairs = self.width // 2
        angles = np.array(list(positions))[:, None] / 10000.0 ** (np.arange(pairs) / (pairs - 1))
        table = self.weights["Wemb"]
        rows = np.stack([np.zeros(self.width) if each is None else table[each] for each in ids])
        return rows * np.sqrt(self.width) + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def _affine(self, name, kind, x):
        return x @ self.weights[f"{name}_W{kind}"] + self.weights[f"{name}_b{kind}"]

    def _split(self, x, name, kinds):
        """Return projections `(heads, T, width / heads)`."""
        sizes = (len(x), self.heads, -1)
        return [self._affine(name, each, x).reshape(sizes).transpose(1, 0, 2) for each in kinds]

    def _mixed(self, q, k, v):
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores = scores / scores.sum(axis=-1, keepdims=True)
        return (scores @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)

    def _after_attention(self, name, x, mixed):
        return self._norm(f"{name}_Wo", x + self._affine(name, "o", mixed))

    def _feed_forward(self, name, x):
        inner = np.maximum(self._affine(name, "1", x), 0)
        return self._norm(f"{name}_ffn", x + self._affine(name, "2", inner))

    def _ssru(self, name, x, cell):
        forget = 1 / (1 + np.exp(-self._affine(name, "f", x)))
        cell = forget * cell + (1 - forget) * (x @ self.weights[f"{name}_W"])
        return self._norm(f"{name}_ffn", x + np.maximum(cell, 0)), cell

    def _norm(self, name, x):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
        return x * self.weights[f"{name}_ln_scale"] + self.weights[f"{name}_ln_bias"]


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a `.bin` in float64; those of eight bits are `integer / multiplier`."""
    data, position = path.read_bytes(), 0

    def take(form: str) -> tuple:
        nonlocal position
        found = struct.unpack_from(f"<{form}", data, position)
        position += struct.calcsize(f"<{form}")
        return found

    _, count = take("QQ")
    heads = [take("QQQQ") for _ in range(count)]
    names = [take(f"{length}s")[0].rstrip(b"\0").decode() for length, *_ in heads]
    shapes = [take(f"{rank}i") for _, _, rank, _ in heads]
    (padding,) = take("Q")
    position += padding
    weights = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, heads, strict=True):
        amount = int(np.prod(shape))
        if kind == INT8 and "QuantMultA" not in name:
            whole = np.frombuffer(data, np.int8, amount, position).astype(np.float64)
            (multiplier,) = struct.unpack_from("<f", data, position + amount)
            stored = shape if name == "Wemb" else shape[::-1]
            matrix = whole.reshape(stored) / multiplier
            weights[name] = matrix if name == "Wemb" else matrix.T
        elif kind == FLOAT32:
            numbers = np.frombuffer(data, np.float32, amount, position).astype(np.float64)
            weights[name] = numbers.reshape(shape)
        position += size
    return weights
