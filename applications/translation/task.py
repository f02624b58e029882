"""The translation task, as the command's verbs use it."""

import json
from argparse import Namespace

from keras_attention.applications.common.backend import require_tensorflow
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.task import Task
from keras_attention.applications.common.training import Outcome
from keras_attention.applications.translation.config import PRESETS, TranslationConfig


class TranslationTask(Task):
    """Translate with recurrent attention, or with the Transformer."""

    config_class = TranslationConfig
    presets = PRESETS

    def presets_of(self, config: TranslationConfig) -> list[str]:
        name = f"{config.data.dataset} with model.architecture {config.model.architecture}"
        return PRESETS.get(name) or super().presets_of(config)

    def train_new(self, config: TranslationConfig, output: str) -> Outcome:
        from keras_attention.applications.translation.training import train_translation

        return train_translation(config, output)

    def train_on(self, output: str, config: TranslationConfig) -> Outcome:
        from keras_attention.applications.translation.training import resume_translation

        return resume_translation(output, config)

    def evaluate(self, options: Namespace) -> None:
        from keras_attention.applications.translation import evaluation
        from keras_attention.applications.translation.run import choose_attention, load_run

        run = load_run(options.run)
        choose_attention(run, options.attention_layer, options.attention_head)
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
        from keras_attention.applications.translation.run import choose_attention, load_run
        from keras_attention.applications.translation.translator import Translator

        check_picture(options.output)
        run = load_run(options.run)
        choose_attention(run, options.attention_layer, options.attention_head)
        result = draw(Translator(run), options.input, options.output, target=options.target)
        print(result.text)
        say(f"wrote {options.output}")

    def export(self, options: Namespace) -> None:
        from keras_attention.applications.translation.ctranslate2_export import export_ctranslate2
        from keras_attention.applications.translation.export import export_keras, export_saved_model

        if options.format == "saved_model":
            require_tensorflow("a SavedModel")
        write = {
            "saved_model": export_saved_model,
            "keras": export_keras,
            "ctranslate2": export_ctranslate2,
        }[options.format]
        write(options.run, options.output)
        say(f"wrote {options.output}")

    def demo(self, options: Namespace) -> None:
        from keras_attention.applications.translation.demo import run_demo

        require_tensorflow("the demo")
        run_demo(options.output)


TASK = TranslationTask()
