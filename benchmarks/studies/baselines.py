"""What counting words gives on the same data, without a network.

Rankings of answers by BM25 and by word overlap, under the filtered protocol, and labels of texts by
NB-SVM over words and pairs of words, on the very files and splits that the networks are measured
on. It takes a few minutes at most. A set whose files are not there is passed over, and said so.
"""

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import add_folder
from benchmarks.common.tables import markdown
from benchmarks.studies.classification import ROWS, default_seeds, linear_accuracies

RANKED = {"WikiQA": ("wikiqa", ("dev", "test")), "TREC-QA": ("trecqa", ("dev",))}
LABELLED = ("trec", "polarity", "subjectivity", "reviews-mean", "sick")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_folder(parser, "wikiqa/, trecqa/, trec/, nltk/ and sick/")


def run(options: argparse.Namespace) -> None:
    """Measure and print both tables."""
    ranked = rows_of(RANKED, lambda name: ranking_rows(name, options.folder))
    labelled = rows_of(LABELLED, lambda name: [labels_row(name, options.folder)])
    if not ranked + labelled:
        raise BenchmarkError(f"{options.folder} has none of the sets.")
    print(markdown([["", "by", "questions", "MAP", "MRR", "P@1"], *ranked]))
    print()
    print(markdown([["", "NB-SVM", "lowest-highest", "test sets"], *labelled]))


def rows_of(names, measure) -> list[list[str]]:
    """Return the rows of those sets that are there."""
    rows = []
    for name in names:
        try:
            rows += measure(name)
        except (ValueError, OSError) as error:
            print(f"{name} is passed over: {error}", file=sys.stderr)
    return rows


def ranking_rows(name: str, folder: Path) -> list[list[str]]:
    """Return the figures of the rankings by words of the parts of a set."""
    from keras_attention.applications.answer_selection import DataConfig, load_corpus
    from keras_attention.applications.answer_selection.data import texts_of
    from keras_attention.applications.answer_selection.preprocessor import AnswerPreprocessor
    from keras_attention.applications.answer_selection.results import evaluation_report

    dataset, splits = RANKED[name]
    data, rows = DataConfig(dataset=dataset, folder=str(folder / dataset)), []
    for split in splits:
        questions = load_corpus(data, split)
        tokens = AnswerPreprocessor.adapt(
            texts_of(questions)
        ).tokens  # 40 words, as the networks read
        nothing = [[0.0] * len(some) for some in questions["candidates"]]
        found = evaluation_report(questions, nothing, tokens)["baselines"]
        for by, key in (("BM25", "bm25"), ("word overlap", "word_overlap")):
            row = found[key]["filtered"]
            figures = (f"{row[measure]:.4f}" for measure in ("map", "mrr", "precision_at_1"))
            rows.append([f"{name}, {split}", by, str(row["questions"]), *figures])
    return rows


def labels_row(name: str, folder: Path) -> list[str]:
    """Return the accuracy of NB-SVM in percent: the mean over a set's test sets."""
    found = linear_accuracies(name, default_seeds(ROWS[name]), folder)
    spread = f"{min(found):.1f}-{max(found):.1f}"
    return [ROWS[name].dataset, f"{statistics.mean(found):.1f}", spread, str(len(found))]
