"""Contract in, ending out: the only starter of step processes."""

from __future__ import annotations

from engine import library
from engine.runner.ending import Ending, Output
from engine.runner.execute import execute
from engine.runner.listeners import Listeners, Stop, StopKind

__all__ = ["Ending", "Listeners", "Output", "Stop", "StopKind", "execute", "library"]
