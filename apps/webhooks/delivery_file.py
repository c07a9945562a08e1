"""The delivery file: what a step reads of the delivery that started its run (BEHAVIOUR 8)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from apps.webhooks.judging import Judged
from apps.webhooks.models import Trigger
from apps.workflows import places

MODE = 0o640


def path_of(judged: Judged, trigger: Trigger) -> Path:
    return places.places_of(trigger.workflow).delivery(str(judged.run_id))


def ensure(judged: Judged, trigger: Trigger) -> Path:
    """Where the file of this delivery lies; written when it does not lie there yet."""
    path = path_of(judged, trigger)
    if not path.exists():
        write(path, content(judged, trigger))
    return path


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


def write(path: Path, data: bytes) -> None:
    """Write the file durably, readable by the uid that steps run under and by no other. It must not exist yet."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    except FileNotFoundError:
        places.make_way(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        gid = places.runner_gid()
        if gid is not None:
            os.fchown(file.fileno(), -1, gid)
        os.fchmod(file.fileno(), MODE)
        file.flush()
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove the file of a delivery that made no run after all."""
    with suppress(FileNotFoundError):
        path.unlink()
