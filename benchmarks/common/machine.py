"""Facts about the machine and the software, without importing a framework."""

import os
import platform
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.common.processes import ROOT

PACKAGES = ("keras", "tensorflow", "jax", "torch", "numpy", "keras-hub", "ctranslate2")


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def gpu() -> str | None:
    """The name of the GPU, where the driver's tool tells it."""
    if not (tool := shutil.which("nvidia-smi")):
        return None
    asked = [tool, "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(asked, capture_output=True, text=True)
    return found.stdout.strip().split("\n")[0] or None


def installed(package: str) -> str | None:
    """The version of a package, or `None`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load() -> float:
    """How many processes wanted a core in the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def commit() -> str:
    """The commit of this checkout, and whether files were changed since."""
    line = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(line, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


GROUPS = (
    ("memory.max", "memory.current", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Where control groups, versions 2 and 1, tell the limit of a container's memory, what it uses, and
how much of that is a cache of files that the system can drop."""


def available_megabytes(
    information: Path = Path("/proc/meminfo"), groups: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """The memory that further processes can have, or None where the system does not tell."""
    try:
        lines = information.read_text().splitlines()
    except OSError:
        return None
    kilobytes = dict(line.split(":")[:2] for line in lines)["MemAvailable"]
    found = int(kilobytes.split()[0]) / 2**10
    for limit, usage, cache in GROUPS:
        try:
            statistics = (groups / usage).with_name("memory.stat").read_text().splitlines()
            dropped = int(dict(line.split() for line in statistics)[cache])
            used = int((groups / usage).read_text()) - dropped
            most = int((groups / limit).read_text())  # "max" where there is no limit
        except (OSError, ValueError, KeyError):
            continue
        found = min(found, max(0, most - used) / 2**20)
    return found


class Watch:
    """How much of the machine other programs take while this one and its children work.

    Where the system does not tell (Linux does), it is taken for busy by the load alone.
    """

    def __init__(self):
        self._start, self._busy, self._own = time.monotonic(), _busy_seconds(), _own_seconds()

    def share_of_others(self) -> float | None:
        """The part of all cores that others have used since; once all children have ended."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (_own_seconds() - self._own)
        seconds = (time.monotonic() - self._start) * (os.cpu_count() or 1)
        return max(0.0, others / max(seconds, 1e-9))


def _busy_seconds() -> float | None:
    """Seconds that all cores together have worked since the system started."""
    try:
        numbers = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft, stolen = map(int, numbers[:8])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Those of this process and of its children that have ended."""
    return sum(os.times()[:4])


def facts() -> dict:
    """What a reader must know beside the figures."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "gpu": gpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
        "load_before": round(load(), 2),
    }
