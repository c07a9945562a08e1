"""Installs the `pulse` library and its start into the data folder, where sandboxes can mount it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import py_compile
import secrets
import shutil
from functools import cache
from pathlib import Path

import pulse

INSIDE = "/pulse/lib/site"
"""Where `pulse` is imported from, inside; also the first entry of PYTHONPATH, for programs that a script starts."""
BOOT = "/pulse/lib/boot.py"

_START = f"""import sys
sys.path.insert(0, {INSIDE!r})
from pulse import boot
boot.run(int(sys.argv[1]), int(sys.argv[2]), {INSIDE!r})
"""
_MODE = 0o755


def install(root: Path) -> Path:
    """The folder of this release's library below `root` (DataPlaces.library), made when it is not there yet.

    Named by the digest of what is in it, so that releases lie side by side and running steps keep theirs.
    """
    return _install(root, _digest())


@cache
def _install(root: Path, digest: str) -> Path:
    target = root / digest
    if target.is_dir():
        return target
    part = root / f".{digest}.{secrets.token_hex(4)}"
    package = part / "site" / "pulse"
    package.mkdir(parents=True)
    for name, source in _sources().items():
        copy = package / name
        copy.write_bytes(source)
        # Never checked against its source again: the folder is the platform's, and a step cannot write it.
        py_compile.compile(
            str(copy),
            dfile=f"{INSIDE}/pulse/{name}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    (part / "boot.py").write_text(_START)
    _open_to_read(part)
    try:
        part.rename(target)
    except OSError:
        shutil.rmtree(part)
        if not target.is_dir():
            raise
    return target


def _open_to_read(folder: Path) -> None:
    for place, _, files in os.walk(folder):
        os.chmod(place, _MODE)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(Path(place, name), 0o644)


@cache
def _sources() -> dict[str, bytes]:
    folder = Path(pulse.__file__).parent
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.py"))}


@cache
def _digest() -> str:
    digest = hashlib.sha256(_START.encode())
    for name, source in _sources().items():
        digest.update(name.encode() + b"\0" + source + b"\0")
    return digest.hexdigest()[:16]
