"""Where the files of a workflow lie, and the making of its folders with the right owners (SANDBOX B.0).

`code`, `learnings`, `knowledgebase`, `assets`, `deliveries` and `runs` may be entered by the uid that steps run under;
`db` may not.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from apps.workflows.models import Workflow
from engine.places import DataPlaces, WorkflowPlaces
from engine.sandbox import host

SHARED = 0o770
FIXED = 0o750
"""Of the folder of the code: steps write in its entries, and make, replace and remove none."""
PASSABLE = 0o711
CLOSED = 0o700


def data_places() -> DataPlaces:
    return DataPlaces(settings.PULSE_DATA)


def places_of(workflow: Workflow) -> WorkflowPlaces:
    return data_places().workflow(str(workflow.team_id), str(workflow.pk))


def make_folders(workflow: Workflow) -> WorkflowPlaces:
    """The workflow's folders, each made when it is not there. Safe to repeat."""
    places = places_of(workflow)
    make_way(places.root)
    make_shared(places.code, FIXED)
    for folder in (places.learnings, places.knowledgebase, places.assets):
        make_shared(folder)
    for folder in (places.root / "deliveries", places.root / "runs"):
        make(folder, PASSABLE)
    for folder in (places.database.parent, places.migrations):
        make(folder, CLOSED)
    return places


def make_way(folder: Path) -> None:
    """The folder and those above it up to the data folder: anyone may pass, only the platform may look or write."""
    data = data_places().root
    for part in reversed([folder, *folder.parents]):
        if part == data or data in part.parents:
            make(part, PASSABLE)


def make_shared(folder: Path, mode: int = SHARED) -> None:
    """A folder that the platform and steps both use: group of the runner, no set-gid."""
    make(folder, mode)
    give_to_runner(folder, mode)


def make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        return
    folder.chmod(mode)  # mkdir's own mode went through the umask


def runner_gid() -> int | None:
    """The group that steps run under, when launches drop to another uid; None when they do not."""
    return host.runner(data_places().root, settings.PULSE_RUNNER_UID).gid if os.geteuid() == 0 else None


def give_to_runner(path: Path, mode: int) -> None:
    """Set mode and group of a file or folder that the platform has just made, through its descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        gid = runner_gid()
        if gid is not None:
            os.fchown(descriptor, -1, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
