"""What the attempts of a step have changed, by their receipts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from apps.tools.models import Receipt

UNSETTLED = (Receipt.State.INTENT, Receipt.State.UNKNOWN)


@dataclass(frozen=True)
class Mutations:
    """Call ids: of changes that were made, and of those of which it is still not known."""

    applied: tuple[str, ...]
    unknown: tuple[str, ...]


def of_step(run_id: uuid.UUID, step_id: str) -> Mutations:
    """All attempts of the step together. Read receipts back (`receipts.settle`) before asking."""
    rows = list(Receipt.objects.filter(run_id=run_id, step_id=step_id).order_by("made_at").values_list("pk", "state"))
    return Mutations(
        applied=tuple(str(pk) for pk, state in rows if state == Receipt.State.APPLIED),
        unknown=tuple(str(pk) for pk, state in rows if state in UNSETTLED),
    )
