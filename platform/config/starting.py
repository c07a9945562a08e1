"""What `up` looks at, claims and lays out before it starts a process. Refusals come before any change."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import transaction

from apps.accounts import actions as accounts
from apps.accounts.models import User
from config import before
from engine.sandbox import host
from engine.sandbox.errors import SandboxRefused

ADMIN = "admin"


def claim_data() -> IO[str]:
    """The lock on the data folder: held as long as the file stays open. Raises UpRefused when another `up` has it."""
    data: Path = settings.PULSE_DATA
    data.mkdir(parents=True, exist_ok=True)
    file = open(data / before.LOCK, "a+")  # noqa: SIM115 - open for as long as `up` runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read()
        file.close()
        raise before.in_use(data, holder) from None
    file.truncate(0)
    file.write(f"pid {os.getpid()} on port {settings.PULSE_PORT}")
    file.flush()
    return file


def lay_out() -> str:
    """The data folder's parts, the database's tables, the static files; what bars steps from running, else empty."""
    barred = ""
    try:
        host.prepare_data(settings.PULSE_DATA, host.runner(settings.PULSE_DATA, settings.PULSE_RUNNER_UID))
    except SandboxRefused as refused:
        barred = str(refused)
    call_command("migrate", verbosity=0, interactive=False)
    _collect_static()
    return barred


def _collect_static() -> None:
    """The static files with their hashes and compressed copies, made anew only when a source has changed."""
    seen = hashlib.sha256()
    for finder in get_finders():
        for path, storage in finder.list([]):
            status = os.stat(storage.path(path))
            seen.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    stamp = Path(settings.STATIC_ROOT) / ".collected"
    if stamp.exists() and stamp.read_text() == seen.hexdigest():
        return
    call_command("collectstatic", verbosity=0, interactive=False)
    stamp.write_text(seen.hexdigest())


def first_admin(say: Callable[[str], None]) -> User | None:
    """Who owns the demonstration: the first admin, made when nobody is here; None when only others are.

    The password is said before the account is there for good, so that no interruption can lose it.
    """
    if User.objects.exists():
        return User.objects.filter(is_superuser=True, is_active=True).order_by("date_joined", "pk").first()
    password = secrets.token_urlsafe(12)
    with transaction.atomic():
        user = User.objects.create_superuser(ADMIN, password=password)
        accounts.require_new_password(user)
        say(f"Sign in as {user.get_username()} with the password {password} (shown only now; change it there).")
    return user


def moved_data() -> str:
    """Where the data lies when it cannot lie beside the product, so that people are told; else empty."""
    chosen = os.environ.get("PULSE_DATA", "").strip()
    own = Path(settings.BASE_DIR) / "var"
    return "" if chosen or own == settings.PULSE_DATA else str(settings.PULSE_DATA)
