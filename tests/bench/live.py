"""From a printed line to the browser: over the socket, and in a real Chromium."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from tests.bench.rows import Row, median, quantile
from tests.bench.stage import TICKS, Stage

VIEWERS = 10
OPENINGS = 5


def print_to_browser(stage: Stage) -> Row:
    """A line printed in a step until a page's socket has it, against a pipe and a bare WebSocket."""
    floors = asyncio.run(_bare_lines())
    run = stage.start("ticks")
    _await_attempt(stage, run)
    ours = asyncio.run(_watch_all(stage, run))
    stage.ended(run)
    return Row(
        f"print to browser, p50, {VIEWERS} viewers",
        "ms",
        median(floors),
        median(ours),
        "<= 20 ms",
        lambda row: row.ours <= 20,
        note=f"p99 {quantile(ours, 0.99):.0f} ms (aim 100), {len(ours)} lines seen",
    )


def log_opening(stage: Stage) -> Row:
    """The log of 100,000 lines opened on its run page until its last lines are there, against its bare download."""
    run = stage.start("noisy")
    stage.ended(run)
    path = f"{stage.product.url}/api/v1/runs/{run}/steps/make-noise/log"
    floors = [_download(stage, path) for _ in range(OPENINGS)]
    opened, nodes = _open_in_chromium(stage, run)
    return Row(
        "a log of 100,000 lines opened",
        "s",
        median(floors),
        median(opened),
        "< 1 s, < 1,500 nodes",
        lambda row: row.ours < 1 and nodes < 1500,
        note=f"{nodes} nodes in the page; the floor is one MiB of the log over the API",
    )


async def _bare_lines() -> list[float]:
    """The same script's lines through a pipe and a WebSocket, with nothing between them."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-c", TICKS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )

    async def pass_on(connection: Any) -> None:
        assert program.stdout is not None
        async for line in program.stdout:
            await connection.send(line.decode())

    async with serve(pass_on, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as watching:
            took = [(time.time_ns() - int(line)) / 1e6 async for line in watching]
    await program.wait()
    return took[20:]


async def _watch_all(stage: Stage, run: str) -> list[float]:
    seen = await asyncio.gather(*(_watch(stage, run) for _ in range(VIEWERS)))
    return [one for viewer in seen for one in viewer]


async def _watch(stage: Stage, run: str) -> list[float]:
    topic, took = f"log:{run}/only/1", []
    address = f"{stage.product.url.replace('http', 'ws')}/ws/live"
    headers = {"Cookie": f"sessionid={stage.cookie}", "Origin": stage.product.url}
    async with connect(address, additional_headers=headers) as socket:
        await socket.send(json.dumps({"type": "subscribe", "topic": topic, "after": 0}))
        number, joined = 0, time.time_ns()
        async for text in socket:
            number += 1
            message = json.loads(text)
            await socket.send(json.dumps({"type": "ack", "n": number}))
            took += list(_latencies(message, joined))
            if message["type"] in {"sealed", "refused"}:
                break
    return took


def _latencies(message: dict[str, Any], joined: int) -> Iterator[float]:
    """Of the lines that were printed after this viewer had joined."""
    now = time.time_ns()
    for line in message.get("lines") or ():
        if line and line[3].strip().isdigit() and int(line[3]) > joined:
            yield (now - int(line[3])) / 1e6


def _await_attempt(stage: Stage, run: str) -> None:
    while not stage.api("GET", f"/runs/{run}")["steps"][0]["attempts"]:
        time.sleep(0.02)


def _download(stage: Stage, url: str) -> float:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {stage.token}"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=30) as response:
        response.read()
    return time.perf_counter() - began


def _open_in_chromium(stage: Stage, run: str) -> tuple[list[float], int]:
    """Seconds of each opening, and the nodes of the page. In a thread: Playwright wants no running loop around it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(_drive(stage, run)))
    thread.start()
    thread.join()
    if not found:
        raise AssertionError("Chromium did not open the log")
    return found[0]


def _drive(stage: Stage, run: str) -> tuple[list[float], int]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        context.add_cookies([{"name": "sessionid", "value": stage.cookie, "url": stage.product.url}])
        page = context.new_page()
        opened = []
        for _ in range(OPENINGS):
            page.goto("about:blank")
            began = time.perf_counter()
            page.goto(f"{stage.product.url}/runs/{run}/?tab=log", wait_until="commit")
            page.locator("[data-log-rows] > *").nth(10).wait_for(state="attached")  # a function would need eval
            opened.append(time.perf_counter() - began)
        nodes = int(page.evaluate("document.querySelectorAll('*').length"))
        browser.close()
    return opened, nodes
