"""One grant: found below its root without following a link, opened by descriptor, checked, ready to be mounted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

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
    real: str = ""
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


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """The name itself, when it is one that may be mounted."""
    try:
        return check_name(name)
    except FileRefused:
        raise SandboxRefused(Reason.GRANT_ESCAPES_ROOT, f"{name!r} is no name for a mount.") from None


class Roots:
    """The folders that the wishes of one policy lie below, and the ways to them: each looked at once for all."""

    def __init__(self, data_root: Path, runner: Runner) -> None:
        self._data_root = data_root
        self._runner = runner
        self._opened: dict[tuple[Path, str, bool], tuple[int, str]] = {}
        self._barred: dict[str, Path | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._opened:
            os.close(self._opened.popitem()[1][0])

    def resolve(self, wish: Wish, *, create: bool = True) -> Mount:
        """The wish, opened and checked; SandboxRefused says what is wrong with it."""
        created = False
        found = self._find(wish)
        if found is None and wish.write and wish.kind == "folder" and create:
            created = _create(wish, self._runner)
            found = self._find(wish)
        if found is None:
            return _missing(wish)
        opened, real, status = found
        try:
            if wish.write and _adopt(opened, status, self._runner):
                status = os.fstat(opened)
            _check(wish, status, self._runner)
            if barred := self._barred_way(os.path.dirname(real)):
                raise _unreadable(wish, f"lies below {barred}, which uid {self._runner.uid} cannot enter")
        except BaseException:
            os.close(opened)
            raise
        identity = (status.st_dev, status.st_ino)
        return Mount(wish.store, wish.relative, wish.dest, wish.write, "granted", *identity, created, real, [opened])

    def _find(self, wish: Wish) -> tuple[int, str, os.stat_result] | None:
        """The wish's descriptor, its real path and its status, by one name in the folder around it."""
        above, _, name = wish.relative.rpartition("/")
        folder = self._folder(wish, above)
        if folder is None:
            return None
        opened = self._open(wish, folder[0], name)
        return None if opened is None else (opened, f"{folder[1]}/{name}", os.fstat(opened))

    def _folder(self, wish: Wish, relative: str) -> tuple[int, str] | None:
        """A folder below the wish's root, "" for the root itself: its descriptor and its real path."""
        key = (wish.root, relative, wish.kind == "socket")
        if key in self._opened:
            return self._opened[key]
        if relative:
            root = self._folder(wish, "")
            opened = self._open(wish, root[0], relative) if root else None
        else:
            opened = _open_root(wish, self._data_root)
        if opened is None:
            return None
        self._opened[key] = opened, os.readlink(f"/proc/self/fd/{opened}")
        return self._opened[key]

    def _open(self, wish: Wish, folder: int, name: str) -> int | None:
        try:
            return _open(folder, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unopened(wish, error) from None

    def _unopened(self, wish: Wish, error: OSError) -> SandboxRefused:
        root = self._folder(wish, "")
        if root is None or error.errno not in {errno.ELOOP, errno.EXDEV}:
            return SandboxRefused(Reason.GRANT_UNREADABLE, f"{wish.relative} cannot be opened ({error.strerror}).")
        if leads_outside(root[0], wish.relative):
            return SandboxRefused(
                Reason.GRANT_ESCAPES_ROOT, f"A link in {wish.relative} leads out of {wish.root}.", "Remove the link."
            )
        return SandboxRefused(
            Reason.GRANT_SYMLINK, f"There is a link in {wish.relative}.", "Put the folder or file itself there."
        )

    def _barred_way(self, folder: str) -> Path | None:
        """The first folder down to this one, a real path, that the runner cannot enter; None when the way is open."""
        if folder not in self._barred:
            barred = None if folder == "/" else self._barred_way(os.path.dirname(folder))
            self._barred[folder] = barred or self._barred_at(folder)
        return self._barred[folder]

    def _barred_at(self, folder: str) -> Path | None:
        try:
            return None if self._runner.may(os.stat(folder), ENTER) else Path(folder)
        except OSError:
            return Path(folder)


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
    holders = {holder for place in (*closed_places, *map(os.path.realpath, kept)) for holder in _above(place)}
    below_closed = tuple(f"{place.rstrip('/')}/" for place in closed_places)
    for mount in mounts:
        real = mount.real
        if mount.status == "granted" and (real in holders or real.startswith(below_closed)):
            raise SandboxRefused(
                Reason.POLICY_FORBIDDEN_PATH, f"{mount.source} is, or holds, what no step may see ({mount.real})."
            )


def _above(path: str) -> Iterator[str]:
    """The path itself and every folder that holds it."""
    while path not in {"", "/"}:
        yield path
        path = path.rpartition("/")[0]
    yield "/"


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


def _open(folder: int, name: str) -> int:
    """A descriptor of `name` below `folder`. A link is OSError ELOOP: of one name the last part is all there is."""
    if "/" in name:
        return open_beneath(folder, name, os.O_PATH)
    opened = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return opened


def _create(wish: Wish, runner: Runner) -> bool:
    try:
        with Beneath(os.path.realpath(wish.root), group=runner.gid if runner.dropped else None) as folder:
            folder.make_folder(wish.relative, 0o770, above=0o711)  # a step replaces nothing that it was granted
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


def _adopt(opened: int, status: os.stat_result, runner: Runner) -> bool:
    """What the platform owns and a step is to write gets the runner's group: this very inode, nothing below it.

    True when something was changed.
    """
    wanted = 0o070 if stat.S_ISDIR(status.st_mode) else 0o060
    if (
        not runner.dropped
        or status.st_uid != os.geteuid()
        or not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode))
        or (status.st_gid == runner.gid and status.st_mode & wanted == wanted)
    ):
        return False
    os.chown(f"/proc/self/fd/{opened}", -1, runner.gid)
    os.chmod(f"/proc/self/fd/{opened}", stat.S_IMODE(status.st_mode) | wanted)
    return True


def _check(wish: Wish, status: os.stat_result, runner: Runner) -> None:
    kind, wanted = _kind(status.st_mode)
    if kind is None or (wish.kind != kind and not (wish.kind == "any" and kind != "socket")):
        raise _unreadable(wish, f"is not a {'file or folder' if wish.kind == 'any' else wish.kind}")
    if status.st_uid not in {0, os.geteuid(), runner.uid}:
        raise _unreadable(
            wish, f"belongs to uid {status.st_uid}, neither to the platform nor to the uid that runs steps"
        )
    if kind != "socket" and status.st_mode & stat.S_IWOTH:
        raise _unreadable(wish, "may be changed by everybody on this host")
    if wish.write:
        wanted |= WRITE
    if not runner.may(status, wanted):
        raise _unreadable(
            wish, f"cannot be {'written' if wish.write else 'read'} by uid {runner.uid}, which runs steps"
        )


def _unreadable(wish: Wish, why: str) -> SandboxRefused:
    return SandboxRefused(Reason.GRANT_UNREADABLE, f"{wish.relative} {why}.", "Mend its owner, mode or kind.")


def _kind(mode: int) -> tuple[Kind | None, int]:
    if stat.S_ISDIR(mode):
        return "folder", READ | ENTER
    if stat.S_ISREG(mode):
        return "file", READ
    if stat.S_ISSOCK(mode):
        return "socket", WRITE
    return None, 0
