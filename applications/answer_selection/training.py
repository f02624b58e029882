"""Training an answer selector: from a configuration to a run folder with weights."""

import dataclasses
from pathlib import Path

import numpy as np

from keras_attention.applications.answer_selection.batches import (
    EncodedQuestions,
    TrainingBatches,
    encode,
)
from keras_attention.applications.answer_selection.config import (
    SPLITS,
    AnswerSelectionConfig,
)
from keras_attention.applications.answer_selection.data import has_split, load_questions
from keras_attention.applications.answer_selection.losses import question_loss, training_loss
from keras_attention.applications.answer_selection.questions import QuestionSet
from keras_attention.applications.answer_selection.run import (
    TASK,
    VECTORS,
    WORDS,
    AnswerSelectionRun,
    load_run,
    new_model,
    word_ids,
)
from keras_attention.applications.answer_selection.scoring import score_questions, scorer
from keras_attention.applications.answer_selection.text import WordIds
from keras_attention.applications.answer_selection.vectors import (
    first_vectors,
    read_vectors,
    with_extra_words,
)
from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.resuming import take_over
from keras_attention.applications.common.run_folder import RunFolder, refuse_existing, writing
from keras_attention.applications.common.training import (
    Outcome,
    check_distribution,
    model_scope,
    start_from_seed,
    train,
)
from keras_attention.metrics import ranking_score
from keras_attention.text import SPECIAL_TOKENS, WordTokenizer


def train_answer_selection(config: AnswerSelectionConfig, output: Path | str) -> Outcome:
    """Train a model into the new run folder `output`.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
    """
    refuse_existing(Path(output))
    check_distribution(config)
    config = with_absolute_paths(config)
    for split, why in (("train", "training data"), ("dev", "development set, to judge it by")):
        if not has_split(config.data, split):
            raise UserError(
                f"name the {why}: --data.{split} F, or --data.dataset facts, or --data.dataset "
                "wikiqa with --data.folder D."
            )
    questions = load_questions(config.data, "train")
    _check(questions, "train")
    _check(load_questions(config.data, "dev"), "dev")
    words, vectors = prepare_words(config, questions)
    new_model(config, words)  # a model that cannot be must not leave a run folder
    with RunFolder.prepare(output, TASK) as folder:
        save_config(config, folder / "config.yaml")
        words.tokenizer.save(folder / "tokenizers", WORDS)
        np.save(folder / "tokenizers" / VECTORS, vectors)
    with writing(RunFolder(output)):
        return _fit(output, questions)


def resume_answer_selection(output: Path | str, config: AnswerSelectionConfig) -> Outcome:
    """Continue a run as if it had never stopped.

    Args:
        output: the run folder.
        config: the run's own configuration, in which `epochs` (but with schedule cosine),
            `max_minutes` and `patience` may have been changed.

    Raises:
        UserError: if another key was changed, or another process trains this run.
    """
    folder = RunFolder(output)
    with writing(folder):  # before config.yaml is written: another process may be reading it
        take_over(folder, with_absolute_paths(config))
        return _fit(output)


def prepare_words(
    config: AnswerSelectionConfig, questions: QuestionSet
) -> tuple[WordIds, np.ndarray]:
    """Return the vocabulary of the training text, and the vectors that training starts from."""
    section = config.vocabulary
    texts = questions.texts
    tokenizer = WordTokenizer.train(
        texts,
        section.size + len(SPECIAL_TOKENS),
        min_count=section.min_count,
        lowercase=section.lowercase,
    )
    file = None
    size = config.model.embedding_size
    if config.vectors.file:
        file = read_vectors(config.vectors.file, size)
        say(str(file))
        tokenizer = with_extra_words(tokenizer, file, config.vectors.extra_words)
    words = word_ids(config, tokenizer)
    seed = config.training.seed
    vectors, report = first_vectors(config.vectors, words, size, seed, texts, file)
    say(report)
    return words, vectors


def _fit(output: Path | str, questions: QuestionSet | None = None) -> Outcome:
    config = load_config(AnswerSelectionConfig, [RunFolder(output).config])
    start_from_seed(config.training)
    with model_scope(config):
        run = load_run(output, weights=False)
    questions = load_questions(config.data, "train") if questions is None else questions
    encoded = encode(questions, run.words)
    section = config.training
    batches = TrainingBatches(encoded, section.batch_size, section.negatives, section.seed)
    development = Development(run)
    for name, each in ((questions, encoded), (development.questions, development.encoded)):
        say(f"{name}; {each.coverage}")
    say(
        f"{config.model.encoder}: {run.model.count_params():,} weights; {batches.rows:,} right "
        f"candidates with {section.negatives} wrong ones each, {len(batches)} batches of "
        f"{section.batch_size}"
    )
    return train(
        run.folder,
        section,
        run.model,
        training_loss(section),
        batches.to_dataset,
        len(batches),
        development,
    )


class Development:
    """The development set: called, it gives the figures of an epoch.

    `val_map` and `val_mrr` are of the filtered protocol; `val_loss` is the mean over the same
    questions of the training loss with all wrong candidates.

    Args:
        run: the run; its model is measured as it is when called.
    """

    def __init__(self, run: AnswerSelectionRun):
        every = load_questions(run.config.data, "dev")
        measured = [question for question in every.questions if question.right and question.wrong]
        self.questions = dataclasses.replace(every, questions=measured)
        self.encoded: EncodedQuestions = encode(self.questions, run.words)
        self._section = run.config.training
        self._judgements = self.questions.judgements
        self._score = scorer(run.model)

    def __call__(self) -> dict[str, float]:
        scores, _ = score_questions(self._score, self.encoded)
        labels = self.encoded.labels
        losses = [question_loss(self._section, *pair) for pair in zip(scores, labels, strict=True)]
        loss = float(np.mean(losses))
        if not np.isfinite(loss):  # the training stops at it, and ranks nothing
            return {"val_loss": loss, "val_map": 0.0, "val_mrr": 0.0}
        result = ranking_score(run_of(self.questions, scores), self._judgements)
        return {"val_loss": loss, "val_map": result.map, "val_mrr": result.mrr}


def run_of(questions: QuestionSet, scores) -> dict[str, dict[str, float]]:
    """Return the scores by the ids of question and candidate, as the metrics want them."""
    return {
        question.id: {
            candidate.id: float(score)
            for candidate, score in zip(question.candidates, values, strict=True)
        }
        for question, values in zip(questions.questions, scores, strict=True)
    }


def with_absolute_paths(config: AnswerSelectionConfig) -> AnswerSelectionConfig:
    """Return `config` with absolute paths, so that a run can be used from any folder."""

    def absolute(section, names):
        given = {name: getattr(section, name) for name in names}
        return dataclasses.replace(
            section,
            **{name: str(Path(p).expanduser().absolute()) for name, p in given.items() if p},
        )

    return dataclasses.replace(
        config,
        data=absolute(config.data, ("folder", *SPLITS)),
        vectors=absolute(config.vectors, ("file",)),
    )


def _check(questions: QuestionSet, split: str) -> None:
    """Refuse a set that nothing can be learned from, or judged by."""
    right = [question for question in questions.questions if question.right]
    if not right:
        raise UserError(f"{questions.name}: no question has a right candidate (label 1).")
    wrong = sum(len(question.wrong) for question in questions.questions)
    if split == "dev" and not any(question.wrong for question in right):
        raise UserError(
            f"{questions.name}: no question has both a right and a wrong candidate; without them, "
            "no ranking is better than another."
        )
    if len(questions) == 1 and not wrong:
        raise UserError(f"{questions.name}: there is no wrong candidate (label 0) to learn from.")
