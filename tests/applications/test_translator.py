"""Translating lines of text: order, options, alignments, unknown words."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.translation import translator as translator_module
from keras_attention.applications.translation.search import SearchOptions
from keras_attention.applications.translation.translator import Translator
from keras_attention.text import END_ID, PAD_ID, START_ID, UNK_ID
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES, make_run

LINES = [*SOURCE_LINES, "", "the zebra rides over a man", "   "]
MAX_LENGTH = 13


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A translator of SentencePiece pieces, rnnsearch."""
    return Translator.load(make_run(tmp_path_factory.mktemp("pieces") / "run"))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A translator of words that replaces unknown ones, luong."""
    folder = tmp_path_factory.mktemp("words") / "run"
    return Translator.load(make_run(folder, kind="words", architecture="luong"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A translator without attention."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    return Translator.load(make_run(folder, architecture="rnnencdec"))


def ids_of(translator, translation):
    vocabulary = translator.run.target_tokenizer.vocabulary
    return [vocabulary.index(token) for token in translation.tokens]


def log_softmax(logits):
    """Log-probabilities of the tokens that a translation can hold."""
    logits = np.array(logits, np.float64)
    logits[[PAD_ID, START_ID]] = -np.inf
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def greedy(model, source):
    """The likeliest token at each step, one sentence at a time."""
    state = model.start(np.array([source], np.int32))
    tokens, total, last = [], 0.0, START_ID
    limit = min(MAX_LENGTH, int(np.ceil(3.0 * len(source))) + 10)
    while len(tokens) < limit:
        logits, state = model.step(np.array([last], np.int32), state, len(tokens))
        each = log_softmax(np.asarray(logits)[0])
        last = int(each.argmax())
        total += each[last]
        if last == END_ID:
            break
        tokens.append(last)
    return tokens, total


def test_greedy_takes_the_likeliest_token_of_each_sentence_alone(pieces):
    results = pieces.translate(SOURCE_LINES, beam_size=1)
    for line, result in zip(SOURCE_LINES, results, strict=True):
        source = pieces.run.source_tokenizer.encode([line])[0]
        tokens, total = greedy(pieces.model, source)
        assert ids_of(pieces, result) == tokens
        assert result.log_probability == pytest.approx(total, rel=1e-3)
        assert result.text == pieces.run.target_tokenizer.decode([tokens])[0]
    assert len({result.text for result in results}) > 1  # the lines are told apart


def test_results_are_in_the_order_of_the_lines_whatever_the_batches(pieces):
    together = pieces.translate(LINES, batch_size=64)
    for batch_size in (1, 3):
        results = pieces.translate(LINES, batch_size=batch_size)
        assert [r.text for r in results] == [r.text for r in together]
        np.testing.assert_allclose(
            [r.score for r in results], [r.score for r in together], rtol=1e-3
        )
    backwards = pieces.translate(LINES[::-1])[::-1]
    assert [r.text for r in backwards] == [r.text for r in together]


def test_empty_lines_have_empty_translations(pieces):
    for result in (pieces.translate(LINES)[5], *pieces.translate(["", " \t"], n_best=2)):
        assert (result.text, result.score, result.tokens, result.alternatives) == ("", 0, [], ())
        assert result.alignment.shape == (0, 0) and pieces.links(result) == []
    assert pieces.translate([]) == []


def test_n_best_are_ranked_different_and_scored_by_the_model(pieces):
    penalty = 0.6
    for line, best in zip(
        SOURCE_LINES, pieces.translate(SOURCE_LINES, n_best=3, length_penalty=penalty), strict=True
    ):
        assert len(best.ranked) == 3
        assert len({tuple(each.tokens) for each in best.ranked}) == 3
        scores = [each.score for each in best.ranked]
        assert scores == sorted(scores, reverse=True)
        source = np.array(pieces.run.source_tokenizer.encode([line]), np.int32)
        for each in best.ranked:
            ids = ids_of(pieces, each)
            labels = ids if len(ids) == MAX_LENGTH else [*ids, END_ID]
            inputs = np.array([[START_ID, *labels[:-1]]], np.int32)
            logits = np.asarray(pieces.model({"source": source, "target": inputs}))[0]
            total = sum(log_softmax(row)[label] for row, label in zip(logits, labels, strict=True))
            assert each.log_probability == pytest.approx(total, rel=1e-3)
            divisor = ((5 + len(labels)) / 6) ** penalty
            assert each.score == pytest.approx(total / divisor, rel=1e-3)


def test_more_translations_than_the_beam_is_wide_are_refused(pieces):
    with pytest.raises(ValueError, match=r"beam of 3 cannot give 4.*Received: n_best=4"):
        pieces.translate(LINES, n_best=4)


def test_lengths_stay_within_their_limits(pieces):
    for beam_size in (1, 2):
        results = pieces.translate(SOURCE_LINES, beam_size=beam_size, min_length=3, max_length=4)
        assert {len(result.tokens) for result in results} <= {3, 4}
    with pytest.raises(ValueError, match="`max_length` must be at least `min_length`"):
        pieces.translate(LINES, min_length=5, max_length=4)


def test_sampling_repeats_itself_with_a_seed_only(pieces):
    def texts(**options):
        results = pieces.translate(SOURCE_LINES, sample=True, n_best=2, **options)
        return [each.text for result in results for each in result.ranked]

    first = texts(seed=7)
    assert texts(seed=7) == first
    assert texts(seed=8) != first
    assert texts() != texts()
    assert texts(seed=2**40) != first


def test_sampling_from_one_token_is_greedy(pieces):
    drawn = pieces.translate(SOURCE_LINES, sample=True, top_k=1, seed=1)
    searched = pieces.translate(SOURCE_LINES, beam_size=1)
    assert [result.tokens for result in drawn] == [result.tokens for result in searched]


def test_alignments_belong_to_the_tokens_of_each_line(pieces):
    for line, result in zip(LINES, pieces.translate(LINES), strict=True):
        assert result.source_tokens == pieces.run.source_tokenizer.tokens(line)
        assert result.alignment.shape == (len(result.tokens), len(result.source_tokens))
        if result.tokens:
            np.testing.assert_allclose(result.alignment.sum(axis=1), 1, atol=1e-4)
            spread = result.alignment.max(axis=1) * len(result.source_tokens)
            assert spread.max() > 1.2  # not uniform, so that the comparison below says something
            ids = np.array([[START_ID, *ids_of(pieces, result)]], np.int32)
            source = np.array(pieces.run.source_tokenizer.encode([line]), np.int32)
            _, expected = pieces.model.score(source, ids[:, :-1])
            np.testing.assert_allclose(result.alignment, np.asarray(expected)[0], atol=1e-3)
    without = pieces.translate(LINES, return_alignments=False)
    assert all(result.alignment is None for result in without)
    with pytest.raises(ValueError, match="Links need a translation with an alignment"):
        pieces.links(without[0])


def test_one_search_is_traced_for_all_shapes(pieces, monkeypatch):
    traced = []

    def counted(*arguments, **options):
        traced.append(options["options"])
        return search(*arguments, **options)

    search = translator_module.search
    monkeypatch.setattr(translator_module, "search", counted)
    fresh = Translator(pieces.run)
    for lines, size in ((LINES, 2), (LINES[:1], 1), (LINES[3:], 5)):
        fresh.translate(lines, batch_size=size, n_best=2)
    fresh.translate(LINES, beam_size=1)
    assert [options.beam_size for options in traced] == [3, 1]


def test_weights_that_change_are_used(pieces):
    """Training translates the development set with one translator, epoch after epoch."""
    before = pieces.translate(SOURCE_LINES[:1], beam_size=1)[0]
    bias = pieces.model.word_logits.bias
    kept = np.array(bias)
    bias.assign(np.where(np.arange(len(kept)) == END_ID, 50.0, 0.0))
    assert pieces.translate(SOURCE_LINES[:1], beam_size=1)[0].tokens == []
    bias.assign(kept)
    assert pieces.translate(SOURCE_LINES[:1], beam_size=1)[0].tokens == before.tokens


def unknown_everywhere(translator):
    """Make the model write nothing but unknown words."""
    bias = translator.model.word_logits.bias
    kept = np.array(bias)
    bias.assign(np.where(np.arange(len(kept)) == UNK_ID, 50.0, kept))
    return bias, kept


def test_unknown_words_become_the_source_word_attended_to_the_most(words):
    bias, kept = unknown_everywhere(words)
    try:
        results = words.translate(["two dogs run", "the zebra rides"], max_length=5)
        for result in results:
            copied = [result.source_tokens[column] for column in result.alignment.argmax(axis=1)]
            assert result.tokens == copied and len(copied) == 5
            assert result.text == " ".join(copied)
        assert len({token for result in results for token in result.tokens}) > 2
        dictionary = {"two": "zwei", "dogs": "hunde", "run": "laufen"}
        looked_up = Translator(words.run, dictionary).translate(["two dogs run"], max_length=5)[0]
        assert looked_up.tokens == [dictionary[token] for token in results[0].tokens]
        silent = words.translate(["two dogs run"], max_length=5, return_alignments=False)[0]
        assert silent.text == results[0].text and silent.alignment is None
    finally:
        bias.assign(kept)


def test_models_without_attention_translate_without_alignments(plain):
    results = plain.translate(LINES, n_best=2)
    assert results[0].text and all(result.alignment is None for result in results)
    assert all(result.alignment is None for result in plain.align(LINES[:2], TARGET_LINES[:2]))
    with pytest.raises(ValueError, match="coverage penalty needs a model with attention"):
        plain.translate(LINES, coverage_penalty=0.2)


def test_coverage_penalty_needs_no_alignments_to_be_returned(pieces):
    options = {"coverage_penalty": 0.9, "n_best": 3}
    kept = pieces.translate(SOURCE_LINES, **options)
    left_out = pieces.translate(SOURCE_LINES, return_alignments=False, **options)
    assert [r.score for r in kept] == pytest.approx([r.score for r in left_out])
    unpenalised = pieces.translate(SOURCE_LINES, n_best=3)
    assert [r.score for r in kept] != pytest.approx([r.score for r in unpenalised])


def test_forced_alignments_are_those_of_the_model(pieces):
    results = pieces.align([*SOURCE_LINES, ""], [*TARGET_LINES, ""], batch_size=2)
    tokenizers = pieces.run.source_tokenizer, pieces.run.target_tokenizer
    total, count = 0.0, 0
    for source, target, result in zip(
        [*SOURCE_LINES, ""], [*TARGET_LINES, ""], results, strict=True
    ):
        sources, targets = (
            t.encode([x])[0] for t, x in zip(tokenizers, (source, target), strict=True)
        )
        logits, scores = pieces.model.score(
            np.array([sources or [0]], np.int32), np.array([[START_ID, *targets]], np.int32)
        )
        logits = np.asarray(logits)[0]
        labels = [*targets, END_ID]
        expected = sum(log_softmax(row)[label] for row, label in zip(logits, labels, strict=True))
        assert result.text == target
        assert result.log_probability == pytest.approx(expected, rel=1e-3)
        assert result.alignment.shape == (len(targets), len(sources))
        if targets:
            np.testing.assert_allclose(result.alignment, np.asarray(scores)[0, :-1], atol=1e-3)
        total, count = total + expected, count + len(labels)
    perplexity = pieces.perplexity([*SOURCE_LINES, ""], [*TARGET_LINES, ""])
    assert perplexity == pytest.approx(np.exp(-total / count), rel=1e-3)
    with pytest.raises(ValueError, match=r"equally many. Received: 5 and 1"):
        pieces.align(SOURCE_LINES, ["eins"])


def test_links_join_whole_words(pieces):
    result = pieces.align(["a man rides"], ["ein mann reitet"])[0]
    source, target = (
        np.cumsum([token.startswith("\u2581") for token in tokens]) - 1
        for tokens in (result.source_tokens, result.tokens)
    )
    weights = np.zeros((3, 3))
    for i, row in zip(target, result.alignment, strict=True):
        for j, weight in zip(source, row, strict=True):
            weights[i, j] += weight
    assert pieces.links(result) == [(int(row.argmax()), i) for i, row in enumerate(weights)]


def test_loading_what_is_not_a_run_says_so(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        Translator.load(tmp_path / "nowhere")


def test_search_options_of_a_run_are_its_configuration(pieces, monkeypatch):
    seen = []
    monkeypatch.setattr(
        translator_module.Translator,
        "_search",
        lambda self, options, keeps: seen.append(options) or (lambda source: _nothing(source)),
    )
    pieces.translate(["a"], coverage_penalty=0.5)
    assert seen == [
        SearchOptions(beam_size=3, length_penalty=1.0, coverage_penalty=0.5, max_length=MAX_LENGTH)
    ]


def _nothing(source):
    shape = (len(source), 1)
    end = tf.fill((*shape, 1), END_ID)
    return end, tf.ones(shape, tf.int32), tf.zeros(shape), tf.zeros(shape), None
