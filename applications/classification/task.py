"""The classifiers: Keras tasks from texts, or pairs of texts, to labels."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from ..base.backbones import load_pretrained, write_backbone
from ..base.preprocessor import check_equally_many, weights_of
from ..base.presets import kept_entries, preset_folder, read_preprocessor, update_preprocessor
from ..base.task import TextTask
from ..data.corpus import Corpus, Report
from ..data.encoded import Encoded
from ..data.lengths import rows_too_long
from ..data.vectors import read_first_words, start_vectors
from ..errors import UserError, check_number, check_single, say, shown
from ..show.explanation import AttentionMap, Explanation, attention_map, check_drawn, is_page
from ..show.results import Results
from ..text import BucketedBatches
from . import data, results
from .config import (
    ClassificationConfig,
)
from .networks.encoders import SIDES, BackboneEncoder
from .networks.layers import PACKAGE
from .networks.model import Classifier, build_model, settings_of_network
from .preprocessor import (
    ClassificationPreprocessor,
    Labels,
    as_columns,
    as_examples,
    as_labels,
    kind_of,
    preprocessor_of,
)


class ClassificationTask(TextTask):
    """Base of `TextClassifier` and `PairClassifier`, which differ in how many texts they read.

    The command works with this class: `configured` and `from_preset` give one of the two.

    Args:
        backbone: the network, a `Classifier`; for a `PairClassifier` one whose encoder reads pairs.
        preprocessor: from texts and labels to its ids and targets, with `pairs` as the network.
        label_smoothing: of the default loss.
        threshold: of many labels, the probability from which a text has a label; `tune_thresholds`
            finds one for each label.
        **kwargs: `name`, `compile` and the like of `keras_hub.models.Task`.

    Raises:
        ValueError: where network and preprocessor do not fit each other.
    """

    name_of_task = "classification"
    action = "Classify"
    config_class = ClassificationConfig
    network_class, preprocessor_cls = Classifier, ClassificationPreprocessor
    training_keys: ClassVar = {x: x for x in ("label_smoothing", "threshold")}
    preprocessor_keys: ClassVar = {"data.max_length": "max_length"}
    served_letters = 100_000  # of which `max_length` tokens are read
    pairs: ClassVar[bool]
    default_architecture: ClassVar[str]

    def __init__(
        self,
        backbone: Classifier,
        preprocessor: ClassificationPreprocessor | None = None,
        label_smoothing: float = 0.0,
        threshold: float = results.THRESHOLD,
        **kwargs: Any,
    ):
        check_number("`threshold`", threshold, 0, 1)
        self.keep(label_smoothing=label_smoothing, threshold=threshold)
        super().__init__(backbone, preprocessor, **kwargs)

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[Any],
        labels: Sequence[Any],
        *,
        architecture: str | None = None,
        units: int = 128,
        embedding_size: int | None = None,
        label_kind: str | None = None,
        tokenizer: Mapping[str, Any] | None = None,
        vectors: Mapping[str, Any] | None = None,
        max_length: int = 400,
        threshold: float = results.THRESHOLD,
        dtype: Any = None,
        **model: Any,
    ) -> "ClassificationTask":
        """Return a task with new weights, whose vocabulary and labels come from the texts given.

        Args:
            texts: texts, or for a `PairClassifier` pairs of them.
            labels: the label of each: strings or whole numbers, tuples of them (many labels), or
                floats (numbers).
            architecture: of the network, as in `ModelConfig`.
            units: width of its layers.
            embedding_size: width of the embeddings; None for `units`.
            label_kind: `"one"`, `"many"` or `"number"`; None for what the first label is.
            tokenizer: keys of `TokenizerConfig`, such as `{"lowercase": False}`.
            vectors: keys of `VectorsConfig`, such as `{"file": "glove.txt"}`.
            max_length: the longest text, in tokens.
            threshold: as of the class.
            dtype: the dtype policy of the network; None for Keras' global one.
            **model: more of `ModelConfig`, such as `encoder="none"`, `dropout` or `backbone`.

        Raises:
            ValueError: where a text or label is missing or of another kind, or an option is
                unknown.
        """
        columns, values, kind = as_examples(texts, labels, cls.pairs, label_kind)
        architecture = architecture or cls.default_architecture
        if architecture != "backbone":
            model["embedding_size"] = embedding_size or units
        second = "second" if cls.pairs else None
        config = ClassificationConfig.of(
            data={"labels": kind, "max_length": max_length, "second_column": second},
            tokenizer=tokenizer or {},
            vectors=vectors or {},
            model={"architecture": architecture, "units": units, **model},
            training={"threshold": threshold},
        )
        config.check()
        return cls.from_corpus(config, data.in_memory(columns, values), dtype)

    @classmethod
    def from_preset(
        cls,
        preset: Path | str,
        load_weights: bool = True,
        *,
        labels: Labels | Sequence[str | int] | None = None,
        **kwargs: Any,
    ) -> "ClassificationTask":
        """Return the task of a preset, with a head for other labels where they are given.

        Args:
            preset: a folder that `save_to_preset` wrote, a run folder, or a handle.
            load_weights: whether to load the weights; else they are new ones.
            labels: the labels of a new head, in the order of its outputs, of the kind that the
                preset has; or a `Labels`, which says the kind. A label that the preset has keeps
                its weights where the kind is the same, others start with new ones, and a line says
                how many these are. None keeps the preset's labels.
            **kwargs: arguments of the constructor to change; `dtype` of the network.

        Raises:
            ValueError: where there is no such preset, it is damaged or of another task, or the
                labels are no list of strings or whole numbers, each once.
        """
        if labels is None:
            return super().from_preset(preset, load_weights, **kwargs)
        own = kwargs.get("preprocessor") or read_preprocessor(preset_folder(preset))
        new = labels if isinstance(labels, Labels) else _labels_like(own.labels, labels)
        kwargs["preprocessor"] = _with_labels(own, new)
        task = super().from_preset(preset, load_weights, **kwargs)
        if load_weights:
            task.preprocessor.thresholds = _kept_thresholds(own, new, task.threshold)
        if new.kind != own.labels.kind and kwargs.get("compile", True):
            task.compile()  # the loss that was saved is of the other kind
        return task

    # ---- In use.

    def classify(
        self,
        texts: Any,
        *,
        batch_size: int = 64,
        return_weights: bool = True,
        threshold: float | Mapping[str | int, float] | None = None,
        on_too_long: str = "truncate",
    ) -> results.Prediction | None | list[results.Prediction | None]:
        """Label a text, or many; of a `PairClassifier` a pair, `(text, second)`, or many.

        A text without words gets what the network says of nothing; its prediction says so.

        Args:
            texts: a text, or a sequence of texts.
            batch_size: texts read together.
            return_weights: whether predictions hold what the network attended to.
            threshold: of many labels, the probability from which a text has a label, or one for
                each label; None for the task's own (`thresholds`).
            on_too_long: what to do with a text of more than `max_length` tokens: `"truncate"` (its
                beginning is read, and the prediction says so), `"error"` or `"skip"` (None stands
                in its place).

        Returns:
            One `Prediction`; of a sequence, a list of them in the order given.

        Raises:
            ValueError: where something is no string, or no pair, or a text is too long and that is
                an error.
        """
        if self._is_one(texts):
            options = {"return_weights": return_weights, "on_too_long": on_too_long}
            return self.classify([texts], threshold=threshold, **options)[0]
        preprocessor = self.require_preprocessor()
        columns = as_columns(texts, self.pairs, "texts")
        count = len(columns[0])
        if not count:
            return []
        ids, lengths = zip(*map(preprocessor.read, columns), strict=True)
        long = self._rows_too_long(lengths, on_too_long)
        cut = np.isin(range(count), long)
        empty = np.min(lengths, axis=0) == 0
        thresholds = self._thresholds(threshold)
        encoded = Encoded(
            dict(zip(SIDES, ids, strict=False)),
            Report("the texts given", count),
            {"target": np.zeros((count, 1), "float32")},
        )
        batches = self.make_batches(encoded, min(batch_size, count), shuffle=False)
        predictions: list[Any] = [None] * count
        for row, scores, _, weights in self._answers(batches):
            more = {"truncated": bool(cut[row]), "empty": bool(empty[row])}
            unknown = [preprocessor.unknown(column[row]) for column in ids]
            wants_weights = return_weights and self.backbone.has_attention
            if wants_weights or any(unknown):
                tokens = [preprocessor.tokens(column[row]) for column in columns]
                more["unknown"] = results.unknown_of(tokens, unknown)
            if wants_weights:
                more["weights"] = results.weights_of(tokens, weights)
            predictions[row] = results.prediction_of(
                scores, preprocessor.labels, thresholds, **more
            )
        for row in long if on_too_long == "skip" else ():
            predictions[row] = None
        return Results(predictions)

    def refuse_long(self, texts: Any) -> None:
        """Raise a `TooLong` where texts, or pairs of texts, have more tokens than are read."""
        columns = as_columns(texts, self.pairs, "texts")
        _, lengths = zip(*map(self.require_preprocessor().read, columns), strict=True)
        self._rows_too_long(lengths, "error")

    def evaluate_text(
        self,
        texts: Any,
        labels: Sequence[Any],
        batch_size: int = 64,
        *,
        threshold: float | Mapping[str | int, float] | None = None,
        on_too_long: str = "truncate",
    ) -> dict[str, Any]:
        """Return accuracy, F1, calibration and the confusion matrix, as JSON types.

        Args:
            texts: texts, or pairs of texts.
            labels: their labels.
            batch_size: texts read together.
            threshold: as of `classify`.
            on_too_long: what to do with a text of more than `max_length` tokens: `"truncate"`,
                `"error"` or `"skip"` (leave it out, and count it).

        Returns:
            The figures. Of many labels, `accuracy` is the part of the texts with all labels right,
            calibration is that of every decision on a label, and `"thresholds"` are by label. Of
            numbers, they are errors and correlations. `"signature"` says how they are computed.

        Raises:
            ValueError: where a text has no words, or a label is unknown.
        """
        corpus = self.read_columns(texts, labels).handled(too_long=on_too_long)
        return self.evaluate_corpus(corpus, batch_size, threshold)

    def evaluate_corpus(
        self,
        corpus: Corpus,
        batch_size: int = 64,
        threshold: float | Mapping[str | int, float] | None = None,
    ) -> dict[str, Any]:
        """Return what `evaluate_text` does, of examples of a table."""
        thresholds = self._thresholds(threshold)
        encoded, labels = self.encode(corpus), self.preprocessor.labels
        batches = self.make_batches(encoded, batch_size, shuffle=False)
        about = {
            "data": encoded.report.name,
            "examples": encoded.report.count,
            "left_out": dict(encoded.report.left_out),
            "truncated": encoded.report.cut,
            "label_names": list(labels.names),
        }
        if thresholds is not None:
            about["thresholds"] = dict(zip(labels.names, thresholds.tolist(), strict=True))
        figures = results.measure(*self._scores(batches), labels, thresholds)
        return {**about, "signature": results.signature(labels, thresholds), **figures}

    @property
    def thresholds(self) -> dict[str | int, float]:
        """The probability from which a text has each of many labels; `{}` for other labels."""
        thresholds = self._thresholds()
        names = self.require_preprocessor().labels.names
        return {} if thresholds is None else dict(zip(names, thresholds.tolist(), strict=True))

    def tune_thresholds(
        self, texts: Any, labels: Sequence[Any], batch_size: int = 64
    ) -> dict[str | int, float]:
        """Choose for each of many labels the threshold with the highest F1, and keep them.

        `classify`, `evaluate_text`, exported models and presets have them from then on. Take texts
        that were not trained on, such as a development set.

        Args:
            texts: texts, or pairs of texts.
            labels: their labels.
            batch_size: texts read together.

        Returns:
            The thresholds by label.

        Raises:
            ValueError: where the task has not many labels, a text has no words, or a label is
                unknown.
        """
        kind = self.require_preprocessor().labels.kind
        if kind != "many":
            raise ValueError(
                "Thresholds decide which of many labels a text has: label_kind='many'. "
                f"Received: labels of kind {kind!r}"
            )
        encoded = self.encode(self.read_columns(texts, labels))
        self._tune(self._scores(self.make_batches(encoded, batch_size, shuffle=False)))
        return self.thresholds

    def draw(self, text: Any, output: Path | str | None = None) -> results.Prediction:
        """Show what the network attends to in a text, or in each text of a pair.

        Args:
            text: the text, or the pair.
            output: a new .png, .svg or .pdf, or .html, a page as of `explain`; None writes nothing:
                a notebook shows the result itself.

        Returns:
            The prediction that is drawn.

        Raises:
            ValueError: if the network has no attention, the text is empty, or `output` is refused.
        """
        if output is not None:
            check_drawn(output)
        if not self.backbone.has_attention:
            raise UserError("architecture mean has no attention to draw: train pooling or han.")
        if not self._is_one(text):
            kind = "a pair of texts" if self.pairs else "a single text"
            raise UserError(f"a {type(self).__name__} draws {kind}. Received: {shown(text)}")
        result = self.classify(text)
        if result.empty:
            raise UserError(f"there is nothing to draw: the text is empty. Received: {shown(text)}")
        if output is not None and is_page(output):
            self.explain(*(text if self.pairs else [text])).save(output)
        elif output is not None:
            result.plot(output)
        return result

    def explain(self, text: str, second: str | None = None) -> Explanation:
        """Label a text, or a pair; return the labels and what was attended to, for a page.

        Args:
            text: the text.
            second: the second text, of a `PairClassifier`.
        """
        inputs = {"text": text} | ({} if second is None else {"second": second})
        if list(inputs) != list(self.asks):
            raise UserError(
                f"`explain` of a {type(self).__name__} takes {' and '.join(self.asks)}, "
                f"{'two strings' if self.pairs else 'a string'}. Received: {' and '.join(inputs)}."
            )
        check_single(self, "explains", **inputs)
        given = tuple(inputs.values()) if self.pairs else text
        return self.classify(given).explanation(inputs, self._self_attention(inputs))

    # ---- The hooks of TextTask.

    def check_fit(self) -> None:
        network, preprocessor = self.backbone, self.preprocessor
        size, known = preprocessor.tokenizer.vocabulary_size, network.vocabulary_size
        # A backbone may have ids that its tokenizer does not use.
        spare = preprocessor.reads_backbone
        if known is not None and not (size <= known if spare else size == known):
            raise ValueError(
                f"The network's vocabulary should be the preprocessor's, of {size} ids. "
                f"Received: {known}"
            )
        outputs = preprocessor.labels.outputs
        if network.outputs_count != outputs:
            raise ValueError(
                f"The network should have an output for each label, {outputs}. "
                f"Received: outputs={network.outputs_count}"
            )
        encoder = type(network.encoder).__name__
        if (network.rank == 3) != (preprocessor.sentences is not None):
            wanted = "'lines' or 'punctuation'" if network.rank == 3 else "None"
            raise ValueError(
                f"The preprocessor's `sentences` should be {wanted} for an encoder like {encoder}. "
                f"Received: sentences={preprocessor.sentences!r}"
            )
        if preprocessor.pairs != self.pairs or 1 + self.pairs not in network.text_counts:
            texts = "pairs of texts" if self.pairs else "single texts"
            raise ValueError(
                f"A {type(self).__name__} needs a preprocessor and an encoder of {texts}. "
                f"Received: pairs={preprocessor.pairs} and {encoder}"
            )

    def read_columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
        if y is None:
            raise ValueError("Give texts and their labels, as `fit(x, y)`. Received: y=None")
        columns = as_columns(x, self.pairs, "x")
        labels = as_labels(y, self.require_preprocessor().labels.kind, "y")
        check_equally_many(x=columns[0], y=labels)
        return data.in_memory(columns, labels, weights_of(sample_weight, x=columns[0]))

    def encode(self, corpus: Corpus) -> Encoded:
        return data.encode(corpus, self.preprocessor)

    def make_batches(self, encoded: Encoded, batch_size: int, **options: Any) -> BucketedBatches:
        return data.make_batches(encoded, self.preprocessor, batch_size, **options)

    def default_loss(self) -> keras.losses.Loss:
        # The weights of a batch count among each other.
        common = {"reduction": "mean_with_sample_weight"}
        kind = self.preprocessor.labels.kind if self.preprocessor else "one"
        if kind == "number":
            return keras.losses.MeanSquaredError(**common)
        many, one = keras.losses.BinaryCrossentropy, keras.losses.CategoricalCrossentropy
        loss = many if kind == "many" else one
        return loss(from_logits=True, label_smoothing=self.label_smoothing, **common)

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        encoder = self.backbone.encoder
        tuned = isinstance(encoder, BackboneEncoder) and encoder.reader.fine_tuned
        return keras.optimizers.Adam(3e-5 if tuned else 3e-3, clipnorm=1.0)

    def service(self, **options: Any):
        from .serving import service

        return service(self, **options)

    def describe(self, folder: Path) -> None:
        super().describe(folder)
        if isinstance(self.backbone.encoder, BackboneEncoder):
            write_backbone(folder, self.backbone.encoder.reader, self.preprocessor.tokenizer)

    # ---- The hooks of the command.

    @classmethod
    def read(cls, config: ClassificationConfig, split: str) -> Corpus:
        corpus = data.load_corpus(config.data, split)
        balanced = split == "train" and config.training.class_weights == "balanced"
        return dataclasses.replace(corpus, balanced=balanced)

    @classmethod
    def adapt(cls, config: ClassificationConfig, corpus: Corpus):
        labels = Labels.of(corpus["label"], config.data.labels, corpus.name)
        if config.data.has_split("test"):
            # A fault of the test set stops the run before the training, not after it.
            data.check_labels(cls.read(config, "test"), labels)
        if config.model.architecture == "backbone":
            name = config.model.backbone
            pretrained = load_pretrained(name, weights=False)
            texts = 2 if config.data.second_column else 1
            pretrained.check_length(config.data.max_length, name, texts)
            return preprocessor_of(config, pretrained.tokenizer, labels)
        # A text and its second one after each other: the order of words of equal count stays.
        columns = [corpus[side] for side in SIDES if side in corpus.columns]
        lines = (text for texts in zip(*columns, strict=True) for text in texts)
        tokenizer = ClassificationPreprocessor.train_tokenizer(config.tokenizer, lines)
        if config.vectors.file is None:
            return preprocessor_of(config, tokenizer, labels)
        section = config.vectors
        size = config.model.embedding_size
        file, tokenizer = read_first_words(section.file, size, tokenizer, section.extra_words)
        preprocessor = preprocessor_of(config, tokenizer, labels)
        sizes = tokenizer.vocabulary_size, size, config.training.seed
        preprocessor.vectors, report = start_vectors(
            tokenizer, *sizes, file.vectors, file.path, section.length
        )
        say(report)
        return preprocessor

    @classmethod
    def configured(cls, config: ClassificationConfig, preprocessor, dtype: Any = None):
        pretrained = None
        if config.model.architecture == "backbone":
            source = preprocessor.backbone_folder or config.model.backbone
            pretrained = load_pretrained(source, dtype=dtype)
        sizes = preprocessor.tokenizer.vocabulary_size, preprocessor.labels.outputs
        network = build_model(config.model, *sizes, pretrained, dtype, config.vectors.channels)
        if preprocessor.vectors is not None:
            network.encoder.vectors.set_vectors(preprocessor.vectors)
        made = PairClassifier if config.data.second_column else TextClassifier
        return made(
            network,
            preprocessor,
            label_smoothing=config.training.label_smoothing,
            threshold=config.training.threshold,
        )

    def settings(self, written):
        found, preprocessor = super().settings(written), self.preprocessor
        found |= settings_of_network(self.backbone)
        column = written["data.second_column"]
        found["data.second_column"] = (column or "second") if self.pairs else None
        found["data.labels"] = preprocessor.labels.kind
        if not preprocessor.reads_backbone:
            found["tokenizer.kind"] = preprocessor.tokenizer.kind
        if preprocessor.sentences is not None:
            found["tokenizer.sentences"] = preprocessor.sentences
            found["tokenizer.max_sentence_length"] = preprocessor.max_sentence_length
        return found

    def for_corpus(self, corpus: Corpus) -> "ClassificationTask":
        """Return the task for the labels of a corpus, with a new head where one is unknown."""
        own, values = self.preprocessor.labels, corpus["label"]
        kind = kind_of(values)
        wanted = Labels.of(values, kind, corpus.name)
        is_known = kind == own.kind and set(map(str, wanted.names)) <= set(map(str, own.names))
        return self if is_known else self._with_labels(wanted)

    def _with_labels(self, labels: Labels) -> "ClassificationTask":
        """Return the task with a head for other labels; those that both have keep their weights."""
        own = self.preprocessor
        new = _with_labels(own, labels)
        new.thresholds = _kept_thresholds(own, labels, self.threshold)
        return self._rebuilt(self.backbone.with_entries(kept_entries(own, new)), new)

    def about_figures(self) -> str:
        labels = self.preprocessor.labels
        return f"`val_score` and others: `{results.signature(labels, self._thresholds())}`."

    def check_training(self, training) -> None:
        training.check_labels(self.preprocessor.labels.kind)

    def blind_score(self, corpus) -> str:
        labels = corpus["label"]
        kind = self.preprocessor.labels.kind
        if kind == "many" and not any(labels):
            return "no text of it has a label, and F1 counts those that are found"
        if kind == "number" and len(set(labels)) == 1:
            return f"all texts of it have the number {labels[0]:g}, and correlations need several"
        return ""

    def measured_on(self, corpus, encoded, config) -> Any:
        is_tuned = config.training.tune_thresholds
        thresholds = None if is_tuned else self._thresholds()
        _, columns = super().measured_on(corpus, encoded, config)
        labels = self.preprocessor.labels
        return [results.signature(labels), is_tuned, self.threshold, thresholds, columns]

    def write_tuned(self, folder, config) -> None:
        if config.training.tune_thresholds:
            update_preprocessor(self, folder)

    def development(self, corpus, batches, config) -> Callable[[], dict[str, float]]:
        # The loss is without label smoothing and class weights; the score is what training is
        # stopped by.
        kind = self.preprocessor.labels.kind
        score = {"one": "accuracy", "many": "micro_f1", "number": "pearson"}[kind]
        labels, is_tuned = self.preprocessor.labels, config.training.tune_thresholds

        def figures() -> dict[str, float]:
            found = self._scores(batches)
            if is_tuned:
                self._tune(found)
            report = results.measure(*found, labels, self._thresholds())
            found = {"val_loss": report["loss"], "val_score": report[score]}
            return found if kind == "number" else {**found, "val_macro_f1": report["macro_f1"]}

        return figures

    # ---- What the methods above are made of.

    def _self_attention(self, inputs: Mapping[str, str]) -> list[AttentionMap]:
        """Return what the words of each text attend to, where the encoder has such layers."""
        encoder = self.backbone.encoder
        maps: list[AttentionMap] = []
        if not getattr(encoder, "has_self_attention", False):
            return maps
        attend = self._compiled("self-attention", encoder.self_attention, 2)
        for name, text in inputs.items():
            tokens = [token for line in self.preprocessor.tokens(text) for token in line]
            if tokens:
                ids = self.preprocessor.cut(self.preprocessor.ids([text])[0])
                weights = ops.convert_to_numpy(attend(np.array([ids], "int32")))[0]
                name = f"{name} self-attention" if self.pairs else "self-attention"
                maps.append(attention_map(name, tokens, tokens, weights))
        return maps

    def _rows_too_long(self, lengths: Sequence[Sequence[int]], on_too_long: str) -> list[int]:
        longest, limit = np.max(lengths, axis=0).tolist(), self.preprocessor.max_length
        return rows_too_long(longest, limit, on_too_long, "texts", key="max_length")

    def _is_one(self, texts: Any) -> bool:
        is_pair = isinstance(texts, tuple) and len(texts) == 2 and isinstance(texts[0], str)
        return is_pair if self.pairs else isinstance(texts, str)

    def _answers(self, batches: BucketedBatches) -> Iterator[tuple[int, Any, Any, dict[str, Any]]]:
        """Yield the row of each example in batches, its scores, targets and weights, as arrays."""
        ranks = dict.fromkeys(SIDES[: 1 + self.pairs], self.backbone.rank)
        attend = self._compiled("attend", self.backbone.attend, ranks)
        for index in range(len(batches)):
            inputs, targets, _ = batches.batch(0, index)
            scores, weights = keras.tree.map_structure(ops.convert_to_numpy, attend(inputs))
            for place, row in enumerate(batches.rows(0, index)):
                if row >= 0:
                    own = {name: each[place] for name, each in weights.items()}
                    yield row, scores[place], targets[place], own

    def _scores(self, batches: BucketedBatches) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and targets `(B, outputs)` of the examples in batches, in their order."""
        found = sorted(self._answers(batches), key=lambda answer: answer[0])
        return tuple(np.stack([answer[place] for answer in found]) for place in (1, 2))

    def _tune(self, found: tuple[np.ndarray, np.ndarray]) -> None:
        """Take the best thresholds for scores and targets."""
        labels = self.preprocessor.labels
        self.preprocessor.thresholds = results.tuned_thresholds(*found, labels, self.threshold)

    def _thresholds(self, given: Any = None) -> np.ndarray | None:
        """Return the threshold of each of many labels, those given first; None for other labels."""
        preprocessor = self.require_preprocessor()
        labels = preprocessor.labels
        if given is None and labels.kind != "many":
            return None
        own = preprocessor.thresholds or [self.threshold] * len(labels.names)
        return results.as_thresholds(given, labels, own)


def _with_labels(
    preprocessor: ClassificationPreprocessor, labels: Labels
) -> ClassificationPreprocessor:
    """Return a preprocessor for other labels, without the thresholds that were tuned."""
    changed = {"labels": dataclasses.asdict(labels), "thresholds": None}
    return type(preprocessor).from_config({**preprocessor.get_config(), **changed})


def _kept_thresholds(
    preprocessor: ClassificationPreprocessor, labels: Labels, otherwise: float
) -> list[float] | None:
    """Return tuned thresholds for other labels: those of labels that keep their weights stay."""
    if preprocessor.thresholds is None or labels.kind != preprocessor.labels.kind:
        return None
    known = dict(zip(preprocessor.labels.names, preprocessor.thresholds, strict=True))
    return [known.get(name, otherwise) for name in labels.names]


def _labels_like(known: Labels, names: Any) -> Labels:
    """Return labels of the kind that a preset has; those of a preset of numbers are one a text."""
    if isinstance(names, (str, bytes, Mapping)) or not hasattr(names, "__iter__"):
        raise ValueError(
            "`labels` should be a list of strings or whole numbers, or a `Labels`. "
            f"Received: labels={shown(names)}"
        )
    kind, names = "one" if known.kind == "number" else known.kind, tuple(names)
    if kind == "one" and len(names) < 2:
        raise ValueError(f"`labels` should be at least two. Received: labels={shown(names)}")
    return Labels(kind, names)


@keras.saving.register_keras_serializable(PACKAGE)
class TextClassifier(ClassificationTask):
    """Labels texts: one label, many, or a number. Its arguments are `ClassificationTask`'s.

    Example:

    ```python
    from keras_attention.applications.classification import TextClassifier

    texts = ["good fun", "very good", "bad film", "so bad"] * 8
    labels = ["yes", "yes", "no", "no"] * 8
    classifier = TextClassifier.from_texts(texts, labels, units=8)
    classifier.fit(texts, labels, epochs=1, verbose=0)
    print(classifier.classify("very good fun").label)
    ```
    """

    pairs, asks = False, {"text": "Text"}
    default_architecture = "pooling"


@keras.saving.register_keras_serializable(PACKAGE)
class PairClassifier(ClassificationTask):
    """Labels pairs of texts: one label, many, or a number; arguments as of `ClassificationTask`.

    Example:

    ```python
    from keras_attention.applications.classification import PairClassifier

    pairs = [("a dog runs", "an animal moves"), ("a dog runs", "nobody moves")] * 8
    labels = ["entailment", "contradiction"] * 8
    classifier = PairClassifier.from_texts(pairs, labels, units=8)
    classifier.fit(pairs, labels, epochs=1, verbose=0)
    print(classifier.classify(("a dog runs", "nobody moves")).label)
    ```
    """

    pairs, asks = True, {"text": "First text", "second": "Second text"}
    default_architecture = "cross"
