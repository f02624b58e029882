"""Texts that are longer than is read, in every task: refused, cut or skipped, by file and line."""

import io
import json

import numpy as np
import pytest

from keras_attention.applications.answer_selection import AnswerRanker
from keras_attention.applications.base import verbs
from keras_attention.applications.classification import PairClassifier, TextClassifier
from keras_attention.applications.data.lengths import TooLong
from keras_attention.applications.errors import UserError
from keras_attention.applications.store.bad_lines import BadLine
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation import preprocessor as translation_preprocessor
from keras_attention.applications.translation import task as translator
from tests.applications.commands import call_command
from tests.applications.summarization_runs import small_summarizer

pytestmark = pytest.mark.usefixtures("module_traced_nowhere")
MOST = 11
SHORT, LONG = "4 juin 1999", "4 juin 1999 " * 7
SEARCH = ["--beam", "1", "--max-length", "12"]


@pytest.fixture(autouse=True)
def short_limit(monkeypatch):
    """A translator reads 23 tokens of a sentence, where else 10,000."""
    monkeypatch.setattr(translation_preprocessor, "MOST_TOKENS", 23)


@pytest.fixture(scope="module")
def tasks():
    labels = ["x", "y"] * 3
    texts, pairs = ["a b", "b c"] * 3, [("a b", "c"), ("b", "c a")] * 3
    questions = [("who is it ?", ["it is a dog .", "the sky"], [1, 0])] * 3
    small = {"units": 4, "embedding_size": 4}
    return {
        "translation": Translator.from_preset("dates"),
        "texts": TextClassifier.from_texts(texts, labels, max_length=MOST, **small),
        "pairs": PairClassifier.from_texts(pairs, labels, max_length=MOST, **small),
        "summarization": small_summarizer(),
        "answer-selection": AnswerRanker.from_questions(questions, max_length=MOST, **small),
    }


@pytest.fixture(scope="module")
def presets(tasks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    for name, task in tasks.items():
        task.save_to_preset(folder / name)
    return folder


WORDS = "a b c d e f g h i j k l m n o p q r s t"
CALLS = {
    "translation": (lambda task, texts, **o: task.translate(texts, **o), SHORT, LONG),
    "texts": (lambda task, texts, **o: task.classify(texts, **o), "a b", WORDS),
    "pairs": (lambda task, texts, **o: task.classify(texts, **o), ("a", "b"), ("a", WORDS)),
    "summarization": (lambda task, texts, **o: task.summarize(texts, **o), "a b .", WORDS),
    "answer-selection": (
        lambda task, texts, **o: task.rank(texts, [["a b", "c"]] * len(texts), **o),
        "who ?",
        WORDS,
    ),
}


def said(result):
    if hasattr(result, "answers"):
        return [each.text for each in result]
    return getattr(result, "text", None) or result.label


@pytest.mark.parametrize("name", CALLS)
def test_in_python_long_texts_are_refused_cut_or_skipped(tasks, name):
    call, short, long = CALLS[name]
    task, texts = tasks[name], [short, long, short, long]
    with pytest.raises(TooLong, match=r"on_too_long='truncate' or 'skip'\. Received: .*\[1\]"):
        call(task, texts, on_too_long="error")
    with pytest.raises(ValueError, match=r"`on_too_long` must be one of .* Did you mean 'skip'"):
        call(task, texts, on_too_long="skp")
    cut, skipped = (call(task, texts, on_too_long=way) for way in ("truncate", "skip"))
    assert [each is None for each in cut] == [False] * 4
    assert [each is None for each in skipped] == [False, True, False, True]
    assert said(skipped[0]) == said(cut[0]) == said(call(task, [short])[0])
    if name != "answer-selection":
        assert [each.truncated for each in cut] == [False, True] * 2
    assert call(task, [], on_too_long="skip") == []


def test_a_sentence_is_translated_by_its_first_tokens(tasks):
    task = tasks["translation"]
    long = task.translate(LONG, on_too_long="truncate")
    read = task.preprocessor.source_tokenizer
    assert long.source_tokens == read.tokens(LONG)[:23]
    assert long.alignment.shape == (len(long.tokens), 23)
    (scored,) = task.score([LONG], [LONG], on_too_long="truncate")
    assert len(scored.tokens) <= 23 and scored.alignment.shape[1] == 23
    # The other limits hold for each side.
    assert task.score([SHORT, SHORT], ["1", "1-" * 40], on_too_long="skip")[1] is None


def test_long_candidates_are_left_out_of_a_ranking(tasks):
    task = tasks["answer-selection"]
    ranking = task.rank("who ?", ["b", WORDS, "a"], on_too_long="skip")
    assert sorted((each.text, each.position) for each in ranking) == [("a", 2), ("b", 0)]
    assert task.rank("who ?", [WORDS], on_too_long="skip") is None


def test_figures_say_how_many_were_cut_or_left_out(tasks):
    sources, targets = [SHORT, LONG, SHORT], ["1999-06-04", "x", "1999-06-04"]
    evaluate = tasks["translation"].evaluate_text
    with pytest.raises(TooLong):
        evaluate(sources, targets)
    report = evaluate(sources, targets, beam_size=1, on_too_long="skip")
    assert (report["sentences"], report["left_out"], report["exact_match"]) == (2, 1, 100)
    assert report["perplexity"] == pytest.approx(
        tasks["translation"].perplexity([SHORT], targets[:1]), rel=1e-4
    )
    report = evaluate(sources, targets, beam_size=1, max_length=12, on_too_long="truncate")
    assert (report["sentences"], report["truncated"]) == (3, 1)
    evaluate = tasks["texts"].evaluate_text
    assert evaluate(["a", WORDS, "b"], ["x", "y", "y"])["truncated"] == 1
    report = evaluate(["a", WORDS, "b"], ["x", "y", "y"], on_too_long="skip")
    assert (report["examples"], report["left_out"]["too long"]) == (2, 1)
    with pytest.raises(UserError, match=r"x\[1\]: 20 tokens, more than max_length 11"):
        evaluate(["a", WORDS, "b"], ["x", "y", "y"], on_too_long="error")
    evaluate = tasks["summarization"].evaluate_text
    report = evaluate(["a .", WORDS], ["a", "b"], on_too_long="skip")
    assert (report["documents"], report["left_out"]) == (1, 1)
    assert evaluate(["a .", WORDS], ["a", "b"])["truncated"] == 1
    questions = [("who ?", ["a", WORDS, "b"], [1, 0, 0])] * 2
    report = tasks["answer-selection"].evaluate_text(questions, on_too_long="skip")
    assert (report["candidates"], report["too_long_left_out"]) == (4, 2)


INPUTS = {
    "translation": (SHORT, LONG, "23 tokens", SEARCH),
    "texts": ("a b", WORDS, "11 tokens (max_length)", []),
    "pairs": ("a\tb", f"a\t{WORDS}", "11 tokens (max_length)", []),
    "summarization": ("a b .", WORDS, "14 words (max_words)", ["--beam-size", "1"]),
}


@pytest.mark.parametrize("name", INPUTS)
def test_predict_keeps_what_is_done_and_names_the_lines(presets, capsys, tmp_path, name):
    short, long, limit, options = INPUTS[name]
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    empty = "\t" if name == "pairs" else ""
    source.write_text("\n".join([short, short, long, short, empty, long]) + "\n")
    predict = ["predict", presets / name, "--input", source, *options, "--on-too-long"]
    done = call_command(capsys, *predict, "error", "--output", output)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    for place in ("line 3: ", "line 6: "):
        assert f"{source}, {place}" in done.err
    assert f"more than {limit}" in done.err and "--on-too-long truncate or skip" in done.err
    assert done.err.endswith(f"The results before that (2 lines) are in {output}.\n")
    before = output.read_text().splitlines()
    skipped = call_command(capsys, *predict, "skip")
    assert skipped.status == 0
    lines = skipped.out.split("\n")[:-1]
    assert len(lines) == 6 and lines[3] == lines[0]
    assert [line[:12] for line in lines[:2]] == [line[:12] for line in before]  # but for rounding
    if name in ("texts", "pairs"):
        reason = {"labels": None, "skipped": "longer than data.max_length 11"}
        assert json.loads(lines[2]) == json.loads(lines[5]) == reason
    else:
        assert lines[2] == lines[5] == ""
    assert f"2 of 6 texts were longer than {'' if limit[:2] == '23' else 'data.'}" in skipped.err
    assert f"were skipped (the first: {source}, line 3)." in skipped.err
    cut = call_command(capsys, *predict, "truncate")
    assert cut.status == 0 and len(cut.out.splitlines()) == 6
    assert f"were cut (the first: {source}, line 3)." in cut.err


def test_json_lines_and_tables_are_named_by_their_lines(presets, capsys, tmp_path):
    documents, table = tmp_path / "in.jsonl", tmp_path / "in.csv"
    documents.write_text("".join(json.dumps({"source": x}) + "\n" for x in ("a b .", WORDS)))
    options = ["--input", documents, "--json", "--beam-size", "1", "--on-too-long"]
    done = call_command(capsys, "predict", presets / "summarization", *options, "skip")
    skipped = json.loads(done.out.splitlines()[1])
    assert (skipped["summary"], skipped["score"]) == (None, None)
    assert skipped["skipped"].startswith("longer than data.max_words 14")
    table.write_text(f'text,label\n"a\nb",x\n{WORDS},y\n')
    options = ["--input", table, "--on-too-long", "error"]
    done = call_command(capsys, "predict", presets / "texts", *options)
    assert f"{table}, line 4: 20 tokens" in done.err and len(done.out.splitlines()) == 1
    done = call_command(capsys, "evaluate", presets / "texts", *options)
    assert f"{table}, line 4: 20 tokens" in done.err and done.status == 2
    done = call_command(capsys, "evaluate", presets / "texts", *options[:-1], "skip", "--json")
    assert json.loads(done.out)["left_out"]["too long"] == 1


def test_score_and_evaluate_of_translations(presets, capsys, tmp_path):
    pairs = tmp_path / "in.tsv"
    pairs.write_text(f"{SHORT}\t1999-06-04\n{LONG}\tx\n{SHORT}\t1999-06-04\n")
    score = ["score", presets / "translation", "--input", pairs]
    done = call_command(capsys, *score)
    assert done.status == 2 and f"{pairs}, line 2: " in done.err and done.out.count("\n") == 1
    done = call_command(capsys, *score, "--on-too-long", "skip")
    lines = done.out.split("\n")
    assert done.status == 0 and lines[1] == "" and lines[0] == lines[2] != ""
    evaluate = ["evaluate", presets / "translation", "--input", pairs, *SEARCH]
    done = call_command(capsys, *evaluate)
    assert done.status == 2 and f"{pairs}, line 2: " in done.err
    done = call_command(capsys, *evaluate, "--on-too-long", "skip")
    assert "2 sentence pairs" in done.out and "1 left out as too long" in done.out


def test_candidates_are_named_by_their_lines(presets, capsys, tmp_path):
    candidates = tmp_path / "in.txt"
    candidates.write_text(f"a\n{WORDS}\nb\n")
    predict = ["predict", presets / "answer-selection", "--question", "who ?"]
    predict += ["--candidates", candidates, "--on-too-long"]
    done = call_command(capsys, *predict, "error")
    assert done.status == 2 and f"{candidates}, line 2: 20 words" in done.err
    done = call_command(capsys, *predict, "skip")
    assert {line.split("\t")[2] for line in done.out.splitlines()} == {"a", "b"}
    assert "1 of 3 candidates were longer than data.max_length 11" in done.err


def test_what_is_typed_before_a_bad_line_is_answered(presets, monkeypatch, capsys):
    """Of standard input no more is read than the line that is wrong."""
    for bad in (LONG.encode(), b"\xff"):
        content = b"\n".join([SHORT.encode(), bad, b"\xfe", b""])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        done = call_command(capsys, "predict", presets / "translation", *SEARCH)
        assert (done.status, done.out) == (2, "1999-06-04\n")
        assert "standard input, line 2: " in done.err and "line 3" not in done.err
        assert "The results before that (1 line) are in standard output." in done.err


def test_ctrl_c_and_an_error_of_ours_keep_what_is_done(tmp_path, capsys):
    def lines(error):
        yield "one"
        raise error

    for error in (KeyboardInterrupt(), RuntimeError("x"), UserError("no"), BadLine("F", "no")):
        output = tmp_path / type(error).__name__
        with pytest.raises(type(error) if not isinstance(error, ValueError) else UserError) as got:
            verbs.write_lines(str(output), lines(error), "nothing")
        assert output.read_text() == "one\n"
        assert "(1 line) are in" in capsys.readouterr().err + str(got.value)
        assert [each.name for each in tmp_path.glob(".*")] == []

    def fails():
        raise UserError("at once")
        yield

    with pytest.raises(UserError, match="^at once$"):
        verbs.write_lines(str(tmp_path / "new"), fails(), "nothing")
    assert not (tmp_path / "new").exists()


def test_a_training_that_skips_long_sentences_learns_a_shortlist_from_them(tasks):
    shortlist = translator.Shortlist.learn(tasks["translation"], [SHORT, LONG], ["1999", "x"])
    assert shortlist.size
    assert np.isfinite(shortlist.frequencies).all()
