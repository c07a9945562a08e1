"""What a process needs before it starts: a database that answers, Redis when it is named, and no worker elsewhere.

Each check raises UpRefused with one sentence that says what does not work and what to do.
"""

from __future__ import annotations

import time
from datetime import timedelta

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError, connection
from django.utils import timezone

from apps.runs import whereabouts
from apps.runs.models import Worker
from apps.runs.timing import SILENT_S
from config.before import UpRefused

LOOK_S = 0.5


def check() -> None:
    """The database and Redis, as far as the settings name them."""
    _check_database()
    _check_redis()


def check_tables() -> None:
    """That somebody has made them: `up` does it by itself."""
    if Worker._meta.db_table not in connection.introspection.table_names():  # noqa: SLF001
        raise UpRefused(
            "The database has no tables of Pulse yet. Nothing was started. Run manage.py migrate first, or name the"
            " data folder of the product in PULSE_DATA."
        )


def check_alone(*, look_s: float = LOOK_S) -> None:
    """No worker of another host is alive. One that died is waited for until it is silent long enough to be sure."""
    while others := _elsewhere():
        time.sleep(look_s)
        now = {worker.pk: worker for worker in _elsewhere()}
        for before in others:
            after = now.get(before.pk)
            if after is not None and after.heartbeat_at != before.heartbeat_at:
                raise UpRefused(
                    f"A worker is alive on another host ({before.host.partition(' ')[2]}), and workflow databases are"
                    " SQLite files, which do not cross hosts. No worker was started. Run all workers on one machine;"
                    " web may run on several."
                )


def _check_database() -> None:
    try:
        connection.ensure_connection()
    except DatabaseError as wrong:
        facts = connection.settings_dict
        where = f"{facts['NAME']} at {facts['HOST'] or 'this machine'}:{facts['PORT'] or 5432}"
        if connection.vendor == "sqlite":
            where = str(facts["NAME"])
        raise UpRefused(
            f"The database {where} cannot be used ({_first_line(wrong)}). Nothing was started."
            f" {'Mend PULSE_DATA' if connection.vendor == 'sqlite' else 'Start it, or mend DATABASE_URL'}."
        ) from None


def _check_redis() -> None:
    if not settings.REDIS_URL:
        return
    from redis import RedisError

    try:
        cache.get("anything")
    except (RedisError, OSError, ValueError) as wrong:
        address = settings.REDIS_URL.rpartition("@")[2].removeprefix("redis://")
        raise UpRefused(
            f"Redis does not answer at {address} ({_first_line(wrong)}). Nothing was started."
            " Start it, or mend REDIS_URL."
        ) from None


def _elsewhere() -> list[Worker]:
    since = timezone.now() - timedelta(seconds=SILENT_S)
    found = Worker.objects.filter(role="worker").heard_since(since).exclude(host=whereabouts.host())
    return [worker for worker in found if not whereabouts.gone_with_its_boot(worker.host)]


def _first_line(wrong: Exception) -> str:
    return (str(wrong).strip().splitlines() or [type(wrong).__name__])[0].rstrip(".")
