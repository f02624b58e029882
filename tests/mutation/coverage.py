"""Which lines of the package each test runs, so that a mutant meets only tests that can see it."""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Coverage:
    """A plugin of pytest that writes each test's time, and the lines that it ran, to a file."""

    def __init__(self, root: Path, sources: tuple[str, ...], output: Path):
        self.root = root
        self.folders = tuple(f"{root / name}/" for name in sources)
        self.output = output
        self.tests: dict[str, dict] = {}
        self.seconds: dict[str, float] = {}
        self.shared: set[tuple[str, int]] = set()  # by fixtures, which other tests may use too

    @contextmanager
    def lines_in(self, lines: set[tuple[str, int]]) -> Iterator[None]:
        def enter(frame, event, argument):
            if not frame.f_code.co_filename.startswith(self.folders):
                return None
            lines.add((frame.f_code.co_filename, frame.f_lineno))
            return step

        def step(frame, event, argument):
            if event == "line":
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return step

        before = sys.gettrace()
        threading.settrace(enter)
        sys.settrace(enter)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item):
        with self.lines_in(self.shared):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        lines: set[tuple[str, int]] = set()
        with self.lines_in(lines):
            result = yield
        self.tests[item.nodeid] = {"lines": lines}
        return result

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.tests.pop(report.nodeid, None)
        before = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = before + report.duration

    def pytest_sessionfinish(self):
        for name, test in self.tests.items():
            test["seconds"] = round(self.seconds[name], 3)
            by_file: dict[str, list[int]] = {}
            for path, line in sorted(test["lines"] | self.shared):
                by_file.setdefault(str(Path(path).relative_to(self.root)), []).append(line)
            test["lines"] = by_file
        self.output.write_text(json.dumps(self.tests), encoding="utf-8")
