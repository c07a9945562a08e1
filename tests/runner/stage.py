"""A data folder with one workflow in it, laid out as the product does, and listeners that remember."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from engine.contract import Ask, Contract, Dependency, resolve
from engine.document import ScriptedStep
from engine.logs import LogReader
from engine.places import DataPlaces, WorkflowPlaces
from engine.runner import Ending, Stop, execute
from engine.sandbox import host
from engine.sandbox.host import HostTools

_numbers = itertools.count(1)
STEP: TypeAdapter[ScriptedStep] = TypeAdapter(ScriptedStep)


@dataclass
class Silent:
    """Listeners that wish for nothing and remember everything."""

    said: list[str] = field(default_factory=list)
    pid: int = 0
    pid_started: str = ""
    refused: bool = False
    rows: Sequence[dict[str, Any]] = ()
    wish: Callable[[], Stop | None] = lambda: None
    grown: list[tuple[int, int]] = field(default_factory=list)

    def arm(self, socket: Path) -> None:
        self.said.append("arm")

    def close_tools(self) -> None:
        self.said.append("close_tools")

    def started(self, pid: int, pid_started: str) -> None:
        self.said.append("started")
        self.pid, self.pid_started = pid, pid_started

    def log_grew(self, lines: int, size: int) -> None:
        self.grown.append((lines, size))

    def stop_wanted(self) -> Stop | None:
        return self.wish()

    def boundary_refused(self) -> bool:
        return self.refused

    def query(self, sql: str, limit: int) -> Sequence[dict[str, Any]]:
        return self.rows


def scripted(step_id: str = "work", **keys: Any) -> ScriptedStep:
    return STEP.validate_python({"id": step_id, "kind": "scripted", **keys})


@dataclass
class Stage:
    """One workflow, and ways to write its code and run a step of it."""

    data: DataPlaces
    workflow: WorkflowPlaces
    host: HostTools

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Files below code/, as a save would leave them."""
        for name, text in files.items():
            path = self.workflow.code / name
            missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
            for folder in reversed(missing):
                self.make(folder)
            path.write_bytes(text.encode() if isinstance(text, str) else text)
            self.own(path, 0o660)

    def make(self, folder: Path) -> None:
        folder.mkdir()
        self.own(folder, 0o770)

    def own(self, path: Path, mode: int) -> None:
        os.chown(path, -1, self.host.runner.gid)
        path.chmod(mode)

    def ask(self, step: ScriptedStep | None = None, **keys: Any) -> Ask:
        number = next(_numbers)
        return Ask(
            **{
                "step": step or scripted(),
                "plan_revision": 1,
                "data": self.data,
                "workflow": self.workflow,
                "host": self.host,
                "digest_key": b"k" * 32,
                "workflow_id": "workflow",
                "run_id": f"run-{number}",
                "step_run_id": f"step-run-{number}",
                "attempt_id": f"attempt-{number}",
                "attempt_number": 1,
                "entry_path": "manual",
                "group": "default",
                **keys,
            }
        )

    def resolve(self, step: ScriptedStep | None = None, **keys: Any) -> Contract:
        return resolve(self.ask(step, **keys))

    def run(
        self, code: str, *, listeners: Silent | None = None, step: Mapping[str, Any] | None = None, **keys: Any
    ) -> Ran:
        """Writes `code` as the step's main.py and runs it in a real sandbox."""
        self.write({"work/main.py": code})
        contract = self.resolve(scripted(**(step or {})), **keys)
        heard = listeners or Silent()
        return Ran(contract, execute(contract, heard), heard)

    def produced(self, name: str, data: bytes, producer: str = "fetch") -> Dependency:
        """An output of an earlier attempt."""
        places = self.workflow.attempt(f"earlier-{next(_numbers)}", producer, 1)
        places.out.mkdir(parents=True)
        for folder in (places.out, *places.out.parents):
            if folder == self.workflow.root:
                break
            self.own(folder, 0o770)
        (places.out / name).write_bytes(data)
        self.own(places.out / name, 0o660)
        return Dependency(places, name)


@dataclass(frozen=True)
class Ran:
    """What came of a run on the stage."""

    contract: Contract
    ending: Ending
    heard: Silent

    @property
    def out(self) -> Path:
        return self.contract.ask.attempt.out

    @property
    def log(self) -> str:
        with LogReader(self.contract.ask.attempt) as reader:
            return b"".join(reader.chunks()).decode("utf-8", "replace")

    def __str__(self) -> str:
        return f"{self.ending.outcome}/{self.ending.reason}: {self.ending.detail}\n{self.log}"


def set_up(root: Path) -> Stage:
    data = DataPlaces(root)
    host.prepare_data(root, host.runner(root))
    tools = host.find(root)
    workflow = data.workflow("team", "workflow")
    stage = Stage(data, workflow, tools)
    for folder in (root / "workspaces" / "team", workflow.root, workflow.code):
        stage.make(folder)
    workflow.code.chmod(0o750)
    return stage
