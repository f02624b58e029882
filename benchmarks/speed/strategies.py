"""Tokens a second of training, on one device and with each strategy of distribution.

Every row trains the same translator of dates by the real command. Replicas share this machine's
processor: the rows say what distribution costs, not what further machines bring. The last line is
what the input pipeline alone can feed.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import machine
from benchmarks.common.errors import BenchmarkError
from benchmarks.common.options import (
    add_epochs,
    add_figures,
    as_arguments,
    positive,
    write_figures,
)
from benchmarks.common.processes import ROOT, environment, how_it_ended
from benchmarks.common.tables import machine_line

REPLICAS = 2
# Strategies draw dropout's numbers differently; of their mean loss in the first epoch they agree.
SAME_LOSS = 0.05
SETTINGS = {
    "data.dataset": "dates",
    "model.architecture": "rnnsearch",
    "model.embedding_size": 128,
    "model.units": 256,
    "training.batch_size": 64,
    "training.early_stopping": "loss",
    "training.patience": 99,
    "training.tensorboard": "false",
    "training.deterministic": "false",
}
STRATEGIES = {
    "none": [],
    "mirrored": [
        "--distribute.strategy=mirrored",
        "--distribute.devices=" + ",".join(f"CPU:{index}" for index in range(REPLICAS)),
    ],
    "multi-worker": ["--distribute.strategy=multi-worker", "--distribute.timeout=120"],
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--steps", type=positive(int), default=60, help="batches in an epoch (default: %(default)s)"
    )
    add_epochs(parser, 4)
    add_figures(parser)


def run(options: argparse.Namespace) -> None:
    """Train and print the table; the first epoch is not counted."""
    if options.epochs < 2:
        raise BenchmarkError(
            "--epochs should be 2 or more, since the first epoch is not counted. "
            f"Received: {options.epochs}"
        )
    facts = machine.facts()
    print(machine_line(facts), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.steps, options.epochs)
    print(table(figures))
    write_figures(options.output, {"machine": facts, **figures})


def measure(folder: Path, steps: int, epochs: int) -> dict:
    """Return what each strategy trained and what the input pipeline fed."""
    sizes = {"training.steps_per_epoch": steps, "training.epochs": epochs}
    common = as_arguments(SETTINGS | sizes)
    rows = []
    for name, more in STRATEGIES.items():
        run = folder / name
        count = REPLICAS if name == "multi-worker" else 1
        _run(count, ["train", "translation", *common, *more, "--output", str(run)])
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows.append(row_of(name, [json.loads(line) for line in lines]))
    check_same_training(rows)
    (answer,) = _run(1, ["feed", str(folder / "none"), str(steps)])
    return {"rows": rows, "pipeline_tokens_per_second": json.loads(answer)["tokens_per_second"]}


def row_of(name: str, lines: list[dict]) -> dict:
    """Return a strategy's figures, of the lines of its epochs; the loss is the first one's."""
    return {
        "strategy": name,
        "tokens_per_second": statistics.median(line["tokens_per_second"] for line in lines[1:]),
        "retraces": lines[-1]["traces"] - lines[0]["traces"],
        "loss": lines[0]["loss"],
    }


def check_same_training(rows: list[dict]) -> None:
    """Refuse figures of strategies that did not train as a single process does."""
    losses = {row["strategy"]: row["loss"] for row in rows}
    for name, loss in losses.items():
        if not abs(loss / losses["none"] - 1) <= SAME_LOSS:
            raise BenchmarkError(
                f"{name} trains otherwise than one process: the first epoch's loss is {loss:.4g}, "
                f"and not {losses['none']:.4g}"
            )


def table(figures: dict) -> str:
    """Write the figures as a Markdown table."""
    fed = figures["pipeline_tokens_per_second"]
    lines = ["| strategy | tokens a second | retraces after the first epoch | the pipeline feeds |"]
    lines.append("| --- | --- | --- | --- |")
    for row in figures["rows"]:
        rate = row["tokens_per_second"]
        lines.append(
            f"| {row['strategy']} | {rate:,.0f} | {row['retraces']} | {fed / rate:.1f} times that |"
        )
    return "\n".join([*lines, "", f"The input pipeline alone: {fed:,.0f} tokens a second."])


def _run(count: int, arguments: list[str]) -> list[str]:
    """Run the worker in so many processes; return what they printed."""
    addresses = _free_addresses(count)
    processes = []
    for index in range(count):
        task = {"type": "worker", "index": index}
        cluster = {"cluster": {"worker": addresses}, "task": task}
        processes.append(
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.speed.strategies_worker",
                    str(REPLICAS),
                    *arguments,
                ],
                env={
                    **environment(),
                    **({"TF_CONFIG": json.dumps(cluster)} if count > 1 else {}),
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                },
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=None if index == 0 else subprocess.DEVNULL,
                text=True,
            )
        )
    printed = [process.communicate()[0] for process in processes]
    for process in processes:
        if process.returncode:
            raise BenchmarkError(f"`{arguments[0]}` {how_it_ended(process.returncode)}")
    return printed


def _free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses
