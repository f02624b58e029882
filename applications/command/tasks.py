"""The tasks that the command knows: a new one is added here, and nowhere else in the command."""

from .answer_selection import ANSWER_SELECTION
from .classification import CLASSIFICATION
from .summarization import SUMMARIZATION
from .translation import TRANSLATION

TASKS = {task.name: task for task in (TRANSLATION, ANSWER_SELECTION, CLASSIFICATION, SUMMARIZATION)}
