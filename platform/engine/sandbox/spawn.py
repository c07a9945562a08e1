"""Starting a program as the runner without copying the platform's memory first.

`subprocess` forks in full when the child is to have other ids, and that takes longer the more memory the worker has:
several milliseconds for a web framework. On Linux ids belong to a thread. One thread here takes the runner's for the
time of a start, so that the child is made by vfork and has them from its first instruction, and takes its own back.

That thread is the parent that the child dies with: it lives as long as this process.
"""

from __future__ import annotations

import ctypes
import os
import queue
import subprocess
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from engine.sandbox.access import Runner

Result = TypeVar("Result")
_CALLS = {
    "x86_64": {"setgroups": 116, "setresuid": 117, "setresgid": 119},
    "aarch64": {"setgroups": 159, "setresuid": 147, "setresgid": 149},
}
"""By number: those of libc change the ids of all threads."""
_PR_SET_DUMPABLE = 4


def start(runner: Runner, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen(command, **options)` as the runner, who gets no further groups. It ends with this process."""
    return run(runner, lambda: subprocess.Popen(command, **options))


def run(runner: Runner, what: Callable[[], Result]) -> Result:
    """Calls `what` with the runner's ids and none of our rights. It must not open what it would hand to a step."""
    return _spawner(os.getpid()).run(runner, what) if runner.dropped else what()


class _Spawner:
    """The thread, and the way to it."""

    def __init__(self) -> None:
        # Before any thread has the runner's ids: nobody of that uid may trace what shares our memory.
        _check(_libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
        self._wanted: queue.SimpleQueue[tuple[Runner, Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="spawner", daemon=True).start()

    def run(self, runner: Runner, what: Callable[[], Result]) -> Result:
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self._wanted.put((runner, what, answer))
        result, error = answer.get()
        if error is not None:
            raise error
        return cast("Result", result)

    def _serve(self) -> None:
        own = _Ids(os.getuid(), os.getgid(), os.getgroups())
        while True:
            runner, what, answer = self._wanted.get()
            result, failure = None, None
            try:
                own.leave_for(runner)
                result = what()
            except BaseException as error:  # noqa: BLE001 - it is raised again where it was asked for
                failure = error
            try:
                own.take_back()
            except BaseException:  # noqa: BLE001
                os.abort()  # nothing may go on with a thread of which it is not known who it is
            answer.put((result, failure))
            del what, result, failure, answer  # this frame lives until the next call


class _Ids:
    """The platform's own ids, which one thread leaves and takes back."""

    def __init__(self, uid: int, gid: int, groups: list[int]) -> None:
        self._uid, self._gid, self._groups = uid, gid, groups

    def leave_for(self, runner: Runner) -> None:
        """Real and effective ones only: the saved ones, by which this thread gets back, are overwritten by exec."""
        _call("setgroups", 0, None)
        _call("setresgid", runner.gid, runner.gid, -1)
        _call("setresuid", runner.uid, runner.uid, -1)

    def take_back(self) -> None:
        _call("setresuid", self._uid, self._uid, -1)
        _call("setresgid", self._gid, self._gid, -1)
        if os.getgroups() != self._groups:
            _call("setgroups", len(self._groups), (ctypes.c_uint32 * len(self._groups))(*self._groups))


def _call(name: str, *arguments: Any) -> None:
    number = _CALLS[os.uname().machine][name]
    _check(_libc().syscall(ctypes.c_long(number), *arguments))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


@cache
def _spawner(_process: int) -> _Spawner:
    """One a process: a fork takes no threads along."""
    return _Spawner()
