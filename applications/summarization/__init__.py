"""The summarisation application: what the verbs of the command do, as functions."""

from keras_attention.applications.summarization.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    SummarizationConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_attention.applications.summarization.documents import (
    load_corpus,
    read_corpus,
    split_sentences,
)
from keras_attention.applications.summarization.evaluation import evaluate
from keras_attention.applications.summarization.export import export_saved_model
from keras_attention.applications.summarization.model import SummarizationModel
from keras_attention.applications.summarization.picture import draw
from keras_attention.applications.summarization.run import load_run
from keras_attention.applications.summarization.summarizer import Summarizer, Summary
from keras_attention.applications.summarization.training import (
    resume_summarization,
    train_summarization,
)

__all__ = [
    "DataConfig",
    "DecodingConfig",
    "ModelConfig",
    "SummarizationConfig",
    "SummarizationModel",
    "Summarizer",
    "Summary",
    "TokenizerConfig",
    "TrainingConfig",
    "draw",
    "evaluate",
    "export_saved_model",
    "load_corpus",
    "load_run",
    "read_corpus",
    "resume_summarization",
    "split_sentences",
    "train_summarization",
]
