"""Processes of their own: what they return, and how their end is told."""

import signal
import sys

import pytest

from benchmarks.common.errors import BenchmarkError
from benchmarks.common.processes import Worker, alone, host_peak_megabytes, how_it_ended
from benchmarks.speed.children import memory_limit


def test_a_function_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the repository is found from anywhere
    block = bytearray(200 << 20)
    block[:: 1 << 12] = b"x" * len(block[:: 1 << 12])
    assert alone(host_peak_megabytes) < 200 < host_peak_megabytes()
    assert alone(memory_limit) is None or alone(memory_limit) > 0


def test_a_process_that_fails_is_told_by_its_last_line():
    with pytest.raises(BenchmarkError, match=r"how_it_ended\(x.{99}\) failed: TypeError: "):
        alone(how_it_ended, "x" * 1000)


@pytest.mark.parametrize(
    ("status", "errors", "told"),
    [
        (-signal.SIGKILL, "a warning", "was ended by SIGKILL, as the system does where memory "),
        (-signal.SIGABRT, "", "was ended by SIGABRT"),
        (1, "Traceback\nMemoryError\n\n", "failed: MemoryError"),
        (3, " \n", "ended with status 3"),
    ],
)
def test_the_end_of_a_process_is_told(status, errors, told):
    assert how_it_ended(status, errors).startswith(told)


PROGRAM = """
import json, sys
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    number = json.loads(line)
    if number > 2:
        sys.exit("ValueError: too many")
    print(json.dumps(2 * number), flush=True)
"""


def test_a_worker_answers_until_it_ends():
    with Worker("It", [sys.executable, "-c", PROGRAM]) as worker:
        assert worker.greeting == "ready"
        assert [worker.ask(number) for number in (1, 2)] == [2, 4]
        for _ in range(2):  # also where its end is known already
            with pytest.raises(BenchmarkError, match="^It failed: ValueError: too many$"):
                worker.ask(3)


def test_a_worker_that_says_half_a_line_has_ended():
    with pytest.raises(BenchmarkError, match="^It ended with status 0$"):
        Worker("It", [sys.executable, "-c", "print('[1', end='')"])
