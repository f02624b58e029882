"""What tasks say of an answer: the maps are those of the network; files, pictures, pages."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest

from keras_attention import LuongAttention
from keras_attention.applications import classification, summarization, translation
from keras_attention.applications.show import explanation
from keras_attention.applications.show.explanation import (
    ExplainedAnswer,
    Explanation,
    Tokens,
    attention_map,
    page,
)
from keras_attention.applications.text import UNK_ID
from tests.applications.commands import call_command
from tests.contracts.tasks import DOCUMENTS, LABELS, TEXTS, translator

# Searches run once here: tracing each costs more.
pytestmark = pytest.mark.usefixtures("module_traced_nowhere")


@pytest.fixture(scope="module")
def dates():
    return translation.Translator.from_preset("dates")


@pytest.fixture(scope="module")
def transformer():
    sizes = {"embedding_size": 6, "layers": 2, "heads": 3, "feed_forward_size": 7}
    preprocessor = translation.TranslationPreprocessor.adapt(TEXTS, TEXTS, kind="words")
    counts = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    return translation.Translator(
        translation.Transformer(*counts, **sizes),
        preprocessor,
        search={"beam_size": 3, "n_best": 3, "max_length": 4, "min_length": 3},
    )


def shape(found):
    return np.array(found.weights).shape


def test_maps_of_a_transformer_are_those_of_each_layer_and_head(transformer):
    for options in ({"text": [TEXTS[1]]}, {"text": TEXTS[1], "target": [TEXTS[1]]}):
        with pytest.raises(ValueError, match=r"Translator explains a single .*: \["):
            transformer.explain(**options)
    with pytest.raises(
        ValueError, match="`beam_size` must be a positive integer. Received: beam_size=0"
    ):
        transformer.explain(TEXTS[1], beam_size=0)
    found = transformer.explain(TEXTS[1])
    best = found.answers[0]
    maps = {each.name: each for each in best.maps}
    cross, own, before = (maps[name] for name in translation.networks.transformer.ATTENTIONS)
    source, target = TEXTS[1].split(), best.maps[0].rows.tokens
    assert cross.columns.tokens == own.rows.tokens == own.columns.tokens == source
    assert before.rows.tokens == target and before.columns.tokens == ["<start>", *target[:-1]]
    for each in maps.values():
        assert shape(each)[:2] == (2, 3)
        np.testing.assert_allclose(np.array(each.weights).sum(axis=-1), 1, atol=1e-3)
    assert not np.triu(np.array(before.weights), k=1).any()
    for layer, head in ((0, 2), (1, 0)):
        transformer.show_attention(layer, head)
        alignment = transformer.translate(TEXTS[1], n_best=1).alignment
        np.testing.assert_allclose(cross.matrix(layer)[head], alignment, atol=1e-4)
    transformer.show_attention()


def test_all_beams_come_with_their_own_maps(transformer):
    found = transformer.explain(TEXTS[2], beam_size=2)
    results = transformer.translate(TEXTS[2], beam_size=2, n_best=2).ranked
    assert [each.text for each in found.answers] == [each.text for each in results]
    assert found.answers[0].score > found.answers[1].score
    for answer, result in zip(found.answers, results, strict=True):
        weights = answer.maps[0].matrix().mean(axis=0)
        np.testing.assert_allclose(weights, result.alignment, atol=1e-4)


def test_a_given_translation_is_explained(dates):
    found = dates.explain("4 juin 1999", target="1999-06-05")
    assert found.text == "1999-06-05" and found.inputs["target"] == "1999-06-05"
    alignment = dates.score(["4 juin 1999"], ["1999-06-05"])[0].alignment
    np.testing.assert_allclose(found.answers[0].maps[0].matrix()[0], alignment, atol=1e-4)


def test_whole_words_take_the_weights_of_their_pieces(dates):
    # Digits and punctuation stay by themselves, as in a picture: a date is not one word.
    result = dates.translate("den 3. Mai 1984")
    (found,) = dates.explain("den 3. Mai 1984", beam_size=1).answers[0].maps
    assert found.columns.groups == ["den", "3", ".", "Mai", *"1984"]
    assert found.rows.groups == list(result.text) and found.grouped
    assert {found.columns.unit, found.rows.unit} == {"words"}
    figure = result.plot()
    labels = [each.get_text() for each in figure.axes[0].get_xticklabels()]
    assert labels == found.columns.groups  # no dot before what continues a word
    weights, expected = found.matrix(groups=True)[0], np.zeros((10, 8))
    for row, piece in np.ndindex(result.alignment.shape):
        group = found.rows.group_of[row]
        mean = result.alignment[row, piece] / found.rows.group_of.count(group)
        expected[group, found.columns.group_of[piece]] += mean
    np.testing.assert_allclose(weights, expected, atol=1e-3)


def test_a_picture_shows_words_unless_a_text_is_one_word(transformer):
    def sides(explanation, **options):
        axes = explanation.plot(**options).axes[0]
        return len(axes.get_xticks()), len(axes.get_yticks())

    parts = Tokens(["a", "·b", "c"], ["ab", "c"], [0, 0, 1], "words")
    one = Tokens(["d", "·e"], ["de"], [0, 0], "words")
    own = attention_map("cross-attention", one, parts, np.full((1, 1, 2, 3), 1 / 3))
    assert not own.grouped
    answer = ExplainedAnswer("de", maps=[own])
    assert sides(Explanation("translation", {"text": "ab c"}, "de", [answer])) == (3, 2)
    weights = np.full((1, 1, 3, 3), 1 / 3)
    for unit, count in (("words", 2), ("sentences", 3)):
        side = dataclasses.replace(parts, unit=unit)
        answer = ExplainedAnswer(
            "ab c", maps=[attention_map("self-attention", side, side, weights)]
        )
        found = Explanation("translation", {"text": "ab c"}, "ab c", [answer])
        assert sides(found) == (count, count)
        assert sides(found, groups=False) == (3, 3) and sides(found, groups=True) == (2, 2)
    axes = found.plot().axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("attended to", "attending")


def test_the_alignment_of_the_network_is_shown_first(transformer):
    transformer.show_attention(0, 2)
    found = transformer.explain(TEXTS[1]).answers[0].maps
    transformer.show_attention()
    assert [(each.layer, each.head) for each in found] == [(0, 2), (-1, None), (-1, None)]
    answer = ExplainedAnswer("x", maps=found)
    explanation = Explanation("translation", {"text": TEXTS[1]}, "x", [answer])
    for options, weights in (
        ({}, found[0].matrix(0)[2]),
        ({"layer": 1}, found[0].matrix(1).mean(axis=0)),
        ({"head": 1}, found[0].matrix(0)[1]),
        ({"attention": 1}, found[1].matrix(-1).mean(axis=0)),
    ):
        drawn = explanation.plot(**options).axes[0].images[0].get_array()
        np.testing.assert_allclose(drawn, weights, atol=1e-6)


def test_what_replaced_unknown_words_does_not_change_the_maps():
    task = translator(translation.Transformer)
    task.preprocessor.replace_unknown = True
    bias = task.backbone.word_logits.bias
    bias.assign(np.eye(bias.shape[0])[UNK_ID] * 100)
    result = task.translate("a dog zebra", beam_size=1, max_length=3)
    assert set(result.ids) == {UNK_ID}
    assert set(result.tokens) <= {"a", "dog", "zebra"}
    found = task.explain("a dog zebra", beam_size=1).answers[0].maps[0]
    np.testing.assert_allclose(
        found.matrix().mean(axis=0)[: len(result.tokens)], result.alignment, atol=1e-4
    )


def test_without_attention_there_are_answers_and_no_picture():
    task = translator(translation.RNNEncDec)
    task.search = task.search.replace(min_length=2)
    found = task.explain(TEXTS[0], beam_size=2)
    assert len(found.answers) == 2 and not found.answers[0].maps
    with pytest.raises(ValueError, match="nothing to draw.*Received"):
        found.plot()
    (nothing,) = task.explain(" ").answers
    assert (nothing.text, nothing.maps) == ("", [])


def test_half_a_surrogate_pair_is_no_part_of_a_document():
    task = summarization.Summarizer.from_texts(DOCUMENTS, TEXTS, units=6, embedding_size=3)
    for act, document in (
        (task.explain, "a \ud83d b"),
        (task.explain, ["a", "\ud83d b"]),
        (task.summarize, ["a \ud83d b"]),
    ):
        with pytest.raises(ValueError, match=r"documents\[0\] must be Unicode text. Received: "):
            act(document)


def test_summaries_say_what_they_read_and_copied():
    task = summarization.Summarizer.from_texts(DOCUMENTS, TEXTS, units=6, embedding_size=3)
    options = {"beam_size": 2, "n_best": 2}
    task.search = task.search.replace(min_length=3, max_length=4)
    result = task.summarize(DOCUMENTS[1], **options)
    with pytest.raises(
        ValueError, match="`beam_size` must be a positive integer. Received: beam_size=0"
    ):
        task.explain(DOCUMENTS[1], beam_size=0)
    found = task.explain(DOCUMENTS[1], beam_size=2)
    assert [each.text for each in found.answers] == [each.text for each in result.ranked]
    words, copied, unknown = found.answers[0].maps
    np.testing.assert_allclose(words.matrix()[0], result.attention, atol=1e-4)
    np.testing.assert_allclose(words.matrix(groups=True)[0], result.sentence_weights, atol=1e-3)
    assert words.columns.unit == "sentences" and len(words.columns.groups) == len(result.source)
    np.testing.assert_allclose(copied.matrix()[0, 0], 1 - result.p_gen, atol=1e-4)
    np.testing.assert_array_equal(unknown.matrix()[0, 0], result.copied)
    sentences = [" ".join(sentence) for sentence in result.source]
    in_sentences = task.explain(sentences, beam_size=1)
    assert in_sentences.inputs == {"text": "\n".join(sentences)}


def test_classifiers_shade_words_and_weigh_sentences():
    task = classification.TextClassifier.from_texts(
        DOCUMENTS, LABELS, architecture="han", encoder="none", units=5
    )
    result, found = task.classify(DOCUMENTS[1]), task.explain(DOCUMENTS[1])
    assert found.answers[0].text == result.label
    assert [each.score for each in found.answers] == sorted(result.probabilities.values())[::-1]
    (words,) = found.answers[0].maps
    assert not found.answers[1].maps  # those of the first
    sentences = result.weights[0].sentences
    assert len(words.columns.groups) == len(sentences) > 1
    np.testing.assert_allclose(words.matrix(groups=True)[0, 0], sentences, atol=1e-3)
    with pytest.raises(ValueError, match="takes text, a string. Received: text and second"):
        task.explain("a dog", "a bird")
    with pytest.raises(ValueError, match=r"TextClassifier explains a single text.*: \['a dog'\]"):
        task.explain(["a dog"])


@pytest.mark.parametrize("architecture", ["self-attention", "transformer"])
def test_classifiers_show_the_self_attention_of_their_words(architecture):
    task = classification.TextClassifier.from_texts(
        DOCUMENTS, LABELS, architecture=architecture, units=6, layers=2, heads=3, max_length=5
    )
    words, found = task.explain(DOCUMENTS[1]).answers[0].maps
    assert found.name == "self-attention" and shape(found) == (2, 3, 5, 5)
    assert found.rows.tokens == found.columns.tokens == words.columns.tokens
    np.testing.assert_allclose(np.array(found.weights).sum(axis=-1), 1, atol=1e-3)
    encoder = task.backbone.encoder
    vectors, _ = encoder.vectors(np.array([task.preprocessor.ids([DOCUMENTS[1]])[0][:5]]))
    block = encoder.context.blocks[0]
    layer = block.attention if hasattr(block, "attention") else block.self_attention
    _, expected = layer(vectors, vectors, return_attention_scores=True)
    np.testing.assert_allclose(found.matrix(0), expected[0], atol=1e-4)
    assert not task.explain(" ").answers[0].maps


def test_both_texts_of_a_pair_show_their_self_attention():
    pairs = [(text, " ".join(text.split()[:3])) for text in DOCUMENTS]
    text = classification.PairClassifier.from_texts(pairs, LABELS, units=4).preprocessor
    own, none = (classification.Contextual(kind, heads=2) for kind in ("self-attention", "none"))
    match, compare = keras.layers.Dense(4), keras.layers.Dense(4)
    vectors = classification.WordVectors(text.tokenizer.vocabulary_size, 4)
    pool = classification.Pool("attention", 4)
    encoder = classification.CrossEncoder(
        vectors, own, LuongAttention("dot"), match, none, pool, compare
    )
    network = classification.Classifier(encoder, text.labels.outputs)
    task = classification.PairClassifier(network, text)
    found = {each.name: each for each in task.explain(*pairs[0]).answers[0].maps}
    assert set(found) == {"text", "second", "text self-attention", "second self-attention"}
    assert shape(found["second self-attention"]) == (1, 2, 3, 3)


PLAIN = Explanation(
    "translation",
    {"text": "</script><b>"},
    "x",
    [
        ExplainedAnswer(
            "x", -1.5, [attention_map("cross-attention", ["a", "b"], ["c"], [[1], [0.5]])]
        )
    ],
)


def test_a_page_holds_its_data_and_nothing_ends_its_script():
    held = re.search(r'<script id="data" type="application/json">(.*?)</script>', page([PLAIN]))[1]
    assert json.loads(held) == [json.loads(PLAIN.to_json())]
    assert json.loads(held)[0]["inputs"]["text"] == "</script><b>"
    assert 'type="application/json">null<' in page()


def test_the_page_loads_nothing_from_elsewhere():
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|url\(|@import|https?:""", page())


def test_a_page_is_a_new_html_file(tmp_path):
    PLAIN.save(tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page([PLAIN])
    with pytest.raises(ValueError, match="already exists"):
        PLAIN.save(tmp_path / "a.html")
    with pytest.raises(ValueError, match="a page is a file .html.*Received"):
        PLAIN.save(tmp_path / "a.png")
    assert "srcdoc=" in PLAIN._repr_html_() and "&lt;b>" not in PLAIN._repr_html_()


def test_scores_that_are_no_numbers_are_refused():
    broken = dataclasses.replace(PLAIN, answers=[ExplainedAnswer("x", float("nan"))])
    with pytest.raises(ValueError, match=r"no finite numbers.*Received: \[nan\]"):
        broken.to_json()


def test_pictures_of_heads_layers_and_words(transformer, tmp_path):
    found = transformer.explain(TEXTS[1], beam_size=1)
    sheet = found.plot(tmp_path / "a.png", head="all", attention="encoder self-attention")
    panels = [each for each in sheet.axes if each.images]
    assert [each.get_xlabel() for each in panels] == ["head 0", "head 1", "head 2"]
    shown = np.array(panels[1].images[0].get_array())
    np.testing.assert_array_equal(shown, found.answers[0].maps[1].matrix()[1])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    one = found.plot(layer=0, head=2).axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.array(one), found.answers[0].maps[0].matrix(0)[2])
    for wrong, message in (
        ({"layer": 2}, "layer must be one of"),
        ({"head": 3}, "head must be one of"),
        ({"attention": "x"}, "attention must be one of"),
        ({"answer": 1}, "answer must be one of"),
        ({"path": tmp_path / "a.png"}, "already exists"),
    ):
        with pytest.raises(ValueError, match=message):
            found.plot(**wrong)


def test_a_map_of_one_row_is_shaded(dates):
    found = dates.explain("4 juin 1999", target="1").plot(groups=True)
    assert not any(axes.images for axes in found.axes)
    assert {"4", "juin", "1", "9"} <= {text.get_text() for text in found.texts}


def test_too_many_weights_become_means(monkeypatch):
    weights = np.random.default_rng(7).random((3, 2, 5, 7))
    sides = Tokens(list("abcde")), Tokens(list("abcdefg"))
    monkeypatch.setattr(explanation, "MOST_WEIGHTS", 3 * 35)
    found = attention_map("x", *sides, weights)
    assert found.name == "x, mean of the heads" and shape(found) == (3, 1, 5, 7)
    np.testing.assert_allclose(found.matrix(1)[0], weights[1].mean(axis=0), atol=1e-4)
    monkeypatch.setattr(explanation, "MOST_WEIGHTS", 2 * 35)
    assert attention_map("x", *sides, weights).name == "x, mean of the heads, last layer"
    with pytest.raises(ValueError, match=r"\(5, 7\).*Received: shape \(3, 2, 5, 6\)"):
        attention_map("x", *sides, weights[..., :6])


def test_a_map_of_means_is_drawn_by_its_kind_and_has_no_single_heads(monkeypatch):
    weights = np.random.default_rng(7).random((3, 2, 5, 7))
    sides = Tokens(list("abcde")), Tokens(list("abcdefg"))
    monkeypatch.setattr(explanation, "MOST_WEIGHTS", 2 * 35)
    means = attention_map("self-attention", *sides, weights)
    found = Explanation("x", {"text": "a"}, "b", [ExplainedAnswer("b", maps=[means])])
    drawn = [found.plot(attention=each) for each in ("self-attention", means.name)]
    assert [figure.axes[0].images[0].get_array().shape for figure in drawn] == [(5, 7)] * 2
    # The mean is no head, and the last layer no other one.
    for wrong in ({"head": "all"}, {"head": 0}, {"layer": 0}):
        with pytest.raises(ValueError, match="A map with more than 70 weights has no single"):
            found.plot(**wrong)


def test_the_command_writes_a_page(tmp_path, capsys):
    output = tmp_path / "dates.html"
    given = ["visualize", "dates", "--input", "4 juin 1999"]
    done = call_command(capsys, *given, "--output", output)
    assert done.status == 0 and f"wrote {output}" in done.err and done.out == "1999-06-04\n"
    assert '"text": "1999-06-04"' in output.read_text(encoding="utf-8")
    for more, message in (
        (("--output", output), "already exists"),
        (("--output", tmp_path / "dates.doc"), "the suffix of"),
        (
            ("--output", tmp_path / "new.html", "--attention-head", "1"),
            "--attention-head goes with a picture",
        ),
    ):
        done = call_command(capsys, *given, *more)
        assert done.status == 2 and message in done.err and done.err.count("\n") == 1


@pytest.mark.slow
def test_the_command_draws_sheets_and_self_attention(transformer, tmp_path, capsys, monkeypatch):
    drawn, plot = [], Explanation.plot
    monkeypatch.setattr(
        Explanation, "plot", lambda *given, **options: drawn.append(plot(*given, **options))
    )
    transformer.save_to_preset(tmp_path / "run")
    given = ["visualize", tmp_path / "run", "--input", TEXTS[1]]
    encoder = ["--attention", "encoder self-attention", "--attention-layer", "0"]
    for number, (more, panels) in enumerate(((["--attention-head", "all"], 3), (encoder, 1))):
        output = tmp_path / f"{number}.png"
        done = call_command(capsys, *given, *more, "--output", output)
        assert done.status == 0 and output.read_bytes().startswith(b"\x89PNG")
        assert len([each for each in drawn[-1].axes if each.images]) == panels
    own = transformer.explain(TEXTS[1]).answers[0].maps[1]
    shown = np.array(drawn[-1].axes[0].images[0].get_array())
    np.testing.assert_allclose(shown, own.matrix(0).mean(axis=0), atol=1e-3)
    for wrong, message in (
        (encoder, "name it with --output"),
        (["--attention-head", "most"], "whole number"),
    ):
        done = call_command(capsys, *given, *wrong)
        assert done.status == 2 and message in done.err and done.err.count("\n") == 1


@pytest.mark.slow
def test_the_command_draws_the_self_attention_of_a_classifier(tmp_path, capsys, monkeypatch):
    for architecture in ("self-attention", "pooling"):
        task = classification.TextClassifier.from_texts(
            DOCUMENTS, LABELS, architecture=architecture, units=4
        )
        task.save_to_preset(tmp_path / architecture)
    given = ["--input", DOCUMENTS[1], "--attention-head", "all", "--output"]
    picture = tmp_path / "a.png"
    done = call_command(capsys, "visualize", tmp_path / "self-attention", *given, picture)
    assert done.status == 0 and f"wrote {picture}" in done.err
    picture = tmp_path / "b.png"
    done = call_command(capsys, "visualize", tmp_path / "pooling", *given, picture)
    assert done.status == 2 and "no self-attention to draw" in done.err
    monkeypatch.setattr(explanation, "MOST_WEIGHTS", 1)  # as of 354 words and more
    given[2:] = ["--attention", "self-attention", "--output"]
    done = call_command(capsys, "visualize", tmp_path / "self-attention", *given, picture)
    assert done.status == 0 and f"wrote {picture}" in done.err
