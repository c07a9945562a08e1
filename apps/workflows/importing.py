"""Taking over a workflow from a folder or a zip: all of it, or nothing (BEHAVIOUR 15)."""

from __future__ import annotations

import hashlib
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.errors import Forbidden
from apps.accounts.models import Team, User
from apps.workflows import bundle, documents, gate, places, portable, saving, tree, unfinished
from apps.workflows.bundle import Report
from apps.workflows.documents import Raw
from apps.workflows.errors import ImportRefused
from apps.workflows.models import Workflow
from engine.digests import code_tree
from engine.document import WorkflowDocument
from engine.graph import top_level_packages
from engine.ids import uuid7
from engine.places import WorkflowPlaces
from engine.sandbox.errors import FileRefused

KEEP_S = 24 * 3600
CODE_CHANGED = "code.changed"
"""The audit trail's word for another code tree; its data has the digests before and after."""


def import_workflow(team: Team, by: User, source: Path | bytes, *, report: Report | None = None) -> Workflow:
    """Make the workflow that a folder, a zip file or a zip's bytes describe, or bring the one of that slug up to it.

    `report` is filled with what was taken, dropped and kept. Raises Refused with nothing left behind and, on an update,
    everything as it was. A new workflow is owned by `by`, who must be an editor or owner of the team.
    """
    report = report if report is not None else Report()
    if not access.may_own(by, team):
        raise Forbidden(f"Importing needs the role editor in {team.name}. Nothing was imported.")
    staging = _staging_folder(team)
    try:
        bundle.stage(source, staging, report)
        raw = documents.read((staging / bundle.DOCUMENT).read_bytes())
        code = staging / "code"
        packages = top_level_packages(path.relative_to(code).as_posix() for path in code.rglob("*.py"))
        document = documents.check(raw, team, packages)
        tree.share(staging)
        workflow = _target(team, document, by, report)
        return _install(workflow, _Arrival(staging, raw, document, by, report))
    finally:
        if staging.name not in unfinished.staging_of(staging.parent):
            shutil.rmtree(staging, ignore_errors=True)


@dataclass(frozen=True)
class _Arrival:
    """What was sent, staged and checked."""

    staging: Path
    raw: Raw
    document: WorkflowDocument
    by: User
    report: Report


def _target(team: Team, document: WorkflowDocument, by: User, report: Report) -> Workflow:
    """The row that is updated, or a new one that is not saved yet."""
    existing = Workflow.objects.of_team(team).filter(slug=document.slug).first()
    if existing is None:
        report.created = True
        return Workflow(id=uuid7(), team=team, owner=by, slug=document.slug)
    if existing.code_layout_version != document.code_layout_version:
        raise ImportRefused(
            f"{document.slug} has code layout {existing.code_layout_version}, what was sent has"
            f" {document.code_layout_version}. A layout is kept for good. Nothing was imported.",
            code="layout_differs",
            status=409,
        )
    return existing


def _install(workflow: Workflow, arrival: _Arrival) -> Workflow:
    """Under the gate, so that no attempt starts meanwhile; a failure leaves everything as it was."""
    target = places.make_folders(workflow)
    swap = None
    try:
        with gate.exclusive(workflow):
            unfinished.mend(workflow)
            swap = tree.Swap.begin(arrival.staging, target)
            _change(workflow, arrival, swap, target)
    except BaseException as wrong:
        if arrival.report.created and not arrival.report.revision:
            shutil.rmtree(target.root, ignore_errors=True)
        if isinstance(wrong, IntegrityError) and _is_taken(workflow):
            raise ImportRefused(
                f"{workflow.slug} is being imported by someone else. Nothing was imported. Try again.", status=409
            ) from wrong
        raise
    _forget_old((target.root / "replaced").glob("*"))
    return workflow


def _change(workflow: Workflow, arrival: _Arrival, swap: tree.Swap, target: WorkflowPlaces) -> None:
    """Three stores, one after the other: what is slow first, and the platform's rows, whose commit decides, alone.

    The workflow's own database commits last: what went through there is done again if that commit is cut.
    """
    report = arrival.report
    try:
        before = _files_of(target)
        with portable.prepared(workflow, arrival.staging) as prepared:
            swap.apply(report)
            report.tell_files(before, _files_of(target))
            report.revision = _write_rows(workflow, arrival, swap, prepared)
    except BaseException as wrong:
        if not report.revision:
            swap.undo()
            raise
        swap.set_aside()
        raise ImportRefused(
            f"{workflow.slug} is imported as revision {report.revision}, but its own database could not take what"
            f" db/migrations says ({wrong}). It is tried again before its next step starts; none starts without it.",
            code="migrations_pending",
            status=503,
        ) from wrong
    swap.done()


def _is_taken(workflow: Workflow) -> bool:
    """Whether another import was first with the slug; any other refusal of the database is a fault of ours."""
    return Workflow.objects.filter(team=workflow.team, slug=workflow.slug).exclude(pk=workflow.pk).exists()


@transaction.atomic
def _write_rows(workflow: Workflow, arrival: _Arrival, swap: tree.Swap, prepared: Mapping[str, object]) -> int:
    """Rows, and nothing else: whoever writes to the platform's database waits for this."""
    by, report = arrival.by, arrival.report
    before = Workflow.objects.filter(pk=workflow.pk).values_list("revision", flat=True).first()
    saving.write_document(workflow, arrival.raw, arrival.document, by)
    for section in portable.sections():
        section.load(workflow, arrival.document, by, prepared[section.SECTION])
    audit.record(
        unfinished.IMPORTED,
        workflow,
        team=workflow.team,
        by=by,
        data={"slug": workflow.slug, "revision": workflow.revision, "swap": swap.name},
    )
    report.plan_changed = workflow.revision != before
    if report.code_changed:
        digests = {"before": report.code_before, "after": report.code_after, "revision": workflow.revision}
        audit.record(CODE_CHANGED, workflow, team=workflow.team, by=by, data=digests)
    return workflow.revision


def _files_of(target: WorkflowPlaces) -> tuple[str, str]:
    """Digests of the code, empty when it cannot be read (an import may be what mends that), and of the requirements."""
    try:
        digest = code_tree(target.code).digest
    except FileRefused:
        digest = ""
    requirements = target.requirements.read_bytes() if target.requirements.exists() else b""
    return digest, hashlib.sha256(requirements).hexdigest()


def _staging_folder(team: Team) -> Path:
    folder = places.data_places().root / "workspaces" / str(team.pk)
    places.make_way(folder)
    needed = unfinished.staging_of(folder)
    _forget_old(old for old in folder.glob(".staging-*") if old.name not in needed)  # of processes that were killed
    staging = folder / f".staging-{uuid.uuid4().hex}"
    staging.mkdir(mode=0o700)
    return staging


def _forget_old(trees: Iterable[Path]) -> None:
    """Remove those of yesterday and before: no attempt can have them mounted, no import be at work in them."""
    for tree_root in trees:
        if time.time() - tree_root.lstat().st_ctime > KEEP_S:
            shutil.rmtree(tree_root, ignore_errors=True)
