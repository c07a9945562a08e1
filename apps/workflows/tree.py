"""A staged tree put in place of a workflow's files, and taken back when what follows fails.

`code` and `requirements.txt` are swapped whole, by rename: an attempt that runs keeps the tree it has mounted. Of the
folders that steps write to, what is there stays; only files that are not there yet are added.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

from apps.workflows import places
from apps.workflows.bundle import MAX_FILE_BYTES, Report
from engine.places import WorkflowPlaces
from engine.sandbox.files import Beneath

STEP_FOLDERS = ("learnings", "knowledgebase", "assets")


def share(staging: Path) -> None:
    """Give a staged tree its final modes and group, while no step can reach it."""
    requirements = staging / "requirements.txt"
    if requirements.exists():
        places.give_to_runner(requirements, 0o640)
    for folder in ("code", *STEP_FOLDERS):
        top = staging / folder
        if not top.is_dir():
            continue
        for here, _, files in os.walk(top):
            fixed = folder == "code" and here == str(top)
            places.give_to_runner(Path(here), places.FIXED if fixed else places.SHARED)
            for name in files:
                path = Path(here) / name
                places.give_to_runner(path, 0o770 if path.stat().st_mode & 0o100 else 0o660)


class Swap:
    """The change of one workflow's files; an exception inside its `with` puts everything back."""

    def __init__(self, staging: Path, target: WorkflowPlaces, report: Report) -> None:
        self._staging = staging
        self._target = target
        self._report = report
        self._undo: list[Callable[[], object]] = []
        self._replaced = staging / "replaced"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.undo()

    def apply(self) -> None:
        self._replaced.mkdir(mode=0o700)
        self._replace("code", self._target.code)
        self._replace("requirements.txt", self._target.requirements)
        for name in STEP_FOLDERS:
            self._add_missing(name)
        self._add_missing("db/migrations", replace=True)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def keep_replaced(self) -> None:
        """Set the old code aside for a while: an attempt that runs has it mounted and may import from it yet."""
        old = self._replaced / "code"
        if old.exists() and any(old.iterdir()):
            places.make(self._target.root / "replaced", places.CLOSED)
            old.rename(self._target.root / "replaced" / self._staging.name.lstrip("."))

    def _replace(self, name: str, target: Path) -> None:
        old, new = self._replaced / name, self._staging / name
        if target.exists():
            self._move(target, old)
        if new.exists():
            self._move(new, target)
        elif name == "code":
            places.make_shared(target, places.FIXED)
            self._undo.append(lambda: shutil.rmtree(target))

    def _add_missing(self, name: str, *, replace: bool = False) -> None:
        """Steps write to these folders and may have planted links there: only the helper goes in."""
        new, top = self._staging / name, self._target.root / name
        if not new.is_dir():
            return
        with Beneath(top) as below:
            for path in sorted(new.rglob("*")):
                if path.is_file():
                    self._add_file(below, path, path.relative_to(new).as_posix(), name, replace=replace)

    def _add_file(self, below: Beneath, new: Path, relative: str, folder: str, *, replace: bool) -> None:
        parent = os.path.dirname(relative)
        if parent:
            below.make_folder(parent)
        there = below.kind(relative)
        if there is not None and not replace:
            self._report.kept.append(f"{folder}/{relative}")
            return
        root = below.root
        old = below.read(relative, MAX_FILE_BYTES) if there is not None else None
        below.write(relative, new.read_bytes(), 0o660 if folder in STEP_FOLDERS else 0o600)
        self._undo.append(lambda: _put_back(root, relative, old))

    def _move(self, source: Path, target: Path) -> None:
        source.rename(target)
        self._undo.append(lambda: target.rename(source))


def _put_back(root: Path, relative: str, old: bytes | None) -> None:
    with Beneath(root) as below:
        if old is None:
            below.remove(relative)
        else:
            below.write(relative, old, 0o600)
