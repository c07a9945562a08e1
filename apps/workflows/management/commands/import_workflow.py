"""`manage.py import_workflow FOLDER_OR_ZIP --team TEAM --user USER`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.errors import Refused
from apps.accounts.finding import team_of_slug, user_of_name
from apps.workflows.actions import import_workflow
from apps.workflows.bundle import Report


class Command(BaseCommand):
    help = "Make a workflow from a folder or a zip, or bring the one of that slug up to it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", type=Path, help="A folder with workflow.json in it, or a zip of one.")
        parser.add_argument("--team", required=True, help="The team's slug.")
        parser.add_argument("--user", required=True, help="Whose import it is: an editor or owner of the team.")

    def handle(self, *_args: Any, **options: Any) -> None:
        source: Path = options["source"]
        if not source.exists():
            raise CommandError(f"There is nothing at {source}. Nothing was imported.")
        report = Report()
        try:
            team, user = team_of_slug(options["team"]), user_of_name(options["user"])
            workflow = import_workflow(team, user, source, report=report)
        except Refused as refused:
            raise CommandError("\n  ".join([refused.detail, *_others(refused)])) from None
        files = f"{report.files} file{'' if report.files == 1 else 's'}"
        if report.created:
            self.stdout.write(f"Made {workflow.slug}: revision {report.revision}, {files}.")
        else:
            self.stdout.write(f"Updated {workflow.slug}: {report.news} (revision {report.revision}), {files}.")
        for name in report.dropped:
            self.stdout.write(f"  dropped, a workflow has no use for it: {name}")
        for name in report.kept:
            self.stdout.write(f"  kept as it was here: {name}")
        for warning in report.warnings:
            self.stdout.write(f"  {warning}")


def _others(refused: Refused) -> list[str]:
    """The places that the refusal's own sentence does not name."""
    lines = [f"{field.path}: {field.message}" for field in refused.fields]
    return [line for line in lines if line.rstrip(".") not in refused.detail]
