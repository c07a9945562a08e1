"""What the steps of this workflow know of a pull request, whatever road its run came by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulse


@dataclass(frozen=True)
class PullRequest:
    """One pull request. A count that nobody told is None: unknown is not zero."""

    owner: str
    repo: str
    pull_number: int
    head_sha: str
    action: str
    draft: bool
    title: str
    changed_files: int | None
    additions: int | None
    deletions: int | None
    commits: int | None

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.repo}"

    @property
    def lines(self) -> int | None:
        """Lines added and removed; None when either is not known."""
        if self.additions is None or self.deletions is None:
            return None
        return self.additions + self.deletions


def read(trigger: pulse.Trigger) -> PullRequest:
    """The pull request of this run.

    GitHub's event has it under `pull_request`, a bearer's payload as flat keys of the same names; a run by hand takes
    it from the variables SAMPLE_*. Raises TriggerUnreadable, naming what is missing, when one of owner, repo, pull
    number and head sha is not there: such a delivery says nothing about what is to be done.
    """
    # Its own names: a delivery that lacks a value must never be completed by a sample.
    prefix = "" if trigger.path else "sample_"
    needed = {name: trigger.value(prefix + name) for name in ("owner", "repo", "pull_number", "head_sha")}
    missing = [name for name, value in needed.items() if value in (None, "")]
    if missing:
        raise pulse.TriggerUnreadable(trigger.path, bool(trigger.path), f"it has no {', no '.join(missing)}.")
    return PullRequest(
        owner=str(needed["owner"]),
        repo=str(needed["repo"]),
        pull_number=int(needed["pull_number"]),
        head_sha=str(needed["head_sha"]),
        action=str(_told(trigger, "action") or "opened"),
        draft=bool(_told(trigger, "draft")),
        title=str(_told(trigger, "title") or ""),
        changed_files=_count(trigger, "changed_files"),
        additions=_count(trigger, "additions"),
        deletions=_count(trigger, "deletions"),
        commits=_count(trigger, "commits"),
    )


def _told(trigger: pulse.Trigger, name: str) -> Any:
    if name == "action":
        return trigger.value("action")
    return trigger.value(f"pull_request.{name}", trigger.value(name))


def _count(trigger: pulse.Trigger, name: str) -> int | None:
    value = _told(trigger, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
