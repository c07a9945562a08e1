"""Where the tool sockets of attempts lie: a folder of the platform's own, names nobody can guess (SANDBOX B.10)."""

from __future__ import annotations

import secrets
from functools import cache
from pathlib import Path

from django.conf import settings

from engine.sandbox import host


def new_path() -> Path:
    """A path for one attempt's socket, short enough for the 107 bytes that a Unix path may have."""
    return folder() / secrets.token_hex(8)


@cache
def folder() -> Path:
    """The folder, made when it is not there. Raises SandboxRefused when it belongs to somebody else."""
    return host.runtime_folder(settings.PULSE_DATA, settings.PULSE_RUNTIME)
