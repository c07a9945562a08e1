"""Is this step fit to start? Answered without executing anything of it (BEHAVIOUR 4)."""

from __future__ import annotations

from engine.preflight.checks import Verdict, check, configuration, lowered
from engine.preflight.finding import Finding

__all__ = ["Finding", "Verdict", "check", "configuration", "lowered"]
