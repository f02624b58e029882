"""The tagger: a Keras task from words to a tag for each."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_attention.layers import CRF
from keras_attention.losses import CRFLoss
from keras_attention.visualization import display_tokens

from ..base.backbones import load_pretrained, write_backbone
from ..base.backend import of_at_most, service_of
from ..base.preprocessor import as_column, is_column, weights_of
from ..base.task import TextTask
from ..data.corpus import Corpus
from ..data.vectors import read_first_words, start_vectors
from ..errors import UserError, check_counts, say, shown
from ..schema.keys import keys_of
from ..show.explanation import AttentionMap, Explanation, Tokens, attention_map
from ..show.results import Results
from ..store.bad_lines import checked
from ..text import BucketedBatches
from . import data, metrics, results
from .config import ModelConfig, TaggingConfig
from .data import Sentence, as_sentences, cut
from .networks import PACKAGE, Tagger
from .preprocessor import TaggingPreprocessor


@keras.saving.register_keras_serializable(PACKAGE)
class TokenClassifier(TextTask):
    """Gives each word of a sentence a tag: names, chunks, parts of speech, semantic roles.

    Args:
        backbone: the network, a `Tagger`.
        preprocessor: from words and tags to its ids and targets.
        **kwargs: `name`, `compile` and the like of `keras_hub.models.Task`.

    Raises:
        ValueError: where network and preprocessor do not fit each other.

    Example:

    ```python
    from keras_attention.applications.tagging import TokenClassifier

    words = [["Anna", "lives", "in", "Rome"], ["Rome", "likes", "Bob", "Stone"]] * 40
    tags = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "O", "B-PER", "I-PER"]] * 40
    tagger = TokenClassifier.from_texts(words, tags, units=16)
    tagger.fit(words, tags, epochs=4, verbose=0)
    for span in tagger.tag("Anna likes Rome").spans:
        print(span.label, span.text, span.start, span.end)
    ```
    """

    name_of_task = "tagging"
    action = "Tag"
    asks: ClassVar = {"text": "Text"}
    config_class = TaggingConfig
    network_class, preprocessor_cls = Tagger, TaggingPreprocessor
    must_fit: ClassVar = {"roles": "roles", "window": "max_length"}

    @classmethod
    def from_texts(
        cls,
        sentences: Sequence[Any],
        tags: Sequence[Any],
        *,
        architecture: str = "lstm",
        units: int = 100,
        embedding_size: int | None = None,
        tokenizer: Mapping[str, Any] | None = None,
        vectors: Mapping[str, Any] | None = None,
        scheme: str = "own",
        max_length: int = 256,
        roles: bool | None = None,
        dtype: Any = None,
        **model: Any,
    ) -> "TokenClassifier":
        """Return a task with new weights, whose words and tags are those of the sentences given.

        Args:
            sentences: lists of words; or texts, which are cut into words; or for roles pairs of
                one of these and the index of the predicate.
            tags: a list of tags for each, a tag for each word.
            architecture: of the network, as in `ModelConfig`.
            units: width of its layers.
            embedding_size: width of the word embeddings; None for `units`, or those of a backbone.
            tokenizer: keys of `TokenizerConfig`, such as `{"min_count": 2}`.
            vectors: keys of `VectorsConfig`, such as `{"file": "glove.txt"}`.
            scheme: the scheme to learn spans in, `"own"`, `"BIO"` or `"BIOES"`.
            max_length: the most words that are read at once.
            roles: whether sentences are pairs with a predicate; None for what the first one is.
            dtype: the dtype policy of the network; None for Keras' global one.
            **model: more of `ModelConfig`, such as `letters="none"`, `dropout` or `backbone`.

        Raises:
            ValueError: where words and tags do not go together, or an option is unknown.
        """
        sentences = list(sentences) if is_column(sentences) else sentences
        if roles is None:
            roles = isinstance(sentences, list) and bool(sentences) and _is_role(sentences[0])
        items = as_sentences(sentences, tags, roles, "sentences")
        if not any(each.words for each in items):
            raise ValueError("Give at least one sentence with words. Received: none")
        if architecture != "backbone":
            model["embedding_size"] = units
        if embedding_size is not None:
            model["embedding_size"] = embedding_size
        config = TaggingConfig.of(
            data={
                "scheme": scheme,
                "max_length": max_length,
                "predicate_column": "predicate" if roles else None,
            },
            tokenizer=tokenizer or {},
            vectors=vectors or {},
            model={"architecture": architecture, "units": units, **model},
        )
        config.check()
        return cls.from_corpus(config, data.corpus_of(items, "the sentences given"), dtype)

    # ---- In use.

    def tag(
        self,
        x: Any,
        *,
        batch_size: int = 64,
        alternatives: int = 1,
        return_attention: bool = False,
        are_words: bool | None = None,
    ) -> results.Tagged | list[results.Tagged]:
        """Tag the words of a text or sentence, or of many.

        Args:
            x: a text, which is cut into words; or the words of a sentence, a list of strings
                without spaces; or a list of texts or of lists of words. With roles a pair of one of
                the first two and the index of the predicate, or a list of such pairs.
            batch_size: sentences read together.
            alternatives: how many sequences of tags each result has, the best first.
            return_attention: whether results have what words attended to, where the network has
                attention layers and the sentence fits the window.
            are_words: whether a list of strings is the words of one sentence; None where all of
                them are without spaces.

        Returns:
            One `Tagged`; of many, a list of them in the order given.

        Raises:
            ValueError: where something is neither a text nor a list of words.
        """
        check_counts(batch_size=batch_size, alternatives=alternatives)
        preprocessor = self.require_preprocessor()
        rows = list(as_column(x, "x", "texts or lists of words")) if is_column(x) else x
        if self._is_one(rows, are_words):
            options = {"alternatives": alternatives, "return_attention": return_attention}
            return self.tag([rows], are_words=False, **options)[0]
        sentences = as_sentences(rows, None, preprocessor.roles)
        found: list[Any] = [None] * len(sentences)
        attends = return_attention and self.backbone.has_attention
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row].words))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            answers = self._answers([sentences[row] for row in chosen], alternatives, attends)
            for row, answer in zip(chosen, answers, strict=True):
                given = rows[row][0] if preprocessor.roles else rows[row]
                found[row] = self._tagged(given, sentences[row], answer)
        return Results(found)

    def evaluate_text(
        self, sentences: Any, tags: Sequence[Any], batch_size: int = 64
    ) -> dict[str, Any]:
        """Return precision, recall and F1 of spans, and the accuracy of tags, as JSON types.

        Spans are those of `seqeval`; without spans there is accuracy alone. `"signature"` says how
        the figures are computed, `"broken"` how many spans of the true tags began with `I-` or
        `E-`.

        Args:
            sentences: as of `fit`.
            tags: a list of tags for each.
            batch_size: sentences read together.

        Raises:
            ValueError: where words and tags do not go together, or a tag is unknown.
        """
        return self.evaluate_corpus(self.read_columns(sentences, tags), batch_size)

    def evaluate_corpus(self, corpus: Corpus, batch_size: int = 64) -> dict[str, Any]:
        """Return what `evaluate_text` does, of a corpus."""
        self.encode(corpus)  # unknown tags are refused before the work
        sentences = corpus["sentence"]
        about = {"data": corpus.name, "sentences": len(corpus)}
        about["broken"] = data.broken_spans(sentences)
        truth = [each.tags for each in sentences]
        are_spans = self.preprocessor.scheme is not None
        figures = metrics.measure(truth, self._found(sentences, batch_size), are_spans)
        return {**about, "signature": metrics.signature("f1" in figures), **figures}

    def explain(self, text: str) -> Explanation:
        """Tag a text; return the tags, the next best ones and the attention, for a page.

        Args:
            text: the text; with roles the predicate stands between asterisks: `He *ate* it.`
        """
        if not isinstance(text, str):
            raise UserError(f"this TokenClassifier explains a text. Received: {shown(text)}.")
        given: Any = marked(text) if self.require_preprocessor().roles else text
        result = self.tag(given, alternatives=5, return_attention=True)
        return result.explanation({"text": text})

    # ---- The hooks of TextTask.

    def check_fit(self) -> None:
        super().check_fit()
        network, preprocessor = self.backbone, self.preprocessor
        wanted = {
            "vocabulary_size": preprocessor.tokenizer.vocabulary_size,
            "outputs_count": len(preprocessor.tags),
            "letters_size": 2 + len(preprocessor.letters),
        }
        for name, size in wanted.items():
            if getattr(network, name) != size:
                raise ValueError(
                    f"The network's `{name}` should be the preprocessor's, {size}. "
                    f"Received: {getattr(network, name)}"
                )
        reader = network.reader
        known = None if reader is None else reader.vocabulary_size
        # A backbone may have ids that its tokenizer does not use.
        if preprocessor.reads_backbone != (reader is not None) or (
            known is not None and known < preprocessor.tokenizer.vocabulary_size
        ):
            raise ValueError(
                "A network of a backbone goes with a preprocessor of the backbone's tokenizer. "
                f"Received: architecture {network.architecture} and "
                f"{type(preprocessor.tokenizer).__name__} of "
                f"{preprocessor.tokenizer.vocabulary_size} ids"
            )

    def read_columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
        if y is None:
            raise ValueError("Give sentences and their tags, as `fit(x, y)`. Received: y=None")
        items = as_sentences(x, y, self.require_preprocessor().roles)
        if not any(each.words for each in items):
            raise ValueError("Expected at least one sentence with words. Received: none")
        for row, each in enumerate(items):
            if not each.words:
                raise ValueError(f"A sentence should have words. Received: x[{row}] without any")
        return data.corpus_of(items, "the sentences given", weights_of(sample_weight, x=items))

    def encode(self, corpus: Corpus) -> data.EncodedSentences:
        return data.encode(corpus, self.preprocessor)

    def encode_to_train(self, corpus: Corpus) -> data.EncodedSentences:
        return self.encode(data.in_parts(corpus, self.preprocessor.max_length))

    def make_batches(
        self, encoded: data.EncodedSentences, batch_size: int, **options: Any
    ) -> BucketedBatches:
        return data.make_batches(encoded, batch_size, **options)

    def default_loss(self) -> keras.losses.Loss:
        return CRFLoss()

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        reader = self.backbone.reader
        usual = 3e-5 if reader is not None and reader.fine_tuned else 1e-2
        return keras.optimizers.Adam(usual if self.learning_rate is None else self.learning_rate)

    def describe(self, folder: Path) -> None:
        super().describe(folder)
        if self.backbone.reader is not None:
            write_backbone(folder, self.backbone.reader, self.preprocessor.tokenizer)

    def service(self, max_letters: int | None = None) -> Any:
        """Return the tagger as a `tf.Module` from texts to tags, which a SavedModel can hold.

        The signature `serving_default` takes `text` `(B,)` strings. It gives, of each word, padded
        with `""` and -1: `words` `(B, T)`, `tags`, `start` and `end`, its first character and the
        one after its last, and `probabilities`, that of its tag.
        """
        import tensorflow as tf

        network, preprocessor = self.backbone, self.preprocessor
        if preprocessor.roles:
            raise UserError("A SavedModel takes texts alone. Received: a tagger of roles.")
        names = tf.constant(preprocessor.tags)

        signature = [tf.TensorSpec([None], tf.string, name="text")]

        @tf.function(input_signature=signature, autograph=False)
        def serve(text):
            (text,) = of_at_most(max_letters or self.served_letters, text=text)
            inputs, words, start, end = preprocessor._read_in_graph(text)
            found = network.attend(inputs, training=False)
            real = inputs["words"] != 0
            likely = tf.gather(found["probabilities"], found["tags"], batch_dims=2)
            shape = tf.shape(real, out_type=tf.int64)

            def dense(values, default):
                return values.to_tensor(default, shape=shape)

            return {
                "words": dense(words, ""),
                "tags": tf.where(real, tf.gather(names, found["tags"]), ""),
                "start": dense(start, -1),
                "end": dense(end, -1),
                "probabilities": tf.where(real, tf.cast(likely, tf.float32), 0.0),
            }

        return service_of(serve, network, preprocessor.in_graph("tokenizer"))

    # ---- The hooks of the command.

    @classmethod
    def read(cls, config: TaggingConfig, split: str) -> Corpus:
        return data.load_corpus(config.data, split)

    @classmethod
    def adapt(cls, config: TaggingConfig, corpus: Corpus) -> TaggingPreprocessor:
        words, tokenizer = config.tokenizer, None
        if config.model.architecture == "backbone":
            tokenizer = load_pretrained(config.model.backbone, weights=False).tokenizer
        preprocessor = TaggingPreprocessor.adapt(
            corpus,
            vocabulary_size=words.vocabulary_size,
            min_count=words.min_count,
            lowercase=words.lowercase,
            scheme=config.data.scheme,
            roles=config.data.predicate_column is not None,
            max_length=config.data.max_length,
            tokenizer=tokenizer,
        )
        if config.data.test:
            # A fault of the test set stops the run before the training, not after it.
            list(checked(cls.read(config, "test")["sentence"], preprocessor.targets))
        if config.vectors.file is None:
            return preprocessor
        section = config.vectors
        size = config.model.embedding_size
        known = preprocessor.tokenizer
        file, tokenizer = read_first_words(section.file, size, known, section.extra_words)
        if tokenizer is not known:
            changed = {**preprocessor.get_config(), "tokenizer": tokenizer}
            preprocessor = TaggingPreprocessor(**changed)
        sizes = tokenizer.vocabulary_size, size, config.training.seed
        preprocessor.vectors, report = start_vectors(tokenizer, *sizes, file.vectors, file.path)
        say(report)
        return preprocessor

    @classmethod
    def configured(
        cls, config: TaggingConfig, preprocessor: TaggingPreprocessor, dtype: Any = None
    ) -> "TokenClassifier":
        model = dataclasses.asdict(config.model)
        model["heads"] = model["heads"] or 1
        source, fine_tune = model.pop("backbone"), model.pop("fine_tune")
        reader = None
        if config.model.architecture == "backbone":
            pretrained = load_pretrained(preprocessor.backbone_folder or source, dtype=dtype)
            reader = pretrained.reader(fine_tune, dtype)
        scheme = preprocessor.scheme
        network = Tagger(
            preprocessor.tokenizer.vocabulary_size,
            len(preprocessor.tags),
            2 + len(preprocessor.letters),
            preprocessor.letter_kinds,
            CRF.from_tags(preprocessor.tags, scheme).forbidden if scheme else (),
            roles=preprocessor.roles,
            window=preprocessor.max_length,
            reader=reader,
            dtype=dtype,
            **model,
        )
        if preprocessor.vectors is not None:
            network.word_vectors.embeddings.assign(preprocessor.vectors)
        return cls(network, preprocessor)

    def settings(self, written):
        found, preprocessor = super().settings(written), self.preprocessor
        network = self.backbone
        for name, each in keys_of(ModelConfig).items():
            wanted = each.applies_to.get("architecture")
            if wanted is not None and network.architecture not in wanted:
                found.pop(f"model.{name}", None)
        if network.reader is not None:
            found |= network.reader.settings()
        else:
            found["tokenizer.lowercase"] = preprocessor.tokenizer.lowercase
        found["data.max_length"] = preprocessor.max_length
        found["data.scheme"] = preprocessor.scheme or "own"
        return found

    def about_figures(self) -> str:
        return f"`val_score`: {metrics.signature(self.preprocessor.scheme is not None)}."

    def blind_score(self, corpus: Corpus) -> str:
        tags = {tag for each in corpus["sentence"] for tag in each.tags}
        if self.preprocessor.scheme is not None and tags <= {metrics.OUTSIDE}:
            return "it has no span, and F1 counts those that are found"
        return ""

    def development(
        self, corpus: Corpus, batches: BucketedBatches, config: TaggingConfig
    ) -> Callable[[], dict[str, float]]:
        truth = [each.tags for each in corpus["sentence"]]

        def figures() -> dict[str, float]:
            found, total = self._found(corpus["sentence"], config.training.batch_size), 0.0
            losses = self._compiled("losses", self._costs, self.preprocessor.ranks, 2)
            for index in range(len(batches)):
                inputs, targets, weights = batches.batch(0, index)
                values = ops.convert_to_numpy(losses(inputs, targets))
                total += float(values[weights > 0].sum())
            measured = metrics.measure(truth, found, self.preprocessor.scheme is not None)
            score = measured.get("f1", measured["accuracy"])
            loss = total / len(corpus)
            return {"val_loss": loss, "val_score": score, "val_accuracy": measured["accuracy"]}

        return figures

    # ---- What the methods above are made of.

    def _costs(self, inputs: Mapping[str, Any], targets: Any) -> Any:
        """Return the negative log probability of the target tags of each sentence."""
        emissions, _ = self.backbone.emissions(inputs)
        mask = ops.not_equal(inputs["words"], 0)
        return -self.backbone.crf.log_likelihood(emissions, targets, mask)

    def _is_one(self, x: Any, are_words: bool | None) -> bool:
        if self.preprocessor.roles:
            return _is_role(x)
        if isinstance(x, (str, bytes)):
            return True
        if are_words is not None or not is_column(x):
            return bool(are_words)
        are_strings = bool(x) and all(isinstance(each, (str, bytes)) for each in x)
        return are_strings and not any(len(each.split()) > 1 for each in x)

    def _found(self, sentences: Sequence[Sentence], batch_size: int) -> list[list[str]]:
        """Return the best tags of sentences, in their order."""
        found: list[Any] = [None] * len(sentences)
        order = sorted(range(len(sentences)), key=lambda row: len(sentences[row].words))
        names = self.preprocessor.tags
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            answers = self._answers([sentences[row] for row in chosen])
            for row, answer in zip(chosen, answers, strict=True):
                count = len(sentences[row].words)
                found[row] = [names[tag] for tag in answer["tags"][:count]]
        return found

    def _answers(
        self, sentences: Sequence[Sentence], alternatives: int = 1, attends: bool = False
    ) -> list[dict[str, np.ndarray]]:
        """Return what the network says of each sentence of a batch, as arrays."""
        inputs = self.preprocessor.inputs(sentences)
        is_short = inputs["words"].shape[1] <= self.backbone.window
        attends = attends and is_short

        def answer(inputs: Mapping[str, Any]) -> dict[str, Any]:
            network = self.backbone
            found = network.attend(inputs)
            if not attends:
                found.pop("attention", None)
            if alternatives > 1:
                emissions, _ = network.emissions(inputs)
                mask = ops.not_equal(inputs["words"], 0)
                found["paths"], found["likelihoods"] = network.crf.n_best(
                    emissions, alternatives, mask
                )
            return found

        ranks = {name: each.ndim for name, each in inputs.items()}
        run = self._compiled(("answer", alternatives, attends), answer, ranks)
        found = keras.tree.map_structure(ops.convert_to_numpy, run(inputs))
        found["unknown"] = self.preprocessor.unknown(inputs)
        return [{name: each[row] for name, each in found.items()} for row in range(len(sentences))]

    def _tagged(self, given: Any, sentence: Sentence, answer: Mapping[str, Any]) -> results.Tagged:
        names = self.preprocessor.tags
        words = list(sentence.words)
        count = len(words)
        if isinstance(given, (str, bytes)):
            text = given if isinstance(given, str) else given.decode("utf-8", "replace")
            offsets = [(start, end) for _, start, end in cut(text)]
        else:
            text, at, offsets = " ".join(words), 0, []
            for word in words:
                offsets.append((at, at + len(word)))
                at += len(word) + 1
        alternatives = []
        if "paths" in answer:
            found = answer["paths"], answer["likelihoods"]
            alternatives = results.alternatives_of(*found, names, count)
        unknown = np.flatnonzero(answer["unknown"][:count]).tolist()
        return results.Tagged(
            text,
            words,
            [names[tag] for tag in answer["tags"][:count]],
            offsets,
            names,
            answer["probabilities"][:count].astype("float64"),
            alternatives,
            sentence.predicate,
            self._maps(Tokens(display_tokens(words), unknown=unknown), answer),
            tuple(unknown),
        )

    def _maps(self, words: Tokens, answer: Mapping[str, Any]) -> list[AttentionMap]:
        if "attention" not in answer or not words.tokens:
            return []
        count = len(words.tokens)
        weights = answer["attention"][:, :, :count, :count]
        return [attention_map("self-attention", words, words, weights)]


def _is_role(x: Any) -> bool:
    """Whether something is a sentence and the index of its predicate."""
    return isinstance(x, (tuple, list)) and len(x) == 2 and isinstance(x[1], (int, np.integer))


def marked(text: str) -> tuple[list[str], int]:
    """Return the words of a text, and the index of that between asterisks."""
    words = [word for word, _, _ in cut(text)]
    places = [place for place, word in enumerate(words) if word == "*"]
    if len(places) != 2 or places[1] != places[0] + 2:
        raise UserError(
            f"put asterisks around the predicate, one word: He *ate* it. Received: {shown(text)}."
        )
    return [word for word in words if word != "*"], places[0]
