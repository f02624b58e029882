"""`python -m benchmarks.baselines --folder data`: what counting words gives, without a network.

Rankings of answers by BM25 and by word overlap, under the filtered protocol, and labels of texts by
NB-SVM over words and pairs of words, on the very files and splits that the networks are measured
on. It takes a few minutes at most. A set whose files are not there is passed over, and said so.
"""

import argparse
import statistics
import sys
from pathlib import Path

from benchmarks.classification import ROWS, linear_accuracies
from benchmarks.report import markdown
from keras_attention.applications.answer_selection import DataConfig, load_corpus
from keras_attention.applications.answer_selection.data import texts_of
from keras_attention.applications.answer_selection.preprocessor import AnswerPreprocessor
from keras_attention.applications.answer_selection.results import evaluation_report

RANKED = {"WikiQA": ("wikiqa", ("dev", "test")), "TREC-QA": ("trecqa", ("dev",))}
LABELLED = ("trec", "polarity", "subjectivity", "reviews-mean", "sick")


def main(arguments=None) -> int:
    """Measure and print both tables; 0, or 2 after one line where no set is there."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.baselines",
        description="Rank answers and label texts by the words in them alone.",
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="with wikiqa/, trecqa/, trec/, nltk/ and sick/"
    )
    options = parser.parse_args(arguments)
    options.runs, options.set = None, []  # as many as the table of classification has
    ranked = rows_of(RANKED, lambda name: ranking_rows(name, options.folder))
    labelled = rows_of(LABELLED, lambda name: [labels_row(name, options)])
    if not ranked + labelled:
        print(f"error: {options.folder} has none of the sets", file=sys.stderr)
        return 2
    print(markdown([["", "by", "questions", "MAP", "MRR", "P@1"], *ranked]))
    print()
    print(markdown([["", "NB-SVM", "lowest-highest", "test sets"], *labelled]))
    return 0


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


def labels_row(name: str, options: argparse.Namespace) -> list[str]:
    """Return the accuracy of NB-SVM in percent: the mean over a set's test sets."""
    found = linear_accuracies(name, options)
    spread = f"{min(found):.1f}-{max(found):.1f}"
    return [ROWS[name].dataset, f"{statistics.mean(found):.1f}", spread, str(len(found))]


if __name__ == "__main__":
    sys.exit(main())
