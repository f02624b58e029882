"""BLEU and chrF against the reference tool and against numbers worked out by hand."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from keras_attention.applications.translation.metrics import (
    LengthBucket,
    bleu,
    bleu_by_length,
    bleu_tokenizer,
    chrf,
)

REFERENCES = [
    "The children are playing in the snow.",
    "A man, wearing a red hat, sells fruit at the market!",
    "Two dogs run along the beach.",
    "She reads.",
    "An old woman is waiting for the bus near the station.",
]
HYPOTHESES = [
    "The children play in the snow.",
    "A man with a red hat sells fruit in the market!",
    "Two dogs run along the beach.",
    "",
    "an old woman waits for the bus next to the station.",
]
OTHERS = [
    "Children play in the snow.",
    "A man with a red hat is selling fruit in a market!",
    "Two dogs are running on the beach.",
    "She is reading.",
    "An old woman waits for the bus by the station.",
]


def command(tmp_path, measure, references, *options):
    """The score and signature that sacrebleu's own command prints."""
    files = []
    for number, lines in enumerate([*references, HYPOTHESES]):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    *streams, output = map(str, files)
    call = [sys.executable, "-m", "sacrebleu", *streams, "-i", output, "-m", measure, "-w", "10"]
    run = subprocess.run([*call, *options], capture_output=True, text=True, check=True)
    printed = json.loads(run.stdout)
    return printed["score"], printed["signature"]


@pytest.mark.parametrize("tokenize", ["13a", "intl", "char"])
def test_bleu_is_that_of_the_command(tmp_path, tokenize):
    score = bleu(HYPOTHESES, REFERENCES, tokenize=tokenize)
    value, signature = command(tmp_path, "bleu", [REFERENCES], "--tokenize", tokenize)
    assert score.value == pytest.approx(value, abs=1e-8)
    assert score.signature == signature
    assert float(score) == score.value


def test_lowercase_and_several_references(tmp_path):
    score = bleu(HYPOTHESES, list(zip(REFERENCES, OTHERS, strict=True)), lowercase=True)
    value, signature = command(tmp_path, "bleu", [REFERENCES, OTHERS], "--lowercase")
    assert score.value == pytest.approx(value, abs=1e-8)
    assert score.signature == signature
    assert "nrefs:2" in score.signature
    assert score.value > bleu(HYPOTHESES, REFERENCES).value


@pytest.mark.parametrize("word_order", [0, 2])
def test_chrf_is_that_of_the_command(tmp_path, word_order):
    score = chrf(HYPOTHESES, REFERENCES, word_order=word_order)
    options = ["--chrf-word-order", str(word_order)]
    value, signature = command(tmp_path, "chrf", [REFERENCES], *options)
    assert score.value == pytest.approx(value, abs=1e-8)
    assert score.signature == signature
    assert score.name == "chrF2" + "+" * word_order


def test_a_varying_number_of_references():
    one = [[line] for line in REFERENCES]
    assert bleu(HYPOTHESES, one).value == bleu(HYPOTHESES, REFERENCES).value
    pairs = list(zip(REFERENCES, OTHERS, strict=True))
    varied = [[a, b] if i != 2 else [a] for i, (a, b) in enumerate(pairs)]
    score = bleu(HYPOTHESES, varied)
    assert "nrefs:var" in score.signature
    # The third hypothesis equals its first reference, so its second one changes nothing.
    assert score.value == bleu(HYPOTHESES, pairs).value


def test_bleu_by_hand():
    # Matches of 1 to 4 words: 5 of 6, 3 of 5, 2 of 4, 1 of 3; 6 words for a reference of 7.
    score = bleu(["a b c d x e"], ["a b c d e f g"])
    precisions = [5 / 6, 3 / 5, 2 / 4, 1 / 3]
    expected = 100 * math.exp(1 - 7 / 6) * math.prod(precisions) ** 0.25
    assert score.value == pytest.approx(expected, abs=1e-9)
    assert score.details.startswith("83.3/60.0/50.0/33.3 (BP 0.846")


def test_perfect_and_empty_output():
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert bleu([""] * 5, REFERENCES).value == 0
    assert chrf([""] * 5, REFERENCES).value == 0


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_input_that_cannot_be_scored(measure):
    with pytest.raises(ValueError, match="Received: 5 hypotheses and 4 references"):
        measure(HYPOTHESES, REFERENCES[:4])
    with pytest.raises(ValueError, match="Received: no hypotheses"):
        measure([], [])
    with pytest.raises(ValueError, match="Received: none at index 1"):
        measure(["a", "b"], [["a"], []])
    with pytest.raises(ValueError, match="Received: the string 'one sentence'"):
        measure("one sentence", ["one sentence"])


@pytest.mark.parametrize("measure", [bleu, chrf])
def test_texts_may_be_arrays_but_not_missing(measure):
    lines, wanted = np.array(HYPOTHESES), np.array([REFERENCES, OTHERS]).T
    assert measure(lines, wanted) == measure(HYPOTHESES, wanted.tolist())
    assert measure(lines, np.array(REFERENCES)) == measure(HYPOTHESES, REFERENCES)
    for given in (
        (["a", None], ["a", "b"]),
        (["a", "b"], ["a", None]),
        (["a"] * 2, [["a"], ["b", None]]),
    ):
        with pytest.raises(ValueError, match="must hold strings, .*Received: None at index 1"):
            measure(*given)


def test_unknown_tokenizer():
    with pytest.raises(ValueError, match=r"'13a'.*Received: tokenize='moses'"):
        bleu(HYPOTHESES, REFERENCES, tokenize="moses")


@pytest.mark.parametrize(
    ("language", "tokenize"),
    [
        *[(None, "13a"), ("", "13a"), ("de", "13a"), ("iso", "13a"), ("zho-latin", "zh")],
        *[(code, "zh") for code in ("zh", "ZH-cn", "zh_Hant", "cmn", "yue_Hant", "zho_Hans")],
        *[(code, "char") for code in ("th", "lo", "khm_Khmr", "my-MM", "bo")],
    ],
)
def test_the_tokenizer_of_a_language(language, tokenize):
    assert bleu_tokenizer(language) == tokenize


@pytest.mark.parametrize(
    ("language", "name", "package"),
    [("ja", "ja-mecab", "MeCab"), ("jpn_Jpan", "ja-mecab", "ipadic"), ("ko-KR", "ko-mecab", None)],
)
def test_japanese_and_korean_fall_back_to_characters(monkeypatch, language, name, package):
    found = {"there": True}

    def find_spec(each):
        return each if found["there"] or each != package else None

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    assert bleu_tokenizer(language) == name
    found["there"] = False
    assert bleu_tokenizer(language) == ("char" if package else name)


def test_a_tokenizer_that_is_not_installed_is_named_with_the_way_out(monkeypatch):
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(ValueError, match=r"'ja-mecab' cannot be used.*pip install sacrebleu\[ja\]"):
        bleu(HYPOTHESES, REFERENCES, tokenize="ja-mecab")


def test_chinese_is_cut_into_words():
    texts = ["我喜欢红色的花朵。", "他不喜欢蓝色的天空。"]
    assert bleu(texts, texts).value == 0  # 13a: each sentence is a single word
    score = bleu(texts, texts, tokenize=bleu_tokenizer("zh"))
    assert score.value == pytest.approx(100) and "|tok:zh|" in score.signature


def test_bleu_by_length():
    sources = ["w " * n for n in (3, 9, 4, 1, 12)]
    buckets = bleu_by_length(sources, HYPOTHESES, REFERENCES, edges=(4, 6, 9))
    assert [bucket.label for bucket in buckets] == ["0-3", "4-5", "6-8", "9+"]
    assert [bucket.sentences for bucket in buckets] == [2, 1, 0, 2]
    assert buckets[2] == LengthBucket(6, 8, 0, None)
    for number, chosen in ((0, [0, 3]), (1, [2]), (3, [1, 4])):
        expected = bleu([HYPOTHESES[i] for i in chosen], [REFERENCES[i] for i in chosen])
        assert buckets[number].score == expected


def test_length_of_tokens_without_spaces():
    sources = [["雪", "が", "降る"], ["猫"]]
    buckets = bleu_by_length(sources, ["a b", "c"], ["a b", "c"], edges=(2,))
    assert [bucket.sentences for bucket in buckets] == [1, 1]
    assert bleu_by_length(["雪が降る", "猫"], ["a", "c"], ["a", "c"], (2,))[1].sentences == 0


def test_length_buckets_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="Received: 4 sources and 5 hypotheses"):
        bleu_by_length(["a"] * 4, HYPOTHESES, REFERENCES)
    with pytest.raises(ValueError, match="Received: 5 hypotheses and 4 references"):
        bleu_by_length(["a"] * 5, HYPOTHESES, REFERENCES[:4])
    for edges in ((0, 5), (5, 5), (9, 5)):
        with pytest.raises(ValueError, match="`edges` must be positive and ascending. Received"):
            bleu_by_length(["a"] * 5, HYPOTHESES, REFERENCES, edges)
