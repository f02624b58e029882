"""What is told of the machine."""

import pytest

from benchmarks.common import machine


def test_the_watch_counts_what_others_have_worked(monkeypatch):
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    for name, values in (("_busy_seconds", [100.0, 130.0]), ("_own_seconds", [5.0, 31.0])):
        monkeypatch.setattr(machine, name, iter(values).__next__)
    monkeypatch.setattr(machine.time, "monotonic", iter([50.0, 60.0]).__next__)
    assert machine.Watch().share_of_others() == pytest.approx((30 - 26) / (10 * 4))


def test_the_free_memory_is_that_of_the_system_or_of_the_container(tmp_path):
    information = tmp_path / "meminfo"
    information.write_text("MemTotal:   8388608 kB\nMemAvailable:    4194304 kB\nHuge: 0\n")
    assert machine.available_megabytes(information, tmp_path) == 4096
    assert machine.available_megabytes(tmp_path / "none", tmp_path) is None
    two, one = tmp_path / "two", tmp_path / "one"
    (one / "memory").mkdir(parents=True)
    two.mkdir()
    for folder, limit, usage, cache in (
        (two, "memory.max", "memory.current", "inactive_file"),
        (one / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        (folder / limit).write_text(f"{3 << 30}\n")
        (folder / usage).write_text(f"{2 << 30}\n")
        (folder / "memory.stat").write_text(f"file 7\n{cache} {1 << 29}\nrss 5\n")
    for group in (two, one):
        assert machine.available_megabytes(information, group) == 1536
    (two / "memory.max").write_text("max\n")
    assert machine.available_megabytes(information, two) == 4096
    (two / "memory.max").write_text("0\n")
    assert machine.available_megabytes(information, two) == 0
    assert machine.available_megabytes() is None or machine.available_megabytes() > 0
