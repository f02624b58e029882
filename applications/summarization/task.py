"""The summarisation task, as the command's verbs use it."""

import json
from argparse import Namespace

from keras_attention.applications.common.messages import say
from keras_attention.applications.common.task import Task
from keras_attention.applications.common.training import Outcome
from keras_attention.applications.summarization.config import (
    ARCHITECTURES,
    PRESETS,
    SummarizationConfig,
)


class SummarizationTask(Task):
    """Summarise documents of sentences of words."""

    config_class = SummarizationConfig
    presets = PRESETS

    def presets_of(self, config: SummarizationConfig) -> list[str]:
        return [*super().presets_of(config), *ARCHITECTURES[config.model.architecture]]

    def train_new(self, config: SummarizationConfig, output: str) -> Outcome:
        from keras_attention.applications.summarization.training import train_summarization

        return train_summarization(config, output)

    def train_on(self, output: str, config: SummarizationConfig) -> Outcome:
        from keras_attention.applications.summarization.training import resume_summarization

        return resume_summarization(output, config)

    def evaluate(self, options: Namespace) -> None:
        from keras_attention.applications.summarization import evaluation
        from keras_attention.applications.summarization.prediction import search_options
        from keras_attention.applications.summarization.run import load_run

        run = load_run(options.run)
        corpus = evaluation.evaluation_corpus(run, options.split, options.input)
        report = evaluation.evaluate(run, corpus, options.lead, **search_options(options))
        print(json.dumps(report, indent=2) if options.json else evaluation.table(report))

    def predict(self, options: Namespace) -> None:
        from keras_attention.applications.summarization.prediction import predict

        predict(options)

    def visualize(self, options: Namespace) -> None:
        from keras_attention.applications.common.pictures import check_picture
        from keras_attention.applications.summarization.picture import draw
        from keras_attention.applications.summarization.summarizer import Summarizer

        check_picture(options.output)
        result = draw(Summarizer.load(options.run), options.input, options.output)
        print(result.text)
        say(f"wrote {options.output}")

    def export(self, options: Namespace) -> None:
        from keras_attention.applications.common.backend import require_tensorflow
        from keras_attention.applications.summarization.export import export_saved_model

        require_tensorflow("a SavedModel")
        export_saved_model(options.run, options.output)
        say(f"wrote {options.output}")


TASK = SummarizationTask()
