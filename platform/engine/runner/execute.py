"""The only starter of step processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.runner.ending import Ending
from engine.runner.listeners import Listeners

if TYPE_CHECKING:
    from engine.contract import Contract


def execute(contract: Contract, listeners: Listeners) -> Ending:
    """Runs one attempt to its end and says how it ended. Blocks the calling thread, which must outlive the step."""
    raise NotImplementedError
