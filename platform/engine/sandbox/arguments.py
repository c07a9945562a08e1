"""From a policy to bubblewrap's arguments: explicit namespaces, flat binds by descriptor, everything else read-only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.limits import MEGABYTE
from engine.sandbox.policy import CODE, IN, Policy

INSIDE_UID = 1000
HOSTNAME = "step"
ISOLATION = (
    # Each namespace by its own name: --unshare-all takes some of them only if it can, and would run weaker without.
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup"),
    *("--disable-userns", "--assert-userns-disabled", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
    *("--hostname", HOSTNAME, "--uid", str(INSIDE_UID), "--gid", str(INSIDE_UID)),
)
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FILES = ("/etc/ssl/certs", "/etc/ld.so.cache", "/etc/alternatives")
MADE_FILES = {
    "/etc/passwd": f"step:x:{INSIDE_UID}:{INSIDE_UID}:step:/tmp:/bin/sh\n",
    "/etc/group": f"step:x:{INSIDE_UID}:\n",
    "/etc/hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_NO_INTERPRETER_BELOW = ("/pulse", "/run", "/tmp", "/dev", "/proc", "/etc", "/sys", "/root", "/home")  # noqa: S108


@dataclass(frozen=True)
class Handed:
    """The descriptors that bubblewrap is handed besides those of the mounts; `gate` is what it waits for, if at all."""

    made_files: Mapping[str, int]
    seccomp: int
    status: int
    gate: int | None = None


def arguments(policy: Policy, handed: Handed, chdir: str) -> list[str]:
    """The arguments, to be handed over on a descriptor of their own."""
    limits = policy.declared.limits
    result = [*ISOLATION, *_folders(policy), *_system(policy.host.tools.interpreter_root)]
    for dest, descriptor in handed.made_files.items():
        result += ["--perms", "0444", "--file", str(descriptor), dest]
    result += ["--symlink", "/usr/share/zoneinfo/UTC", "/etc/localtime", "--proc", "/proc", "--dev", "/dev"]
    result += ["--size", str(limits.shm_mb * MEGABYTE), "--tmpfs", "/dev/shm"]  # noqa: S108 - inside
    result += ["--size", str(limits.tmp_mb * MEGABYTE), "--tmpfs", "/tmp"]  # noqa: S108 - inside
    for mount in policy.mounts:
        if mount.status == "granted":
            result += ["--bind-fd" if mount.write else "--ro-bind-fd", str(mount.fd), mount.dest]
    for place in ("/proc", "/dev", "/"):
        result += ["--remount-ro", place]
    if handed.gate is not None:
        result += ["--block-fd", str(handed.gate)]
    return [*result, "--chdir", chdir, "--seccomp", str(handed.seccomp), "--json-status-fd", str(handed.status)]


def _folders(policy: Policy) -> Iterator[str]:
    """Every parent of a destination, in bubblewrap's own root: none of them is a folder that a step can write."""
    parents = {"/etc/ssl", CODE, IN}
    parents.update(mount.dest.rpartition("/")[0] for mount in policy.mounts if mount.status == "granted")
    wanted: set[str] = set()
    for parent in parents:
        folder = parent
        while folder:
            wanted.add(folder)
            folder = folder.rpartition("/")[0]
    for folder in sorted(wanted):
        yield from ("--perms", "0755", "--dir", folder)


def _system(interpreter_root: Path | None) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in SYSTEM_LINKS:
        if os.path.islink(f"/{name}"):
            yield from ("--symlink", os.readlink(f"/{name}"), f"/{name}")
        elif os.path.isdir(f"/{name}"):
            yield from ("--ro-bind", f"/{name}", f"/{name}")
    for path in SYSTEM_FILES:
        yield from ("--ro-bind-try", path, path)
    if interpreter_root is not None:
        place = str(interpreter_root)
        if any(PurePosixPath(place).is_relative_to(other) or place == "/" for other in _NO_INTERPRETER_BELOW):
            raise SandboxRefused(
                Reason.INTERPRETER_UNREACHABLE, f"{place} is no place for an interpreter of steps.", "Set PULSE_PYTHON."
            )
        yield from ("--ro-bind", place, place)
