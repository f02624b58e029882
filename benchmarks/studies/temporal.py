"""What temporal attention holds against a sentence that it has read.

For runs of `python -m benchmarks summarization --corpus unordered --only nallapati2016-temporal`:
the logarithm of the sum of earlier scores that each score is lowered by, and the weights, when a
later statement begins; means over the sentences that were read for an earlier statement, the
urgent ones that were not, and all others. Greedy search of 100 reports.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.common.tables import markdown
from benchmarks.studies.summarization import statements_of

if TYPE_CHECKING:
    from keras_attention.applications.summarization import Summarizer, Summary

REPORTS = 100
KINDS = ("read before", "urgent, not read", "others")


def steps_of(task: "Summarizer", sentences: list[str]) -> tuple["Summary", list[tuple]]:
    """Return a summary, and of each of its steps the log sums before it and the weights, `(S,)`."""
    from keras_attention.layers import TemporalAttention

    steps: list[tuple] = []
    attend = TemporalAttention.attend

    def kept(layer, query, memory, state, *args, **options):
        result = attend(layer, query, memory, state, *args, **options)
        steps.append((np.ravel(state["log_sum"]), np.ravel(result[1])))
        return result

    TemporalAttention.attend = kept
    try:
        return task.summarize([sentences], beam_size=1)[0], steps
    finally:
        TemporalAttention.attend = attend


def beginnings(summary: "Summary", steps: list[tuple], urgent: tuple[int, ...]):
    """Yield, where a later statement begins, the kind, log sum and weight of each sentence."""
    ends = np.cumsum([len(sentence) for sentence in summary.source])
    places = list(zip(ends - [len(sentence) for sentence in summary.source], ends, strict=True))
    found = statements_of(summary)
    for number, (step, *_) in enumerate(found[1:], 1):
        read = {sentence for *_, sentence in found[:number]}
        before, weights = steps[step]
        for sentence, (start, end) in enumerate(places):
            kind = KINDS[0 if sentence in read else 1 if sentence in urgent else 2]
            yield kind, before[start:end].max(), weights[start:end].sum()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="a run folder")


def run(options: argparse.Namespace) -> None:
    """Print a line for each run."""
    import tensorflow as tf

    from keras_attention.applications.data.made import reports
    from keras_attention.applications.summarization import Summarizer

    tf.config.run_functions_eagerly(True)  # or the steps would have no numbers
    rows = [
        ["run", *(f"log sum, {kind}" for kind in KINDS), *(f"weight, {kind}" for kind in KINDS)]
    ]
    for folder in options.runs:
        task, found = Summarizer.from_preset(folder), {kind: [] for kind in KINDS}
        for example in reports.generate("test", ordered=False)[:REPORTS]:
            summary, steps = steps_of(task, example.sentences)
            for kind, *numbers in beginnings(summary, steps, example.urgent):
                found[kind].append(numbers)
        sums, weights = zip(*(np.mean(found[kind], axis=0) for kind in KINDS), strict=True)
        rows.append([folder.name, *(f"{x:.1f}" for x in sums), *(f"{x:.3f}" for x in weights)])
    print(markdown(rows))
