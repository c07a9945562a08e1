"""`manage.py verify_ledger`: check the chains of tool calls, or export them as JSON lines."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from apps.tools import closing, ledger
from apps.tools.models import ToolSession


class Command(BaseCommand):
    help = "Check that no row of the ledger was changed, added or taken away. Exit code 1 when one was."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--session", type=UUID, help="One session.")
        parser.add_argument("--run", type=UUID, help="All sessions of one run.")
        parser.add_argument("--export", action="store_true", help="Print the rows as JSON lines instead.")

    def handle(self, *_args: Any, **options: Any) -> None:
        sessions = _chosen(options["session"], options["run"])
        if options["export"]:
            self._export(sessions)
            return
        closing.finish_ended()
        rows = faulty = 0
        for session in sessions:
            verdict = ledger.verify(session.pk)
            rows += verdict.rows
            for problem in verdict.problems:
                self.stdout.write(f"{session.kind} {session.pk}: {problem}")
            faulty += not verdict.ok
        self.stdout.write(f"{sessions.count()} chains, {rows} rows, {faulty} with faults")
        if faulty:
            raise CommandError("The ledger does not hold.", returncode=1)

    def _export(self, sessions: QuerySet[ToolSession]) -> None:
        for session in sessions:
            for row in ledger.export(session.pk):
                self.stdout.write(json.dumps(row, separators=(",", ":")))


def _chosen(session: UUID | None, run: UUID | None) -> QuerySet[ToolSession]:
    rows = ToolSession.objects.order_by("opened_at", "pk")
    if session is not None:
        rows = rows.filter(pk=session)
    if run is not None:
        rows = rows.filter(run_id=run)
    if (session or run) and not rows.exists():
        raise CommandError("There is no such session. Nothing was checked.")
    return rows
