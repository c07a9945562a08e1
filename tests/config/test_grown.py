"""PostgreSQL and Redis by their addresses alone: the product starts, is ready, and its cache carries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.servers import postgresql, redis

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.services
USE = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.test import Client
print(Client().get("/readyz", HTTP_HOST="127.0.0.1").json())
from apps.accounts import limits
print([bool(limits.spend("x", "y", most=2, seconds=3600)) for _ in range(3)])
"""


def test_with_both_it_is_ready_and_counts(tmp_path):
    with postgresql() as database, redis() as cache:
        environment = {
            "PATH": os.environ["PATH"],
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PULSE_DATA": str(tmp_path / "data"),
            "DATABASE_URL": database,
            "REDIS_URL": cache,
        }
        done = subprocess.run(
            [sys.executable, "-c", USE.format(root=str(ROOT))],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ready, counted = done.stdout.splitlines()
    assert "'status': 'ready', 'database': 'ok', 'cache': 'ok', 'data': 'ok'" in ready
    assert counted == "[False, False, True]"
