"""What the canary runs inside its sandbox: tries what must not work, and prints what it found as JSON.

Runs with the interpreter of steps and nothing but the standard library. Each probe returns None when all is as it has
to be, else what it saw.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
import termios
from collections.abc import Callable
from functools import partial

_LIBC = ctypes.CDLL(None, use_errno=True)
_CALLS = {"x86_64": {"keyctl": 250, "io_uring_setup": 425, "bpf": 321, "unshare": 272, "mount": 165, "ptrace": 101}}
_CALLS["aarch64"] = {"keyctl": 219, "io_uring_setup": 425, "bpf": 280, "unshare": 97, "mount": 40, "ptrace": 117}
_PROBES: dict[str, Callable[[dict[str, str]], str | None]] = {}


def main(facts: dict[str, str]) -> None:
    found = {}
    for name, probe in _PROBES.items():
        try:
            found[name] = probe(facts)
        except OSError as error:
            found[name] = f"{type(error).__name__}: {error}"
    if os.fork() == 0:  # a daemon that must not outlive the sandbox
        os.setsid()
        os.closerange(0, 64)
        while True:
            os.read(os.pipe()[0], 1)
    sys.stdout.write(json.dumps(found))


def _probe(function: Callable[[dict[str, str]], str | None]) -> None:
    _PROBES[function.__name__.replace("_", " ")] = function


def _refused(numbers: set[int], action: Callable[[], object], what: str) -> str | None:
    try:
        action()
    except OSError as error:
        return None if error.errno in numbers else f"{what}: {error}"
    return f"{what} worked"


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags, 0o600))


@_probe
def own_namespaces(facts: dict[str, str]) -> str | None:
    same = [
        kind for kind in ("user", "pid", "net", "ipc", "uts") if os.readlink(f"/proc/self/ns/{kind}") == facts[kind]
    ]
    return f"the {' and '.join(same)} namespace is the host's" if same else None


@_probe
def files_outside_are_absent(facts: dict[str, str]) -> str | None:
    os.symlink(facts["outside"], "/pulse/run/out/link")
    for path in (facts["outside"], "/pulse/run/out/link"):
        problem = _refused({errno.ENOENT}, partial(_open, path, os.O_RDONLY), f"reading {path}")
        if problem:
            return problem
    return None


@_probe
def own_output_is_writable(facts: dict[str, str]) -> str | None:
    with open("/pulse/run/out/written", "w") as file:
        file.write(facts["word"])
    return None


@_probe
def everything_else_is_read_only(facts: dict[str, str]) -> str | None:
    del facts
    closed = {errno.EROFS, errno.EACCES, errno.EPERM}
    for path in ("/x", "/usr/x", "/etc/passwd", "/pulse/x", "/pulse/code/x", "/pulse/lib/x", "/dev/x", "/run/x"):
        problem = _refused(closed, partial(_open, path, os.O_WRONLY | os.O_CREAT), f"writing {path}")
        if problem:
            return problem
    return None


@_probe
def sysctls_are_closed(facts: dict[str, str]) -> str | None:
    del facts
    closed = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT}
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"):
        problem = _refused(closed, partial(_open, path, os.O_WRONLY), path)
        if problem:
            return problem
    return None


@_probe
def system_calls_are_filtered(facts: dict[str, str]) -> str | None:
    for name, number in _CALLS[facts["machine"]].items():
        ctypes.set_errno(0)
        _LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 5)
        if ctypes.get_errno() != errno.EPERM:
            return f"{name} is not filtered ({os.strerror(ctypes.get_errno())})"
    return None


@_probe
def socket_families_are_filtered(facts: dict[str, str]) -> str | None:
    del facts
    for name, family in (("vsock", 40), ("netlink", 16), ("packet", 17), ("alg", 38)):
        problem = _refused({errno.EAFNOSUPPORT}, partial(socket.socket, family, socket.SOCK_DGRAM), name)
        if problem:
            return problem
    return None


@_probe
def set_uid_files_are_refused(facts: dict[str, str]) -> str | None:
    del facts
    with open("/pulse/run/out/plain", "w"):
        pass
    return _refused({errno.EPERM}, partial(os.chmod, "/pulse/run/out/plain", 0o4755), "chmod 4755") or _refused(
        {errno.EPERM}, lambda: os.mknod("/pulse/run/out/made", 0o104755), "mknod 4755"
    )


@_probe
def typing_into_terminals_is_refused(facts: dict[str, str]) -> str | None:
    del facts
    _, terminal = os.openpty()
    return _refused({errno.EPERM}, lambda: fcntl.ioctl(terminal, termios.TIOCSTI, b"x"), "TIOCSTI")


@_probe
def no_network(facts: dict[str, str]) -> str | None:
    del facts

    def connect() -> None:
        with socket.socket() as client:
            client.settimeout(2)
            client.connect(("192.0.2.1", 443))

    return _refused({errno.ENETUNREACH}, connect, "connecting to 192.0.2.1")


@_probe
def no_names_are_resolved(facts: dict[str, str]) -> str | None:
    del facts
    try:
        socket.getaddrinfo("example.com", 443)
    except socket.gaierror:
        return None
    return "example.com was resolved"


@_probe
def tool_socket_is_reachable(facts: dict[str, str]) -> str | None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect("/run/pulse/tools.sock")
        client.sendall(facts["word"].encode())
    return _refused({errno.EROFS, errno.EBUSY, errno.EACCES}, lambda: os.unlink("/run/pulse/tools.sock"), "unlink")


@_probe
def first_process_shows_only_names_of_the_step(facts: dict[str, str]) -> str | None:
    with open("/proc/1/environ", "rb") as file:
        names = {line.split(b"=")[0].decode() for line in file.read().split(b"\0") if line}
    extra = names - set(facts["names"].split()) - {"PWD"}
    return f"it shows {' '.join(sorted(extra))}" if extra else None


@_probe
def no_other_descriptors(facts: dict[str, str]) -> str | None:
    del facts
    found = []
    for number in range(3, 256):
        try:
            os.fstat(number)
        except OSError:
            continue
        if not os.get_inheritable(number):
            continue  # opened by this interpreter itself
        found.append(str(number))
    return f"descriptors {' '.join(found)} are open" if found else None


@_probe
def temporary_space_is_bounded(facts: dict[str, str]) -> str | None:
    size = int(facts["tmp_mb"])
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108 - inside
        for number in range(size * 2 + 1):  # files of half a megabyte: a file may have one
            with open(f"{folder}/fill{number}", "wb") as file:
                if _fill(file.fileno(), 2, "went on") is None:
                    break
        else:
            return f"{folder} took more than {size} MB"
    return None


def _fill(descriptor: int, quarters: int, problem: str) -> str | None:
    """Writes quarters of a megabyte; None when the kernel stops it."""
    piece = b"\0" * 262144
    try:
        while quarters:
            quarters -= os.write(descriptor, piece) == len(piece)
    except OSError as error:
        return None if error.errno in {errno.ENOSPC, errno.EFBIG} else str(error)
    return problem


@_probe
def file_size_is_bounded(facts: dict[str, str]) -> str | None:
    with open("/pulse/run/out/large", "wb") as file:
        size = int(facts["file_mb"])
        problem = _fill(file.fileno(), size * 4 + 1, f"a file grew beyond {size} MB")
    os.unlink("/pulse/run/out/large")
    return problem


@_probe
def processes_are_bounded(facts: dict[str, str]) -> str | None:
    most = int(facts["processes"])
    children: list[int] = []
    reader, writer = os.pipe()
    try:
        while len(children) <= most:
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            children.append(child)
    except BlockingIOError:
        return None
    finally:
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
    return f"{len(children)} processes were started, {most} are allowed"


if __name__ == "__main__":
    frame, claims = map(int, sys.argv[2:4])
    with open(frame, "rb") as file:
        watched = file.read()
    os.close(claims)
    given = json.loads(sys.argv[1])
    if watched == given["word"].encode():
        main(given)
