"""A real Chromium before a real server with a seeded team. One of each for all tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.look import sign_in
from tests.browser.serve import ROOT


@dataclass(frozen=True)
class Served:
    """The product at `address`, and the ids of what was seeded."""

    address: str
    demo: dict[str, Any]


@dataclass
class Watched:
    """A page, and what the browser had to complain of."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = tmp_path_factory.mktemp("browser")
    ids, log = folder / "demo.json", folder / "log"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DATABASE_"))}
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.browser.serve", str(port), str(ids)]
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()
            if ids.exists() and answers(port):
                break
            time.sleep(0.1)
        yield Served(f"http://127.0.0.1:{port}", json.loads(ids.read_text()))
    finally:
        server.kill()  # it holds nothing worth keeping, and sockets that are open would only make it wait
        server.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Of one module: while it lives a loop runs in this thread, and no asynchronous test of another could run.
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


def watched(context: BrowserContext) -> Watched:
    """A new page whose errors and refused contents are kept."""
    found = Watched(context.new_page())
    found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
    found.page.on(
        "console", lambda said: said.type == "error" and found.complaints.append(f"{said.location}: {said.text}")
    )
    return found


@pytest.fixture(scope="module")
def signed_in(served: Served, browser: Browser) -> dict[str, Any]:
    """The cookies of the team's owner: signing in once is enough."""
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, served.address, "payments-owner")
    state = context.storage_state()
    context.close()
    return dict(state)
