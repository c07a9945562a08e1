"""A staged tree put in place of a workflow's files, and taken back when what follows fails.

`code` and `requirements.txt` are swapped whole, by rename: an attempt that runs keeps the tree it has mounted. Of the
folders that steps write to, what is there stays; only files that are not there yet are added.
What will be changed is noted beside the files first, so that another process can take it back when this one is killed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from apps.workflows import places
from apps.workflows.bundle import Report
from engine import keyfiles
from engine.places import WorkflowPlaces
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath

STEP_FOLDERS = ("learnings", "knowledgebase", "assets")
MIGRATIONS = "db/migrations"
NOTE = "import.json"
SWAPPED = ("code", "requirements.txt")


def share(staging: Path) -> None:
    """Give a staged tree its final modes and group, while no step can reach it."""
    requirements = staging / "requirements.txt"
    if requirements.exists():
        places.give_to_runner(requirements, 0o640)
    (staging / "code").mkdir(mode=0o700, exist_ok=True)
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


@dataclass
class Note:
    """What a swap changes, by names below the workflow's folder."""

    staging: str
    new: list[str] = field(default_factory=list)  # of SWAPPED, what was not there before and is sent
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)  # as they were, they lie in the staging folder


class Swap:
    """The change of one workflow's files, from `begin` to `undo` or `done`: that may be another process's."""

    def __init__(self, target: WorkflowPlaces, note: Note) -> None:
        self._target = target
        self._note = note
        self.staging = target.root.parent / note.staging
        self._replaced = self.staging / "replaced"

    @classmethod
    def begin(cls, staging: Path, target: WorkflowPlaces) -> Swap:
        """From here on `found` finds it."""
        swap = cls(target, Note(staging.name))
        swap._write_down()
        return swap

    @classmethod
    def found(cls, target: WorkflowPlaces) -> Swap | None:
        """The one that has begun and not ended."""
        with suppress(FileNotFoundError):
            return cls(target, Note(**json.loads(note_of(target).read_text())))
        return None

    @property
    def name(self) -> str:
        """No other swap ever has it."""
        return self._note.staging

    def apply(self, report: Report) -> None:
        self._look(report)
        self._write_down()
        self._replaced.mkdir(mode=0o700)
        for name in self._note.replaced:
            _copy(self._target.root / name, self._replaced / name)
        for name in SWAPPED:
            _move(self._target.root / name, self._replaced / name)
            _move(self.staging / name, self._target.root / name)
        for name in [*self._note.added, *self._note.replaced]:
            self._put(name, (self.staging / name).read_bytes())

    def undo(self) -> None:
        """Everything as it was. Safe to repeat, and to go on with where another process was killed in it."""
        for name in SWAPPED:
            here, old = self._target.root / name, self._replaced / name
            if old.exists() or (name in self._note.new and not (self.staging / name).exists()):
                _move(here, self.staging / f"undone-{name}")
                _move(old, here)
        for name in self._note.added:
            with suppress(FileRefused), self._below(name) as (folder, relative):
                folder.remove(relative)
        for name in self._note.replaced:
            if (self._replaced / name).exists():
                self._put(name, (self._replaced / name).read_bytes())
        note_of(self._target).unlink()

    def done(self) -> None:
        """It holds: there is nothing to take back any more."""
        self.set_aside()
        note_of(self._target).unlink()

    def set_aside(self) -> None:
        """Keep the old code for a while: an attempt that runs has it mounted and may import from it yet."""
        old = self._replaced / "code"
        if old.exists() and any(old.iterdir()):
            places.make(self._target.root / "replaced", places.CLOSED)
            old.rename(self._target.root / "replaced" / self._note.staging.lstrip("."))

    def _write_down(self) -> None:
        keyfiles.replace(note_of(self._target), json.dumps(asdict(self._note)))

    def _look(self, report: Report) -> None:
        """Steps write to their folders and may have planted links there: only the helper goes in."""
        sent = [name for name in SWAPPED if (self.staging / name).exists()]
        self._note.new = [name for name in sent if not (self._target.root / name).exists()]
        for top in (*STEP_FOLDERS, MIGRATIONS):
            if not (self.staging / top).is_dir():
                continue
            with Beneath(self._target.root / top) as below:
                for relative in _files_below(self.staging / top):
                    there = below.kind(relative) is not None
                    known = report.kept if top != MIGRATIONS else self._note.replaced
                    (known if there else self._note.added).append(f"{top}/{relative}")

    def _put(self, name: str, data: bytes) -> None:
        with self._below(name) as (folder, relative):
            if parent := os.path.dirname(relative):
                folder.make_folder(parent)
            folder.write(relative, data, 0o600 if name.startswith(MIGRATIONS) else 0o660)

    @contextmanager
    def _below(self, name: str) -> Iterator[tuple[Beneath, str]]:
        top = next(top for top in (*STEP_FOLDERS, MIGRATIONS) if name.startswith(f"{top}/"))
        with Beneath(self._target.root / top) as folder:
            yield folder, name.removeprefix(f"{top}/")


def note_of(target: WorkflowPlaces) -> Path:
    """Where the note of a swap lies while there is one."""
    return target.root / NOTE


def _files_below(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file())


def _move(source: Path, target: Path) -> None:
    if source.exists():
        source.rename(target)


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all: what is there is put back by `undo`."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = target.with_name(f"{target.name}.part")
    shutil.copyfile(source, part)
    part.rename(target)
