"""Opening a name below a folder without following a link: openat2(2), or component by component where it is missing."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from functools import cache

_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
_TRIES = 8
_MISSING = {
    errno.ENOSYS,
    errno.EPERM,
}  # EPERM: older seccomp profiles of container runtimes refuse what they do not know


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_beneath(root: int, relative: str, flags: int, mode: int = 0) -> int:
    """A descriptor of `relative` below the folder `root`. Any link on the way is OSError ELOOP, a way out is EXDEV."""
    flags |= os.O_CLOEXEC
    if has_openat2():  # not O_NOFOLLOW: together with O_PATH it would hand out the link itself
        return _openat2(root, relative, flags, mode, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    return walk_beneath(root, relative, flags, mode)


def leads_outside(root: int, relative: str) -> bool:
    """Whether `relative`, which has a link in it, leads out of `root` when the link is followed."""
    if has_openat2():
        try:
            os.close(_openat2(root, relative, os.O_PATH | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS))
        except OSError as error:
            return error.errno == errno.EXDEV
        return False
    base = os.path.realpath(f"/proc/self/fd/{root}")
    with contextlib.suppress(OSError):  # it was changed meanwhile
        return os.path.commonpath([base, os.path.realpath(os.path.join(base, relative))]) != base
    return False


@cache
def has_openat2() -> bool:
    """Whether this kernel, and whatever filters it, knows openat2."""
    try:
        os.close(_openat2(-100, "/", os.O_PATH | os.O_CLOEXEC, 0, 0))
    except OSError as error:
        if error.errno in _MISSING:
            return False
        raise
    return True


def walk_beneath(root: int, relative: str, flags: int, mode: int = 0) -> int:
    """The fallback of open_beneath: one component at a time, each refused when it is a link."""
    parts = relative.split("/")
    if relative.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), relative)
    parts = [part for part in parts if part not in {"", "."}]
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root)
    try:
        for part in parts[:-1]:
            inner = _open_one(folder, part, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0)
            os.close(folder)
            folder = inner
        return _open_one(folder, parts[-1] if parts else ".", flags, mode)
    finally:
        os.close(folder)


def _open_one(folder: int, name: str, flags: int, mode: int) -> int:
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    if flags & os.O_PATH and stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return opened


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def _openat2(root: int, relative: str, flags: int, mode: int, resolve: int) -> int:
    how = _OpenHow(flags, mode if flags & (os.O_CREAT | os.O_TMPFILE) else 0, resolve)
    name = os.fsencode(relative)
    for _ in range(_TRIES):
        result = _libc().syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(name),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if result >= 0:
            return int(result)
        number = ctypes.get_errno()
        if number not in {errno.EAGAIN, errno.EINTR}:  # EAGAIN: something was renamed meanwhile
            break
    raise OSError(number, os.strerror(number), relative)
