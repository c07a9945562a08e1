"""What the queue may run: it takes an id, returns nothing, and is safe to run twice."""

from __future__ import annotations


def advance_run(run_id: str) -> None:
    """Takes the run's lease and carries the run on until it waits or ends. Without a lease to take it does nothing."""
    raise NotImplementedError
