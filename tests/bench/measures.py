"""The rows that need no browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sqlite3
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import load
from tests.bench.bare import bare, spawned
from tests.bench.rows import Row, median, quantile
from tests.bench.stage import SECRET, STEPS, Stage
from tests.services.servers import free_port
from tests.webhooks.wire import payload, signature

ROUNDS = 3
STARTS = 20
DELIVERIES = 1600
CALLS = 2000
HTTP_CALLS = 300
SIGN_S = 3.0  # in which a worker that goes on has said so


def forty_steps(stage: Stage) -> Row:
    """One run of 40 light steps against 40 bare sandboxed starts, in turns."""
    floors, ours = [], []
    with bare() as floor:
        floor.seconds(5)
        stage.ended(stage.start("first-line"))
        for _ in range(ROUNDS):
            floors.append(floor.seconds(STEPS))
            run = stage.start("many-steps")
            ours.append(float(stage.ended(run)[run]["whole"]))
    each, least = (median(one) / STEPS * 1000 for one in (ours, floors))
    return Row(
        f"run of {STEPS} light steps",
        "s",
        median(floors),
        median(ours),
        "<= 1.15 x",
        lambda row: row.ratio <= 1.15,
        note=f"{each:.1f} ms a step from the start asked for to the run's end, {least:.1f} bare",
    )


def steps_a_second(stage: Stage) -> Row:
    """As many runs at once as there are cores, against as many bare starts at once."""
    cores = os.cpu_count() or 1
    with bare() as floor:
        floors = floor.a_second(3 * STEPS, cores)
        runs = [stage.start("many-steps") for _ in range(cores)]
        times = stage.ended(*runs)
    began = min(float(one["started"]) for one in times.values())
    took = max(float(one["finished"]) for one in times.values()) - began
    ours = STEPS * len(runs) / took
    return Row(f"steps a second, {cores} at once", "/s", floors, ours, ">= 0.80 x", lambda row: row.ratio >= 0.8)


def deliveries(stage: Stage) -> Row:
    """Deliveries accepted, durable, by one web process, against the same server doing nothing with them."""
    body = payload()
    with bare_server() as port:
        load.post_many(port, "/hooks/x", body, "", times=160)
        floor = load.post_many(port, "/hooks/x", body, "", times=DELIVERIES)
    path = f"/hooks/{stage.keys['first-line']}"
    signed = signature(body, SECRET)
    with _at_a_standstill(stage):
        load.post_many(stage.product.port, path, body, signed, times=64)
        ours = load.post_many(stage.product.port, path, body, signed, times=DELIVERIES)
        _forget_runs(stage)
    if set(ours.statuses) != {202}:
        raise AssertionError(f"the hook answered {dict(ours.statuses)}")
    return Row(
        "deliveries a second, a web process",
        "/s",
        floor.a_second,
        ours.a_second,
        ">= 0.50 x",
        lambda row: row.ratio >= 0.5,
        note=f"p50 {median(ours.latencies_ms):.0f} ms, p99 {quantile(ours.latencies_ms, 0.99):.0f} ms, 16 connections",
    )


def first_line(stage: Stage) -> Row:
    """From the first byte of a signed delivery to the first statement of its step, against a bare start."""
    body = payload()
    signed, path = signature(body, SECRET), f"/hooks/{stage.keys['first-line']}"
    floors, ours = [], []
    with bare("import time\nprint(time.time_ns())\n") as floor:
        for _ in range(STARTS):
            began = time.time_ns()
            floors.append((int(floor.run()) - began) / 1e6)
            began = time.time_ns()
            run = _deliver(stage, path, body, signed)
            stage.ended(run, within_s=60)
            ours.append((int(stage.log(run, "only").split()[0]) - began) / 1e6)
    return Row(
        "trigger to first line, p50",
        "ms",
        median(floors),
        median(ours),
        "<= 80 ms",
        lambda row: row.ours <= 80,
        note=f"p90 {quantile(ours, 0.9):.0f} ms",
    )


def tool_call(stage: Stage) -> Row:
    """A query from inside a step, against a socket with a SELECT behind it."""
    floors = _bare_calls()
    run = stage.start("calls")
    stage.ended(run)
    ours = stage.output(run, "only", "took.json")
    return Row(
        "tool call from a step, p50",
        "ms",
        median(floors),
        median(ours),
        "<= 3 x and <= 0.25 ms",
        lambda row: row.ratio <= 3 and row.ours <= 0.25,
        note=f"p99 {quantile(ours, 0.99):.2f} ms",
    )


def tool_call_http(stage: Stage) -> Row:
    """The same call from inside a step (floor) and over HTTP (ours): the socket is to be far faster."""
    run = stage.start("calls")
    stage.ended(run)
    inside = stage.output(run, "only", "took.json")
    made = stage.api("POST", "/sessions", {"kind": "api", "workflow": "calls", "tools": ["query_workflow_db"]})
    connection = http.client.HTTPConnection("127.0.0.1", stage.product.port, timeout=30)
    headers = {"Authorization": f"Bearer {made['token']}", "Content-Type": "application/json"}
    outside = []
    for _ in range(HTTP_CALLS):
        began = time.perf_counter()
        connection.request("POST", "/api/v1/tools/query_workflow_db", json.dumps({"sql": "SELECT 1 AS one"}), headers)
        answer = json.loads(connection.getresponse().read())
        outside.append((time.perf_counter() - began) * 1000)
        if not answer["success"]:
            raise AssertionError(str(answer))
    connection.close()
    return Row(
        "the same tool call over HTTP, p50",
        "ms",
        median(inside),
        median(outside),
        ">= 8 x",
        lambda row: row.ratio >= 8,
        note="here the floor is our own call from inside a step: HTTP is the slow road, and stays a road",
    )


def bare_server() -> _BareServer:
    return _BareServer()


class _BareServer:
    """daphne with an application that only answers."""

    def __enter__(self) -> int:
        port = free_port()
        self._process = spawned(
            sys.executable,
            "-m",
            "daphne",
            "-p",
            str(port),
            "-v",
            "0",
            "--no-server-name",
            "tests.bench.raw:application",
        )
        self._process.__enter__()
        _await_port(port)
        return port

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(None, None, None)


def _await_port(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def _deliver(stage: Stage, path: str, body: bytes, signed: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", stage.product.port, timeout=30)
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "pull_request",
        "X-GitHub-Delivery": str(time.time_ns()),
        "X-Hub-Signature-256": signed,
    }
    try:
        connection.request("POST", path, body, headers)
        return str(json.loads(connection.getresponse().read())["run_id"])
    finally:
        connection.close()


@contextmanager
def _at_a_standstill(stage: Stage) -> Iterator[None]:
    """Web is measured, not the runs that it starts. `up` stands still too: it would replace a worker that hangs."""
    worker = stage.product.processes("worker")
    up = int(Path(f"/proc/{worker[0]}/stat").read_text().rsplit(")", 1)[1].split()[1])
    for pid in (stopped := [up, *worker]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (clusters := stage.product.processes("cluster")):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in [*clusters, *reversed(stopped)]:
            if pid == up:
                time.sleep(SIGN_S)
            os.kill(pid, signal.SIGCONT)


def _forget_runs(stage: Stage) -> None:
    """The runs of the load are not part of the measurement; they are cancelled before a worker sees them."""
    stage.product.ask(
        """
from apps.runs import actions
from apps.runs.models import Run
for run in Run.objects.filter(status="queued"):
    actions.cancel_run(run, by="bench")
answer(True)
"""
    )


def _bare_calls() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder, "db.sqlite3"))
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE numbers (n INTEGER)")
        database.close()
        address = str(Path(folder, "socket"))
        child = os.fork()
        if child == 0:
            _serve(address, Path(folder, "db.sqlite3"))
            os._exit(0)
        try:
            return _ask(address)
        finally:
            os.waitpid(child, 0)


def _serve(address: str, path: Path) -> None:
    database = sqlite3.connect(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            while frame := _receive(connection):
                rows = database.execute(json.loads(frame)["arguments"]["sql"]).fetchall()
                _send(connection, json.dumps({"success": True, "result": rows}).encode())


def _ask(address: str) -> list[float]:
    took = []
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(address)
                break
            except OSError:
                time.sleep(0.01)
        for number in range(CALLS):
            began = time.perf_counter()
            _send(connection, json.dumps({"id": number, "arguments": {"sql": "SELECT 1 AS one"}}).encode())
            json.loads(_receive(connection))
            took.append((time.perf_counter() - began) * 1000)
    return took[100:]


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack(">I", len(data)) + data)


def _receive(connection: socket.socket) -> bytes:
    head = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL) if head else b""


Measure = Callable[[Stage], Row]
