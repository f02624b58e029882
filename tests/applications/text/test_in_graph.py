"""The tokenizers inside a graph give what they give in Python, and survive a SavedModel."""

import subprocess
import sys

import numpy as np
import pytest

from keras_attention.applications.text import SentencePieceTokenizer
from tests.applications.text.random_text import SENTENCES, random_lines
from tests.applications.text.test_tokenizers import MAKERS

tf = pytest.importorskip("tensorflow")
LINES = random_lines(4000, seed=5) + SENTENCES


def strings(tensor) -> list:
    """Return a tensor of strings as lists of str."""
    rows = tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()
    return [[s.decode() for s in row] if isinstance(row, list) else row.decode() for row in rows]


@pytest.fixture(scope="module", params=[(k, low) for k in MAKERS for low in (False, True)], ids=str)
def pair(request):
    name, lowercase = request.param
    tokenizer = MAKERS[name](lowercase)
    return tokenizer, tokenizer.in_graph()


def test_encode_and_tokens(pair):
    tokenizer, graph = pair
    ids = graph.encode(tf.constant(LINES))
    assert ids.dtype == tf.int32
    assert ids.to_list() == tokenizer.encode(LINES)
    assert strings(graph.tokens(tf.constant(LINES))) == [tokenizer.tokens(line) for line in LINES]


def test_join(pair):
    tokenizer, graph = pair
    joined = strings(graph.join(graph.tokens(tf.constant(LINES))))
    assert joined == [tokenizer.join(tokenizer.tokens(line)) for line in LINES]


@pytest.mark.parametrize("ragged", [True, False])
def test_decode(pair, ragged):
    tokenizer, graph = pair
    generator = np.random.default_rng(7)
    rows = [
        generator.integers(0, tokenizer.vocabulary_size, generator.integers(0, 13)).tolist()
        for _ in range(500)
    ] + [[], [3], [2, 3, 5]]
    ids = tf.ragged.constant(rows, dtype=tf.int32)
    result = strings(graph.decode(ids if ragged else tf.cast(ids.to_tensor(0), tf.int64)))
    assert result == tokenizer.decode(rows)


def test_empty_batch(pair):
    _, graph = pair
    assert graph.encode(tf.constant([], tf.string)).to_list() == []
    assert graph.decode(tf.zeros((0, 3), tf.int32)).shape == (0,)


def test_ties_need_exact_scores():
    """Many ways to cut "pppp" have one score; every release must take the same."""
    draw = np.random.default_rng(11)
    lines = ["".join(draw.choice(list("ab "), 40)) for _ in range(3000)]
    tokenizer = SentencePieceTokenizer.train(lines[:300], 40)
    assert tokenizer.in_graph().encode(tf.constant(lines)).to_list() == tokenizer.encode(lines)


SERVE = """
import sys
import numpy as np
import tensorflow as tf

def serve(name):
    model = tf.saved_model.load(name)
    lines = np.load("lines.npy").tolist()
    ids, rows, text = model.serve(tf.constant(lines))
    tf.random.set_seed(1)  # empties TensorFlow's cache of kernels
    tf.debugging.assert_equal(text, model.serve(tf.constant(lines))[2])
    text = np.char.decode(text.numpy().astype("S"), "utf-8")
    np.savez(name + ".npz", ids=ids, rows=rows, text=text)

import tensorflow_text  # its operations bring text to form C
serve("words")
serve("unigram")
assert not {"sentencepiece", "keras_attention"} & set(sys.modules)
"""


class Served(tf.Module):
    """A model that reads, passes ids on and writes."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, lines):
        ids = self.tokenizer.encode(lines)
        return ids.flat_values, ids.row_splits, self.tokenizer.decode(ids)


@pytest.mark.slow  # tests/applications/base/test_export.py serves both kinds in a fresh process
def test_saved_models_in_a_fresh_process(tmp_path):
    lines = [line for line in LINES[:300] if not line.endswith("\x00")]  # NumPy drops that one
    np.save(tmp_path / "lines.npy", np.array(lines))
    tokenizers = {name: MAKERS[name](True) for name in ("words", "unigram")}
    for name, tokenizer in tokenizers.items():
        tf.saved_model.save(Served(tokenizer.in_graph()), str(tmp_path / name))
    fresh = subprocess.run([sys.executable, "-c", SERVE], cwd=tmp_path, capture_output=True)
    assert fresh.returncode == 0, fresh.stderr.decode()
    for name, tokenizer in tokenizers.items():
        served = np.load(tmp_path / f"{name}.npz")
        expected = tokenizer.encode(lines)
        assert served["ids"].tolist() == [i for row in expected for i in row]
        assert np.diff(served["rows"]).tolist() == list(map(len, expected))
        assert served["text"].tolist() == tokenizer.decode(expected)


def test_tags_of_languages():
    tokenizer = MAKERS["own pieces"](False)
    graph = tokenizer.in_graph()
    lines = [">>fra<< Ein Mann", ">>fra<<Mann", ">>deu<< Mann", "Ein >>fra<<", ">>fra<<", ">>a b<<"]
    lines += [">>fra<< Ein\nMann", ">>fra<< >>fra<<"]
    assert graph.encode(tf.constant(lines)).to_list() == tokenizer.encode(lines)
    assert strings(graph.tokens(tf.constant(lines))) == [tokenizer.tokens(line) for line in lines]
