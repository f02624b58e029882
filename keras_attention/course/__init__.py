"""Checks of the course's exercises: `check("2.3", answer)` says whether an answer is right."""

from keras_attention.course.checks import Reply, check, hint, solution, use_language

__all__ = ["Reply", "check", "hint", "solution", "use_language"]
