"""What a start needs and does not have is said in a sentence, before anything is served."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.runs import whereabouts
from apps.runs.models import Worker
from config import services
from config.before import UpRefused
from tests.product import ROOT
from tests.services.servers import free_port


@pytest.mark.parametrize("command", ["web", "worker"])
@pytest.mark.parametrize(
    ("setting", "address", "said"),
    [
        (
            "DATABASE_URL",
            "postgresql://pulse:hidden-word@127.0.0.1:{port}/pulse",
            "The database pulse at 127.0.0.1:{port}",
        ),
        ("REDIS_URL", "redis://:hidden-word@127.0.0.1:{port}/0", "Redis does not answer at 127.0.0.1:{port}/0"),
    ],
)
def test_a_service_that_does_not_answer_is_named(
    tmp_path: Path, command: str, setting: str, address: str, said: str
) -> None:
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**clean, "PULSE_DATA": str(tmp_path), setting: address.format(port=port)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert said.format(port=port) in done.stderr
    assert setting in done.stderr
    assert "Traceback" not in done.stderr
    assert "hidden-word" not in done.stderr


@pytest.mark.parametrize("command", ["web", "worker", "create_token"])
def test_a_folder_without_a_product_is_named_in_a_sentence(tmp_path: Path, command: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DJANGO_"))}
    arguments = ["--team", "demo", "--user", "admin", "--name", "ci"] if command == "create_token" else []
    done = subprocess.run(
        [sys.executable, "manage.py", command, *arguments],
        cwd=ROOT,
        env={**clean, "PULSE_DATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "PULSE_DATA" in done.stderr
    assert "migrate" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "data").exists() is (command != "create_token")


def worker(host: str) -> Worker:
    now = timezone.now()
    return Worker.objects.create(role="worker", host=host, pid=1, release="x", started_at=now, heartbeat_at=now)


@pytest.mark.django_db
def test_workers_of_this_machine_and_dead_ones_are_no_hindrance() -> None:
    worker(whereabouts.host())
    worker("00000000 " + whereabouts.host().partition(" ")[2])
    silent = worker("11111111 elsewhere")
    Worker.objects.filter(pk=silent.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    services.check_alone()


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_alive_on_another_host_is_refused() -> None:
    other = worker("11111111 elsewhere")
    stopped = threading.Event()

    def beats() -> None:
        from django.db import connection

        while not stopped.is_set():
            Worker.objects.filter(pk=other.pk).update(heartbeat_at=timezone.now())
            time.sleep(0.02)
        connection.close()

    beating = threading.Thread(target=beats)
    beating.start()
    try:
        with pytest.raises(UpRefused, match="elsewhere"):
            services.check_alone(look_s=0.1)
    finally:
        stopped.set()
        beating.join()
