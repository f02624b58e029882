"""Measuring an answer selection run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attention.applications.answer_selection.batches import encode
from keras_attention.applications.answer_selection.data import (
    has_split,
    load_questions,
    read_questions,
)
from keras_attention.applications.answer_selection.questions import QuestionSet
from keras_attention.applications.answer_selection.run import AnswerSelectionRun, load_run
from keras_attention.applications.answer_selection.scoring import score_questions, scorer
from keras_attention.applications.answer_selection.text import Coverage
from keras_attention.applications.answer_selection.training import run_of
from keras_attention.applications.common.errors import UserError
from keras_attention.metrics import pair_accuracy, ranking_score, trec_run_lines

PROTOCOLS = ("filtered", "unfiltered")
PARTS = 10


def evaluation_questions(
    run: AnswerSelectionRun, split: str | None = None, file: str | None = None
) -> QuestionSet:
    """Return the questions to measure on: a file's, or one of the run's own sets."""
    data = run.config.data
    if file and split:
        raise UserError("give --split or --file, not both.")
    if file:
        return read_questions(file, data.on_empty)
    return load_questions(data, split or ("test" if has_split(data, "test") else "dev"))


def evaluate(
    run: AnswerSelectionRun | Path | str, questions: QuestionSet | None = None
) -> tuple[dict, list[str]]:
    """Measure a run: MAP, MRR and precision at 1 under both protocols, and accuracy.

    Where the model gives weights to words, `attention_by_position` says where they lie: the part
    of a candidate's attention on each tenth of it, in the mean over all candidates. Attention that
    favours no place has 0.1 everywhere.

    Args:
        run: a run folder, or a run that is loaded.
        questions: the questions to measure on; None for the run's own test set, or its development
            set where it has none.

    Returns:
        The figures, as JSON types, and the ranking as lines of trec_eval's form.

    Raises:
        UserError: if there is no such run, or its questions cannot be read.
    """
    run = run if isinstance(run, AnswerSelectionRun) else load_run(run)
    questions = evaluation_questions(run) if questions is None else questions
    judgements = questions.judgements
    encoded = encode(questions, run.words)
    scores, weights = score_questions(scorer(run.model), encoded)
    ranked = run_of(questions, scores)
    report: dict = {
        "data": questions.name,
        "questions": len(questions),
        "candidates": sum(map(len, scores)),
        "empty_left_out": questions.empty,
        **dataclasses.asdict(encoded.coverage),
    }
    for protocol in PROTOCOLS:
        report[protocol] = dataclasses.asdict(ranking_score(ranked, judgements, protocol))
    # A cosine has no natural threshold: log-odds alone say "right" of a pair by itself.
    log_odds = run.config.training.loss == "log"
    report["accuracy"] = pair_accuracy(ranked, judgements) if log_odds else None
    flat = [row for rows in weights for row in rows]
    report["attention_by_position"] = by_position(flat) if run.model.has_weights else None
    return report, trec_run_lines(ranked)


def by_position(weights: Sequence[np.ndarray], parts: int = PARTS) -> list[float]:
    """Return the part of attention on each of `parts` equal parts of a text, in the mean.

    Each text's weights are made to sum to 1. A word that lies in two parts counts in both, by how
    much of it lies there: uniform weights give equal parts for texts of any length.

    Args:
        weights: for each text the weight of each word.
        parts: how many parts.
    """
    edges = np.linspace(0, 1, parts + 1)
    shares = []
    for row in weights:
        total = float(np.sum(row))
        if total > 0:
            reached = np.concatenate([[0.0], np.cumsum(np.asarray(row, "float64")) / total])
            shares.append(np.diff(np.interp(edges, np.linspace(0, 1, len(row) + 1), reached)))
    return np.mean(shares, axis=0).tolist() if shares else [0.0] * parts


def table(report: dict) -> str:
    """Write a report of `evaluate` for people."""
    lines = [
        f"{report['questions']:,} questions with {report['candidates']:,} candidates of "
        f"{report['data']}"
    ]
    if report["empty_left_out"]:
        lines.append(f"{report['empty_left_out']:,} empty texts left out")
    lines.append(str(Coverage(report["words"], report["unknown"], report["cut"])))
    lines += ["", f"{'protocol':<12} {'questions':>9} {'MAP':>8} {'MRR':>8} {'P@1':>8}"]
    for protocol in PROTOCOLS:
        row = report[protocol]
        lines.append(
            f"{protocol:<12} {row['questions']:>9,} {row['map']:>8.4f} {row['mrr']:>8.4f} "
            f"{row['precision_at_1']:>8.4f}"
        )
    row = report["filtered"]
    lines += [
        "",
        f"{row['without_right']:,} questions have no right candidate: left out by both protocols.",
        f"{row['only_right']:,} have right ones only: left out by the filtered one.",
    ]
    if report["accuracy"] is not None:
        lines.append(f"accuracy over all candidates: {report['accuracy']:.4f}")
    if report["attention_by_position"]:
        shares = " ".join(f"{share:.1%}" for share in report["attention_by_position"])
        lines += ["", f"attention on each tenth of a candidate, first to last: {shares}"]
    return "\n".join(lines)
