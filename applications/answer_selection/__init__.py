"""The answer selection application: what the verbs of the command do, as functions."""

from keras_attention.applications.answer_selection.config import (
    AnswerSelectionConfig,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    VectorsConfig,
    VocabularyConfig,
)
from keras_attention.applications.answer_selection.data import load_questions, read_questions
from keras_attention.applications.answer_selection.evaluation import evaluate
from keras_attention.applications.answer_selection.export import export_saved_model
from keras_attention.applications.answer_selection.model import AnswerSelector
from keras_attention.applications.answer_selection.picture import shade
from keras_attention.applications.answer_selection.questions import (
    Candidate,
    Question,
    QuestionSet,
)
from keras_attention.applications.answer_selection.ranker import Answer, Ranker
from keras_attention.applications.answer_selection.run import load_run
from keras_attention.applications.answer_selection.training import (
    resume_answer_selection,
    train_answer_selection,
)
from keras_attention.applications.answer_selection.vectors import (
    read_vectors,
    train_vectors,
    write_vectors,
)

__all__ = [
    "Answer",
    "AnswerSelectionConfig",
    "AnswerSelector",
    "Candidate",
    "DataConfig",
    "ModelConfig",
    "Question",
    "QuestionSet",
    "Ranker",
    "TrainingConfig",
    "VectorsConfig",
    "VocabularyConfig",
    "evaluate",
    "export_saved_model",
    "load_questions",
    "load_run",
    "read_questions",
    "read_vectors",
    "resume_answer_selection",
    "shade",
    "train_answer_selection",
    "train_vectors",
    "write_vectors",
]
