"""Giving the middle of a file back to the file system, so that what stays keeps its offset."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ENOSPC}  # a hole too may need room to be noted


def punch(descriptor: int, start: int, end: int) -> bool:
    """Frees the bytes from `start` up to `end`, which read as zeros then. False when this file system cannot."""
    if end <= start:
        return True
    if _fallocate()(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, end - start) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number))


@cache
def _fallocate() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).fallocate64
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function
