"""Walking, counting and emptying folders that a step could write, by descriptor and without recursion."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from enum import StrEnum

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512
_LEVELS = 32
_DEEPEST = 64


class Kind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class TooDeep(OSError):
    """Folders lie in each other beyond the depth that is walked."""


def walk(folder: int, prefix: str, deepest: int, *, strict: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """Every name below the descriptor `folder`, which is closed at the end; one descriptor is held a level.

    What lies deeper than `deepest` folders is left out, or is TooDeep when `strict`.
    """
    try:
        inner: list[str] = []
        for name, status in _scan(folder):
            yield _join(prefix, name), status
            if stat.S_ISDIR(status.st_mode):
                inner.append(name)
        if inner and deepest == 0:
            if strict:
                raise TooDeep(prefix)
            return
        for name in inner:
            try:
                descriptor = os.open(name, _FOLDER, dir_fd=folder)
            except OSError:  # it went, was replaced by a link, or cannot be read
                continue
            yield from walk(descriptor, _join(prefix, name), deepest - 1, strict=strict)
    finally:
        os.close(folder)


def kind_of(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def usage(folder: int, most: int) -> tuple[int, int]:
    """Bytes on disk and entries below the descriptor `folder`, which is closed; counting ends at `most` entries.

    TooDeep beyond 64 levels: nothing can be hidden from the count by depth.
    """
    total = count = 0
    seen: set[int] = set()
    for _, status in walk(folder, "", _DEEPEST, strict=True):
        count += 1
        if status.st_ino not in seen:
            total += status.st_blocks * _BLOCK
        if status.st_nlink > 1:
            seen.add(status.st_ino)
        if count >= most:
            break
    return total, count


def opened(parent: int, name: str, flags: int = _FOLDER) -> int:
    """A descriptor of what a step left, also when it closed that against its owner (mode 000)."""
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
            return os.open(name, flags, dir_fd=parent)
        finally:
            os.close(handle)


def empty(folder: int, most: int | None = None) -> int:
    """Removes everything below the descriptor `folder`, which is closed at the end. Returns how many entries went.

    However deep the tree is: a folder that lies too deep is first moved up to the top, under a name of our own. With
    `most`, what appears anew is removed only until so many entries went: somebody may go on making them.
    """
    removed = 0
    try:
        while (most is None or removed < most) and (names := os.listdir(folder)):
            for name in names:
                removed += _remove(folder, name, folder, _LEVELS)
    finally:
        os.close(folder)
    return removed


def _remove(parent: int, name: str, top: int, levels: int) -> int:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        pass
    except PermissionError:  # a folder, for an ordinary user; or the folder around it is closed, which _open mended
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
    except FileNotFoundError:
        return 0
    else:
        return 1
    if levels == 0:
        os.close(_open(parent, name))
        os.rename(name, f".{secrets.token_hex(16)}", src_dir_fd=parent, dst_dir_fd=top)
        return 0
    removed = 0
    inner = _open(parent, name)
    try:
        for child in os.listdir(inner):
            removed += _remove(inner, child, top, levels - 1)
    finally:
        os.close(inner)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=parent)
    return removed + 1


def _open(parent: int, name: str) -> int:
    """Opens a folder that is to be emptied."""
    inner = opened(parent, name)
    if os.fstat(inner).st_mode & 0o300 != 0o300:
        os.fchmod(inner, 0o700)
    return inner


def _join(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _scan(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)
