"""The delivery file: what a step reads of the delivery that started its run (BEHAVIOUR 8)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from apps.webhooks.judging import Judged
from apps.webhooks.models import Trigger
from apps.workflows import places

MODE = 0o640
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def path_of(judged: Judged, trigger: Trigger) -> Path:
    return places.places_of(trigger.workflow).delivery(str(judged.run_id))


def ensure(judged: Judged, trigger: Trigger) -> None:
    """Write the file of this delivery when it does not lie there yet."""
    path = path_of(judged, trigger)
    if not path.exists():
        write_all({path: content(judged, trigger)})


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


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write the files durably, each readable by the uid that steps run under and by no other. None may exist yet."""
    written = [_write(path, data) for path, data in files.items()]
    # All at once: the file system then takes them to the disk together, in the time that one of them takes.
    for synced in [_syncing().submit(_sync, descriptor) for descriptor in written]:
        synced.result()


def remove(path: Path) -> None:
    """Remove the file of a delivery that made no run after all."""
    with suppress(FileNotFoundError):
        path.unlink()


def _write(path: Path, data: bytes) -> int:
    """A descriptor of the file, which is written and not yet on the disk."""
    try:
        descriptor = os.open(path, NEW_FILE, MODE)
    except FileNotFoundError:
        places.make_way(path.parent)
        descriptor = os.open(path, NEW_FILE, MODE)
    try:
        with open(descriptor, "wb", buffering=0, closefd=False) as file:
            file.write(data)
        gid = places.runner_gid()
        if gid is not None:
            os.fchown(descriptor, -1, gid)
        os.fchmod(descriptor, MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@cache
def _syncing() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(16, thread_name_prefix="delivery-files")
