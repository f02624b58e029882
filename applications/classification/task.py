"""The classification task, as the command's verbs use it."""

import json
import sys
from argparse import Namespace

from keras_attention.applications.classification.config import PRESETS, ClassificationConfig
from keras_attention.applications.common.backend import require_backend, require_tensorflow
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.task import Task
from keras_attention.applications.common.training import Outcome


class ClassificationTask(Task):
    """Label texts and pairs of texts."""

    config_class = ClassificationConfig
    presets = PRESETS

    def presets_of(self, config: ClassificationConfig) -> list[str]:
        """As of every task; but a backbone comes with its own tokenizer and sizes."""
        presets = super().presets_of(config)
        if config.model.architecture != "backbone":
            return presets
        return [each for each in presets if not each.startswith(("--tokenizer.", "--model."))]

    def train_new(self, config: ClassificationConfig, output: str) -> Outcome:
        from keras_attention.applications.classification.training import train_classification

        return train_classification(config, output)

    def train_on(self, output: str, config: ClassificationConfig) -> Outcome:
        from keras_attention.applications.classification.training import resume_classification

        return resume_classification(output, config)

    def evaluate(self, options: Namespace) -> None:
        from keras_attention.applications.classification import evaluation
        from keras_attention.applications.classification.confusion_picture import draw_confusion
        from keras_attention.applications.classification.run import load_run
        from keras_attention.applications.common.pictures import check_picture

        require_backend("evaluating a classifier", "tensorflow", "jax")
        if options.picture:  # first, as a wrong file should be refused before the work
            check_picture(options.picture)
        run = load_run(options.run)
        if options.skip:
            run = evaluation.skipping(run)
        examples = evaluation.evaluation_examples(run, options.split, options.input)
        report = evaluation.evaluate(run, examples)
        if options.picture:
            draw_confusion(report, options.picture)
            say(f"wrote {options.picture}")
        print(json.dumps(report, indent=2) if options.json else evaluation.table(report))

    def predict(self, options: Namespace) -> None:
        from keras_attention.applications.classification.prediction import predict

        require_backend("classifying", "tensorflow", "jax")
        predict(options)

    def visualize(self, options: Namespace) -> None:
        from keras_attention.applications.classification.classifier import TextClassifier
        from keras_attention.applications.classification.picture import check_output, draw

        require_backend("classifying", "tensorflow", "jax")
        if options.output:
            check_output(options.output)
        classifier = TextClassifier.load(options.run)
        text = options.input if options.second is None else (options.input, options.second)
        print(draw(classifier, text, options.output, color=sys.stdout.isatty()))
        if options.output:
            say(f"wrote {options.output}")

    def export(self, options: Namespace) -> None:
        from keras_attention.applications.classification.export import export_saved_model

        require_tensorflow("a SavedModel")
        export_saved_model(options.run, options.output)
        say(f"wrote {options.output}")


TASK = ClassificationTask()
