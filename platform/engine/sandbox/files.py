"""The only way into folders that a step can write: no link is followed, only plain files are read, within a bound.

What a step leaves behind is not to be trusted: links to the platform's own files, pipes that never answer, files that
grow while they are read, names that are no names, trees a hundred thousand folders deep.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from engine.sandbox import tree
from engine.sandbox.beneath import leads_outside, open_beneath
from engine.sandbox.errors import Absent, Escapes, FileRefused, NotRegular, TooLarge
from engine.sandbox.tree import Kind

LONGEST_NAME = 200
DEEPEST = 32
MOST_ENTRIES = 200_000
_READ = os.O_RDONLY | os.O_NONBLOCK  # never wait for the other end of a pipe
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True)
class Entry:
    """One name in a listing. Links and other oddities are listed, so that they can be reported, and never opened."""

    relative: str
    kind: Kind
    size: int
    mode: int
    inode: int
    links: int
    modified_ns: int
    changed_ns: int
    blocks: int = 0


@dataclass(frozen=True)
class Usage:
    """What a folder takes: bytes on disk (blocks, so that a sparse file costs nothing) and the number of entries."""

    bytes: int
    files: int


def check_name(relative: str) -> str:
    """`relative` itself, or Escapes when the platform does not take such a name."""
    parts = relative.split("/")
    if len(parts) > DEEPEST:
        raise Escapes(relative[:LONGEST_NAME], f"it is more than {DEEPEST} folders deep; it was not opened.")
    for part in parts:
        if part in {"", ".", ".."}:
            raise Escapes(relative[:LONGEST_NAME], "it is not a plain path below its folder; it was not opened.")
        if len(os.fsencode(part)) >= LONGEST_NAME:
            raise Escapes(part[:LONGEST_NAME], f"a name has {LONGEST_NAME} bytes or more; it was not opened.")
        if any(ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F for char in part):
            raise Escapes(repr(relative), "it has control characters in it; it was not opened.")
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError:
        raise Escapes(repr(relative), "its name is not UTF-8; it was not opened.") from None
    return relative


class Beneath:
    """A folder, opened once, and what lies below it.

    `owners`: the uids whose files are read (None: any). `group`: the gid of what is made (None: that of its folder).
    """

    def __init__(self, root: Path | str, *, owners: Collection[int] | None = None, group: int | None = None) -> None:
        self.root = Path(root)
        self.owners = None if owners is None else frozenset(owners)
        self.group = group
        self._fd = -1
        try:
            self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Absent("", f"there is no folder {self.root}.") from None
        except OSError as error:
            raise NotRegular("", f"{self.root} is not a folder that can be opened ({error.strerror}).") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def open(self, relative: str, limit: int | None = None) -> BinaryIO:
        """A plain file, opened to be read. With `limit`, TooLarge when it is larger now (it may still grow)."""
        descriptor = self._open(relative, _READ)
        try:
            self._check_plain(relative, os.fstat(descriptor), limit)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, relative: str, limit: int) -> bytes:
        """The whole of a plain file of at most `limit` bytes; never more than one byte beyond it is read."""
        with self.open(relative, limit) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise TooLarge(relative, f"it grew beyond {limit} bytes while it was read.")
        return data

    def kind(self, relative: str) -> Kind | None:
        """What is there under this name; None when there is nothing."""
        try:
            parent = self._folder(os.path.dirname(check_name(relative)))
        except Absent:
            return None
        try:
            return tree.kind_of(os.stat(os.path.basename(relative), dir_fd=parent, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return None
        finally:
            os.close(parent)

    def write(self, relative: str, data: bytes, mode: int = 0o660) -> None:
        """Puts a file in place in one stroke, with the group of its folder. The folder must be there."""
        self.write_all({relative: data}, mode)

    def write_all(self, files: Mapping[str, bytes], mode: int = 0o660) -> None:
        """Stages every file first, then renames them into place, so that a failure to write one changes none."""
        with contextlib.ExitStack() as stack:
            staged: list[tuple[int, str, str]] = []
            for relative, data in files.items():
                parent = self._folder(os.path.dirname(check_name(relative)))
                stack.callback(os.close, parent)
                part = self._stage(parent, data, mode)
                stack.callback(_forget, parent, part)
                staged.append((parent, part, os.path.basename(relative)))
            for parent, part, name in staged:
                os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)

    def make_folder(self, relative: str, mode: int = 0o770, above: int | None = None) -> None:
        """Makes the folder and those above it that are missing, each with the group of the one above it.

        `above`: the mode of those above it, where it is another.
        """
        parts = check_name(relative).split("/")
        folder = self._folder("")
        try:
            for index, part in enumerate(parts):
                own = mode if above is None or index + 1 == len(parts) else above
                inner = self._enter_or_make(folder, part, own, "/".join(parts[: index + 1]))
                os.close(folder)
                folder = inner
        finally:
            os.close(folder)

    def listing(self, relative: str = "", *, most: int = MOST_ENTRIES) -> list[Entry]:
        """Everything below, sorted by name, folders before what is in them. TooLarge beyond `most` entries."""
        found = [Entry(*fields) for fields in self._walk(relative, most)]
        return sorted(found, key=lambda entry: entry.relative)

    def unchanged(self, entries: Iterable[Entry]) -> bool:
        """Whether each of these is still what it was when it was listed. New names show in their folder's entry."""
        for entry in entries:
            try:
                status = os.stat(entry.relative or ".", dir_fd=self._fd, follow_symlinks=False)
            except OSError:
                return False
            if (
                status.st_ctime_ns != entry.changed_ns
                or status.st_ino != entry.inode
                or status.st_size != entry.size
                or status.st_mtime_ns != entry.modified_ns
            ):
                return False
        return True

    def own(self) -> Entry:
        """The folder itself, as an entry of its own listing would be."""
        return Entry(*_fields("", os.stat(".", dir_fd=self._fd)))

    def usage(self, relative: str = "", *, most: int = MOST_ENTRIES) -> Usage:
        """What is taken on disk below; counting ends at `most` entries. TooLarge when it is too deep to be counted."""
        try:
            return Usage(*tree.usage(self._folder(relative), most))
        except tree.TooDeep:
            raise TooLarge(relative, "folders lie in each other too deep to be counted.") from None

    def remove(self, relative: str) -> None:
        """Removes one name that is no folder. A link goes, its target stays."""
        parent = self._folder(os.path.dirname(check_name(relative)))
        try:
            os.unlink(os.path.basename(relative), dir_fd=parent)
        except FileNotFoundError:
            raise Absent(relative, "there is nothing of that name.") from None
        finally:
            os.close(parent)

    def remove_tree(self, relative: str = "") -> int:
        """Removes what is below and, unless it is the root itself, the folder too. Returns how many entries went."""
        removed = tree.empty(self._folder(relative))
        if relative:
            parent = self._folder(os.path.dirname(relative))
            try:
                os.rmdir(os.path.basename(relative), dir_fd=parent)
            finally:
                os.close(parent)
        return removed + bool(relative)

    def _walk(self, relative: str, most: int) -> Iterator[_Fields]:
        for count, (name, status) in enumerate(tree.walk(self._folder(relative), relative, DEEPEST)):
            if count >= most:
                raise TooLarge(relative, f"there are more than {most} files in it; the listing was given up.")
            yield _fields(name, status)

    def _folder(self, relative: str) -> int:
        return self._open(relative, _FOLDER) if relative else os.open(".", _FOLDER | os.O_CLOEXEC, dir_fd=self._fd)

    def _open(self, relative: str, flags: int) -> int:
        check_name(relative)
        try:
            return open_beneath(self._fd, relative, flags)
        except OSError as error:
            raise self._refusal(relative, error) from None

    def _refusal(self, relative: str, error: OSError) -> FileRefused:
        if error.errno == errno.ENOENT:
            return Absent(relative, "there is nothing of that name.")
        if error.errno in {errno.ELOOP, errno.EXDEV}:
            if leads_outside(self._fd, relative):
                return NotRegular(relative, "a link leads out of its folder; it was not followed.")
            return NotRegular(relative, "it is, or lies behind, a link; links are not followed.")
        return NotRegular(relative, f"it cannot be opened ({error.strerror}).")

    def _check_plain(self, relative: str, status: os.stat_result, limit: int | None) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular(relative, "it is not a plain file; it was not read.")
        if status.st_nlink != 1:
            raise NotRegular(relative, "the file has a second name (a hard link); it was not read.")
        if self.owners is not None and status.st_uid not in self.owners:
            raise NotRegular(
                relative, f"it belongs to uid {status.st_uid}, neither platform nor step; it was not read."
            )
        if limit is not None and status.st_size > limit:
            raise TooLarge(relative, f"it has {status.st_size} bytes, {limit} are allowed; nothing was read.")

    def _stage(self, parent: int, data: bytes, mode: int) -> str:
        part = f".{secrets.token_hex(8)}.part"
        with os.fdopen(self._create(parent, part, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return part

    def _create(self, parent: int, name: str, mode: int) -> int:
        descriptor = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent
        )
        try:
            self._give(descriptor, parent, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _enter_or_make(self, folder: int, name: str, mode: int, relative: str) -> int:
        made = True
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            made = False
        try:
            inner = open_beneath(folder, name, _FOLDER)
        except OSError:
            raise NotRegular(relative, "something that is no folder has its name; nothing was made.") from None
        if made:
            self._give(inner, folder, mode)
        return inner

    def _give(self, descriptor: int, parent: int, mode: int) -> None:
        group = os.fstat(parent).st_gid if self.group is None else self.group
        if os.fstat(descriptor).st_gid != group:
            with contextlib.suppress(
                PermissionError
            ):  # an ordinary user is not in that group: then there is no other uid
                os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)


_Fields = tuple[str, Kind, int, int, int, int, int, int, int]


def _fields(name: str, status: os.stat_result) -> _Fields:
    """Those of an Entry, in their order."""
    return (
        name,
        tree.kind_of(status.st_mode),
        status.st_size,
        stat.S_IMODE(status.st_mode),
        status.st_ino,
        status.st_nlink,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_blocks,
    )


def _forget(parent: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
