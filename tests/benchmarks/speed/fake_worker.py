"""A worker of the benchmarks that computes nothing, and ends as it is told.

The variable FAKES has, by the name of a program, the megabytes that it says it needs, and where it
dies: at "build", or at its second turn of a pass. The file RESULTS has what it computes, and LOG
gets a line for each start, turn and end.
"""

import json
import os
import shutil
import signal
import sys


def main(kind: str, size: str, name: str, check_file: str) -> None:
    """Build, and answer each request."""
    fake = json.loads(os.environ["FAKES"])[name]
    log(f"start {name}")
    if fake.get("dies") == "build":
        print("RuntimeError: no such kernel", file=sys.stderr)
        sys.exit(1)
    shutil.copy(os.environ["RESULTS"], check_file)
    peaks = {f"{each}_peak_mb": 1.0 for each in ("forward", "train")}
    firsts = {f"{each}_first_seconds": 1.0 for each in ("forward", "train")}
    say({"host_peak_mb": fake["mb"], "baseline_mb": 1.0, **peaks, **firsts})
    turns = 0
    for line in sys.stdin:
        request = json.loads(line)
        turns += request["run"] == fake.get("dies")
        if turns == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        log(f"turn {name}")
        say({"times": [0.5]})
    log(f"end {name}")


def log(line: str) -> None:
    with open(os.environ["LOG"], "a") as file:
        file.write(f"{line}\n")


def say(content: dict) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
