"""Rankings of candidates against relevance judgements, as trec_eval measures them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..store.files import lines_of

PROTOCOLS = ("filtered", "unfiltered")

Judgements = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class RankingScore:
    """How well candidates are ranked, as means over questions, and which questions these are.

    Attributes:
        map: Mean average precision.
        mrr: Mean reciprocal rank of the first right candidate.
        precision_at_1: Part of the questions whose first candidate is right.
        protocol: `"filtered"` or `"unfiltered"`; figures of the two do not compare.
        questions: How many questions the means are over.
        without_right: Questions left out because no candidate is right.
        only_right: Questions without a wrong candidate, which `"filtered"` leaves out.

    Example:

    >>> score = ranking_score({"q1": {"a": 0.9, "b": 0.5}}, {"q1": {"a": 0, "b": 1}})
    >>> score.mrr, score.precision_at_1, score.questions
    (0.5, 0.0, 1)
    """

    map: float
    mrr: float
    precision_at_1: float
    protocol: str
    questions: int
    without_right: int = 0
    only_right: int = 0

    def __str__(self) -> str:
        return (
            f"MAP {self.map:.4f}  MRR {self.mrr:.4f}  P@1 {self.precision_at_1:.4f} "
            f"({self.protocol}: {self.questions} questions)"
        )


def ranking_score(run: Run, judgements: Judgements, protocol: str = "filtered") -> RankingScore:
    """Mean average precision, mean reciprocal rank and precision at 1 of ranked candidates.

    For a question whose candidates, best first, are right at the ranks `r_1 < ... < r_R`,

    `AP = (1/R) Σ_i i / r_i`, `RR = 1 / r_1`, `P@1 = [r_1 = 1]`.

    The order is trec_eval's: by score, highest first; scores that are equal in single precision by
    id, the greater first (as bytes: `"9"` before `"10"`). A right candidate without a score counts
    as never found.

    Args:
        run, judgements: For each question id the score, and the label (above 0 is right), of each
            candidate id.
        protocol: `"filtered"` leaves out questions without a right candidate, and those with right
            ones only (WikiQA's published results, 237 test questions); `"unfiltered"` leaves out
            the former alone (243), since they have no average precision.

    Raises:
        ValueError: If the protocol is another, a judged question has no scores, a score is not a
            number, or no question is left.

    Reference:
        [trec_eval](https://github.com/usnistgov/trec_eval), measures `map` and `recip_rank`; Yang,
        Yih and Meek 2015, "WikiQA: A Challenge Dataset for Open-Domain Question Answering", §4.

    Example:

    >>> run = {"q1": {"a": 0.9, "b": 0.5, "c": 0.1}, "q2": {"a": 0.3, "b": 0.3}}
    >>> judgements = {"q1": {"a": 0, "b": 1, "c": 0}, "q2": {"a": 0, "b": 1}}
    >>> print(ranking_score(run, judgements))
    MAP 0.7500  MRR 0.7500  P@1 0.5000 (filtered: 2 questions)
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"`protocol` must be one of {list(PROTOCOLS)}. Received: {protocol!r}")
    found = []  # average precision, reciprocal rank and precision at 1 of each question
    without_right = only_right = 0
    for question, labels in judgements.items():
        right = sum(label > 0 for label in labels.values())
        if not right:
            without_right += 1
            continue
        if right == len(labels):
            only_right += 1
            if protocol == "filtered":
                continue
        if question not in run:
            raise ValueError(
                f"`run` should have scores of every question with judgements. Received: none of "
                f"{question!r}"
            )
        order = rank(run[question])
        ranks = [place for place, name in enumerate(order, 1) if labels.get(name, 0) > 0]
        average = sum(count / place for count, place in enumerate(ranks, 1)) / right
        found.append((average, 1 / ranks[0] if ranks else 0.0, ranks[:1] == [1]))
    if not found:
        raise ValueError(
            f"No question is left to measure under the protocol {protocol!r}. Received: "
            f"{len(judgements)} questions, of which {without_right} have no right candidate and "
            f"{only_right} have right ones only"
        )
    mean, reciprocal, first = np.mean(found, axis=0).tolist()
    return RankingScore(mean, reciprocal, first, protocol, len(found), without_right, only_right)


def rank(scores: Mapping[str, float]) -> list[str]:
    """Return candidate ids in `ranking_score`'s order; ValueError where a score is no number."""
    for name, score in scores.items():
        if score != score:
            raise ValueError(f"Each score must be a number. Received: {score} for {name!r}")
    single = {name: np.float32(score) for name, score in scores.items()}
    return sorted(scores, key=lambda name: (single[name], name.encode()), reverse=True)


def pair_accuracy(run: Run, judgements: Judgements, threshold: float = 0.0) -> float:
    """Part of all candidates that the score calls rightly; "all are wrong" gets 0.95 on WikiQA.

    Args:
        run, judgements: As for `ranking_score`.
        threshold: Candidates with a higher score count as called right: 0 for log-odds.

    Raises:
        ValueError: If a judged candidate has no score, or there is none.
    """
    hits = total = 0
    for question, labels in judgements.items():
        for name, label in labels.items():
            if name not in run.get(question, {}):
                raise ValueError(
                    "`run` should have a score of every judged candidate. Received: none of "
                    f"{name!r} of question {question!r}"
                )
            hits += (run[question][name] > threshold) == (label > 0)
            total += 1
    if not total:
        raise ValueError("There must be at least one judged candidate. Received: none")
    return hits / total


def read_trec_run(path: str | os.PathLike) -> dict[str, dict[str, float]]:
    """Read a run in trec_eval's form: `question Q0 candidate rank score name` on each line.

    Returns for each question id the score of each candidate id. As in trec_eval, only scores rank:
    ranks and the order of the lines do not count.

    Raises:
        ValueError: Naming file and line, if a line has another form or a candidate comes twice; and
            if the file is missing, empty, a pipe or a device.
    """
    return _read(path, 6, 4, float, "question Q0 candidate rank score name")


def read_trec_judgements(path: str | os.PathLike) -> dict[str, dict[str, int]]:
    """Read relevance judgements ("qrels"): `question 0 candidate label` on each line.

    Returns for each question id the label of each candidate id; errors are as of `read_trec_run`.
    """
    return _read(path, 4, 3, int, "question 0 candidate label")


def trec_run_lines(run: Run, name: str = "keras-attention") -> list[str]:
    """Return the lines of a run in trec_eval's form, in the order of their ranks.

    The last field is the `name` of the run. An id that is empty or has spaces raises a ValueError.
    """
    lines = []
    for question, scores in run.items():
        for place, candidate in enumerate(rank(scores), 1):
            for word in (question, candidate):
                if word.split() != [word]:
                    raise ValueError(
                        f"An id must be one word without spaces to be written. Received: {word!r}"
                    )
            lines.append(f"{question} Q0 {candidate} {place} {scores[candidate]:.9g} {name}")
    return lines


def _read(
    path: str | os.PathLike, fields: int, column: int, number: Callable[[str], Any], form: str
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for position, line in enumerate(lines_of(path), 1):
        words = line.split()
        if not words:
            continue
        place = f"{path}, line {position}"
        try:
            value = number(words[column]) if len(words) == fields else None
        except ValueError:
            value = None
        if value is None:
            raise ValueError(f"{place}: expected `{form}`. Received: {line[:80]!r}")
        question, candidate = words[0], words[2]
        if candidate in found.setdefault(question, {}):
            raise ValueError(
                f"{place}: each candidate of a question should come once. Received: again "
                f"{candidate!r} of {question!r}"
            )
        found[question][candidate] = value
    return found
