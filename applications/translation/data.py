"""From the `data` section, or sentences at hand, to a corpus of `source` and `target`, and ids."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attention.paths import input_path

from ..base.preprocessor import as_texts, pairs_of
from ..data.corpus import Corpus, Places, Report, corpus_at_hand, rows_of_parts
from ..data.encoded import Encoded, encoded_of
from ..data.lines import Lines, in_chunks, taken
from ..data.made import dates
from ..data.readers import rows_of
from ..errors import UserError, check_choice
from ..schema.keys import SPLITS
from ..store import downloads
from ..store.files import lines_of
from ..text import BucketedBatches, PackedIds, Tokenizer
from ..text.packed import read_and_written
from .config import DataConfig
from .preprocessor import TranslationPreprocessor

SIDES = ("source", "target")


def load_corpus(data: DataConfig, split: str) -> Corpus:
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
    if not data.has_split(split):
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
    corpus = Corpus(
        {"source": source, "target": target},
        Report(", ".join(dict.fromkeys(names)), len(source), "sentence pairs"),
        Places(dict(zip(SIDES, names, strict=True)), np.arange(len(source)) + 1),
        handling={"empty": data.on_empty, "too long": data.on_too_long},
        max_length=data.max_length,
        keys="data.",
    )
    pairs = zip(map(str.strip, source), map(str.strip, target), strict=True)
    empty = (row for row, pair in enumerate(pairs) if not all(pair))
    left_out = corpus.left_out(empty, lambda row: _refuse_empty(corpus, row, source[row].strip()))
    if len(left_out) == len(corpus):
        raise UserError(f"{corpus.name}: every line is empty.")
    corpus = corpus.without(left_out)
    if not held_out or split == "test":
        return corpus
    count = len(rows_of_parts(len(corpus), data.dev_fraction, "sentence pairs")[1])
    order = np.random.default_rng(len(corpus)).permutation(len(corpus))
    return corpus.take(np.sort(order[:count] if split == "dev" else order[count:]))


def _refuse_empty(corpus: Corpus, row: int, source: Sequence[Any]) -> str:
    """Return the reason to leave a pair out that is empty on a side; else raise a `BadLine`."""
    advice = "correct the file, or set data.on_empty to skip" if corpus.keys else ""
    problem = "empty, where a sentence is expected"
    return corpus.refuse(row, "empty", problem, advice, SIDES[bool(len(source))])


PAIRS = ("sources and targets", "strings", "A sentence", "pair of sentences")


def in_memory(x: Any, y: Any = None, sample_weight: Any = None) -> Corpus:
    """Return the corpus of the arguments of `fit`; refuse sentences without words."""
    source, target, weights = pairs_of(x, y, sample_weight, (as_texts, as_texts), PAIRS)
    columns = {"source": source, "target": target}
    names = dict(zip(SIDES, "xy", strict=True))
    return corpus_at_hand(columns, weights, "the pairs given", "sentence pairs", names)


def encode(corpus: Corpus, preprocessor: TranslationPreprocessor) -> Encoded:
    """Return a corpus as ids, without start and end; texts that cannot be used as it says."""
    source, target = (
        PackedIds(_ids(tokenizer, corpus[side]))
        for side, tokenizer in zip(SIDES, preprocessor.tokenizers, strict=True)
    )
    limit, on_too_long = corpus.max_length, corpus.handling.get("too long", "truncate")
    empty = np.minimum(source.lengths, target.lengths) == 0
    longest = np.maximum(source.lengths, target.lengths)
    long = ~empty & (longest > (limit or np.inf))

    def reason(row: int) -> str:
        if empty[row]:
            return _refuse_empty(corpus, row, source[row])
        problem = f"{longest[row]} tokens, more than {corpus.keys}max_length {limit}"
        advice = "raise it, or set data.on_too_long to skip or truncate"
        side = SIDES[int(source.lengths[row] != longest[row])]
        return corpus.refuse(row, "too long", problem, advice, side)

    wrong = empty if on_too_long == "truncate" else empty | long
    ids = {"source": source.cut(limit), "target": target.cut(limit)}
    return encoded_of(corpus, ids, {}, wrong, reason, long)


def in_variants(corpus: Corpus, encoded: Encoded, preprocessor: TranslationPreprocessor) -> Encoded:
    """Return an encoded corpus with each pair cut into pieces in `preprocessor.variants` ways.

    Where random pieces are more than `data.max_length`, the likeliest ones take their place.
    """
    count, limit = preprocessor.variants, corpus.max_length
    if count == 1:
        return encoded

    def sampled(number: int, side: str, tokenizer: Any) -> Iterator[list[int]]:
        texts, likeliest = taken(corpus[side], encoded.rows), encoded[side]
        for variant in range(count):
            row = 0
            for part, lines in enumerate(in_chunks(texts, LINES_AT_ONCE)):
                seed = np.random.SeedSequence([variant, number, part]).generate_state(1)[0]
                for ids in tokenizer.sample(lines, preprocessor.sampling, int(seed)):
                    yield likeliest[row] if limit and len(ids) > limit else ids
                    row += 1

    sides = zip(SIDES, preprocessor.tokenizers, strict=True)
    return dataclasses.replace(
        encoded,
        ids={side: PackedIds(sampled(i, side, each)) for i, (side, each) in enumerate(sides)},
        weights=None if encoded.weights is None else np.tile(encoded.weights, count),
        rows=np.tile(encoded.rows, count),
        variants=count,
    )


LINES_AT_ONCE = 4096


def _ids(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of each line; those of a few lines are lists at a time."""
    for some in in_chunks(lines, LINES_AT_ONCE):
        yield from tokenizer.encode(some)


def make_batches(
    encoded: Encoded, batch_size: int | None = None, **options: Any
) -> BucketedBatches:
    """Return batches `({"source", "target"}, labels)` of a few fixed shapes, padded with 0.

    `target` (B, T) are start and the target's ids, `labels` (B, T) the target's and end; weights
    come where the corpus has them. More options are those of `BucketedBatches`.
    """
    weights = [] if encoded.weights is None else [encoded.weights]

    def assemble(source, inputs, *labels_and_weights):
        return {"source": source, "target": inputs}, *labels_and_weights

    size = None if options.get("tokens_per_batch") else batch_size
    options |= {"values": weights, "assemble": assemble, "variants": encoded.variants}
    columns = encoded["source"], *read_and_written(encoded["target"])
    return BucketedBatches(columns, size, **options)


def _read(data: DataConfig, split: str) -> tuple[Sequence[str], Sequence[str], tuple[str, str]]:
    """Return the lines of the two sides as they are, and the names of the files."""
    if table := getattr(data, split):
        advice = "cut -f1,2 takes the first two of a wider file"
        rows = rows_of(table, kind=".tsv", header=SIDES, advice=advice)
        source, target = Lines.columns((row.values.values() for row in rows), 2)
        return source, target, (str(table), str(table))
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
