"""What the attempts of a step have changed, by their receipts."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from apps.tools import receipts
from apps.tools.models import Receipt

logger = logging.getLogger(__name__)

UNSETTLED = (Receipt.State.INTENT, Receipt.State.UNKNOWN)


@dataclass(frozen=True)
class Mutations:
    """Call ids: of changes that were made, and of those of which it is still not known."""

    applied: tuple[str, ...]
    unknown: tuple[str, ...]


def read_back(attempt_id: uuid.UUID) -> None:
    """Settles what became of the attempt's changes, as far as it can be read now; what cannot stays unknown."""
    try:
        receipts.settle(attempt_id)
    except Exception:
        # The workflow's database may be away or broken: that must not keep its run from being told of.
        logger.exception("The receipts of attempt %s could not be read back.", attempt_id)


def of_step(run_id: uuid.UUID, step_id: str) -> Mutations:
    """All attempts of the step together. Read receipts back before asking."""
    rows = list(Receipt.objects.filter(run_id=run_id, step_id=step_id).order_by("made_at").values_list("pk", "state"))
    return Mutations(
        applied=tuple(str(pk) for pk, state in rows if state == Receipt.State.APPLIED),
        unknown=tuple(str(pk) for pk, state in rows if state in UNSETTLED),
    )
