"""Sentences: what is cut makes up the text again, and abbreviations end none."""

import random

import pytest

from keras_attention.applications.text import split_sentences

CASES = {
    "en": [
        "Dr. Smith paid $3.50 to Mr. J. R. Brown at 5 p.m. on Monday. ",
        "He left... ",
        'Then he said: "Stop! I am here." ',
        "Nobody moved?! ",
        "The U.S. army came.",
    ],
    "de": [
        "Am 4. Juni 1999 kam Dr. Müller z. B. nach Bonn. ",
        "„Halt!“, rief er. ",
        "Gut.",
    ],
    "pt-BR": ["O Sr. Silva pagou R$ 3,50. ", "Veja a pág. 5. ", "Sim, p. ex. hoje."],
    "zh": ["今天天气很好。", "我们去公园吧!", "你说什么？", "再见"],
    "ja": ["これはペンです。", "元気ですか？", "はい！"],
    "hi": ["यह एक वाक्य है। ", "यह दूसरा है।"],
    "ar": ["هذا جيد. ", "كيف حالك؟ ", "أنا بخير."],
    None: ["One. ", "Two! ", "三。", "Four"],
}


@pytest.mark.parametrize("language", CASES, ids=str)
def test_sentences_of_a_language(language):
    assert split_sentences("".join(CASES[language]), language) == CASES[language]


def test_nothing_and_spaces():
    assert split_sentences("") == []
    assert "".join(split_sentences(" \u3000\t")) == " \u3000\t"


def test_sentences_make_up_any_text_again():
    """Spaces of several bytes and half surrogate pairs, at which the rules' library fails, too."""
    parts = list('aB.!?…"“”()[]1«»。「」中ß\t\n\r\u00a0\u2028\x85\u3000\u200b\0😀\ud800- ')
    parts += ["Dr. ", "* ", "1. ", "a) ", "U.S.", "e\u0301", "http://x.y/z. ", "👨\u200d👩"]
    draw = random.Random(3)
    for _ in range(3000):
        text = "".join(draw.choices(parts, k=draw.randrange(40)))
        found = split_sentences(text, draw.choice(["en", "zh", "de", None, "", "none"]))
        assert "".join(found) == text and all(found)
    # What made the library panic.
    text = "\rDr--U.S.«No.No.。1. \u2028'’]\n😀-- \u200b…1😀ép.m.B'ıB »\n।No.”»p.m."
    text += "B\x0b\x85.👨\u200d👩\u200d👧[??ii.]\x85」\r"
    assert "".join(split_sentences(text, "pt")) == text


def test_a_long_text_takes_no_longer_than_its_length():
    for part in ('"(', "a. ", "中", "1. ", "[1] "):
        assert "".join(split_sentences(part * 50_000)) == part * 50_000
