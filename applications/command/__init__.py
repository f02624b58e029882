"""The `keras-attention` command up to the moment where it needs Keras."""

from .parser import build_parser, main, parse
from .quiet import quiet
from .tasks import TASKS

__all__ = ["TASKS", "build_parser", "main", "parse", "quiet"]
