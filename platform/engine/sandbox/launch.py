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
from functools import partial
from typing import Literal

from engine.sandbox import processes, seccomp, spawn
from engine.sandbox.access import Runner
from engine.sandbox.arguments import MADE_FILES, Handed, arguments
from engine.sandbox.cgroup import Group
from engine.sandbox.diagnosis import refusal
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.host import HostTools
from engine.sandbox.limits import Limits
from engine.sandbox.policy import Policy

START_TIMEOUT_S = 20.0
_MOST_STATUS = 64 * 1024
_TIE_POLL_S = 0.003  # the interpreter needs twice as long to come to its frame, and so waits for no look


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

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        ends: Mapping[str, int],
        runner: Runner,
        group: Group | None = None,
        unbounded: Limits | None = None,
    ) -> None:
        """`unbounded`: the limits that are still to be set on the command, before it gets its frame."""
        self._runner = runner
        self._process = process
        self._group = group
        self._unbounded = unbounded
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
        """Hands over a frame that `start` was to send "later": until then the command waits for it.

        Sends it only once the sandbox is sure to end with this process and its limits are set; else ends it and raises
        SandboxRefused. A command that ends without reading it is told by its exit.
        """
        if not self._await_tie():
            self._refuse(
                "bubblewrap did not tie the sandbox to the life of its worker.",
                "Use Linux 5.9 or newer and a bubblewrap that this release knows (0.8 to 0.11).",
            )
        self._bound()
        descriptor = self._ends.pop("frame")
        deadline = time.monotonic() + START_TIMEOUT_S
        view = memoryview(frame)
        try:
            while view and time.monotonic() < deadline:
                try:
                    view = view[os.write(descriptor, view) :]
                except BlockingIOError:  # it is larger than the pipe and the command has not read so far
                    select.select([], [descriptor], [], 1.0)
        except BrokenPipeError:
            pass
        finally:
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

    @property
    def exited(self) -> bool:
        """Whether bubblewrap has told how the command ended. What is left of its processes ends with that by itself."""
        self.note_status()
        return "exit-code" in self._document

    def breach(self) -> str | None:
        """The bound of its group that was hit, `memory` or `processes`; None without a group, or when none was."""
        return self._group.breach() if self._group else None

    def close(self) -> None:
        """Lets go of all descriptors. Does not end anything: `kill` first."""
        if self._group and self.gone():
            self._group.remove()
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
        with contextlib.suppress(OSError):  # it may have ended already
            self._handle = os.pidfd_open(self.pid)
            self.pid_started = processes.started(self.pid) or ""
        return True

    def join_group(self) -> None:
        """Puts bubblewrap and its first process into their group, then lets it go on: nothing ran outside of it."""
        if self._group is None:
            return
        gate = self._ends.pop("gate")
        try:
            self._group.take(self._process.pid, self.pid)
            os.write(gate, b"1")
        finally:
            os.close(gate)

    def _bound(self) -> None:
        """Sets the limits on the command, the one child of the first process, while it waits for its frame."""
        limits, self._unbounded = self._unbounded, None
        if limits is None:
            return
        try:
            (command,) = processes.children(self.pid)
            impose = partial(limits.impose, command, address_space=self._group is None)
            spawn.run(self._runner, impose)  # its own uid may, and needs no capability for it
        except (OSError, ValueError) as error:
            if not self._ended():
                self._refuse(
                    f"The limits of the step could not be set ({error}).", "Lower them, or raise the worker's."
                )

    def _refuse(self, detail: str, cure: str) -> None:
        self.kill()
        self.wait(START_TIMEOUT_S)
        raise SandboxRefused(Reason.SANDBOX_INCOMPLETE, detail, cure)

    def _ended(self) -> bool:
        return self._process.poll() is not None or self._handle < 0 or _readable(self._handle, 0.0)

    def _await_tie(self) -> bool:
        """Waits until the first process is tied to our life; False when it does not come to that.

        bubblewrap's first process asks to be killed with its parent late, just before it sets the filter on itself. A
        worker that dies earlier would leave it behind, running. One filter more than its parent has is the sign.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        ours = processes.filters(self._process.pid)
        with processes.Status(self.pid) as first:
            while first.filters() <= ours:
                if self._ended():
                    return True  # nothing is left that could outlive us
                if time.monotonic() > deadline:
                    return False
                time.sleep(_TIE_POLL_S)
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
) -> Sandbox:
    """Starts `argv` inside and returns once its first process is known; SandboxRefused when nothing was started.

    The policy's descriptors are closed in any case. With a `frame` two more arguments follow `argv`: the numbers of the
    descriptors to read it from, to its end, and to write claims to. A frame that is given "later" is handed over by
    `Sandbox.release`; a command that waits for it, and takes an empty one for "do nothing", never runs unwatched.
    The kernel kills it when this process ends; where no other uid is taken, already when the calling thread does.
    """
    parts = _Parts()
    try:
        bounds = policy.declared.limits
        bounds.refuse_beyond_reach()
        group = Group(policy.host.tools.cgroup, bounds) if policy.host.tools.cgroup else None
        late = frame == "later" and processes.tells_children()
        whole = [*argv, *(parts.talk() if frame is not None else [])]
        command = _command(policy, parts, None if late else bounds, whole, cwd)
        process = _spawn(command, env, policy.host.tools, parts)
        sandbox = Sandbox(process, parts.keep(), policy.host.tools.runner, group, bounds if late else None)
    except OSError as error:
        raise SandboxRefused(Reason.SANDBOX_SETUP_FAILED, f"bubblewrap could not be started ({error}).") from None
    finally:
        parts.close()
        policy.close()
    try:
        if not sandbox.await_first_process():
            _refuse_start(sandbox)
        sandbox.join_group()
    except OSError as error:
        _give_up(sandbox)
        raise SandboxRefused(Reason.SANDBOX_INCOMPLETE, f"The sandbox's group could not be set ({error}).") from None
    if isinstance(frame, bytes):
        sandbox.release(frame)
    return sandbox


def _spawn(command: list[str], env: Mapping[str, str], tools: HostTools, parts: _Parts) -> subprocess.Popen[bytes]:
    return spawn.start(
        tools.runner,
        command,
        executable=tools.bwrap.path,
        stdin=subprocess.DEVNULL,
        stdout=parts.pipe("stdout"),
        stderr=parts.pipe("stderr"),
        env=dict(env),
        cwd="/",
        pass_fds=parts.inherited,
        umask=0o007,
    )


def _give_up(sandbox: Sandbox) -> bytes:
    """Ends the sandbox; what it said before."""
    sandbox.kill()
    sandbox.wait(START_TIMEOUT_S)
    said = b""
    with contextlib.suppress(BlockingIOError):
        said = os.read(sandbox.stderr, 4096)
    sandbox.close()
    return said


def _refuse_start(sandbox: Sandbox) -> None:
    said = _give_up(sandbox)
    raise refusal(said.decode(errors="replace"))


def _command(policy: Policy, parts: _Parts, limits: Limits | None, argv: Sequence[str], cwd: str) -> list[str]:
    """bubblewrap, then prlimit *inside*, then the command: a limit of processes that is set outside would count all
    sandboxes of the runner's uid together, since the kernel checks it once more for each namespace around.

    Without `limits` there is no prlimit: they are set on the command itself while it waits for its frame.
    """
    tools = policy.host.tools
    in_group = tools.cgroup is not None
    status = parts.pipe("status")
    made = {dest: parts.content(text.encode()) for dest, text in MADE_FILES.items()}
    gate = parts.gate("gate") if in_group else None
    flags = arguments(policy, Handed(made, parts.content(seccomp.program()), status, gate), cwd)
    parts.inherited += [mount.fd for mount in policy.mounts if mount.status == "granted"]
    handed = parts.content(os.fsencode("\0".join([*flags, ""])))
    limit = [str(tools.prlimit), *limits.prlimit_options(address_space=not in_group), "--"] if limits else []
    return [processes.MARK, "--args", str(handed), "--", *limit, *argv]


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

    def gate(self, name: str) -> int:
        """The reading end for the sandbox; the writing one stays here under `name`."""
        there, here = os.pipe2(os.O_CLOEXEC)
        self._kept[name] = here
        os.set_blocking(here, False)
        return self._give(there)

    def talk(self) -> list[str]:
        """The ends of the command for its frame and its claims, as arguments."""
        return [str(self.gate("frame")), str(self.pipe("claims"))]

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
