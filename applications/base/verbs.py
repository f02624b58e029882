"""Shared by the verbs of the command: lines in, results out, options of a search."""

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from keras_attention.decoding import SearchOptions

from ..data.lengths import TooLong
from ..data.lines import in_chunks
from ..errors import UserError, check_range, one_line, say
from ..schema.reading import MOST, MOST_OF_OTHERS
from ..show.explanation import Explanation, is_page
from ..store.bad_lines import BadLine, Line, checked, named
from ..store.files import decoded, lines_of, output_file

NULL = "null"
"""The value of an option that sets it to None, as in a configuration."""
OF_SAMPLES = ("temperature", "top_k", "top_p", "seed")
OF_BEAMS = ("beam_size", "length_penalty", "coverage_penalty")
"""Options of a search that samples, and of one that does not."""


def search_of(options: Namespace, own: SearchOptions) -> SearchOptions:
    """Return the search that the flags of a command ask for, on top of the task's own."""
    names = [field.name for field in fields(SearchOptions)]
    given = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    given = {name: None if value == NULL else value for name, value in given.items()}
    flags = {name: f"--{name.replace('_', '-')}" for name in given}
    for name, value in given.items():  # a size beyond reason would reach the allocator
        check_range(flags[name], value, at_most=MOST.get(name, MOST_OF_OTHERS))
    samples = given.get("sample", own.sample)
    wrong = [flags[name] for name in (OF_BEAMS if samples else OF_SAMPLES) if name in given]
    if wrong and not samples:
        verb = "goes" if len(wrong) == 1 else "go"
        raise UserError(f"{', '.join(wrong)} {verb} with --sample only: add --sample.")
    if wrong and given.get("sample"):
        raise UserError(f"Give {', '.join(wrong)} or --sample, not both.")
    if wrong:
        raise UserError(
            f"The run samples, which {', '.join(wrong)} does not change: add --no-sample to search "
            "with a beam."
        )
    try:
        return dataclasses.replace(own, **given)
    except ValueError as error:
        raise UserError(str(error)) from None


def own_split(options: Namespace, wanted: str, given: str | None = None) -> str | None:
    """Return which of the run's own sets to measure on; None where a file is given instead.

    A preset has none: `wanted`, the flag of the file, is needed.
    """
    split = getattr(options, "split", None)
    if given and split:
        raise UserError(f"give --split or {wanted}, not both.")
    if given:
        return None
    if options.config is None:
        raise UserError(f"{options.run} has no data of its own: give {wanted}.")
    return split or ("test" if options.config.data.has_split("test") else "dev")


def chunks_of_file(read: Callable[[], Iterable[Any]], size: int) -> Iterator[list[Any]]:
    """Return what `read()` yields in chunks; a file that cannot be read is refused before the work.

    So it is read twice, and never held as a whole.
    """
    for _ in read():
        pass
    return in_chunks(read(), size)


def chunks_of_lines(path: str | None, size: int, encoding: str = "utf-8") -> Iterator[list[str]]:
    """Return the lines of a file, or of standard input, in chunks."""
    placed = placed_chunks_of_lines(path, size, encoding)
    return ([line for _, line in chunk] for chunk in placed)


STANDARD_INPUT = "standard input"
Placed = tuple[Line | str, Any]
"""An entry of an input after its file and line."""


def placed_chunks_of_lines(
    path: str | None,
    size: int,
    encoding: str = "utf-8",
    read: Callable[[Line, str], Any] = lambda place, line: line,
) -> Iterator[list[Placed]]:
    """Return what `read(place, line)` makes of the lines of a file or of standard input.

    They come in chunks, each entry after its file and line. Where a person types the lines, each is
    a chunk of its own. `read` raises a `BadLine` where a line is wrong; those of a file are refused
    before the work, as `chunks_of_file` says.
    """

    def entry(numbered):
        place = Line(path or STANDARD_INPUT, numbered[0])
        return place, read(place, numbered[1])

    def entries_of_file():
        return checked(enumerate(lines_of(path, encoding), 1), entry)

    if path is not None:
        return chunks_of_file(entries_of_file, size)
    if sys.stdin.isatty():
        size = 1
        say("Type a line; Ctrl-D ends.")
    lines = enumerate(decoded(sys.stdin.buffer, STANDARD_INPUT, is_file=False), 1)
    return in_chunks(map(entry, lines), size)


def results_of(
    chunks: Iterable[Sequence[Placed]],
    work: Callable[[list[Any]], Sequence[Any]],
    check: Callable[[list[Any]], Any] | None = None,
) -> Iterator[Placed]:
    """Yield the place and the result of each entry of an input.

    Where entries are too long, those before the first of them are worked on; the error that follows
    names file and line.

    Args:
        chunks: entries after their file and line.
        work: a function that returns the results of entries, or raises a `TooLong` before the work.
        check: a function that only raises the `TooLong`, for an input that can be read to its end
            at once: the error then names lines of later chunks, too.
    """
    chunks = iter(chunks)
    for chunk in chunks:
        places, entries = map(list, zip(*chunk, strict=True))
        try:
            results = work(entries)
        except TooLong as error:
            found = error.lines(places.__getitem__)
            if before := min(error.lengths):
                yield from zip(places, work(entries[:before]), strict=False)
            for later in chunks if check else ():
                found += _too_long(later, check)
            raise named(found) from None
        yield from zip(places, results, strict=True)


def _too_long(chunk: Sequence[Placed], check: Callable[[list[Any]], Any]) -> list[BadLine]:
    try:
        check([entry for _, entry in chunk])
    except TooLong as error:
        return error.lines(lambda row: chunk[row][0])
    return []


class LongTexts:
    """Counts the texts of an input that were cut or skipped, and says so at the end."""

    def __init__(self, limit: str):
        self.limit = limit
        self.total = 0
        self.places: dict[str, list[Line | str]] = {"skipped": [], "cut": []}

    def note(self, place: Line | str, result: Any) -> None:
        self.total += 1
        if result is None:
            self.places["skipped"].append(place)
        elif getattr(result, "truncated", False):
            self.places["cut"].append(place)

    def say(self) -> None:
        for what, places in self.places.items():
            if places:
                were = "was" if len(places) == 1 else "were"
                say(
                    f"{len(places):,} of {self.total:,} texts {were} longer than {self.limit}, and "
                    f"{were} {what} (the first: {places[0]})."
                )


def write_lines(output: str | None, lines: Iterable[str], empty: str, end: str = "\n") -> None:
    """Write results, each with an `end`, to a new file or standard output, as they come.

    An error, or Ctrl-C, keeps the results before it, and says so. Where there is none, `empty` is
    the error.
    """
    results, count, stopped = iter(lines), 0, None
    with output_file(output) as file:
        while stopped is None:
            try:
                line = next(results)
            except StopIteration:
                break
            except BaseException as error:
                if not count:
                    raise
                stopped = error
                continue
            print(line, file=file, end=end)
            file.flush()
            count += 1
        if not count:
            raise UserError(empty)
    if stopped is None:
        return
    lines_done = f"{count:,} line" + "s" * (count > 1)
    kept = f"The results before that ({lines_done}) are in {output or 'standard output'}."
    if isinstance(stopped, ValueError):
        error = UserError(f"{one_line(stopped)} {kept}")
        error.exit_status = getattr(stopped, "exit_status", 2)
        raise error from stopped
    say(kept)
    raise stopped


def asks_for_page(options: Namespace) -> bool:
    """Whether the file to write is a page, not a picture."""
    return options.output is not None and is_page(options.output)


def write_page(found: Explanation, options: Namespace) -> None:
    """Write what a task explains as a page, which shows every map."""
    for name in ("attention", "attention_layer", "attention_head"):
        if getattr(options, name, None) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{flag} goes with a picture: the page {options.output} shows all of them."
            )
    found.save(options.output)
    print(found.text)
    say_notes(found.notes)
    say(f"wrote {options.output}")


def say_notes(notes: Iterable[str]) -> None:
    """Print what the reader of a result should know, where there is anything."""
    for note in filter(None, notes):
        say(note)


def asks_for_map(options: Namespace) -> bool:
    """Whether the flags choose a map of the explanation in place of the result's own picture."""
    return options.attention is not None or options.attention_head == "all"


def draw_map(found: Explanation, options: Namespace, attention: int | str, layer: int) -> None:
    """Draw a map of what a task explains, or a sheet of all heads of a layer of it.

    Args:
        found: the explanation.
        options: the parsed options.
        attention, layer: the map and the layer where the options name none.
    """
    if options.output is None:
        raise UserError("a map of heads is a picture: name it with --output F.png.")
    attention = attention if options.attention is None else options.attention
    layer = layer if options.attention_layer is None else options.attention_layer
    found.plot(options.output, attention=attention, layer=layer, head=options.attention_head)
    print(found.text)
    say_notes(found.notes)
    say(f"wrote {options.output}")


def show_or_draw(result: Any, output: str | None) -> None:
    """Write a result's picture to `output`, or show it in the terminal."""
    if output is None:
        print(result.show())
    else:
        result.plot(output)
        say_notes([result.note])
        say(f"wrote {output}")
