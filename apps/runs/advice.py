"""What an outcome means for the person who reads it, and what to do next (BEHAVIOUR 5)."""

from __future__ import annotations

from dataclasses import dataclass

from engine.outcomes import Outcome
from engine.runner.collect import RULE_FAULTY


@dataclass(frozen=True)
class Advice:
    """`cause` says what happened in one line, `next` what a person can do now."""

    cause: str
    next: str


_ADVICE: dict[str, Advice] = {
    Outcome.SCRIPT_ERROR: Advice(
        "The script ended with an error.",
        "Read the end of its log. When the code is mended, rerun from this step: earlier outputs are kept.",
    ),
    Outcome.VALIDATION_FAILED: Advice(
        "The script ended well, but what it wrote does not pass its checks.",
        "The Result tab lists each check. Mend the step, or the rule when the rule is wrong, then rerun from here.",
    ),
    Outcome.ASSERTION_FAILED: Advice(
        "An assertion of the script did not hold.",
        "Look at what the assertion compares before changing it: it may have found a real fault.",
    ),
    Outcome.REFUSED: Advice(
        "The script refused to go on. What it says is its own claim, not proven.",
        "Clear the reason it gives, then rerun from this step.",
    ),
    Outcome.PREFLIGHT_FAILED: Advice(
        "Nothing ran: the step's code or configuration is not complete.",
        "The message names the file, the line or the variable. Mend it and rerun from this step.",
    ),
    Outcome.HARNESS_REJECTED: Advice(
        "Nothing ran: the platform could not, or would not, start this step.",
        "The reason says what is missing. When it is the host, manage.py doctor says how to mend it.",
    ),
    Outcome.PARAMETERS_REJECTED: Advice(
        "Nothing ran: a parameter does not fit its declaration.",
        "Start the workflow again with the named parameter put right.",
    ),
    Outcome.TOOL_BOUNDARY: Advice(
        "A tool call was refused by the platform. That is a platform fault, not one of the script.",
        "The ownership panel names the sessions on both sides. Do not change the script for it.",
    ),
    Outcome.TIMED_OUT: Advice(
        "The step ran out of time; every process it started was ended.",
        "Find in the log where it stood still. Raise limits.timeout_s only when the work truly takes longer.",
    ),
    Outcome.LIMIT_EXCEEDED: Advice(
        "The step used more than its limits allow, and was ended.",
        "The reason names the limit. Raise it in the plan, or let the step use less.",
    ),
    Outcome.CANCELLED: Advice("The step was cancelled.", "Rerun from this step when it is wanted again."),
    Outcome.WORKER_LOST: Advice(
        "The worker ended in the middle of this step. What the script did until then is not known.",
        "Check what it may have changed outside, then choose: run the step again, or mark how it ended.",
    ),
}
_OF_REASON: dict[tuple[str, str], Advice] = {
    (Outcome.VALIDATION_FAILED, RULE_FAULTY): Advice(
        "A rule of the validation could not be applied. No check failed: nothing is known against the output.",
        "Mend the rule in the plan, not the script; the Result tab says what is wrong with it. Then rerun from here.",
    ),
}
_UNKNOWN = Advice("The step did not succeed.", "Read its reason and its log.")

_STATE_OF_OUTCOME: dict[str, str] = {
    "": "running",
    Outcome.SUCCEEDED: "succeeded",
    Outcome.CANCELLED: "cancelled",
    Outcome.WORKER_LOST: "needs_attention",
}


def of(outcome: str, reason: str = "") -> Advice:
    return _OF_REASON.get((outcome, reason)) or _ADVICE.get(outcome, _UNKNOWN)


def state_of(outcome: str) -> str:
    """The state an outcome is coloured as."""
    return _STATE_OF_OUTCOME.get(outcome, "failed")
