"""What is to become of an arrival, found out by reading only: who sent it, what it says, whether a run may start.

The checks run in the order of BEHAVIOUR 8. Nothing is stored here; `accept` is the one writer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from uuid import UUID

from apps.accounts.errors import Field, Refused
from apps.runs import actions as runs
from apps.webhooks.arrivals import Arrival
from apps.webhooks.errors import Unverified
from apps.webhooks.kinds import KINDS
from apps.webhooks.kinds.shape import Credentials, Definition, Said
from apps.webhooks.mappings import check_variables, map_payload
from apps.webhooks.models import Trigger
from apps.workflows import vault
from engine.ids import uuid7

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refusal:
    """Why no run is made. `early` ones are answered before the delivery id is looked up, late ones after."""

    status: int
    code: str
    detail: str
    fields: tuple[Field, ...] = ()
    reason: str = ""

    @property
    def early(self) -> bool:
        return self.status in {400, 401, 404, 415, 500}


@dataclass(frozen=True)
class Judged:
    """An arrival with all that reading can say of it. `run_id` is the id that its run will have, if it makes one."""

    arrival: Arrival
    trigger: Trigger | None = None
    verification: str = ""
    said: Said | None = None
    listened: bool = False
    start: runs.Admitted | None = None
    refusal: Refusal | None = None
    run_id: UUID = field(default_factory=uuid7)
    row_id: UUID = field(default_factory=uuid7)

    @property
    def external_id(self) -> str | None:
        """The sender's id, which this delivery takes when it makes a run. A redelivery has none: it is new."""
        if self.said is None or self.arrival.redelivery is not None:
            return None
        return self.said.delivery_id or None

    @property
    def delivery_id(self) -> str:
        """The id that sender and step are told: the sender's own, else the row's."""
        return self.external_id or str(self.row_id)

    @property
    def starts(self) -> bool:
        """Whether it makes a run, unless its delivery id was here before."""
        return self.listened and self.refusal is None


Starts = dict[tuple[UUID, str], runs.Admitted | Refusal]

NO_METHOD = Refusal(405, "method_not_allowed", "Deliveries are sent by POST.")
NOT_FOUND = Refusal(404, "not_found", "There is no such hook.")
FAULT = Refusal(500, "fault", "A fault of ours: the delivery was not taken. It is in our log. Send it again.")


def judge_all(batch: Sequence[Arrival]) -> list[Judged]:
    """Each arrival judged by itself; triggers are looked up once, and equal starts are checked once for the batch."""
    known = Trigger.objects.listening(arrival.key for arrival in batch)
    starts: Starts = {}
    return [_judge(Judged(arrival, known.get(arrival.key)), starts) for arrival in batch]


def credentials_of(trigger: Trigger) -> Credentials:
    sealed = bytes(trigger.credentials) if trigger.credentials else b""
    secrets = _secrets(trigger.pk, sealed, trigger.credentials_key_id) if sealed else ()
    return Credentials(secrets, tuple(trigger.token_sha256))


@lru_cache(maxsize=256)
def _secrets(trigger_id: UUID, sealed: bytes, key_id: str) -> tuple[str, ...]:
    # Keyed by the ciphertext: a rotated secret is another key, so nothing here can be stale.
    return tuple(vault.decrypt(vault.Purpose.TRIGGER, trigger_id, sealed, key_id).decode().split("\n"))


def _judge(one: Judged, starts: Starts) -> Judged:
    if one.trigger is None or one.trigger.kind not in KINDS:
        return replace(one, refusal=NOT_FOUND)
    return _judge_known(one, one.trigger, starts)


def _judge_known(one: Judged, trigger: Trigger, starts: Starts) -> Judged:
    try:
        one = _verified(one, trigger)
        one = _read(one, trigger)
        return _startable(one, trigger, starts) if one.listened else one
    except Unverified as wrong:
        detail = "The signature or token of this delivery is missing or wrong. No run was made."
        return replace(one, refusal=Refusal(401, wrong.code, detail, reason=wrong.detail))
    except Refused as wrong:
        return replace(one, refusal=refusal_of(wrong))
    except Exception:
        log.exception("An arrival at trigger %s could not be judged.", trigger.pk)
        return replace(one, refusal=FAULT)


def refusal_of(wrong: Refused) -> Refusal:
    """A refusal of the layers below, as this one answers it: what the sender got wrong is a 400 here."""
    fields = tuple(Field(each.path, each.message) for each in wrong.fields)
    return Refusal(400 if wrong.status == 422 else wrong.status, wrong.code, wrong.detail, fields)


def _verified(one: Judged, trigger: Trigger) -> Judged:
    if one.arrival.redelivery is not None:
        return replace(one, verification=f"sent again by {one.arrival.redelivery.by}")
    kind = KINDS[trigger.kind]
    verification = kind.verify(one.arrival.headers, one.arrival.body, credentials_of(trigger))
    return replace(one, verification=verification)


def _read(one: Judged, trigger: Trigger) -> Judged:
    definition = Definition.of(trigger.definition)
    said: Said = KINDS[trigger.kind].read(one.arrival.headers, one.arrival.body, definition)
    return replace(one, said=said, listened=not said.ping and definition.listens_to(said.event))


def _startable(one: Judged, trigger: Trigger, starts: Starts) -> Judged:
    """The start that this delivery asks for, checked as far as it can be without writing. May leave a late refusal."""
    said, definition = one.said, Definition.of(trigger.definition)
    if said is None:
        return one
    mapped = map_payload(definition.mappings, said.payload)
    wanted: runs.StartFacts = {
        "group": said.group or mapped.group,
        "trigger_group": trigger.group,
        "variables": {**mapped.variables, **said.variables},
        "parameters": mapped.parameters,
        "route_selections": mapped.routes,
    }
    check_variables(wanted["variables"] or {}, definition.allowed_variables)
    key = (trigger.workflow_id, json.dumps(wanted, sort_keys=True))
    if key not in starts:
        starts[key] = _check(trigger, wanted)
    found = starts[key]
    return replace(one, refusal=found) if isinstance(found, Refusal) else replace(one, start=found)


def _check(trigger: Trigger, wanted: runs.StartFacts) -> runs.Admitted | Refusal:
    try:
        return runs.check_start(workflow=trigger.workflow, **wanted)
    except Refused as wrong:
        return refusal_of(wrong)
