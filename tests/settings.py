"""The product's settings, with a database and a data folder that the suite throws away."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_data = tempfile.mkdtemp(prefix="pulse-test-")
os.chmod(_data, 0o711)  # the dropped runner uid must be able to pass through it
_made_by = os.getpid()


def _clean() -> None:
    if os.getpid() == _made_by:  # not a forked worker that leaves
        shutil.rmtree(_data, ignore_errors=True)


atexit.register(_clean)
os.environ["PULSE_DATA"] = _data
os.environ["PULSE_SECRET_KEY"] = "only-for-tests-" * 5
for _name in ("PULSE_BASE_URL", "REDIS_URL", "DATABASE_URL"):
    os.environ.pop(_name, None)
if os.environ.get("PULSE_TEST_DATABASE_URL"):
    os.environ["DATABASE_URL"] = os.environ["PULSE_TEST_DATABASE_URL"]

from config.settings import *  # noqa: E402, F403
from config.settings import DATABASES, PULSE_DATA  # noqa: E402

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, as in the product: threads and processes of a test see one database, in WAL mode.
    DATABASES["default"]["TEST"] = {"NAME": str(PULSE_DATA / "test.sqlite3")}

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_ROOT = PULSE_DATA / "static-root"  # whitenoise warns when there is none
STATIC_ROOT.mkdir(exist_ok=True)
