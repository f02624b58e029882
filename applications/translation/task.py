"""The translation task, as the command's verbs use it."""

import json
from argparse import Namespace

from keras_attention.applications.common.backend import require_tensorflow
from keras_attention.applications.common.config import load_config
from keras_attention.applications.common.config_help import config_help
from keras_attention.applications.common.messages import clock, say
from keras_attention.applications.common.run_folder import RunFolder, is_free
from keras_attention.applications.translation.config import PRESETS, TranslationConfig


class TranslationTask:
    """Translate with recurrent attention."""

    def config_help(self) -> str:
        return config_help(TranslationConfig, PRESETS)

    def train(self, options: Namespace) -> None:
        from keras_attention.applications.translation import training

        require_tensorflow("training")
        if options.resume and not is_free(options.output):
            config = read_config(options.config, options.overrides, RunFolder(options.output))
            outcome = training.resume_translation(options.output, config)
        else:
            config = read_config(options.config, options.overrides)
            outcome = training.train_translation(config, options.output)
        say(
            f"{outcome.reason}: best {config.training.monitor[0]} {outcome.best:.4g} in epoch "
            f"{outcome.best_epoch} of {outcome.epoch}, {clock(outcome.seconds)} in all. "
            f"Try `keras-attention evaluate {options.output}`."
        )

    def evaluate(self, options: Namespace) -> None:
        from keras_attention.applications.translation import evaluation
        from keras_attention.applications.translation.run import load_run

        run = load_run(options.run)
        corpus = evaluation.evaluation_corpus(
            run, options.split, options.source, options.target, options.tsv
        )
        report = {}
        if options.gold:  # first, as a wrong file should be refused before minutes of search
            report["alignment"] = evaluation.alignment_errors(
                run, corpus, options.gold, one_indexed=options.gold_start == 1
            )
        report = {**evaluation.evaluate(run, corpus, options.beam), **report}
        print(json.dumps(report, indent=2) if options.json else evaluation.table(report))

    def predict(self, options: Namespace) -> None:
        from keras_attention.applications.translation.prediction import predict

        predict(options)

    def visualize(self, options: Namespace) -> None:
        from keras_attention.applications.translation.picture import check_picture, draw
        from keras_attention.applications.translation.translator import Translator

        check_picture(options.output)
        translator = Translator.load(options.run)
        result = draw(translator, options.input, options.output, target=options.target)
        print(result.text)
        say(f"wrote {options.output}")

    def export(self, options: Namespace) -> None:
        from keras_attention.applications.translation.export import export_keras, export_saved_model

        if options.format == "saved_model":
            require_tensorflow("a SavedModel")
        write = {"saved_model": export_saved_model, "keras": export_keras}[options.format]
        write(options.run, options.output)
        say(f"wrote {options.output}")

    def demo(self, options: Namespace) -> None:
        from keras_attention.applications.translation.demo import run_demo

        require_tensorflow("the demo")
        run_demo(options.output)


def read_config(
    path: str | None, overrides: list[str], run: RunFolder | None = None
) -> TranslationConfig:
    """Read a configuration: a run's own if there is one, a file, and overrides on top.

    A known data set brings its own defaults.
    """
    paths = ([run.config] if run else []) + ([path] if path else [])
    config = load_config(TranslationConfig, paths, overrides)
    presets = PRESETS.get(config.data.dataset, [])
    return load_config(TranslationConfig, paths, overrides, presets)


TASK = TranslationTask()
