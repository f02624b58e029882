"""Translating lines of text: order, options, alignments, unknown words, figures."""

import keras
import numpy as np
import pytest

from keras_attention.applications.base.preprocessor import padded
from keras_attention.applications.text import END_ID, PAD_ID, START_ID, UNK_ID
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation.metrics import bleu
from keras_attention.decoding import SearchOptions
from tests.applications.translation_runs import (
    MAX_LENGTH,
    SOURCE_LINES,
    TARGET_LINES,
    make_translator,
)

# Nearly every test searches a batch or two by other options: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
LINES = [*SOURCE_LINES, "", "the zebra rides over a man", "   "]
FEW, GIVEN = ["a book", "it rains"], ["ein buch", "es regnet"]  # encoders run over each piece


@pytest.fixture(scope="module")
def pieces():
    """A translator of SentencePiece pieces, rnnsearch."""
    return make_translator()


@pytest.fixture(scope="module")
def words():
    """A translator of words that replaces unknown ones, luong."""
    return make_translator("words", architecture="luong")


@pytest.fixture(scope="module")
def plain():
    """A translator without attention."""
    return make_translator(architecture="rnnencdec")


def encoded(translator, line):
    return translator.preprocessor.source_tokenizer.encode([line])[0]


def ids_of(translator, translation):
    vocabulary = translator.preprocessor.target_tokenizer.vocabulary
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


@pytest.mark.parametrize("name", ["pieces", "transformer"])
def test_greedy_takes_the_likeliest_token_of_each_sentence_alone(request, name):
    translator = request.getfixturevalue(name)
    results = translator.translate(FEW, beam_size=1)
    for line, result in zip(FEW, results, strict=True):
        tokens, total = greedy(translator.backbone, encoded(translator, line))
        assert ids_of(translator, result) == tokens
        assert result.log_probability == pytest.approx(total, rel=1e-3)
        assert result.text == translator.preprocessor.target_tokenizer.decode([tokens])[0]
    # The lines are told apart. (Their words may be the same, as the weights are random.)
    assert len({result.log_probability for result in results}) > 1


@pytest.mark.parametrize("name", ["pieces", "transformer"])
@pytest.mark.by_default("pieces")
def test_results_are_in_the_order_of_the_lines_whatever_the_batches(request, name, traced):
    translator = request.getfixturevalue(name)
    together = translator.translate(LINES, batch_size=64)
    for batch_size in (1, 3):
        results = translator.translate(LINES, batch_size=batch_size)
        assert [r.text for r in results] == [r.text for r in together]
        np.testing.assert_allclose(
            [r.score for r in results], [r.score for r in together], rtol=1e-3
        )
    backwards = translator.translate(np.array(LINES[::-1]))[::-1]
    assert [r.text for r in backwards] == [r.text for r in together]
    one = translator.translate(LINES[0])  # a sentence alone
    assert one.text == together[0].text and one.score == pytest.approx(together[0].score, rel=1e-3)


def test_a_wider_beam_finds_what_is_likelier(transformer):
    narrow = transformer.translate(SOURCE_LINES, beam_size=1, max_length=5)
    wide = transformer.translate(SOURCE_LINES, beam_size=4, max_length=5, length_penalty=0.0)
    for one, other in zip(narrow, wide, strict=True):
        assert other.log_probability >= one.log_probability - 1e-4


def test_empty_lines_have_empty_translations(pieces):
    for result in (
        pieces.translate(LINES[4:6])[1],
        *pieces.translate(["", " \t"], n_best=2),
    ):
        assert (result.text, result.score, result.tokens, result.alternatives) == ("", 0, [], ())
        assert result.alignment.shape == (0, 0) and pieces.links(result) == []
        assert result.picture == ""
        assert result.show() == ""
    assert pieces.translate([]) == []
    assert pieces.translate("").text == ""


def test_n_best_are_ranked_different_and_scored_by_the_model(pieces):
    penalty, lines = 0.6, [*FEW, SOURCE_LINES[2]]
    results = pieces.translate(lines, n_best=3, length_penalty=penalty)
    rows = [encoded(pieces, line) for line in lines for _ in range(3)]
    found = [ids_of(pieces, each) for best in results for each in best.ranked]
    labels = [ids if len(ids) == MAX_LENGTH else [*ids, END_ID] for ids in found]
    inputs = [[START_ID, *ids[:-1]] for ids in labels]
    logits = np.asarray(pieces.backbone({"source": padded(rows), "target": padded(inputs)}))
    totals = [
        sum(log_softmax(step)[label] for step, label in zip(steps, ids, strict=False))
        for steps, ids in zip(logits, labels, strict=True)
    ]
    for place, best in enumerate(results):
        assert len(best.ranked) == 3
        assert len({tuple(each.tokens) for each in best.ranked}) == 3
        scores = [each.score for each in best.ranked]
        assert scores == sorted(scores, reverse=True)
        for rank, each in enumerate(best.ranked, 3 * place):
            assert each.log_probability == pytest.approx(totals[rank], rel=1e-3)
            divisor = ((5 + len(labels[rank])) / 6) ** penalty
            assert each.score == pytest.approx(totals[rank] / divisor, rel=1e-3)


def test_lengths_stay_within_their_limits(pieces):
    for beam_size in (1, 2):
        results = pieces.translate(FEW, beam_size=beam_size, min_length=3, max_length=4)
        assert {len(result.tokens) for result in results} <= {3, 4}


def test_sampling_repeats_itself_with_a_seed_only(pieces):
    def texts(**options):
        results = pieces.translate(FEW, sample=True, n_best=2, max_length=5, **options)
        return [each.text for result in results for each in result.ranked]

    first = texts(seed=7)
    assert texts(seed=7) == first
    assert texts(seed=8) != first
    assert texts() != texts()
    assert texts(seed=2**40) != first


def test_sampling_from_one_token_is_greedy(pieces):
    drawn = pieces.translate(FEW, sample=True, top_k=1, seed=1, max_length=5)
    searched = pieces.translate(FEW, beam_size=1, max_length=5)
    assert [result.tokens for result in drawn] == [result.tokens for result in searched]


@pytest.mark.parametrize(("name", "tolerance"), [("pieces", 1e-3), ("transformer", 1e-4)])
@pytest.mark.by_default("pieces-0.001")
def test_alignments_belong_to_the_tokens_of_each_line(request, name, tolerance, traced):
    translator = request.getfixturevalue(name)
    results = translator.translate(LINES)
    sources = padded([encoded(translator, line) for line in LINES])
    inputs = padded([[START_ID, *ids_of(translator, each)[:-1]] for each in results])
    _, scores = translator.backbone.score(sources, inputs)
    for line, result, expected in zip(LINES, results, np.asarray(scores), strict=True):
        assert result.source_tokens == translator.preprocessor.source_tokenizer.tokens(line)
        assert result.alignment.shape == (len(result.tokens), len(result.source_tokens))
        if result.tokens:
            np.testing.assert_allclose(result.alignment.sum(axis=1), 1, atol=1e-4)
            # Not uniform, so that the comparison below says something.
            assert np.ptp(result.alignment, axis=1).max() > 10 * tolerance
            steps, pieces = result.alignment.shape
            np.testing.assert_allclose(result.alignment, expected[:steps, :pieces], atol=tolerance)
    without = translator.translate(FEW, return_alignments=False)
    assert all(result.alignment is None for result in without)
    with pytest.raises(ValueError, match="Links need a translation with an alignment"):
        translator.links(without[0])


def test_one_search_is_traced_for_all_shapes(plain, monkeypatch, traced):
    traced = []

    def counted(*arguments, **options):
        traced.append(options["options"])
        return search(*arguments, **options)

    search = Translator.find
    monkeypatch.setattr(Translator, "find", staticmethod(counted))
    fresh = Translator(plain.backbone, plain.preprocessor, plain.search)
    for lines, size in ((LINES, 2), (LINES[:1], 1), (LINES[3:], 5)):
        fresh.translate(lines, batch_size=size, n_best=2)
    fresh.translate(LINES, SearchOptions(max_length=9), beam_size=1, length_penalty=0.5)
    assert [options.beam_size for options in traced] == [3, 1]
    assert traced[1] == SearchOptions(beam_size=1, length_penalty=0.5, max_length=9, batch_size=1)


def test_weights_that_change_are_used(pieces):
    """Training translates the development set with one translator, epoch after epoch."""
    before = pieces.translate(FEW, beam_size=1, max_length=4)
    bias = pieces.backbone.word_logits.bias
    kept = np.array(bias)
    bias.assign(np.where(np.arange(len(kept)) == END_ID, 1e4, 0.0))
    assert [each.tokens for each in pieces.translate(FEW, beam_size=1)] == [[], []]
    bias.assign(kept)
    again = pieces.translate(FEW, beam_size=1, max_length=4)
    assert [each.tokens for each in again] == [each.tokens for each in before] != [[], []]


def test_unknown_words_become_the_source_word_attended_to_the_most(words):
    bias = words.backbone.word_logits.bias
    kept = np.array(bias)
    bias.assign(np.where(np.arange(len(kept)) == UNK_ID, 50.0, kept))  # it writes nothing else
    try:
        results = words.translate(["two dogs run", "the zebra rides"], max_length=5)
        for result in results:
            copied = [result.source_tokens[column] for column in result.alignment.argmax(axis=1)]
            assert result.tokens == copied and len(copied) == 5
            assert result.text == " ".join(copied)
        assert len({token for result in results for token in result.tokens}) > 2
        dictionary = {"two": "zwei", "dogs": "hunde", "run": "laufen"}
        other = Translator(words.backbone, words.preprocessor, dictionary=dictionary)
        looked_up = other.translate("two dogs run", words.search, max_length=5)
        assert looked_up.tokens == [dictionary[token] for token in results[0].tokens]
        for wrong in ({"dogs": ""}, {"dogs": " "}, {"dogs": None}, {1: "hunde"}):
            with pytest.raises(ValueError, match="`dictionary` should hold words.*Received: {"):
                Translator(words.backbone, words.preprocessor, dictionary=wrong)
        silent = words.translate("two dogs run", max_length=5, return_alignments=False)
        assert silent.text == results[0].text and silent.alignment is None
    finally:
        bias.assign(kept)


def test_a_sentence_without_end_is_refused(words):
    long = ["two dogs run", "dogs " * 10_001]
    for call, name in (
        (lambda: words.translate(long), "texts"),
        (lambda: words.score(long, ["a", "b"]), "sources"),
        (lambda: words.score(["a", "b"], long), "targets"),
    ):
        with pytest.raises(ValueError, match=rf"10,000 tokens.*Received: {name}\[1\] with 10,001"):
            call()


def test_models_without_attention_translate_without_alignments(plain):
    results = plain.translate(FEW, n_best=2, max_length=5)
    assert results[0].text and all(result.alignment is None for result in results)
    assert all(result.alignment is None for result in plain.score(FEW, GIVEN))
    with pytest.raises(ValueError, match="coverage penalty needs a network with attention"):
        plain.translate(LINES, coverage_penalty=0.2)
    with pytest.raises(ValueError, match="with attention.*Received: RNNEncDec"):
        plain.draw(LINES[0])


def test_coverage_penalty_needs_no_alignments_to_be_returned(pieces):
    options = {"coverage_penalty": 0.9, "n_best": 3, "max_length": 5}
    kept = pieces.translate(FEW, **options)
    left_out = pieces.translate(FEW, return_alignments=False, **options)
    assert [r.score for r in kept] == pytest.approx([r.score for r in left_out])
    unpenalised = pieces.translate(FEW, n_best=3, max_length=5)
    assert [r.score for r in kept] != pytest.approx([r.score for r in unpenalised])


def test_given_translations_have_the_scores_and_alignments_of_the_model(pieces):
    sources, targets = [SOURCE_LINES[2], *FEW, ""], [TARGET_LINES[2], *GIVEN, ""]
    results = pieces.score(sources, targets, batch_size=2)
    rows = [encoded(pieces, source) for source in sources]
    labels = [[*ids, END_ID] for ids in pieces.preprocessor.target_tokenizer.encode(targets)]
    inputs = padded([[START_ID, *ids[:-1]] for ids in labels])
    logits, scores = map(np.asarray, pieces.backbone.score(padded(rows), inputs))
    total, count = 0.0, 0
    for place, (target, result) in enumerate(zip(targets, results, strict=True)):
        steps = zip(logits[place], labels[place], strict=False)
        expected = sum(log_softmax(row)[label] for row, label in steps)
        assert result.text == target
        assert result.log_probability == pytest.approx(expected, rel=1e-3, abs=1e-5)
        written, read = len(labels[place]) - 1, len(rows[place])
        assert result.alignment.shape == (written, read)
        np.testing.assert_allclose(result.alignment, scores[place, :written, :read], atol=1e-3)
        total, count = total + expected, count + len(labels[place])
    assert pieces.perplexity(sources, targets) == pytest.approx(np.exp(-total / count), rel=1e-3)


def test_evaluation_measures_what_translate_gives(pieces):
    options = {"beam_size": 2, "max_length": 5}
    report = pieces.evaluate_text(FEW, GIVEN, **options)
    texts = [each.text for each in pieces.translate(FEW, **options)]
    score = bleu(texts, GIVEN)
    assert (report["bleu"], report["signature"]) == (score.value, score.signature)
    assert report["beam_size"] == 2 and report["sentences"] == len(FEW)
    assert report["perplexity"] == pieces.perplexity(FEW, GIVEN)
    same = pieces.evaluate_text(FEW, texts, **options)
    assert same["exact_match"] == 100
    assert sum(bucket["sentences"] for bucket in same["bleu_by_source_words"]) == len(texts)


def test_sacrebleus_advice_does_not_reach_standard_error(caplog):
    """sacrebleu takes lines that end in a spaced full stop for text that is still in tokens."""
    lines = [f"{line} ." for line in SOURCE_LINES] * 30
    assert bleu(lines, lines).value == pytest.approx(100)
    assert not caplog.records


def test_links_join_whole_words(pieces):
    result = pieces.score(["a man rides"], ["ein mann reitet"])[0]
    source, target = (
        np.cumsum([token.startswith("\u2581") for token in tokens]) - 1
        for tokens in (result.source_tokens, result.tokens)
    )
    weights = np.zeros((3, 3))
    for i, row in zip(target, result.alignment, strict=True):
        for j, weight in zip(source, row, strict=True):
            weights[i, j] += weight
    assert pieces.links(result) == [(int(row.argmax()), i) for i, row in enumerate(weights)]


def test_a_translation_shows_itself(pieces, tmp_path):
    result = pieces.draw(FEW[0], tmp_path / "x.png")
    assert result.text == pieces.translate(FEW[0]).text
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert result._repr_png_().startswith(b"\x89PNG")
    assert "data:image/png;base64," in result._repr_html_() and result.text in result._repr_html_()
    assert all(token.strip("\u2581") in result.show() for token in result.tokens)
    given = pieces.draw(FEW[0], target=GIVEN[0])
    assert given.text == GIVEN[0]
    with pytest.raises(ValueError, match="nothing to draw"):
        pieces.draw(" ")


def test_the_layer_and_head_that_is_shown_can_change(transformer):
    def alignment(*chosen):
        transformer.show_attention(*chosen)
        return transformer.translate(FEW[0], beam_size=1, max_length=3).alignment

    last, first, default = alignment(1), alignment(0, 1), alignment()
    np.testing.assert_allclose(last, default, atol=1e-5)
    assert np.abs(first - last).max() > 1e-3


def test_weights_in_half_precision_search_close_to_full_precision(transformer, tmp_path):
    transformer.save_to_preset(tmp_path / "full")
    half = Translator.from_preset(tmp_path / "full", dtype="bfloat16")
    assert {v.dtype for v in half.backbone.trainable_variables} == {"bfloat16"}
    for one, other in zip(half.backbone.weights, transformer.backbone.weights, strict=True):
        np.testing.assert_allclose(
            np.array(keras.ops.cast(one, "float32")), np.array(other), rtol=2**-8
        )
    texts = [each.text for each in half.translate(FEW, beam_size=1, max_length=3)]
    found, exact = (each.score(FEW, texts) for each in (half, transformer))
    for one, other in zip(found, exact, strict=True):
        assert abs(one.log_probability - other.log_probability) < 0.05 * (len(one.tokens) + 1)


def test_a_network_that_has_diverged_gives_figures_that_say_so():
    task = make_translator()
    bias = task.backbone.word_logits.bias
    bias.assign(1e4 * np.eye(bias.shape[0])[UNK_ID])
    assert task.perplexity(FEW[:1], GIVEN[:1]) == np.inf
    bias.assign(np.full(bias.shape, np.nan))
    for beam_size in (1, 3):
        with pytest.warns(RuntimeWarning, match="are not numbers .NaN.*diverged") as said:
            results = task.translate(FEW * 3, beam_size=beam_size, batch_size=2)
        assert len(said) == 1  # for all batches
        for each in results:
            assert (each.text, each.score) == ("", -np.inf)


def test_two_sentences_of_bytes_are_no_pair(pieces):
    read = pieces.preprocessor
    lines = [line.encode() for line in SOURCE_LINES[:2]]
    np.testing.assert_array_equal(read(lines)["source"], read(SOURCE_LINES[:2])["source"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.translate([4, 5]), r"`texts` should hold strings.*Received: texts\[0\]=4"),
        (lambda t: t.translate(["a", None]), r"Received: texts\[1\]=None"),
        (lambda t: t.translate(["a", float("nan")]), r"Received: texts\[1\]=nan"),
        (lambda t: t.translate(7), "`texts` should be a sequence of strings.*Received: texts=7"),
        (lambda t: t.translate(["a"], n_best=4), "Received: n_best=4, beam_size=3"),
        (lambda t: t.translate(["a"], min_length=5, max_length=4), "`min_length` should be at mo"),
        (lambda t: t.score(["a", "b"], ["c"]), "equally many.*Received: 2 in sources, 1 in targe"),
        (lambda t: t.score("a", "b"), "`sources` should be a sequence.*Received: sources='a'"),
        (lambda t: t.evaluate_text([], []), "at least one.*Received"),
        (lambda t: t.evaluate_text(["a"], [None]), r"Received: targets\[0\]=None"),
        (lambda t: t.perplexity([], []), "at least one.*Received"),
        (lambda t: t.backbone({"source": ["a"], "target": ["b"]}), "[Ii]nteger|ids"),
        (lambda t: t.show_attention(0, 0), "RNNSearch has no attention layers and heads"),
        (lambda t: t.draw(["a"]), r"hold strings.*Received: texts\[0\]=\['a'\]"),
        (lambda t: t.preprocessor(["a", "b"], y=["c"]), "Received: 2 in sources, 1 in targets"),
    ],
)
def test_what_cannot_be_translated_is_refused(pieces, call, message):
    with pytest.raises(ValueError, match=message):
        call(pieces)
