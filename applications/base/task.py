"""The base of the application models: a Keras task that owns its network and its preprocessor."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, get_args

import keras
import keras_hub
from keras import ops

from keras_attention.distribute import GlobalMean
from keras_attention.paths import is_address, output_path

from ..data.batches import IteratorOfBatches, encoded_batches
from ..data.corpus import Corpus
from ..data.vectors import write_start
from ..errors import check_choice, check_number, shown
from ..schema.reading import by_key
from ..schema.training import Precision
from ..show.explanation import Explanation
from ..store.files import checksum, new_folder, write_checksums
from ..training.fit import (
    build_optimizer,
    check_executions,
    check_run,
    optimizes_what_is_trained,
    with_scaled_loss,
)
from ..training.run_folder import CARD_FILE
from . import presets
from .backend import CompiledFunctions, require_backend
from .card import card_of_preset
from .network import OwnModel, check_ids
from .preprocessor import TextPreprocessor, counts_of, is_dataset, sources_of


class TextTask(OwnModel, keras_hub.models.Task):
    """Base of the tasks: strings go into `fit`, results come out of a method of the task's own.

    The network (`backbone`) gives logits. The preprocessor turns texts into its inputs and back.
    All that Keras offers works: `compile`, `fit`, callbacks, metrics, `summary`, `save`; and all
    that KerasHub does: `save_to_preset`, `from_preset`, `keras_hub.upload_preset`.

    A subclass writes its own verb (`translate`, `classify`, ...) and these hooks:

    ```
    read_columns(x, y, sample_weight)       what `fit` was given as a corpus, checked
    encode(corpus)                          the corpus as ids, once
    make_batches(encoded, batch_size, *, seed=0, shuffle=True, like=None)
                                            `BucketedBatches`, or what has its methods
    default_loss()                          the Keras loss that `compile` takes
    service(**options)                      the `tf.Module` from strings to results that `export`
                                            writes
    explain(*texts, **options)              the answer and what was attended to, for a page
    ```

    Its network and its preprocessor name by `entries()` the weights that belong to a token or
    label, and the tokens and labels, so that `from_preset` can change them.

    A configuration describes the same task, to `from_texts` and to the command, with these:

    ```
    read(config, split)                     the corpus of "train", "dev" or "test"
    adapt(config, corpus)                   the preprocessor
    configured(config, preprocessor, dtype=None, **layers)
                                            the task, with new weights; `layers` are Keras layers
                                            in place of those that the network would make
    development(corpus, batches, config)    a function that gives the figures of an epoch,
                                            `val_loss` among them
    settings(written)                       the keys of a configuration that say what the task has
    for_corpus(corpus)                      the task of a preset, for the labels of a corpus
    ```

    Args:
        backbone: the network.
        preprocessor: its preprocessor; None for a network that is fed ids.
        compile: whether to compile with the defaults.
        **kwargs: `name` and the like of `keras.Model`.
    """

    name_of_task: ClassVar[str]
    """The name of the task in the command and in run folders, such as "translation"."""
    config_class: ClassVar[type]
    """The dataclass of the command's configuration."""
    network_class: ClassVar[type[keras_hub.models.Backbone]]
    preprocessor_cls: ClassVar[type[TextPreprocessor]]
    """Defaults of the configuration by the name of a known data set (`data.dataset`)."""
    must_fit: ClassVar[Mapping[str, str]] = {}
    """Attributes that must be alike: the preprocessor's, by the name that the network has."""
    asks: ClassVar[Mapping[str, str]] = {}
    """The texts that `explain` takes, by the names of its arguments, as a page labels them."""
    action: ClassVar[str] = "Show"
    """What the button of a page says, which asks for an answer."""
    served_letters: ClassVar[int] = 10_000
    """How many letters a text of a served call may have, where `export` is not told."""
    service_options: ClassVar[tuple[str, ...]] = ("max_letters",)
    """The arguments of `service`, which `export` takes."""
    counts_tokens: ClassVar[bool] = False
    """Whether a training reports tokens a second: labels are padded with 0."""
    training_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of a training section that are attributes of the task, by whose names."""
    preprocessor_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of a configuration, with their section, that are attributes of the preprocessor and may
    be others after a training, by the names of the attributes."""
    kept_keys: ClassVar[tuple[str, ...]] = ()
    """More keys, with their section, that a training from a preset cannot change."""
    learning_rate: float | None = None
    """Of a training where no other is given: None for that of a new task."""
    preset_folder: Path | None = None
    """The folder on this machine that the task was read from, where its user named one."""
    origin: Mapping[str, str] | None = None
    """The preset that the task was read from, as its user named it, and the SHA-256 of its weights.
    """
    card_sections: Mapping[str, str] = MappingProxyType({})
    """What the model card of a preset says beside the usual, by headings: a task of others' weights
    keeps where they come from, and their licence."""
    _feature_loss: keras.losses.Loss | None = None  # of a task that is not compiled

    def __init__(
        self,
        backbone: keras_hub.models.Backbone,
        preprocessor: TextPreprocessor | None = None,
        compile: bool = True,
        **kwargs: Any,
    ):
        for name, part, wanted in (
            ("backbone", backbone, self.network_class),
            ("preprocessor", preprocessor, self.preprocessor_cls),
        ):
            if not isinstance(part, wanted) and not (name == "preprocessor" and part is None):
                raise ValueError(
                    f"`{name}` of a {type(self).__name__} should be a {wanted.__name__}. "
                    f"Received: {name}={part!r}"
                )
        # First, or KerasHub keeps the backbone from Keras on PyTorch, and nothing is trained.
        super().__init__(compile=False, **kwargs)
        self.backbone, self.preprocessor = backbone, preprocessor
        backbone.freeze_parts()
        if preprocessor is not None:
            self.check_fit()
        self._compiled_functions = CompiledFunctions()
        if compile:
            self.compile()
        self.built = True  # as the network is

    # ---- The hooks that a subclass may leave as they are.

    def check_fit(self) -> None:
        """Raise a ValueError where network and preprocessor do not fit each other."""
        for of_network, name in self.must_fit.items():
            has, wanted = getattr(self.backbone, of_network), getattr(self.preprocessor, name)
            if has != wanted:
                raise ValueError(
                    f"The network's `{name}` should be the preprocessor's, {wanted}. "
                    f"Received: {has}"
                )

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Return the optimizer that `compile` takes where none is given."""
        rate = 1e-3 if self.learning_rate is None else self.learning_rate
        return keras.optimizers.Adam(rate, clipnorm=1.0)

    def feature_loss(self, loss: Any) -> keras.losses.Loss | None:
        """Return a loss that takes features in place of logits, or None where there is none.

        With it, training never has the logits of a batch at once.
        """
        return None

    def encode_to_train(self, corpus: Any) -> Any:
        """Return the corpus to train with as ids."""
        return self.encode(corpus)

    def before_training(self, encoded: Any) -> None:
        """Take from the ids to train with what training itself does not learn.

        None stands for a dataset, which is not read before it is trained on.
        """

    def batch_options(self, training: Any) -> dict[str, Any]:
        """Return what a training section says of the size of a batch."""
        return {"batch_size": training.batch_size}

    def about_figures(self) -> str:
        """Return how the figures of an epoch are computed, for the card of a run."""
        return ""

    def blind_score(self, corpus: Any) -> str:
        """Return why the score of an epoch cannot tell one model from another on a development
        set, as a clause; `""` where it can. Right answers have the best score, or it cannot.
        """
        return ""

    def measured_on(self, corpus: Any, encoded: Any, config: Any) -> Any:
        """Return all that the figures of an epoch depend on beside weights, lists and plain values.

        It holds the development set, as texts and as ids, and how figures are computed.
        """
        columns = {name: each for name, each in vars(encoded).items() if name not in ABOUT_A_SET}
        return [self.about_figures(), columns]

    def check_training(self, training: Any) -> None:
        """Refuse a training section that does not go with the task."""

    def write_tuned(self, folder: Path, config: Any) -> None:
        """Write into a run folder what is tuned on the development set with the best weights."""

    def describe(self, folder: Path) -> None:
        """Write what a run folder holds of the task beside weights into a folder."""
        presets.write_parts(self, folder)
        write_start(folder, self.preprocessor.vectors)

    def explain(self, *texts: Any, **options: Any) -> Explanation:
        """Return the answers to texts with the attention behind them; the served page shows it.

        A subclass takes the texts that `asks` names, and of a `SearchTask` `beam_size`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not explain its answers.")

    @classmethod
    def from_corpus(
        cls, config: Any, corpus: Any, dtype: Any = None, **layers: keras.layers.Layer
    ) -> "TextTask":
        """Return the task that a configuration describes, with new weights.

        Args:
            config: a `config_class`.
            corpus: the corpus that vocabularies come from.
            dtype: the dtype policy of the network; None for Keras' global one.
            **layers: layers of the network in place of its own.
        """
        task = cls.configured(config, cls.adapt(config, corpus), dtype, **layers)
        # They are in the network: a preset need not hold them twice.
        task.preprocessor.vectors = None
        return task

    # ---- Starting from a preset.

    def settings(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a configuration that say what the task has, and their values.

        A training that starts from the task takes them over, and beside them `written`, the
        configuration of its run folder. A subclass adds what the arguments of its network do not
        say by the same names.
        """
        network, preprocessor = self.backbone.get_config(), self.preprocessor
        section = next(each.type for each in fields(self.config_class) if each.name == "model")
        found = {f"model.{each.name}": network.get(each.name) for each in fields(section)}
        plain = (bool, int, float, str)
        found = {key: value for key, value in found.items() if isinstance(value, plain)}
        found |= {
            f"training.{key}": getattr(self, name) for key, name in self.training_keys.items()
        }
        found |= {key: getattr(preprocessor, name) for key, name in self.preprocessor_keys.items()}
        if self.learning_rate is not None:
            found["training.learning_rate"] = self.learning_rate
        policy = self.backbone.dtype_policy.name
        return found | ({"training.precision": policy} if policy in get_args(Precision) else {})

    def with_settings(self, config: Any) -> "TextTask":
        """Return a task with the same weights, and what a configuration says beside them."""
        wanted = by_key(config)
        network, arguments = self.backbone.get_config(), self.arguments_of(config)
        rates = {name: wanted.get(f"model.{name}") for name in network if name.endswith("dropout")}
        rates = {name: value for name, value in rates.items() if value not in (None, network[name])}
        preprocessor = self.require_preprocessor()
        own = {name: wanted[key] for key, name in self.preprocessor_keys.items()}
        if any(getattr(preprocessor, name) != value for name, value in own.items()):
            preprocessor = type(preprocessor).from_config({**preprocessor.get_config(), **own})
        if self.learning_rate is not None:  # a training of its preset goes on with the run's
            arguments["learning_rate"] = config.training.learning_rate
        return self._rebuilt(self._with_rates(rates), preprocessor, **arguments)

    @classmethod
    def arguments_of(cls, config: Any) -> dict[str, Any]:
        """Return the arguments of the constructor that a configuration says."""
        return {name: getattr(config.training, key) for key, name in cls.training_keys.items()}

    def for_corpus(self, corpus: Any) -> "TextTask":
        """Return the task to train with a corpus, this one where nothing has to change."""
        return self

    def _with_rates(self, rates: Mapping[str, float]) -> keras_hub.models.Backbone:
        """Return the network with other rates of dropout."""
        if not rates:
            return self.backbone
        network = type(self.backbone).from_config({**self.backbone.get_config(), **rates})
        network.set_weights(self.backbone.get_weights())
        return network

    def _rebuilt(
        self, network: keras_hub.models.Backbone, preprocessor: TextPreprocessor, **arguments: Any
    ) -> "TextTask":
        """Return a task of another network and preprocessor, with changes of other arguments."""
        own = self.get_config()
        for name in ("backbone", "preprocessor"):
            own.pop(name, None)
        return type(self)(network, preprocessor, **{**own, **arguments})

    # ---- Training.

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """Compile the task; "auto" is the task's own optimizer and loss.

        Args:
            optimizer: a Keras optimizer or its name.
            loss: a Keras loss of logits or its name.
            metrics: Keras metrics of logits; padding does not count.
            weighted_metrics: the same, weighted by `sample_weight`.
            **kwargs: more of `keras.Model.compile`.
        """
        optimizer = self.default_optimizer() if optimizer == "auto" else optimizer
        if kwargs.get("auto_scale_loss", True):
            optimizer = with_scaled_loss(optimizer, self.backbone)
        loss = self.default_loss() if loss == "auto" else loss
        given = {"metrics": metrics, "weighted_metrics": weighted_metrics}
        of_features = self.feature_loss(loss.loss if isinstance(loss, GlobalMean) else loss)
        super().compile(optimizer, loss, **given, **kwargs)
        has_metrics = any(map(_need_logits, given.values()))
        self._feature_loss = None if has_metrics else of_features

    def require_preprocessor(self) -> TextPreprocessor:
        """Return the preprocessor; raise a ValueError where there is none."""
        if self.preprocessor is None:
            name = type(self).__name__
            raise ValueError(
                f"A {name} reads texts with its preprocessor: {name}(backbone, preprocessor), or "
                f"{name}.from_preset(preset, preprocessor=...). Received: preprocessor=None"
            )
        return self.preprocessor

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not (training and self._feature_loss is not None):
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = GlobalMean(self._feature_loss)(y, y_pred, sample_weight)
        for added in self.losses:
            total = total + self._aggregate_additional_loss(added)
        return total

    def call(self, inputs, training=None):
        if training and self._feature_loss is not None:
            return self.backbone.features(inputs, training=True)
        return self.backbone(inputs, training=training)

    def save(self, filepath: Path | str, *args: Any, **kwargs: Any) -> None:
        build_optimizer(self)  # as Keras does for that of the task which it reads back
        optimizer, self.optimizer = self.optimizer, self._optimizer_of_copy()
        try:
            super().save(filepath, *args, **kwargs)
        finally:
            self.optimizer = optimizer

    def _optimizer_of_copy(self) -> keras.optimizers.Optimizer | None:
        """Return the optimizer that a copy of the task can read from a file.

        It is a new one where layers were frozen since the task was compiled, or LoRA is learned,
        which the copy does not have: Keras could not read the file.
        """
        optimizer, network = self.optimizer, self.backbone
        adapted = any(getattr(each, "lora_enabled", False) for each in network._flatten_layers())
        if optimizer is None or (optimizes_what_is_trained(self) and not adapted):
            return optimizer
        copy = type(network).from_config(network.get_config())
        optimizer = type(optimizer).from_config(optimizer.get_config())
        optimizer.build(copy.trainable_variables)
        return optimizer

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        build_optimizer(self)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        *,
        validation_data: Any = None,
        validation_split: float = 0.0,
        sample_weight: Any = None,
        shuffle: bool = True,
        seed: int | None = None,
        run: Path | str | None = None,
        steps_per_epoch: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Train on texts: each is encoded once, and examples of like lengths share a batch.

        Args:
            x: texts, as the task takes them, or a `Corpus` that was read from files, or batches of
                texts: a `tf.data.Dataset`, a `keras.utils.PyDataset` or an iterator such as a
                generator. A batch is `(x, y)` or
                `(x, y, sample_weight)`, each a list for the texts of the batch (of an
                `AnswerRanker` a dict of `"question"` and `"candidates"`, and labels). An iterator
                gives one epoch, or as many as it lasts for with `steps_per_epoch`.
            y: their targets, where `x` does not hold them.
            batch_size: examples of a batch; 32 where not given, or with `run` that of `training`.
            epochs: passes over the data; those of `training` where that is given, else 1.
            validation_data: `x`, or `(x, y)`, to measure the loss and metrics on after each epoch;
                no iterator of batches.
            validation_split: the part of the examples, the last ones, to validate on instead.
            sample_weight: a weight for each example; `run` measures validation without them.
            shuffle: whether to draw a new order in each epoch.
            seed: the seed of that order; drawn from `keras.utils.set_random_seed` where not given,
                or with `run` that of `training`.
            run: a run folder to make, or to go on with: the preset of the best weights,
                checkpoints and figures. The optimizer is then that of `training`, a
                `TrainingConfig` (its default where not given), so that the run can be resumed;
                with `accept_changes=True` also where data or other settings have changed. The best
                weights so far are then measured on the new development set first.
            steps_per_epoch: batches of an epoch; all of them where not given.
            **kwargs: more of `keras.Model.fit`, such as `callbacks` and `verbose`.

        Returns:
            The history of `keras.Model.fit`; with `run`, how the training ended.

        Raises:
            ValueError: where a text is missing or no string, or columns differ in length.
        """
        run = None if run is None else output_path(run, is_preset=True)
        if self.preprocessor is None and not is_dataset(x):
            check_ids([x, y], f"A {type(self).__name__} without preprocessor")
        sources = {"x": x, "y": y, "validation_data": validation_data}
        x, y, validation_data = sources_of(self.preprocessor, True, **sources)
        check_number("`validation_split`", validation_split, 0)
        if steps_per_epoch is not None:
            check_number("`steps_per_epoch`", steps_per_epoch, 1, whole=True)
        if kwargs.get("class_weight") is not None:
            raise ValueError(
                "`fit` weighs texts: give a `sample_weight` for each. "
                f"Received: class_weight={shown(kwargs['class_weight'])}"
            )
        is_streamed = is_dataset(x) or self.preprocessor is None
        batched = is_streamed or is_dataset(validation_data)
        check_run(run, x, validation_data, batched, shuffle, kwargs)
        if epochs is None and kwargs.get("training") is None:
            epochs = 1
        kwargs |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        if run is None:
            build_optimizer(self)
        if is_streamed:  # Keras refuses these beside a dataset
            kwargs |= {"y": y, "sample_weight": sample_weight, "validation_split": validation_split}
        if self.preprocessor is None:
            kwargs |= {"batch_size": batch_size, "validation_data": validation_data}
            return super().fit(x, shuffle=False, **kwargs)
        corpus = x if is_streamed else self.corpus_of(x, y, sample_weight)
        held_out = validation_data
        if held_out is not None and not is_dataset(held_out):
            held_out = self.corpus_of(*(held_out if isinstance(held_out, tuple) else [held_out]))
        elif held_out is None and validation_split and not is_streamed:
            corpus, held_out = corpus.split(validation_split)
        if run is not None:
            require_backend("`fit` with `run`", "tensorflow", "jax")
            from .train import fit_new_run

            sizes = {"batch_size": batch_size, "seed": seed}
            return fit_new_run(self, corpus, held_out, run, **sizes, **kwargs)
        if seed is None and not is_streamed:
            seed = int(keras.random.randint((), 0, 2**31 - 1))
        size = 32 if batch_size is None else batch_size
        return self._fit(corpus, held_out, size, seed, shuffle, **kwargs)

    def corpus_of(self, x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
        """Return what `fit` was given as a corpus; one that was read already is itself."""
        if not isinstance(x, Corpus):
            return self.read_columns(x, y, sample_weight)
        if y is not None or sample_weight is not None:
            raise ValueError(
                "A corpus holds its targets and weights: leave `y` and `sample_weight` out. "
                f"Received: y={shown(y)}, sample_weight={shown(sample_weight)}"
            )
        return x

    def _fit(self, corpus, held_out, size, seed, shuffle, *, steps_per_epoch=None, **kwargs):
        """Train on a corpus, or a dataset of texts in its own order; validate on another."""
        batches = None
        if is_dataset(corpus):
            if getattr(self.preprocessor, "variants", 1) > 1:
                raise ValueError(
                    "Random pieces are drawn from lists of texts, not from a dataset: give lists, "
                    f"or a preprocessor with variants=1. Received: x={type(corpus).__name__}, "
                    f"variants={self.preprocessor.variants}"
                )
            self.before_training(None)
            epochs = kwargs["epochs"]
            if isinstance(corpus, IteratorOfBatches) and epochs > 1 and steps_per_epoch is None:
                raise ValueError(
                    "An iterator of batches is gone through once: give `steps_per_epoch`, or a "
                    f"`keras.utils.PyDataset`. Received: epochs={epochs}"
                )
            dataset = self._encoded_stream(corpus, repeat=steps_per_epoch is not None)
        else:
            encoded = self.encode_to_train(corpus)
            self.before_training(encoded)
            batches = self.make_batches(encoded, size, seed=seed, shuffle=shuffle)
            steps_per_epoch = steps_per_epoch or len(batches)
            dataset = batches.to_dataset(kwargs.get("initial_epoch", 0) * steps_per_epoch)
        check_executions(self.steps_per_execution, steps_per_epoch or 0, section="")
        if is_dataset(held_out):
            held_out = self._encoded_stream(held_out)
        elif held_out is not None:
            encoded = self.encode(held_out)
            size = kwargs.pop("validation_batch_size", None) or size
            held_out = self.make_batches(encoded, size, shuffle=False, like=batches, fill=False)
            held_out = held_out.to_dataset(epochs=1)
        kwargs |= {"steps_per_epoch": steps_per_epoch, "validation_data": held_out}
        with warnings.catch_warnings():
            if isinstance(corpus, IteratorOfBatches) and steps_per_epoch is None:
                # Its end is that of the only epoch.
                warnings.filterwarnings("ignore", "Your input ran out of data")
            # `keras.Model.fit`, as KerasHub's would preprocess what is encoded already.
            return keras.Model.fit(self, dataset, shuffle=False, **kwargs)

    def _encoded_stream(self, batches: Any, repeat: bool = False) -> Any:
        """Return batches of texts as batches of ids."""
        if hasattr(batches, "element_spec"):
            # -1: as many at a time as help.
            return batches.map(self.preprocess_samples, num_parallel_calls=-1).prefetch(-1)
        return encoded_batches(batches, self.preprocessor, repeat=repeat)

    def enable_lora(self, rank: int, target_layer_names: Sequence[str] | None = None) -> None:
        """Freeze the network, and let `fit` learn a change of low rank for its kernels.

        The task is compiled anew, as it was, with an optimizer that has not trained yet. What is
        saved holds merged kernels.

        Args:
            rank: the rank of the change.
            target_layer_names: the names of the layers; None for the network's default.

        Raises:
            ValueError: where a name is of no layer that LoRA can adapt, or the network has LoRA.
        """
        compiled = self.get_compile_config() if self.compiled else None
        self.backbone.enable_lora(rank, target_layer_names)
        self._compiled_functions.clear()
        if compiled is not None:
            self.compile_from_config(compiled)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        (x,) = sources_of(self.preprocessor, x=x)
        if self.preprocessor is not None and not is_dataset(x):
            x = self.as_source(x)
            counts = counts_of(x)
            if 0 in counts:
                raise ValueError("`predict` needs at least one text. Received: none")
            if counts and max(counts) <= (32 if batch_size is None else batch_size):
                # One batch needs no pipeline of data, which takes longer to make than to run.
                x = keras.utils.unpack_x_y_sample_weight(self.preprocess_samples(x))[0]
                return keras.Model.predict(self, x, batch_size, **kwargs)
        if self.preprocessor is not None and isinstance(x, keras.utils.PyDataset):
            x = encoded_batches(x, self.preprocessor, has_targets=False)
            return keras.Model.predict(self, x, **kwargs)
        return super().predict(x, batch_size, **kwargs)

    def as_source(self, x: Any) -> Any:
        """Return what `predict` was given, no dataset, in a form that Keras takes."""
        return self.preprocessor.as_source(x)

    def evaluate(self, x: Any = None, y: Any = None, batch_size=None, sample_weight=None, **kwargs):
        if kwargs.get("_use_cached_eval_dataset"):
            # What `fit` validates on: KerasHub 0.21 would preprocess it here once more.
            return keras.Model.evaluate(self, x, y, **kwargs)
        x, y = sources_of(self.preprocessor, x=x, y=y)
        if self.preprocessor is not None and isinstance(x, keras.utils.PyDataset):
            return keras.Model.evaluate(self, self._encoded_stream(x), **kwargs)
        if is_dataset(x) or self.preprocessor is None:
            return super().evaluate(x, y, batch_size, sample_weight, **kwargs)
        encoded = self.encode(self.corpus_of(x, y, sample_weight))
        size = 32 if batch_size is None else batch_size
        batches = self.make_batches(encoded, size, shuffle=False, fill=False)
        return keras.Model.evaluate(self, batches.to_dataset(epochs=1), **kwargs)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        if sample_weight is not None and len(getattr(y_pred, "shape", ())) == 3:
            # Of each token its text's weight: Keras multiplies it with the mask of the tokens.
            sample_weight = ops.reshape(sample_weight, (-1, 1))
        return super().compute_metrics(x, y, y_pred, sample_weight)

    # ---- Saving and reading back.

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; `trainable` is among them where the task is frozen."""
        frozen = {} if self.trainable else {"trainable": False}
        return {**super().get_config(), **frozen}

    def save_to_preset(self, preset_dir: Path | str, max_shard_size: float = 10) -> None:
        """Write the task as a preset: a new folder, whole or not at all.

        Args:
            preset_dir: the folder to write; it must not exist.
            max_shard_size: ignored; all weights are in one file, which is checked as a whole.

        Raises:
            ValueError: if there is something at `preset_dir`.
        """
        with new_folder(output_path(preset_dir, is_preset=True)) as folder:
            # Not the task's own, which fails before KerasHub 0.29 where there is no preprocessor.
            self.backbone.save_to_preset(str(folder), float("inf"))
            presets.write_parts(self, folder)
            write_checksums(folder)
            (folder / CARD_FILE).write_text(card_of_preset(self, folder), encoding="utf-8")

    @classmethod
    def from_preset(cls, preset: Path | str, load_weights: bool = True, **kwargs) -> "TextTask":
        """Return the task of a preset.

        Args:
            preset: a folder that `save_to_preset` wrote, a run folder, a handle (`hf://user/name`,
                `kaggle://...`), or the name of a preset that is installed: `"dates"`, and with the
                extra `pretrained` Firefox' translators `"firefox-en-pt"` and `"firefox-pt-en"`. A
                translator may also be a folder or handle of a model that others have trained, as
                the tutorial "Translate now, then teach it your words" says.
            load_weights: whether to load the weights; else they are new ones.
            **kwargs: arguments of the constructor to change; `dtype` of the network. With a
                `preprocessor` of other vocabularies, tokens that the preset knows keep their
                weights, others start with new ones, and a line says how many these are.

        Raises:
            ValueError: where there is no such preset, or it is damaged, of another task or newer,
                or its network cannot be given the new vocabulary.
        """
        folder = presets.preset_folder(preset)
        if not (folder / presets.TASK_FILE).is_file() and cls.reads_foreign(folder):
            return cls.from_foreign(folder, load_weights, **kwargs)
        weights = folder / presets.WEIGHTS_FILE if load_weights else None
        task = presets.read_task(cls, folder, weights, **kwargs)
        if is_address(preset) or folder.parent == presets.PRESETS:  # not a folder of the user's
            task.preset_folder = None
        task.origin = {"preset": origin_name(preset)}
        if load_weights:
            task.origin["weights"] = checksum(weights)
        return task

    def write_more(self, folder: Path) -> None:
        """Write what a preset holds of this task alone, such as a shortlist."""

    def read_more(self, folder: Path) -> None:
        """Read what `write_more` wrote, where there is any."""

    @classmethod
    def reads_foreign(cls, folder: Path) -> bool:
        """Whether a folder holds a model of others, in a format that the task reads."""
        return False

    @classmethod
    def from_foreign(cls, folder: Path, load_weights: bool = True, **kwargs: Any) -> "TextTask":
        """Return the task of a folder in a format of others."""
        raise NotImplementedError(f"{cls.__name__} reads no models of others.")

    @classmethod
    def load(cls, run: Path | str) -> "TextTask":
        """Another name of `from_preset`."""
        return cls.from_preset(run)

    def export(self, filepath: Path | str, format: str = "saved_model", **options: Any) -> None:
        """Write the task for use without this package: a SavedModel, strings in, results out.

        Args:
            filepath: the folder to write; it must not exist.
            format: `"saved_model"` (or Keras' name for it, `"tf_saved_model"`).
            **options: `max_letters`, the longest text of a call, in letters: a longer one raises an
                `InvalidArgumentError`. Default: 100,000, and 10,000 in translation, which cuts no
                text. Tasks that search also take options of the search.

        Raises:
            ValueError: if there is something at `filepath`, or the format is unknown.
        """
        check_choice("`format`", format, ("saved_model", "tf_saved_model"))
        for name in options:
            check_choice("an option of `export`", name, self.service_options)
        if options.get("max_letters") is not None:
            check_number("`max_letters`", options["max_letters"], 1, whole=True)
        require_backend("a SavedModel")
        import tensorflow as tf

        self.require_preprocessor()
        with new_folder(filepath) as folder:
            service = self.service(**options)
            tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})

    def _compiled(self, key: Any, function: Callable, *ranks: Any) -> Callable:
        """Return `function` compiled, once for each key."""
        return self._compiled_functions.ready(key, function, self.backbone, *ranks)


ABOUT_A_SET = ("report", "weights", "rows")
"""Fields of an encoded corpus that no figure depends on."""


def origin_name(preset: Path | str) -> str:
    """Return the name of a preset as a run folder keeps it: of a folder its whole path."""
    return str(Path(preset).absolute()) if Path(preset).is_dir() else str(preset)


def _need_logits(metrics: Any) -> bool:
    return any(
        each is not None and not getattr(each, "reads_labels_only", False)
        for each in keras.tree.flatten(metrics)
    )
