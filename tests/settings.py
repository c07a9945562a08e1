"""The product's settings, with a database and a data folder that the suite throws away."""

from __future__ import annotations

import os
import tempfile

_worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
os.environ["PULSE_DATA"] = os.environ.get("PULSE_TEST_DATA") or tempfile.mkdtemp(
    prefix=f"pulse-test-{_worker}-"
)
os.environ.setdefault("PULSE_SECRET_KEY", "only-for-tests-" * 5)
os.environ.pop("PULSE_BASE_URL", None)
os.environ.pop("REDIS_URL", None)
if os.environ.get("PULSE_TEST_DATABASE_URL"):
    os.environ["DATABASE_URL"] = os.environ["PULSE_TEST_DATABASE_URL"]
else:
    os.environ.pop("DATABASE_URL", None)

from config.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
