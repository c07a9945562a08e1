"""Starting a sandbox as its policy says, holding its ends, and ending all of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.sandbox import processes, seccomp
from engine.sandbox.arguments import MADE_FILES, arguments
from engine.sandbox.diagnosis import diagnose
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.limits import Limits
from engine.sandbox.policy import Policy

START_TIMEOUT_S = 20.0
_MOST_STATUS = 64 * 1024


@dataclass(frozen=True)
class Exit:
    """How the command ended. `code` is None when it never ran or was killed from outside; `signal` is what ended it."""

    code: int | None
    signal: int | None
    command_ran: bool
    killed: bool


class Sandbox:
    """A running sandbox. `pid` is its first process: when that is gone, the kernel has ended all the others.

    `stdout`, `stderr`, `claims` and `status` are non-blocking descriptors to be read to their end; this object reads
    `status` itself (`note_status`), it is there to be waited on. All close with `close`.
    """

    def __init__(self, process: subprocess.Popen[bytes], ends: Mapping[str, int]) -> None:
        self._process = process
        self._ends = dict(ends)
        self._status = b""
        self._document: dict[str, int] = {}
        self._killed = False
        self._handle = -1
        self.pid = 0
        self.pid_started = ""

    @property
    def stdout(self) -> int:
        return self._ends["stdout"]

    @property
    def stderr(self) -> int:
        return self._ends["stderr"]

    @property
    def status(self) -> int:
        return self._ends["status"]

    @property
    def claims(self) -> int:
        """What the command writes to its second descriptor; -1 when it was started without a frame."""
        return self._ends.get("claims", -1)

    def release(self, frame: bytes) -> None:
        """Hands over the frame of a command that was started with its frame "later": until then its `boot.py` waits.

        Closing the sandbox without it is an empty frame. It must fit into a pipe (64 KiB).
        """
        descriptor = self._ends.pop("frame")
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, frame)
        os.close(descriptor)

    def kill(self) -> None:
        """Ends every process of the sandbox at once, however it hid. Safe to call again."""
        if not self.gone():
            self._killed = self._killed or self._process.poll() is None
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        if self._process.poll() is None:
            self._process.kill()

    def wait(self, timeout: float) -> Exit | None:
        """How it ended, None while it has not. Waits for all its processes, not only for the command."""
        deadline = time.monotonic() + timeout
        if self._handle >= 0 and not _readable(self._handle, timeout):
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        return self._exit() if self.gone() else None

    def gone(self) -> bool:
        """Whether bubblewrap has ended and its first process, and so all of them, were seen to be gone."""
        if self._process.poll() is None:
            return False
        return not self.pid or self._handle < 0 or _readable(self._handle, 0)

    def note_status(self) -> bool:
        """Reads what bubblewrap has to say of the command so far; False once it has said all."""
        more = True
        while len(self._status) < _MOST_STATUS:
            try:
                piece = os.read(self.status, 4096)
            except BlockingIOError:
                break
            if not piece:
                more = False
                break
            self._status += piece
        for line in self._status.splitlines():
            with contextlib.suppress(ValueError):
                self._document |= json.loads(line)
        return more

    def close(self) -> None:
        """Lets go of all descriptors. Does not end anything: `kill` first."""
        for descriptor in self._ends.values():
            os.close(descriptor)
        self._ends.clear()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def await_first_process(self) -> bool:
        """Waits until bubblewrap has told its first process; False when it ended before."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while "child-pid" not in self._document:
            left = deadline - time.monotonic()
            before = len(self._status)
            if left <= 0 or not _readable(self.status, left):
                return False
            self.note_status()
            if len(self._status) == before:  # the end of the pipe
                return False
        self.pid = self._document["child-pid"]
        try:
            self._handle = os.pidfd_open(self.pid)
        except OSError:
            return True  # it ended already
        self.pid_started = processes.started(self.pid) or ""
        return True

    def _exit(self) -> Exit:
        self.note_status()
        code = self._document.get("exit-code")
        if code is not None:
            ended_by = code - 128 if 128 < code <= 128 + signal.SIGRTMAX else None
            return Exit(code, ended_by, command_ran=True, killed=self._killed)
        returned = self._process.returncode
        return Exit(None, -returned if returned < 0 else None, command_ran=False, killed=self._killed)


def start(
    policy: Policy,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    frame: bytes | Literal["later"] | None = None,
    limits: Limits | None = None,
) -> Sandbox:
    """Starts `argv` inside and returns once its first process is known; SandboxRefused when nothing was started.

    The policy's descriptors are closed in any case. With a `frame` two more arguments follow `argv`: the numbers of the
    descriptors to read it from, to its end, and to write claims to. A frame that is given "later" is handed over
    by `Sandbox.release`. The calling thread must outlive the sandbox: when
    it ends, the kernel kills the sandbox.
    """
    parts = _Parts()
    try:
        command = _command(policy, parts, argv, cwd, frame, limits or policy.declared.limits)
        runner = policy.host.tools.runner
        drop = {"user": runner.uid, "group": runner.gid, "extra_groups": []} if runner.dropped else {}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=parts.pipe("stdout"),
            stderr=parts.pipe("stderr"),
            env=dict(env),
            cwd="/",
            pass_fds=parts.inherited,
            umask=0o007,
            **drop,  # type: ignore[call-overload]
        )
        sandbox = Sandbox(process, parts.keep())
    except OSError as error:
        raise SandboxRefused(Reason.SANDBOX_SETUP_FAILED, f"bubblewrap could not be started ({error}).") from None
    finally:
        parts.close()
        policy.close()
    if not sandbox.await_first_process():
        _refuse_start(sandbox)
    return sandbox


def _refuse_start(sandbox: Sandbox) -> None:
    sandbox.kill()
    sandbox.wait(START_TIMEOUT_S)
    said = b""
    with contextlib.suppress(BlockingIOError):
        said = os.read(sandbox.stderr, 4096)
    sandbox.close()
    found = diagnose(said.decode(errors="replace"))
    raise SandboxRefused(found.reason, found.cause, found.cure)


def _command(
    policy: Policy, parts: _Parts, argv: Sequence[str], cwd: str, frame: bytes | str | None, limits: Limits
) -> list[str]:
    tools = policy.host.tools
    status = parts.pipe("status")
    inside = list(argv)
    if frame is not None:
        inside += [str(parts.content(frame) if isinstance(frame, bytes) else parts.hold()), str(parts.pipe("claims"))]
    made = {dest: parts.content(text.encode()) for dest, text in MADE_FILES.items()}
    flags = arguments(policy, made, parts.content(seccomp.program()), status, cwd)
    parts.inherited += [mount.fd for mount in policy.mounts if mount.status == "granted"]
    handed = parts.content(b"".join(os.fsencode(flag) + b"\0" for flag in flags))
    prlimit = [str(tools.prlimit), *limits.prlimit_options(), "--"]
    return [*prlimit, str(tools.bwrap.path), "--args", str(handed), "--", *inside]


class _Parts:
    """The descriptors of a launch: what the sandbox inherits, and what stays here."""

    def __init__(self) -> None:
        self.inherited: list[int] = []
        self._given: list[int] = []
        self._kept: dict[str, int] = {}

    def pipe(self, name: str) -> int:
        """The writing end for the sandbox; the reading one stays here under `name`."""
        here, there = os.pipe2(os.O_CLOEXEC)
        self._kept[name] = here
        os.set_blocking(here, False)
        return self._give(there, inherit=name not in {"stdout", "stderr"})

    def hold(self) -> int:
        """A reading end for the sandbox; what it reads is written here later, to `frame`."""
        there, here = os.pipe2(os.O_CLOEXEC)
        self._kept["frame"] = here
        return self._give(there)

    def content(self, data: bytes) -> int:
        """A descriptor that reads as `data`."""
        descriptor = self._give(os.memfd_create("pulse", os.MFD_CLOEXEC))
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def keep(self) -> dict[str, int]:
        kept, self._kept = self._kept, {}
        return kept

    def close(self) -> None:
        for descriptor in (*self._given, *self._kept.values()):
            os.close(descriptor)
        self._given, self._kept = [], {}

    def _give(self, descriptor: int, *, inherit: bool = True) -> int:
        self._given.append(descriptor)
        if inherit:
            self.inherited.append(descriptor)
        return descriptor


def _readable(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(max(0.0, timeout) * 1000))
