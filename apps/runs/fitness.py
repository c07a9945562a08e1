"""Whether this host can confine a step. Asked at each start of a worker; there is no weaker mode to fall back to."""

from __future__ import annotations

from django.conf import settings

from apps.runs import attempts, sockets
from engine import library
from engine.sandbox import canary
from engine.sandbox.errors import SandboxRefused


def refusal() -> str:
    """Why no step may start here and what to do about it; empty when the canary came through whole."""
    try:
        tools = attempts.host_tools()
        settings.PULSE_DATA.mkdir(parents=True, exist_ok=True)
        library.install(settings.PULSE_DATA / "lib")
        checks = canary.check(tools, settings.PULSE_DATA, sockets.folder())
    except (SandboxRefused, OSError) as refused:
        return str(refused)
    broken = [check for check in checks if check.required and not check.ok]
    return " ".join(f"{check.name}: {check.cause} {check.cure}".strip() for check in broken)
