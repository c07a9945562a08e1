"""One module a kind of trigger, each of one shape: who may knock (`verify`) and what was said (`read`)."""

from __future__ import annotations

from types import ModuleType

from apps.webhooks.kinds import bearer, github

KINDS: dict[str, ModuleType] = {"github": github, "bearer": bearer}
