"""Decide whether a pull request is to be reviewed.

Purpose: choose the route `review` or `skip` for the pull request that started this run, and leave the reason behind.
Required configuration: none; a run by hand takes its pull request from the variables SAMPLE_*.
Inputs: the run's trigger, read with `pulse.trigger()`.
Outputs: `route_selection.json` for the branch that follows, `decision.json` for the steps behind it.
Side effects: one row in the workflow table `pr_gate_decisions`, by the tool `mutate_workflow_db`.
How it is run: by GitHub's pull_request events, by a bearer token, or by hand. A delivery that cannot be read ends the
step with TriggerUnreadable and its reason; it never selects a route.
"""

from __future__ import annotations

import os

from shared import pull_request
from shared.pull_request import PullRequest

import pulse

REVIEWED = frozenset({"opened", "reopened", "synchronize", "ready_for_review"})

RECORD = """
INSERT INTO pr_gate_decisions (run_id, owner, repo, pull_number, head_sha, decision, reason)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""


def decide(pull: PullRequest) -> tuple[str, str]:
    """The route and, in words, the reason for it."""
    if pull.action not in REVIEWED:
        return "skip", f"the action {pull.action} leaves nothing to review"
    if pull.draft:
        return "skip", "it is still a draft"
    return "review", f"the action {pull.action} brings a change to review"


def main() -> None:
    pull = pull_request.read(pulse.trigger())
    decision, reason = decide(pull)
    print(f"{pull.repository}#{pull.pull_number} at {pull.head_sha[:12]}: {decision}, since {reason}")
    pulse.write_json("route_selection.json", {"select_route": decision})
    pulse.write_json(
        "decision.json",
        {
            "repository": pull.repository,
            "pull_number": pull.pull_number,
            "head_sha": pull.head_sha,
            "decision": decision,
            "reason": reason,
            "run_id": os.environ["RUN_ID"],
        },
    )
    # Last, since it is the one thing here that outlives the run: a step that failed before has recorded nothing.
    pulse.call(
        "mutate_workflow_db",
        sql=RECORD,
        params=[
            os.environ["RUN_ID"],
            pull.owner,
            pull.repo,
            pull.pull_number,
            pull.head_sha,
            decision,
            reason,
        ],
    )


main()
