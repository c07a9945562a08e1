"""`manage.py doctor`: can this host run steps, and is the product set up as it should be?"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from apps.runs import queue
from engine.doctor.examine import Facts, examine, failed
from engine.sandbox.checks import Check


class Command(BaseCommand):
    help = "Look at this host and this set-up: what holds, what does not, why, and what mends it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--quiet", action="store_true", help="Print only what does not hold.")

    def handle(self, *_args: Any, **options: Any) -> None:
        checks: list[Check] = []
        for check in (*examine(facts()), *product()):
            checks.append(check)
            if not (options["quiet"] and check.ok):
                self._say(check)
        if failed(checks):
            self.stdout.write("No step can run here until what is refused above is mended.")
            sys.exit(1)
        self.stdout.write("Steps can run on this host.")

    def _say(self, check: Check) -> None:
        verdict = "ok     " if check.ok else "refused" if check.required else "warning"
        said = check.note if check.ok else check.cause + (f" ({check.note})" if check.note else "")
        self.stdout.write(f"{verdict}  {check.name}{': ' + said if said else ''}")
        if not check.ok and check.cure:
            self.stdout.write(f"         {check.cure}")


def facts() -> Facts:
    data = Path(settings.PULSE_DATA)
    database: Any = settings.DATABASES["default"]
    return Facts(
        data_root=data,
        release=Path(settings.BASE_DIR),
        runtime=settings.PULSE_RUNTIME,
        bwrap=settings.PULSE_BWRAP,
        interpreter=settings.PULSE_PYTHON,
        runner_uid=settings.PULSE_RUNNER_UID,
        closed=(data / "secrets", *([Path(database["NAME"])] if database["ENGINE"].endswith("sqlite3") else [])),
    )


def product() -> Iterator[Check]:
    """What is set in the settings, and the queue."""
    yield Check(
        "SECRET_KEY", len(settings.SECRET_KEY) >= 50, "it has fewer than 50 characters", "Set PULSE_SECRET_KEY."
    )
    yield Check("DEBUG is off", not settings.DEBUG, "pages would show the platform's own variables", "Set it to False.")
    hosts = list(settings.ALLOWED_HOSTS)
    yield Check("ALLOWED_HOSTS", "*" not in hosts and any(hosts), f"it is {hosts}", "Name the hosts it is reached by.")
    yield _web_apart()
    yield _queue()


def _web_apart() -> Check:
    """A warning for good in this release: web is not dropped to a uid of its own (SANDBOX B.0)."""
    if os.geteuid() == 0:
        cause = (
            "web and worker both run as root: who takes web over can do what root can. Steps are dropped to another uid"
            " either way. This release cannot drop web to a second uid"
        )
        cure = "Give the machine to Pulse alone, and let nothing reach web but a reverse proxy."
    else:
        cause = (
            f"web, worker and steps all run as uid {os.geteuid()}: a step that broke out of its namespaces could read"
            " the database and the keys"
        )
        cure = "Start the worker as root: then each step is dropped to a uid that can read neither."
    return Check("web has a uid of its own", False, cause, cure, required=False)


def _queue() -> Check:
    cure = "Run `manage.py migrate`, and see that the database (or REDIS_URL) answers."
    try:
        problem = queue.round_trip()
    except Exception as error:  # noqa: BLE001 - whatever the broker's client raises, it is what is to be told
        return Check("queue", False, f"a message could not be sent through it ({error})", cure)
    return Check("queue", not problem, problem, cure)
