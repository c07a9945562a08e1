"""A workflow as a zip that imports again: no secret values, no keys of triggers, no run data (BEHAVIOUR 15)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

from apps.accounts import audit
from apps.accounts.models import User
from apps.workflows import documents, places, unfinished
from apps.workflows.bundle import DOCUMENT, MAX_FILE_BYTES, MAX_FILES, belongs
from apps.workflows.errors import ImportRefused
from apps.workflows.models import Workflow
from engine.places import WorkflowPlaces
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath
from engine.sandbox.tree import Kind

STAMP = (2000, 1, 1, 0, 0, 0)
"""One time for every entry: the same workflow gives the same bytes."""


@dataclass
class ExportReport:
    """What an export did, and what it left out since no import would take it."""

    files: int = 0
    left_out: list[str] = field(default_factory=list)


def export_workflow(
    workflow: Workflow,
    into: IO[bytes],
    *,
    by: User | None,
    with_assets: bool = False,
    report: ExportReport | None = None,
) -> ExportReport:
    """Write the zip to `into`. Links and odd files that a step left behind are left out and named in the report."""
    report = report if report is not None else ExportReport()
    with unfinished.shared(workflow), zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        text = json.dumps(documents.with_sections(workflow), indent=2, ensure_ascii=False)
        archive.writestr(_info(DOCUMENT), text.encode() + b"\n")
        for name, data, executable in _files(places.places_of(workflow), report, with_assets=with_assets):
            report.files += 1
            if report.files > MAX_FILES:
                raise ImportRefused(f"{workflow.slug} has more than {MAX_FILES} files, which no import takes.")
            archive.writestr(_info(name, executable=executable), data)
    audit.record("workflow.exported", workflow, team=workflow.team, by=by, data={"files": report.files})
    return report


def _files(target: WorkflowPlaces, report: ExportReport, *, with_assets: bool) -> Iterator[tuple[str, bytes, bool]]:
    if target.requirements.is_file():
        yield "requirements.txt", target.requirements.read_bytes(), False
    folders = ["code", "learnings", "knowledgebase", "db/migrations", *(["assets"] if with_assets else [])]
    for folder in folders:
        if not (target.root / folder).is_dir():
            continue
        with Beneath(target.root / folder) as below:
            for entry in below.listing():
                name = f"{folder}/{entry.relative}"
                if entry.kind is Kind.FOLDER:
                    continue
                if not belongs(name):
                    report.left_out.append(name)
                    continue
                try:
                    yield name, below.read(entry.relative, MAX_FILE_BYTES), bool(entry.mode & 0o100)
                except FileRefused:
                    report.left_out.append(name)


def _info(name: str, *, executable: bool = False) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, STAMP)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    return info
