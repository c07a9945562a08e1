"""The seam to the queue, which carries run ids and nothing else. The only module that imports django_q."""

from __future__ import annotations

import uuid


def enqueue(run_id: uuid.UUID) -> None:
    """The queue gets the id when the caller's transaction commits; what it loses the sweeper queues again."""
    raise NotImplementedError
