"""What one attempt may use. Time, log, output and tool calls are the runner's to watch; the rest the kernel bounds."""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.sandbox.errors import Reason, SandboxRefused

LogOverflow = Literal["cut", "fail"]
FEWEST_PROCESSES = 8
"""bubblewrap itself needs a few: with less it fails with "Resource temporarily unavailable"."""
MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """The keys of a step's `limits`, and the platform's own bounds below them."""

    timeout_s: int = 600
    cpu_s: int = 600
    memory_mb: int = 1024
    processes: int = 128
    file_mb: int = 256
    output_mb: int = 256
    log_mb: int = 64
    log_overflow: LogOverflow = "cut"
    tool_calls: int = 20_000
    open_files: int = 512
    output_files: int = 20_000
    tmp_mb: int = 256
    shm_mb: int = 64

    @classmethod
    def effective(cls, declared: Mapping[str, int | str | None], ceiling: Limits | None = None) -> Limits:
        """The step's own limits, each at most the operator's; `cpu_s` follows `timeout_s` when it is not declared."""
        top = ceiling or cls()
        given = {name: value for name, value in declared.items() if value is not None}
        overflow: LogOverflow = "fail" if given.pop("log_overflow", "cut") == "fail" else "cut"
        numbers: dict[str, int] = {}
        for name, value in given.items():
            numbers[name] = min(int(value), int(getattr(top, name)))
        if "timeout_s" in numbers and "cpu_s" not in numbers:
            numbers["cpu_s"] = min(numbers["timeout_s"], top.cpu_s)
        return dataclasses.replace(top, log_overflow=overflow, **numbers)

    def record(self) -> dict[str, int | str]:
        return dataclasses.asdict(self)

    def resources(self) -> dict[str, tuple[int, int]]:
        """Soft and hard limits by the names of prlimit(1).

        `core` is 1, not 0: a piped core_pattern ignores 0, and 1 stops its handler. The hard limit of `cpu` is a second
        more, so that a program is told by SIGXCPU what ended it.
        """
        return {
            "nproc": (self.processes, self.processes),
            "nofile": (self.open_files, self.open_files),
            "fsize": (self.file_mb * MEGABYTE, self.file_mb * MEGABYTE),
            "core": (1, 1),
            "cpu": (self.cpu_s, self.cpu_s + 1),
            "memlock": (0, 0),
            "as": (self.memory_mb * MEGABYTE, self.memory_mb * MEGABYTE),
        }

    def prlimit_options(self, *, address_space: bool = True) -> list[str]:
        """`address_space`: whether memory is bounded process by process, for want of a group that bounds it all."""
        return [f"--{name}={soft}:{hard}" for name, (soft, hard) in self._wanted(address_space).items()]

    def impose(self, pid: int, *, address_space: bool = True) -> None:
        """Sets them on a process that runs already. OSError, or ValueError, when one cannot be set."""
        for name, pair in self._wanted(address_space).items():
            resource.prlimit(pid, getattr(resource, f"RLIMIT_{name.upper()}"), pair)

    def _wanted(self, address_space: bool) -> dict[str, tuple[int, int]]:
        return {name: pair for name, pair in self.resources().items() if address_space or name != "as"}

    def beyond_reach(self) -> list[str]:
        """The limits that lie above what this process may hand on: setting them would fail."""
        names = []
        for name, (_, hard) in self.resources().items():
            ceiling = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
            if ceiling not in {resource.RLIM_INFINITY, -1} and hard > ceiling:
                names.append(name)
        return names

    def refuse_beyond_reach(self) -> None:
        if names := self.beyond_reach():
            raise SandboxRefused(
                Reason.SANDBOX_INCOMPLETE,
                f"The limits {', '.join(names)} lie above those of the worker itself and cannot be set.",
                "Raise the worker's own (LimitNPROC, LimitNOFILE, LimitFSIZE, LimitCPU, LimitAS), or lower the step's.",
            )
