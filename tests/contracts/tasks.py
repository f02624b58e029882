"""Every public task: how it is made and used, for the checks of test_tasks.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras

from keras_attention import CoverageAttention, LuongAttention
from keras_attention.applications import (
    answer_selection,
    classification,
    summarization,
    tagging,
    translation,
)

WORDS = ("a", "dog", "runs", "in", "the", "old", "park", "and", "sees", "one", "bird")
TEXTS = [" ".join(WORDS[i % 5 : i % 5 + 2 + i % 3]) for i in range(12)]
LABELS = ["yes" if i % 2 else "no" for i in range(12)]
PAIRS = [(TEXTS[i], TEXTS[-i]) for i in range(12)]
DOCUMENTS = [f"{TEXTS[i]} . {TEXTS[-i]} ." for i in range(12)]
SHORT = {"max_length": 3, "beam_size": 2}
TAGS = [["B-A" if word == "dog" else "O" for word in text.split()] for text in TEXTS]
QUESTIONS = [(TEXTS[i], [TEXTS[i], TEXTS[-i - 1]], [1, 0]) for i in range(6)]


@dataclass(frozen=True)
class TaskEntry:
    """A task, by its public calls.

    Args:
        make: given keyword arguments of the network, the task with new weights.
        data: what `fit` takes.
        use: the results of the task's verb, as JSON types.
        swapped: the keyword arguments that change one part of the network for another layer.
        networks: the public networks that the task takes.
    """

    make: Callable[..., Any]
    data: tuple
    use: Callable[[Any], Any]
    swapped: Callable[[], dict]
    networks: tuple[type, ...]


def translator(network=translation.RNNSearch, **arguments):
    preprocessor = translation.TranslationPreprocessor.adapt(TEXTS, TEXTS, kind="words")
    sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
    return translation.Translator(
        network(*sizes, **SIZES[network], **arguments), preprocessor, search=SHORT
    )


SIZES = {
    translation.RNNSearch: {"embedding_size": 5, "units": 6},
    translation.RNNEncDec: {"embedding_size": 5, "units": 6},
    translation.Luong: {"embedding_size": 5, "units": 6, "layers": 2},
    translation.Transformer: {
        "embedding_size": 6,
        "layers": 1,
        "heads": 2,
        "feed_forward_size": 7,
    },
}


def rounded(value: float) -> float:
    return round(float(value), 4)


TASKS = {
    "Translator": TaskEntry(
        make=translator,
        data=(TEXTS, TEXTS),
        use=lambda task: [[each.text, rounded(each.score)] for each in task.translate(TEXTS[:3])],
        swapped=lambda: {
            "attention": LuongAttention("concat", units=5),
            "cell": keras.layers.LSTMCell(6),
        },
        networks=(*SIZES, translation.Ensemble),  # whose own test is test_ensemble.py
    ),
    "Summarizer": TaskEntry(
        make=lambda **arguments: summarization.Summarizer.from_texts(
            DOCUMENTS, TEXTS, units=6, embedding_size=5, search=SHORT, **arguments
        ),
        data=(DOCUMENTS, TEXTS),
        use=lambda task: [
            [each.text, rounded(each.score)] for each in task.summarize(DOCUMENTS[:2])
        ],
        swapped=lambda: {"attention": CoverageAttention(5, use_bias=True)},
        networks=(summarization.SummarizationModel,),
    ),
    "AnswerRanker": TaskEntry(
        make=lambda **arguments: answer_selection.AnswerRanker.from_questions(
            QUESTIONS, units=6, **arguments
        ),
        data=(QUESTIONS,),
        use=lambda task: [
            [each.text, rounded(each.score)] for each in task.rank(*QUESTIONS[0][:2])
        ],
        swapped=lambda: {"encoder": "compare-aggregate"},
        networks=(answer_selection.AnswerSelector, answer_selection.CompareAggregate),
    ),
    "TextClassifier": TaskEntry(
        make=lambda **arguments: classification.TextClassifier.from_texts(
            TEXTS, LABELS, units=6, **arguments
        ),
        data=(TEXTS, LABELS),
        use=lambda task: [
            [each.label, rounded(max(each.probabilities.values()))]
            for each in task.classify(TEXTS[:3])
        ],
        swapped=lambda: {"architecture": "mean"},
        networks=(classification.Classifier,),
    ),
    "PairClassifier": TaskEntry(
        make=lambda **arguments: classification.PairClassifier.from_texts(
            PAIRS, LABELS, units=6, **arguments
        ),
        data=(PAIRS, LABELS),
        use=lambda task: [
            [each.label, rounded(max(each.probabilities.values()))]
            for each in task.classify(PAIRS[:3])
        ],
        swapped=lambda: {"architecture": "inner"},
        networks=(classification.Classifier,),
    ),
    "TokenClassifier": TaskEntry(
        make=lambda **arguments: tagging.TokenClassifier.from_texts(
            TEXTS, TAGS, units=6, **arguments
        ),
        data=(TEXTS, TAGS),
        use=lambda task: [[each.tags, *map(rounded, each.of_tags)] for each in task.tag(TEXTS[:3])],
        swapped=lambda: {"architecture": "transformer", "heads": 2},
        networks=(tagging.Tagger,),
    ),
}
