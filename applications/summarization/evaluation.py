"""Measuring a summarisation run."""

from pathlib import Path

import numpy as np

from keras_attention.applications.common.errors import UserError
from keras_attention.applications.summarization.documents import (
    Corpus,
    has_split,
    load_corpus,
    read_corpus,
)
from keras_attention.applications.summarization.run import SummarizationRun, load_run
from keras_attention.applications.summarization.summarizer import Summarizer, Summary
from keras_attention.metrics import repeated_ngrams, rouge


def evaluation_corpus(
    run: SummarizationRun, split: str | None = None, path: str | None = None
) -> Corpus:
    """Return the documents to measure on: the file given, or one of the run's own sets."""
    data = run.config.data
    if path:
        if split:
            raise UserError("give --split or --input, not both.")
        return read_corpus(path, data.on_empty)
    return load_corpus(data, split or ("test" if has_split(data, "test") else "dev"))


def evaluate(
    run: SummarizationRun | Path | str,
    corpus: Corpus | None = None,
    lead: int = 1,
    **options,
) -> dict:
    """Return ROUGE, and how often summaries repeat, copy and do not know, as JSON types.

    Args:
        run: a run folder, or a run that is loaded.
        corpus: the documents to measure on; None for the run's own test set, or its development
            set where it has none.
        lead: how many first sentences are the summary that it is compared with.
        **options: those of `Summarizer.summarize`.

    Raises:
        UserError: if there is no such run, or its documents cannot be read.
    """
    run = run if isinstance(run, SummarizationRun) else load_run(run)
    corpus = evaluation_corpus(run) if corpus is None else corpus
    documents = [each.sentences for each in corpus.documents]
    results = Summarizer(run).summarize(documents, attention=False, **options)
    return measure(run, corpus, results, lead)


def measure(run: SummarizationRun, corpus: Corpus, results: list[Summary], lead: int = 1) -> dict:
    """Return what `evaluate` does, of the summaries that are there already."""
    wanted = [_as_written(run, each.summaries) for each in corpus.documents]
    texts = [result.text for result in results]
    leads = [_as_written(run, [" ".join(d.sentences[:lead])])[0] for d in corpus.documents]
    pairs = list(zip(texts, wanted, strict=True))
    return {
        "data": corpus.name,
        "documents": len(corpus),
        **rouge(texts, wanted),
        "exact_match": 100 * sum(text in targets for text, targets in pairs) / len(pairs),
        "repeated_trigrams": repeated_ngrams([result.tokens for result in results]),
        "repeated_trigrams_of_references": repeated_ngrams(
            [run.encoder.tokenizer.tokens(targets[0]) for targets in wanted]
        ),
        "copied_unknown": _percentage([result.copied for result in results]),
        "in_source": _percentage([_in_source(result) for result in results]),
        "unknown": _percentage([result.unknown for result in results]),
        "lead": lead,
        "lead_rouge": rouge(leads, wanted),
    }


def _as_written(run: SummarizationRun, texts: list[str]) -> list[str]:
    """Return texts as the tokenizer writes them: in lower case where it makes them so."""
    tokenizer = run.encoder.tokenizer
    return [tokenizer.join(tokenizer.tokens(text)) for text in texts]


def _in_source(result) -> np.ndarray:
    words = {word for sentence in result.source for word in sentence}
    return np.array([word in words for word in result.tokens], bool)


def _percentage(flags: list[np.ndarray]) -> float:
    joined = np.concatenate([np.zeros(0), *flags])
    return 100 * float(joined.mean()) if joined.size else 0.0


def table(report: dict) -> str:
    """Write a report of `evaluate` for people."""
    lead, other = f"lead-{report['lead']}", report["lead_rouge"]
    lines = [f"{report['documents']:,} documents of {report['data']}", ""]
    lines.append(f"{'':<22} {'model':>8} {lead:>8}")
    for name, key in (("ROUGE-1", "rouge1"), ("ROUGE-2", "rouge2"), ("ROUGE-L", "rougeL")):
        lines.append(f"{name:<22} {report[key]:8.2f} {other[key]:8.2f}")
    for name, key in (
        ("exact match %", "exact_match"),
        ("repeated trigrams %", "repeated_trigrams"),
        ("  in the references %", "repeated_trigrams_of_references"),
        ("words of the source %", "in_source"),
        ("copied unknown words %", "copied_unknown"),
        ("unknown words %", "unknown"),
    ):
        lines.append(f"{name:<22} {report[key]:8.2f}")
    return "\n".join(lines)
