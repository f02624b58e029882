"""The speed and the BLEU of trained translators on their own test set.

For each run, its BLEU, the seconds for the whole set, target tokens a second, milliseconds for one
sentence by itself and megabytes of weights: by our own search in float32 and bfloat16, with a
vocabulary shortlist (`--shortlist RUN=FILE`), by LiteRT and by CTranslate2. The order turns from
round to round. Threads of one program may disturb another's single sentences: `--only` measures one
alone.
"""

import argparse
import itertools
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.common.machine import Watch
from benchmarks.common.options import add_only, add_rounds, positive
from benchmarks.common.tables import markdown

BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
BY_ENGINE = ("float32", "int8")
SEARCHES = ("ours", "LiteRT", "CTranslate2")


def forms_of(run: str, shortlist: str | None, sizes: list[int]) -> dict[tuple, tuple]:
    """Return the translator and the arguments of `translate`, by run, program and type."""
    from keras_attention.applications.translation import Shortlist, Transformer, Translator

    tasks = {"float32": Translator.from_preset(run, dtype="float32")}
    name, forms = Path(run).name, {}
    network = tasks["float32"].backbone
    is_transformer = isinstance(network, Transformer)
    if is_transformer:  # recurrent networks have float32 alone
        tasks["bfloat16"] = Translator.from_preset(run, dtype="bfloat16")
    for dtype, task in tasks.items():
        forms[name, "ours", dtype] = task, {}
        for size in sizes if shortlist else []:
            given = {"shortlist": Shortlist.load(shortlist, task.preprocessor, size)}
            forms[name, f"ours, {size:,} words", dtype] = task, given
    is_carried = is_transformer and network.autoregression == "self-attention"
    engines = {"litert": "LiteRT"} | ({"ctranslate2": "CTranslate2"} if is_carried else {})
    for engine, kind in itertools.product(engines, BY_ENGINE):
        given = {"engine": engine, "compute_type": kind}
        forms[name, engines[engine], kind] = tasks["float32"], given
    return forms


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    count = positive(int)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run folder of a translator")
    parser.add_argument(
        "--shortlist",
        action="append",
        default=[],
        metavar="RUN=FILE",
        help="a vocabulary shortlist for a run; may be repeated",
    )
    parser.add_argument(
        "--shortlist-size",
        type=count,
        action="append",
        metavar="N",
        help="words of the shortlists; may be repeated (default: 2048)",
    )
    parser.add_argument(
        "--beam", type=count, action="append", help="beam size; may be repeated (default: 1 and 5)"
    )
    parser.add_argument(
        "--alone", type=int, default=50, help="sentences that come one by one (default: 50)"
    )
    add_only(parser, SEARCHES, "searches")
    add_rounds(parser, 5)


def run(options: argparse.Namespace) -> None:
    """Print a line for each run, program and type."""
    from keras_attention.applications.base.streams import default_streams, share_cores
    from keras_attention.applications.command.cli import read_config
    from keras_attention.applications.training.run_folder import RunFolder
    from keras_attention.applications.translation import Translator, load_corpus
    from keras_attention.applications.translation.metrics import bleu

    share_cores(default_streams())
    lists = dict(each.rsplit("=", 1) for each in options.shortlist)
    forms, watch = {}, Watch()
    for folder in options.runs:
        forms |= forms_of(folder, lists.get(folder), options.shortlist_size or [2048])
    corpus = load_corpus(read_config(Translator, run=RunFolder(options.runs[0])).data, "test")
    cases = [
        (*form, beam)
        for form in forms
        for beam in options.beam or (1, 5)
        if form[1].split(",")[0] in (options.only or SEARCHES)
    ]
    seconds, alone = ({case: [] for case in cases} for _ in range(2))
    found = {}
    for turn in range(options.rounds + 1):  # the first compiles
        start = turn % len(cases)
        for case in cases[start:] + cases[:start]:
            task, given = forms[case[:3]]
            began = time.perf_counter()
            results = task.translate(
                corpus["source"], beam_size=case[-1], return_alignments=False, **given
            )
            seconds[case].append(time.perf_counter() - began)
            found[case] = results
            began = time.perf_counter()
            for line in corpus["source"][: options.alone]:
                task.translate(line, beam_size=case[-1], return_alignments=False, **given)
            alone[case].append((time.perf_counter() - began) / max(1, options.alone))
    head = ["run", "search by", "type", "beam", "BLEU", "seconds", "tokens/s"]
    rows = [[*head, "ms a sentence", "MB of weights"]]
    for case in cases:
        task, _ = forms[case[:3]]
        took = float(np.median(seconds[case][1:]))
        tokens = sum(len(each.ids) + 1 for each in found[case])
        size = task.backbone.count_params() * BYTES[case[2]] / 1e6
        score = bleu([each.text for each in found[case]], corpus["target"]).value
        single = 1000 * float(np.median(alone[case][1:]))
        figures = f"{score:.1f}", f"{took:.2f}", f"{tokens / took:,.0f}"
        rows.append([*map(str, case), *figures, f"{single:.1f}", f"{size:.1f}"])
    print(markdown(rows))
    others = watch.share_of_others()
    print(f"\n{os.cpu_count()} cores, {options.rounds} rounds", end="")
    print("" if others is None else f"; other programs used {others:.0%} of them")
