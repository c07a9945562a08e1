"""`manage.py demo`: send the signed sample again and follow its run."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.runs import following
from apps.webhooks import demo
from config import before


class Command(BaseCommand):
    help = "Send a real signed GitHub event to the demo workflow's hook, and follow its run to the end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", default="", help="Where the web process listens; this machine's own by default.")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not options["url"]:
            _refuse_another_port()
        try:
            trigger = demo.trigger()
            self.stdout.write(f"Sending a signed pull_request event to {trigger.workflow.slug} …")
            sent = demo.send(trigger, base_url=options["url"].rstrip("/"), within_s=2)
            run = following.follow(sent.run_id, self.stdout.write)
        except (demo.DemoFailed, following.NotTaken) as wrong:
            raise CommandError(str(wrong)) from None
        except KeyboardInterrupt:
            raise CommandError("Not followed any more; the run goes on.", returncode=130) from None
        following.tell_result(run, self.stdout.write)
        if run.status != run.Status.SUCCEEDED:
            raise CommandError(f"The run is {run.status}, not succeeded.", returncode=3)


def _refuse_another_port() -> None:
    """The running product says in its data folder where it listens: nothing is sent to who else listens here."""
    port = before.serving_port(settings.PULSE_DATA)
    if port not in (None, settings.PULSE_PORT):
        raise CommandError(
            f"Pulse serves this data on port {port}, and PULSE_PORT is {settings.PULSE_PORT}. Nothing was sent."
            f" Set PULSE_PORT={port} for this command too."
        )
