"""From what was observed of an attempt to its outcome: facts decide, what the script claims only tells them apart."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from engine.outcomes import Outcome
from engine.runner.claims import Claims
from engine.runner.listeners import Stop, StopKind
from engine.runner.watch import Bound
from engine.sandbox.launch import Exit
from engine.sandbox.limits import Limits

_USAGE = re.compile(r"^usage: .*^\S[^\n]*: error: [^\n]+\s*\Z", re.DOTALL | re.MULTILINE)
_NO_SUCH_SCRIPT = re.compile(r"can't open file .*\[Errno \d+\]|^unknown option|^Unknown option", re.MULTILINE)
_RAISED_CODES = {1, 120}  # 120: the streams could not be flushed at the end
_CPU = "All its processes together used more than {} s of processor time (limits.cpu_s)."
_FILE = "It wrote a file of more than {} MB (limits.file_mb)."
_STOPS = {
    StopKind.CANCELLED: (Outcome.CANCELLED, "cancelled", "It was cancelled, and every process of it was ended."),
    StopKind.LEASE_LOST: (
        Outcome.WORKER_LOST,
        "lease_lost",
        "The worker lost its lease and ended what it had started.",
    ),
    StopKind.OPERATOR: (Outcome.WORKER_LOST, "stopped_by_operator", "The platform was stopped; the step was cut."),
}


@dataclass(frozen=True)
class Observed:
    """What the platform saw. `said` is the end of the error stream."""

    exit: Exit
    cut_short: Bound | Stop | None
    claims: Claims
    limits: Limits
    said: Callable[[], str]
    boundary_refused: Callable[[], bool]
    breach: str | None = None  # the bound of the sandbox's group that was hit: `memory`, `processes`
    cpu_spent: bool = False  # whether it can have used up its processor time

    @property
    def ended_by(self) -> int | None:
        """The signal. bubblewrap tells one as 128 more, and so a script may exit as well: then boot says so."""
        return None if self.claims.exited == self.exit.code else self.exit.signal


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    reason: str
    detail: str


def judge(seen: Observed) -> Verdict:
    """The outcome but for validation, which only a `succeeded` can still lose."""
    if seen.cut_short is not None:
        return _cut(seen.cut_short, seen.limits)
    found = _own_end(seen)
    if seen.breach and (found.outcome is Outcome.SCRIPT_ERROR or seen.exit.code is None):
        return _breached(seen.breach, seen, found)
    return found


def _own_end(seen: Observed) -> Verdict:
    if seen.exit.code is None:
        return _never_ran(seen)
    if not seen.claims.running:
        return _no_interpreter(seen)
    if seen.ended_by is not None:
        return _by_signal(seen, seen.ended_by)
    if seen.exit.code == 0:
        return Verdict(Outcome.SUCCEEDED, "", "")
    if seen.exit.code == 2:
        return _exit_2(seen)
    return _error(seen, seen.exit.code)


def _breached(bound: str, seen: Observed, found: Verdict) -> Verdict:
    """The kernel says which bound of the whole sandbox was hit; the script's own error, if any, follows from that."""
    told = "" if seen.ended_by == signal.SIGKILL or seen.exit.code is None else f" {found.detail}"
    if bound == "memory":
        detail = f"All its processes together needed more than {seen.limits.memory_mb} MB (limits.memory_mb)."
    else:
        detail = f"It needed more than {seen.limits.processes} processes at once (limits.processes)."
    return Verdict(Outcome.LIMIT_EXCEEDED, bound, detail + told)


def _cut(why: Bound | Stop, limits: Limits) -> Verdict:
    if isinstance(why, Stop):
        return stopped(why)
    if why is Bound.TIMEOUT:
        detail = f"It ran longer than {limits.timeout_s} s (limits.timeout_s), and every process of it was ended."
        return Verdict(Outcome.TIMED_OUT, why, detail)
    if why is Bound.LOG:
        detail = f"It printed more than {limits.log_mb} MB (limits.log_mb), and limits.log_overflow is `fail`."
        return Verdict(Outcome.LIMIT_EXCEEDED, why, detail)
    if why is Bound.CPU:
        return Verdict(Outcome.LIMIT_EXCEEDED, why, _CPU.format(limits.cpu_s))
    return too_much(why, limits)


def stopped(why: Stop) -> Verdict:
    outcome, reason, detail = _STOPS[why.kind]
    return Verdict(outcome, reason, f"{detail} {why.detail}".strip())


def too_much(why: Bound, limits: Limits) -> Verdict:
    """Of a step that left more on the disk than it may."""
    if why is Bound.DISK:
        detail = (
            f"It added more than {limits.output_mb} MB (limits.output_mb) or {limits.output_files} files to the folders"
            " that it may write besides its outputs: code, learnings, knowledge base, assets. What it wrote is still"
            " there."
        )
        return Verdict(Outcome.LIMIT_EXCEEDED, why, detail)
    detail = (
        f"Its output folder grew beyond {limits.output_mb} MB (limits.output_mb) or {limits.output_files} files."
        " Every process of it was ended."
    )
    return Verdict(Outcome.LIMIT_EXCEEDED, why, detail)


def not_kept(found: Verdict, error: OSError) -> Verdict:
    """Of a step whose outputs could not be taken over: it did not succeed, for nobody can go on from them."""
    if found.outcome is not Outcome.SUCCEEDED:
        return found
    detail = f"It came to its end, but its outputs could not be kept ({error.strerror}), and are not used."
    return Verdict(Outcome.LIMIT_EXCEEDED, "disk", detail)


def _never_ran(seen: Observed) -> Verdict:
    detail = f"The sandbox ended before the step was started, so none of its code ran. {seen.said()}"
    return Verdict(Outcome.HARNESS_REJECTED, "sandbox_setup_failed", detail.strip())


def _no_interpreter(seen: Observed) -> Verdict:
    detail = f"The interpreter ended with {seen.exit.code} before it came to the step's code. {seen.said()}"
    return Verdict(Outcome.HARNESS_REJECTED, "interpreter_failed", detail.strip())


def _by_signal(seen: Observed, number: int) -> Verdict:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in {signal.SIGXCPU, signal.SIGKILL} and seen.cpu_spent:  # the second for who ignored the first
        return Verdict(Outcome.LIMIT_EXCEEDED, "cpu", _CPU.format(seen.limits.cpu_s))
    if number == signal.SIGXFSZ:
        return Verdict(Outcome.LIMIT_EXCEEDED, "disk", _FILE.format(seen.limits.file_mb))
    return Verdict(Outcome.SCRIPT_ERROR, f"signal_{number}", f"It was ended by {name}.{_hint(seen, number)}")


def _hint(seen: Observed, number: int) -> str:
    if number != signal.SIGKILL:
        return ""
    return (
        " The platform did not end it: the host may have been out of memory"
        f" (limits.memory_mb is {seen.limits.memory_mb})."
    )


def _exit_2(seen: Observed) -> Verdict:
    refusal = seen.claims.refusal
    if refusal is not None:
        parts = (refusal["reason"], refusal["blocked_action"], refusal["resolution"])
        return Verdict(Outcome.REFUSED, "refusal", " ".join(part for part in parts if part) or "It gave no reason.")
    said = seen.said()
    if seen.claims.usage or _USAGE.search(said) or _NO_SUCH_SCRIPT.search(said):
        last = said.strip().splitlines()[-1:] or [""]
        return Verdict(
            Outcome.SCRIPT_ERROR, "usage_error", f"A program was called with wrong arguments. {last[0]}".strip()
        )
    return Verdict(
        Outcome.REFUSED, "unexplained", "It ended with 2, which is a refusal, and did not say why (pulse.refuse does)."
    )


def _error(seen: Observed, code: int) -> Verdict:
    raised = seen.claims.raised
    if raised is None or code not in _RAISED_CODES:
        return Verdict(Outcome.SCRIPT_ERROR, f"exit_{code}", f"It ended with exit code {code}.")
    where = f" ({raised.file}:{raised.line})" if raised.file else ""
    text = f"{raised.name}: {raised.message}{where}" if raised.message else f"{raised.name}{where}"
    if "assertion" in raised.traits:
        return Verdict(Outcome.ASSERTION_FAILED, "assertion", text)
    if "boundary" in raised.traits and seen.boundary_refused():
        return Verdict(Outcome.TOOL_BOUNDARY, "tool_boundary", text)
    if "disk" in raised.traits:
        return Verdict(Outcome.LIMIT_EXCEEDED, "disk", f"{text}. {_FILE.format(seen.limits.file_mb)}")
    if "memory" in raised.traits:
        hint = f"It may need more than limits.memory_mb, which is {seen.limits.memory_mb}."
        return Verdict(Outcome.SCRIPT_ERROR, "memory", f"{text}. {hint}")
    return Verdict(Outcome.SCRIPT_ERROR, f"exit_{code}", text)
