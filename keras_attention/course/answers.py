"""How an answer is compared: by numbers with a tolerance, by a choice of words, by a property."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

Text = Mapping[str, str]
"""A text in each language of the course: `"en"` and `"zh"`."""


class WrongForm(ValueError):
    """An answer that cannot be compared, such as a word where a number is expected."""


def as_array(answer: Any) -> np.ndarray:
    """Return numbers, a tensor, or nested lists of them, as an array of float64.

    Raises:
        WrongForm: If something in it is no number.
    """
    try:
        array = np.asarray(_without_tensors(answer))
    except (TypeError, ValueError, RuntimeError) as error:
        raise WrongForm from error
    if array.dtype.kind not in "iuf":
        raise WrongForm
    return array.astype("float64")


def _without_tensors(answer: Any) -> Any:
    if isinstance(answer, (list, tuple)):
        return [_without_tensors(part) for part in answer]
    if keras.ops.is_tensor(answer) or isinstance(answer, keras.Variable):
        return np.asarray(keras.ops.convert_to_numpy(answer))
    return answer


@dataclass(frozen=True)
class Numbers:
    """Expects numbers in a certain form.

    Args:
        values: A number, or nested lists of them.
        tolerance: How far each number of the answer may be from its value.
        repeated: Whether one value may also come as an array of any shape that holds it everywhere.
    """

    values: Any
    tolerance: float = 1e-3
    repeated: bool = False

    def is_right(self, answer: Any) -> bool:
        """Whether an answer is within the tolerance.

        Raises:
            WrongForm: If it is of another shape, or holds something that is no number.
        """
        array, values = as_array(answer), np.asarray(self.values, "float64")
        if array.shape != values.shape and not (self.repeated and array.size):
            raise WrongForm
        return bool(np.all(np.abs(array - values) <= self.tolerance))


@dataclass(frozen=True)
class Choice:
    """Expects one of several words, or one for each of several questions.

    Args:
        right: The right word of each question.
        words: The words of each question, and for each its spellings in other languages.
    """

    right: Sequence[str]
    words: Sequence[Mapping[str, Sequence[str]]]

    def is_right(self, answer: Any) -> bool:
        """Whether each word is the right one.

        Raises:
            WrongForm: If there are more or fewer, or one is none of the words to choose from.
        """
        given = [answer] if isinstance(answer, str) else answer
        if not isinstance(given, (list, tuple)) or len(given) != len(self.words):
            raise WrongForm
        chosen = [_chosen(word, known) for word, known in zip(given, self.words, strict=True)]
        return chosen == list(self.right)


def _chosen(word: Any, known: Mapping[str, Sequence[str]]) -> str:
    if isinstance(word, str):
        plain = unicodedata.normalize("NFKC", word).strip().casefold()
        for name, others in known.items():
            if plain in (name, *others):
                return name
    raise WrongForm


@dataclass(frozen=True)
class Formula:
    """Expects a function, which is tried with several arguments, or its value for the first.

    Args:
        function: The right function.
        arguments: Lists of arguments to try.
        tolerance: How far a result may be from that of `function`.
    """

    function: Callable[..., Any]
    arguments: Sequence[Sequence[float]]
    tolerance: float = 1e-6

    def is_right(self, answer: Any) -> bool:
        """Whether the results are the same for all arguments.

        Raises:
            WrongForm: If the answer is neither a number nor a function of these arguments.
        """
        if not callable(answer):
            return Numbers(self.function(*self.arguments[0]), self.tolerance).is_right(answer)
        for arguments in self.arguments:
            try:
                given = answer(*arguments)
            except Exception as error:  # a function of the reader's may raise anything
                raise WrongForm from error
            if not Numbers(self.function(*arguments), self.tolerance).is_right(given):
                return False
        return True


@dataclass(frozen=True)
class Property:
    """Expects an array that has a property, where the numbers themselves are random.

    Args:
        shape: The shape of the array.
        holds: Says whether an array of this shape has the property.
    """

    shape: tuple[int, ...]
    holds: Callable[[np.ndarray], bool]

    def is_right(self, answer: Any) -> bool:
        """Whether the array has the property.

        Raises:
            WrongForm: If it has another shape, or holds something that is no number.
        """
        array = as_array(answer)
        if array.shape != self.shape:
            raise WrongForm
        return bool(self.holds(array))
