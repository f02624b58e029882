"""A summary as text: which words of a long document are shown."""

import string

import numpy as np

from keras_attention.applications.summarization.results import WIDEST, Summary


def test_the_words_that_one_token_reads_the_most_are_shown_in_their_order():
    words = [*string.ascii_letters[: WIDEST + 7]]
    attention = np.random.default_rng(3).dirichlet(np.full(len(words), 0.2), 5)
    summary = Summary(
        text="1 2 3 4 5",
        score=0.0,
        log_probability=0.0,
        tokens=[*"12345"],
        copied=np.zeros(5, bool),
        unknown=np.zeros(5, bool),
        source=[words[:11], words[11:]],
        attention=attention,
        p_gen=np.ones(5),
    )
    least = np.sort(attention.max(axis=0))[-WIDEST]
    expected = [
        word for word, most in zip(words, attention.max(axis=0), strict=True) if most >= least
    ]
    lines = [line.replace(" ", "") for line in summary.show().splitlines()]
    assert "".join(expected) in lines
