"""The verbs on a trained run: what they write, that they agree, and how they refuse."""

import functools
import json

import keras
import numpy as np
import pytest

from keras_attention.applications.answer_selection import (
    AnswerPreprocessor,
    AnswerRanker,
    AnswerSelector,
)
from keras_attention.applications.answer_selection.config import AnswerSelectionConfig
from keras_attention.applications.answer_selection.data import as_questions
from keras_attention.applications.answer_selection.metrics import read_trec_run
from keras_attention.applications.answer_selection.networks.selector import HardestHinge, Reader
from keras_attention.applications.answer_selection.results import (
    by_position,
    by_words,
    evaluation_report,
    table,
)
from keras_attention.applications.base.train import train_task
from keras_attention.applications.errors import UserError
from keras_attention.applications.schema.reading import load_config
from keras_attention.applications.training.run_folder import RunFolder, read_metrics
from tests.applications.answer_selection.conftest import SETTINGS, train_arguments
from tests.applications.commands import assert_same_training, call_command

# Each verb loads the run and ranks anew: tracing that would be most of it.
pytestmark = pytest.mark.usefixtures("traced_nowhere")
QUESTION = "where was Mara Vel born ?"
CANDIDATES = ["Mara Vel died in 1811 .", "The birthplace of Mara Vel is Oslo .", "Zork !"]


def assert_refused(done, message):
    assert done.status == 2 and done.out == "", done
    lines = done.err.strip().splitlines()
    assert message in lines[-1] and lines[-1].startswith("keras-attention"), done.err


def test_training_learns_and_reports(answers_run):
    written = (answers_run.parent / "stderr").read_text()
    assert "Read 400 questions from facts (train). They have 2,000 candidates. 0.0% of" in written
    assert "13 batches" in written
    assert "best val_mrr" in written
    figures = read_metrics(RunFolder(answers_run).metrics)
    assert len(figures) == 2
    # Chance gives (1 + 1/2 + 1/3 + 1/4 + 1/5) / 5 = 0.457.
    assert max(line["val_mrr"] for line in figures) > 0.9
    assert figures[-1]["val_loss"] < figures[0]["val_loss"]


@pytest.mark.slow
def test_a_run_continues_as_if_it_had_never_stopped(answers_run, capsys, tmp_path, traced):
    path = tmp_path / "run"
    one = train_arguments(path, "--training.epochs=1")
    assert call_command(capsys, *one).status == 0
    more = ("--resume", "--output", path, "--training.epochs=2")
    assert call_command(capsys, "train", "answer-selection", *more).status == 0
    assert_same_training(path, answers_run)
    refused = call_command(
        capsys, *["train", "answer-selection", "--resume", "--output", path, "--model.units=7"]
    )
    assert_refused(refused, "cannot be continued with another model.units")


def test_evaluate_names_both_protocols(answers_run, capsys, tmp_path):
    ranking = tmp_path / "ranking"
    as_json = call_command(capsys, "evaluate", answers_run, "--json", "--trec-run", ranking)
    report = json.loads(as_json.out)
    assert report["filtered"]["protocol"] == "filtered" and report["filtered"]["questions"] == 60
    assert report["unfiltered"]["protocol"] == "unfiltered" and report["filtered"]["map"] > 0.9
    assert sum(report["attention_by_position"]) == pytest.approx(1.0)
    assert (
        report["map"] == report["filtered"]["map"] > report["baselines"]["bm25"]["filtered"]["map"]
    )
    assert report["signature"] == "protocol:filtered|questions:60|ties:trec_eval"
    table = call_command(capsys, "evaluate", answers_run).out
    assert table.count("BM25") == table.count("overlap") == 2
    for protocol in ("filtered", "unfiltered"):
        line = next(line for line in table.splitlines() if line.startswith(f"{protocol} "))
        assert line.split()[2] == f"{report[protocol]['map']:.4f}"
    assert report["words"] > 2500 and 0 < report["unknown"] < 100 and report["cut"] == 0
    assert "words are unknown and share vectors" in table
    scores = read_trec_run(ranking)
    assert len(scores) == 60 and all(len(of_question) == 5 for of_question in scores.values())
    again = call_command(capsys, "evaluate", answers_run, "--trec-run", ranking)
    assert_refused(again, "already exists")


def test_evaluate_a_file_with_what_ranking_cannot_use(answers_run, capsys, tmp_path):
    file = tmp_path / "some.tsv"
    file.write_text(
        f"{QUESTION}\t{CANDIDATES[0]}\t0\n{QUESTION}\t{CANDIDATES[1]}\t1\n"
        "only right ?\tOslo\t1\nnone right ?\tOslo\t0\n"
    )
    done = call_command(capsys, "evaluate", answers_run, "--input", file, "--json")
    report = json.loads(done.out)
    assert (report["questions"], report["candidates"]) == (3, 4)
    for protocol, count in (("filtered", 1), ("unfiltered", 2)):
        assert report[protocol]["questions"] == count
        assert (report[protocol]["without_right"], report[protocol]["only_right"]) == (1, 1)
    both = call_command(capsys, "evaluate", answers_run, "--input", file, "--split", "dev")
    assert_refused(both, "give --split or --input, not both")


def test_predict_ranks_candidates(answers_run, answers_ranker, capsys, tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("\n".join(CANDIDATES) + "\n")
    options = ("predict", answers_run, "--question", QUESTION, "--candidates", source)
    done = call_command(capsys, *options)
    answers = answers_ranker.rank(QUESTION, CANDIDATES)
    assert done.out.splitlines() == [
        f"{place}\t{answer.score:.6f}\t{answer.text}" for place, answer in enumerate(answers, 1)
    ]
    assert answers[0].text == CANDIDATES[1] and answers[0].position == 1
    assert call_command(capsys, *options, "--top", 1, "--output", output).out == ""
    assert output.read_text() == done.out.splitlines()[0] + "\n"


def test_ranks_do_not_depend_on_company(answers_ranker):
    answers = answers_ranker.rank(QUESTION, CANDIDATES)
    for answer in answers:
        alone = answers_ranker.rank(QUESTION, [answer.text])[0]
        assert alone.score == pytest.approx(answer.score, abs=1e-6)
        np.testing.assert_allclose(alone.weights, answer.weights, atol=1e-6)
        assert len(answer.tokens) == len(answer.weights) and (answer.weights > 0).all()
    twice = answers_ranker.rank(QUESTION, [CANDIDATES[0]] * 3)
    assert [answer.position for answer in twice] == [0, 1, 2]


@pytest.mark.parametrize("suffix", ["html", "png"])
def test_visualize_shades_and_writes(answers_run, answers_ranker, capsys, tmp_path, suffix):
    output = tmp_path / f"shaded.{suffix}"
    options = ["visualize", answers_run, "--question", QUESTION]
    options += ["--answer", CANDIDATES[0], "--answer", CANDIDATES[1], "--output", output]
    done = call_command(capsys, *options)
    best = answers_ranker.rank(QUESTION, CANDIDATES)[0]
    first = done.out.splitlines()[0].split()
    if suffix == "html":
        assert done.out == f"{best.text}\n" and b'id="data"' in output.read_bytes()
    else:
        assert first[0] == f"{best.score:.3f}" and first[1] == f"the[{best.weights[0]:.2f}]"
    content = output.read_bytes()
    assert content.startswith(b"\x89PNG") or QUESTION in content.decode()
    assert_refused(call_command(capsys, *options), "already exists")


def test_export_scores_strings(answers_run, answers_ranker, capsys, tmp_path):
    import tensorflow as tf

    output = tmp_path / "exported"
    assert call_command(capsys, "export", answers_run, "--output", output).status == 0
    serve = tf.saved_model.load(str(output)).signatures["serving_default"]
    given = {"question": [QUESTION, "who ?"], "candidates": [CANDIDATES, ["Ann", "", " "]]}
    scores = serve(**{name: tf.constant(texts) for name, texts in given.items()})["scores"].numpy()
    ranked = sorted(answers_ranker.rank(QUESTION, CANDIDATES), key=lambda a: a.position)
    assert scores[0] == pytest.approx([answer.score for answer in ranked], abs=1e-5)
    assert np.isneginf(scores[1][1:]).all() and np.isfinite(scores[1][0])
    assert_refused(call_command(capsys, "export", answers_run, "--output", output), "exists")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["predict", "{run}", "--question", " ", "--candidates", "{two}"],
            "The question has no words. Received: ' '.",
        ),
        (["predict", "{run}", "--question", "a", "--candidates", "{gap}"], "Candidate 2 has no"),
        (["predict", "{run}", "--question", "a", "--candidates", "{empty}"], "is empty"),
        (["predict", "{run}", "--candidates", "{two}"], "required: --question"),
        (["predict", "{run}", "--question", "a", "--beam", "3"], "unknown argument --beam"),
        (
            ["evaluate", "{run}", "--input", "{two}"],
            "expected question, tab, candidate, tab, label",
        ),
        (["visualize", "{run}", "--question", "a"], "required: --answer"),
        (
            ["visualize", "{run}", "--question", "a", "--answer", "b", "--output", "{new}.doc"],
            "must be one of",
        ),
        (
            ["train", "answer-selection", "--output", "{new}"],
            "name the training data: --data.train",
        ),
        (
            ["train", "answer-selection", "--data.train={good}", "--output", "{new}"],
            "name a development set",
        ),
        (
            [
                *["train", "answer-selection", "--data.dataset=wikiqa", "--data.folder={new}"],
                *["--output", "{new}"],
            ],
            "/new/WikiQA-train.tsv.",
        ),
        (
            [
                *["train", "answer-selection", "--data.train={good}", "--data.dev={wrong}"],
                *["--output", "{new}"],
            ],
            "no question has a right candidate",
        ),
        (
            [
                *["train", "answer-selection", "--data.train={good}", "--data.dev={right}"],
                *["--output", "{new}"],
            ],
            "no question has both a right and a wrong candidate",
        ),
        (["train", "answer-selection", "--output", "{run}"], "already holds a run"),
        (
            ["train", "answer-selection", "--model.encoder=cnn", "--output", "{new}"],
            "one of gru, outer, inner-word, inner-context, inner-gate",
        ),
        (
            [
                *["train", "answer-selection", "--data.train={good}", "--data.dev={good}"],
                *["--vectors.source=file", "--vectors.file={vectors}", "--output", "{new}"],
                "--tokenizer.min_count=1",
            ],
            "vectors of 3 numbers, and model.embedding_size is 100",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(answers_run, capsys, tmp_path, arguments, message):
    contents = {
        "two": "one\ntwo\n",
        "gap": "one\n\nthree\n",
        "empty": "",
        "good": "q ?\ta\t1\nq ?\tb\t0\n",
        "wrong": "q ?\ta\t0\n",
        "right": "q ?\ta\t1\n",
        "vectors": "a 1 2 3\nb 1 2 3\n",
    }
    names = {"run": str(answers_run), "new": str(tmp_path / "new")}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        names[name] = str(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    done = call_command(capsys, *(argument.format(**names) for argument in arguments))
    assert_refused(done, message)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_run_of_another_task_and_an_encoder_without_weights(tmp_path):
    own = ["--model.encoder=gru", "--training.epochs=1", "--training.loss=log"]
    config = load_config(AnswerSelectionConfig, [], [*SETTINGS[:2], *own])
    train_task(AnswerRanker, config, tmp_path / "gru")
    ranker = AnswerRanker.from_preset(tmp_path / "gru")
    with pytest.raises(UserError, match="encoder gru gives no weights of words to draw"):
        ranker.draw(QUESTION, CANDIDATES)
    assert ranker.rank(QUESTION, CANDIDATES)[0].weights is None
    report = ranker.evaluate_text(AnswerRanker.read(config, "test"), "unfiltered")
    assert report["attention_by_position"] is None and "unfiltered|" in report["signature"]
    assert 0.5 < report["accuracy"] <= 1.0  # log-odds, so that a pair is right or wrong by itself
    from keras_attention.applications.translation import Translator

    with pytest.raises(UserError, match="is a preset of `AnswerRanker`. Expected: Translator"):
        Translator.from_preset(tmp_path / "gru")


def test_attention_by_position_counts_parts_of_words():
    np.testing.assert_allclose(by_position([np.ones(7), np.ones(23)], 10), np.full(10, 0.1))
    np.testing.assert_allclose(by_position([np.array([1.0, 3.0])], 4), [1 / 8, 1 / 8, 3 / 8, 3 / 8])
    late = by_position([np.array([0.0, 0.0, 2.0]), np.array([0.0, 1.0])], 2)
    np.testing.assert_allclose(late, [0.0, 1.0])
    assert by_position([np.zeros(3)], 2) == [0.0, 0.0]


def test_the_run_folder_holds_what_a_resume_needs(answers_run, answers_ranker):
    words = answers_ranker.preprocessor.tokenizer.vocabulary_size
    vectors = np.load(answers_run / "vectors.npy")
    assert answers_ranker.preprocessor.vocabulary_size == words + 50 == len(vectors)


@pytest.mark.parametrize("damage", ["empty", "cut", "huge"])
def test_damaged_vectors_are_refused(tmp_path, damage):
    preprocessor, path = AnswerPreprocessor.adapt(["a b ?"]), tmp_path / "vectors.npy"
    np.save(path, np.zeros((1000, 2)))
    content = path.read_bytes()
    huge = content.replace(b"(1000, 2), }   ", b"(1000999, 2), }")
    path.write_bytes({"empty": b"", "cut": content[:-1], "huge": huge}[damage])
    with pytest.raises(UserError, match="vectors.npy is damaged"):
        preprocessor.read_start(tmp_path)


def test_words_alone_rank_as_their_equations_say():
    rows = [("a b ?", ["a a c", "b", "c c"], [1, 0, 0]), ("c ?", ["a", "c b b"], [0, 1])]
    found = by_words(as_questions(rows), str.split)
    assert found["word_overlap"] == [[1, 1, 0], [0, 1]]
    for row, (question, candidates, _) in zip(found["bm25"], rows, strict=True):
        for score, candidate in zip(row, candidates, strict=True):
            bags, wanted = [text.split() for _, texts, _ in rows for text in texts], 0.0
            for word in question.split():
                has, tf = sum(word in bag for bag in bags), candidate.split().count(word)
                idf = np.log(1 + (len(bags) - has + 0.5) / (has + 0.5))
                length = len(candidate.split()) / np.mean([len(bag) for bag in bags])
                wanted += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length))
            assert score == pytest.approx(wanted)


def test_words_alone_rank_where_no_candidate_has_any():
    rows = [("a b ?", ["a", "b"], [1, 0])]
    assert by_words(as_questions(rows), lambda _: [])["bm25"] == [[0, 0]]


def test_a_protocol_is_measured_where_the_other_leaves_no_question():
    questions = as_questions([("a ?", ["a"], [1])])
    report = evaluation_report(questions, [np.ones(1)], str.split, "unfiltered")
    assert report["map"] == 1.0 and "filtered" not in report
    counts = {"words": 1, "unknown": 0, "cut": 0, "accuracy": None, "attention_by_position": None}
    assert "1 have right ones only" in table({**report, **counts})
    with pytest.raises(ValueError, match="No question is left to measure"):
        evaluation_report(questions, [np.ones(1)], str.split, "filtered")


@pytest.mark.parametrize("order", [1, -1])
def test_both_parts_of_a_split_can_teach(answers_run, order):
    """One part has no right candidate, or nothing but right ones: drawing then never ended."""
    rows = [("a ?", ["b"], [1]), ("c ?", ["d", "e"], [0, 0])][::order]
    with pytest.raises(ValueError, match="Received: 1 questions with [01] right and [02] wrong"):
        AnswerRanker.load(answers_run).fit(rows, validation_split=0.5, verbose=0)


@pytest.mark.parametrize("negatives", [True, 0, "2", 1.5])
def test_negatives_are_a_whole_number(answers_ranker, negatives):
    network = answers_ranker.backbone
    assert AnswerRanker(network, negatives=np.int64(3)).negatives == 3
    with pytest.raises(ValueError, match="`negatives` should be a positive integer. Received"):
        AnswerRanker(network, negatives=negatives)


@pytest.mark.parametrize("margin", [None, "0.2", -0.1, float("nan"), float("inf")])
def test_a_margin_is_a_number(answers_ranker, margin):
    for make in (HardestHinge, functools.partial(AnswerRanker, answers_ranker.backbone)):
        with pytest.raises(
            ValueError, match=f"`margin` must be a finite number.*Received: .?{margin}"
        ):
            make(margin=margin)


def test_a_run_has_the_objective_of_its_task(tmp_path):
    questions = [("who is it ?", ["it is a dog .", "the sky is blue ."], [1, 0])] * 8
    ranker = AnswerRanker.from_questions(questions, units=3)
    ranker = AnswerRanker(ranker.backbone, ranker.preprocessor, negatives=1, margin=0.9)
    with pytest.raises(ValueError, match="`margin` is the task's own, margin=0.9.*ved: margin=0.3"):
        ranker.fit(questions, validation_split=0.5, run=tmp_path / "run", margin=0.3)
    ranker.fit(questions, validation_split=0.5, run=tmp_path / "run", verbose=0)
    kept = load_config(AnswerSelectionConfig, [tmp_path / "run" / "config.yaml"]).training
    assert (kept.loss, kept.margin, kept.negatives) == ("hinge", 0.9, 1)


def test_one_reader_of_questions_and_answers_is_saved_as_one(tmp_path):
    reader = Reader(3)
    network = AnswerSelector(30, 5, reader=reader, question_reader=reader, shared=False)
    network.save(tmp_path / "network.keras")
    again = keras.saving.load_model(tmp_path / "network.keras")
    assert again.question_reader is again.reader
    assert again.count_params() == network.count_params()


def test_a_run_is_judged_by_questions_with_right_and_wrong_candidates(tmp_path):
    rows = [(QUESTION, CANDIDATES, [0, 1, 0])] * 2
    ranker = AnswerRanker.from_questions(rows, units=4)
    judge = [(QUESTION, CANDIDATES[:1], [1]), ("who ?", CANDIDATES[:1], [0])]
    with pytest.raises(UserError, match="no question has both a right and a wrong candidate"):
        ranker.fit(rows, validation_data=judge, epochs=1, verbose=0, run=tmp_path / "run")


def test_many_questions_and_what_a_result_shows(answers_ranker, tmp_path):
    ranker = answers_ranker
    both = ranker.rank([QUESTION, "who ?"], [CANDIDATES, CANDIDATES[:1]])
    assert [len(each) for each in both] == [3, 1] and both[0].question == QUESTION
    assert both[0][0].score == pytest.approx(ranker.rank(QUESTION, CANDIDATES)[0].score, abs=1e-6)
    assert "birthplace" in both[0]._repr_html_() and "oslo" in both[0][0].show()
    for wrong, message in (
        ((QUESTION, []), "no candidate"),
        ((QUESTION, "one text"), "should be a sequence of strings"),
        ((["a", "b"], [["c"]]), "Received: 2 in question, 1 in candidates"),
        ((QUESTION, ["a", None]), r"candidates\[1\]=None"),
        ((None, ["a"]), "Received: question=None"),
        ((["a"], None), "1 in question, 0 in candidates"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker.rank(*wrong)
    with pytest.raises(UserError, match="draws a single question"):
        ranker.draw([QUESTION], [CANDIDATES], tmp_path / "many.png")
    with pytest.raises(UserError, match="AnswerRanker explains a single question.*Received"):
        ranker.explain([QUESTION], [CANDIDATES])
    with pytest.raises(ValueError, match="one of max_letters. .*Received: 'nope'"):
        ranker.export(tmp_path / "served", nope=3)
    found = ranker.explain(QUESTION, iter(CANDIDATES))
    assert found.inputs["candidates"] == "\n".join(CANDIDATES)
    rows, alone = [(QUESTION, CANDIDATES, [0, 1, 0])], AnswerRanker(ranker.backbone)
    with pytest.raises(ValueError, match="must be one of filtered, unfiltered. Received: 'all'"):
        ranker.evaluate_text(rows, "all")
    for use, given in ((alone.evaluate_text, rows), (alone.export, tmp_path / "new")):
        with pytest.raises(ValueError, match="Received: preprocessor=None"):
            use(given)
    assert not (tmp_path / "new").exists()
