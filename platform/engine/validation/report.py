"""What came of a validation: one line a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """`faulty`: the rule itself could not be applied; that says nothing about the step's output."""

    PASSED = "passed"
    FAILED = "failed"
    FAULTY = "faulty"


@dataclass(frozen=True)
class Check:
    """`path` is a file and, behind a blank, a JSONPath in it; or `db` and the name of the query."""

    name: str
    path: str
    status: Status
    message: str = ""

    def record(self) -> dict[str, str]:
        return {"name": self.name, "path": self.path, "status": self.status.value, "message": self.message}


@dataclass(frozen=True)
class ValidationReport:
    checks: tuple[Check, ...] = ()

    @property
    def status(self) -> Status:
        """Failed when a check failed; else faulty when a rule was; else passed."""
        found = {check.status for check in self.checks}
        return next((status for status in (Status.FAILED, Status.FAULTY) if status in found), Status.PASSED)

    @property
    def passed(self) -> bool:
        return self.status is Status.PASSED

    def record(self) -> dict[str, object]:
        return {"status": self.status.value, "checks": [check.record() for check in self.checks]}

    def summary(self) -> str:
        """For people: what did not hold, one line each."""
        bad = [check for check in self.checks if check.status is not Status.PASSED]
        return "\n".join(f"{check.path}: {check.message}" for check in bad)

    def __add__(self, other: ValidationReport) -> ValidationReport:
        return ValidationReport(self.checks + other.checks)
