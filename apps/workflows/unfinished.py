"""An import that was killed in the middle: whoever comes to its workflow next takes it back, or ends it.

The commit of the platform's rows decides. Before it nothing holds, and the files go back to what they were; after it
all of it holds, and what is left to do (its migrations, which had gone through and were not committed) is done now.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from apps.accounts.models import Audit
from apps.workflows import gate, places, portable, tree
from apps.workflows.errors import GateBusy
from apps.workflows.models import Workflow
from engine.places import WorkflowPlaces

IMPORTED = "workflow.imported"
"""The audit trail's word for an import; its data names the swap, which is how its commit is told from here."""

logger = logging.getLogger(__name__)


@contextmanager
def shared(workflow: Workflow, given_up: Callable[[], bool] = gate.never) -> Iterator[None]:
    """The gate for who reads the code, with no half of an import behind it. Raises GivenUp, and Refused."""
    target = places.places_of(workflow)
    while True:
        with gate.shared(workflow, given_up=given_up):
            if not tree.note_of(target).exists():
                yield
                return
        with gate.exclusive(workflow, given_up=given_up):
            mend(workflow)


def mend(workflow: Workflow) -> None:
    """Under the gate: nothing is half done when this returns. `workflow` may have no row (yet, or any more)."""
    target = places.places_of(workflow)
    swap = tree.Swap.found(target)
    if swap is None:
        return
    if not Workflow.objects.filter(pk=workflow.pk).exists():
        logger.warning("The import that would have made %s was cut; what it left is removed.", target.root)
        shutil.rmtree(target.root, ignore_errors=True)
    elif _was_committed(workflow, swap):
        with portable.prepared(workflow, target.root):
            pass
        swap.done()
        logger.warning("An import of %s was cut after its commit; it is ended now.", target.root)
    else:
        swap.undo()
        logger.warning("An import of %s was cut; its files are as they were.", target.root)
    shutil.rmtree(swap.staging, ignore_errors=True)


def mend_all() -> int:
    """Mend what nobody is at work on; how many there were. Safe to repeat, from any process."""
    mended = 0
    for note in (places.data_places().root / "workspaces").glob(f"*/*/{tree.NOTE}"):
        workflow = Workflow(id=UUID(note.parent.name), team_id=UUID(note.parent.parent.name))
        try:
            with gate.exclusive(workflow, patience_s=0):
                mend(workflow)
                mended += 1
        except GateBusy:
            continue
        except Exception:
            logger.exception("The cut import of %s cannot be mended; it is tried again.", note.parent)
    return mended


def staging_of(workspace: Path) -> set[str]:
    """The names of the staging folders that are still needed, of one team's workflows."""
    found = (tree.Swap.found(WorkflowPlaces(note.parent)) for note in workspace.glob(f"*/{tree.NOTE}"))
    return {swap.name for swap in found if swap is not None}


def _was_committed(workflow: Workflow, swap: tree.Swap) -> bool:
    imports = Audit.objects.filter(team=workflow.team_id, action=IMPORTED, object_id=str(workflow.pk))
    return imports.filter(data__swap=swap.name).exists()
