"""Values at rest: AES-256-GCM under keys that lie in a file outside the database.

A ciphertext is bound to its purpose and its row: moved to another row it does not open. Each row keeps the id of its
key; the file `secrets/vault.keys` holds a line `<key id> <key>` for each key, the newest first. Losing it loses every
value, which is why `docs/how-to/keys.md` says how to keep it.
"""

from __future__ import annotations

import base64
import enum
import functools
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from apps.workflows.errors import SecretUnreadable
from apps.workflows.models import Secret, Workflow
from engine import keyfiles
from engine.redaction import redactor

NONCE_BYTES = 12


class Purpose(enum.StrEnum):
    """What a value is for: each has its own key, derived from the vault's."""

    SECRET = "secret"  # noqa: S105 - a word, not a value
    RUN_INPUT = "run-input"
    TRIGGER = "trigger"
    MFA = "second-factor"


class Sealed(NamedTuple):
    """What a row keeps."""

    ciphertext: bytes
    key_id: str


def encrypt(purpose: Purpose, row_id: object, data: bytes) -> Sealed:
    """`data` sealed for this row alone, under the newest key."""
    _remember(purpose, data)
    key_id, master = next(iter(_keys().items()))
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(_derive(master, purpose)).encrypt(nonce, data, _bound_to(purpose, row_id))
    return Sealed(nonce + sealed, key_id)


def decrypt(purpose: Purpose, row_id: object, ciphertext: bytes | memoryview, key_id: str) -> bytes:
    """The data of a row. Raises SecretUnreadable when the key is not here or the ciphertext is not this row's."""
    master = _keys().get(key_id)
    if master is None:
        _read.cache_clear()  # another process may have rotated just now
        master = _keys().get(key_id)
    if master is None:
        raise SecretUnreadable(
            f"The key {key_id} that encrypted this {purpose} is not in {_path().name}. Nothing was started."
            " Put the file of keys back, or save the value again."
        )
    sealed = bytes(ciphertext)
    nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        data = AESGCM(_derive(master, purpose)).decrypt(nonce, rest, _bound_to(purpose, row_id))
    except InvalidTag:
        raise SecretUnreadable(
            f"This {purpose} does not open with its key {key_id}: it was changed, or moved from another row."
            " Nothing was started. Save the value again."
        ) from None
    _remember(purpose, data)
    return data


def secrets_for(workflow: Workflow, names: Iterable[str]) -> dict[str, str]:
    """The values of these secrets of the workflow's team; names without a value are left out.

    Only names that the workflow may use are ever read: for another one the caller has a bug, and ValueError is raised.
    """
    wanted = set(names)
    foreign = wanted - set(workflow.secret_names)
    if foreign:
        raise ValueError(f"{workflow.slug} may not use the secrets {', '.join(sorted(foreign))}.")
    rows = Secret.objects.filter(team_id=workflow.team_id, name__in=wanted)
    return {row.name: decrypt(Purpose.SECRET, row.pk, row.ciphertext, row.key_id).decode() for row in rows}


def secrets_of_team(team_id: UUID) -> dict[str, str]:
    """Every secret of a team, by name: to mask what is shown to it."""
    rows = Secret.objects.filter(team_id=team_id)
    return {row.name: decrypt(Purpose.SECRET, row.pk, row.ciphertext, row.key_id).decode() for row in rows}


def new_key() -> str:
    """Put a new key first in the file; its id. Rows under old keys stay readable; `rotate_keys` moves them."""
    made = _make_line()
    keyfiles.replace(_path(), "\n".join([made, *_path_lines()]))
    _read.cache_clear()
    return made.split()[0]


def drop_keys_but(key_id: str) -> list[str]:
    """Forget every key but this one; the ids that were dropped. Only once no row uses them."""
    dropped = [line.split()[0] for line in _path_lines() if line.split()[0] != key_id]
    keyfiles.replace(_path(), "\n".join(line for line in _path_lines() if line.split()[0] == key_id))
    _read.cache_clear()
    return dropped


def _remember(purpose: Purpose, data: bytes) -> None:
    """A secret that this process has seen is masked in whatever it logs from now on."""
    if purpose is Purpose.SECRET:
        redactor.remember(data.decode(errors="surrogateescape"))


def _bound_to(purpose: Purpose, row_id: object) -> bytes:
    return f"pulse/1/{purpose.value}/{row_id}".encode()


@functools.lru_cache(maxsize=64)
def _derive(master: bytes, purpose: Purpose) -> bytes:
    return HKDF(hashes.SHA256(), length=32, salt=None, info=f"pulse vault {purpose.value}".encode()).derive(master)


def _path() -> Path:
    data: Path = settings.PULSE_DATA
    return data / "secrets" / "vault.keys"


def _keys() -> Mapping[str, bytes]:
    path = _path()
    try:
        stamp = path.stat()
    except FileNotFoundError:
        keyfiles.make_once(path, _make_line())
        stamp = path.stat()
    return _read(path, stamp.st_mtime_ns, stamp.st_ino)


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed: int, _inode: int) -> Mapping[str, bytes]:
    pairs = (line.split() for line in path.read_text().splitlines() if line.strip())
    return {key_id: base64.urlsafe_b64decode(key) for key_id, key in pairs}


def _path_lines() -> list[str]:
    _keys()
    return [line for line in _path().read_text().splitlines() if line.strip()]


def _make_line() -> str:
    return f"k{secrets.token_hex(4)} {base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}"
