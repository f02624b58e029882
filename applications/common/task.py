"""The base of the application models: a Keras task that owns its network and its preprocessor."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import keras_hub

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.files import new_folder, write_checksums
from keras_attention.applications.common.network import check_ids
from keras_attention.applications.common.preprocessor import TextPreprocessor
from keras_attention.applications.common.presets import (
    CARD_FILE,
    PREPROCESSOR_FILE,
    RUN_FILE,
    TASK_FILE,
    WEIGHTS_FILE,
    deserialized,
    model_card,
    preset_folder,
    read_part,
    write_parts,
)
from keras_attention.applications.common.weights import check_sizes
from keras_attention.applications.common.weights import load_weights as read_weights
from keras_attention.distribute import GlobalMean


class TextTask(keras_hub.models.Task):
    """Base of the tasks: strings go into `fit`, results come out of a method of the task's own.

    The network (`backbone`) gives logits. The preprocessor turns texts into its inputs and back.
    All that Keras offers works: `compile`, `fit`, callbacks, metrics, `summary`, `save`; and all
    that KerasHub does: `save_to_preset`, `from_preset`, `keras_hub.upload_preset`.

    A subclass writes the hooks below, and its own verb (`translate`, `classify`, ...).

    ```
    corpus  = task.read_columns(x, y)               # what `fit` was given, checked
    encoded = task.encode(corpus)                   # as ids, once
    batches = task.make_batches(encoded, ...)       # by length, such as `BucketedBatches`
    measure = task.development(corpus, batches, config)    # -> figures of an epoch of a run
    ```

    The command trains the same task from a configuration: `read(config, split)` gives the corpus of
    a split, `adapt(config, corpus)` the preprocessor, and `configured(config, preprocessor)` the
    task, with new weights.

    Args:
        backbone: the network.
        preprocessor: its preprocessor; None for a network that is fed ids.
        compile: whether to compile with the defaults.
        **kwargs: `name` and the like of `keras.Model`.
    """

    name_of_task: ClassVar[str]
    """What the command and a run folder call the task, such as "translation"."""
    config_class: ClassVar[type]
    """The dataclass of the command's configuration."""
    network_class: ClassVar[type[keras_hub.models.Backbone]]
    preprocessor_cls: ClassVar[type[TextPreprocessor]]
    known_defaults: ClassVar[Mapping[str, list[str]]] = {}
    """What a known data set (`data.dataset`) changes in the defaults of the configuration."""
    shaded_pages: ClassVar[tuple[str, ...]] = ()
    """Suffixes of the pages that `visualize` writes beside pictures."""
    counts_tokens: ClassVar[bool] = False
    """Whether a training reports tokens a second: labels are padded with 0."""

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
        self.backbone = backbone
        self.preprocessor = preprocessor
        if preprocessor is not None:
            self.check_fit()
        self._compiled_functions: dict[Any, Callable] = {}
        super().__init__(compile=compile, **kwargs)
        self.built = True  # as the network is

    # ---- The hooks of a subclass.

    def check_fit(self) -> None:
        """Raise a ValueError where network and preprocessor are of different vocabularies."""
        raise NotImplementedError

    def read_columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Return what `fit` was given as a corpus, checked."""
        raise NotImplementedError

    def encode(self, corpus: Any) -> Any:
        """Return a corpus as ids."""
        raise NotImplementedError

    def make_batches(
        self,
        encoded: Any,
        batch_size: int | None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        like: Any = None,
    ) -> Any:
        """Return the batches of encoded examples, with `__len__` and `to_dataset`.

        Args:
            encoded: what `encode` returned.
            batch_size: examples of a batch.
            seed: the seed of their order.
            shuffle: whether to draw a new order in each epoch.
            like: batches whose shapes to use again.
        """
        raise NotImplementedError

    def default_loss(self) -> keras.losses.Loss:
        """Return the loss that `compile` takes where none is given."""
        raise NotImplementedError

    def default_optimizer(self) -> keras.optimizers.Optimizer:
        """Return the optimizer that `compile` takes where none is given."""
        return keras.optimizers.Adam(1e-3, clipnorm=1.0)

    def service(self, **options: Any) -> Any:
        """Return the `tf.Module` from strings to results that `export` writes."""
        raise NotImplementedError

    def development(self, corpus: Any, batches: Any, config: Any) -> Callable[[], dict[str, float]]:
        """Return a function that gives the figures of an epoch, `val_loss` among them.

        Args:
            corpus: what to judge by.
            batches: the same as batches of ids.
            config: the configuration of the training.
        """
        raise NotImplementedError

    def batch_options(self, training: Any) -> dict[str, Any]:
        """Return what a training section says of the size of a batch."""
        return {"batch_size": training.batch_size}

    @classmethod
    def defaults_of(cls, config: Any) -> list[str]:
        """Return what data set and architecture of a configuration change in its defaults."""
        return cls.known_defaults.get(config.data.dataset, [])

    @classmethod
    def check_data(cls, config: Any) -> None:
        """Refuse a configuration that names no training data or nothing to judge by."""

    @classmethod
    def read(cls, config: Any, split: str) -> Any:
        """Return the corpus of a split, `"train"`, `"dev"` or `"test"`."""
        raise NotImplementedError

    @classmethod
    def adapt(cls, config: Any, corpus: Any) -> TextPreprocessor:
        """Return the preprocessor that a configuration describes, for a training corpus."""
        raise NotImplementedError

    @classmethod
    def configured(
        cls, config: Any, preprocessor: TextPreprocessor, dtype: Any = None
    ) -> "TextTask":
        """Return the task that a configuration describes, with new weights.

        Args:
            config: the configuration.
            preprocessor: what `adapt` gave.
            dtype: the dtype policy of the network; None for Keras' global one.
        """
        raise NotImplementedError

    @classmethod
    def from_run_0_1(cls, folder: Path, load_weights: bool = True) -> "TextTask":
        """Return the task of a run folder that version 0.1 made."""
        raise NotImplementedError

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
        optimizer = (
            self.default_optimizer()
            if isinstance(optimizer, str) and optimizer == "auto"
            else optimizer
        )
        loss = self.default_loss() if isinstance(loss, str) and loss == "auto" else loss
        super().compile(
            optimizer, loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs
        )
        own = loss.loss if isinstance(loss, GlobalMean) else loss
        wanted = [*_flat(metrics), *_flat(weighted_metrics)]
        needs_logits = any(not getattr(each, "reads_labels_only", False) for each in wanted)
        self._feature_loss = None if needs_logits else self.feature_loss(own)

    def require_preprocessor(self) -> TextPreprocessor:
        """Return the preprocessor; raise a ValueError where there is none."""
        if self.preprocessor is None:
            name = type(self).__name__
            raise ValueError(
                f"A {name} reads texts with its preprocessor: {name}(backbone, preprocessor). "
                "Received: preprocessor=None"
            )
        return self.preprocessor

    def feature_loss(self, loss: Any) -> keras.losses.Loss | None:
        """Return a loss that takes features in place of logits, or None where there is none.

        With it, training never has the logits of a batch at once.
        """
        return None

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

    def save(self, filepath: Path | str, overwrite: bool = True, **kwargs: Any) -> None:
        if self.optimizer is not None and not self.optimizer.built:
            # Which Keras does for the optimizer of the task that it reads back.
            self.optimizer.build(self.trainable_variables)
        super().save(filepath, overwrite, **kwargs)

    def compile_from_config(self, config: Mapping[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
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
            x: texts, as the task takes them, or a `tf.data.Dataset` of batches of them.
            y: their targets, where `x` does not hold them.
            batch_size: examples of a batch; 32 where not given.
            epochs: passes over the data.
            validation_data: `x`, or `(x, y)`, to measure the loss and metrics on after each epoch.
            validation_split: the part of the examples, the last ones, to validate on instead.
            sample_weight: a weight for each example.
            shuffle: whether to draw a new order in each epoch.
            seed: the seed of that order; drawn from `keras.utils.set_random_seed` where not given.
            run: a run folder to make, or to go on with: the preset of the best weights,
                checkpoints and figures. The optimizer is then that of `training`, a
                `TrainingConfig` (its default where not given), so that the run can be resumed.
            steps_per_epoch: batches of an epoch; all of them where not given.
            **kwargs: more of `keras.Model.fit`, such as `callbacks` and `verbose`.

        Returns:
            The history of `keras.Model.fit`; with `run`, how the training ended.

        Raises:
            ValueError: where a text is missing or no string, or columns differ in length.
        """
        if _is_dataset(x) or self.preprocessor is None:
            if not _is_dataset(x):
                check_ids([x, y], f"A {type(self).__name__} without preprocessor")
            if run is not None:
                raise ValueError(
                    "`run` needs texts, which can be gone through again from any step: give lists. "
                    f"Received: x={type(x).__name__}"
                )
            return super().fit(
                x,
                y,
                batch_size,
                sample_weight=sample_weight,
                epochs=epochs,
                validation_data=validation_data,
                steps_per_epoch=steps_per_epoch,
                shuffle=False,  # a dataset comes in its own order
                **kwargs,
            )
        corpus = self.read_columns(x, y, sample_weight)
        held_out = None
        if validation_data is not None:
            held_out = self._read_again(validation_data)
        elif validation_split:
            corpus, held_out = corpus.split(validation_split)
        if run is not None:
            from keras_attention.applications.training.tasks import fit_new_run

            sizes = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
            sizes |= {"steps_per_epoch": steps_per_epoch}
            return fit_new_run(self, corpus, held_out, run, **sizes, **kwargs)
        seed = int(keras.random.randint((), 0, 2**31 - 1)) if seed is None else seed
        batches = self.make_batches(
            self.encode(corpus), batch_size or 32, seed=seed, shuffle=shuffle
        )
        if held_out is not None and not _is_dataset(held_out):
            like = self.make_batches(
                self.encode(held_out), batch_size or 32, shuffle=False, like=batches
            )
            held_out = like.to_dataset(epochs=1)
        elif held_out is not None:
            held_out = held_out.map(self.preprocess_samples)
        # `keras.Model.fit`, as KerasHub's would preprocess what is encoded already.
        return keras.Model.fit(
            self,
            batches.to_dataset(),
            epochs=epochs,
            steps_per_epoch=steps_per_epoch or len(batches),
            validation_data=held_out,
            shuffle=False,
            **kwargs,
        )

    def evaluate(self, x: Any = None, y: Any = None, batch_size=None, sample_weight=None, **kwargs):
        if kwargs.get("_use_cached_eval_dataset") or _is_dataset(x) or self.preprocessor is None:
            return super().evaluate(x, y, batch_size, sample_weight, **kwargs)
        encoded = self.encode(self.read_columns(x, y, sample_weight))
        batches = self.make_batches(encoded, batch_size or 32, shuffle=False)
        return keras.Model.evaluate(self, batches.to_dataset(epochs=1), **kwargs)

    def _read_again(self, data: Any) -> Any:
        """Return `validation_data` as a corpus, or as the dataset that it is."""
        if _is_dataset(data):
            return data
        return self.read_columns(*data) if isinstance(data, tuple) else self.read_columns(data)

    # ---- Saving and reading back.

    def save_to_preset(self, preset_dir: Path | str, max_shard_size: float = 10) -> None:
        """Write the task as a preset: a new folder, whole or not at all.

        Args:
            preset_dir: the folder to write; it must not exist.
            max_shard_size: the most gigabytes of one file of weights.

        Raises:
            ValueError: if there is something at `preset_dir`.
        """
        with new_folder(preset_dir) as folder:
            super().save_to_preset(str(folder), max_shard_size)
            self.describe(folder)
            write_checksums(folder)
            (folder / CARD_FILE).write_text(model_card(self), encoding="utf-8")

    def describe(self, folder: Path) -> None:
        """Write what a preset holds beside weights into a folder."""
        write_parts(self, folder)

    @classmethod
    def from_preset(
        cls, preset: Path | str, load_weights: bool = True, **kwargs: Any
    ) -> "TextTask":
        """Return the task of a preset.

        Args:
            preset: a folder that `save_to_preset` wrote, a run folder, the name of a preset that
                comes with the package, or a handle: `hf://user/name`, `kaggle://...`.
            load_weights: whether to load the weights; else they are new ones.
            **kwargs: arguments of the constructor to change; `dtype` of the network.

        Raises:
            ValueError: where there is no such preset, it is not whole, is of another task, or of a
                newer version.
        """
        folder = preset_folder(preset)
        if (folder / RUN_FILE).is_file() and not (folder / TASK_FILE).is_file():
            return cls.from_run_0_1(folder, load_weights)
        config = read_part(folder, TASK_FILE)
        found = keras.saving.get_registered_object(config["registered_name"])
        if not (isinstance(found, type) and issubclass(found, cls)):
            raise UserError(
                f"{preset} is a preset of `{config['class_name']}`. Expected: {cls.__name__}."
            )
        dtype = kwargs.pop("dtype", None)
        if "preprocessor" not in kwargs:
            config["config"]["preprocessor"] = read_part(folder, PREPROCESSOR_FILE)
        config["config"] |= kwargs
        if load_weights:
            check_sizes(config["config"].get("backbone"), folder / WEIGHTS_FILE)
        task = deserialized(config, folder / TASK_FILE, dtype)
        if load_weights:
            read_weights(task.backbone, folder / WEIGHTS_FILE)
        return task

    @classmethod
    def load(cls, run: Path | str) -> "TextTask":
        """Another name of `from_preset`."""
        return cls.from_preset(run)

    def export(self, filepath: Path | str, format: str = "saved_model", **options: Any) -> None:
        """Write the task for use without this package: a SavedModel, strings in, results out.

        Args:
            filepath: the folder to write; it must not exist.
            format: `"saved_model"` (or Keras' name for it, `"tf_saved_model"`).
            **options: what `service` of the task takes.

        Raises:
            ValueError: if there is something at `filepath`, or the format is unknown.
        """
        if format not in ("saved_model", "tf_saved_model"):
            raise ValueError(f"`format` should be 'saved_model'. Received: format={format!r}")
        import tensorflow as tf

        with new_folder(filepath) as folder:
            service = self.service(**options)
            tf.saved_model.save(service, str(folder), signatures={"serving_default": service.serve})


def _flat(metrics: Any) -> Sequence[Any]:
    return keras.tree.flatten(metrics) if metrics is not None else []


def _is_dataset(x: Any) -> bool:
    """Whether `x` is a `tf.data.Dataset`, or one of Keras' own sources of batches."""
    if isinstance(x, keras.utils.PyDataset):
        return True
    return type(x).__module__.startswith("tensorflow.python.data") or hasattr(x, "element_spec")
