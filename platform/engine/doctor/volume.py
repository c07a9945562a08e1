"""Where the data folder lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.sandbox.checks import Check

_FLEETING = {"tmpfs", "ramfs", "overlay"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"}


@dataclass(frozen=True)
class Mount:
    place: str
    kind: str
    source: str
    options: frozenset[str]


def checks(data_root: Path, release: Path) -> Iterator[Check]:
    real, home = Path(os.path.realpath(data_root)), Path(os.path.realpath(release))
    yield Check(
        "data lies outside the release",
        not real.is_relative_to(home),
        f"{real} lies in {home}: replacing the release could take the data with it",
        "For production set PULSE_DATA to a folder elsewhere, such as /var/lib/pulse.",
        required=False,
    )
    mount = mount_of(real)
    note = f"{mount.place} ({mount.kind} on {mount.source})"
    fleeting = "it is lost with the container or at the next start of the machine"
    cure = "Put PULSE_DATA on a disk of this machine."
    lasting = mount.kind not in _FLEETING
    yield Check("data lies on a lasting disk", lasting, fleeting, cure, required=False, note=note)
    remote = "SQLite and Unix sockets do not work across a network"
    yield Check("data lies on a disk of this machine", mount.kind not in _REMOTE, remote, cure, note=note)
    missing = sorted({"nosuid", "nodev"} - mount.options)
    cause = f"it is mounted without {' and '.join(missing)}"
    cure = "Give the data a volume of its own, mounted nosuid,nodev."
    yield Check("options of the data volume", not missing, cause, cure, required=False, note=note)


def mount_of(path: Path) -> Mount:
    """The mount that holds the path, from /proc/self/mountinfo."""
    best = Mount("/", "unknown", "unknown", frozenset())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, source, more) = left.split(), right.split(" ", 2)
        place = fields[4].encode().decode("unicode_escape")
        if path.is_relative_to(place) and len(place) >= len(best.place):
            best = Mount(place, kind, source, frozenset([*fields[5].split(","), *more.split(",")]))
    return best
