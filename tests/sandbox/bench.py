"""A workflow on disk and a way to run Python in its sandbox: plain functions for the tests here."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import select
import time
from dataclasses import dataclass, field
from pathlib import Path

from engine.places import AttemptPlaces, DataPlaces, WorkflowPlaces
from engine.sandbox import host as hosts
from engine.sandbox import launch, policy
from engine.sandbox.launch import Exit, Sandbox
from engine.sandbox.limits import Limits

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "STEP_ID": "gate"}


@dataclass
class Ended:
    exit: Exit
    stdout: str
    stderr: str

    def json(self) -> dict[str, object]:
        assert self.exit.code == 0, self.stderr
        found = json.loads(self.stdout)
        assert isinstance(found, dict)
        return found


@dataclass
class Bench:
    """One data folder with workflows, as the platform lays it out."""

    root: Path
    tools: hosts.HostTools
    runtime: Path
    workflow: WorkflowPlaces
    number: int = 0
    more: dict[str, object] = field(default_factory=dict)

    @property
    def runner(self) -> hosts.Runner:
        return self.tools.runner

    def new_attempt(self) -> AttemptPlaces:
        self.number += 1
        attempt = self.workflow.attempt("run-1", "gate", self.number)
        attempt.root.mkdir(parents=True)
        return attempt

    def host(self, **changes: object) -> policy.Host:
        facts: dict[str, object] = {
            "data_root": self.root,
            "runtime": self.runtime,
            "workflow": self.workflow,
            "attempt": self.new_attempt(),
            "library": self.root / "lib" / "release",
            "tools": self.tools,
        }
        return policy.Host(**(facts | self.more | changes))  # type: ignore[arg-type]

    def declared(self, *, access: dict[str, str] | None = None, **changes: object) -> policy.Declared:
        base = policy.Declared("gate", policy.standard_grants(access or {}))
        return dataclasses.replace(base, **changes)  # type: ignore[arg-type]

    def start(
        self,
        script: str,
        *,
        declared: policy.Declared | None = None,
        host: policy.Host | None = None,
        env: dict[str, str] | None = None,
        frame: bytes | None = None,
        argv: list[str] | None = None,
    ) -> Sandbox:
        built = policy.build(declared or self.declared(), host or self.host())
        command = argv or [str(self.tools.interpreter.path), "-I", "-u", "-B", "-c", script]
        return launch.start(built, argv=command, env=env or ENV, cwd="/pulse/code/gate", frame=frame)

    def run(self, script: str, *, timeout: float = 30, limits: Limits | None = None, **options: object) -> Ended:
        if limits is not None:
            options["declared"] = self.declared(limits=limits)
        sandbox = self.start(script, **options)  # type: ignore[arg-type]
        try:
            return finish(sandbox, timeout)
        finally:
            sandbox.kill()
            sandbox.wait(5)
            sandbox.close()


def finish(sandbox: Sandbox, timeout: float = 30, most: int = 4_000_000) -> Ended:
    """Reads both streams to their end, then waits for the exit."""
    streams = {sandbox.stdout: b"", sandbox.stderr: b""}
    open_ends = set(streams)
    deadline = time.monotonic() + timeout
    while open_ends and time.monotonic() < deadline:
        ready, _, _ = select.select(list(open_ends), [], [], max(0.0, deadline - time.monotonic()))
        for end in ready:
            piece = os.read(end, 65536)
            if not piece:
                open_ends.discard(end)
            elif len(streams[end]) < most:
                streams[end] += piece
    ended = sandbox.wait(max(0.1, deadline - time.monotonic()))
    assert ended is not None, f"still running after {timeout} s: {streams}"
    out, err = streams[sandbox.stdout], streams[sandbox.stderr]
    return Ended(ended, out.decode(errors="replace"), err.decode(errors="replace"))


def lay_out(root: Path) -> Bench:
    """A data folder for the uid that runs steps, with the workflow `wf` and its steps `gate` and `review`."""
    tools = hosts.find(
        root, runner_uid=70_000 + secrets.randbelow(1_000_000)
    )  # nobody else's: tests count its processes
    hosts.prepare_data(root, tools.runner)
    release = root / "lib" / "release"
    release.mkdir()
    (release / "boot.py").write_text("print('boot')\n")
    release.chmod(0o755)
    workflow = DataPlaces(root).workflow("team", "wf")
    for step in ("gate", "review", "shared"):
        folder = workflow.code / step
        folder.mkdir(parents=True)
        (folder / "main.py").write_text(f"print('{step}')\n")
    return Bench(root, tools, hosts.runtime_folder(root, str(root / "sockets")), workflow)
