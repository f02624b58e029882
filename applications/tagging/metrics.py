"""Spans of tags, and how well they are found: by the rules of `seqeval`."""

import collections
from collections.abc import Iterable, Sequence
from typing import Any

OUTSIDE = "O"
PREFIXES = ("B", "I", "E", "S")
UNTYPED = "_"
"""What `seqeval` calls the type of tags that are a prefix alone."""
FIGURES = {
    "f1": "F1 of spans",
    "precision": "precision",
    "recall": "recall",
    "accuracy": "accuracy of tags",
}
Spans = list[tuple[str, int, int]]


def split(tag: str) -> tuple[str, str]:
    """Return the prefix and the type of a tag as `seqeval` reads it: `("B", "PER")` of `B-PER`."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind or UNTYPED


def joined(prefix: str, kind: str) -> str:
    """Return the tag of a prefix and a type: `"B-PER"`, and `"B"` of spans without types."""
    return prefix if kind == UNTYPED else f"{prefix}-{kind}"


def are_of_spans(tags: Iterable[str]) -> bool:
    """Whether tags mark spans: all are O or have a prefix, and one begins a span or goes on.

    A prefix may stand alone, as B and I do where there is but one type of spans.
    """
    marked = {tag for tag in tags if tag != OUTSIDE}
    return bool(marked) and all(split(tag)[0] in PREFIXES for tag in marked)


def kinds_of(tags: Iterable[str]) -> list[str]:
    """Return the types of the spans that some tags mark, in order."""
    return sorted({split(tag)[1] for tag in tags if tag != OUTSIDE})


def scheme_of(tags: Iterable[str]) -> str:
    """Return `"BIOES"` where tags mark the end of spans or single words, else `"BIO"`."""
    return "BIOES" if any(tag[:1] in ("E", "S") for tag in tags) else "BIO"


def spans_of(tags: Sequence[str]) -> Spans:
    """Return the spans `(type, first word, word after the last)` of the tags of a sentence.

    They are those of `seqeval` and of CoNLL's `conlleval`: a tag of another type, or `I-` after no
    span, begins one too.
    """
    spans: Spans = []
    start, before = 0, (OUTSIDE, "")
    for place, tag in enumerate([*tags, OUTSIDE]):
        after = split(tag)
        if _ends(before, after):
            spans.append((before[1], start, place))
        if _begins(before, after):
            start = place
        before = after
    return spans


def _ends(before: tuple[str, str], after: tuple[str, str]) -> bool:
    if before[0] in "ES":
        return True
    if before[0] not in "BI":
        return False
    return after[0] in ("B", "S", OUTSIDE) or before[1] != after[1]


def _begins(before: tuple[str, str], after: tuple[str, str]) -> bool:
    if after[0] in ("B", "S"):
        return True
    if after[0] not in ("E", "I"):
        return False
    return before[0] in ("E", "S", OUTSIDE) or before[1] != after[1]


def broken(tags: Sequence[str]) -> int:
    """Return how many spans of a sentence begin with `I-` or `E-`, which no scheme allows."""
    return sum(tags[start][:1] in ("I", "E") for _, start, _ in spans_of(tags))


def tags_of(spans: Spans, count: int, scheme: str) -> list[str]:
    """Return the tags of a sentence of `count` words with some spans, in BIO or BIOES."""
    tags = [OUTSIDE] * count
    for kind, start, end in spans:
        tags[start:end] = [joined("I", kind)] * (end - start)
        tags[start] = joined("B", kind)
        if scheme == "BIOES":
            tags[end - 1] = joined("E" if end - start > 1 else "S", kind)
    return tags


def names_of(kinds: Iterable[str], scheme: str) -> list[str]:
    """Return the tags of a scheme for types of spans."""
    letters = "BIES" if scheme == "BIOES" else "BI"
    return [OUTSIDE, *(joined(letter, kind) for kind in sorted(kinds) for letter in letters)]


def measure(
    truth: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    are_spans: bool | None = None,
) -> dict[str, Any]:
    """Return how well tags were found, as JSON types; of spans where tags mark such.

    Figures of all spans are `seqeval`'s micro averages. Tags that were found in another scheme are
    compared in that of the true ones. A figure without anything to divide by is 0.

    Args:
        truth: the true tags of each sentence.
        found: the tags that were found.
        are_spans: whether tags mark spans; None for whether the true ones do.
    """
    if are_spans is None:
        are_spans = are_of_spans(tag for row in truth for tag in row)
    if are_spans:
        scheme = scheme_of(tag for row in truth for tag in row)
        found = [tags_of(spans_of(row), len(row), scheme) for row in found]
    pairs = [pair for rows in zip(truth, found, strict=True) for pair in zip(*rows, strict=True)]
    hits = sum(wanted == got for wanted, got in pairs)
    figures: dict[str, Any] = {"accuracy": hits / max(1, len(pairs)), "words": len(pairs)}
    if not are_spans:
        return figures
    counts = {name: collections.Counter() for name in ("wanted", "got", "right")}
    for rows in zip(truth, found, strict=True):
        wanted, got = (set(spans_of(row)) for row in rows)
        for name, spans in zip(counts, (wanted, got, wanted & got), strict=True):
            counts[name].update(kind for kind, _, _ in spans)
    totals = {name: each.total() for name, each in counts.items()}
    kinds = sorted(counts["wanted"] | counts["got"])
    types = {kind: _ratios(*(counts[name][kind] for name in counts)) for kind in kinds}
    macro = {name: 0.0 for name in ("precision", "recall", "f1")}
    for name in macro:
        macro[name] = sum(each[name] for each in types.values()) / max(1, len(types))
    overall = _ratios(*totals.values())
    return {**overall, "macro_f1": macro["f1"], **figures, "types": types}


def _ratios(wanted: int, got: int, right: int) -> dict[str, Any]:
    precision, recall = right / max(1, got), right / max(1, wanted)
    f1 = 2 * right / max(1, wanted + got)
    return {"precision": precision, "recall": recall, "f1": f1, "spans": wanted}


def signature(are_spans: bool) -> str:
    """Return how the figures are computed, in one line."""
    if not are_spans:
        return "accuracy of tags, all words of all sentences alike"
    return "spans by the default rules of seqeval 1.2.2 (those of conlleval), micro average"
