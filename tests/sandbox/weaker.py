"""Stands for bubblewrap on a host that lacks a protection: drops one option, then runs the real one."""

from __future__ import annotations

import os
import sys

REAL = "/usr/bin/bwrap"
VALUES = {b"--remount-ro": 1, b"--seccomp": 1, b"--size": 1}


def main(dropped: bytes, arguments: list[str]) -> None:
    if arguments[:1] != ["--args"]:
        os.execv(REAL, [REAL, *arguments])
    words = os.read(int(arguments[1]), 1 << 20).split(b"\0")[:-1]
    kept: list[bytes] = []
    while words:
        size = 1 + VALUES.get(words[0], 0)
        kept += [] if words[0] == dropped else words[:size]
        del words[:size]
    handle = os.memfd_create("words", 0)
    os.write(handle, b"".join(word + b"\0" for word in kept))
    os.lseek(handle, 0, os.SEEK_SET)
    os.close(int(arguments[1]))
    os.execv(REAL, ["pulse-sandbox", "--args", str(handle), *arguments[2:]])


if __name__ == "__main__":
    main(sys.argv[1].encode(), sys.argv[2:])
