"""Keys that the product makes for itself at the first start, each in a file that only its own user can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def read_or_make(path: Path) -> str:
    """The key in `path`, made when there is none yet (mode 0600, in a folder of mode 0700). Safe to race."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    make_once(path, secrets.token_urlsafe(64))
    return path.read_text().strip()


def make_once(path: Path, text: str) -> bool:
    """Write `text` to `path` unless the file is there already; True when this call made it. Durable, mode 0600."""
    part = _part(path, text)
    try:
        os.link(part, path)  # fails when another process was first: then its key is the key
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` in one move: a reader sees the old or the new, whole. Durable, mode 0600."""
    part = _part(path, text)
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _part(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return part
