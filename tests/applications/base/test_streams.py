"""Searching in several streams: the results of one, in order; errors and interruptions."""

import _thread
import json
import math
import signal
import threading
import time

import keras
import numpy as np
import pytest

from keras_attention.applications.base import search_task, streams
from keras_attention.applications.base.streams import in_streams, rows_of_a_batch
from keras_attention.applications.command import main
from keras_attention.applications.summarization import Summarizer
from keras_attention.applications.translation import Translator
from keras_attention.applications.translation import task as translator_module
from tests.applications.translation_runs import SOURCE_LINES, TARGET_LINES, make_translator

WORDS = sorted({word for line in SOURCE_LINES for word in line.split()})


def random_lines(count: int, seed: int = 1) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, 9))) for _ in range(count)]


# ---- The streams alone.


def test_batches_run_at_once_and_each_once():
    meeting, seen = threading.Barrier(3, timeout=20), []

    def function(batch):
        meeting.wait()  # three at a time, or this breaks
        seen.append(batch)

    in_streams(function, range(9), 3)
    assert sorted(seen) == list(range(9))


def test_no_more_than_the_streams_run_at_once():
    running, most = [], []

    def function(batch):
        running.append(batch)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(batch)

    for count in (1, 2):
        most.clear()
        in_streams(function, range(11), count)
        assert max(most) == count


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_ends_all_streams_and_is_raised_once(count):
    begun, threads = [], threading.active_count()

    def function(batch):
        begun.append(batch)
        if batch == 1:
            raise ValueError("the second batch")
        time.sleep(0.02)

    with pytest.raises(ValueError, match="the second batch"):
        in_streams(function, range(100), count)
    assert len(begun) <= 3  # those of the moment, and none of the other ninety
    assert threading.active_count() == threads


@pytest.mark.parametrize("count", [1, 2])
def test_ctrl_c_ends_all_streams(count):
    begun, threads = [], threading.active_count()
    was = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which jobs in the background lack

    def function(batch):
        begun.append(batch)
        if batch == 1:
            _thread.interrupt_main()  # as a SIGINT does, whose handler runs in the main thread
        time.sleep(0.05)

    try:
        with pytest.raises(KeyboardInterrupt):
            in_streams(function, range(100), count)
    finally:
        signal.signal(signal.SIGINT, was)
    assert len(begun) <= 5
    # A thread whose start was interrupted is not waited for: it ends by itself, at once.
    end = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == threads


def test_batches_are_cut_for_all_streams_to_have_work():
    random = np.random.default_rng(2)
    for rows, most, count in random.integers(1, [400, 90, 9], (300, 3)).tolist():
        size = rows_of_a_batch(rows, most, count)
        assert 1 <= size <= most
        if count > 1 and rows >= 16 * count:  # else the batches would be too small
            assert math.ceil(rows / size) % count in (0, count - 1) or size == min(most, 16)
    assert rows_of_a_batch(64, 64, 2) == 32
    assert rows_of_a_batch(320, 64, 2) == 54
    assert rows_of_a_batch(20, 64, 2) == 16
    assert rows_of_a_batch(65, 64, 1) == 64
    assert rows_of_a_batch(0, 64, 2) >= 1


def test_cores_are_shared_in_the_command_alone(monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's threads")
    import tensorflow as tf

    set_to = []
    threading_settings = tf.config.threading
    monkeypatch.setattr(threading_settings, "set_intra_op_parallelism_threads", set_to.append)
    monkeypatch.setattr(streams, "usable_cores", lambda: 6)
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert streams.stream_count(None) == 6 and streams.stream_count(2) == 2
    for count in (1, 2, 6, 100):
        streams.share_cores(count)
    assert set_to == [6, 3, 1, 1]
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "4")
    streams.share_cores(3)
    assert len(set_to) == 4


def test_what_runs_in_python_has_one_stream(monkeypatch, traced_nowhere):
    monkeypatch.setattr(streams, "usable_cores", lambda: 6)
    assert streams.stream_count(None) == 1 and streams.stream_count(2) == 2


# ---- In the tasks.


FEW = ["a book", "", "it rains", "a dog", "a ball"]  # an encoder runs over each piece
ARCHITECTURES = ["rnnsearch", pytest.param("transformer", marks=pytest.mark.slow)]


@pytest.fixture
def searches(monkeypatch):
    """For each search that was called in Python, its thread and whether it was being traced."""
    calls = []

    def counted(*arguments, **options):
        is_traced = keras.backend.backend() == "tensorflow" and not eager()
        calls.append((threading.current_thread(), is_traced))
        return search(*arguments, **options)

    def eager():
        import tensorflow as tf

        return tf.executing_eagerly()

    search = Translator.find
    monkeypatch.setattr(Translator, "find", staticmethod(counted))
    return calls


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_many_streams_give_the_translations_of_one(architecture, searches):
    translator = make_translator(architecture=architecture)
    lines = random_lines(23)
    again = translator.translate(lines, streams=3, n_best=2)
    if keras.backend.backend() == "tensorflow":
        assert searches == [(threading.main_thread(), True)]
    alone = translator.translate(lines, streams=1, n_best=2)
    for one, other in zip(alone, again, strict=True):
        assert [each.text for each in other.ranked] == [each.text for each in one.ranked]
        assert other.score == pytest.approx(one.score, rel=1e-3)
        assert other.source_tokens == one.source_tokens
        np.testing.assert_allclose(other.alignment, one.alignment, atol=1e-4)
    assert len({each.text for each in alone}) > 2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_first_calls_of_one_batch_are_not_compiled(architecture, searches, monkeypatch):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("compiled at once elsewhere")
    translator = make_translator(architecture=architecture)
    longest = max(len(ids) for ids in translator.preprocessor.source_tokenizer.encode(FEW))
    monkeypatch.setattr(search_task, "UNCOMPILED_STEPS", 2 * longest)
    options = {"batch_size": 5, "beam_size": 2, "n_best": 2, "max_length": 5}
    found = [translator.translate(FEW, **options) for _ in range(4)]
    assert [traced for _, traced in searches] == [False, False, True]
    for results in found[1:]:
        for one, other in zip(found[0], results, strict=True):
            assert [each.text for each in other.ranked] == [each.text for each in one.ranked]
            assert other.score == pytest.approx(one.score, rel=1e-3)
            np.testing.assert_allclose(other.alignment, one.alignment, atol=1e-4)


def test_samples_of_one_seed_are_the_same_before_and_after_compiling(searches, monkeypatch):
    translator = make_translator(architecture="rnnencdec")
    longest = max(len(ids) for ids in translator.preprocessor.source_tokenizer.encode(FEW))
    monkeypatch.setattr(search_task, "UNCOMPILED_STEPS", longest)
    options = {"batch_size": 5, "sample": True, "seed": 3, "max_length": 5}
    drawn = [translator.translate(FEW, **options) for _ in range(3)]
    texts = [[each.text for each in results] for results in drawn]
    assert texts[0] == texts[1] == texts[2]
    if keras.backend.backend() == "tensorflow":
        assert [traced for _, traced in searches] == [False, True]


def test_scores_of_given_translations_are_those_of_one_stream():
    translator = make_translator(architecture="rnnencdec")
    targets = [*TARGET_LINES, *TARGET_LINES[::-1]]
    alone = translator.score(SOURCE_LINES * 2, targets)
    translator.search = translator.search.replace(streams=2)
    for one, other in zip(alone, translator.score(SOURCE_LINES * 2, targets), strict=True):
        assert other.text == one.text and other.score == pytest.approx(one.score, rel=1e-4)


def test_samples_with_a_seed_do_not_depend_on_the_streams():
    translator = make_translator(architecture="rnnencdec")
    lines = random_lines(11)

    def texts(**options):
        results = translator.translate(lines, sample=True, seed=7, **options)
        return [each.text for each in results]

    assert texts(streams=3) == texts(streams=1) == texts()


def test_an_error_in_a_stream_is_that_of_translate(monkeypatch):
    translator = make_translator(architecture="rnnencdec")
    calls = []

    def broken(*arguments):
        calls.append(arguments)
        raise RuntimeError("no memory is left")

    monkeypatch.setattr(translator_module, "translation_of", broken)
    with pytest.raises(RuntimeError, match="no memory is left"):
        translator.translate(random_lines(40), streams=2, beam_size=1)
    assert len(calls) <= 4


@pytest.mark.slow
def test_the_command_takes_streams(tmp_path, capsys):
    make_translator().save_to_preset(tmp_path / "preset")
    (tmp_path / "lines").write_text("\n".join(random_lines(9)) + "\n")

    def predicted(*more):
        status = main(
            ["predict", str(tmp_path / "preset"), "--input", str(tmp_path / "lines"), *more]
        )
        return status, *capsys.readouterr()

    status, out, _ = predicted("--streams", "2")
    assert status == 0 and len(out.splitlines()) == 9
    assert predicted("--streams", "1")[1] == out
    status, out, error = predicted("--streams", "0")
    assert (status, out) == (2, "") and "`streams` must be a positive integer" in error


def test_a_preset_holds_the_streams_only_where_a_number_was_given(tmp_path):
    translator = make_translator(architecture="rnnencdec")
    translator.save_to_preset(tmp_path / "default")
    written = json.loads((tmp_path / "default" / "task.json").read_text())
    assert "streams" not in written["config"]["search"]
    translator.search = translator.search.replace(streams=3)
    translator.save_to_preset(tmp_path / "three")
    assert Translator.from_preset(tmp_path / "three").search.streams == 3
    assert Translator.from_preset(tmp_path / "default").search.streams is None
    with pytest.raises(ValueError, match="`streams` must be a positive integer"):
        translator.translate("a man", streams=0)


@pytest.mark.slow
def test_many_streams_give_the_summaries_of_one():
    documents = [f"{line}. it rains. {' '.join(WORDS[k:])}." for k, line in enumerate(SOURCE_LINES)]
    keras.utils.set_random_seed(3)
    summarizer = Summarizer.from_texts(documents, TARGET_LINES, units=8, embedding_size=6)
    for variable in summarizer.backbone.trainable_variables:
        variable.assign(3.0 * np.array(variable))
    options = {"max_length": 6, "batch_size": 2}
    alone = summarizer.summarize(documents * 2, streams=1, **options)
    again = summarizer.summarize(documents * 2, streams=2, **options)
    assert [each.text for each in again] == [each.text for each in alone]
    assert len({each.text for each in alone}) > 1
