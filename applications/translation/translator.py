"""Translating lines of text with a trained run."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np

from keras_attention.applications.common.backend import compiled
from keras_attention.applications.translation.run import TranslationRun, load_run
from keras_attention.applications.translation.search import (
    Sampling,
    SearchOptions,
    forced,
    options_of,
    padded,
    search,
)
from keras_attention.applications.translation.translation import Translation
from keras_attention.applications.translation.words import Links, align_words, words_of_tokens
from keras_attention.text import END_ID, START_ID, UNK_ID


class Translator:
    """Translates lines of text.

    Searches are compiled once for each set of options, whatever the shapes of the batches.

    Args:
        run: a loaded run.
        dictionary: translations of single source words, for unknown-word replacement; a word that
            it lacks is copied.

    Example:

        translator = Translator.load("runs/en-de")
        translator.translate(["A man rides a horse."])[0].text
    """

    def __init__(self, run: TranslationRun, dictionary: Mapping[str, str] | None = None):
        self.run = run
        self.model = run.model
        self.dictionary = dict(dictionary or {})
        self._vocabulary = run.target_tokenizer.vocabulary
        self._seed = keras.random.SeedGenerator(0)
        self._searches = {}
        self._forced = compiled(functools.partial(forced, self.model), self.model, 2, 2, 2)

    @classmethod
    def load(cls, run: Path | str, dictionary: Mapping[str, str] | None = None) -> "Translator":
        """Load the best weights of a run folder.

        Raises:
            UserError: if there is no such run, it is not whole, or has no weights yet.
        """
        return cls(load_run(run), dictionary)

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        n_best: int = 1,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        no_repeat_ngram: int | None = None,
        sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        batch_size: int | None = None,
        return_alignments: bool = True,
    ) -> list[Translation]:
        """Translate lines; what is None is as the run's `decoding` configuration says.

        An empty line has one translation, the empty one, of score and log-probability 0. Lines
        are translated in batches of like lengths, and returned in the order given.

        Args:
            lines: sentences, as text.
            beam_size: hypotheses kept at each step; 1 is greedy search.
            n_best: how many translations of each line, at most `beam_size`; all but the best are
                its `alternatives`.
            length_penalty: alpha of GNMT's length penalty.
            coverage_penalty: beta of GNMT's coverage penalty.
            min_length: fewest tokens.
            max_length: most tokens.
            no_repeat_ngram: no n-gram of this length comes twice; 0 allows it.
            sample: draw tokens at random in place of searching.
            temperature: of the draw; below 1 sharpens, above 1 flattens.
            top_k: draw from this many of the likeliest tokens; 0 for all.
            top_p: draw from the likeliest tokens that make up this probability.
            seed: of the draw: the same lines in batches of the same size give the same
                translations. None draws anew at each call.
            batch_size: lines translated together.
            return_alignments: whether translations hold their attention weights.

        Returns:
            One `Translation` for each line.

        Raises:
            ValueError: where an option is out of its range.
        """
        options = options_of(
            self.run.config.decoding,
            beam_size=beam_size,
            n_best=n_best,
            length_penalty=length_penalty,
            coverage_penalty=coverage_penalty,
            min_length=min_length,
            max_length=max_length,
            no_repeat_ngram=no_repeat_ngram,
            sampling=Sampling(temperature, top_k, top_p) if sample else None,
        )
        if sample:
            self._reseed(seed)
        return self._translate(lines, options, batch_size, return_alignments)

    def align(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int | None = None
    ) -> list[Translation]:
        """Make the model write given translations.

        Args:
            sources: sentences.
            targets: their translations.
            batch_size: pairs scored together.

        Returns:
            One `Translation` for each pair, which holds the given target, its log-probability (as
            score too) and the attention weights with which it was written.
        """
        if len(sources) != len(targets):
            raise ValueError(
                "`sources` and `targets` must be equally many. "
                f"Received: {len(sources)} and {len(targets)}"
            )
        pairs = list(zip(sources, targets, strict=True))
        source_ids = self.run.source_tokenizer.encode(list(sources))
        target_ids = self.run.target_tokenizer.encode(list(targets))
        lengths = list(map(max, map(len, source_ids), map(len, target_ids)))
        results = [None] * len(pairs)
        for rows in self._batches(range(len(pairs)), lengths, batch_size):
            log_probabilities, attention = self._forced(
                padded([source_ids[row] for row in rows]),
                padded([[START_ID, *target_ids[row]] for row in rows]),
                padded([[*target_ids[row], END_ID] for row in rows]),
            )
            log_probabilities = np.asarray(log_probabilities)
            attention = None if attention is None else np.asarray(attention)
            for place, row in enumerate(rows):
                source, target = pairs[row]
                matrix = None
                if attention is not None:
                    matrix = attention[place, : len(target_ids[row]), : len(source_ids[row])]
                score = float(log_probabilities[place])
                results[row] = Translation(
                    target,
                    score,
                    score,
                    self.run.target_tokenizer.tokens(target),
                    self.run.source_tokenizer.tokens(source),
                    matrix,
                )
        return results

    def perplexity(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        """Return the perplexity of given translations, per token, ends counted."""
        results = self.align(sources, targets)
        tokens = sum(len(result.tokens) + 1 for result in results)
        return math.exp(-sum(result.log_probability for result in results) / tokens)

    def links(self, translation: Translation) -> Links:
        """Return the links between words, `(source word, target word)`, both counted from 0.

        Each target word is linked to the source word to whose tokens its tokens attend the most.

        Raises:
            ValueError: where the translation has no alignment.
        """
        if translation.alignment is None:
            raise ValueError(
                "Links need a translation with an alignment: a model with attention, and "
                f"`return_alignments=True`. Received: {translation}"
            )
        return align_words(
            translation.alignment,
            words_of_tokens(self.run.source_tokenizer, translation.source_tokens),
            words_of_tokens(self.run.target_tokenizer, translation.tokens),
        )

    def _translate(self, lines, options, batch_size, return_alignments) -> list[Translation]:
        ids = self.run.source_tokenizer.encode(lines)
        replaces = self.run.config.tokenizer.replace_unknown and self.model.has_attention
        keeps = self.model.has_attention and (return_alignments or replaces)
        run_search = self._search(options, keeps)
        nothing = Translation("", 0.0, 0.0, [], [], np.zeros((0, 0)) if keeps else None)
        results = [dataclasses.replace(nothing) for _ in ids]
        filled = [row for row, sequence in enumerate(ids) if sequence]
        for rows in self._batches(filled, list(map(len, ids)), batch_size):
            found = run_search(padded([ids[row] for row in rows]))
            found = [None if x is None else np.asarray(x) for x in found]
            for place, row in enumerate(rows):
                source = self.run.source_tokenizer.tokens(lines[row])
                ranked = [
                    self._translation(source, *each)
                    for each in _hypotheses([None if x is None else x[place] for x in found])
                ]
                if not return_alignments:
                    ranked = [dataclasses.replace(each, alignment=None) for each in ranked]
                results[row] = dataclasses.replace(ranked[0], alternatives=tuple(ranked[1:]))
        return results

    def _translation(self, source, ids, score, log_probability, alignment) -> Translation:
        tokens = [self._vocabulary[token] for token in ids]
        if alignment is not None:
            alignment = alignment[: len(tokens), : len(source)]
        if self.run.config.tokenizer.replace_unknown and alignment is not None:
            for place in np.flatnonzero(ids == UNK_ID):
                if alignment[place].any():
                    word = source[int(alignment[place].argmax())]
                    tokens[place] = self.dictionary.get(word, word)
            text = self.run.target_tokenizer.join(tokens)
        else:
            text = self.run.target_tokenizer.decode([ids])[0]
        return Translation(text, score, log_probability, tokens, source, alignment)

    def _search(self, options: SearchOptions, keeps_attention: bool):
        key = (options, keeps_attention)
        if key not in self._searches:
            settings = {"options": options, "seed": self._seed, "attention": keeps_attention}
            function = functools.partial(search, self.model, **settings)
            changing = [self._seed.state]
            self._searches[key] = compiled(function, self.model, 2, changing=changing)
        return self._searches[key]

    def _batches(self, rows, lengths, batch_size) -> Iterator[list[int]]:
        """Yield rows in batches of like lengths, the longest first."""
        ordered = sorted(rows, key=lambda row: -lengths[row])
        size = batch_size or self.run.config.decoding.batch_size
        for first in range(0, len(ordered), size):
            yield ordered[first : first + size]

    def _reseed(self, seed: int | None) -> None:
        seed = np.random.SeedSequence().entropy if seed is None else seed
        self._seed.state.assign(np.array([seed % 2**32, 0], self._seed.state.dtype))


def _hypotheses(found) -> Iterator[tuple]:
    """Yield `(ids without the end, score, log-probability, attention)`, best first."""
    tokens, lengths, scores, log_probabilities, attention = found
    for place, length in enumerate(lengths):
        if length == 0:  # fewer hypotheses exist than were asked for
            return
        ids = tokens[place, :length]
        ids = ids[ids != END_ID]
        weights = None if attention is None else attention[place]
        yield ids, float(scores[place]), float(log_probabilities[place]), weights
