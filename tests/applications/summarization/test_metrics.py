"""ROUGE against the reference tool, the oracle's sentences, and repetition."""

import itertools

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from keras_attention.applications.summarization.metrics import (
    _RougeWords,
    oracle_sentences,
    repeated_ngrams,
    rouge,
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


def test_texts_may_be_arrays_but_not_missing():
    lines, wanted = np.array(HYPOTHESES), np.array([REFERENCES, OTHERS]).T
    assert rouge(lines, wanted) == rouge(HYPOTHESES, wanted.tolist())
    assert rouge(lines, np.array(REFERENCES)) == rouge(HYPOTHESES, REFERENCES)
    for given in (
        (["a", None], ["a", "b"]),
        (["a", "b"], ["a", None]),
        (["a"] * 2, [["a"], ["b", None]]),
    ):
        with pytest.raises(ValueError, match="must hold strings, .*Received: None at index 1"):
            rouge(*given)


def test_a_summary_may_be_given_as_the_only_reference():
    assert rouge(HYPOTHESES, REFERENCES) == rouge(HYPOTHESES, [[text] for text in REFERENCES])
    with pytest.raises(ValueError, match="Received: the string 'abc'"):
        rouge("abc", ["a", "b", "c"])
    sentences = ["a cat sat", "it rained all day", "the cat slept"]
    assert oracle_sentences(sentences, "the cat slept", 1) == [2]


def test_the_interval_of_rouge_is_that_of_draws_of_its_documents():
    references = [[text] for text in REFERENCES]
    plain, report = rouge(HYPOTHESES, references), rouge(HYPOTHESES, references, resamples=1000)
    assert plain.items() < report.items()
    scorer = RougeScorer(["rouge2"], use_stemmer=True)
    each = [
        100 * scorer.score(wanted, text)["rouge2"].fmeasure
        for text, wanted in zip(HYPOTHESES, REFERENCES, strict=True)
    ]
    # All draws of five documents, each as likely as the others.
    means = [np.mean(draw) for draw in itertools.product(each, repeat=len(each))]
    low, high = np.quantile(means, (0.025, 0.975))
    assert report["rouge2_low"] == pytest.approx(low, abs=4)
    assert report["rouge2_high"] == pytest.approx(high, abs=4)
    assert report == rouge(HYPOTHESES, references, resamples=1000)
    assert rouge([], [], resamples=10) == dict.fromkeys(report, 0.0)
    with pytest.raises(ValueError, match="Received: resamples=-1"):
        rouge(HYPOTHESES, references, resamples=-1)


@pytest.mark.parametrize(
    "text, words",
    [
        ("天气很好。", "天 气 很 好"),
        ("GPU加速 ひらがな", "gpu 加 速 ひ ら が な"),
        ("ส้มโอ", "ส้ ม โ อ"),
        ("Привет, мир!", "привет мир"),
        ("हिन्दी में", "हिन्दी में"),
        ("한국어 문장", "한국어 문장"),
        ("Cafe\u0301s ÉTÉ", "cafés été"),
        ("❤\ufe0f “the dogs’ Zoë_x”", "the dog zoë x"),
    ],
)
def test_rouge_counts_the_letters_of_every_script(text, words):
    words = words.split()
    assert _RougeWords(stem=True).tokenize(text) == words
    scores = rouge([text], [text])
    assert (scores["rouge1"], scores["rouge2"]) == pytest.approx((100, 100 * (len(words) > 1)))
    assert oracle_sentences(["ôtô", text], [text], 2) == [1]


def test_rouge_of_english_is_that_of_rouge_score():
    assert rouge(["été"], ["ôtô"])["rouge1"] == 0
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    hypothesis, reference = HYPOTHESES[1] + " Its price_1: $3.50 - “good”…", OTHERS[1] + " ‘Good’"
    expected = scorer.score(reference, hypothesis)
    found = rouge([hypothesis], [reference])
    assert found == pytest.approx({key: 100 * each.fmeasure for key, each in expected.items()})


def test_rouge_lsum_compares_line_by_line():
    hypothesis, reference = "it rained all day\nthe dogs ran home", "the dog ran\nit rained"
    scorer = RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)
    expected = scorer.score(reference, hypothesis)
    found = rouge([hypothesis], [reference], resamples=3)
    for name in ("rougeL", "rougeLsum"):
        assert found[name] == found[f"{name}_low"] == pytest.approx(100 * expected[name].fmeasure)
    assert found["rougeLsum"] == pytest.approx(100 * 2 * 5 / 13) and found["rougeL"] < 60
    one_line = rouge([hypothesis.replace("\n", " ")], [reference.replace("\n", " ")])
    assert one_line["rougeLsum"] == one_line["rougeL"] == pytest.approx(found["rougeL"])
    several = rouge([hypothesis], [["x", reference]])
    assert several["rougeLsum"] == found["rougeLsum"]
    assert rouge([""], [reference])["rougeLsum"] == 0


SENTENCES = ["the dogs ran", "a cat was sleeping there", "it rained", "cats sleep a lot", "the end"]


def best_sentences(references, count):
    """The greedy choice by rouge-score itself."""
    scorer, chosen, best = RougeScorer(["rouge1", "rouge2"], use_stemmer=True), [], 0.0
    while len(chosen) < count:
        options = {}
        for place in range(len(SENTENCES)):
            places = sorted({*chosen, place})
            text = " ".join(SENTENCES[each] for each in places)
            scores = scorer.score_multi(references, text).values()
            options[tuple(places)] = sum(score.fmeasure for score in scores)
        places = max(options, key=options.get)
        if options[places] <= best:
            break
        best, chosen = options[places], list(places)
    return chosen


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(
    "references", [["a cat sleeps there"], ["the dog runs in the rain", "cats slept"], ["xyz"]]
)
def test_the_oracle_takes_the_sentences_that_add_most_to_rouge(references, count):
    assert oracle_sentences(SENTENCES, references, count) == best_sentences(references, count)


def test_the_oracle_of_nothing_is_nothing():
    assert oracle_sentences([], ["a"], 2) == oracle_sentences(["a", ""], ["b"], 2) == []


def test_repeated_ngrams_are_counted_within_each_summary():
    chance = np.random.default_rng(3)
    summaries = [[*map(str, chance.integers(0, 2, size))] for size in (13, 5, 3, 2, 0)]
    for n in (1, 2, 3, 4):
        total = again = 0
        for words in summaries:
            seen = []
            for end in range(n, len(words) + 1):
                ngram = words[end - n : end]
                total, again = total + 1, again + (ngram in seen)
                seen.append(ngram)
        assert 0 < again < total
        assert repeated_ngrams(summaries, n) == pytest.approx(100 * again / total)
    assert repeated_ngrams(summaries) == repeated_ngrams(summaries, 3)
    assert repeated_ngrams([["a", "b"], []]) == 0.0
