"""Threads that share a task: seeds are a request's own, and answers those of one thread."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from keras_attention.applications.base import backend
from keras_attention.applications.command import main
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.translation import verbs
from keras_attention.applications.translation.engines.litert import LiteRT
from tests.applications.base.test_streams import random_lines
from tests.applications.translation_runs import SOURCE_LINES, make_translator
from tests.contracts.tasks import DOCUMENTS, PAIRS, QUESTIONS, TASKS, TEXTS

BACKEND = keras.backend.backend()
SAMPLING = {"sample": True, "max_length": 6}


def in_threads(function, arguments, count=4):
    """Call a function with each argument, in so many threads that begin together."""
    meeting = threading.Barrier(count, timeout=60)
    with ThreadPoolExecutor(count, initializer=meeting.wait) as threads:
        return list(threads.map(function, arguments))


@pytest.fixture(scope="module")
def translator():
    return make_translator()


@pytest.fixture(scope="module")
def summarizer():
    keras.utils.set_random_seed(3)
    made = Summarizer.from_texts(DOCUMENTS, TEXTS, units=8, embedding_size=5)
    for variable in made.backbone.trainable_variables:
        variable.assign(3.0 * np.array(variable))
    return made


@pytest.mark.by_default("translator-None", "summarizer-None")
@pytest.mark.parametrize("streams", [None, 1])
@pytest.mark.parametrize("name", ["translator", "summarizer"])
def test_a_sample_is_a_function_of_text_and_seed(request, name, streams, traced):
    """Whatever other threads ask, and whatever else is in the call; `streams` compiles at once."""
    task = request.getfixturevalue(name)
    search = task.translate if name == "translator" else task.summarize
    texts = SOURCE_LINES if name == "translator" else DOCUMENTS[:5]

    def drawn(request):
        text, seed = request
        return search(text, seed=seed, streams=streams, **SAMPLING).text

    requests = [(text, seed) for seed in (0, 7, 2**40) for text in texts]
    alone = [drawn(each) for each in requests]
    assert in_threads(drawn, requests) == alone
    assert len(set(alone)) > 7
    together = []
    for seed in (0, 7, 2**40):
        found = search(texts, seed=seed, batch_size=2, streams=streams, **SAMPLING)
        together += [each.text for each in found]
    assert together == alone
    backwards = search(texts[::-1] * 2, seed=7, streams=2, **SAMPLING)
    assert [each.text for each in backwards] == alone[5:10][::-1] * 2


def test_without_a_seed_equal_texts_draw_for_themselves(translator):
    found = translator.translate(SOURCE_LINES[:1] * 7, **SAMPLING)
    assert len({each.text for each in found}) > 3
    several = translator.translate(SOURCE_LINES[0], n_best=5, seed=3, **SAMPLING)
    assert len({each.text for each in several.ranked}) > 2


def test_a_task_has_no_state_of_a_search(translator):
    assert len(translator.variables) == len(translator.backbone.variables)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a SavedModel is TensorFlow's")
def test_an_exported_search_draws_as_the_task_does(translator, summarizer, traced_nowhere):
    """With a seed the same samples, in Python and in the graph; without one fresh ones."""
    import tensorflow as tf

    seeded = translator.service(seed=11, **SAMPLING)
    lines = [*SOURCE_LINES, "", SOURCE_LINES[0]]
    expected = translator.translate(lines, seed=11, **SAMPLING)
    found = seeded.serve(tf.constant(lines))
    assert [text.decode() for text in found["text"].numpy()] == [each.text for each in expected]
    terms = found["token_log_probabilities"].numpy()
    for row, each in zip(terms, expected, strict=True):
        count = len(each.token_log_probabilities)
        np.testing.assert_allclose(row[:count], each.token_log_probabilities, rtol=1e-3)
        assert (row[count:] == 0).all()
    keras.utils.set_random_seed(1)  # no request may depend on it
    fresh = translator.service(**SAMPLING)
    same = tf.constant([SOURCE_LINES[0]] * 7)
    drawn = [fresh.serve(same)["text"].numpy().tolist() for _ in range(2)]
    assert drawn[0] != drawn[1] and len(set(drawn[0])) > 3
    documents = ["\n".join(each.split(" . ")) for each in DOCUMENTS[:3]]
    served = summarizer.service(seed=4, **SAMPLING).serve(tf.constant(documents))
    expected = summarizer.summarize([each.split("\n") for each in documents], seed=4, **SAMPLING)
    assert [text.decode() for text in served["summary"].numpy()] == [e.text for e in expected]
    sums = served["token_log_probabilities"].numpy().sum(axis=1)
    np.testing.assert_allclose(sums, [each.log_probability for each in expected], rtol=1e-3)


USES = {
    "Translator": (lambda task, text: task.translate(text, beam_size=2).text, TEXTS),
    "Summarizer": (lambda task, text: task.summarize(text, beam_size=2).text, DOCUMENTS),
    "AnswerRanker": (lambda task, text: [a.score for a in task.rank(*text[:2])], QUESTIONS),
    "TextClassifier": (lambda task, text: task.classify([text])[0].probabilities, TEXTS),
    "PairClassifier": (lambda task, pair: task.classify([pair])[0].probabilities, PAIRS),
    "TokenClassifier": (lambda task, text: task.tag([text])[0].tags, TEXTS),
}


@pytest.mark.by_default("AnswerRanker", "TextClassifier")
@pytest.mark.parametrize("name", TASKS)
def test_every_task_answers_threads_as_it_answers_one(name, traced):
    """Threads make the functions that they call, too: none was compiled before."""
    use, texts = USES[name]
    task = TASKS[name].make()
    found = in_threads(lambda text: use(task, text), texts * 3)
    assert found == [use(task, text) for text in texts] * 3


@pytest.mark.skipif(BACKEND != "tensorflow", reason="LiteRT converts TensorFlow's graphs")
def test_an_engine_is_shared_by_threads(monkeypatch, traced):
    """Each sentence is a request; a program has one runner for them all, and is made once."""
    made, runners = [], LiteRT._runners

    def counted(self, *key):
        made.append(key)
        return runners(self, *key)

    monkeypatch.setattr(LiteRT, "_runners", counted)
    task = make_translator(architecture="rnnencdec")
    lines = [line for line in random_lines(13) if line]
    options = {"engine": "litert", "beam_size": 1, "max_length": 5}
    found = in_threads(lambda line: task.translate(line, **options).text, lines)
    assert found == [task.translate(line, **options).text for line in lines]
    assert len(made) == len(set(made))


def test_the_command_draws_a_line_alike_wherever_it_stands(tmp_path, capsys, monkeypatch):
    make_translator(architecture="rnnencdec").save_to_preset(tmp_path / "preset")
    (tmp_path / "lines").write_text("\n".join([*SOURCE_LINES, SOURCE_LINES[1]] * 2) + "\n")
    monkeypatch.setattr(verbs, "BATCHES_IN_A_CHUNK", 1)
    options = ("--sample", "--seed", "3", "--max-length", "6", "--batch-size", "3")
    assert (
        main(["predict", str(tmp_path / "preset"), "--input", str(tmp_path / "lines"), *options])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12 and lines[:6] == lines[6:] and lines[1] == lines[5]
    assert len(set(lines)) > 2


@pytest.mark.skipif(BACKEND == "torch", reason="PyTorch may be used after a fork")
def test_a_task_from_before_a_fork_is_refused(translator, monkeypatch):
    """Its functions would wait for threads that the fork has left behind."""
    here = os.getpid()
    monkeypatch.setattr(backend.os, "getpid", lambda: here + 1)
    with pytest.raises(RuntimeError, match="before this process was forked.*in each worker"):
        translator.translate(SOURCE_LINES[0])
    with pytest.raises(RuntimeError, match="before this process was forked"):
        translator.translate(SOURCE_LINES[0], streams=1)
