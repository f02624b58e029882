"""The one command of all measurements: `python -m benchmarks PROGRAM`.

A program is a module of `benchmarks.speed` or `benchmarks.studies`. The first line of its docstring
is its entry in the list, and the docstring is its help. It has two functions:

- `add_options(parser)` adds its options, those that others have too from `common.options`;
- `run(options)` measures and prints. A `BenchmarkError`, a `ValueError`, an `OSError` or a package
  that is missing ends the command with one line.

Importing a program must not import Keras, so that its help is there at once.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from benchmarks.common.errors import BenchmarkError

PROGRAMS = {
    "speed": (
        "layers",
        "local-attention",
        "long-attention",
        "long-sequences",
        "score-mods",
        "crf",
        "beams",
        "transformer-sizes",
        "pretrained",
        "recurrent-training",
        "strategies",
        "memory",
        "soak",
        "checkouts",
        "roofline",
    ),
    "studies": (
        "architectures",
        "luong",
        "speed-and-bleu",
        "tokenised-bleu",
        "summarization",
        "temporal",
        "classification",
        "tagging",
        "answer-selection",
        "baselines",
        "recipes",
        "fine-tuning",
        "pretrained-words",
        "masks",
    ),
}
"""The programs of each folder; a name's module has underscores for hyphens."""
PROG = "python -m benchmarks"


def load(name: str) -> ModuleType:
    """Return the module of a program."""
    folder = next(folder for folder, names in PROGRAMS.items() if name in names)
    return importlib.import_module(f"benchmarks.{folder}.{name.replace('-', '_')}")


def listing() -> str:
    """Return a line for each program."""
    lines = []
    for folder, names in PROGRAMS.items():
        lines.append(f"{folder}:")
        lines += [f"  {name:<20}{(load(name).__doc__ or '').splitlines()[0]}" for name in names]
        lines.append("")
    return "\n".join([*lines, f"`{PROG} PROGRAM --help` shows the options of one."])


def parse(arguments: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Return a program and its options; end with status 2 where there is no such program."""
    is_help = bool({"-h", "--help"} & set(arguments[:1]))
    parser = argparse.ArgumentParser(
        prog=PROG,
        description="Measure this package: its speed beside others, and what its methods gain.",
        epilog=listing() if is_help else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = [name for folder in PROGRAMS.values() for name in folder]
    parser.add_argument("program", metavar="PROGRAM", choices=names, help="one of those below")
    program = load(parser.parse_args(arguments[:1]).program)
    return program, parser_of(program).parse_args(arguments[1:])


def parser_of(program: ModuleType) -> argparse.ArgumentParser:
    """Return the parser of a program's options."""
    parser = argparse.ArgumentParser(
        prog=f"{PROG} {program.__name__.rpartition('.')[2].replace('_', '-')}",
        description=program.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(if_interrupted="It was interrupted.")
    program.add_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program; return 0, 2 after one line on what went wrong, or 130 on an interruption."""
    program, options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        program.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the tables has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (BenchmarkError, ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(options.if_interrupted, file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.exit(main())
