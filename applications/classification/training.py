"""Training a classifier: from a configuration to a run folder with weights."""

import dataclasses
from pathlib import Path

import keras

from keras_attention.applications.classification.backbones import FOLDER, load_pretrained
from keras_attention.applications.classification.config import ClassificationConfig
from keras_attention.applications.classification.data import has_split, load_examples
from keras_attention.applications.classification.encoding import (
    Encoded,
    balanced_weights,
    encode_examples,
    make_batches,
)
from keras_attention.applications.classification.labels import Labels
from keras_attention.applications.classification.measures import measure
from keras_attention.applications.classification.reading import train_tokenizer
from keras_attention.applications.classification.run import (
    TASK,
    ClassificationRun,
    load_run,
    make_reader,
    new_model,
)
from keras_attention.applications.common.config import load_config, save_config
from keras_attention.applications.common.distribute_config import on_all_replicas
from keras_attention.applications.common.errors import UserError
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.run_folder import RunFolder
from keras_attention.applications.common.starting import resume_run, start_run
from keras_attention.applications.common.training import (
    Outcome,
    model_scope,
    start_from_seed,
    train,
)


def train_classification(config: ClassificationConfig, output: Path | str) -> Outcome:
    """Train a model into the new run folder `output`.

    Raises:
        UserError: if the folder exists, or data or configuration are wrong; nothing is left then.
    """
    config.check()
    return start_run(with_absolute_paths(config), output, _prepare, _fit)


def _prepare(config: ClassificationConfig, output: Path | str) -> None:
    """Make the run folder."""
    if not has_split(config.data, "train"):
        raise UserError(
            "name the training data: --data.train_file F.csv (or .tsv, .jsonl), or --data.dataset "
            "opinions."
        )
    examples = load_examples(config.data, "train")
    labels = Labels.of(config.data.labels, examples.items, examples.report.name)
    pretrained = None
    if config.model.architecture == "backbone":
        pretrained = load_pretrained(config.model.backbone)
        pretrained.check_length(config)
        tokenizer = pretrained.tokenizer
    else:
        texts = [text for item in examples.items for text in item.texts]
        tokenizer = train_tokenizer(config.tokenizer, texts)
    # A model that cannot be must not leave a run folder.
    new_model(config, tokenizer, labels, pretrained)
    reader = make_reader(config, tokenizer)
    # Nor must texts that are refused: a run cannot be resumed with another data section.
    for split in ("train", "dev"):
        encode_examples(load_examples(config.data, split), reader, labels, config.data)
    if has_split(config.data, "test"):
        load_examples(config.data, "test")  # a wrong column is not to be found out after training
    with RunFolder.prepare(output, TASK) as folder:
        save_config(config, folder / "config.yaml")
        if pretrained:
            pretrained.save(folder / FOLDER)
        else:
            tokenizer.save(folder / "tokenizers")
        labels.save(folder / "tokenizers")


def resume_classification(output: Path | str, config: ClassificationConfig) -> Outcome:
    """Continue a run as if it had never stopped.

    Args:
        output: the run folder.
        config: the run's own configuration, in which `epochs` (but with schedule cosine),
            `max_minutes` and `patience` may have been changed.

    Raises:
        UserError: if another key was changed, or another process trains this run.
    """
    return resume_run(with_absolute_paths(config), output, _fit)


def _fit(output: Path | str, prepared: None) -> Outcome:
    config = on_all_replicas(load_config(ClassificationConfig, [RunFolder(output).config]))
    start_from_seed(config.training)
    with model_scope(config) as workers:
        run = load_run(output, weights=False)
    encoded = _encoded(run, "train")
    development = Development(run)
    say(str(encoded.report))
    say(str(development.encoded.report))
    balanced = config.training.class_weights == "balanced"
    batches = make_batches(
        encoded.columns,
        config.training.batch_size,
        targets=encoded.targets,
        weights=balanced_weights(encoded.targets) if balanced else None,
        sentences=run.reader.in_sentences,
        seed=config.training.seed,
    )
    say(
        f"{config.model.architecture}: {run.model.count_params():,} weights; {len(batches)} "
        f"batches of {config.training.batch_size}, {batches.padding_fraction:.0%} padding"
    )
    return train(
        run.folder,
        config.training,
        run.model,
        make_loss(config),
        batches.to_dataset,
        len(batches),
        development,
        workers=workers,
    )


class Development:
    """The development set: called, it gives the figures of an epoch.

    `val_loss` is the loss, without label smoothing and class weights; `val_score` what training is
    stopped by: accuracy of one label, micro F1 of many, Pearson's correlation of numbers.

    Args:
        run: the run; its model is measured as it is when called.
    """

    def __init__(self, run: ClassificationRun):
        from keras_attention.applications.classification.classifier import TextClassifier

        self.encoded = _encoded(run, "dev")
        self._labels = run.labels
        self._classifier = TextClassifier(run)

    def __call__(self) -> dict[str, float]:
        scores = self._classifier.scores(self.encoded.columns)
        report = measure(scores, self.encoded.targets, self._labels)
        names = {"one": "accuracy", "many": "micro_f1", "number": "pearson"}
        figures = {"val_loss": report["loss"], "val_score": report[names[self._labels.kind]]}
        if self._labels.kind != "number":
            figures["val_macro_f1"] = report["macro_f1"]
        return figures


def make_loss(config: ClassificationConfig) -> keras.losses.Loss:
    """Return the loss of a configuration; the weights of a batch count among each other."""
    common = {"reduction": "mean_with_sample_weight"}
    if config.data.labels == "number":
        return keras.losses.MeanSquaredError(**common)
    common |= {"from_logits": True, "label_smoothing": config.training.label_smoothing}
    if config.data.labels == "many":
        return keras.losses.BinaryCrossentropy(**common)
    return keras.losses.CategoricalCrossentropy(**common)


def with_absolute_paths(config: ClassificationConfig) -> ClassificationConfig:
    """Return `config` with absolute paths, so that a run can be used from any folder."""
    names = ("folder", "train_file", "dev_file", "test_file")
    given = {name: getattr(config.data, name) for name in names}
    paths = {name: str(Path(path).expanduser().absolute()) for name, path in given.items() if path}
    data = dataclasses.replace(config.data, **paths)
    model = config.model
    if model.backbone and Path(model.backbone).expanduser().is_dir():  # else a preset's name
        backbone = str(Path(model.backbone).expanduser().absolute())
        model = dataclasses.replace(model, backbone=backbone)
    return dataclasses.replace(config, data=data, model=model)


def _encoded(run: ClassificationRun, split: str) -> Encoded:
    data = run.config.data
    return encode_examples(load_examples(data, split), run.reader, run.labels, data)
