"""Where files lie under the data folder. Names only: opening them is the business of `engine.sandbox.files`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class AttemptPlaces:
    """The folder of one attempt: what the step may see lies in `out` and `inputs`, the rest is the platform's."""

    root: Path

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def inputs(self) -> Path:
        return self.root / "in"

    @property
    def log(self) -> Path:
        return self.root / "log.bin"

    @property
    def log_index(self) -> Path:
        return self.root / "log.idx"


@dataclass(frozen=True)
class WorkflowPlaces:
    """The folder of one workflow."""

    root: Path

    @property
    def code(self) -> Path:
        return self.root / "code"

    @property
    def learnings(self) -> Path:
        return self.root / "learnings"

    @property
    def knowledgebase(self) -> Path:
        return self.root / "knowledgebase"

    @property
    def assets(self) -> Path:
        return self.root / "assets"

    @property
    def database(self) -> Path:
        return self.root / "db" / "workflow.sqlite3"

    @property
    def migrations(self) -> Path:
        return self.root / "db" / "migrations"

    @property
    def snapshots(self) -> Path:
        return self.root / "db" / "snapshots"

    @property
    def requirements(self) -> Path:
        return self.root / "requirements.txt"

    def delivery(self, run_id: str) -> Path:
        return self.root / "deliveries" / f"{run_id}.json"

    def run(self, run_id: str) -> Path:
        return self.root / "runs" / run_id

    def attempt(self, run_id: str, step_id: str, number: int) -> AttemptPlaces:
        return AttemptPlaces(self.run(run_id) / step_id / str(number))


@dataclass(frozen=True)
class DataPlaces:
    """The data folder: `PULSE_DATA`."""

    root: Path

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def library(self) -> Path:
        """Where releases of the `pulse` library and `boot.py` are installed, one folder a release."""
        return self.root / "lib"

    @property
    def environments(self) -> Path:
        """Dependency environments with their interpreter, one folder a (interpreter, requirements) digest."""
        return self.root / "environments"

    def workflow(self, team_id: str, workflow_id: str) -> WorkflowPlaces:
        return WorkflowPlaces(self.root / "workspaces" / team_id / workflow_id)
