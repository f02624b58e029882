"""Our layers and models beside those of PyTorch, Keras, KerasHub and CTranslate2.

Each program runs in a process of its own, and must compute the same as ours. They take turns; as
many wait at once as fit into the free memory, and the others are built again for their turn. A
program whose process ends by itself is left out from then on. The tables come as Markdown, the
figures of every round as JSON.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import (
    add_figures,
    add_only,
    add_rounds,
    add_seconds,
    write_figures,
)
from benchmarks.common.tables import machine_line
from benchmarks.speed import goals, report
from benchmarks.speed.children import measure
from benchmarks.speed.contenders import GRU, KERAS, OURS, contenders_for
from benchmarks.speed.problems import (
    ATTENTION_SIZES,
    ATTENTIONS,
    DECODER_SIZES,
    DECODERS,
    INNER,
    INNER_SIZES,
    POINTER_SIZES,
    POINTERS,
    SELF_ATTENTIONS,
    SELF_SIZES,
    TRANSFORMER_SIZES,
    TRANSFORMERS,
    TRANSLATION_SIZES,
    TRANSLATIONS,
    Problem,
    Size,
)

QUICK_SIZE = Size(3, 5, 7, 16)
CHOICES = {"decoder": DECODERS, "attention": ATTENTIONS, "inner": INNER}
CHOICES |= {kind: (kind,) for kind in (*DECODERS, *INNER, *SELF_ATTENTIONS)}
CHOICES |= {kind: (kind,) for kind in (*POINTERS, *TRANSFORMERS, *TRANSLATIONS)}
SIZES = {
    **dict.fromkeys(DECODERS, DECODER_SIZES),
    **dict.fromkeys(ATTENTIONS, ATTENTION_SIZES),
    **dict.fromkeys(SELF_ATTENTIONS, SELF_SIZES),
    **dict.fromkeys(INNER, INNER_SIZES),
    **dict.fromkeys(POINTERS, POINTER_SIZES),
    **dict.fromkeys(TRANSFORMERS, TRANSFORMER_SIZES),
    **dict.fromkeys(TRANSLATIONS, TRANSLATION_SIZES),
}
NEEDED = {
    **dict.fromkeys(
        (*DECODERS, *INNER, *SELF_ATTENTIONS, *POINTERS, *TRANSFORMERS), ("torch", "PyTorch")
    ),
    **dict.fromkeys(TRANSLATIONS, ("ctranslate2", "CTranslate2")),
}
"""The package of a peer, and its name."""
DEFAULT_FOLDER = Path(__file__).parents[1] / "results"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; `--quick` changes the defaults of the others."""
    add_only(parser, CHOICES, "kinds")
    add_size(parser)
    add = parser.add_argument
    add(
        "--program",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this program (a name in the JSON) beside ours alone; may be repeated",
    )
    add(
        "--backend",
        choices=("tensorflow", "jax"),
        default="tensorflow",
        help="of Keras; with jax our layers and Keras' alone are measured, on a GPU where there is "
        "one (default: %(default)s)",
    )
    add(
        "--precision",
        choices=("float32", "mixed_bfloat16"),
        default="float32",
        help="with --backend jax (default: %(default)s)",
    )
    add_rounds(parser, None, "5, with --quick 2")
    add_seconds(parser, None, "1, with --quick 0.2")
    add("--quick", action="store_true", help="a tiny size and few rounds, to see that all runs")
    add("--torch-compile", action="store_true", help="measure the PyTorch loop compiled, too")
    add_figures(parser, "one in benchmarks/results")


def add_size(parser: argparse.ArgumentParser) -> None:
    """Add `--size`."""
    parser.add_argument(
        "--size",
        type=_size,
        action="append",
        metavar="BATCHxSTEPSxMEMORYxUNITS",
        help="in place of the sizes of the project's goals; may be repeated",
    )


def _size(text: str) -> Size:
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together."""
    has_loop = {*DECODERS, *INNER}
    if options.torch_compile and not has_loop & set(kinds_of(options.only)):
        raise BenchmarkError(
            "--torch-compile is of what has a loop: decoders and inner attention. "
            f"Received: --only {' --only '.join(options.only)}"
        )
    if options.backend != "jax" and options.precision != "float32":
        raise BenchmarkError("--precision needs --backend jax.")
    if options.backend == "jax" and options.torch_compile:
        raise BenchmarkError("--torch-compile needs --backend tensorflow.")


def kinds_of(names: Sequence[str] | None) -> list[str]:
    """Return the kinds of problems that names stand for; all for None."""
    if names is None:
        return list(SIZES)
    return list(dict.fromkeys(kind for name in names for kind in CHOICES[name]))


def chosen_problems(options: argparse.Namespace) -> list[Problem]:
    """The problems that the options ask for, each kind at its own sizes if none is given."""
    kinds = kinds_of(options.only)
    known = {each.name for kind in kinds for each in contenders_for(kind, True, options.backend)}
    if unknown := set(options.program) - known:
        raise BenchmarkError(f"No program is called {', '.join(unknown)}. Known: {sorted(known)}.")
    problems = []
    for kind in kinds:
        sizes = options.size or ([QUICK_SIZE] if options.quick else SIZES[kind])
        problems += [Problem(kind, size) for size in sizes]
    return problems


def kinds_with_peers(problems: list[Problem], options: argparse.Namespace) -> list[str]:
    """The kinds of problems for which a peer's package runs, of the programs that are asked for."""
    ours = {OURS, KERAS, GRU}
    return [
        kind
        for kind in dict.fromkeys(problem.kind for problem in problems)
        if kind in NEEDED
        and any(
            each.side not in ours and each.name in (options.program or [each.name])
            for each in contenders_for(kind, True)
        )
    ]


def run(options: argparse.Namespace) -> None:
    """Measures; prints each table and keeps the figures as soon as a problem is done."""
    check(options)
    problems = chosen_problems(options)
    needed = [("jax", "JAX")]
    if options.backend == "tensorflow":
        needed = list(dict.fromkeys(NEEDED[kind] for kind in kinds_with_peers(problems, options)))
    for package, name in needed:
        if not machine.installed(package):
            raise BenchmarkError(
                f"{name} is missing. `make bench` installs it; `--only attention` needs none."
            )
    facts = machine.facts()
    print(machine_line(facts), flush=True)
    if facts["load_before"] > 0.5 * facts["cores"]:
        _tell("warning: Other programs load this machine; the figures will not be fair.")
    output = options.output or DEFAULT_FOLDER / time.strftime("%Y%m%d-%H%M%S.json")
    print(f"Figures, as they come: {output}", flush=True)
    rounds = options.rounds or (2 if options.quick else 5)
    seconds = options.seconds or (0.2 if options.quick else 1.0)
    figures = {
        "machine": facts,
        "backend": options.backend,
        "precision": options.precision,
        "rounds": rounds,
        "seconds": seconds,
        "problems": [],
    }
    watch, failed = machine.Watch(), []
    for problem in problems:
        how = (rounds, seconds, options.torch_compile, _tell, options.program)
        measured = measure(problem, *how, options.backend, options.precision)
        print(f"\n{report.table(problem, measured)}", flush=True)
        facts["others"] = watch.share_of_others()
        figures["problems"].append(report.to_json(problem, measured))
        write_figures(output, figures)
        failed += [f"{problem}: {each.error}" for each in measured if each.error]
    if options.backend == "tensorflow":  # which the goals are set for
        print(f"\n### Goals\n\n{goals.table(figures)}", flush=True)
    if failed:
        raise BenchmarkError(
            f"These programs were not measured to the end: {'; '.join(failed)}. {output} has the "
            "others' figures."
        )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
