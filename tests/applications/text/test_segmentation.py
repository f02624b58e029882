"""Random pieces: their probabilities, and that a seed fixes them."""

import collections
import itertools
import subprocess
import sys

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

from keras_attention.applications.text import SentencePieceTokenizer
from keras_attention.applications.text.segmentation import SPACE
from tests.applications.text.random_text import SENTENCES

PIECES = {SPACE: -3.0, "a": -2.0, "b": -2.5, "ab": -1.5, "ba": -1.75, "aba": -2.25, "bb": -4.0}
DRAWS = 20_000


def tokenizer_of(pieces, model_type, fixed=(), byte_fallback=False):
    """Return a tokenizer with these pieces and scores, and pieces that are never cut."""
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.ModelType.Value(model_type.upper())
    model.trainer_spec.byte_fallback = byte_fallback
    model.normalizer_spec.name = "identity"
    numbers = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    for key, value in numbers.items():
        setattr(model.trainer_spec, key, value)
    for name in ("<pad>", "<unk>", "<s>", "</s>"):
        kind = "UNKNOWN" if name == "<unk>" else "CONTROL"
        model.pieces.add(piece=name, type=model.SentencePiece.Type.Value(kind))
    for code in range(256 if byte_fallback else 0):
        model.pieces.add(piece=f"<0x{code:02X}>", type=model.SentencePiece.BYTE)
    for piece in fixed:
        model.pieces.add(piece=piece, type=model.SentencePiece.USER_DEFINED)
    for piece, score in pieces.items():
        model.pieces.add(piece=piece, score=score)
    return SentencePieceTokenizer(model.SerializeToString())


def by_unigram(word, alpha):
    """Return the probability of each way to cut a word: all are enumerated."""
    found = {}
    for cuts in itertools.product((False, True), repeat=len(word) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(word)]
        parts = tuple(word[a:b] for a, b in itertools.pairwise(places))
        if all(part in PIECES for part in parts):
            found[parts] = np.exp(alpha * sum(PIECES[part] for part in parts))
    total = sum(found.values())
    return {parts: value / total for parts, value in found.items()}


def by_bpe(parts, rate):
    """Return the same for BPE dropout: every set of merges that may be left out is enumerated."""
    merges = [i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in PIECES]
    found = collections.Counter()
    for kept in itertools.product((False, True), repeat=len(merges)):
        weight = np.prod([1 - rate if keep else rate for keep in kept])
        left = [i for i, keep in zip(merges, kept, strict=True) if keep]
        if not left:
            found[tuple(parts)] += weight
            continue
        best = max(left, key=lambda i: (PIECES[parts[i] + parts[i + 1]], -i))
        merged = [*parts[:best], parts[best] + parts[best + 1], *parts[best + 2 :]]
        for way, value in by_bpe(merged, rate).items():
            found[way] += weight * value
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_each_way_is_drawn_as_often_as_published(model_type, alpha):
    tokenizer = tokenizer_of(PIECES, model_type)
    word = "ababbab"
    text = SPACE + word
    expected = by_unigram(text, alpha) if model_type == "unigram" else by_bpe(list(text), alpha)
    drawn = tokenizer.sample([word] * DRAWS, alpha, seed=5)
    pieces = tokenizer.vocabulary
    counts = collections.Counter(tuple(pieces[i] for i in ids) for ids in drawn)
    assert set(counts) <= set(expected)
    for way, probability in expected.items():
        error = np.sqrt(probability * (1 - probability) / DRAWS)
        assert abs(counts[way] / DRAWS - probability) <= 5 * error + 1e-9, way


def test_nothing_left_out_gives_the_pieces_of_encode():
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 90, model_type="bpe")
    lines = [*SENTENCES, "", "  two  spaces ", "日本 日本", "x" * 500]
    assert tokenizer.sample(lines, 0.0, 1) == tokenizer.encode(lines)


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.slow
def test_a_seed_fixes_the_pieces_in_every_process(model_type):
    command = (
        "from tests.applications.text.random_text import SENTENCES as lines\n"
        "from keras_attention.applications.text import SentencePieceTokenizer\n"
        f"tokenizer = SentencePieceTokenizer.train(lines, 75, {model_type!r})\n"
        "print(tokenizer.sample(lines, 0.3, 7))"
    )
    other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    tokenizer = SentencePieceTokenizer.train(SENTENCES, 75, model_type)
    assert other.stdout.strip() == str(tokenizer.sample(SENTENCES, 0.3, 7)), other.stderr


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_unknown_characters_fixed_pieces_and_bytes(model_type):
    lines = ["", "ab", "zz ab", "a日本b", "a<x>b <x>", " <x><x> "]
    for options in ({}, {"fixed": ("<x>", "<x")}, {"byte_fallback": True}):
        tokenizer = tokenizer_of(PIECES, model_type, **options)
        plain, drawn = tokenizer.encode(lines), tokenizer.sample(lines, 0.3, 2)
        assert tokenizer.decode(drawn) == tokenizer.decode(plain)
        # What no piece stands for, and what is never cut, is as in `encode`.
        kept = {i for i, piece in enumerate(tokenizer.vocabulary) if piece not in PIECES}
        for ours, theirs in zip(drawn, plain, strict=True):
            assert [i for i in ours if i in kept] == [i for i in theirs if i in kept]


def test_pieces_with_spaces_inside_are_drawn():
    tokenizer = tokenizer_of(PIECES | {f"a{SPACE}b": -0.5}, "unigram")
    drawn = tokenizer.sample(["a b"] * 100, 0.2, 3)
    assert any(len(ids) == 2 for ids in drawn) and any(len(ids) == 4 for ids in drawn)


def test_other_models_have_no_random_pieces():
    tokenizer = tokenizer_of(PIECES, "char")
    with pytest.raises(ValueError, match="unigram or BPE model .*Received: a model of type char"):
        tokenizer.sample(["ab"], 0.1, 0)
