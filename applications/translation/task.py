"""The translator: a Keras task from sentences to sentences."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_attention.decoding import SearchOptions
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

from ..arguments import settings_of
from ..base.preprocessor import as_texts, padded
from ..base.presets import check_arguments
from ..base.search_task import SearchTask, seeds_of
from ..base.streams import rows_of_a_batch, stream_count
from ..data.corpus import Corpus
from ..data.encoded import Encoded
from ..data.lengths import without_rows
from ..errors import UserError, check_choice, check_counts, check_number, check_single, shown
from ..schema.keys import with_keys
from ..show.explanation import ExplainedAnswer, Explanation
from ..show.results import Results
from ..store.files import check_picture, new_folder
from ..text import UNK_ID, nfc
from . import data
from .config import TranslationConfig
from .documents import LONGEST_PIECE, TranslatedDocument, cut_document
from .engines.ctranslate2 import CTranslate2
from .engines.ctranslate2_export import export_ctranslate2
from .engines.litert import LiteRT, export_litert
from .engines.numpy import NumPy
from .engines.weights import WAY_OUT
from .metrics import bleu, bleu_tokenizer
from .networks.base import TranslationModel, WordCrossentropy
from .networks.builder import NETWORKS, RECURRENT_SIZE, build_model
from .networks.ensemble import Ensemble
from .networks.luong import Luong, settings_of_attention
from .preprocessor import (
    TranslationPreprocessor,
    as_pairs,
    as_references,
    checked_dictionary,
    encode_checked,
)
from .pretrained.readers import reader_of
from .results import (
    Links,
    Translation,
    blind_bleu,
    evaluation_report,
    links_of,
    maps_of,
    translation_of,
)
from .search import batches_of, check_engine, force, search
from .shortlist import Shortlist
from .web_export import export_web

ENGINES = {"ctranslate2": CTranslate2, "litert": LiteRT, "numpy": NumPy}
EXPORTS = {"ctranslate2": export_ctranslate2, "litert": export_litert, "web": export_web}
SHORTLIST_FILE = "shortlist.npz"
"""The file of a preset that holds the shortlist."""
FORMATS = ("saved_model", "tf_saved_model", "keras", *EXPORTS)


TUNING_RATE = 3e-5
"""The learning rate of translators that others have trained, where no other is given."""


@keras.saving.register_keras_serializable("keras_attention.translation")
class Translator(SearchTask):
    """Translates sentences: a network, its preprocessor, and how it searches.

    Args:
        backbone: the network, such as `RNNSearch`, `Luong` or `Transformer`.
        preprocessor: what turns sentences into its ids, and back.
        search: how translations are searched for.
        dictionary: translations of single source words, for unknown-word replacement; a word that
            it lacks is copied.
        label_smoothing: of the default loss.
        target_language: code of the language translated into, such as `"zh"`, by which BLEU cuts
            texts into words
            ([`bleu_tokenizer`][applications.translation.metrics.bleu_tokenizer]); None for one
            with spaces between words.
        source_language: code of the language translated from, by which documents are cut into
            sentences; None where it is not known.
        learning_rate: of a training where no other is given; None for 0.001, or for that of the
            run folder that the translator was read from. A translator that others have trained
            comes with 0.00003: a higher one makes it forget.
        **kwargs: `name`, `compile` and the like of `keras_hub.models.Task`.

    Raises:
        ValueError: where network and preprocessor are of different vocabularies.

    Example:

    ```python
    from keras_attention.applications.translation import Translator

    sources, targets = ["one two", "two one"] * 8, ["eins zwei", "zwei eins"] * 8
    translator = Translator.from_texts(sources, targets, units=8)
    translator.fit(sources, targets, epochs=1, verbose=0)
    print(translator.translate("two one").text)
    ```
    """

    name_of_task = "translation"
    config_class = TranslationConfig
    asks, verb, action = {"text": "Sentence"}, "translate", "Translate"
    network_class, preprocessor_cls, counts_tokens = TranslationModel, TranslationPreprocessor, True
    find, training_keys = staticmethod(search), {"label_smoothing": "label_smoothing"}
    must_fit: ClassVar = {x: x for x in ("source_vocabulary_size", "target_vocabulary_size")}
    shortlist: Shortlist | None = None
    """The shortlist that came with a model of others. A preset keeps it."""
    preprocessor_keys: ClassVar = {
        f"tokenizer.{name}": name for name in ("replace_unknown", "variants", "sampling")
    }

    def __init__(
        self,
        backbone: TranslationModel,
        preprocessor: TranslationPreprocessor | None = None,
        search: SearchOptions | Mapping[str, Any] | None = None,
        dictionary: Mapping[str, str] | None = None,
        label_smoothing: float = 0.1,
        target_language: str | None = None,
        source_language: str | None = None,
        learning_rate: float | None = None,
        **kwargs: Any,
    ):
        languages = {"target_language": target_language, "source_language": source_language}
        for name, language in languages.items():
            if not (language is None or isinstance(language, str)):
                raise ValueError(
                    f"`{name}` should be the code of a language, such as 'zh', or None. "
                    f"Received: {name}={shown(language)}"
                )
        if learning_rate is not None:
            check_number("`learning_rate`", learning_rate, 0)
        self.keep(dictionary=checked_dictionary(dictionary), **languages)
        self.keep(label_smoothing=label_smoothing, learning_rate=learning_rate)
        super().__init__(backbone, preprocessor, search, **kwargs)
        self._engines: dict[str, Any] = {}

    @classmethod
    def from_texts(
        cls,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        architecture: str = "rnnsearch",
        units: int | None = None,
        embedding_size: int | None = None,
        kind: str = "words",
        vocabulary_size: int = 8000,
        tokenizer: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
        search: SearchOptions | Mapping[str, Any] | None = None,
        target_language: str | None = None,
        source_language: str | None = None,
        label_smoothing: float = 0.1,
        dtype: Any = None,
        **model: Any,
    ) -> "Translator":
        """Return a translator with new weights, whose vocabularies come from the texts given.

        Args:
            sources: sentences of the language translated from.
            targets: their translations.
            architecture: of the network: `"rnnsearch"`, `"luong"`, `"rnnencdec"` or
                `"transformer"`.
            units: width of the recurrent layers; None for 256.
            embedding_size: width of the embeddings; None for `units`, or in a Transformer for that
                of its `size`.
            kind: `"words"` or `"sentencepiece"`.
            vocabulary_size: most tokens of a vocabulary.
            tokenizer: more keys of `TokenizerConfig`, such as `{"shared": True}`.
            dropout: rate of dropout.
            search: how translations are searched for.
            target_language: code of the language translated into, as of the class.
            source_language: code of the language translated from, as of the class.
            label_smoothing: as of the class.
            dtype: the dtype policy of the network; None for Keras' global one.
            **model: more keys of `ModelConfig`, such as `layers=2` or `score="dot"`, and Keras
                layers in place of the network's own: `attention`, `cell` and `encoder`.

        Raises:
            ValueError: where there are no texts, something is no string, a key is unknown, or one
                has no effect in the architecture.
        """
        names = ("attention", "cell", "encoder")
        given = {name: model.get(name) for name in names}
        layers = {k: model.pop(k) for k, v in given.items() if isinstance(v, keras.layers.Layer)}
        if architecture != "transformer":
            units = units or RECURRENT_SIZE
            embedding_size = embedding_size or units
        words = {"kind": kind, "vocabulary_size": vocabulary_size}
        config = TranslationConfig.of(
            data={"target_language": target_language, "source_language": source_language},
            tokenizer=with_keys(words, tokenizer, "tokenizer"),
            model={
                "architecture": architecture,
                "units": units,
                "embedding_size": embedding_size,
                "dropout": dropout,
                **model,
            },
            training={"label_smoothing": label_smoothing},
        )
        translator = cls.from_corpus(config, data.in_memory(sources, targets), dtype, **layers)
        translator.search = translator.search_with(search, {})
        return translator

    @classmethod
    def ensemble(cls, translators: Sequence["Translator"]) -> "Translator":
        """Return a translator whose word probabilities are the mean of several ones': `Ensemble`.

        It searches, and looks words up, as the first one does.

        Args:
            translators: Two at least, of one preprocessor.

        Raises:
            ValueError: where preprocessors differ: words of other vocabularies have no mean.
        """
        translators = list(translators)
        configs = [settings_of(each.require_preprocessor()) for each in translators]
        for place, config in enumerate(configs):
            if config != configs[0]:
                raise ValueError(
                    "Translators of one ensemble should have one preprocessor: train them with the "
                    "same data and `tokenizer` settings. "
                    f"Received: another one of translator {place + 1} of {len(configs)}"
                )
        network, first = Ensemble([each.backbone for each in translators]), translators[0]
        names = ("dictionary", "target_language", "source_language")
        own = {name: getattr(first, name) for name in names}
        return cls(network, first.preprocessor, first.search, **own)

    def translate(
        self,
        texts: str | Sequence[str],
        search: SearchOptions | None = None,
        *,
        return_alignments: bool = True,
        on_too_long: str = "error",
        engine: str | None = None,
        compute_type: str | None = None,
        shortlist: Shortlist | bool | None = None,
        prefix: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Translation | None | list[Translation | None]:
        """Translate a sentence, or many: lines of like lengths share a batch.

        An empty line has one translation, the empty one, of score and log-probability 0.

        Args:
            texts: a sentence, or several.
            search: how to search; None for the task's own options.
            return_alignments: whether translations hold their attention weights.
            on_too_long: what to do with a sentence of more than 10,000 tokens: `"error"`,
                `"truncate"` (its beginning is translated) or `"skip"` (None stands in its place).
            engine: None for our own search with the Keras backend, `"numpy"`, which is fast for
                a sentence at a time where `beam_size` is 1, `"litert"`, or `"ctranslate2"` (that
                package). `"numpy"` and `"ctranslate2"` take a `Transformer` with sinusoidal
                positions. Files of the last two stay in the task's folder.
            compute_type: of the engine: `"float32"` (where not given) or `"int8"`; of CTranslate2
                also `"bfloat16"`, `"int16"` or `"int8_bfloat16"`, as far as the processor has it;
                of NumPy `"float32"` alone.
            shortlist: says which words the sentences of a batch may be translated with. The search
                scores these alone, so it is faster and cannot write others. CTranslate2 takes none.
                It must be of the task's vocabularies; `True` takes the one that came with the model
                (`self.shortlist`).
            prefix: the text that each translation begins with, or a list with one for each
                sentence; an empty one forces nothing. It comes as the target's tokenizer writes it;
                a word that the network does not know is kept as given. No engine takes one.
            **options: fields of `SearchOptions` to change, such as `beam_size=1`; None changes
                nothing.

        Returns:
            One `Translation`; of a sequence, a list of them in the order given.

        Raises:
            ValueError: where an option is out of its range, something is no string, a sentence is
                too long, the engine is missing or does not do what is asked for, or a prefix is
                longer than a translation may be.
        """
        lines = as_texts([texts] if isinstance(texts, str) else texts, "texts")
        chosen = self.search_with(search, options)
        read = self.require_preprocessor().source_tokenizer
        ids, long = encode_checked(read, lines, "texts", on_too_long)
        skipped = long if on_too_long == "skip" else []
        for row in skipped:
            ids[row] = []
        by, starts = (engine, compute_type, self._shortlist_of(shortlist)), None
        if prefix is not None:
            starts = self._starts(prefix, texts, [chosen.longest(len(each)) for each in ids])
        results = self._translated(lines, ids, chosen, return_alignments, by, starts)
        for row in long:
            results[row] = None if skipped else dataclasses.replace(results[row], truncated=True)
        return results[0] if isinstance(texts, str) else Results(results)

    def translate_document(
        self,
        texts: str | Sequence[str],
        search: SearchOptions | None = None,
        *,
        max_tokens: int | None = None,
        return_alignments: bool = True,
        engine: str | None = None,
        compute_type: str | None = None,
        shortlist: Shortlist | None = None,
        **options: Any,
    ) -> TranslatedDocument | list[TranslatedDocument]:
        """Translate a text of any length, or several: their sentences share batches.

        Each line of a document is a paragraph, which is cut into sentences by the rules of
        `source_language` ([`split_sentences`][applications.text.split_sentences]). What lies
        between them stays as it is: line ends, empty lines, indentation, lines without a letter or
        digit. A sentence with too many tokens is cut near its middle, after a clause or a word,
        until each piece is short enough; nothing is left out.

        Where a model writes several languages, a tag at the beginning of a line, such as
        `>>fra<<`, holds for that line and those after it.

        Args:
            texts: a document, or several.
            search: how to search; None for the task's own options.
            max_tokens: tokens of a sentence that is not cut; None for 128, or half of the search's
                `max_length` where that is less.
            return_alignments, engine, compute_type, shortlist, **options: as of `translate`.

        Returns:
            One `TranslatedDocument`; of a sequence, a list of them in the order given.

        Raises:
            ValueError: as `translate` does, and where `max_tokens` is no positive integer.
        """
        documents = as_texts([texts] if isinstance(texts, str) else texts, "texts")
        chosen = self.search_with(search, options)
        if max_tokens is None:
            max_tokens = max(1, min(LONGEST_PIECE, chosen.max_length // 2))
        check_counts(max_tokens=max_tokens)
        read = self.require_preprocessor().source_tokenizer

        def count(sentences: list[str]) -> list[int]:
            return [len(ids) for ids in read.encode(sentences)]

        given = self.source_language, max_tokens, count, set(read.vocabulary)
        cut = [cut_document(each, *given) for each in documents]
        found = self.translate(
            [sentence for each in cut for sentence in each.sentences],
            chosen,
            return_alignments=return_alignments,
            engine=engine,
            compute_type=compute_type,
            shortlist=shortlist,
        )
        left = iter(found)
        results = [each.joined(list(itertools.islice(left, len(each.spans)))) for each in cut]
        return results[0] if isinstance(texts, str) else results

    def _starts(self, prefix, texts, limits: list[int]) -> list[tuple[list[str], list[int]]]:
        """Return what each translation begins with: written tokens, and their ids."""
        target = self.preprocessor.target_tokenizer
        written: list[list[str]] = [[] for _ in limits]

        def encode(text: str, row: int) -> list[int]:
            written[row] = target.tokens(text)
            return target.encode([text])[0]

        ids = self._prefix_ids(prefix, texts, "texts", encode, limits)
        return list(zip(written, ids, strict=True))

    def _translated(
        self, lines, ids, search, return_alignments=True, by=(None, None, None), starts=None
    ):
        """Translate sentences whose ids are known, as `translate` does with the engine `by`.

        `starts` are the written tokens and the ids that each translation begins with.
        """
        read = self.require_preprocessor().source_tokenizer
        words = self.preprocessor.target_tokenizer.vocabulary
        make = functools.partial(translation_of, self.preprocessor, self.dictionary, words)
        has_attention, replaces = self.backbone.has_attention, self.preprocessor.replace_unknown
        nothing = np.zeros((0, 0)) if has_attention and return_alignments else None
        unknown = [_unknown_positions(each) for each in ids]
        starts = starts if any(each for _, each in starts or ()) else None
        empty = Translation("", 0.0, 0.0, [], [], nothing, token_log_probabilities=[])
        results = [empty] * len(lines)
        filled = [row for row, each in enumerate(ids) if each]
        needs = has_attention and (return_alignments or replaces)
        lengths = [len(ids[row]) for row in filled]
        engine, compute_type, shortlist = by
        check_engine(engine, compute_type, shortlist, self.preprocessor)
        room = None if engine is not None else self._room_of(shortlist, ids, search, starts)
        find, size, streams = self._found_by(*by, lengths, search, needs, starts is not None, room)
        seeds = seeds_of(search, len(lines))

        def translate(rows: list[int]) -> np.ndarray:
            source = padded([ids[row] for row in rows])
            prefixes = None if starts is None else [starts[row][1] for row in rows]
            among = None if shortlist is None else shortlist.words_of(source, prefixes or ())
            if engine == "litert" and among is not None:  # its programs have fixed sizes
                among = shortlist.filled(among, shortlist.room_for([among]))
            elif room is not None:
                among = shortlist.filled(among, room)
            of_rows = None if seeds is None else seeds[rows]
            inputs = self._inputs(source, of_rows, prefixes, among)
            if engine == "numpy" and among is None and self.shortlist is not None:
                inputs["draft"] = self.shortlist.words_of(source)
            found = self._found(find, inputs)
            for place, row in enumerate(rows):
                source = read.tokens(lines[row])[: len(ids[row])]
                start = [] if starts is None else starts[row][0]
                ranked = [
                    make(source, *(x if x is None else x[place, rank] for x in found), start)
                    for rank, length in enumerate(found.lengths[place])
                    if length or not rank  # the best alone may have no length, of NaN scores
                ]
                if not return_alignments:
                    ranked = [dataclasses.replace(each, alignment=None) for each in ranked]
                ranked = [dataclasses.replace(each, unknown=unknown[row]) for each in ranked]
                results[row] = dataclasses.replace(ranked[0], alternatives=tuple(ranked[1:]))
            return found.scores

        batches = list(batches_of(filled, list(map(len, ids)), size))
        self._in_streams(find, translate, batches, streams)
        return results

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batch_size: int | None = None,
        *,
        on_too_long: str = "error",
    ) -> list[Translation | None]:
        """Make the network write given translations.

        Args:
            sources: sentences.
            targets: their translations.
            batch_size: pairs scored together.
            on_too_long: what to do with a pair one side of which has more than 10,000 tokens:
                `"error"`, `"truncate"` or `"skip"` (None stands in its place).

        Returns:
            One `Translation` for each pair, which holds the given target, its log-probability (as
            score too), that of each token and the attention weights with which it was written.
        """
        sources, targets = as_pairs(sources, targets)
        preprocessor = self.require_preprocessor()
        read, write = preprocessor.source_tokenizer, preprocessor.target_tokenizer
        source_ids, long = encode_checked(read, sources, "sources", on_too_long)
        target_ids, long_targets = encode_checked(write, targets, "targets", on_too_long)
        skipped = {*long, *long_targets} if on_too_long == "skip" else set()
        forced = self._forced(attention=True)
        lengths = list(map(max, map(len, source_ids), map(len, target_ids)))
        results: list[Any] = [None] * len(sources)
        streams = stream_count(self.search.streams)
        size = rows_of_a_batch(len(sources), batch_size or self.search.batch_size, streams)

        def score(rows: list[int]) -> np.ndarray:
            sides = ([ids[row] for row in rows] for ids in (source_ids, target_ids))
            inputs, labels = preprocessor.arrays(*sides)
            losses, attention = forced(inputs["source"], inputs["target"], labels)
            terms = -ops.convert_to_numpy(losses)
            totals = terms.sum(axis=1)
            attention = None if attention is None else ops.convert_to_numpy(attention)
            for place, row in enumerate(rows):
                matrix, total = None, float(totals[place])
                if attention is not None:
                    matrix = attention[place, : len(target_ids[row]), : len(source_ids[row])]
                tokens = (
                    write.tokens(targets[row])[: len(target_ids[row])],
                    read.tokens(sources[row])[: len(source_ids[row])],
                )
                given = targets[row], total, total, *tokens, matrix
                of_tokens = terms[place, : len(target_ids[row]) + 1].astype(float).tolist()
                results[row] = Translation(
                    *given,
                    ids=tuple(target_ids[row]),
                    token_log_probabilities=of_tokens,
                    unknown=_unknown_positions(source_ids[row]),
                )
            return totals

        rows = [row for row in range(len(sources)) if row not in skipped]
        batches = list(batches_of(rows, lengths, size))
        self._in_streams(forced, score, batches, streams)
        return results

    def perplexity(
        self, sources: Sequence[str], targets: Sequence[str], *, on_too_long: str = "error"
    ) -> float:
        """Return the perplexity of given translations, per token, ends counted.

        `on_too_long` is as of `score`; pairs that are skipped do not count.
        """
        results = [each for each in self.score(sources, targets, on_too_long=on_too_long) if each]
        if not results:
            raise ValueError("A perplexity needs at least one pair of sentences. Received: none")
        loss = -sum(result.log_probability for result in results)
        with np.errstate(over="ignore"):  # inf, of a network that has diverged
            return float(np.exp(loss / sum(len(result.tokens) + 1 for result in results)))

    def evaluate_text(
        self,
        sources: Sequence[str],
        targets: Sequence[str | Sequence[str]],
        search: SearchOptions | None = None,
        *,
        tokenize: str | None = None,
        on_too_long: str = "error",
        engine: str | None = None,
        compute_type: str | None = None,
        shortlist: Shortlist | bool | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Return BLEU, chrF, perplexity, exact matches and BLEU by source length, as JSON types.

        Args:
            sources: sentences.
            targets: the translation of each, or a list of several references. Of several, BLEU and
                chrF count the best matches, an exact match is of any, and the perplexity is that of
                the first.
            search: how to search; None for the task's own options.
            tokenize: BLEU's tokeniser, as for [`bleu`][applications.translation.metrics.bleu];
                None for that of the task's `target_language`.
            on_too_long: what to do with a pair one side of which has more than 10,000 tokens:
                `"error"`, `"truncate"` or `"skip"` (leave it out). The figures then say how many
                there were, as `"truncated"` or `"left_out"`.
            engine, compute_type, shortlist: as for `translate`; the perplexity needs none of them.
            **options: fields of `SearchOptions` to change.

        Returns:
            The figures; `"signature"` says how BLEU was computed: its tokeniser (`tok`) and the
            number of references (`nrefs`).
        """
        references = as_references(targets)
        first = [each[0] for each in references]
        sources, first = as_pairs(sources, first)
        tokenize = tokenize or self.bleu_tokenizer
        bleu(first[:1], references[:1], tokenize=tokenize)  # before minutes of search
        chosen = self.search_with(search, options)
        by = {"engine": engine, "compute_type": compute_type, "shortlist": shortlist}
        long = self.refuse_long(sources, first, on_too_long)
        if on_too_long == "skip":
            sources, first, references = without_rows(long, sources, first, references)
            if long and not sources:
                raise UserError("Every sentence pair is too long. Received: on_too_long='skip'")
        counts = {{"skip": "left_out"}.get(on_too_long, "truncated"): len(long)} if long else {}
        by["on_too_long"] = on_too_long
        found = self.translate(sources, chosen, return_alignments=False, **by)
        report = evaluation_report(sources, [each.text for each in found], references, tokenize)
        perplexity = self.perplexity(sources, first, on_too_long=on_too_long)
        return {"beam_size": chosen.beam_size, **report, "perplexity": perplexity, **counts}

    @property
    def bleu_tokenizer(self) -> str:
        """BLEU's tokeniser for the task's `target_language`."""
        return bleu_tokenizer(self.target_language)

    def links(self, translation: Translation) -> Links:
        """Return the links between words, `(source word, target word)`, both counted from 0.

        Each target word is linked to the source word to whose tokens its tokens attend the most.

        Raises:
            ValueError: where the translation has no alignment.
        """
        return links_of(translation, self.require_preprocessor())

    def draw(
        self, text: str, output: Path | str | None = None, target: str | None = None
    ) -> Translation:
        """Draw the attention of the network as it translates a sentence; return the translation.

        Args:
            text: the sentence.
            output: a new .png, .svg or .pdf; None for none: a notebook shows the result itself.
            target: a translation that the network is made to write in place of its own.
        """
        if output is not None:
            check_picture(output)
        if not self.backbone.has_attention:
            name = type(self.backbone).__name__
            raise ValueError(f"A picture needs a network with attention. Received: {name}")
        (result,) = self.translate([text]) if target is None else self.score([text], [target])
        if not result.tokens:
            raise ValueError("There is nothing to draw. Received: an empty sentence or translation")
        if output is not None:
            result.plot(output)
        return result

    def explain(
        self, text: str, *, beam_size: int | None = None, target: str | None = None
    ) -> Explanation:
        """Translate a sentence and return its beams with all attention, for a page or pictures.

        Args:
            text: the sentence.
            beam_size: beams of the search, all of which come; None for the task's own.
            target: a translation that the network is made to write in place of its own.
        """
        check_single(self, "explains", sentence=text, target=target or "")
        size = self.search.beam_size if beam_size is None else beam_size
        search = self.search.replace(beam_size=size, n_best=size)
        (result,) = self.score([text], [target]) if target else self.translate([text], search)
        ranked, maps = result.ranked, {}
        if result.source_tokens:
            ids = self.preprocessor.source_tokenizer.encode([text]) * len(ranked)
            inputs, _ = self.preprocessor.arrays(ids, [each.ids[:-1] for each in ranked])
            found = self._compiled("maps", self.backbone.attention_maps, 2, 2)
            maps = found(inputs["source"], inputs["target"])
        maps = {name: ops.convert_to_numpy(weights) for name, weights in maps.items()}
        network = self.backbone
        layer = getattr(network, "attention_layer", -1)
        head = getattr(network, "attention_head", None)
        answers = [
            ExplainedAnswer(
                each.text,
                each.score,
                maps_of(each, maps, place, layer, head),
                each.token_log_probabilities or [],
            )
            for place, each in enumerate(ranked)
        ]
        inputs = {"text": text} | ({"target": target} if target else {})
        notes = [result.note] if result.note else []
        return Explanation(self.name_of_task, inputs, result.text, answers, notes)

    def show_attention(self, layer: int | None = None, head: int | None = None) -> None:
        """Choose whose attention results hold, as `Transformer.show_attention` says."""
        if not hasattr(self.backbone, "show_attention"):
            raise ValueError(
                f"{type(self.backbone).__name__} has no attention layers and heads to choose from. "
                f"Received: layer={layer}, head={head}"
            )
        self.backbone.show_attention(layer, head)
        self._compiled_functions.clear()

    read_columns = staticmethod(data.in_memory)
    make_batches = staticmethod(data.make_batches)

    def encode(self, corpus: Corpus) -> Encoded:
        return data.encode(corpus, self.preprocessor)

    def encode_to_train(self, corpus: Corpus) -> Encoded:
        return data.in_variants(corpus, self.encode(corpus), self.preprocessor)

    def default_loss(self) -> keras.losses.Loss:
        return MaskedSparseCategoricalCrossentropy(label_smoothing=self.label_smoothing)

    def feature_loss(self, loss) -> keras.losses.Loss | None:
        network, is_own = self.backbone, type(loss) is MaskedSparseCategoricalCrossentropy
        is_own = is_own and (loss.reduction, loss.ignore_index) == ("mean_with_sample_weight", 0)
        if not is_own or network.feature_size == network.target_vocabulary_size:
            return None  # the width must tell features from logits
        return WordCrossentropy(network, loss.label_smoothing)

    def export(self, filepath: Path | str, format: str = "saved_model", **options: Any) -> None:
        """Write the translator for use elsewhere; raise a ValueError where that cannot be.

        Args:
            filepath: the folder to write; it must not exist.
            format: `"saved_model"` (strings in, strings, scores and alignments out),
                `"ctranslate2"` (a `Transformer`, for that engine), `"litert"` (`export_litert` says
                what, and names its options), `"web"` (a page that runs the model in the browser,
                with nothing installed: `export_web`) or `"keras"`: the whole task as `model.keras`,
                read once `keras_attention.applications.translation` is imported.
            **options: of `"saved_model"`, `max_letters` and fields of `SearchOptions` to change; of
                `"web"`, the `example` that the page shows at first.
        """
        check_choice("`format`", format, FORMATS)
        if format in ("saved_model", "tf_saved_model"):
            return super().export(filepath, format, **options)
        unknown = set(options) - {"web": {"example"}, "litert": set(options)}.get(format, set())
        if unknown:
            raise ValueError(
                "The options of a search belong to a format that holds one: saved_model, litert. "
                f"Received: format={format!r}, {', '.join(sorted(unknown))}"
            )
        if format in EXPORTS:
            return EXPORTS[format](self, filepath, **options)
        with new_folder(filepath) as folder:
            folder.mkdir()
            self.save(folder / "model.keras")

    def service(
        self, search: SearchOptions | None = None, max_letters: int | None = None, **options: Any
    ) -> Any:
        from .serving import service

        options = self.search_with(search, options)
        return service(self, options, max_letters or self.served_letters)

    def batch_options(self, training) -> dict[str, Any]:
        sizes = {"batch_size": training.batch_size, "tokens_per_batch": training.batch_tokens}
        return sizes | {"number_of_buckets": training.buckets}

    @classmethod
    def read(cls, config, split) -> Corpus:
        return data.load_corpus(config.data, split)

    @classmethod
    def adapt(cls, config, corpus) -> TranslationPreprocessor:
        section = dataclasses.asdict(config.tokenizer)
        return TranslationPreprocessor.adapt(corpus["source"], corpus["target"], **section)

    @classmethod
    def configured(cls, config, preprocessor, dtype=None, **layers) -> "Translator":
        sizes = preprocessor.source_vocabulary_size, preprocessor.target_vocabulary_size
        options = config.data.max_length, config.tokenizer.shared, dtype
        network = build_model(config.model, *sizes, *options, **layers)
        if config.model.architecture == "transformer":
            network.show_attention(config.decoding.attention_layer, config.decoding.attention_head)
        loss = {name: getattr(config.training, name) for name in cls.training_keys}
        names = ("target_language", "source_language")
        languages = {name: getattr(config.data, name) for name in names}
        search = config.decoding.search()
        return cls(network, preprocessor, search, **languages, **loss)

    @classmethod
    def reads_foreign(cls, folder) -> bool:
        return reader_of(folder) is not None

    @classmethod
    def from_foreign(cls, folder, load_weights=True, dtype=None, **kwargs) -> "Translator":
        check_arguments(cls, dtype, kwargs)
        source = reader_of(folder).read(folder)
        network = source.network(dtype)
        if not load_weights:
            network = type(network).from_config(network.get_config())
        given = {"preprocessor": source.preprocessor, "search": source.search}
        given |= {"learning_rate": TUNING_RATE, **source.languages, **kwargs}
        task = cls(network, **given)
        task.card_sections = source.card()
        if "preprocessor" not in kwargs:
            task.shortlist = source.shortlist
        return task

    def write_more(self, folder):
        if self.shortlist is not None:
            self.shortlist.write(folder / SHORTLIST_FILE)

    def read_more(self, folder):
        path = folder / SHORTLIST_FILE
        if self.preprocessor is not None and path.is_file():
            self.shortlist = Shortlist.read(path, self.preprocessor)

    def settings(self, written):
        found, network = super().settings(written), self.backbone
        names = {made: name for name, made in NETWORKS.items()}
        if type(network) in names:
            found["model.architecture"] = names[type(network)]
        if isinstance(network, Luong):
            found |= settings_of_attention(network)
        source, target = self.preprocessor.tokenizers
        found["tokenizer.kind"] = source.kind
        found["tokenizer.shared"] = source.vocabulary == target.vocabulary
        return found

    def with_settings(self, config):
        task = super().with_settings(config)
        layer, head = config.decoding.attention_layer, config.decoding.attention_head
        if (layer, head) != (None, None):
            task.show_attention(layer, head)
        return task

    def about_figures(self) -> str:
        signature = bleu(["a"], ["a"], tokenize=self.bleu_tokenizer).signature
        return f"`val_bleu` is of greedy search: `{signature}`."

    def blind_score(self, corpus) -> str:
        return blind_bleu(corpus["target"], self.bleu_tokenizer)

    def measured_on(self, corpus, encoded, config) -> Any:
        texts = dict(corpus.columns)
        search = dataclasses.asdict(self._greedy())
        return [*super().measured_on(corpus, encoded, config), texts, search]

    def _greedy(self) -> SearchOptions:
        """Return the search that judges an epoch."""
        return self.search.replace(beam_size=1, n_best=1, streams=1)

    def development(self, corpus, batches, config):
        """Return a function that gives the figures of an epoch.

        `val_loss` is the mean negative log-likelihood of a token, without label smoothing,
        `val_perplexity` its exponential; `val_bleu`, if training stops by it, of greedy search.
        """
        dataset, forced = batches.to_dataset(epochs=1), self._forced(attention=False)
        by_bleu, read = config.training.early_stopping == "bleu", self.preprocessor.source_tokenizer
        search, tokenize = self._greedy(), self.bleu_tokenizer
        ids = encode_checked(read, corpus["source"], "source", "truncate")[0] if by_bleu else []

        def figures() -> dict[str, float]:
            total, tokens = 0.0, 0
            for inputs, labels, *_ in dataset:
                losses, _ = forced(inputs["source"], inputs["target"], labels)
                total += np.sum(ops.convert_to_numpy(losses), dtype="float64")
                tokens += np.count_nonzero(labels)
            loss = total / tokens
            with np.errstate(over="ignore"):  # inf, which ends the training
                found = {"val_loss": loss, "val_perplexity": float(np.exp(loss))}
            if by_bleu:
                results = self._translated(corpus["source"], ids, search)
                texts = [each.text for each in results]
                references = [nfc(target) for target in corpus["target"]]
                found["val_bleu"] = bleu(texts, references, tokenize=tokenize).value
            return found

        return figures

    def refuse_long(
        self, sources: Sequence[str], targets: Sequence[str], on_too_long: str = "error"
    ) -> list[int]:
        """Return the rows of pairs that are too long; where that is an error, raise a `TooLong`."""
        columns = {"sources": sources, "targets": targets}
        tokenizers = self.require_preprocessor().tokenizers
        found = (
            encode_checked(tokenizer, column, name, on_too_long)[1]
            for tokenizer, (name, column) in zip(tokenizers, columns.items(), strict=True)
        )
        return sorted(set().union(*found))

    def _forced(self, attention: bool):
        function = functools.partial(force, self.backbone, attention=attention)
        return self._compiled(("forced", attention), function, 2, 2, 2)

    def _shortlist_of(self, shortlist: Shortlist | bool | None) -> Shortlist | None:
        """Return the shortlist that an argument stands for."""
        if shortlist is True and self.shortlist is None:
            raise ValueError(
                "`shortlist=True` takes the shortlist that came with the model. "
                "Received: a translator without one; give a Shortlist, or leave it out"
            )
        return self.shortlist if shortlist is True else shortlist or None

    def _room_of(self, shortlist, ids, options, starts) -> int | None:
        """Return how many words a graph has room for in the lists of all batches."""
        if shortlist is None or shortlist.size is not None:
            return None if shortlist is None else shortlist.size
        rows = [row for row, each in enumerate(ids) if each]
        size, most = len(rows), options.batch_size
        if size > most:
            size = rows_of_a_batch(size, most, stream_count(options.streams))
        batches = batches_of(rows, list(map(len, ids)), max(size, 1))
        return shortlist.room_for(
            shortlist.words_of(
                np.concatenate([ids[row] for row in batch]),
                [] if starts is None else [starts[row][1] for row in batch],
            )
            for batch in batches
        )

    def _found_by(
        self, engine, compute_type, shortlist, lengths, options, attention, has_prefix, room
    ):
        """Return the same as `_planned`, with the search of an engine where one is named."""
        if engine is None:
            return self._planned(lengths, options, attention, has_prefix, room)
        check_choice("`engine`", engine, ENGINES)
        if has_prefix:
            raise UserError(f"The engine {engine} takes no prefix: {WAY_OUT}")
        made = self._engines.setdefault(engine, ENGINES[engine](self))
        compute_type = compute_type or "float32"
        run, size, streams = made.planned(options, compute_type, attention, len(lengths))
        return (lambda inputs: run(**inputs)), size, streams


def _unknown_positions(ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(index for index, token in enumerate(ids) if token == UNK_ID)
