"""Results of a ranker: answers that show themselves, and reports of many questions."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_attention.visualization import ShadedTokens, display_tokens

from ..data.corpus import Corpus
from ..show.explanation import ExplainedAnswer, Tokens, attention_map
from ..show.results import Shown
from ..show.unknown import unknown_note, unknown_words
from .data import EMPTY, by_ids, judgements_of
from .metrics import ranking_score
from .preprocessor import Coverage

PROTOCOLS = ("filtered", "unfiltered")
PARTS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Answer(Shown):
    """A candidate as the network sees it for a question. In a notebook its words are shaded.

    Args:
        text: the candidate.
        score: its score: a cosine, or log-odds where the network gives these.
        tokens: its words, as far as they are read.
        weights: how much attention each of them got; None where the network's attention gives no
            weights of words.
        position: its place among the candidates that were given, from 0.
        question: the question's words, as far as they are read.
        matrix: how much attention each of these gives to each of `tokens`, where the network
            gives such weights; `weights` are their mean.
        unknown: the indices of the `tokens` that the vocabulary lacks.
        question_unknown: the indices of the unknown words of `question`.

    Example:

    ```python
    from keras_attention.applications.answer_selection import AnswerRanker

    questions = [("who is it ?", ["it is a dog .", "the sky is blue ."], [1, 0])] * 2
    ranker = AnswerRanker.from_questions(questions, units=8)
    best = ranker.rank("who is it ?", ["the sky is blue .", "it is a dog ."])[0]
    print(best.score, best.text, best.position)
    print(best.show(color=False))  # its words, with their weights
    ```
    """

    text: str
    score: float
    tokens: list[str]
    weights: np.ndarray | None = dataclasses.field(repr=False)
    position: int
    question: Sequence[str] = dataclasses.field(default=(), repr=False)
    matrix: np.ndarray | None = dataclasses.field(default=None, repr=False)
    unknown: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    question_unknown: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    @property
    def note(self) -> str:
        """How many words of the candidate are unknown, and which; "" where all are known."""
        return unknown_note(*unknown_words(self.tokens, self.unknown))

    @property
    def shaded(self) -> list[ShadedTokens]:
        weights = np.zeros(len(self.tokens)) if self.weights is None else self.weights
        return [ShadedTokens(self.tokens, weights, label=f"{self.score:.3f}")]

    def explained(self) -> ExplainedAnswer:
        """Return the answer with its attention, for a page."""
        if self.weights is None:
            return ExplainedAnswer(self.text, self.score)
        of_question = self.matrix is not None
        rows: Tokens | list[str] = [f"{self.score:.3f}"]
        if of_question:
            labels = display_tokens(self.question)
            rows = Tokens(labels, unknown=list(self.question_unknown))
        columns = Tokens(display_tokens(self.tokens), unknown=list(self.unknown))
        weights = self.matrix if of_question else [self.weights]
        shown = attention_map("attention", rows, columns, weights)
        return ExplainedAnswer(self.text, self.score, [shown])


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking(Shown, Sequence):
    """The answers to a question, best first: a sequence of `Answer`. A notebook shows them shaded.

    Args:
        question: the question.
        answers: its candidates, best first; equal ones in the order given.

    Example:

    ```python
    from keras_attention.applications.answer_selection import AnswerRanker

    questions = [("who is it ?", ["it is a dog .", "the sky is blue ."], [1, 0])] * 2
    ranker = AnswerRanker.from_questions(questions, units=8)
    ranking = ranker.rank("who is it ?", ["the sky is blue .", "it is a dog ."])
    print([answer.text for answer in ranking])
    ranking.plot("ranking.png")
    ```
    """

    question: str
    answers: tuple[Answer, ...]

    def __getitem__(self, place):
        return self.answers[place]

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def title(self) -> str:
        return self.question

    @property
    def note(self) -> str:
        """How many words of all texts are unknown, and which; "" where all are known."""
        first = self.answers[0]
        found = [unknown_words(each.tokens, each.unknown) for each in self.answers]
        found.insert(0, unknown_words(first.question, first.question_unknown))
        words = [word for _, unknown in found for word in unknown]
        return unknown_note(sum(count for count, _ in found), words)

    @property
    def shaded(self) -> list[ShadedTokens]:
        return [row for answer in self.answers for row in answer.shaded]


def evaluation_report(
    questions: Corpus,
    scores: Sequence[np.ndarray],
    tokens: Callable[[str], list[str]],
    protocol: str = "filtered",
) -> dict[str, Any]:
    """Return MAP, MRR and precision at 1, and those of rankings by words alone, as JSON types.

    On top stand the figures of `protocol`; `"filtered"` and `"unfiltered"` hold those of both, but
    for one that leaves no question to measure.

    Raises:
        ValueError: where `protocol` leaves no question.
    """
    judgements = judgements_of(questions)

    def figures(values):
        ranked, found = by_ids(questions, _floats(values)), {}
        for each in PROTOCOLS:
            try:
                found[each] = dataclasses.asdict(ranking_score(ranked, judgements, each))
            except ValueError:
                if each == protocol:
                    raise
        return found

    own = figures(scores)
    chosen = own[protocol]
    baselines = by_words(questions, tokens)
    return {
        **{name: chosen[name] for name in ("map", "mrr", "precision_at_1")},
        "signature": f"protocol:{protocol}|questions:{chosen['questions']}|ties:trec_eval",
        "data": questions.name,
        "questions": len(questions),
        "candidates": sum(map(len, scores)),
        "empty_left_out": questions.report.left_out.get(EMPTY, 0),
        **own,
        "baselines": {name: figures(values) for name, values in baselines.items()},
    }


def _floats(values: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(map(float, row)) for row in values]


def by_words(questions: Corpus, tokens: Callable[[str], list[str]]) -> dict[str, list[list[float]]]:
    """Return scores of candidates by the words that they share with their question.

    Word overlap is how many different words of the question a candidate has. BM25 (Robertson and
    Zaragoza 2009, section 3.4) weighs each by how rare it is among all candidates, how often the
    candidate has it (more count less, by `k1`), and how long the candidate is (by `b`).
    """
    k1, b = 1.2, 0.75
    bags = [[Counter(tokens(text)) for text in some] for some in questions["candidates"]]
    every = [bag for row in bags for bag in row]
    spread = Counter(word for bag in every for word in bag)
    mean = sum(bag.total() for bag in every) / len(every) or 1.0  # 0 where none has words

    def rarity(word):
        return math.log(1 + (len(every) - spread[word] + 0.5) / (spread[word] + 0.5))

    def bm25(words, bag):
        full = k1 * (1 - b + b * bag.total() / mean)
        return sum(rarity(word) * bag[word] * (k1 + 1) / (bag[word] + full) for word in words)

    def overlap(words, bag):
        return float(sum(word in bag for word in words))

    asked = [sorted(set(tokens(text))) for text in questions["question"]]
    pairs = list(zip(asked, bags, strict=True))
    return {
        name: [[score(words, bag) for bag in row] for words, row in pairs]
        for name, score in {"bm25": bm25, "word_overlap": overlap}.items()
    }


def by_word(weights: np.ndarray | None) -> np.ndarray | None:
    """Return the weight of each word: that of a matrix `(S, T)` in the mean over the question."""
    return weights if weights is None or weights.ndim == 1 else weights.mean(axis=0)


def by_position(weights: Sequence[np.ndarray], parts: int = PARTS) -> list[float]:
    """Return the part of attention on each of `parts` equal parts of a text, in the mean.

    Each text's weights are made to sum to 1. A word that lies in two parts counts in both, by how
    much of it lies there: uniform weights give equal parts for texts of any length.
    """
    edges = np.linspace(0, 1, parts + 1)
    shares = []
    for row in weights:
        total = float(np.sum(row))
        if total > 0:
            reached = np.concatenate([[0.0], np.cumsum(np.asarray(row, "float64")) / total])
            shares.append(np.diff(np.interp(edges, np.linspace(0, 1, len(row) + 1), reached)))
    return np.mean(shares, axis=0).tolist() if shares else [0.0] * parts


def table(report: dict[str, Any]) -> str:
    """Write a report for people."""
    counted = f"{report['questions']:,} questions with {report['candidates']:,} candidates"
    lines = [f"{counted} of {report['data']}"]
    if report["empty_left_out"]:
        lines.append(f"{report['empty_left_out']:,} empty texts left out")
    lines.append(str(Coverage(report["words"], report["unknown"], report["cut"])))
    lines += ["", f"{'protocol':<12} {'questions':>9} {'MAP':>8} {'MRR':>8} {'P@1':>8}"]
    measured = [protocol for protocol in PROTOCOLS if protocol in report]
    for protocol in measured:
        rows = {protocol: report[protocol]}
        named = {"  BM25": "bm25", "  overlap": "word_overlap"}
        rows |= {name: report["baselines"][key][protocol] for name, key in named.items()}
        for name, row in rows.items():
            figures = (f"{row[key]:>8.4f}" for key in ("map", "mrr", "precision_at_1"))
            lines.append(f"{name:<12} {row['questions']:>9,} {' '.join(figures)}")
    row = report[measured[0]]
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
