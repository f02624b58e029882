"""The summariser: a Keras task from documents to summaries."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_attention.decoding import SearchOptions
from keras_attention.layers import AttentionMechanism, CoverageAttention, TemporalAttention
from keras_attention.losses import MaskedSparseCategoricalCrossentropy

from ..base.backend import of_at_most, seeds_in_graph, service_of
from ..base.preprocessor import check_equally_many
from ..base.search_task import SearchTask, seeds_of
from ..data.corpus import Corpus
from ..data.encoded import Encoded
from ..data.lengths import without_rows
from ..errors import UserError, check_counts
from ..schema.keys import with_keys
from ..show.explanation import ExplainedAnswer, Explanation
from ..show.results import Results, ranked_number
from ..store.files import check_picture
from ..text import END_ID, PAD_ID, UNK_ID, BucketedBatches
from . import data
from .config import SummarizationConfig
from .metrics import oracle_sentences
from .networks.encoders import HierarchicalEncoder, TransformerReader
from .networks.model import LabelLikelihood, SummarizationModel, build_model
from .networks.model import search as search_in
from .preprocessor import (
    EncodedDocument,
    SummarizationPreprocessor,
    as_documents,
    as_summaries,
)
from .results import Summary, evaluation_report

MOST_WORDS = 2**17
"""The most words, padding included, of documents that are searched for together."""


@keras.saving.register_keras_serializable("keras_attention.summarization")
class Summarizer(SearchTask):
    """Summarises documents: a network, its preprocessor, and how it searches.

    A document is a text, which is split into sentences, or a list of sentences.

    Args:
        backbone: the network.
        preprocessor: what turns documents and summaries into its ids, and back.
        search: how summaries are searched for, whose lengths are in words, the end not counted;
            None for a beam of 4.
        **kwargs: `name`, `compile` and the like of `keras_hub.models.Task`.

    Raises:
        ValueError: where network and preprocessor do not fit each other.

    Example:

    ```python
    from keras_attention.applications.summarization import Summarizer

    documents, summaries = ["One dog runs. It barks.", "Two cats. They sleep."], ["dog", "cats"]
    summarizer = Summarizer.from_texts(documents, summaries, units=8)
    summarizer.fit(documents, summaries, epochs=1, verbose=0)
    print(summarizer.summarize("A dog barks.", max_length=5).text)
    ```
    """

    name_of_task = "summarization"
    config_class = SummarizationConfig
    preprocessor_keys: ClassVar = {
        f"data.{name}": name for name in ("max_words", "max_summary_words")
    }
    kept_keys = ("data.max_sentences",)  # a hierarchical encoder has a position for each
    asks: ClassVar = {"text": "Document"}
    action = "Summarise"
    network_class, preprocessor_cls = SummarizationModel, SummarizationPreprocessor
    served_letters = 100_000  # of which `max_words` words are read
    find, verb, source_rank = staticmethod(search_in), "summarize", 3
    must_fit: ClassVar = {
        "vocabulary_size": "vocabulary_size",
        "extra_size": "extra_words",
        "reads_sentences": "by_sentence",
    }

    @classmethod
    def from_texts(
        cls,
        documents: Sequence[str | Sequence[str]],
        summaries: Sequence[str | Sequence[str]],
        *,
        units: int = 256,
        embedding_size: int = 128,
        vocabulary_size: int = 20_000,
        attention: AttentionMechanism | bool | None = None,
        coverage: bool = False,
        search: SearchOptions | Mapping[str, Any] | None = None,
        tokenizer: Mapping[str, Any] | None = None,
        lengths: Mapping[str, Any] | None = None,
        dtype: Any = None,
        **model: Any,
    ) -> "Summarizer":
        """Return a summariser with new weights, whose vocabulary comes from the texts given.

        Args:
            documents: texts, or lists of sentences.
            summaries: a summary of each, or a list of several.
            units: units of the encoder, of both directions together, and of the decoder.
            embedding_size: width of the word embeddings.
            vocabulary_size: most words of the vocabulary.
            attention: the mechanism, False for none; None for the one that the other keys say:
                additive attention where they say nothing.
            coverage: whether additive attention has coverage.
            search: how summaries are searched for.
            tokenizer: more keys of `TokenizerConfig`, such as `{"lowercase": False}`.
            lengths: keys of `DataConfig` that limit texts: `max_sentences`, `max_words` and
                `max_summary_words`.
            dtype: the dtype policy of the network; None for Keras' global one.
            **model: more keys of `ModelConfig`, such as `pointer=False`, `temporal=True` or
                `encoder="hierarchical"`; `encoder` may also be a Keras layer.

        Raises:
            ValueError: where there are no texts, something is no string, or a key is unknown.
        """
        given = {"attention": attention, "encoder": model.get("encoder")}
        layers = {k: v for k, v in given.items() if isinstance(v, keras.layers.Layer)}
        if "encoder" in layers:
            by_sentence = getattr(layers["encoder"], "reads_sentences", False)
            model["encoder"] = "hierarchical" if by_sentence else "flat"
        config = SummarizationConfig.of(
            data=lengths or {},
            tokenizer=with_keys({"vocabulary_size": vocabulary_size}, tokenizer, "tokenizer"),
            model={
                "units": units,
                "embedding_size": embedding_size,
                "attention": attention is not False,
                "coverage": coverage,
                **model,
            },
        )
        task = cls.from_corpus(config, data.in_memory(documents, summaries), dtype, **layers)
        task.search = task.search_with(search, {})
        return task

    # ---- In use.

    def summarize(
        self,
        documents: str | Sequence[str | Sequence[str]],
        search: SearchOptions | None = None,
        *,
        return_attention: bool = True,
        prefix: str | Sequence[str] | None = None,
        on_too_long: str = "truncate",
        **options: Any,
    ) -> "Summary | None | list[Summary | None]":
        """Summarise a text, or many documents: those of like lengths share a batch.

        A document without a word has an empty summary of score 0.

        Args:
            documents: a text, or a sequence of texts and lists of sentences.
            search: how to search; None for the task's own options.
            return_attention: whether to return the attention. For many long documents that is
                much: a number for each word of the summary and each word of the document.
            prefix: the text that each summary begins with, or a list with one for each document; an
                empty one forces nothing. A word that the network does not know is kept as given.
            on_too_long: what to do with a document that has more than `max_sentences` sentences or
                `max_words` words: `"truncate"` (its beginning is read), `"error"` or `"skip"` (None
                stands in its place).
            **options: fields of `SearchOptions` to change, such as `beam_size=1`; None changes
                nothing.

        Returns:
            One `Summary`; of a sequence, a list of them in the order given.

        Raises:
            ValueError: where an option is out of its range, something is no text, a prefix is
                longer than a summary may be, or a document is too long and that is an error.
        """
        preprocessor = self.require_preprocessor()
        chosen = self.search_with(search, options)
        given = [documents] if isinstance(documents, str) else documents
        encoded = [preprocessor.document(each) for each in as_documents(given, "documents")]
        long = preprocessor.rows_too_long(encoded, on_too_long)
        if skipped := on_too_long == "skip":
            for row in long:
                encoded[row] = preprocessor.document([])
        # A summary takes about so many steps: no more than its document has words.
        lengths = [min(sum(map(len, each.ids)), chosen.max_length) for each in encoded]
        limits = [chosen.longest(sum(map(len, each.ids))) for each in encoded]
        start, prefixes = self._starts(prefix, documents, encoded, limits)
        find, size, streams = self._planned(lengths, chosen, return_attention, any(prefixes))
        seeds = seeds_of(chosen, len(encoded))
        nothing = np.zeros(0)
        weights = (np.zeros((0, 0)), nothing) if return_attention else ()
        results = [
            Summary("", 0.0, 0.0, [], nothing, nothing, each.words, *weights) for each in encoded
        ]

        def summarize(rows: list[int]) -> np.ndarray:
            source = preprocessor.source([encoded[row] for row in rows])
            inputs = self._inputs(
                source,
                None if seeds is None else seeds[rows],
                [prefixes[row] for row in rows] if any(prefixes) else None,
            )
            found = self._found(find, inputs)
            for place, row in enumerate(rows):
                parts = [x if x is None else x[place] for x in found]
                ranked = list(self._ranked(encoded[row], start[row], source[place], *parts))
                results[row] = dataclasses.replace(ranked[0], alternatives=tuple(ranked[1:]))
            return found.scores

        batches = list(self._batches(encoded, size))
        if streams > 1:  # the longest first, so that streams end together
            batches.reverse()
        self._in_streams(find, summarize, batches, streams)
        for row in long:
            results[row] = None if skipped else dataclasses.replace(results[row], truncated=True)
        return results[0] if isinstance(documents, str) else Results(results)

    def evaluate_text(
        self,
        documents: Sequence[str | Sequence[str]],
        summaries: Sequence[str | Sequence[str]],
        search: SearchOptions | None = None,
        *,
        lead: int = 1,
        on_too_long: str = "truncate",
        **options: Any,
    ) -> dict[str, Any]:
        """Return ROUGE, and the shares of repeated, copied and unknown words, as JSON types.

        Args:
            documents: texts, or lists of sentences.
            summaries: a reference of each, or a list of several.
            search: how to search; None for the task's own options.
            lead: the number of sentences in two extracts for comparison: the document's first
                sentences, and those that `oracle_sentences` chooses.
            on_too_long: what to do with a document that is longer than is read: `"truncate"`,
                `"error"` or `"skip"` (leave it out). The figures then say how many there were, as
                `"truncated"` or `"left_out"`.
            **options: fields of `SearchOptions` to change.

        Returns:
            The figures: `"rouge1"`, `"rouge2"`, `"rougeL"`, and `"rougeLsum"`, which compares
            sentence by sentence; `"signature"` says how ROUGE was computed, `"rouge1_low"` and
            `"rouge1_high"` are the ends of a 95 % confidence interval, and `"lead_rouge"` and
            `"oracle_rouge"` are the ROUGE of the two extracts.
        """
        check_counts(lead=lead)
        documents = as_documents(documents, "documents")
        summaries = as_summaries(summaries, "summaries")
        check_equally_many(documents=documents, summaries=summaries)
        if not documents:
            raise ValueError("`documents` should have at least one document. Received: none")
        chosen = self.search_with(search, options)
        results = self.summarize(documents, chosen, return_attention=False, on_too_long=on_too_long)
        skipped = [row for row, each in enumerate(results) if each is None]
        columns = without_rows(skipped, results, documents, summaries)
        if not columns[0]:
            raise UserError("Every document is too long. Received: on_too_long='skip'")
        counts = {"left_out": len(skipped), "truncated": sum(each.truncated for each in columns[0])}
        counts = {name: count for name, count in counts.items() if count}
        return {"beam_size": chosen.beam_size, **self.measure(*columns, lead), **counts}

    def measure(
        self,
        results: Sequence[Summary],
        documents: Sequence[Sequence[str]],
        summaries: Sequence[Sequence[str]],
        lead: int = 1,
    ) -> dict[str, Any]:
        """Return the figures of `evaluate_text` for given summaries."""
        wanted = [[self._as_written(text) for text in texts] for texts in summaries]
        extracts: dict[str, list[str]] = {"lead": [], "oracle": []}
        for sentences, texts in zip(documents, wanted, strict=True):
            best = [sentences[place] for place in oracle_sentences(sentences, texts, lead)]
            for name, chosen in (("lead", sentences[:lead]), ("oracle", best)):
                extracts[name].append(self._as_written(" ".join(chosen)))
        tokens = [self.preprocessor.tokenizer.tokens(texts[0]) for texts in wanted if texts]
        return {"lead": lead, **evaluation_report(results, wanted, extracts, tokens)}

    def draw(self, document: str | Sequence[str], output: Path | str | None = None) -> Summary:
        """Draw where in the document each word of its summary comes from.

        Args:
            document: a text, or a list of sentences.
            output: the picture to write, a new .png, .svg or .pdf; None draws nothing: a notebook
                shows the result itself.

        Returns:
            The summary that the picture shows.

        Raises:
            ValueError: where the document or its summary has no words, or the network no attention.
        """
        if output is not None:
            check_picture(output)
        if not self.backbone.has_attention:
            raise ValueError(
                "A picture needs a network with attention. Received: model.attention false"
            )
        (result,) = self.summarize([document])
        if not result.tokens:
            raise ValueError("There is nothing to draw. Received: no words to read or to write")
        if output is not None:
            result.plot(output)
        return result

    def explain(self, text: str | Sequence[str], *, beam_size: int | None = None) -> Explanation:
        """Summarise a document; return the beams and where their words come from, for a page.

        Args:
            text: the document, a text or a list of sentences.
            beam_size: beams of the search, all of which come; None for the task's own.
        """
        size = self.search.beam_size if beam_size is None else beam_size
        (result,) = self.summarize([text], self.search.replace(beam_size=size, n_best=size))
        found = [
            ExplainedAnswer(each.text, each.score, each.maps(), each.token_log_probabilities)
            for each in result.ranked
        ]
        inputs = {"text": text if isinstance(text, str) else "\n".join(text)}
        notes = [result.note] if result.note else []
        return Explanation(self.name_of_task, inputs, result.text, found, notes)

    # ---- The hooks of `TextTask`.

    read_columns = staticmethod(data.in_memory)
    make_batches = staticmethod(data.make_batches)

    def encode(self, corpus: Corpus) -> Encoded:
        return data.encode(corpus, self.require_preprocessor())

    def default_loss(self) -> keras.losses.Loss:
        return MaskedSparseCategoricalCrossentropy()

    def feature_loss(self, loss) -> keras.losses.Loss | None:
        """Return the loss of the labels' probabilities alone, where `loss` is the default one."""
        is_default = type(loss) is MaskedSparseCategoricalCrossentropy
        if not is_default or loss.get_config() != self.default_loss().get_config():
            return None
        return LabelLikelihood(self.backbone)

    def service(
        self,
        search: SearchOptions | None = None,
        max_letters: int | None = None,
        **options: Any,
    ):
        """Return the `tf.Module` that `export` writes, from texts `(B,)` to summaries and scores.

        A document has a sentence on each line, as no operation of a graph finds the sentences of a
        running text. Of several summaries that are searched for, the best comes, with the
        log-probability of each of its words and of the end, padded with 0.
        """
        import tensorflow as tf

        model, preprocessor = self.backbone, self.require_preprocessor()
        chosen = self.search_with(search, options)
        tokenizer = preprocessor.in_graph("tokenizer")
        vocabulary = tf.constant([preprocessor.tokenizer.vocabulary])
        signature = [tf.TensorSpec([None], tf.string, name="text")]

        @tf.function(input_signature=signature, autograph=False)
        def serve(text):
            (text,) = of_at_most(max_letters or self.served_letters, text=text)
            # One document more, of nothing: an empty batch has a shape too.
            source, _, _, unknown = preprocessor.ids_in_graph(tf.concat([text, [""]], axis=0))
            seeds = seeds_in_graph(chosen, source)
            result = search_in(model, source, chosen, seeds, attention=False)
            is_empty = tf.reduce_all(source == PAD_ID, axis=[1, 2])
            found = result.tokens[:, 0]
            kept = tf.sequence_mask(result.lengths[:, 0], tf.shape(found)[1]) & (found != END_ID)
            kept &= ~is_empty[:, None]
            words = tf.repeat(vocabulary, tf.shape(found)[0], axis=0)
            words = tf.concat([words, unknown], axis=1)
            written = tf.gather(words, tf.where(kept, found, PAD_ID), batch_dims=1)
            summary = tokenizer.join(tf.ragged.boolean_mask(written, kept))
            scores = tf.where(is_empty, 0.0, result.scores[:, 0])
            terms = tf.where(is_empty[:, None], 0.0, result.token_log_probabilities[:, 0])
            found = {"summary": summary, "scores": scores, "token_log_probabilities": terms}
            return {name: tensor[:-1] for name, tensor in found.items()}

        return service_of(serve, model, tokenizer)

    # ---- The hooks of the command.

    @classmethod
    def read(cls, config: SummarizationConfig, split: str) -> Corpus:
        return data.load_corpus(config.data, split)

    @classmethod
    def adapt(cls, config: SummarizationConfig, corpus: Corpus) -> SummarizationPreprocessor:
        options = {**dataclasses.asdict(config.tokenizer), **_preprocessing_of(config)}
        try:
            return SummarizationPreprocessor.adapt(corpus["source"], corpus["target"], **options)
        except ValueError as error:
            raise UserError(f"{corpus.name}: {error}") from None

    @classmethod
    def configured(
        cls, config: SummarizationConfig, preprocessor, dtype=None, **layers
    ) -> "Summarizer":
        sizes = (preprocessor.vocabulary_size, config.tokenizer.extra_words)
        network = build_model(config.model, *sizes, config.data.max_sentences, dtype, **layers)
        return cls(network, preprocessor, dataclasses.asdict(config.decoding))

    def settings(self, written):
        found, network = super().settings(written), self.backbone
        encoder, attention = network.encoder, network.decoder.attention
        readers = {HierarchicalEncoder: "hierarchical", TransformerReader: "transformer"}
        found["model.encoder"] = readers.get(type(encoder), "flat")
        if isinstance(encoder, TransformerReader):
            found |= {"model.layers": len(encoder.blocks), "model.heads": encoder.heads}
        found["data.max_sentences"] = self.preprocessor.max_sentences
        found["model.attention"] = network.has_attention
        found["model.temporal"] = isinstance(attention, TemporalAttention)
        found["model.coverage"] = isinstance(attention, CoverageAttention)
        if isinstance(attention, CoverageAttention):
            found["model.coverage_weight"] = attention.loss_weight
            found["model.coverage_start"] = attention.loss_start
        if network.pointer is not None:
            found["tokenizer.extra_words"] = network.extra_size
        return found

    def development(self, corpus: Corpus, batches: BucketedBatches, config: Any):
        """Return a function that gives `val_loss`, the mean loss of a word."""
        dataset = batches.to_dataset(epochs=1)

        def likelihood(inputs, labels):
            return self.backbone.log_likelihood(labels, self.backbone.features(inputs, False))

        def figures() -> dict[str, float]:
            find = self._compiled("likelihood", likelihood, {"source": 3, "target": 2}, 2)
            total, words = 0.0, 0
            for inputs, labels, *_ in dataset:
                real = np.asarray(labels) != PAD_ID
                total -= float(np.sum(ops.convert_to_numpy(find(inputs, labels)) * real))
                words += int(real.sum())
            return {"val_loss": total / words}

        return figures

    # ---- Parts of the methods above.

    def _as_written(self, text: str) -> str:
        """Return a text as the tokenizer writes it: in lower case where it makes it so."""
        tokenizer = self.preprocessor.tokenizer
        return tokenizer.join(tokenizer.tokens(text))

    def _starts(
        self, prefix: Any, documents: Any, encoded: list[EncodedDocument], limits: list[int]
    ) -> tuple[list[list[str]], list[list[int]]]:
        """Return the words that each summary begins with, and their ids."""
        words: list[list[str]] = [[] for _ in encoded]

        def encode(text: str, row: int) -> list[int]:
            words[row] = self.preprocessor.tokenizer.tokens(text)
            return self.preprocessor.summary(text, encoded[row])[1]

        ids = self._prefix_ids(prefix, documents, "documents", encode, limits)
        return words, ids

    def _ranked(
        self,
        document: EncodedDocument,
        start: list[str],
        source,
        tokens,
        lengths,
        scores,
        likelihoods,
        history,
        terms,
    ) -> Iterator[Summary]:
        """Yield the summaries that a search found of a document, best first.

        Each begins with the words of `start`.
        """
        preprocessor = self.preprocessor
        real = np.flatnonzero(source.ravel() != PAD_ID)
        known = preprocessor.vocabulary_size
        read = [index for sentence in document.ids for index in sentence]
        is_unknown = [index == UNK_ID or index >= known for index in read]
        unknown_source = tuple(np.flatnonzero(is_unknown).tolist())
        for place, length in enumerate(lengths):
            if place and not length:  # fewer exist than were asked for
                return
            ids = np.array([index for index in tokens[place, :length] if index != END_ID], int)
            words = [preprocessor.word(int(index), document) for index in ids]
            unknown = ids == UNK_ID
            words[: len(start)] = start[: len(words)]
            unknown[: len(start)] = False
            weights = ()
            if history is not None:
                rows = history[place, : len(ids)]
                weights = (rows[:, real], rows[:, -1].copy())  # a view would keep all of the batch
            yield Summary(
                preprocessor.tokenizer.join(words),
                ranked_number(scores[place]),
                ranked_number(likelihoods[place]),
                words,
                ids >= preprocessor.vocabulary_size,
                unknown,
                document.words,
                *weights,
                token_log_probabilities=terms[place, :length].astype("float64").tolist(),
                unknown_source=unknown_source,
            )

    def _batches(self, documents: list[EncodedDocument], size: int) -> Iterator[list[int]]:
        """Yield the rows of documents that have words, in batches of like lengths.

        A batch has fewer documents where, padded to the same sentences and words, they would take
        too much memory: one sentence of a thousand words makes all others as wide.
        """
        read = [self.preprocessor.as_read(document.ids) for document in documents]
        shapes = {row: (len(ids), max(map(len, ids))) for row, ids in enumerate(read) if any(ids)}

        def words(rows):  # of a document, padded to the longest of these rows
            return int(np.prod(np.max([shapes[row] for row in rows], axis=0)))

        order = sorted(shapes, key=lambda row: (words([row]), row))
        while order:
            batch = order[:size]
            while len(batch) > 1 and len(batch) * words(batch) > MOST_WORDS:
                batch.pop()
            yield batch
            del order[: len(batch)]


def _preprocessing_of(config: SummarizationConfig) -> dict[str, int | bool]:
    """Return the preprocessor's arguments in a configuration, without those of its vocabulary."""
    names = ("max_sentences", "max_words", "max_summary_words")
    return {
        "extra_words": config.tokenizer.extra_words if config.model.pointer else 0,
        "by_sentence": config.model.encoder == "hierarchical",
        **{name: getattr(config.data, name) for name in names},
    }
