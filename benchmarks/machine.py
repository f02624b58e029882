"""Facts about the machine and the software, without importing a framework."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("keras", "tensorflow", "torch", "numpy", "keras-hub", "ctranslate2")


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def installed(package: str) -> str | None:
    """The version of a package, or `None`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def load() -> float:
    """How many processes wanted a core in the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def facts() -> dict:
    """What a reader must know beside the figures."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
        "load_before": round(load(), 2),
    }
