"""What one attempt may use. Time, log, output and tool calls are the runner's to watch; the rest the kernel bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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

    def prlimit_options(self, *, address_space: bool = True) -> list[str]:
        """Options for prlimit(1). `core` is 1, not 0: a piped core_pattern ignores 0, and 1 stops its handler."""
        options = [
            f"--nproc={self.processes}",
            f"--nofile={self.open_files}",
            f"--fsize={self.file_mb * MEGABYTE}",
            "--core=1",
            f"--cpu={self.cpu_s}",
            "--memlock=0",
        ]
        if address_space:
            options.append(f"--as={self.memory_mb * MEGABYTE}")
        return options
