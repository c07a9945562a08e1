"""Where the tool sockets of attempts lie: a folder of the platform's own, names nobody can guess (SANDBOX B.10)."""

from __future__ import annotations

import hashlib
import os
import secrets
from functools import cache
from pathlib import Path

from django.conf import settings

SYSTEM = Path("/run/pulse")


def new_path() -> Path:
    """A path for one attempt's socket, short enough for the 107 bytes that a Unix path may have."""
    return folder() / secrets.token_hex(8)


@cache
def folder() -> Path:
    """The folder, made when it is not there: anyone may pass, only the platform may look or write."""
    path = Path(settings.PULSE_RUNTIME) if settings.PULSE_RUNTIME else _default()
    path.mkdir(parents=True, exist_ok=True, mode=0o711)
    path.chmod(0o711)
    if path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user. No socket was made. Set PULSE_RUNTIME.")
    return path


def _default() -> Path:
    name = hashlib.sha256(str(settings.PULSE_DATA).encode()).hexdigest()[:8]
    if os.geteuid() == 0:
        SYSTEM.mkdir(exist_ok=True, mode=0o711)
        return SYSTEM / name
    return Path(f"/tmp/pulse-{os.geteuid()}-{name}")  # noqa: S108 - its owner is checked
