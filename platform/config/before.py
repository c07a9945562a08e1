"""What `manage.py up` looks at before the settings are read, since reading them makes keys and folders.

Nothing here writes. Without Django's settings: the two places that a start needs, and whether they are free.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from config import env
from engine.sandbox import host

PORT = 8000
HOST = "127.0.0.1"
LOCK = "up.lock"
DATABASE = Path("database", "pulse.sqlite3")
ON_DATA = {
    *("demo", "run_workflow", "import_workflow", "export_workflow", "create_token", "verify_ledger"),
    *("rotate_keys", "changepassword", "createsuperuser"),
}


class UpRefused(Exception):
    """Nothing was started and nothing was changed. The text says why and what to do."""


def data_folder(release: Path) -> Path:
    """`PULSE_DATA`. A folder that the runner uid cannot enter (a clone in a 0700 home) cannot hold what is mounted."""
    return Path(env.text("PULSE_DATA") or host.default_data(release) or release / "var").absolute()


def check(release: Path) -> None:
    """Raises UpRefused when web's port is taken, or the data folder is in use by another `up`."""
    check_port(env.text("PULSE_HOST", HOST), env.number("PULSE_PORT", PORT))
    lock = data_folder(release) / LOCK
    if lock.exists():
        with open(lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise in_use(lock.parent, file.read()) from None


def check_there(release: Path) -> None:
    """Raises UpRefused when there is no product in the data folder that these commands would work on."""
    folder = data_folder(release)
    if not env.text("DATABASE_URL") and not (folder / DATABASE).exists():
        raise UpRefused(
            f"There is no product's data in {folder}. Nothing was done. Name the folder that it has in PULSE_DATA, or"
            " make it there: `make up`, or `manage.py migrate` for a product of your own set-up."
        )


def check_port(where: str, port: int) -> None:
    """Raises UpRefused when another program listens there."""
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((where, port))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "a port is a number up to 65535"
            raise UpRefused(
                f"Pulse cannot listen on {where}:{port} ({why}). Nothing was started or changed."
                " End the other program, or set PULSE_PORT to a free port."
            ) from None


def serving_port(data: Path) -> int | None:
    """The port of the product that runs on this data folder; None when none does, or it does not say."""
    lock = data / LOCK
    if not lock.exists():
        return None
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            said = file.read().rpartition(" on port ")[2].strip()
            return int(said) if said.isdecimal() else None
    return None


def take_port(release: Path) -> None:
    """The port of the product that runs on this data folder becomes this command's: the links it prints lead there."""
    if port := serving_port(data_folder(release)):
        os.environ.update(PULSE_PORT=str(port))


def in_use(data: Path, holder: str) -> UpRefused:
    return UpRefused(
        f"The data folder {data} is in use by {holder.strip() or 'another process'}. Nothing was started or changed."
        " Stop that one, or set PULSE_DATA to another folder."
    )
