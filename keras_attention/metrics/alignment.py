"""Word alignments against gold alignments: precision, recall and alignment error rate."""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..paths import input_path

MOST_NAMED = 5
"""How many malformed lines an error names; of more it says how many there are."""
_LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True)
class Alignment:
    """The links of a sentence pair: 0-indexed pairs of a source and a target position.

    Attributes:
        sure: The links that any right alignment must have.
        possible: The links that it may have; the sure ones are always among them.

    Example:

    >>> alignment = Alignment(sure={(0, 0)}, possible={(1, 2)})
    >>> sorted(alignment.possible)
    [(0, 0), (1, 2)]
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", self.sure | frozenset(self.possible))


@dataclass(frozen=True)
class AlignmentErrorRate:
    """Agreement of predicted with gold links, as fractions of 1.

    Attributes:
        precision: Part of the predicted links that are possible; 0 with no predicted link.
        recall: Part of the sure links that are predicted; 0 with no sure link.
        value: The alignment error rate; less is better.
        sentences: How many sentence pairs were compared.

    Example:

    >>> rate = alignment_error_rate([{(0, 0), (1, 1)}], [Alignment(sure={(0, 0)})])
    >>> rate.precision, rate.recall, rate.sentences
    (0.5, 1.0, 1)
    """

    precision: float
    recall: float
    value: float
    sentences: int

    def __str__(self) -> str:
        return (
            f"AER {self.value:.2%} (precision {self.precision:.2%}, recall {self.recall:.2%}, "
            f"{self.sentences} sentence pairs)"
        )


def read_alignments(path: str | os.PathLike, one_indexed: bool = False) -> list[Alignment]:
    """Read alignments, 0-indexed, from a file in Pharaoh form, a line for each sentence pair.

    A line holds links between spaces: `i-j` for a sure one and `ipj` for a possible one, `i` the
    source position and `j` the target position. An empty line is a pair without links.

    Args:
        path: The file's path.
        one_indexed: Whether positions start at 1, as in several gold alignments, and not at 0, as
            most aligners write them. The file does not say: a wrong choice gives bad rates.

    Raises:
        ValueError: Naming file and line, if a link is malformed, or 0 where positions start at 1;
            and if the file is a pipe or a device.
        OSError: If the file cannot be read.

    Example:

    >>> from pathlib import Path
    >>> _ = Path("gold").write_text("1-1 2p3\\n\\n")
    >>> first, second = read_alignments("gold", one_indexed=True)
    >>> sorted(first.sure), sorted(first.possible)
    ([(0, 0)], [(0, 0), (1, 2)])
    """
    # Only a line feed ends a sentence, not Unicode's other line ends.
    lines = read_regular(path).decode("utf-8", errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    found, problems = [], []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_parse_line(line, one_indexed, f"{path}, line {number}"))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        first, *others = problems
        named = [f"Also {problem}" for problem in others[: MOST_NAMED - 1]]
        more = len(others) - len(named)
        named += [f"Also {more:,} more such lines"] if more else []
        raise ValueError(". ".join([first, *named]))
    return found


def alignment_error_rate(
    predicted: Sequence[Alignment | Iterable[tuple[int, int]]], gold: Sequence[Alignment]
) -> AlignmentErrorRate:
    """Alignment error rate, precision and recall over a corpus.

    With A the predicted, S the sure and P the possible links (S within P), counted over all pairs,

    `AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)`, 0 where neither side has a link,
    `precision = |A ∩ P| / |A|`, `recall = |A ∩ S| / |S|`.

    Args:
        predicted: Of each sentence pair the 0-indexed `(source, target)` pairs, or an `Alignment`,
            whose possible links count as predicted.
        gold: For each sentence pair its `Alignment`.

    Raises:
        ValueError: If the numbers of sentence pairs differ, or there are none.

    Reference:
        Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", §6.

    Example:

    >>> gold = [Alignment(sure={(0, 0), (1, 2)}, possible={(1, 1)})]
    >>> print(alignment_error_rate([{(0, 0), (1, 1)}], gold))
    AER 25.00% (precision 100.00%, recall 50.00%, 1 sentence pairs)
    """
    if len(predicted) != len(gold) or not gold:
        raise ValueError(
            "There must be as many predicted as gold alignments, and at least one. "
            f"Received: {len(predicted)} predicted and {len(gold)} gold."
        )
    links = sure = in_sure = in_possible = 0
    for each, truth in zip(predicted, gold, strict=True):
        guess = each.possible if isinstance(each, Alignment) else frozenset(each)
        links += len(guess)
        sure += len(truth.sure)
        in_sure += len(guess & truth.sure)
        in_possible += len(guess & truth.possible)
    return AlignmentErrorRate(
        precision=in_possible / links if links else 0.0,
        recall=in_sure / sure if sure else 0.0,
        value=1.0 - (in_sure + in_possible) / (links + sure) if links + sure else 0.0,
        sentences=len(gold),
    )


def _parse_line(line: str, one_indexed: bool, place: str) -> Alignment:
    links: dict[str, set[tuple[int, int]]] = {"-": set(), "p": set()}
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{place}: a link is two positions joined by '-' (sure) or 'p' (possible), such as "
                f"3-4 or 3p4. Received: {text[:40]!r}"
            )
        source, target = int(match[1]) - one_indexed, int(match[3]) - one_indexed
        if min(source, target) < 0:
            raise ValueError(
                f"{place}: positions start at 1 with one_indexed=True; read a file that starts at "
                f"0 with one_indexed=False. Received: {text!r}"
            )
        links[match[2]].add((source, target))
    return Alignment(frozenset(links["-"]), frozenset(links["p"]))


def read_regular(path: str | os.PathLike) -> bytes:
    """Return the content of a file; refuse a pipe or a device, which may never end."""
    path = input_path(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # reading a folder says what it is
        raise ValueError(f"Cannot read {path}: expected a file. Received: a pipe or a device.")
    return path.read_bytes()
