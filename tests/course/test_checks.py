"""Exercises that answer: right answers, near misses, wrong forms, hints before solutions."""

import math
import re
import socket

import keras
import numpy as np
import pytest

from keras_attention import course
from keras_attention.course import checks, hint, solution, use_language
from keras_attention.course.exercises import EXERCISES

EYE = np.eye(8)
MASKED = np.array([[[0.25, 0.75, 0, 0], [0.5, 0.5, 0, 0], [0.9, 0.1, 0, 0]]])
SHARP, EVEN = [[0.003, 0.997], [0, 1]], [[0.5, 0.5], [0.5, 0.5]]
# Of each exercise: right answers, and near misses, each of the form that is asked for.
ANSWERS = {
    "1.1": (
        [[np.full(20, 20), 2 * np.arange(20)]],
        [[np.full(20, 20), 1 + 2 * np.arange(20)], [np.full(20, 19), 2 * np.arange(20)]],
    ),
    "1.2": ([[9.81, 98.14, 128], [10, 98, 128]], [[10, 100, 128], [4.9, 98, 128], [10, 98, 64]]),
    "1.3": (["neither", " Neither", "都不"], ["attention", "both", "单个向量"]),
    "2.1": ([0.25, np.full((2, 3, 4), 0.25), 1 / 4], [0.2, 0.26, [0.25, 0.25, 0.25, 0.24]]),
    "2.2": (
        [["weights", "encoder"], ("权重", "编码器")],
        [["both", "encoder"], ["weights", "attention"]],
    ),
    "2.3": (
        [84, lambda Dq, Dk, U: (Dq + Dk + 1) * U],
        [78, 83, lambda Dq, Dk, U: (Dq + Dk) * U, lambda Dq, Dk, U: 84],
    ),
    "2.4": (
        [MASKED, MASKED.astype("float32")],
        [0.99 * MASKED, MASKED + [0, 0, 1e-3, -1e-3], np.full((1, 3, 4), 0.25)],
    ),
    "3.1": ([EYE], [np.ones((8, 8)), 2 * EYE, EYE[::-1], EYE + 0.01]),
    "3.2": ([(4, 7), np.array([4, 7])], [(3, 7), (4, 6), (7, 4), (7, 7)]),
    "3.3": ([0.4967, 0.497], [1, 0.5, 0.49]),
    "3.4": ([0, np.zeros((2, 3, 2))], [0.1, [0, 1e-3]]),
    "4.1": (["outside", "外部"], ["word", "both", "neither"]),
    "4.2": ([0.5, np.full((2, 6), 0.5)], [0, 1, 0.51]),
    "4.3": ([0.4567, 0.457], [0.2, 0.5, 0.46]),
    "4.4": ([1, 1.0], [0, 2, 3, 5]),
    "4.5": ([(5**20, 475), [5.0**20, 475.0]], [(20**5, 475), (5**20, 500), (5**19, 475)]),
    "4.6": (["no", "No", "否"], ["yes", "是"]),
    "5.1": ([(0.8, 0), [0.8, 0.0]], [(1, 0), (0.8, 1), (0, 0.8)]),
    "5.2": ([1 / 6, 0.1667, np.full((2, 3, 6), 1 / 6)], [0.25, 0.2, 0.16]),
    "5.3": ([0, np.zeros(7)], [1, np.ones(7), np.eye(7)[0]]),
    "5.4": ([(0.1, 0.2, 0.3, 0.4)], [(0.05, 0.1, 0.15, 0.2), (0.25, 0.25, 0.25, 0.25)]),
    "6.1": ([[SHARP, EVEN]], [[EVEN, SHARP], [[[0.24, 0.76], [0.1, 0.9]], EVEN]]),
    "6.2": ([(16384, 16384)], [(16384, 2048), (16640, 16640), (12288, 12288)]),
    "6.3": ([[4], np.array([4])], [[3], [5], [0]]),
    "6.4": ([0, 1e-5, np.float32(3e-3)], [0.5, -1]),
    "7.1": (["positions", "位置"], ["segments", "words", "nothing"]),
    "7.2": ([0, 2e-6], [0.1, 1]),
    "7.3": ([math.log(54), 3.99], [math.log2(54), math.log(53), -3.99]),
    "10.1": (
        [(128, 4, 65), np.array([128.0, 4.0, 65.0])],
        [(128, 4, 64), (64, 2, 65), (4, 128, 65)],
    ),
    "10.2": ([(3.5, 4.88, 6)], [(4, 4.88, 6), (3.5, 2, 6), (3.5, 6, 4.88)]),
    "10.3": ([(0.3125, 762)], [(0.25, 762), (0.3125, 768), (0.3125, 127)]),
}
WRONG_FORMS = [
    None,
    True,
    "no idea",
    "",
    {},
    [],
    object(),
    np.full((9, 9, 9), 7),
    [[1], [2, 3]],
    b"x",
]


@pytest.fixture(autouse=True)
def fresh():
    """No hints were given, and the language is English."""
    checks._hints.clear()
    use_language("en")
    yield
    checks._hints.clear()
    checks._language.clear()


def test_every_exercise_is_tried():
    assert set(ANSWERS) == set(EXERCISES)


@pytest.mark.parametrize("name", ANSWERS)
def test_right_answers_are_right_and_near_misses_wrong(name):
    right, wrong = ANSWERS[name]
    for answer in right:
        reply = course.check(name, answer)
        assert reply.right and reply and reply.text.startswith("Right. "), answer
    for answer in wrong:
        reply = course.check(name, answer)
        assert not reply.right and not reply, answer
        assert reply.text.startswith("Not yet. "), answer


@pytest.mark.parametrize("name", ANSWERS)
def test_other_forms_are_wrong_and_told_what_is_expected(name):
    for answer in WRONG_FORMS:
        reply = course.check(name, answer)
        assert not reply.right
        if "cannot be compared" in reply.text:
            assert EXERCISES[name].expects["en"] in reply.text and "Received: " in reply.text
    text = course.check(name, "no idea").text
    assert "Received: 'no idea'" in text
    checks._hints.clear()
    course.check(name, "no idea")
    assert hint(name).text.startswith("Hint 1 of "), "a wrong form costs no hint"


def test_not_a_number_is_wrong():
    assert not course.check("2.1", math.nan).right
    assert not course.check("2.1", math.inf).right


def test_a_long_answer_is_cut_in_the_reply():
    assert len(course.check("2.2", "x" * 500).text) < 300


def test_a_function_that_fails_is_told_the_form():
    reply = course.check("2.3", lambda Dq: Dq)
    assert not reply.right and "a function of Dq, Dk and U" in reply.text


def test_tensors_and_variables_are_compared():
    assert course.check("2.1", keras.ops.full((2, 4), 0.25)).right
    assert course.check("5.3", keras.Variable(np.zeros(7, "float32"))).right
    assert course.check("5.1", [keras.ops.convert_to_tensor(0.8), 0.0]).right


def test_without_an_answer_the_form_is_told_and_no_hint_is_spent():
    for reply in (course.check("2.3"), course.check("2.3", ...)):
        assert not reply.right and "a function of Dq, Dk and U" in reply.text
    assert hint("2.3").text.startswith("Hint 1 of 2")


@pytest.mark.parametrize("name", EXERCISES)
def test_hints_come_before_the_solution(name):
    exercise = EXERCISES[name]
    assert exercise.hints
    count, answer = len(exercise.hints), exercise.solution["en"]
    for number, given in enumerate(exercise.hints, 1):
        text = (course.check(name, ANSWERS[name][1][0]) if number == 1 else solution(name)).text
        assert f"Hint {number} of {count}: {given['en']}" in text and answer not in text
    spent = course.check(name, ANSWERS[name][1][0]).text
    assert f'solution("{name}")' in spent and answer not in spent
    assert hint(name).text in spent
    reply = solution(name)
    assert reply.text == answer and not reply.right
    assert answer in course.check(name, ANSWERS[name][0][0]).text


def test_no_hint_says_the_solution():
    for name, exercise in EXERCISES.items():
        for language in checks.LANGUAGES:
            for text in (exercise.expects, *exercise.hints):
                assert exercise.solution[language] not in text[language], name


@pytest.mark.parametrize("name", EXERCISES)
def test_every_text_is_in_both_languages(name):
    exercise = EXERCISES[name]
    for text in (exercise.expects, exercise.solution, *exercise.hints):
        assert set(text) == set(checks.LANGUAGES)
        assert not re.search("[\u4e00-\u9fff]", text["en"])
    assert re.search("[\u4e00-\u9fff]", exercise.expects["zh"] + exercise.solution["zh"])


def test_replies_in_chinese():
    assert course.check("2.1", 0.25, language="zh").text.startswith("对。四个状态")
    use_language("zh")
    assert course.check("2.1", 0.3).text.startswith("还不对。提示 1/2：")
    assert "应为：" in course.check("2.1", "x").text
    assert hint("2.1").text.startswith("提示 2/2：")
    assert course.check("2.1", 0.25, language="en").text.startswith("Right.")


@pytest.mark.parametrize(
    ("name", "language"),
    [("zh_CN", "zh"), ("Chinese (Simplified)_China", "zh"), ("de_DE", "en"), (None, "en")],
)
def test_the_language_is_that_of_the_machine(name, language, monkeypatch):
    checks._language.clear()
    monkeypatch.setattr(checks.locale, "getlocale", lambda: (name, "UTF-8"))
    assert course.check("2.1").text == course.check("2.1", language=language).text


def test_unknown_exercises_and_languages_are_refused():
    for call in (course.check, hint, solution):
        for name in ("9.9", "2", 2.1, None, ["2.1"]):
            with pytest.raises(ValueError, match=r"one of 1\.1, .*Received: exercise="):
                call(name)
        with pytest.raises(ValueError, match="'en' or 'zh'. Received: language='fr'"):
            call("2.1", language="fr")
    with pytest.raises(ValueError, match="Received: language='fr'"):
        use_language("fr")


def test_an_answer_is_not_read_by_accident():
    shown = repr(EXERCISES["2.1"]) + repr(EXERCISES["2.2"])
    assert "0.25" not in shown and "Each of the four" not in shown and "softmax of" not in shown
    wrong = course.check("2.1", 0.3)
    assert "1/4" not in repr(wrong) + wrong._repr_html_()
    assert set(dir(course)) & {"EXERCISES", "exercises"} <= {"exercises"}


def test_a_notebook_shows_a_reply_as_a_box():
    wrong, right = course.check("2.1", "<b>"), course.check("2.1", 0.25)
    assert "&lt;b&gt;" in wrong._repr_html_() and "<b>2.1</b>" in wrong._repr_html_()
    assert "✓" in right._repr_html_() and "✓" not in wrong._repr_html_()
    assert repr(right).startswith("2.1: Right. ")


def test_nothing_is_sent(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("A check opened a connection.")

    monkeypatch.setattr(socket, "socket", refuse)
    assert course.check("4.3", 0.457)
