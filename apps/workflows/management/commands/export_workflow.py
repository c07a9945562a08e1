"""`manage.py export_workflow SLUG --team TEAM --to FILE.zip`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.errors import Refused
from apps.accounts.finding import team_of_slug
from apps.workflows.exporting import export_workflow
from apps.workflows.models import Workflow


class Command(BaseCommand):
    help = "Write a workflow as a zip that imports again: no secret values, no run data."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug")
        parser.add_argument("--team", required=True, help="The team's slug.")
        parser.add_argument("--to", required=True, type=Path, help="The file to write; it must not be there yet.")
        parser.add_argument("--assets", action="store_true", help="Take assets/ along.")

    def handle(self, *_args: Any, **options: Any) -> None:
        target: Path = options["to"]
        try:
            team = team_of_slug(options["team"])
            workflow = Workflow.objects.of_team(team).filter(slug=options["slug"]).first()
            if workflow is None:
                raise CommandError(f"{team.name} has no workflow {options['slug']}. Nothing was written.")
            with target.open("xb") as file:
                report = export_workflow(workflow, file, by=None, with_assets=options["assets"])
        except FileExistsError:
            raise CommandError(f"{target} is there already. Nothing was written.") from None
        except Refused as refused:
            target.unlink(missing_ok=True)
            raise CommandError(refused.detail) from None
        self.stdout.write(f"Wrote {workflow.slug} with {report.files} files to {target}.")
        for name in report.left_out:
            self.stdout.write(f"  left out, no import would take it: {name}")
