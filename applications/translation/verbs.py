"""The verbs of the command for translation; each gets the task and the parsed options."""

import dataclasses
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keras_attention.metrics import alignment_error_rate, read_alignments

from ..base.verbs import (
    STANDARD_INPUT,
    LongTexts,
    asks_for_map,
    asks_for_page,
    chunks_of_file,
    draw_map,
    own_split,
    placed_chunks_of_lines,
    results_of,
    search_of,
    show_or_draw,
    write_lines,
    write_page,
)
from ..data.corpus import Corpus
from ..data.lengths import TooLong
from ..data.lines import Lines, in_chunks
from ..errors import UserError, say
from ..store.bad_lines import named
from ..store.files import decoded, lines_of
from .config import DataConfig
from .data import load_corpus
from .documents import last_tag
from .preprocessor import MOST_TOKENS, encode_checked
from .results import Translation, align_words, blind_bleu, pharaoh, table, words_of_line
from .shortlist import Shortlist
from .task import Translator

BATCHES_IN_A_CHUNK = 16
LIMIT = f"{MOST_TOKENS:,} tokens"


def evaluate(task: Translator, options: Namespace) -> None:
    """Measure translations of a test set, or of files."""
    _choose_attention(task, options)
    corpus = evaluation_corpus(options)
    report = {"data": corpus.name}
    if options.gold:  # first, as a wrong file should be refused before minutes of search
        report["alignment"] = alignment_errors(
            task, corpus, options.gold, one_indexed=options.gold_start == 1
        )
    search, tokenize = search_of(options, task.search), options.tokenize or task.bleu_tokenizer
    references = references_of(corpus, options)
    given = {**means_of(task, options), "tokenize": tokenize}
    given["on_too_long"] = _on_too_long(options)
    with _naming_lines(corpus):
        report |= task.evaluate_text(corpus["source"], references, search, **given)
    if reason := blind_bleu(references, tokenize):
        say(f"note: BLEU cannot tell right translations from wrong ones here: {reason}.")
    print(json.dumps(report, indent=2) if options.json else table(report))


def predict(task: Translator, options: Namespace) -> None:
    """Translate each line of the input; one that is empty, or skipped, gives an empty line.

    With `--n-best`, lines are `number ||| text ||| score`, the number of the line of input
    counted from 0; `--alignments` adds ` ||| 0-0 1-2`. With `--json`, they are objects.

    With `--documents`, the input is a text with paragraphs, and so is the output.
    """
    _choose_attention(task, options)
    if options.alignments and not task.backbone.has_attention:
        raise UserError(f"{options.run} has a model without attention: it gives no --alignments.")
    search = search_of(options, task.search)
    if options.documents:
        parts, end = _documents(task, search, options), "\n" if options.json else ""
        return write_lines(options.output, parts, "the input is empty: expected a text.", end)
    lines = _translated(task, search, options)
    write_lines(options.output, lines, "the input is empty: expected one sentence a line.")


def score(task: Translator, options: Namespace) -> None:
    """Write the log-probability of each translation, one a line; an empty line for one skipped."""
    corpus, size = evaluation_corpus(options), BATCHES_IN_A_CHUNK * task.search.batch_size
    on_too_long, long = _on_too_long(options), LongTexts(LIMIT)

    def work(pairs):
        return task.score(*zip(*pairs, strict=True), on_too_long=on_too_long)

    def check(pairs):
        task.refuse_long(*zip(*pairs, strict=True))

    def lines():
        pairs = zip(corpus["source"], corpus["target"], strict=True)
        placed = zip(corpus.places, pairs, strict=True)
        for place, result in results_of(in_chunks(placed, size), work, check):
            long.note(place, result)
            yield "" if result is None else f"{result.log_probability:.6f}"

    write_lines(options.output, lines(), "there is nothing to score.")
    long.say()


def shortlist(task: Translator, options: Namespace) -> None:
    """Learn which target words go with which source words, from the run's own training pairs."""
    if not (options.source or options.target or options.input):
        options.split = "train"
    corpus, given = evaluation_corpus(options), {}
    if options.candidates is not None:
        given["candidates"] = options.candidates
    Shortlist.learn(task, corpus["source"], corpus["target"], **given).save(options.output)
    say(f"wrote {options.output}")


def visualize(task: Translator, options: Namespace) -> None:
    """Draw the alignment of a sentence and its translation."""
    if asks_for_page(options):
        return write_page(task.explain(options.input, target=options.target), options)
    if asks_for_map(options):
        found = task.explain(options.input, target=options.target)
        return draw_map(found, options, 0, getattr(task.backbone, "attention_layer", -1))
    _choose_attention(task, options)
    result = task.draw(options.input, target=options.target)
    print(result.text)
    show_or_draw(result, options.output)


def alignment_errors(task: Translator, corpus: Corpus, gold: str, one_indexed: bool) -> dict:
    """Return the alignment error rate of the attention over given translations.

    The network reads the source and is made to write the target; each target word is linked to the
    source word with the highest sum of attention weights (one link a word). Spaces in the files
    separate words, as in gold alignments.
    """
    if not task.backbone.has_attention:
        name = type(task.backbone).__name__
        raise UserError(f"architecture {name} has no attention to measure with --gold.")
    references = read_alignments(gold, one_indexed=one_indexed)
    if len(references) != len(corpus):
        raise UserError(f"{gold} has {len(references)} lines for {len(corpus)} sentence pairs.")
    read, write = task.preprocessor.source_tokenizer, task.preprocessor.target_tokenizer
    links = [
        align_words(each.alignment, words_of_line(read, source), words_of_line(write, each.text))
        for source, each in zip(
            corpus["source"], task.score(corpus["source"], corpus["target"]), strict=True
        )
    ]
    rate = alignment_error_rate(links, references)
    shares = {"aer": rate.value, "precision": rate.precision, "recall": rate.recall}
    return {name: 100 * share for name, share in shares.items()} | {"sentences": rate.sentences}


def evaluation_corpus(options: Namespace) -> Corpus:
    """Return the sentences to measure on: the files given, or one of the run's own sets."""
    target = options.target[0] if isinstance(options.target, list) else options.target
    pair, table = (options.source, target), options.input
    given = table or next(filter(None, pair), None)
    if split := own_split(options, "--source and --target, or --input", given):
        return load_corpus(options.config.data, split)
    if table and any(pair):
        raise UserError("give --source and --target, or --input, not both.")
    if not table and not all(pair):
        raise UserError("--source and --target go together: give both, or --input.")
    files = dict(zip(("test_source", "test_target", "test"), (*pair, table), strict=True))
    data = options.config.data if options.config else DataConfig()
    return load_corpus(dataclasses.replace(data, dataset=None, folder=None, **files), "test")


def references_of(corpus: Corpus, options: Namespace) -> list[list[str]]:
    """Return the references of each sentence: its translation, and those of more `--target` files.

    A line that is empty there is no reference.
    """
    references = [[text] for text in corpus["target"]]
    for path in (options.target or [])[1:]:
        lines = Lines(lines_of(path))
        first = Lines(lines_of(options.target[0]))
        if len(lines) != len(first):
            raise UserError(
                f"Parallel files must have equally many lines: {options.target[0]} has "
                f"{len(first)}, {path} has {len(lines)}."
            )
        for texts, line in zip(references, corpus.places.numbers, strict=True):
            texts += [lines[line - 1]] if lines[line - 1].strip() else []
    return references


def means_of(task: Translator, options: Namespace) -> dict[str, Any]:
    """Return the engine, its compute type and the shortlist, by the flags of a command."""
    if options.compute_type and not options.engine:
        raise UserError("--compute-type goes with --engine only.")
    path, size, shortlist = options.shortlist, options.shortlist_size, None
    if size is not None and path is None:
        raise UserError("--shortlist-size goes with --shortlist only.")
    if path is not None and options.own_shortlist:
        raise UserError("give --shortlist or --own-shortlist, not both.")
    has_shortlist = path is not None or options.own_shortlist
    if has_shortlist and options.engine == "ctranslate2":
        raise UserError("--engine ctranslate2 takes no shortlist: leave one of them out.")
    if path is not None:
        given = {} if size is None else {"size": size}
        shortlist = Shortlist.load(path, task.require_preprocessor(), **given)
    elif options.own_shortlist:
        if task.shortlist is None:
            raise UserError("--own-shortlist needs a model that came with a shortlist.")
        shortlist = task.shortlist
    return {"engine": options.engine, "compute_type": options.compute_type, "shortlist": shortlist}


def _translated(task: Translator, search, options: Namespace) -> Iterator[str]:
    long = LongTexts(LIMIT)
    given = {**means_of(task, options), "return_alignments": bool(options.alignments)}
    given |= {"on_too_long": options.on_too_long or "error", "prefix": options.prefix}

    def work(sentences):
        return task.translate(sentences, search, **given)

    def check(sentences):
        encode_checked(task.preprocessor.source_tokenizer, sentences, "texts")

    chunks = placed_chunks_of_lines(options.input, BATCHES_IN_A_CHUNK * search.batch_size)
    found = results_of(chunks, work, check if options.input else None)
    for number, (place, result) in enumerate(found):
        long.note(place, result)
        for ranked in [None] if result is None else result.ranked:
            if options.json:
                yield json.dumps(_as_json(task, number, ranked, options), ensure_ascii=False)
                continue
            parts = ["" if ranked is None else ranked.text]
            if options.n_best:
                parts = [str(number), *parts, f"{0 if ranked is None else ranked.score:.6f}"]
            if options.alignments:
                parts.append("" if ranked is None else pharaoh(task.links(ranked)))
            yield " ||| ".join(parts)
    long.say()


def _documents(task: Translator, search, options: Namespace) -> Iterator[str]:
    """Yield the translation of a document in parts, each of some lines; or a line for a sentence.

    The document is never held as a whole.
    """
    wrong = {"--n-best": options.n_best, "--prefix": options.prefix}
    wrong["--on-too-long"] = options.on_too_long
    if found := [flag for flag, value in wrong.items() if value is not None]:
        raise UserError(f"{found[0]} is for single sentences: leave it or --documents out.")
    if options.alignments and not options.json:
        raise UserError("--alignments of --documents are of its sentences: add --json.")
    given = {**means_of(task, options), "return_alignments": bool(options.alignments)}
    tags, tag, number = set(task.preprocessor.source_tokenizer.vocabulary), "", 0
    for lines in _chunks_with_ends(options.input, BATCHES_IN_A_CHUNK * search.batch_size):
        text = "".join(lines)
        part = task.translate_document(f"{tag}{text}", search, **given)
        tag = last_tag(text, tags) or tag  # which holds on
        if not options.json:
            yield part.text
        else:
            for (start, _), source, sentence in zip(
                part.source_spans, part.sources, part.sentences, strict=True
            ):
                line = number + part.source.count("\n", 0, start)
                found = {"line": line, "source": source, **_as_json(task, line, sentence, options)}
                yield json.dumps(found, ensure_ascii=False)
        number += len(lines)


def _chunks_with_ends(path: str | None, size: int) -> Iterator[list[str]]:
    """Return the lines of a file, or of standard input, with their ends, in chunks."""
    if path is not None:
        return chunks_of_file(lambda: lines_of(path, keep_ends=True), size)
    lines = decoded(sys.stdin.buffer, STANDARD_INPUT, is_file=False, keep_ends=True)
    return in_chunks(lines, size)


def _on_too_long(options: Namespace) -> str:
    """Return what to do with long sentences of a set: as asked for, or as the training did."""
    own = options.config.data.on_too_long if options.config else "error"
    return options.on_too_long or own


@contextmanager
def _naming_lines(corpus: Corpus) -> Iterator[None]:
    """Name file and line of sentences that are too long."""
    try:
        yield
    except TooLong as error:
        column = error.name.removesuffix("s")
        raise named(error.lines(lambda row: corpus.place(row, column))) from None


def _as_json(
    task: Translator, number: int, result: Translation | None, options: Namespace
) -> dict[str, Any]:
    """Return a translation of a line as JSON types; None is that of a line that was skipped."""
    if result is None:
        return {"line": number, "text": None, "skipped": f"longer than {LIMIT}"}
    found = {
        "line": number,
        "text": result.text,
        "score": result.score,
        "log_probability": result.log_probability,
        "tokens": result.tokens,
        "token_log_probabilities": result.token_log_probabilities,
    }
    if options.alignments:
        found["alignments"] = pharaoh(task.links(result))
    return found


def _choose_attention(task: Translator, options: Namespace) -> None:
    """Show the attention of the decoder layer and head that the command asks for."""
    layer, head = options.attention_layer, options.attention_head
    if layer is None and head is None:
        return
    if layer is None:
        layer = getattr(task.backbone, "attention_layer", None)
    task.show_attention(layer, head)
