"""What a machine cannot run is left out and named at the end, loudly. In CI leaving anything out is a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from tests.services.servers import postgresql_programs

NEEDS: dict[str, tuple[str, Callable[[], object]]] = {
    "sandbox": ("bubblewrap", lambda: shutil.which("bwrap")),
    "browser": ("chromium", lambda: shutil.which("chromium")),
    "services": ("postgresql redis-server", lambda: postgresql_programs() and shutil.which("redis-server")),
}
# Some tests are about one of the two databases; the other one's half of the suite leaves them out on purpose.
OF_ONE_DATABASE = ("SQLite has", "only SQLite has", "PostgreSQL offers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CI"):
        return  # there they run, and say themselves what they miss
    for marker, (packages, there) in NEEDS.items():
        if there():
            continue
        left_out = pytest.mark.skip(reason=f"needs {packages}: sudo apt-get install {packages}")
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = _reasons(terminalreporter)
    if not reasons:
        return
    terminalreporter.section("LEFT OUT ON THIS MACHINE", sep="*", red=True, bold=True)
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} {'test' if count == 1 else 'tests'}: {reason}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and _reasons(reporter) and session.exitstatus == 0:
        session.exitstatus = 1


def _reasons(reporter: pytest.TerminalReporter) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "no reason"
        if not reason.startswith(OF_ONE_DATABASE):
            found[reason] = found.get(reason, 0) + 1
    return found
