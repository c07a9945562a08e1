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
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(64))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, path)  # fails when another process was first: then its key is the key
    except FileExistsError:
        pass
    finally:
        part.unlink()
    return path.read_text().strip()
