"""How much a step adds to the folders it may write besides its own outputs: code, learnings, knowledge base, assets.

These outlive the attempt and are full of what others left, so growth is counted, not size. Each look begins with the
one thing that costs nothing, the room that is left on the disk; only when that shrank are files looked at.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator

from engine.sandbox import tree
from engine.sandbox.files import Entry
from engine.sandbox.grants import Mount
from engine.sandbox.limits import MEGABYTE, Limits
from engine.sandbox.policy import CODE

FIRST_LOOK = 500
"""Entries of a store that are noted before the first second is over: the interpreter takes longer to start."""
_MOST_NOTED = 50_000
_DEEPEST = 64
_BLOCK = 512
_CLOCK_GRAIN_NS = 20_000_000
_OUT = "run"


class Disk:
    """Made before the launch, which closes the mounts' own descriptors. `known`: the code tree as it was then."""

    def __init__(self, mounts: Iterable[Mount], known: Iterable[Entry], limits: Limits) -> None:
        self._limits = limits
        self._known = known
        self._since = time.time_ns() - _CLOCK_GRAIN_NS
        self._held: list[int] = []
        self._code: set[str] = set()
        self._stores: list[int] = []
        self._probes: dict[int, int] = {}  # one a disk
        self._noted: dict[int, int] = {}
        for mount in mounts:
            if mount.write and mount.status == "granted":
                self._take(mount)
        self._at_start = self._looked = self._taken()

    def note(self, most: int = _MOST_NOTED) -> None:
        """Notes what is in the stores now, where that was not done. One with more entries stays as it is."""
        left = []
        for store in self._stores:
            found: dict[int, int] = {}
            try:
                for status in _below(store):
                    found[status.st_ino] = status.st_blocks
                    if len(found) > most:
                        left.append(store)
                        break
                else:
                    self._noted |= found
            except OSError:
                left.append(store)
        self._stores = left if most < _MOST_NOTED else []

    def may_have_grown(self, *, since_start: bool = True) -> bool:
        """Whether so much less room is left on the disk that it can be this step's doing."""
        before = self._at_start if since_start else self._looked
        now = self._taken()
        return (
            now[0] - before[0] > self._limits.output_mb * MEGABYTE // 2
            or now[1] - before[1] > self._limits.output_files // 2
        )

    def over(self) -> bool:
        """Whether the step added more than its limits allow, of bytes or of entries."""
        self._looked = self._taken()
        before = self._before()
        most = self._limits.output_files + len(before)
        seen: dict[int, int] = {}
        count = 0
        try:
            for handle in self._held:
                for status in _below(handle):
                    if status.st_ino not in before and status.st_ctime_ns < self._since:
                        continue  # it was there, and nobody noted it
                    count += 1
                    seen[status.st_ino] = status.st_blocks
                    if count > most:
                        return True
        except tree.TooDeep:
            return True
        return (sum(seen.values()) - sum(before.values())) * _BLOCK > self._limits.output_mb * MEGABYTE

    def close(self) -> None:
        for handle in (*self._held, *self._probes.values()):
            os.close(handle)
        self._held.clear()
        self._probes.clear()

    def _take(self, mount: Mount) -> None:
        if mount.device not in self._probes:
            self._probes[mount.device] = os.dup(mount.fd)
        if mount.store == _OUT:  # has a bound of its own
            return
        handle = os.dup(mount.fd)
        self._held.append(handle)
        if mount.store == "code":
            self._code.add(mount.dest)
        else:
            self._stores.append(handle)

    def _taken(self) -> tuple[int, int]:
        """Bytes and inodes in use on all disks concerned."""
        total = inodes = 0
        for handle in self._probes.values():
            found = os.fstatvfs(handle)
            total += (found.f_blocks - found.f_bfree) * found.f_frsize
            inodes += found.f_files - found.f_ffree
        return total, inodes

    def _before(self) -> dict[int, int]:
        """The blocks of what was there at the start and may be written, by inode."""
        found = dict(self._noted)
        whole = CODE in self._code
        for entry in self._known:
            top, _, rest = entry.relative.partition("/")
            if whole or (f"{CODE}/{top}" in self._code and (rest or entry.kind is tree.Kind.FILE)):
                found[entry.inode] = entry.blocks
        return found


def _below(handle: int) -> Iterator[os.stat_result]:
    """A file itself, or everything below a folder. TooDeep: nothing is to be hidden by depth."""
    status = os.fstat(handle)
    if not stat.S_ISDIR(status.st_mode):
        yield status
        return
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    for _, inner in tree.walk(folder, "", _DEEPEST, strict=True):
        yield inner
