"""What the product's own database says of sessions and refusals, to be held against what a test expects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.acceptance.shape import digest


@dataclass(frozen=True)
class Expected:
    """A diagnostic as it must be: the sessions of both sides by id, or as text where there is no session."""

    reason: str
    caller: str
    tool_session: str
    authority: str
    caller_parent: str
    caller_run: str | None
    owner_run: str | None


class Sessions:
    """Every session and diagnostic there is, as the product's database has them."""

    def __init__(self, facts: dict) -> None:
        self.rows = {row["id"]: row for row in facts["sessions"]}
        self.diagnostics = facts["diagnostics"]
        self.ledger = facts["ledger"]
        self.by_token = {row["token_sha256"]: row for row in self.rows.values() if row["token_sha256"]}

    def of(self, token: str) -> dict:
        return self.by_token[digest(token)]

    def of_run(self, run: str) -> dict:
        return next(row for row in self.rows.values() if row["run_id"] == run and row["kind"] == "run")

    def refusal(self, reason: str, presented: str, meant: str) -> Expected:
        """`presented` is a token; `meant` the id of a session, or a name that fits none."""
        caller = self.by_token.get(digest(presented))
        owner = self.rows.get(meant)
        parent = caller["parent_id"] if caller else None
        authority = owner["parent_id"] or owner["id"] if owner else (parent or caller["id"] if caller else "none")
        return Expected(
            reason,
            caller["id"] if caller else "unknown",
            meant,
            authority,
            parent or "none",
            caller["run_id"] if caller else None,
            owner["run_id"] if owner else None,
        )

    def seen(self) -> Counter[Expected]:
        """The diagnostics, each session of them as its id."""
        return Counter(
            Expected(
                row["reason"],
                *(self._id(row[name]) for name in ("caller", "tool_session", "authority", "caller_parent")),
                row["caller_run_id"],
                row["owner_run_id"],
            )
            for row in self.diagnostics
        )

    def _id(self, shown: str) -> str:
        """`step:<id> run=<id> name`: the name proves nothing, the id must be of a session of that kind."""
        kind, _, rest = shown.partition(":")
        found = self.rows.get(rest[:36])
        return found["id"] if found and found["kind"] == kind else shown
