"""One grant: found below its root without following a link, opened by descriptor, checked, ready to be mounted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.sandbox.access import ENTER, READ, WRITE, Runner
from engine.sandbox.beneath import leads_outside, open_beneath
from engine.sandbox.errors import FileRefused, Reason, SandboxRefused
from engine.sandbox.files import Beneath, check_name

Kind = Literal["folder", "file", "socket", "any"]


@dataclass(frozen=True)
class Wish:
    """A mount that is to be made: `relative` below `root` appears at `dest`."""

    store: str
    root: Path
    relative: str
    dest: str
    write: bool = False
    kind: Kind = "folder"
    required: bool = False


@dataclass(frozen=True)
class Mount:
    """A wish that was resolved. `status` is `skipped` for an optional one that is not there; it grants nothing."""

    store: str
    source: str
    dest: str
    write: bool
    status: Literal["granted", "skipped"]
    device: int = 0
    inode: int = 0
    created: bool = False
    real: Path = Path()
    handle: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def fd(self) -> int:
        return self.handle[0]

    def close(self) -> None:
        while self.handle:
            os.close(self.handle.pop())

    def record(self) -> dict[str, str | bool]:
        return {
            "store": self.store,
            "source": self.source,
            "dest": self.dest,
            "mode": "read-write" if self.write else "read",
            "inode": f"{self.device}:{self.inode}",
            "created_by_platform": self.created,
            "status": self.status,
        }


def below(root: Path, path: Path) -> str:
    """`path` relative to `root`, by its spelling; a path that is not below it escapes its root."""
    try:
        return check_name(path.relative_to(root).as_posix())
    except (ValueError, FileRefused):
        raise SandboxRefused(Reason.GRANT_ESCAPES_ROOT, f"{path} does not lie below {root}.") from None


def resolve(wish: Wish, runner: Runner, data_root: Path, *, create: bool = True) -> Mount:
    """The wish, opened and checked; SandboxRefused says what is wrong with it."""
    root = _open_root(wish, data_root)
    created = False
    try:
        opened = _open(root, wish)
        if opened is None and wish.write and wish.kind == "folder" and create:
            created = _create(wish, runner)
            opened = _open(root, wish)
        if opened is None:
            return _missing(wish)
    finally:
        os.close(root)
    try:
        if wish.write:
            _adopt(opened, runner)
        status = os.fstat(opened)
        real = Path(os.readlink(f"/proc/self/fd/{opened}"))
        _check(wish, status, real, runner)
    except BaseException:
        os.close(opened)
        raise
    return Mount(
        wish.store,
        wish.relative,
        wish.dest,
        wish.write,
        "granted",
        status.st_dev,
        status.st_ino,
        created,
        real,
        [opened],
    )


def refuse_nested(mounts: Iterable[Mount]) -> None:
    """A destination below another would let a link planted there lead the next launch out of the sandbox."""
    taken: set[str] = set()
    for mount in mounts:
        if mount.dest in taken:
            raise SandboxRefused(Reason.POLICY_NESTED_MOUNT, f"Two mounts are to appear at {mount.dest}.")
        taken.add(mount.dest)
    for dest in taken:
        upper = dest
        while upper := upper.rpartition("/")[0]:
            if upper in taken:
                raise SandboxRefused(Reason.POLICY_NESTED_MOUNT, f"{dest} would be mounted below {upper}.")
        if not dest.startswith(("/pulse/", "/run/pulse/")) or ".." in dest.split("/"):
            raise SandboxRefused(Reason.POLICY_NESTED_MOUNT, f"{dest} is no place for a mount.")


def refuse_conflicts(mounts: Iterable[Mount]) -> None:
    """One source with two accesses: never the widest wins."""
    seen: dict[tuple[int, int], Mount] = {}
    for mount in mounts:
        if mount.status == "granted":
            other = seen.setdefault((mount.device, mount.inode), mount)
            if other.write != mount.write:
                raise SandboxRefused(
                    Reason.POLICY_CONFLICT,
                    f"{mount.source} is granted twice, to be read at {min(other, mount, key=_writes).dest} and to be"
                    f" written at {max(other, mount, key=_writes).dest}.",
                )


def refuse_forbidden(mounts: Iterable[Mount], closed: Iterable[Path], kept: Iterable[Path]) -> None:
    """Nothing in a `closed` folder is ever mounted, nor anything that is or holds one of these or a `kept` path."""
    closed_places = [os.path.realpath(place) for place in closed]
    places = [*closed_places, *(os.path.realpath(place) for place in kept)]
    for mount in mounts:
        real = str(mount.real)
        if mount.status == "granted" and (
            any(_holds(real, place) for place in places) or any(_holds(place, real) for place in closed_places)
        ):
            raise SandboxRefused(
                Reason.POLICY_FORBIDDEN_PATH, f"{mount.source} is, or holds, what no step may see ({mount.real})."
            )


def _holds(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _writes(mount: Mount) -> bool:
    return mount.write


def _open_root(wish: Wish, data_root: Path) -> int:
    real = os.path.realpath(wish.root)
    if wish.kind != "socket" and not _holds(os.path.realpath(data_root), real):
        raise SandboxRefused(Reason.GRANT_ESCAPES_ROOT, f"{wish.root} does not lie in the data folder {data_root}.")
    try:
        return os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxRefused(Reason.GRANT_UNREADABLE, f"{wish.root} cannot be opened ({error.strerror}).") from None


def _open(root: int, wish: Wish) -> int | None:
    try:
        return open_beneath(root, wish.relative, os.O_PATH)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EXDEV}:
            if leads_outside(root, wish.relative):
                raise SandboxRefused(
                    Reason.GRANT_ESCAPES_ROOT,
                    f"A link in {wish.relative} leads out of {wish.root}.",
                    "Remove the link.",
                ) from None
            raise SandboxRefused(
                Reason.GRANT_SYMLINK, f"There is a link in {wish.relative}.", "Put the folder or file itself there."
            ) from None
        raise SandboxRefused(Reason.GRANT_UNREADABLE, f"{wish.relative} cannot be opened ({error.strerror}).") from None


def _create(wish: Wish, runner: Runner) -> bool:
    try:
        with Beneath(os.path.realpath(wish.root), group=runner.gid if runner.dropped else None) as folder:
            folder.make_folder(wish.relative, 0o770)
    except (FileRefused, OSError):
        return False
    return True


def _missing(wish: Wish) -> Mount:
    if wish.write:
        raise SandboxRefused(
            Reason.GRANT_WRITE_MISSING,
            f"{wish.relative} is granted to be written and is not there, nor could it be made.",
        )
    if wish.required and wish.store == "socket":
        raise SandboxRefused(Reason.TOOLS_UNAVAILABLE, "The socket for tool calls is not there.")
    if wish.required:
        raise SandboxRefused(Reason.GRANT_READ_MISSING, f"{wish.relative} is needed and is not there.")
    return Mount(wish.store, wish.relative, wish.dest, wish.write, "skipped")


def _adopt(opened: int, runner: Runner) -> None:
    """What the platform owns and a step is to write gets the runner's group: this very inode, nothing below it."""
    status = os.fstat(opened)
    wanted = 0o070 if stat.S_ISDIR(status.st_mode) else 0o060
    if (
        not runner.dropped
        or status.st_uid != os.geteuid()
        or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode))
    ):
        return
    if status.st_gid != runner.gid or status.st_mode & wanted != wanted:
        os.chown(f"/proc/self/fd/{opened}", -1, runner.gid)
        os.chmod(f"/proc/self/fd/{opened}", stat.S_IMODE(status.st_mode) | wanted)


def _check(wish: Wish, status: os.stat_result, real: Path, runner: Runner) -> None:
    def refuse(why: str) -> SandboxRefused:
        return SandboxRefused(Reason.GRANT_UNREADABLE, f"{wish.relative} {why}.", "Mend its owner, mode or kind.")

    kind, wanted = _kind(status.st_mode)
    if kind is None or (wish.kind != kind and not (wish.kind == "any" and kind != "socket")):
        raise refuse(f"is not a {'file or folder' if wish.kind == 'any' else wish.kind}")
    if status.st_uid not in {0, os.geteuid(), runner.uid}:
        raise refuse(f"belongs to uid {status.st_uid}, neither to the platform nor to the uid that runs steps")
    if kind != "socket" and status.st_mode & stat.S_IWOTH:
        raise refuse("may be changed by everybody on this host")
    if wish.write:
        wanted |= WRITE
    if not runner.may(status, wanted):
        raise refuse(f"cannot be {'written' if wish.write else 'read'} by uid {runner.uid}, which runs steps")
    if barred := runner.barred_from(real):
        raise refuse(f"lies below {barred}, which uid {runner.uid} cannot enter")


def _kind(mode: int) -> tuple[Kind | None, int]:
    if stat.S_ISDIR(mode):
        return "folder", READ | ENTER
    if stat.S_ISREG(mode):
        return "file", READ
    if stat.S_ISSOCK(mode):
        return "socket", WRITE
    return None, 0
