"""The processor time of all processes of a sandbox together: the kernel bounds each one by itself only."""

from __future__ import annotations

import os

from engine.sandbox import processes

LONGEST_GAP_S = 5.0
SHORTEST_GAP_S = 0.1
GRACE_S = 1.0
"""As the kernel gives each process: SIGXCPU comes at the limit, the end a second later."""
_SLACK_S = 0.3


class Usage:
    """Looked at seldom while the bound is far away, and more often the nearer it comes. `pid`: the first process."""

    def __init__(self, pid: int, limit_s: float, now: float) -> None:
        self._pid = pid
        self._limit = limit_s
        self._cores = max(1, len(os.sched_getaffinity(0)))
        self._own: dict[tuple[int, str], float] = {}
        self._used = 0.0
        self._looked = now
        self.next_look = now
        self._plan(now)

    def exceeded(self, now: float) -> bool:
        """Looks at the processes there are; True when the bound and its grace are over."""
        waited_for = 0.0
        for member, since, own, ended in processes.times(self._pid):
            self._own[member, since] = own
            waited_for += own + ended
        # A parent that never asks for its children leaves no trace of them, a child between two looks only there.
        self._used = max(self._used, waited_for, sum(self._own.values()))
        self._looked = now
        self._plan(now)
        return self._used > self._limit + GRACE_S

    def may_have_reached(self, now: float) -> bool:
        """Whether, by the last look and the time since then, the limit can have been reached."""
        return self._used + (now - self._looked) * self._cores + _SLACK_S >= self._limit

    def _plan(self, now: float) -> None:
        gap = (self._limit - self._used) / self._cores
        self.next_look = now + min(max(gap, SHORTEST_GAP_S), LONGEST_GAP_S)
