"""The answer ranker: a Keras task from a question and candidates to the candidates, best first."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, get_args

import keras
import numpy as np
from keras import ops

from ..base.backend import of_at_most, service_of
from ..base.preprocessor import as_texts, check_equally_many
from ..base.task import TextTask
from ..data.corpus import Corpus, corpus_at_hand
from ..data.encoded import Encoded
from ..data.lengths import OnTooLong, TooLong
from ..errors import (
    UserError,
    check_choice,
    check_counts,
    check_number,
    check_single,
    quietly,
    say,
    shown,
)
from ..schema.keys import with_keys
from ..show.explanation import Explanation, check_drawn, is_page
from ..show.results import Results
from ..store.files import check_new_file, output_file
from .batches import TrainingBatches, encode
from .config import AnswerSelectionConfig, TrainingConfig
from .data import as_questions, by_ids, check, judgements_of, load_corpus, texts_of
from .metrics import pair_accuracy, ranking_score, trec_run_lines
from .networks.base import AnswerNetwork
from .networks.selector import HardestHinge, build_model
from .preprocessor import AnswerPreprocessor, padded
from .results import PROTOCOLS, Answer, Ranking, by_position, by_word, evaluation_report
from .vectors import first_vectors, read_vectors

PAIRS_IN_A_BATCH = 256
OBJECTIVES = get_args(TrainingConfig.__annotations__["loss"])


@keras.saving.register_keras_serializable("keras_attention.answer_selection")
class AnswerRanker(TextTask):
    """Ranks candidate answers of a question: a network and its preprocessor.

    Training makes each right candidate exceed the hardest of a few wrong ones, drawn anew in each
    epoch; `objective` names two more ways.

    Args:
        backbone: the network, an `AnswerSelector` or a `CompareAggregate`.
        preprocessor: what turns texts into its ids.
        negatives: wrong candidates drawn for each right one in each epoch: the question's own
            first, then other questions' candidates.
        margin: by how much a right candidate should exceed the hardest wrong one.
        objective: what `fit` minimises, as `training.loss` of the configuration: `"hinge"`, `"log"`
            or `"listwise"`; None for `"log"` where the network's `log_odds` says so, else
            `"hinge"`.
        **kwargs: `name`, `compile` and the like of `keras_hub.models.Task`.

    Raises:
        ValueError: where network and preprocessor are of different vocabularies.

    Example:

    ```python
    from keras_attention.applications.answer_selection import AnswerRanker

    questions = [("who is it ?", ["it is a dog .", "the sky is blue ."], [1, 0])] * 8
    ranker = AnswerRanker.from_questions(questions, units=8)
    ranker.fit(questions, epochs=1, verbose=0)
    best = ranker.rank("who is it ?", ["the sky is blue .", "it is a dog ."])[0]
    print(best.score, best.text)
    ```
    """

    name_of_task = "answer-selection"
    action = "Rank"
    config_class = AnswerSelectionConfig
    asks: ClassVar = {"question": "Question", "candidates": "Candidates, one on each line"}
    network_class, preprocessor_cls = AnswerNetwork, AnswerPreprocessor
    must_fit: ClassVar = {"vocabulary_size": "vocabulary_size"}
    training_keys: ClassVar = {"loss": "objective", "margin": "margin", "negatives": "negatives"}
    preprocessor_keys: ClassVar = {"data.max_length": "max_length"}
    served_letters = 100_000  # of which `max_length` words are read

    def __init__(
        self,
        backbone: AnswerNetwork,
        preprocessor: AnswerPreprocessor | None = None,
        negatives: int = 5,
        margin: float = 0.2,
        objective: str | None = None,
        **kwargs: Any,
    ):
        check_counts(negatives=negatives)
        check_number("`margin`", margin, 0)
        if objective is not None:
            check_choice("objective", objective, OBJECTIVES)
        log_odds = getattr(backbone, "log_odds", False)
        if objective in OBJECTIVES[1:] and not log_odds:
            raise ValueError(
                f"objective={objective!r} needs a network of logits: an AnswerSelector with "
                "log_odds=True, or a CompareAggregate. "
                f"Received: {type(backbone).__name__} with log_odds={log_odds}"
            )
        objective = objective or ("log" if log_odds else "hinge")
        self.keep(negatives=int(negatives), margin=float(margin), objective=objective)
        super().__init__(backbone, preprocessor, **kwargs)

    @classmethod
    def from_questions(
        cls,
        questions: Any,
        units: int = 100,
        *,
        embedding_size: int = 100,
        vectors: Path | str | None = None,
        trainable_vectors: bool = True,
        seed: int = 0,
        tokenizer: Mapping[str, Any] | None = None,
        max_length: int = 40,
        objective: str | None = None,
        dtype: Any = None,
        **model: Any,
    ) -> "AnswerRanker":
        """Return a task for questions like those given, with new weights.

        Args:
            questions: as `fit` takes them.
            units: the size of a GRU's state.
            embedding_size: the size of a word's vector.
            vectors: a file of pretrained vectors of that size, as GloVe and word2vec write them;
                None for random ones.
            trainable_vectors: whether training changes the vectors of words.
            seed: the seed of random vectors.
            tokenizer: keys of `TokenizerConfig`, such as `{"lowercase": False}`; `min_count` is 1.
            max_length: how many words of a text are read.
            objective: as of the class.
            dtype: the dtype policy of the network; None for Keras' global one.
            **model: more keys of `ModelConfig`, such as `encoder="outer"`, and Keras layers in
                place of the network's own: `attention`, `reader` and `question_reader`.

        Raises:
            ValueError: where there are no questions, something is no string, or a key is unknown
                or has no effect with the encoder.
        """
        names = ("attention", "reader", "question_reader")
        layers = {name: model.pop(name) for name in names if model.get(name) is not None}
        has_logits = model.get("encoder") == "compare-aggregate"
        config = AnswerSelectionConfig.of(
            data={"max_length": max_length},
            tokenizer=with_keys({"min_count": 1}, tokenizer, "tokenizer"),
            vectors={
                "source": "file" if vectors else "random",
                "file": vectors,
                "trainable": trainable_vectors,
            },
            model={"units": units, "embedding_size": embedding_size, **model},
            training={"seed": seed, "loss": objective or ("log" if has_logits else "hinge")},
        )
        corpus = as_questions(questions, name="questions")
        with quietly(vectors is None):
            return cls.from_corpus(config, corpus, dtype, **layers)

    # ---- In use.

    def rank(
        self,
        question: str | Sequence[str],
        candidates: Sequence[str] | Sequence[Sequence[str]],
        *,
        on_too_long: str = "truncate",
    ) -> Ranking | None | list[Ranking | None]:
        """Rank the candidates of a question, or of many: pairs of like lengths share a batch.

        Args:
            question: a question, or a sequence of questions.
            candidates: its candidates, or for each question its candidates.
            on_too_long: what to do with a question or candidate of more than `max_length` words:
                `"truncate"` (its beginning is read), `"error"` or `"skip"` (the candidate is left
                out; None stands in place of a question, or of one that has no candidate left).

        Returns:
            The answers, best first; equal ones in the order given. Of many questions, a list.

        Raises:
            ValueError: where there is no candidate, a text has no words, or is too long and that is
                an error.
        """
        if isinstance(question, str):
            return self.rank([question], [candidates], on_too_long=on_too_long)[0]
        question = as_texts(question, "question")
        candidates = list(candidates) if hasattr(candidates, "__iter__") else []
        check_equally_many(question=question, candidates=candidates)
        kept = self._without_long(self._asked(question, candidates), on_too_long)
        scores, weights = self.score(kept) if len(kept) else ((), ())
        tokens = self.preprocessor.tokens
        rankings: list[Ranking | None] = [None] * len(question)
        columns = (kept[name] for name in ("id", "question", "candidates", "candidate_ids"))
        for row, text, answers, positions, values, shades in zip(
            *columns, scores, weights, strict=True
        ):
            found, read = [], tokens(text)
            unknown = self.preprocessor.unknown(text)
            for answer, position, value, shade in zip(
                answers, positions, values, shades, strict=True
            ):
                weight = shade if self.backbone.has_weights else None
                matrix = weight if np.ndim(weight) == 2 else None
                more = (by_word(weight), position, read, matrix)
                more += (self.preprocessor.unknown(answer), unknown)
                found.append(Answer(answer, float(value), tokens(answer), *more))
            found.sort(key=lambda answer: -answer.score)  # equal ones in the order given
            rankings[row] = Ranking(text, tuple(found))
        return Results(rankings)

    def score(self, questions: Any) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
        """Return for each question the scores of its candidates, and the weights of their words.

        The questions come as `fit` takes them. Weights are `(T,)`, of `CompareAggregate` `(S, T)`
        for each word of the question; zeros where the network gives none.
        """
        return self._score(self.encode(as_questions(questions, name="questions")))

    def evaluate_text(
        self,
        questions: Any,
        protocol: str = "filtered",
        trec_run: Path | str | None = None,
        *,
        on_too_long: str = "truncate",
    ) -> dict[str, Any]:
        """Return MAP, MRR and precision at 1, beside those of BM25 and word overlap, as JSON types.

        Where the network gives weights to words, `"attention_by_position"` says where they lie: the
        part of a candidate's attention on each tenth of it, in the mean over all candidates.
        Attention that favours no place has 0.1 everywhere.

        Args:
            questions: as `fit` takes them.
            protocol: `"filtered"`, without questions that any ranking answers, or `"unfiltered"`;
                see [`ranking_score`][applications.answer_selection.metrics.ranking_score].
            trec_run: a new file for the ranking, in trec_eval's form.
            on_too_long: what to do with a question or candidate of more than `max_length` words:
                `"truncate"`, `"error"` or `"skip"` (leave it out, and count it as
                `"too_long_left_out"`).

        Returns:
            The figures; `"signature"` says under which protocol. Figures of two do not compare.

        Raises:
            ValueError: where there is no such protocol, no question is left to measure, or the file
                exists.
        """
        check_choice("protocol", protocol, PROTOCOLS)
        if trec_run is not None:
            check_new_file(trec_run)
        questions = as_questions(questions, name="questions")
        count = len(texts_of(questions))
        questions = self._without_long(questions, on_too_long)
        left_out = count - len(texts_of(questions))
        if not len(questions):
            raise UserError("Every question is too long. Received: on_too_long='skip'")
        encoded = self.encode(questions)
        scores, weights = self._score(encoded)
        ranked = by_ids(questions, [each.tolist() for each in scores])
        report = evaluation_report(questions, scores, self.preprocessor.tokens, protocol)
        if trec_run is not None:
            with output_file(trec_run) as file:
                file.writelines(f"{line}\n" for line in trec_run_lines(ranked))
        # Only the log loss learns a threshold: above 0 a candidate counts as right.
        by_pair = self.objective == "log"
        shades = [by_word(each) for row in weights for each in row]
        return {
            **report,
            **{name: getattr(encoded.report, name) for name in ("words", "unknown", "cut")},
            **({"too_long_left_out": left_out} if left_out else {}),
            "accuracy": pair_accuracy(ranked, judgements_of(questions)) if by_pair else None,
            "attention_by_position": by_position(shades) if self.backbone.has_weights else None,
        }

    def draw(
        self, question: str, candidates: Sequence[str], output: Path | str | None = None
    ) -> Ranking:
        """Shade the words of answers by the attention that a question gives them.

        Args:
            question: the question.
            candidates: one or more answers.
            output: a new picture, or .html, a page as of `explain`; None draws nothing: a notebook
                shows the result itself.

        Returns:
            The ranking that the picture shows.

        Raises:
            ValueError: if the file exists, a text has no words, or the network's attention gives no
                weights of words.
        """
        if output is not None:
            check_drawn(output)
        if not self.backbone.has_weights:
            raise UserError(
                f"encoder {self.backbone.encoder} gives no weights of words to draw: train outer, "
                "inner-word, inner-context or compare-aggregate."
            )
        check_single(self, "draws", question=question)
        ranking = self.rank(question, candidates)
        if output is not None and is_page(output):
            self.explain(question, candidates).save(output)
        elif output is not None:
            ranking.plot(output)
        return ranking

    def explain(self, question: str, candidates: str | Sequence[str]) -> Explanation:
        """Rank candidates; return them, best first, with the attention to their words, for a page.

        Args:
            question: the question.
            candidates: answers to rank: a list, or a text with one on each line.
        """
        check_single(self, "explains", question=question)
        if isinstance(candidates, str):
            candidates = [line for line in candidates.splitlines() if line.strip()]
        ranking = self.rank(question, candidates)
        answers = [each.explained() for each in ranking]
        given = [each.text for each in sorted(ranking, key=lambda each: each.position)]
        inputs = {"question": question, "candidates": "\n".join(given)}
        notes = [ranking.note] if ranking.note else []
        return Explanation(self.name_of_task, inputs, answers[0].text, answers, notes)

    # ---- The hooks of TextTask.

    def read_columns(self, x, y=None, sample_weight=None) -> Corpus:
        return check(as_questions(x, y, sample_weight))

    def encode(self, corpus: Corpus) -> Encoded:
        return encode(corpus, self.require_preprocessor())

    def make_batches(self, encoded, batch_size, *, seed=0, shuffle=True, like=None, fill=False):
        return TrainingBatches(encoded, batch_size, self.negatives, seed, shuffle)

    def default_loss(self) -> keras.losses.Loss:
        if self.objective == "hinge":
            return HardestHinge(self.margin)
        if self.objective == "log":
            return keras.losses.BinaryCrossentropy(from_logits=True)
        return keras.losses.CategoricalCrossentropy(from_logits=True)  # one of a row is right

    def service(self, max_letters: int | None = None):
        """Return the `tf.Module` that `export` writes, from strings to scores `(B, N)`.

        Candidates `(B, N)` of a question with fewer are padded with `""`; one without words gets
        minus infinity. TensorFlow alone serves it, without Keras or this package.
        """
        import tensorflow as tf

        model, preprocessor = self.backbone, self.require_preprocessor()
        signature = [
            tf.TensorSpec([None], tf.string, name="question"),
            tf.TensorSpec([None, None], tf.string, name="candidates"),
        ]

        @tf.function(input_signature=signature, autograph=False)
        def serve(question, candidates):
            given = {"question": question, "candidates": candidates}
            question, candidates = of_at_most(max_letters or self.served_letters, **given)
            inputs = preprocessor.call({"question": question, "candidates": candidates})
            empty = ~tf.reduce_any(inputs["candidates"] != 0, axis=-1)
            scores = tf.cast(model.score(inputs)[0], tf.float32)
            return {"scores": tf.where(empty, float("-inf"), scores)}

        return service_of(serve, model, preprocessor.in_graph("tokenizer"))

    # ---- The hooks of the command.

    @classmethod
    def read(cls, config: AnswerSelectionConfig, split: str) -> Corpus:
        corpus = load_corpus(config.data, split)
        return corpus if split == "test" else check(corpus, judged=split == "dev")

    @classmethod
    def adapt(cls, config, corpus) -> AnswerPreprocessor:
        size, file, extra = config.model.embedding_size, None, []
        if config.vectors.file:
            file = read_vectors(config.vectors.file, size)
            say(str(file))
            extra = list(file.vectors)[: config.vectors.extra_words]
        section = dataclasses.asdict(config.tokenizer)
        section["max_length"] = config.data.max_length
        texts = texts_of(corpus)
        preprocessor = AnswerPreprocessor.adapt(texts, extra_words=extra, **section)
        preprocessor.vectors, report = first_vectors(
            config.vectors, preprocessor, size, config.training.seed, texts, file
        )
        say(report)
        return preprocessor

    @classmethod
    def configured(cls, config, preprocessor, dtype=None, **layers) -> "AnswerRanker":
        section = config.training
        options = {"log_odds": section.loss != "hinge", "dtype": dtype}
        options["trainable_vectors"] = config.vectors.trainable
        network = build_model(config.model, preprocessor.vocabulary_size, **options, **layers)
        if preprocessor.vectors is not None:
            network.set_vectors(preprocessor.vectors)
        return cls(network, preprocessor, section.negatives, section.margin, section.loss)

    def settings(self, written):
        found = super().settings(written)
        if self.objective != "hinge":  # which alone has a margin
            del found["training.margin"]
        found["model.encoder"] = self.backbone.encoder
        found["vectors.trainable"] = self.backbone.trainable_vectors
        found["tokenizer.unknown_buckets"] = self.preprocessor.unknown_buckets
        return found

    def about_figures(self) -> str:
        return "`val_map` and `val_mrr` are `protocol:filtered|ties:trec_eval`."

    def development(self, corpus: Corpus, batches: TrainingBatches, config: Any):
        """Return a function that gives the figures of an epoch.

        `val_map` and `val_mrr` are of the filtered protocol; `val_loss` is the mean over the same
        questions of the training loss with all wrong candidates.
        """
        labels = check(corpus, judged=True)["labels"]
        kept = [row for row, each in enumerate(labels) if any(each) and not all(each)]
        questions = corpus.take(kept)
        encoded = batches.encoded.take(kept, weights=None)
        judgements = judgements_of(questions)

        def figures() -> dict[str, float]:
            scores, _ = self._score(encoded)
            pairs = zip(scores, questions["labels"], strict=True)
            losses = [question_loss(*pair, self.objective, self.margin) for pair in pairs]
            loss = float(np.mean(losses))
            if not np.isfinite(loss):  # the training stops at it, and ranks nothing
                return {"val_loss": loss, "val_map": 0.0, "val_mrr": 0.0}
            ranked = by_ids(questions, [each.tolist() for each in scores])
            result = ranking_score(ranked, judgements)
            return {"val_loss": loss, "val_map": result.map, "val_mrr": result.mrr}

        return figures

    # ---- What the methods above are made of.

    def _asked(self, questions: Sequence[str], candidates: Sequence[Sequence[str]]) -> Corpus:
        """Return questions without labels; ids are the positions of questions and candidates."""
        answers = [list(as_texts(some, "candidates")) for some in candidates]
        for question, some in zip(questions, answers, strict=True):
            if not some:
                raise UserError("There is no candidate to rank.")
            for place, text in enumerate([question, *some]):
                if not self.require_preprocessor().tokens(text):
                    name = f"Candidate {place}" if place else "The question"
                    raise UserError(f"{name} has no words. Received: {shown(text)}.")
        positions = [range(len(some)) for some in answers]
        labels = [[0] * len(some) for some in answers]
        columns = {"question": questions, "candidates": answers, "labels": labels}
        columns |= {"id": range(len(questions)), "candidate_ids": positions}
        return corpus_at_hand(columns, noun="questions")

    def _without_long(self, questions: Corpus, on_too_long: str) -> Corpus:
        """Return questions without those, and without the candidates, that are skipped.

        A `TooLong` names the row of a question, whose text or candidates are too long.
        """
        most, found = self.require_preprocessor().max_length, {}
        check_choice("`on_too_long`", on_too_long, get_args(OnTooLong))
        if on_too_long == "truncate":
            return questions

        def length(text):
            return len(self.preprocessor.tokenizer.tokens(text))

        kept, short = [], []
        for row, (text, candidates) in enumerate(
            zip(questions["question"], questions["candidates"], strict=True)
        ):
            lengths = [length(text), *map(length, candidates)]
            some = [place for place, count in enumerate(lengths[1:]) if count <= most]
            if max(lengths) > most:
                found[row] = f"{max(lengths):,} words in the question or a candidate"
            if lengths[0] <= most and some:
                kept.append(row)
                short.append(some)
        if found and on_too_long == "error":
            raise TooLong(found, f"{most:,} words (max_length)", "questions")
        questions = questions.take(kept)
        columns = dict(questions.columns)
        for name in ("candidates", "labels", "candidate_ids"):
            pairs = zip(columns[name], short, strict=True)
            columns[name] = [[each[place] for place in some] for each, some in pairs]
        return dataclasses.replace(questions, columns=columns)

    def _score(self, encoded: Encoded) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
        score = self._compiled("score", self._score_pairs, 2, 2)
        counts, candidates = encoded.groups["candidates"], encoded["candidates"]
        asked = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(candidates.lengths, kind="stable")
        scores = np.zeros(len(candidates), "float32")
        weights = [np.zeros(0)] * len(candidates)
        for first in range(0, len(order), PAIRS_IN_A_BATCH):
            part = order[first : first + PAIRS_IN_A_BATCH]
            questions = encoded["question"].take(asked[part])
            found = score(padded(questions), padded(candidates.take(part)))
            values, shades = (ops.convert_to_numpy(array) for array in found)
            scores[part] = values
            for place, shade, length in zip(part, shades, questions.lengths, strict=True):
                if shade.ndim == 2:  # a row for each word of the question
                    shade = shade[:length]
                weights[place] = shade[..., : candidates.lengths[place]]
        rows = encoded.entries("candidates")
        return [scores[row] for row in rows], [[weights[place] for place in row] for row in rows]

    def _score_pairs(self, question, candidate):
        inputs = {"question": question, "candidates": candidate[:, None]}
        scores, weights = self.backbone.score(inputs)
        shades = ops.zeros(ops.shape(candidate)) if weights is None else weights[:, 0]
        return ops.cast(scores[:, 0], "float32"), ops.cast(shades, "float32")


def question_loss(
    scores: np.ndarray, labels: Sequence[int], objective: str, margin: float
) -> float:
    """Return the loss of one question with all its candidates."""
    scores, right = np.asarray(scores, "float64"), np.asarray(labels, bool)
    if objective == "log":
        return float(np.mean(np.logaddexp(0.0, np.where(right, -scores, scores))))
    if right.all():
        return 0.0
    if objective == "listwise":
        wrong = np.logaddexp.reduce(scores[~right])
        return float(np.mean(np.logaddexp(scores[right], wrong) - scores[right]))
    hardest = scores[~right].max()
    return float(np.mean(np.maximum(0.0, margin - scores[right] + hardest)))


Ranker = AnswerRanker
"""Another name of `AnswerRanker`."""
