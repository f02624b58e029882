"""Shared by the verbs of the command: lines in, results out, options of a search."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from keras_attention.decoding import SearchOptions

from ..training.config import MOST, MOST_OF_OTHERS
from .errors import UserError, check_range, say
from .explanation import Explanation
from .files import decode_line, lines_of, output_file
from .lines import in_chunks


def search_of(options: Namespace, own: SearchOptions) -> SearchOptions:
    """Return the search that the flags of a command ask for, on top of the task's own."""
    names = [field.name for field in fields(SearchOptions)]
    given = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():  # a size beyond reason would reach the allocator
        check_range(f"--{name.replace('_', '-')}", value, at_most=MOST.get(name, MOST_OF_OTHERS))
    if not given.get("sample"):
        for name in ("temperature", "top_k", "top_p", "seed"):
            if name in given:
                raise UserError(f"--{name.replace('_', '-')} goes with --sample only.")
    elif "beam_size" in given:
        raise UserError("give --beam-size or --sample, not both.")
    try:
        return own.replace(**given)
    except ValueError as error:
        raise UserError(str(error)) from None


def own_split(
    options: Namespace, has_split: Callable, wanted: str, given: str | None = None
) -> str | None:
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
    return split or ("test" if has_split(options.config.data, "test") else "dev")


def chunks_of_file(read: Callable[[], Iterable[Any]], size: int) -> Iterator[list[Any]]:
    """Return what `read()` yields in chunks; a file that cannot be read is refused before the work.

    So it is read twice, and never held as a whole.
    """
    for _ in read():
        pass
    return in_chunks(read(), size)


def chunks_of_lines(path: str | None, size: int, encoding: str = "utf-8") -> Iterator[list[str]]:
    """Return the lines of a file, or of standard input, in chunks.

    Where a person types the lines, each is a chunk of its own.
    """
    if path is not None:
        return chunks_of_file(lambda: lines_of(path, encoding), size)
    if sys.stdin.isatty():
        size = 1
        say("Type a line; Ctrl-D ends.")
    return in_chunks(
        (
            decode_line(line.removesuffix(b"\n"), "standard input", number).removeprefix(
                "\ufeff" if number == 1 else ""  # the mark that some editors begin a file with
            )
            for number, line in enumerate(sys.stdin.buffer, 1)
        ),
        size,
    )


def write_lines(output: str | None, lines: Iterable[str], empty: str) -> None:
    """Write results, one a line, to a new file or standard output, as they come.

    Where there is none, `empty` is the error.
    """
    count = 0
    with output_file(output) as file:
        for line in lines:
            print(line, file=file)
            file.flush()
            count += 1
        if not count:
            raise UserError(empty)


def write_page(found: Explanation, options: Namespace) -> None:
    """Write what a task explains as a page, which shows every map."""
    for name in ("attention", "attention_layer", "attention_head"):
        if getattr(options, name, None) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} goes with --format picture: the page shows all of them.")
    found.save(options.output)
    say(f"wrote {options.output}")


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
    say(f"wrote {options.output}")


def show_or_draw(result: Any, output: str | None) -> None:
    """Write a result's picture to `output`, or show it in the terminal."""
    if output is None:
        print(result.show())
    else:
        result.plot(output)
        say(f"wrote {output}")
