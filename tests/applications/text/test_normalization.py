"""Letters in any form of Unicode give the same ids, in Python and in graphs."""

import random
import unicodedata
import warnings

import pytest

from keras_attention.applications.text import (
    SentencePieceTokenizer,
    WordTokenizer,
    load_tokenizer,
    nfc,
)

LINES = [
    "Séjour désagréable à l'hôtel, où l'été n'était pas là.",
    "Tiếng Việt rất đẹp; những chữ ệ, ộ và ự có hai dấu.",
    "한국어 문장을 번역합니다. 값이 없다!",
    "Ὀδυσσεὺς ἄνδρα ᾧ, Ångström Ω",
    "İstanbul T\u0308 ẗ H\u0331 J\u030c",
]
SPLITS = ("unicode", "whitespace")
KINDS = {
    **{f"words-{split}": split for split in SPLITS},
    "unigram": "unigram",
    "bpe": "bpe",
}


def train(kind, lines, lowercase=False):
    if kind.startswith("words"):
        return WordTokenizer.train(lines, 200, lowercase=lowercase, split=KINDS[kind])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SentencePieceTokenizer.train(lines, 150, KINDS[kind], lowercase=lowercase)


def shuffled(line, seed=1):
    """The line in form D, with marks of different classes in another order: the same text."""
    draw, found = random.Random(seed), []
    for character in unicodedata.normalize("NFD", line):
        found.append(character)
        pair = [unicodedata.combining(each) for each in found[-2:]]
        if len(pair) == 2 and all(pair) and pair[0] != pair[1] and draw.random() < 0.7:
            found[-2:] = found[:-3:-1]
    return "".join(found)


FORMS = {"NFD": lambda line: unicodedata.normalize("NFD", line), "shuffled": shuffled}


def test_the_forms_are_of_one_text():
    for line in LINES:
        assert line != FORMS["NFD"](line) and nfc(shuffled(line)) == nfc(line)
    assert any(shuffled(line) != FORMS["NFD"](line) for line in LINES)
    text = "plain"
    assert nfc(text) is text


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_training_and_use_know_one_form(kind, lowercase, tmp_path):
    tokenizer = train(kind, LINES, lowercase)
    expected = tokenizer.encode(LINES)
    assert not any(1 in ids for ids in expected)
    decoded = tokenizer.decode(expected)
    assert decoded == [nfc(text) for text in decoded]
    for form in FORMS.values():
        lines = [form(line) for line in LINES]
        assert tokenizer.encode(lines) == expected
        assert [tokenizer.tokens(line) for line in lines] == [*map(tokenizer.tokens, LINES)]
        again = train(kind, lines, lowercase)
        assert again.vocabulary == tokenizer.vocabulary
        if kind in ("unigram", "bpe"):
            sampled = tokenizer.sample(LINES, 0.3, seed=3)
            assert tokenizer.sample(lines, 0.3, seed=3) == sampled
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).encode([FORMS["NFD"](LINES[0])]) == expected[:1]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_know_one_form(kind, lowercase):
    tf = pytest.importorskip("tensorflow")
    tokenizer = train(kind, LINES, lowercase)
    graph = tokenizer.in_graph()
    for form in FORMS.values():
        lines = tf.constant([form(line) for line in LINES])
        assert graph.encode(lines).to_list() == tokenizer.encode(LINES)
        tokens = [[each.decode() for each in row] for row in graph.tokens(lines).to_list()]
        assert tokens == [tokenizer.tokens(line) for line in LINES]


def test_a_vocabulary_of_decomposed_words_is_used():
    words = ["séjour", "한국어", "ệ"]
    tokenizer = WordTokenizer([unicodedata.normalize("NFD", word) for word in words])
    assert tokenizer.vocabulary[4:] == words
    assert tokenizer.encode(["séjour 한국어 e\u0302\u0323"]) == [[4, 5, 6]]
    with pytest.raises(ValueError, match="Received twice: 'séjour'"):
        WordTokenizer(["séjour", unicodedata.normalize("NFD", "séjour")])
