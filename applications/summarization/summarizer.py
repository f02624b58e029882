"""Summarising documents with a trained run."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from keras import ops

from keras_attention.applications.common.backend import compiled
from keras_attention.applications.summarization.documents import split_sentences
from keras_attention.applications.summarization.encoding import (
    EncodedDocument,
    as_read,
    padded_documents,
    padded_shape,
)
from keras_attention.applications.summarization.run import SummarizationRun, load_run
from keras_attention.decoding import beam_search
from keras_attention.text import END_ID, PAD_ID, START_ID, UNK_ID

MOST_WORDS = 2**17
"""The most words, padding included, of documents that are searched for together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """A summary and where its words come from.

    Args:
        text: the summary.
        score: what hypotheses are ranked by.
        tokens: its written words; those copied of unknown ones too.
        copied: of each token, whether the vocabulary does not hold it.
        unknown: of each token, whether it was left unknown.
        source: the words of each sentence of the document, as far as they were read.
        attention: weights `(T, S)` over the words of all sentences on end; zeros without attention;
            None where it was not wanted.
        p_gen: the probability with which each token was generated; ones without a pointer; None
            where attention was not wanted.
    """

    text: str
    score: float
    tokens: list[str]
    copied: np.ndarray
    unknown: np.ndarray
    source: list[list[str]]
    attention: np.ndarray | None = None
    p_gen: np.ndarray | None = None

    @property
    def sentence_weights(self) -> np.ndarray:
        """The weights `(T, N)` of each sentence, the sums of those of its words."""
        ends = np.cumsum([len(sentence) for sentence in self.source])[:-1]
        parts = np.split(self.attention, ends, axis=1)
        return np.stack([part.sum(axis=1) for part in parts], axis=1)


class Summarizer:
    """Summarises documents.

    Args:
        run: a loaded run.

    Example:

        summarizer = Summarizer.load("runs/reports")
        summarizer.summarize(["The first sentence. The second one."])[0].text
    """

    def __init__(self, run: SummarizationRun):
        self.run = run
        self._searches = {}

    @classmethod
    def load(cls, run: Path | str) -> "Summarizer":
        """Load the best weights of a run folder.

        Raises:
            UserError: if there is no such run, it is not whole, or has no weights yet.
        """
        return cls(load_run(run))

    def summarize(
        self,
        documents: Sequence[str | Sequence[str]],
        beam_size: int | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        no_repeat_ngram: int | None = None,
        attention: bool = True,
    ) -> list[Summary]:
        """Summarise documents; what is None is as the run's `decoding` configuration says.

        A document without a word has an empty summary of score 0.

        Args:
            documents: texts, which are split into sentences, or lists of sentences.
            beam_size: hypotheses kept at each step; 1 is greedy search.
            min_length: fewest words.
            max_length: most words.
            no_repeat_ngram: no n-gram of this length comes twice; 0 allows it.
            attention: whether to return what each word was drawn from. Of many long documents that
                is much: a number for each word of the summary and each of the document.

        Returns:
            One `Summary` for each document.
        """
        given = {"beam_size": beam_size, "min_length": min_length, "max_length": max_length}
        given |= {"no_repeat_ngram": no_repeat_ngram}
        changes = {name: value for name, value in given.items() if value is not None}
        options = dataclasses.replace(self.run.config.decoding, **changes)
        encoded = [
            self.run.encoder.document(split_sentences(each) if isinstance(each, str) else each)
            for each in documents
        ]
        nothing = np.zeros(0)
        weights = (np.zeros((0, 0)), nothing) if attention else ()
        results = [Summary("", 0.0, [], nothing, nothing, each.words, *weights) for each in encoded]
        search = self._search(options, attention)
        for rows in self._batches(encoded, options.batch_size):
            documents = [as_read(encoded[row].ids, self.run.model.is_hierarchical) for row in rows]
            source = padded_documents(documents)
            found = [np.asarray(part) for part in search(source) if part is not None]
            for place, row in enumerate(rows):
                parts = [part[place, 0] for part in found]
                results[row] = self._summary(encoded[row], source[place], *parts)
        return results

    def _summary(self, document: EncodedDocument, source, tokens, length, score, attention=None):
        ids = [int(index) for index in tokens[:length] if index != END_ID]
        words = [self.run.encoder.word(index, document) for index in ids]
        weights = ()
        if attention is not None:
            rows, real = attention[: len(ids)], np.flatnonzero(source.ravel() != PAD_ID)
            weights = (rows[:, real], rows[:, -1].copy())  # a view would keep all of the batch
        size = self.run.encoder.tokenizer.vocabulary_size
        return Summary(
            self.run.encoder.tokenizer.join(words),
            float(score),
            words,
            np.array(ids, int) >= size,
            np.array(ids, int) == UNK_ID,
            document.words,
            *weights,
        )

    def _search(self, options, attention):
        """Return a compiled search; one serves all batches of the same options."""
        key = (options, attention)
        if key not in self._searches:
            model = self.run.model
            self._searches[key] = compiled(
                lambda source: search(model, source, options, attention), model, 3
            )
        return self._searches[key]

    def _batches(self, documents: list[EncodedDocument], size: int) -> Iterator[list[int]]:
        """Yield the rows of documents that have words, in batches of like lengths.

        A batch has fewer documents where, padded to the same sentences and words, they would take
        too much memory: one sentence of a thousand words makes all others as wide.
        """
        shapes = {
            row: padded_shape(as_read(document.ids, self.run.model.is_hierarchical))
            for row, document in enumerate(documents)
            if document.ids
        }
        batch: list[int] = []
        widest = (0, 0)
        for row in sorted(shapes, key=lambda row: (np.prod(shapes[row]), row)):
            wider = tuple(map(max, widest, shapes[row]))
            if batch and (len(batch) == size or (len(batch) + 1) * np.prod(wider) > MOST_WORDS):
                yield batch
                batch, wider = [], shapes[row]
            batch, widest = [*batch, row], wider
        if batch:
            yield batch


def search(model, source, options, attention=True):
    """Search for the summaries of documents `(B, N, W)`.

    Returns:
        Tokens `(B, 1, T)`, lengths, scores `(B, 1)`, and for each token the attention weights over
        the source with `p_gen` as one more column, `(B, 1, T, S + 1)`, or None where they are not
        wanted.
    """
    longest = options.max_length + 1  # the end
    state = {**model.start(source, longest)}

    def with_history(state):
        if not attention:
            return state
        parts = [state["attention"], state["p_gen"]]
        return {**state, "history": ops.concatenate(parts, axis=1)}

    def step(tokens, state, index):
        log_p, state = model.step(tokens, state, index)
        return log_p, with_history(state)

    result = beam_search(
        step,
        with_history(state),
        start_id=START_ID,
        end_id=END_ID,
        pad_id=PAD_ID,
        max_length=longest,
        min_length=options.min_length + 1,
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        no_repeat_ngram=options.no_repeat_ngram,
        attention_key="history" if attention else None,
        constant_keys=model.constant_keys,
        shrink_batch=True,
    )
    # The longest may have ended a word later, or not at all: what is past them goes.
    size = options.max_length
    lengths = ops.minimum(result.lengths, size)
    history = result.attention[:, :, :size] if attention else None
    return result.tokens[:, :, :size], lengths, result.scores, history
