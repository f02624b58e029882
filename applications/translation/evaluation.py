"""Measuring a translation run."""

import dataclasses
from pathlib import Path

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.translation.corpus import ParallelCorpus
from keras_attention.applications.translation.data import has_split, load_corpus
from keras_attention.applications.translation.run import TranslationRun, load_run
from keras_attention.applications.translation.translator import Translator
from keras_attention.applications.translation.words import align_words, words_of_line
from keras_attention.metrics import (
    alignment_error_rate,
    bleu,
    bleu_by_length,
    chrf,
    read_alignments,
)


def evaluation_corpus(
    run: TranslationRun,
    split: str | None = None,
    source: str | None = None,
    target: str | None = None,
    tsv: str | None = None,
) -> ParallelCorpus:
    """Return the sentences to measure on: the files given, or one of the run's own sets."""
    data = run.config.data
    if source or target or tsv:
        if split:
            raise UserError("give --split or files, not both.")
        if tsv and (source or target):
            raise UserError("give --source and --target, or --tsv, not both.")
        if not tsv and not (source and target):
            raise UserError("--source and --target go together: give both, or --tsv.")
        files = {"test_source": source, "test_target": target, "test_tsv": tsv}
        return load_corpus(dataclasses.replace(data, dataset=None, folder=None, **files), "test")
    split = split or ("test" if has_split(data, "test") else "dev")
    return load_corpus(data, split)


def evaluate(
    run: TranslationRun | Path | str,
    corpus: ParallelCorpus | None = None,
    beam_size: int | None = None,
) -> dict:
    """Return BLEU, chrF, perplexity, exact matches and BLEU by source length, as JSON types.

    Every sentence is measured, however long: `data.max_length` is for training.

    Args:
        run: a run folder, or a run that is loaded.
        corpus: the sentences to measure on; None for the run's own test set, or its development
            set where it has none.
        beam_size: hypotheses kept at each step; None for the run's own.

    Raises:
        UserError: if there is no such run, or its sentences cannot be read.
    """
    run = run if isinstance(run, TranslationRun) else load_run(run)
    corpus = evaluation_corpus(run) if corpus is None else corpus
    translator = Translator(run)
    results = translator.translate(corpus.source, beam_size=beam_size)
    texts = [result.text for result in results]
    score, characters = bleu(texts, corpus.target), chrf(texts, corpus.target)
    same = sum(text == wanted for text, wanted in zip(texts, corpus.target, strict=True))
    return {
        "data": corpus.report.name,
        "sentences": len(corpus),
        "beam_size": beam_size or run.config.decoding.beam_size,
        "bleu": score.value,
        "bleu_signature": score.signature,
        "chrf": characters.value,
        "chrf_signature": characters.signature,
        "perplexity": translator.perplexity(corpus.source, corpus.target),
        "exact_match": 100 * same / len(corpus),
        "bleu_by_source_words": [
            {
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "sentences": bucket.sentences,
                "bleu": bucket.score and bucket.score.value,
            }
            for bucket in bleu_by_length(corpus.source, texts, corpus.target)
        ],
    }


def alignment_errors(
    run: TranslationRun, corpus: ParallelCorpus, gold: str, one_indexed: bool
) -> dict:
    """Return the alignment error rate of the attention over given translations.

    The model reads the source and is made to write the target; each target word is linked to the
    source word with the highest sum of attention weights (one link a word). Words are what spaces
    separate in the files, as in gold alignments.
    """
    if not run.model.has_attention:
        raise UserError(
            f"architecture {run.config.model.architecture} has no attention to measure with --gold."
        )
    references = read_alignments(gold, one_indexed=one_indexed)
    if len(references) != len(corpus):
        raise UserError(f"{gold} has {len(references)} lines for {len(corpus)} sentence pairs.")
    links = [
        align_words(
            result.alignment,
            words_of_line(run.source_tokenizer, source),
            words_of_line(run.target_tokenizer, target),
        )
        for result, source, target in zip(
            Translator(run).align(corpus.source, corpus.target),
            corpus.source,
            corpus.target,
            strict=True,
        )
    ]
    rate = alignment_error_rate(links, references)
    return {
        "aer": 100 * rate.value,
        "precision": 100 * rate.precision,
        "recall": 100 * rate.recall,
        "sentences": rate.sentences,
    }


def table(report: dict) -> str:
    """Write a report of `evaluate` for people."""
    lines = [f"{report['sentences']:,} sentence pairs of {report['data']}", ""]
    for name, key in (
        ("BLEU", "bleu"),
        ("chrF", "chrf"),
        ("perplexity", "perplexity"),
        ("exact match %", "exact_match"),
    ):
        lines.append(f"{name:<14} {report[key]:8.2f}")
    if alignment := report.get("alignment"):
        lines.append(
            f"{'AER %':<14} {alignment['aer']:8.2f}  (precision {alignment['precision']:.2f}, "
            f"recall {alignment['recall']:.2f})"
        )
    lines += ["", f"{'source words':<14} {'sentences':>9} {'BLEU':>7}"]
    for bucket in report["bleu_by_source_words"]:
        if bucket["sentences"]:
            last = f"-{bucket['longest']}" if bucket["longest"] else " or more"
            words = f"{bucket['shortest']}{last}"
            lines.append(f"{words:<14} {bucket['sentences']:>9,} {bucket['bleu']:>7.2f}")
    lines += ["", f"beam size {report['beam_size']}; {report['bleu_signature']}"]
    return "\n".join(lines)
