"""`python -m benchmarks`: measure, print tables, keep the figures as JSON."""

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks import goals, machine, report
from benchmarks.children import BenchmarkError, measure
from benchmarks.contenders import GRU, KERAS, OURS, contenders_for
from benchmarks.problems import (
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
    **dict.fromkeys((*DECODERS, *INNER, *SELF_ATTENTIONS, *POINTERS), ("torch", "PyTorch")),
    **dict.fromkeys(TRANSLATIONS, ("ctranslate2", "CTranslate2")),
}
"""The package of a peer, and its name."""
DEFAULT_FOLDER = Path(__file__).parent / "results"


def parse_arguments(arguments=None) -> argparse.Namespace:
    """The command's options; `--quick` changes the defaults of the others."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure this package against PyTorch, Keras, KerasHub and CTranslate2.",
    )
    add = parser.add_argument
    add("--only", choices=CHOICES, help="default: all")
    add(
        "--size",
        type=_size,
        action="append",
        metavar="BATCHxSTEPSxMEMORYxUNITS",
        help="in place of the sizes of the project's goals; may be repeated",
    )
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
    add("--rounds", type=_positive(int), help="default: 5, with --quick 2")
    add(
        "--seconds",
        type=_positive(float),
        help="of each program in each round of each pass; default: 1, with --quick 0.2",
    )
    add("--quick", action="store_true", help="a tiny size and few rounds, to see that all runs")
    add("--torch-compile", action="store_true", help="measure the PyTorch loop compiled, too")
    add("--output", type=Path, help="JSON file; default: one in benchmarks/results")
    options = parser.parse_args(arguments)
    without = ("attention", *SELF_ATTENTIONS, *POINTERS, *TRANSFORMERS, *TRANSLATIONS)
    if options.torch_compile and options.only in without:
        parser.error(f"--torch-compile is of what has a loop. Received: --only {options.only}")
    if options.backend != "jax" and options.precision != "float32":
        parser.error("--precision needs --backend jax.")
    if options.backend == "jax" and options.torch_compile:
        parser.error("--torch-compile needs --backend tensorflow.")
    options.size = options.size or ([QUICK_SIZE] if options.quick else None)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.seconds = options.seconds or (0.2 if options.quick else 1.0)
    return options


def _size(text: str) -> Size:
    try:
        return Size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(number):
    def parse(text: str):
        try:
            value = number(text)
        except ValueError:
            value = 0
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a positive number. Received: {text!r}")
        return value

    return parse


def chosen_problems(options: argparse.Namespace) -> list[Problem]:
    """The problems that the options ask for, each kind at its own sizes if none is given."""
    kinds = CHOICES[options.only] if options.only else tuple(SIZES)
    known = {each.name for kind in kinds for each in contenders_for(kind, True, options.backend)}
    if unknown := set(options.program) - known:
        raise BenchmarkError(f"no program is called {', '.join(unknown)}; known: {sorted(known)}")
    problems = []
    for kind in kinds:
        problems += [Problem(kind, size) for size in options.size or SIZES[kind]]
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


def run(options: argparse.Namespace, output: Path) -> None:
    """Measures; prints each table and keeps the figures as soon as a problem is done."""
    problems = chosen_problems(options)
    needed = [("jax", "JAX")]
    if options.backend == "tensorflow":
        needed = list(dict.fromkeys(NEEDED[kind] for kind in kinds_with_peers(problems, options)))
    for package, name in needed:
        if not machine.installed(package):
            raise BenchmarkError(
                f"{name} is missing. `make bench` installs it; `--only attention` needs none"
            )
    facts = machine.facts()
    print(report.machine_line(facts), flush=True)
    if facts["load_before"] > 0.5 * facts["cores"]:
        _tell("warning: other programs load this machine; the figures will not be fair")
    figures = {
        "machine": facts,
        "backend": options.backend,
        "precision": options.precision,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "problems": [],
    }
    watch = machine.Watch()
    for problem in problems:
        how = (options.rounds, options.seconds, options.torch_compile, _tell, options.program)
        measured = measure(problem, *how, options.backend, options.precision)
        print(f"\n{report.table(problem, measured)}", flush=True)
        facts["others"] = watch.share_of_others()
        figures["problems"].append(report.to_json(problem, measured))
        output.write_text(json.dumps(figures, indent=1) + "\n")
    if options.backend == "tensorflow":  # which the goals are set for
        print(f"\n### Goals\n\n{goals.table(figures)}", flush=True)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments=None) -> int:
    """Entry point; 0, or 2 after one line on what went wrong."""
    options = parse_arguments(arguments)
    output = options.output or DEFAULT_FOLDER / time.strftime("%Y%m%d-%H%M%S.json")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        run(options, output)
    except (BenchmarkError, OSError) as error:
        _tell(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        _tell(f"interrupted; what was measured is in {output}")
        return 130
    print(f"\nFigures: {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
