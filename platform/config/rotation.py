"""Moving every encrypted value to another key: one table of where such values are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.db import models, transaction

from apps.workflows import vault
from apps.workflows.vault import Purpose
from config.mfa import MfaAdapter


@dataclass(frozen=True)
class Holder:
    """A table with an encrypted column: the value is bound to the row's primary key."""

    model: str
    purpose: Purpose
    ciphertext: str = "ciphertext"
    key_id: str = "key_id"


HOLDERS = (
    Holder("workflows.Secret", Purpose.SECRET),
    Holder("runs.RunInput", Purpose.RUN_INPUT),
    Holder("webhooks.Trigger", Purpose.TRIGGER, "credentials", "credentials_key_id"),
)


def move_all(key_id: str) -> dict[str, int]:
    """Put every value that is under another key under `key_id`; how many were moved, by kind."""
    moved = {holder.purpose.value: _move(holder, key_id) for holder in HOLDERS}
    moved[Purpose.MFA.value] = _move_second_factors(key_id)
    return moved


def _move(holder: Holder, key_id: str) -> int:
    model = apps.get_model(holder.model)
    moved = 0
    for pk in list(_under_other_keys(model, holder, key_id)):
        with transaction.atomic():
            row = model._default_manager.select_for_update().get(pk=pk)  # noqa: SLF001 - Django's name for it
            old = getattr(row, holder.key_id)
            data = vault.decrypt(holder.purpose, row.pk, getattr(row, holder.ciphertext), old)
            sealed = vault.encrypt(holder.purpose, row.pk, data)
            setattr(row, holder.ciphertext, sealed.ciphertext)
            setattr(row, holder.key_id, sealed.key_id)
            row.save(update_fields=[holder.ciphertext, holder.key_id])
            moved += 1
    return moved


def _under_other_keys(model: type[models.Model], holder: Holder, key_id: str) -> Iterator[object]:
    rows = model._default_manager.exclude(**{holder.key_id: key_id}).exclude(**{holder.key_id: ""})  # noqa: SLF001
    yield from rows.values_list("pk", flat=True)


def _move_second_factors(key_id: str) -> int:
    adapter = MfaAdapter()
    moved = 0
    for row in Authenticator.objects.all():
        changed = {
            name: adapter.encrypt(adapter.decrypt(text))
            for name, text in row.data.items()
            if isinstance(text, str) and text.startswith("k") and ":" in text and not text.startswith(f"{key_id}:")
        }
        if changed:
            row.data = {**row.data, **changed}
            row.save(update_fields=["data"])
            moved += 1
    return moved
