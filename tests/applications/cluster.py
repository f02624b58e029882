"""The real command in several processes at once, which talk over loopback."""

import json
import os
import socket
import subprocess

from tests.applications.commands import COMMAND, Done

MULTI_WORKER = ["--distribute.strategy=multi-worker", "--distribute.timeout=90"]
SECONDS = 200


def free_addresses(count: int) -> list[str]:
    """Return addresses of this machine at which nobody listens."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def tf_config(addresses: list[str], index: int) -> str:
    """Return the TF_CONFIG of one of the workers."""
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def start_workers(arguments: list[list], program: tuple = (COMMAND,)) -> list[subprocess.Popen]:
    """Start a worker for each list of arguments, the chief first."""
    addresses = free_addresses(len(arguments))
    processes = []
    for index, own in enumerate(arguments):
        environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
        environment |= {"TF_CONFIG": tf_config(addresses, index), "CUDA_VISIBLE_DEVICES": ""}
        processes.append(
            subprocess.Popen(
                [*program, *map(str, own)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
        )
    return processes


def wait_for(processes: list[subprocess.Popen]) -> list[Done]:
    """Return what each of them left; end those that do not end."""
    try:
        written = [each.communicate(timeout=SECONDS) for each in processes]
        return [
            Done(each.returncode, *texts) for each, texts in zip(processes, written, strict=True)
        ]
    finally:
        for each in processes:
            each.kill()


def run_workers(count: int, *arguments) -> list[Done]:
    """Run the command in so many workers."""
    return wait_for(start_workers([[*arguments, *MULTI_WORKER]] * count))
