"""Answer selection: a Keras task that ranks the candidate answers of a question."""

from keras_attention.applications.answer_selection.config import (
    AnswerSelectionConfig,
    DataConfig,
    ModelConfig,
    TrainingConfig,
    VectorsConfig,
    VocabularyConfig,
)
from keras_attention.applications.answer_selection.data import load_questions, read_questions
from keras_attention.applications.answer_selection.model import (
    AnswerSelector,
    HardestHinge,
    Reader,
    build_model,
)
from keras_attention.applications.answer_selection.preprocessor import AnswerPreprocessor
from keras_attention.applications.answer_selection.questions import (
    Candidate,
    Question,
    QuestionSet,
)
from keras_attention.applications.answer_selection.ranker import AnswerRanker, Ranker
from keras_attention.applications.answer_selection.results import Answer, Ranking
from keras_attention.applications.answer_selection.vectors import (
    read_vectors,
    train_vectors,
    write_vectors,
)

__all__ = [
    "Answer",
    "AnswerPreprocessor",
    "AnswerRanker",
    "AnswerSelectionConfig",
    "AnswerSelector",
    "Candidate",
    "DataConfig",
    "HardestHinge",
    "ModelConfig",
    "Question",
    "QuestionSet",
    "Ranker",
    "Ranking",
    "Reader",
    "TrainingConfig",
    "VectorsConfig",
    "VocabularyConfig",
    "build_model",
    "load_questions",
    "read_questions",
    "read_vectors",
    "train_vectors",
    "write_vectors",
]
