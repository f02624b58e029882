"""From the `data` section of a configuration to sentence pairs, ids and batches."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from keras_attention.paths import input_path

from ..base.preprocessor import Splits, as_texts, pairs_of, rows_of_parts
from ..data.lines import Lines, in_chunks, taken
from ..errors import Problems, UserError, check_choice, counted
from ..store import downloads
from ..store.bad_lines import BadLine, checked
from ..store.files import lines_of
from ..text import END_ID, START_ID, BucketedBatches, PackedIds, Tokenizer
from . import dates
from .config import SPLITS, DataConfig
from .preprocessor import TranslationPreprocessor


@dataclasses.dataclass(frozen=True)
class Report:
    """How many pairs a corpus has, and how many were left out or cut short."""

    name: str
    pairs: int
    empty: int = 0
    too_long: int = 0
    truncated: int = 0

    def __str__(self) -> str:
        counts = {
            "left out as empty": self.empty,
            "left out as too long": self.too_long,
            "of them cut short": self.truncated,
        }
        return counted(f"{self.name}: {self.pairs:,} sentence pairs", counts)


@dataclasses.dataclass(frozen=True)
class ParallelCorpus(Splits):
    """Sentences and their translations, as texts or as ids, and where they come from.

    Those of files are `Lines` and `PackedIds`, which are small. `lines` holds the line of each pair
    there, from 1. `data` says how to treat sentences that are too long or empty; None keeps all
    that have words.
    """

    source: Sequence[Any]
    target: Sequence[Any]
    names: tuple[str, str]
    lines: Sequence[int]
    report: Report
    data: DataConfig | None = None
    weights: list[float] | None = None
    columns, noun = ("source", "target", "lines", "weights"), "pairs"
    variants: ClassVar[int] = 1

    def part(self, rows: Sequence[int], **counts: int) -> "ParallelCorpus":
        """Return the corpus of some of the pairs, with other counts in its report."""
        report = dataclasses.replace(self.report, pairs=len(rows), **counts)
        return super().part(rows, report=report)


@dataclasses.dataclass(frozen=True)
class VariedCorpus(ParallelCorpus):
    """Ids of each pair in several ways: of all pairs in the first, then of all in the second."""

    variants: int = 1


def has_split(data: DataConfig, split: str) -> bool:
    """Return whether the configuration names data for `split`."""
    if split == "dev" and data.dev_fraction and has_split(data, "train"):
        return True
    return bool(data.dataset or getattr(data, f"{split}_source") or getattr(data, split))


def check_data(config: Any) -> None:
    """Refuse a configuration that names no training data or no development set."""
    problems = Problems()
    if not has_split(config.data, "train"):
        problems.found.append(
            UserError(
                "name the training data: --data.train_source F --data.train_target F, "
                "--data.train F, or --data.dataset dates."
            )
        )
    if not has_split(config.data, "dev"):
        problems.found.append(
            UserError(
                "name a development set, which training is judged by: --data.dev_source F "
                "--data.dev_target F, --data.dev F, or a part of the training data, "
                "--data.dev_fraction 0.05."
            )
        )
    problems.check()


def load_corpus(data: DataConfig, split: str) -> ParallelCorpus:
    """Return the sentence pairs of a split.

    Files that the configuration names for the split go before those of a known data set.

    Args:
        data: the `data` section.
        split: `"train"`, `"dev"` or `"test"`.

    Raises:
        UserError: where there is no such split, or its files are missing, empty, of unequal
            length, not UTF-8, or hold an empty line while `on_empty` is `"error"`.
    """
    check_choice("`split`", split, SPLITS)
    if not has_split(data, split):
        raise UserError(
            f"There is no {split} data: give data.{split}_source and data.{split}_target, or "
            f"data.{split}."
        )
    held_out = data.dev_fraction and not (data.dev_source or data.dev or data.dataset)
    source, target, names = _read(data, "train" if held_out and split == "dev" else split)
    if len(source) != len(target):
        raise UserError(
            f"Parallel files must have equally many lines: {names[0]} has {len(source)}, "
            f"{names[1]} has {len(target)}."
        )
    report, lines = Report(", ".join(dict.fromkeys(names)), len(source)), np.arange(len(source)) + 1
    corpus = ParallelCorpus(source, target, names, lines, report, data)
    pairs = zip(map(str.strip, source), map(str.strip, target), strict=True)
    full = checked(enumerate(pairs, 1), lambda row: not _is_empty(row[1], corpus, row[0]))
    rows = np.flatnonzero(np.fromiter(full, bool, len(source)))
    if not len(rows):
        raise UserError(f"{report.name}: every line is empty.")
    corpus = corpus.part(rows, empty=len(source) - len(rows))
    if not held_out or split == "test":
        return corpus
    count = len(rows_of_parts(len(corpus), data.dev_fraction, "sentence pairs")[1])
    order = np.random.default_rng(len(corpus)).permutation(len(corpus))
    return corpus.part(np.sort(order[:count] if split == "dev" else order[count:]))


PAIRS = ("sources and targets", "strings", "A sentence", "pair of sentences")


def in_memory(x: Any, y: Any = None, sample_weight: Any = None) -> ParallelCorpus:
    """Return the corpus of the arguments of `fit`; refuse sentences without words."""
    sources, targets, weights = pairs_of(x, y, sample_weight, (as_texts, as_texts), PAIRS)
    report, lines = Report("the pairs given", len(sources)), range(1, len(sources) + 1)
    return ParallelCorpus(sources, targets, ("x", "y"), lines, report, weights=weights)


def encode_corpus(
    corpus: ParallelCorpus, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> ParallelCorpus:
    """Return a corpus as ids; pairs that are too long or have no tokens as its `data` says."""
    source = PackedIds(_ids(source_tokenizer, corpus.source))
    target = PackedIds(_ids(target_tokenizer, corpus.target))
    data = corpus.data
    limit, on_too_long = (data.max_length, data.on_too_long) if data else (None, None)
    empty = np.minimum(source.lengths, target.lengths) == 0
    longest = np.maximum(source.lengths, target.lengths)
    long = ~empty & (longest > (limit or np.inf))

    def check(row):
        pair, line = (source[row], target[row]), corpus.lines[row]
        if not _is_empty(pair, corpus, line):
            raise BadLine(
                f"{corpus.names[bool(len(pair[0]) != longest[row])]}, line {line}",
                f"{longest[row]} tokens, more than data.max_length {limit}",
                "raise it, or set data.on_too_long to skip or truncate",
            )

    for _ in checked(np.flatnonzero(empty | long if on_too_long == "error" else empty), check):
        pass
    skips = on_too_long == "skip"
    rows = np.flatnonzero(~(empty | long) if skips else ~empty)
    counts = {"empty": int(empty.sum()) + corpus.report.empty}
    counts |= {"too_long": int(long.sum()) * skips, "truncated": int(long.sum()) * (not skips)}
    if not len(rows):
        raise UserError(
            f"{corpus.report.name}: no sentence pair is left ({counts['too_long']} longer than "
            f"data.max_length {limit}, {counts['empty']} empty)."
        )
    source, target = source.cut(limit), target.cut(limit)
    return dataclasses.replace(corpus, source=source, target=target).part(rows, **counts)


def in_variants(
    corpus: ParallelCorpus, encoded: ParallelCorpus, preprocessor: TranslationPreprocessor
) -> ParallelCorpus:
    """Return an encoded corpus with each pair cut into pieces in `preprocessor.variants` ways.

    Where random pieces are more than `data.max_length`, the likeliest ones take their place.
    """
    if preprocessor.variants == 1:
        return encoded
    count, limit = preprocessor.variants, corpus.data.max_length if corpus.data else None
    rows = np.searchsorted(corpus.lines, encoded.lines)  # those that were not left out

    def sampled(side, column, likeliest, tokenizer):
        for variant in range(count):
            row = 0
            for part, lines in enumerate(in_chunks(taken(column, rows), LINES_AT_ONCE)):
                seed = np.random.SeedSequence([variant, side, part]).generate_state(1)[0]
                for ids in tokenizer.sample(lines, preprocessor.sampling, int(seed)):
                    yield likeliest[row] if limit and len(ids) > limit else ids
                    row += 1

    columns = (corpus.source, encoded.source), (corpus.target, encoded.target)
    sides = zip(columns, preprocessor.tokenizers, strict=True)
    ids = [PackedIds(sampled(side, *pair, each)) for side, (pair, each) in enumerate(sides)]
    changes = {"lines": np.tile(encoded.lines, count), "variants": count}
    changes |= {"weights": encoded.weights and encoded.weights * count}
    return VariedCorpus(**vars(encoded) | {"source": ids[0], "target": ids[1], **changes})


LINES_AT_ONCE = 4096


def _ids(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of each line; those of a few lines are lists at a time."""
    for some in in_chunks(lines, LINES_AT_ONCE):
        yield from tokenizer.encode(some)


def make_batches(
    corpus: ParallelCorpus, batch_size: int | None = None, **options: Any
) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes, padded with 0.

    `target` (B, T) are start and the target's ids, `labels` (B, T) the target's and end; weights
    come where the corpus has them. More options are those of `BucketedBatches`.
    """
    source, target = (
        side if isinstance(side, PackedIds) else PackedIds(side)
        for side in (corpus.source, corpus.target)
    )
    columns = source, target.between(before=START_ID), target.between(after=END_ID)
    weights = [] if corpus.weights is None else [np.array(corpus.weights, "float32")]

    def assemble(source, inputs, *labels_and_weights):
        return {"source": source, "target": inputs}, *labels_and_weights

    size = None if options.get("tokens_per_batch") else batch_size
    options |= {"values": weights, "assemble": assemble, "variants": corpus.variants}
    return BucketedBatches(columns, size, **options)


def _read(data: DataConfig, split: str) -> tuple[Sequence[str], Sequence[str], tuple[str, str]]:
    """Return the lines of the two sides as they are, and the names of the files."""
    table = getattr(data, split)
    if table:
        return *_columns(table), (str(table), str(table))
    files = getattr(data, f"{split}_source"), getattr(data, f"{split}_target")
    if not files[0] and data.dataset == "dates":
        name = f"dates ({split})"
        return *dates.generate(split), (name, name)
    if not files[0]:
        languages = (data.source_language, data.target_language)
        files = tuple(_multi30k(split, code, data.folder) for code in languages)
    source, target = (Lines(lines_of(path)) for path in files)
    return source, target, (str(files[0]), str(files[1]))


# Multi30k, image captions in four languages: the files of the task 1 of
# https://github.com/multi30k/dataset, free for research, which this package fetches and does not
# contain.
MULTI30K = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
MULTI30K_LANGUAGES = ("cs", "de", "en", "fr")
MULTI30K_NAMES = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
MULTI30K_SHA256 = {
    "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
    "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
    "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}


def _multi30k(split: str, language: str, folder: str | None) -> Path:
    """Return the file of a split in a language: out of `folder`, or fetched into the cache."""
    if language not in MULTI30K_LANGUAGES:
        raise UserError(
            f"multi30k has the languages {', '.join(MULTI30K_LANGUAGES)}. Received: {language!r} "
            "(data.source_language and data.target_language)."
        )
    name = f"{MULTI30K_NAMES[split]}.{language}"
    packed = f"{name}.gz"
    if folder is None:
        return downloads.fetch(MULTI30K + packed, MULTI30K_SHA256[packed], subfolder="multi30k")
    found = [
        path for path in (input_path(folder) / packed, input_path(folder) / name) if path.is_file()
    ]
    if not found:
        raise UserError(
            f"data.folder {folder} has no file {packed} or {name}; leave data.folder out to "
            "fetch multi30k."
        )
    return found[0]


def _columns(path: str) -> tuple[Lines, Lines]:
    def columns(numbered):
        number, line = numbered
        row = line.split("\t")
        if len(row) != 2 and row != [""]:
            problem = f"expected source, tab, target. Received: {len(row)} columns"
            advice = "cut -f1,2 takes the first two of a wider file"
            raise BadLine(f"{path}, line {number}", problem, advice)
        return row

    def column(side):
        return Lines(row[side] for row in checked(enumerate(lines_of(path), 1), columns))

    return column(0), column(-1)


def _is_empty(pair, corpus: ParallelCorpus, line: int) -> bool:
    """Return whether a side of a pair is empty; raise where the configuration does not skip it."""
    if all(pair):
        return False
    if corpus.data is None or corpus.data.on_empty == "error":
        raise BadLine(
            f"{corpus.names[bool(pair[0])]}, line {line}",
            "empty, where a sentence is expected",
            "correct the file, or set data.on_empty to skip",
        )
    return True
