"""`check`, and the hints that come before a solution."""

import html
import locale
from collections import Counter
from dataclasses import dataclass
from typing import Any

from keras_attention.course.answers import Text, WrongForm
from keras_attention.course.exercises import EXERCISES, Exercise

LANGUAGES = ("en", "zh")
WORDS: dict[str, Text] = {
    "waiting": {
        "en": "Write your answer in place of `...`. Expected: {expects}.",
        "zh": "请把 `...` 换成你的答案。应为：{expects}。",
    },
    "form": {
        "en": "This answer cannot be compared. Expected: {expects}. Received: {received}",
        "zh": "这个答案无法比较。应为：{expects}。收到：{received}",
    },
    "right": {"en": "Right. {solution}", "zh": "对。{solution}"},
    "wrong": {"en": "Not yet. {more}", "zh": "还不对。{more}"},
    "hint": {"en": "Hint {number} of {count}: {hint}", "zh": "提示 {number}/{count}：{hint}"},
    "spent": {
        "en": 'You have all hints. `solution("{name}")` shows the solution.',
        "zh": '提示已全部给出。`solution("{name}")` 显示答案。',
    },
}

_hints: Counter[str] = Counter()
"""How many hints were given to each exercise."""
_language: list[str] = []
"""The language that was chosen, if any."""


@dataclass(frozen=True, repr=False)
class Reply:
    """What `check`, `hint` and `solution` say. A notebook shows it in a box.

    It is true where the answer is right, so that `assert check("2.1", answer)` works.

    Args:
        exercise: The number of the exercise, such as `"2.3"`.
        text: What is said.
        right: Whether an answer was given, and is right.
    """

    exercise: str
    text: str
    right: bool = False

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return f"{self.exercise}: {self.text}"

    def _repr_html_(self) -> str:
        colour, mark = ("#0072b2", "✓ ") if self.right else ("#d55e00", "")
        return (
            f'<div style="border-left: .25rem solid {colour}; padding: .25rem .75rem">'
            f"<b>{mark}{html.escape(self.exercise)}</b> {html.escape(self.text)}</div>"
        )


def check(exercise: str, answer: Any = ..., *, language: str | None = None) -> Reply:
    """Say whether an answer to an exercise of the course is right.

    Numbers are compared with a tolerance; lists, arrays and tensors of any backend are taken alike.
    Nothing is sent anywhere. A wrong answer gets the next hint, and a right one the explanation.

    Args:
        exercise: The number of the exercise, such as `"2.3"`.
        answer: The answer. Without it, or with `...`, the reply says in which form it is expected.
        language: `"en"` or `"zh"`. Default: as `use_language` says.

    Raises:
        ValueError: If there is no such exercise or language.

    Example:

    >>> from keras_attention.course import check
    >>> check("2.1", 0.3).right
    False
    """
    found, language = _found(exercise), _chosen(language)
    form = {"expects": found.expects[language]}
    if answer is ...:
        return Reply(exercise, WORDS["waiting"][language].format(**form))
    try:
        right = found.expected.is_right(answer)
    except WrongForm:
        said = WORDS["form"][language].format(received=_short(answer), **form)
        return Reply(exercise, said)
    if right:
        said = WORDS["right"][language].format(solution=found.solution[language])
        return Reply(exercise, said, right=True)
    more = _next_hint(exercise, found, language)
    return Reply(exercise, WORDS["wrong"][language].format(more=more))


def hint(exercise: str, *, language: str | None = None) -> Reply:
    """Give the next hint to an exercise; where all were given, say how to see the solution.

    Args:
        exercise, language: As of `check`.

    Raises:
        ValueError: As `check`.
    """
    found, language = _found(exercise), _chosen(language)
    return Reply(exercise, _next_hint(exercise, found, language))


def solution(exercise: str, *, language: str | None = None) -> Reply:
    """Explain the solution of an exercise, once all its hints were given; before, give the next.

    Args:
        exercise, language: As of `check`.

    Raises:
        ValueError: As `check`.
    """
    found, language = _found(exercise), _chosen(language)
    if _hints[exercise] < len(found.hints):
        return Reply(exercise, _next_hint(exercise, found, language))
    return Reply(exercise, found.solution[language])


def use_language(language: str) -> None:
    """Choose the language of replies, which is that of the machine otherwise: English or Chinese.

    Args:
        language: `"en"` or `"zh"`.

    Raises:
        ValueError: If it is another one.
    """
    _language[:] = [_chosen(language)]


def _next_hint(name: str, found: Exercise, language: str) -> str:
    if _hints[name] == len(found.hints):
        return WORDS["spent"][language].format(name=name)
    _hints[name] += 1
    number = _hints[name]
    text = found.hints[number - 1][language]
    return WORDS["hint"][language].format(number=number, count=len(found.hints), hint=text)


def _found(exercise: str) -> Exercise:
    if not isinstance(exercise, str) or exercise not in EXERCISES:
        raise ValueError(
            f"`exercise` should be one of {', '.join(EXERCISES)}. Received: exercise={exercise!r}"
        )
    return EXERCISES[exercise]


def _chosen(language: str | None) -> str:
    if language is None:
        return _language[0] if _language else _language_of_machine()
    if language not in LANGUAGES:
        raise ValueError(f"`language` should be 'en' or 'zh'. Received: language={language!r}")
    return language


def _language_of_machine() -> str:
    name = (locale.getlocale()[0] or "").casefold()
    return "zh" if name.startswith(("zh", "chinese")) else "en"


def _short(answer: Any) -> str:
    shown = " ".join(repr(answer).split())
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
