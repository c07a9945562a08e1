"""The mode follows PULSE_BASE_URL: each one is started in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW = """
import json, sys
sys.path[:0] = [{root!r}, {root!r} + "/platform"]
from config import settings
print(json.dumps({{name: getattr(settings, name, None) for name in {names!r}}}, default=str))
"""


def environment(tmp_path: Path, **values: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PULSE_DATA": str(tmp_path / "data"), **values}


def start(tmp_path: Path, names: list[str], **values: str) -> subprocess.CompletedProcess[str]:
    """Read the settings in a process of their own, as every start does first."""
    return subprocess.run(
        [sys.executable, "-c", SHOW.format(root=str(ROOT), names=names)],
        env=environment(tmp_path, **values), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def settings_of(tmp_path: Path, names: list[str], **values: str) -> dict[str, object]:
    done = start(tmp_path, names, **values)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def manage(tmp_path: Path, *arguments: str, **values: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT, env=environment(tmp_path, **values), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_on_https_djangos_own_check_for_production_finds_nothing(tmp_path):
    done = manage(tmp_path, "check", "--deploy", "--fail-level", "DEBUG", PULSE_BASE_URL="https://pulse.example.test")
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


NAMES = [
    "DEBUG", "SESSION_COOKIE_NAME", "SESSION_COOKIE_SECURE", "SESSION_COOKIE_HTTPONLY", "SESSION_COOKIE_SAMESITE",
    "CSRF_COOKIE_NAME", "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS", "SECURE_SSL_REDIRECT", "ALLOWED_HOSTS",
    "PULSE_ORIGINS", "X_FRAME_OPTIONS", "PULSE_PROXIES", "ACCOUNT_EMAIL_VERIFICATION", "SESSION_COOKIE_AGE",
]  # fmt: skip


def test_on_https_cookies_are_bound_to_the_host_and_to_tls(tmp_path):
    found = settings_of(tmp_path, NAMES, PULSE_BASE_URL="https://pulse.example.test")
    assert found["SESSION_COOKIE_NAME"] == "__Host-sessionid"
    assert found["CSRF_COOKIE_NAME"] == "__Host-csrftoken"
    assert found["SESSION_COOKIE_SECURE"] is found["CSRF_COOKIE_SECURE"] is found["SECURE_SSL_REDIRECT"] is True
    assert found["SECURE_HSTS_SECONDS"] == 31_536_000
    assert found["PULSE_ORIGINS"] == ["https://pulse.example.test"]
    assert found["PULSE_PROXIES"] == ["127.0.0.1", "::1", "unix"]


def test_on_this_machine_plain_http_works_without_hsts(tmp_path):
    found = settings_of(tmp_path, NAMES)
    assert found["SESSION_COOKIE_NAME"] is None  # as Django has it, without a prefix that needs TLS
    assert found["SESSION_COOKIE_SECURE"] is False
    assert not found["SECURE_HSTS_SECONDS"]
    assert found["PULSE_ORIGINS"] == ["http://127.0.0.1:8000", "http://localhost:8000"]
    assert found["PULSE_PROXIES"] == []
    assert (found["DEBUG"], found["X_FRAME_OPTIONS"], found["SESSION_COOKIE_AGE"]) == (False, "DENY", 43_200)
    assert (found["SESSION_COOKIE_HTTPONLY"], found["SESSION_COOKIE_SAMESITE"]) == (True, "Lax")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"PULSE_BASE_URL": "http://pulse.example.test"}, "in the clear"),
        ({"PULSE_SECRET_KEY": "short"}, "50 characters"),
        ({"DATABASE_URL": "mysql://x"}, "postgresql://"),
        ({"PULSE_PORT": "many"}, "whole number"),
        ({"PULSE_RUN_SLOTS": "-1"}, "1 or more"),
        ({"PULSE_DRAIN_S": "-5"}, "0 or more"),
        ({"PULSE_BASE_URL": "pulse.example.test"}, "begin with http"),
        ({"PULSE_LIMITS": "timeout=60"}, "timeout_s=3600"),
        ({"PULSE_LIMITS": "memory_mb=0"}, "above 0"),
        ({"PULSE_INSECURE_HTTP": "maybe"}, "1 or 0"),
        ({"PULSE_MAIL_URL": "http://x"}, "smtp://"),
    ],
)
def test_it_refuses_to_start_with_settings_that_do_not_hold(tmp_path, values, says):
    done = start(tmp_path, [], **values)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Nothing was started" in done.stderr or "SQLite" in done.stderr


def test_a_data_folder_that_cannot_be_used_is_said_in_a_sentence(tmp_path):
    (tmp_path / "data").write_text("a file where the folder should be")
    done = start(tmp_path, [])
    assert done.returncode != 0
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr.split("ImproperlyConfigured")[-1]


def test_plain_http_elsewhere_needs_a_word_that_is_said_on_every_page(tmp_path):
    found = settings_of(
        tmp_path, ["PULSE_INSECURE_HTTP"], PULSE_BASE_URL="http://10.1.2.3:8000", PULSE_INSECURE_HTTP="1"
    )
    assert found == {"PULSE_INSECURE_HTTP": True}


def test_pages_know_that_the_network_is_not_protected(settings):
    from apps.dashboard.templatetags import nav

    settings.PULSE_INSECURE_HTTP, settings.HTTPS = True, False
    assert nav.insecure_http()
    settings.HTTPS = True
    assert not nav.insecure_http()


def test_mail_is_verified_only_where_mail_is_configured(tmp_path):
    names = ["ACCOUNT_EMAIL_VERIFICATION", "EMAIL_HOST", "EMAIL_PORT", "EMAIL_USE_TLS", "EMAIL_HOST_PASSWORD"]
    assert settings_of(tmp_path, names)["ACCOUNT_EMAIL_VERIFICATION"] == "none"
    found = settings_of(tmp_path, names, PULSE_MAIL_URL="smtp://a:p%40ss@mail.example.test:2525")
    assert found == {
        "ACCOUNT_EMAIL_VERIFICATION": "mandatory", "EMAIL_HOST": "mail.example.test", "EMAIL_PORT": 2525,
        "EMAIL_USE_TLS": True, "EMAIL_HOST_PASSWORD": "p@ss",
    }  # fmt: skip


def test_postgresql_and_redis_come_by_their_addresses(tmp_path):
    found = settings_of(
        tmp_path, ["DATABASES", "CACHES", "Q_CLUSTER"],
        DATABASE_URL="postgresql://u:p%2Fw@db.example.test:5433/pulse?sslmode=require",
        REDIS_URL="redis://cache.example.test:6379/1",
    )  # fmt: skip
    database = found["DATABASES"]["default"]
    assert database["ENGINE"].endswith("postgresql")
    assert (database["HOST"], database["PORT"], database["NAME"]) == ("db.example.test", "5433", "pulse")
    assert (database["PASSWORD"], database["OPTIONS"]) == ("p/w", {"sslmode": "require"})
    assert found["CACHES"]["default"]["LOCATION"] == "redis://cache.example.test:6379/1"
    assert found["Q_CLUSTER"]["redis"] == "redis://cache.example.test:6379/1"


def test_an_operator_says_the_most_that_steps_may_ask_for(tmp_path):
    shown = settings_of(tmp_path, ["PULSE_LIMITS"], PULSE_LIMITS="timeout_s=7200, memory_mb=64")["PULSE_LIMITS"]
    assert "timeout_s=7200, cpu_s=7200, memory_mb=64, processes=128" in shown


def test_the_generated_key_and_the_database_are_closed_to_others(tmp_path):
    settings_of(tmp_path, ["DEBUG"])
    data = tmp_path / "data"
    assert (data / "secrets" / "django.key").stat().st_mode & 0o777 == 0o600
    assert (data / "secrets").stat().st_mode & 0o777 == 0o700
    assert (data / "database").stat().st_mode & 0o777 == 0o700


def test_the_key_stays_the_same_from_start_to_start(tmp_path):
    first = settings_of(tmp_path, ["SECRET_KEY"])
    assert first == settings_of(tmp_path, ["SECRET_KEY"])
    assert len(str(first["SECRET_KEY"])) >= 50


SORT = """
import os, sqlite3
raw = sqlite3.connect(":memory:")
raw.execute("PRAGMA cache_size=10")
rows = raw.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)"
                   " SELECT randomblob(1000000) AS r FROM n ORDER BY r")
rows.fetchone()
for number in os.listdir("/proc/self/fd"):
    try:
        print(os.readlink(f"/proc/self/fd/{number}"))
    except FileNotFoundError:
        pass
"""


def test_what_a_query_sorts_lies_in_the_data_folder_where_no_step_looks(tmp_path):
    done = manage(tmp_path, "shell", "-c", SORT)
    sorted_in = [line for line in done.stdout.splitlines() if "etilqs" in line]
    assert sorted_in, done.stdout + done.stderr
    folder = tmp_path / "data" / "database" / "tmp"
    assert all(line.startswith(f"{folder}/") for line in sorted_in)
    assert [path.stat().st_mode & 0o077 for path in (folder, folder.parent)] == [0, 0]
    assert not list(folder.iterdir())
