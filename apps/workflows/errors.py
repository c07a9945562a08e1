"""What the actions on workflows refuse. Nothing was changed when one of these is raised."""

from __future__ import annotations

from apps.accounts.errors import Refused


class ImportRefused(Refused):
    """A folder or zip that is not taken over; nothing of it was left behind."""

    code = "import_refused"


class DocumentNotValid(Refused):
    """A workflow document, plan or setting that does not hold; `fields` names each place."""

    status = 422
    code = "document_refused"


class GroupUnknown(Refused):
    """The workflow has no such group, or it is switched off."""

    code = "unknown_group"


class VariableRefused(Refused):
    """A variable or group value that may not be saved."""

    status = 422
    code = "variable_refused"


class SecretRefused(Refused):
    """A secret's name or value that may not be saved. The value is never repeated."""

    status = 422
    code = "secret_refused"


class SecretUnreadable(Refused):
    """A stored value cannot be decrypted with the keys this machine has; it is never taken for empty."""

    status = 503
    code = "secret_unreadable"


class NotCurrent(Refused):
    """The workflow's contract is not the one this release runs."""

    status = 409
    code = "migration_required"


class SavedMeanwhile(Refused):
    """Others saved parts of the same workflow again and again while this save was checked."""

    status = 409
    code = "saved_meanwhile"


class GateBusy(Refused):
    """The workflow's code is in use and did not become free in time."""

    status = 409
    code = "code_busy"
