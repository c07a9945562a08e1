"""The delivery file: what a step reads of the delivery that started its run (BEHAVIOUR 8)."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from uuid import UUID

from apps.webhooks.judging import Judged
from apps.webhooks.models import Trigger
from apps.workflows import places
from engine.places import WorkflowPlaces

MODE = 0o640
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DeliveryFiles:
    """The files of one batch, by the ids of the runs that they are of. Gone again unless they are kept.

    Each is readable by the uid that steps run under and by no other.
    """

    def __init__(self) -> None:
        self._places: dict[UUID, WorkflowPlaces] = {}
        self._written: dict[str, Path] = {}
        self._open: list[int] = []

    def write(self, judged: Judged) -> None:
        """Raises OSError."""
        if judged.trigger is None:
            raise ValueError("Only a delivery of a trigger has a file.")
        run_id, workflow = str(judged.run_id), judged.trigger.workflow
        mine = self._places.get(workflow.pk) or self._places.setdefault(workflow.pk, places.places_of(workflow))
        path = mine.delivery(run_id)
        descriptor = _create(path)
        self._written[run_id] = path
        self._open.append(descriptor)
        _fill(descriptor, content(judged, judged.trigger), self._gid)

    def wait(self) -> None:
        """Until each is on the disk: at once, in the time of one of them. Raises OSError when one did not get there."""
        syncing = [_threads().submit(_sync, descriptor) for descriptor in self._open]
        self._open.clear()
        for one in syncing:
            one.result()

    def keep(self, run_ids: Container[str]) -> None:
        """Remove the files of all other runs: those were not made after all."""
        for descriptor in self._open:
            os.close(descriptor)
        for run_id in [run_id for run_id in self._written if run_id not in run_ids]:
            with suppress(FileNotFoundError):
                self._written.pop(run_id).unlink()

    @cached_property
    def _gid(self) -> int | None:
        return places.runner_gid()


def content(judged: Judged, trigger: Trigger) -> bytes:
    """The JSON of the file. The payload is put in as the text that came: every number and key as it was sent."""
    if judged.said is None or judged.start is None:
        raise ValueError("Only a delivery that was read and may start a run has a file.")
    head = {
        "run_id": str(judged.run_id),
        "delivery_id": judged.delivery_id,
        "entry_path": trigger.kind,
        "event": judged.said.event,
        "received_at": judged.arrival.received_at.isoformat().replace("+00:00", "Z"),
        "group": judged.start.group,
        "variables": judged.start.inputs.variables,
    }
    return f'{json.dumps(head)[:-1]}, "payload": {judged.said.payload_text}}}\n'.encode()


def _create(path: Path) -> int:
    try:
        return os.open(path, NEW_FILE, MODE)
    except FileNotFoundError:
        places.make_way(path.parent)
        return os.open(path, NEW_FILE, MODE)


def _fill(descriptor: int, data: bytes, gid: int | None) -> None:
    with open(descriptor, "wb", closefd=False) as file:  # buffered: it writes all of it, or raises
        file.write(data)
    if gid is not None:
        os.fchown(descriptor, -1, gid)
    os.fchmod(descriptor, MODE)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(16, thread_name_prefix="delivery-files")
