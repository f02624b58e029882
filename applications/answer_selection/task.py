"""The answer selection task, as the command's verbs use it."""

import json
import os
import sys
from argparse import Namespace

from keras_attention.applications.answer_selection.config import PRESETS, AnswerSelectionConfig
from keras_attention.applications.common.backend import require_tensorflow
from keras_attention.applications.common.files import check_new_file, write_text
from keras_attention.applications.common.messages import say
from keras_attention.applications.common.task import Task
from keras_attention.applications.common.training import Outcome


class AnswerSelectionTask(Task):
    """Rank the candidate answers of a question."""

    config_class = AnswerSelectionConfig
    presets = PRESETS

    def train_new(self, config: AnswerSelectionConfig, output: str) -> Outcome:
        from keras_attention.applications.answer_selection.training import train_answer_selection

        return train_answer_selection(config, output)

    def train_on(self, output: str, config: AnswerSelectionConfig) -> Outcome:
        from keras_attention.applications.answer_selection.training import resume_answer_selection

        return resume_answer_selection(output, config)

    def evaluate(self, options: Namespace) -> None:
        from keras_attention.applications.answer_selection import evaluation
        from keras_attention.applications.answer_selection.run import load_run

        if options.trec_run:
            check_new_file(options.trec_run)
        run = load_run(options.run)
        questions = evaluation.evaluation_questions(run, options.split, options.file)
        report, ranking = evaluation.evaluate(run, questions)
        if options.trec_run:
            write_text(options.trec_run, "".join(f"{line}\n" for line in ranking))
        print(json.dumps(report, indent=2) if options.json else evaluation.table(report))

    def predict(self, options: Namespace) -> None:
        from keras_attention.applications.answer_selection.prediction import predict

        predict(options)

    def visualize(self, options: Namespace) -> None:
        from keras_attention.applications.answer_selection.picture import check_shaded, shade
        from keras_attention.applications.answer_selection.ranker import Ranker
        from keras_attention.visualization import shaded_text

        if options.output:
            check_shaded(options.output)
        rows = shade(Ranker.load(options.run), options.question, options.answer, options.output)
        color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(shaded_text(rows, color=color))
        if options.output:
            say(f"wrote {options.output}")

    def export(self, options: Namespace) -> None:
        from keras_attention.applications.answer_selection.export import export_saved_model

        require_tensorflow("a SavedModel")
        export_saved_model(options.run, options.output)
        say(f"wrote {options.output}")


TASK = AnswerSelectionTask()
