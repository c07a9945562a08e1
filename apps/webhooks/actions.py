"""Every write to triggers, and sending a delivery again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from django.db import transaction
from django.utils import timezone
from pydantic import JsonValue, ValidationError

from apps.accounts import audit
from apps.accounts.errors import Field
from apps.accounts.models import User
from apps.webhooks import accept
from apps.webhooks.arrivals import Answer, Arrival, Redelivery
from apps.webhooks.errors import NotRedeliverable, TriggerRefused
from apps.webhooks.judging import credentials_of
from apps.webhooks.kinds import KINDS, bearer
from apps.webhooks.models import Delivery, Trigger
from apps.workflows import documents, saving, vault
from apps.workflows.documents import Raw
from apps.workflows.errors import DocumentNotValid
from apps.workflows.models import Workflow
from engine.document.entries import Trigger as TriggerDocument

TOKEN_MARK = "pht_"  # noqa: S105 - how a token begins, not one
SHORTEST_SECRET = 8
LIVE_AT_ONCE = 2
Saved = TypeVar("Saved")


@dataclass(frozen=True)
class Made:
    """A trigger, and the secret or token that was made for it: shown this once. Empty when nothing new was made."""

    trigger: Trigger
    secret: str = ""
    note: str = ""


def make_trigger(
    *,
    workflow: Workflow,
    document: TriggerDocument | Mapping[str, JsonValue],
    by: User,
    secret: str = "",
    new: bool = False,
    imported: bool = False,
) -> Made:
    """Register the trigger of that name, or bring it up to the document. Doing it again changes nothing.

    An existing one keeps its address and its credentials; with `new` it is refused instead. `secret` is the
    sender's own, when it is not ours to make. What an import would refuse is refused here too. An `imported` one is of
    a document that was checked whole; it has no secret yet, and lets nothing in.
    """
    wanted = _checked(document)
    saved = wanted.model_dump(mode="json", exclude_unset=True)

    def write() -> Made:
        trigger = Trigger.objects.filter(workflow=workflow, name=wanted.name).first()
        if trigger is None:
            return _register(workflow, wanted, saved, by=by, secret=None if imported else secret)
        _refuse_other(trigger, wanted, new=new)
        changed = (trigger.definition, trigger.group, trigger.enabled) != (saved, wanted.group, wanted.enabled)
        trigger.definition, trigger.group, trigger.enabled = saved, wanted.group, wanted.enabled
        if changed:
            trigger.save(update_fields=["definition", "group", "enabled"])
            audit.record("trigger.changed", trigger, team=workflow.team, by=by, data={"name": trigger.name})
        return Made(trigger)

    return write() if imported else _save(workflow, lambda: saved, write)


def rotate(trigger: Trigger, *, by: User, secret: str = "") -> Made:
    """A new secret or token beside the old one: both are live until `drop_old`. A third is refused.

    So a page that is sent twice never ends the secret that its sender has just been given.
    """
    with transaction.atomic():
        trigger = _locked(trigger)
        if len(trigger.token_sha256) + len(credentials_of(trigger).secrets) >= LIVE_AT_ONCE:
            raise TriggerRefused(
                f"{trigger.name} has {LIVE_AT_ONCE} live secrets already. No new one was made. Give the newer one to"
                " its sender, then drop the older one.",
                code="two_secrets_live",
                status=409,
            )
        made = _prove(trigger, secret)
        trigger.save(update_fields=["credentials", "credentials_key_id", "token_sha256"])
        _audit("trigger.rotated", trigger, by)
    return made


def drop_old(trigger: Trigger, *, by: User) -> Trigger:
    """Only the newest secret or token stays live."""
    with transaction.atomic():
        trigger = _locked(trigger)
        trigger.token_sha256 = trigger.token_sha256[:1]
        _seal(trigger, list(credentials_of(trigger).secrets)[:1])
        trigger.save(update_fields=["credentials", "credentials_key_id", "token_sha256"])
        _audit("trigger.old_credentials_dropped", trigger, by)
    return trigger


def set_enabled(trigger: Trigger, enabled: bool, *, by: User) -> Trigger:
    """A trigger that is switched off answers as if it did not exist, and counts what it turned away."""

    def write() -> Trigger:
        locked = _locked(trigger)
        if locked.enabled != enabled:
            locked.enabled = enabled
            locked.definition = {**locked.definition, "enabled": enabled}
            locked.save(update_fields=["enabled", "definition"])
            _audit("trigger.enabled" if enabled else "trigger.disabled", locked, by)
        return locked

    def wanted() -> dict[str, JsonValue]:
        return {**Trigger.objects.get(pk=trigger.pk).definition, "enabled": True}

    if enabled and not Trigger.objects.filter(pk=trigger.pk, enabled=True).exists():
        return _save(trigger.workflow, wanted, write)
    with transaction.atomic():
        saving.lock(trigger.workflow)
        return write()


def empty(trigger: Trigger, *, by: User) -> None:
    """Forget what a switched-off trigger listened to and started; its kind, name, address and credentials stay."""
    with transaction.atomic():
        trigger = _locked(trigger)
        trigger.definition = {"kind": trigger.kind, "name": trigger.name, "enabled": False}
        trigger.group, trigger.enabled = "", False
        trigger.save(update_fields=["definition", "group", "enabled"])
        _audit("trigger.emptied", trigger, by)


def delete_trigger(trigger: Trigger, *, by: User) -> None:
    """Its address answers as if it had never been; its deliveries stay."""
    with transaction.atomic():
        trigger = _locked(trigger)
        _audit("trigger.deleted", trigger, by)
        trigger.delete()


def redeliver(delivery: Delivery, *, by: User) -> Answer:
    """Send the delivery again: same content, new id, linked to the first one.

    Only what was verified when it came, and was kept whole. Raises NotRedeliverable.
    """
    trigger = delivery.trigger
    if trigger is None or not trigger.enabled:
        raise NotRedeliverable(
            "The trigger of this delivery is deleted or switched off. Nothing was sent again. Switch it on first.",
            code="trigger_gone",
        )
    if not delivery.verification:
        raise NotRedeliverable(
            "This delivery was never verified. Nothing was sent again. Let its sender send it again.", code="unverified"
        )
    if not delivery.whole:
        raise NotRedeliverable(
            "Of a refused delivery only the first 4 KiB are kept. Nothing was sent again."
            " Let its sender send it again.",
            code="body_not_kept",
        )
    arrival = Arrival(
        key=trigger.key,
        body=bytes(delivery.body),
        headers=delivery.headers,
        remote="",
        received_at=timezone.now(),
        redelivery=Redelivery(of=delivery.redelivery_of_id or delivery.pk, by=by.get_username()),
    )
    return accept.accept_deliveries([arrival])[0]


def _checked(document: TriggerDocument | Mapping[str, JsonValue]) -> TriggerDocument:
    try:
        wanted = TriggerDocument.model_validate(document)
    except ValidationError as wrong:
        fields = [Field(".".join(map(str, error["loc"])), error["msg"]) for error in wrong.errors()]
        raise TriggerRefused(
            "The trigger does not hold; fields says where. Nothing was saved.", fields=fields
        ) from None
    if wanted.kind not in KINDS:
        raise TriggerRefused(
            f"Triggers of kind {wanted.kind} are not in this release. Nothing was saved. It has: {', '.join(KINDS)}.",
            code="not_supported_yet",
            fields=[Field("kind", "not_supported_yet")],
        )
    return wanted


def _refuse_other(trigger: Trigger, wanted: TriggerDocument, *, new: bool) -> None:
    if new:
        raise TriggerRefused(
            f"There is a trigger {wanted.name!r} already. Nothing was saved. Take another name.",
            code="duplicate_name",
            fields=[Field("name", "taken by another trigger")],
        )
    if trigger.kind != wanted.kind:
        raise TriggerRefused(
            f"The trigger {wanted.name!r} is of kind {trigger.kind} and can't become {wanted.kind}. Nothing was"
            " saved. Delete it first, or take another name.",
            fields=[Field("kind", "differs from the saved one")],
        )


def _save(workflow: Workflow, wanted: Callable[[], dict[str, JsonValue]], write: Callable[[], Saved]) -> Saved:
    """What an import would refuse is refused here: a group that there is not, a parameter of no step."""
    own = ""

    def change() -> Raw:
        nonlocal own
        raw, mine = documents.with_sections(workflow), wanted()
        before = cast(list[dict[str, JsonValue]], raw.get("triggers") or [])
        others = [one for one in before if one["name"] != mine["name"]]
        own = f"$.triggers[{len(others)}]."
        return raw | {"triggers": cast(JsonValue, [*others, mine])}

    try:
        return saving.checked(workflow, change, lambda _raw, _document: write())
    except DocumentNotValid as wrong:
        raise TriggerRefused(
            wrong.detail.removeprefix(own),
            code=wrong.code,
            fields=[Field(field.path.removeprefix(own), field.message) for field in wrong.fields],
        ) from None


def _register(
    workflow: Workflow, wanted: TriggerDocument, saved: dict[str, JsonValue], *, by: User, secret: str | None
) -> Made:
    trigger = Trigger(
        workflow=workflow,
        kind=wanted.kind,
        name=wanted.name,
        key=secrets.token_urlsafe(24),
        group=wanted.group,
        enabled=wanted.enabled,
        definition=saved,
    )
    made = Made(trigger) if secret is None else _prove(trigger, secret)
    trigger.save(force_insert=True)
    audit.record("trigger.made", trigger, team=workflow.team, by=by, data={"name": trigger.name, "kind": trigger.kind})
    return made


def _prove(trigger: Trigger, given: str) -> Made:
    """Put a new secret or token first among the trigger's live ones, on the object only."""
    secret = given.strip()
    note = "White space around the secret was taken off." if secret != given else ""
    if given and len(secret) < SHORTEST_SECRET:
        raise TriggerRefused(
            f"A secret needs at least {SHORTEST_SECRET} characters. Nothing was saved.",
            code="secret_too_short",
            fields=[Field("secret", "too short")],
        )
    if "\n" in secret or "\0" in secret:
        raise TriggerRefused("A secret is one line. Nothing was saved.", fields=[Field("secret", "more than one line")])
    if trigger.kind == "bearer":
        secret = secret or TOKEN_MARK + secrets.token_urlsafe(32)
        trigger.token_sha256 = [bearer.digest(secret), *trigger.token_sha256][:LIVE_AT_ONCE]
    else:
        secret = secret or secrets.token_urlsafe(32)
        _seal(trigger, [secret, *credentials_of(trigger).secrets][:LIVE_AT_ONCE])
    return Made(trigger, secret, note)


def _seal(trigger: Trigger, live: list[str]) -> None:
    if not live:
        trigger.credentials, trigger.credentials_key_id = None, ""
        return
    sealed = vault.encrypt(vault.Purpose.TRIGGER, trigger.pk, "\n".join(live).encode())
    trigger.credentials, trigger.credentials_key_id = sealed.ciphertext, sealed.key_id


def _locked(trigger: Trigger) -> Trigger:
    return (
        Trigger.objects.select_for_update(of=("self",), no_key=True).select_related("workflow__team").get(pk=trigger.pk)
    )


def _audit(action: str, trigger: Trigger, by: User) -> None:
    audit.record(action, trigger, team=trigger.workflow.team, by=by, data={"name": trigger.name})
