"""The only starter of step processes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from engine import dependencies, digests, library
from engine.contract import Contract
from engine.logs import LogReader, LogWriter, Stream
from engine.outcomes import Outcome
from engine.runner import claims, collect, verdict
from engine.runner.disk import FIRST_LOOK, Disk
from engine.runner.ending import Ending, Output
from engine.runner.listeners import Listeners
from engine.runner.watch import Bound, Watch
from engine.sandbox import launch, policy, takeover
from engine.sandbox.errors import FileRefused, SandboxRefused
from engine.sandbox.files import Beneath

KILL_TIMEOUT_S = 10.0
_SAID_ROWS = 20
_OWN_ENDS = {Outcome.SUCCEEDED, Outcome.SCRIPT_ERROR, Outcome.ASSERTION_FAILED}
_ARGV = (dependencies.PYTHON, "-I", "-S", "-u", "-B", library.BOOT)


def execute(contract: Contract, listeners: Listeners) -> Ending:
    """Runs one attempt to its end and says how it ended. Blocks the calling thread, which must outlive the step.

    Whatever a listener raises ends the attempt and is raised again, once every process is gone.
    """
    attempt = _Attempt(contract, listeners)
    try:
        return attempt.run()
    except SandboxRefused as refused:
        return attempt.refused(refused.reason, str(refused))
    except AttemptExists as refused:
        return attempt.refused("attempt_exists", str(refused))
    except LogUnwritable as refused:
        return attempt.refused("log_unwritable", str(refused))
    finally:
        attempt.end()


class AttemptExists(Exception):
    """An attempt has one start; what is there already is evidence and is not written over."""


class LogUnwritable(Exception):
    """What a step says must have a place before its code runs: nothing of it ran."""


class _Attempt:
    def __init__(self, contract: Contract, listeners: Listeners) -> None:
        self._contract = contract
        self._listeners = listeners
        self._started_at, self._clock = datetime.fromtimestamp(time.time(), UTC), time.monotonic()
        self._policy_record: dict[str, object] | None = None
        self._sandbox: launch.Sandbox | None = None
        self._watch: Watch | None = None
        self._log: LogWriter | None = None
        self._disk: Disk | None = None
        self._tools_open = False
        self._tree_gone = True

    def run(self) -> Ending:
        contract, listeners = self._contract, self._listeners
        if contract.sandbox.tools_socket is not None:
            self._tools_open = True
            if stop := listeners.arm(contract.sandbox.tools_socket):
                return self._unstarted(verdict.stopped(stop))
        built = policy.build(contract.declared, contract.sandbox)
        self._policy_record = built.record()
        self._disk = disk = Disk(built.mounts, contract.tree.entries, contract.limits)
        self._sandbox = launch.start(built, argv=_ARGV, env=contract.env, cwd=contract.folder, frame="later")
        # From here on bubblewrap and the interpreter start beside us; the step's code waits for its frame.
        self._log = _new_log(contract)
        if stop := listeners.started(self._sandbox.pid, self._sandbox.pid_started):
            return self._unstarted(verdict.stopped(stop))
        with Beneath(contract.ask.attempt.out) as outputs:
            self._watch = Watch(self._sandbox, self._log, outputs, disk, contract.limits, listeners)
            self._sandbox.release(_frame(contract))
            disk.note(FIRST_LOOK)
            self._watch.follow()
            self._end_tree()
            exit_ = self._sandbox.wait(KILL_TIMEOUT_S) or launch.Exit(None, None, command_ran=True, killed=True)
            return self._judge(exit_)

    def refused(self, reason: str, detail: str) -> Ending:
        return self._unstarted(verdict.Verdict(Outcome.HARNESS_REJECTED, str(reason), detail))

    def _unstarted(self, found: verdict.Verdict) -> Ending:
        """Nothing of the step's code ran."""
        self.end()
        return Ending(
            outcome=str(found.outcome),
            reason=found.reason,
            detail=self._contract.masker.text(found.detail),
            started_at=self._started_at,
            finished_at=self._now(),
            seal=self._log.seal(0).record() if self._log else None,
            policy=self._policy_record,
            tree_gone=self._tree_gone,
        )

    def end(self) -> None:
        """Ends whatever is still there: after an error of ours or of a listener. Safe to call again."""
        self._close_tools()
        if self._sandbox is not None:
            self._sandbox.kill()
            self._sandbox.wait(KILL_TIMEOUT_S)
            self._tree_gone = self._sandbox.gone()
            self._sandbox.close()
            self._sandbox = None
        if self._log is not None:
            self._log.seal(0)
        if self._watch is not None:
            self._watch.close()
        if self._disk is not None:
            self._disk.close()

    def _now(self) -> datetime:
        """The start and what has passed since: a clock that is set meanwhile is not shown as how long a step took."""
        return self._started_at + timedelta(seconds=time.monotonic() - self._clock)

    def _close_tools(self) -> None:
        if self._tools_open:
            self._tools_open = False
            self._listeners.close_tools()

    def _end_tree(self) -> None:
        """Tools first: what is in flight then is unknown, and nothing new begins. Then every process, then the rest."""
        assert self._sandbox is not None  # noqa: S101
        assert self._watch is not None  # noqa: S101
        self._close_tools()
        if self._watch.cut_short is not None:
            self._sandbox.kill()
        self._watch.drain()

    def _judge(self, exit_: launch.Exit) -> Ending:
        contract, watch, log, sandbox = self._contract, self._watch, self._log, self._sandbox
        assert watch is not None and log is not None and sandbox is not None  # noqa: S101, PT018
        seal = log.seal(watch.ms)
        claimed = claims.parse(watch.claims, log.marked)
        seen = verdict.Observed(
            exit_,
            watch.cut_short,
            claimed,
            contract.limits,
            self._said,
            self._listeners.boundary_refused,
            sandbox.breach(),
            watch.cpu_spent,
        )
        found = verdict.judge(seen)
        if watch.cut_short is None and found.outcome in _OWN_ENDS and (bound := watch.left_too_much()):
            found = verdict.too_much(bound, contract.limits)
        found, validation, outputs = _collected(contract, found, self._listeners)
        self._listeners.log_grew(log.rows, log.size)
        mask = contract.masker
        return Ending(
            outcome=str(found.outcome),
            reason=str(found.reason),
            detail=mask.text(" ".join(filter(None, [found.detail, seal.lost.text]))),
            started_at=self._started_at,
            finished_at=self._now(),
            exit_code=exit_.code,
            claims=mask.value(claimed.record()),
            seal=seal.record(),
            validation=mask.value(validation),
            code_digest_end=_code_digest(contract, self._listeners),
            policy=self._policy_record,
            tree_gone=sandbox.gone(),
            outputs=outputs,
            pid=sandbox.pid,
        )

    def _said(self) -> str:
        """The end of the error stream, for people."""
        with LogReader(self._contract.ask.attempt) as reader:
            lines = [line.text for line in reader.last(_SAID_ROWS, longest=2000) if line.stream is Stream.ERR]
        return "\n".join(lines)[-4000:]


def _new_log(contract: Contract) -> LogWriter:
    try:
        return LogWriter(contract.ask.attempt, contract.masker, contract.limits)
    except FileExistsError as error:
        raise AttemptExists(f"This attempt was already started: {error.filename} is there.") from None
    except OSError as error:
        raise LogUnwritable(f"The log of this attempt cannot be written: {error.strerror}. Nothing was run.") from None


def _frame(contract: Contract) -> bytes:
    """What boot is told: fields of `name=value`, with NUL between them."""
    fields = [
        f"main={contract.folder}/main.py",
        f"prefix={policy.DEPS}",
        f"pycache={contract.env['PYTHONPYCACHEPREFIX']}",
        f"path={contract.folder}",
        f"path={policy.CODE}",
        f"path={contract.environment.site}",
        *(f"argv={argument}" for argument in contract.argv),
    ]
    if contract.environment.links:
        fields.append(f"pth={contract.environment.site}")
    if contract.preload:
        fields.append("preload=1")
    return "\0".join(fields).encode("utf-8", "surrogateescape")


def _code_digest(contract: Contract, listeners: Listeners) -> str:
    """That of the code tree now; "" when there was no time for it, which says nothing."""
    try:
        return digests.code_tree(contract.ask.workflow.code, lambda: listeners.stop_wanted() is not None).digest
    except digests.Stopped:
        return ""
    except FileRefused:
        return "unreadable"


def _collected(
    contract: Contract, found: verdict.Verdict, listeners: Listeners
) -> tuple[verdict.Verdict, dict[str, Any] | None, tuple[Output, ...]]:
    """What the step left, taken over and looked at: the verdict as it is by that, the validation, the outputs."""
    runner, validation = contract.sandbox.tools.runner, None
    try:
        kept = takeover.take_over(contract.ask.attempt, runner.gid if runner.dropped else None, contract.limits)
    except OSError as error:
        return verdict.not_kept(found, error), None, (Output("(all files)", 0, problem=collect.NOT_KEPT),)
    with kept:
        if kept.over and found.outcome in _OWN_ENDS:
            found = verdict.too_much(Bound.OUTPUT, contract.limits)
        if found.outcome is Outcome.SUCCEEDED:
            report = collect.validate(contract, kept, listeners)
            validation = report.record() if report.checks else None
            if not report.passed:
                found = verdict.Verdict(Outcome.VALIDATION_FAILED, collect.problem_of(report), report.summary())
        return found, validation, collect.outputs(contract, kept)
