"""Why a delivery made no run, or a trigger was not saved."""

from __future__ import annotations

from apps.accounts.errors import Refused


class DeliveryRefused(Refused):
    """A delivery that was refused; no run was made."""

    code = "malformed"


class Unverified(DeliveryRefused):
    """Signature or token are missing or wrong. The reason is kept with the delivery, the sender is not told it."""

    status = 401
    code = "unverified"


class UnsupportedType(DeliveryRefused):
    """A content type, encoding or charset that the hook does not take."""

    status = 415
    code = "unsupported_type"


class Malformed(DeliveryRefused):
    """A body or header that can't be read."""


class BadMapping(DeliveryRefused):
    """The trigger's mapping does not fit the delivery."""

    code = "bad_mapping"


class BadVariable(DeliveryRefused):
    """A variable that the trigger may not set, or one that is too large."""

    code = "unknown_variable"


class TriggerRefused(Refused):
    """A trigger that was not saved."""

    code = "trigger_refused"


class NotRedeliverable(Refused):
    """A delivery that was not sent again."""

    status = 409
    code = "not_redeliverable"
