"""The execution contract: everything one attempt needs, resolved once, by one maker (BEHAVIOUR 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from engine import dependencies, digests, environment, library, parameters, preflight
from engine.ask import Ask, ContractRefused, Dependency
from engine.environment import RUN_SUPPLIED, Dropped
from engine.logs.masking import Masker
from engine.outcomes import Outcome
from engine.sandbox import policy
from engine.sandbox.errors import FileRefused, Reason
from engine.sandbox.files import Beneath
from engine.sandbox.limits import MEGABYTE, Limits

__all__ = ["RUN_SUPPLIED", "Ask", "Change", "Contract", "ContractRefused", "Dependency", "Dropped", "diff", "resolve"]

VERSION = 1
ENTRY = "main.py"
_MOST_NAMED = 20
_IDS = frozenset({"attempt.run_id", "attempt.step_run_id", "attempt.number"})


@dataclass(frozen=True)
class Contract:
    """The resolved, complete, immutable specification of one attempt. Made by `resolve` alone."""

    ask: Ask
    env: Mapping[str, str] = field(repr=False)
    argv: tuple[str, ...]
    parameters: Mapping[str, Any] = field(repr=False)
    dropped: tuple[Dropped, ...]
    findings: tuple[preflight.Finding, ...]
    declared: policy.Declared
    sandbox: policy.Host
    environment: dependencies.Environment
    tree: digests.Tree
    inputs: Mapping[str, str]
    preload: bool
    """A file of the step or of a dependency has the name of a standard module."""

    @cached_property
    def fingerprint(self) -> str:
        """Same step, same group, same lock: same fingerprint on every road, whoever started it."""
        return digests.of_json(self._standing)

    @cached_property
    def inputs_digest(self) -> str:
        """Parameters, trigger, run variables and dependency files."""
        given = {
            "parameters": dict(self.parameters),
            "run_variables": dict(self.ask.run_variables),
            "files": dict(self.inputs),
        }
        return digests.keyed(self.ask.digest_key, "inputs", given)

    @property
    def code_digest(self) -> str:
        return self.tree.digest

    @property
    def limits(self) -> Limits:
        return self.declared.limits

    @property
    def folder(self) -> str:
        """The working directory, inside: where the step's main.py lies."""
        return f"{policy.CODE}/{self.ask.step.id}"

    @cached_property
    def masker(self) -> Masker:
        """Masks this attempt's secrets, its session token among them."""
        return Masker({**self.ask.secrets, "PULSE_SESSION_TOKEN": self.ask.session_token})

    def record(self) -> dict[str, Any]:
        """What is stored and shown, and compared by `diff`: no secret value, no parameter value."""
        standing = self._standing
        shown = {
            **standing,
            "fingerprint": self.fingerprint,
            "inputs_digest": self.inputs_digest,
            "code_digest": self.code_digest,
            "code_not_read": list(self.tree.unread[:_MOST_NAMED]),
            "attempt": {
                "run_id": self.ask.run_id,
                "step_run_id": self.ask.step_run_id,
                "number": self.ask.attempt_number,
                "entry_path": self.ask.entry_path,
            },
            "env_names": sorted(self.env),
            "dropped": [dropped.record() for dropped in self.dropped],
            "inputs": {
                "parameters": sorted(self.parameters),
                "run_variables": sorted(self.ask.run_variables),
                "files": dict(self.inputs),
            },
            "argv": list(self.argv),
            "findings": [finding.record() for finding in self.findings],
        }
        masked: dict[str, Any] = self.masker.value(shown)
        return masked

    @cached_property
    def _standing(self) -> dict[str, Any]:
        """What the fingerprint is taken of."""
        ask = self.ask
        group_variables, _ = environment.variables(ask.group, ask.group_values)
        env = {name: value for name, value in self.env.items() if not name.startswith(("VAR_", "SECRET_"))}
        env |= group_variables
        env |= {name: f"<secret:{digest}>" for name, digest in self._secret_digests().items()}
        names = tuple(sorted({*env, *RUN_SUPPLIED}))
        access = policy.code_access(ask.workflow, ask.locked_steps)
        return {
            "version": VERSION,
            "step": ask.step.model_dump(mode="json"),
            "plan_revision": ask.plan_revision,
            "group": ask.group,
            "env": environment.standing(env),
            "argv": [_inside(number, wanted.file) for number, wanted in enumerate(ask.step.context_dependencies)],
            "entry": f"{self.folder}/{ENTRY}",
            "cwd": self.folder,
            "interpreter": {"version": self.environment.version, "sha256": ask.host.interpreter.sha256},
            "dependencies": self.environment.digest,
            "sandbox": policy.declared_record(self.declared, access, names),
        }

    def _secret_digests(self) -> dict[str, str]:
        key = self.ask.digest_key
        names = (used.name for used in self.ask.step.secrets)
        return {
            f"SECRET_{name}": digests.keyed(key, f"secret {name}", self.env.get(f"SECRET_{name}", "")) for name in names
        }


@dataclass(frozen=True)
class Change:
    """One difference between two contract records: the path to it, and both sides (None: not there)."""

    path: str
    before: Any
    after: Any


def resolve(ask: Ask) -> Contract:
    """The one maker of contracts. Raises ContractRefused, and has started nothing when it does."""
    _admit(ask)
    given = _parameters(ask)
    inputs = _inputs(ask)
    env, dropped = _environment(ask, given, inputs)
    packages = _dependency_environment(ask)
    env |= _paths(ask, packages)
    _check_environment(env)
    tree = _tree(ask)
    verdict = preflight.check(tree, ask.workflow.code, ask.step.id, packages, ask.host)
    declared = _declared(ask)
    lowered = preflight.lowered(ask.step, declared.limits)
    findings = (*verdict.findings, *preflight.configuration(ask.step, verdict, env), *lowered)
    _refuse_findings(findings)
    return Contract(
        ask=ask,
        env=env,
        argv=tuple(_argv(ask, inputs)),
        parameters=given,
        dropped=(*dropped, *environment.ambient_dropped(ask.ambient, env)),
        findings=findings,
        declared=declared,
        sandbox=_sandbox(ask, packages, inputs, env),
        environment=packages,
        tree=tree,
        inputs=inputs,
        preload=verdict.shadows_standard,
    )


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two contract records. Ids of the attempts are evidence, and no difference."""
    old, new = _flat(before), _flat(after)
    return [
        Change(path, old.get(path), new.get(path))
        for path in sorted({*old, *new} - _IDS)
        if old.get(path) != new.get(path)
    ]


def _tree(ask: Ask) -> digests.Tree:
    try:
        tree = digests.code_tree(ask.workflow.code, ask.stopped)
    except digests.Stopped:
        detail = "It was cancelled while its code was read. Nothing was started."
        raise ContractRefused(Outcome.CANCELLED, "cancelled", detail) from None
    except FileRefused as refused:
        raise _rejected(
            "code_unreadable", f"The workflow's code cannot be read: {refused} Nothing was started."
        ) from None
    if linked := tree.linked(ask.locked_steps):
        detail = f"code/{linked} is a locked step's and has a second name (a hard link), by which steps may write it."
        raise _rejected("locked_code_linked", f"{detail} Nothing was started. Import the code anew.")
    return tree


def _admit(ask: Ask) -> None:
    step = ask.step
    if step.kind != "scripted":
        raise _rejected(
            "kind_not_run", f"A step of kind {step.kind} is not run by an interpreter. Nothing was started."
        )
    if step.network.hosts:
        hosts = ", ".join(step.network.hosts)
        detail = f"The step declares hosts ({hosts}), and this release has no network for steps. Nothing was started."
        raise _rejected(str(Reason.EGRESS_UNAVAILABLE), f"{detail} Take them out of the step's `network`.")
    if step.capabilities:
        raise _rejected("capability_unavailable", f"This release has no {', '.join(step.capabilities)} for steps.")
    for used in step.secrets:
        if used.name not in ask.allowed_secrets:
            detail = f"The step names the secret {used.name}, which this workflow may not use. Nothing was started."
            raise _rejected(
                "secret_not_allowed", f"{detail} Add it to the workflow's `secrets`, or take it out of the step."
            )


def _parameters(ask: Ask) -> dict[str, Any]:
    try:
        return parameters.check(ask.step.script_parameters, ask.parameters, secrets_values=tuple(ask.secrets.values()))
    except parameters.ParametersRefused as refused:
        first = refused.problems[0].code
        raise ContractRefused(Outcome.PARAMETERS_REJECTED, first, f"{refused} Nothing was started.") from None


def _inputs(ask: Ask) -> dict[str, str]:
    """The files this attempt is given, each with its digest. A missing required one is refused."""
    found: dict[str, str] = {}
    limit = (ask.ceiling or Limits()).output_mb * MEGABYTE
    for wanted in ask.step.context_dependencies:
        dependency = ask.dependencies.get(wanted.path)
        try:
            if dependency is None:
                raise FileRefused(wanted.path, "no attempt of its producer has succeeded in this run.")
            with Beneath(dependency.places.out) as folder:
                found[wanted.path] = digests.of_file(folder, dependency.name, limit)
        except FileRefused as refused:
            if not wanted.optional:
                detail = f"The step needs {wanted.path}, which cannot be given: {refused} Nothing was started."
                raise _rejected("dependency_missing", detail) from None
    for name, path in (("trigger", ask.delivery), ("context", ask.thread)):
        if path is not None:
            found[name] = _platform_file(ask, name, path)
    return found


def _platform_file(ask: Ask, name: str, path: Path) -> str:
    try:
        with Beneath(path.parent) as folder:
            return digests.of_file(folder, path.name, (ask.ceiling or Limits()).file_mb * MEGABYTE)
    except FileRefused as refused:
        raise _rejected("trigger_missing", f"The file of the run's {name} cannot be given: {refused}") from None


def _environment(ask: Ask, given: Mapping[str, Any], inputs: Mapping[str, str]) -> tuple[dict[str, str], list[Dropped]]:
    try:
        env, dropped = environment.variables(ask.group, ask.group_values)
        run, run_dropped = environment.variables(ask.group, ask.run_variables)
        env |= run
        for used in ask.step.secrets:
            env[f"SECRET_{used.name}"] = environment.text(f"SECRET_{used.name}", ask.secrets.get(used.name, ""))
        named = {used.name for used in ask.step.secrets}
        rule = "The step does not name this secret."
        dropped += [*run_dropped, *(Dropped(f"SECRET_{n}", rule) for n in sorted(ask.allowed_secrets - named))]
        env |= _run_supplied(ask, given, inputs)
    except environment.ValueRefused as refused:
        raise ContractRefused(
            Outcome.PREFLIGHT_FAILED, "value_refused", f"{refused} Nothing was started. Change the value."
        ) from None
    return env, dropped


def _run_supplied(ask: Ask, given: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, str]:
    values = {
        "PULSE_SESSION_TOKEN": ask.session_token,
        "PULSE_TOOLS_SOCKET": policy.TOOLS_SOCKET if ask.tools_socket else "",
        "RUN_ENTRY_PATH": ask.entry_path,
        "RUN_ID": ask.run_id,
        "STEP_PARAMS_JSON": environment.text("STEP_PARAMS_JSON", dict(given)),
        "STEP_ROUTE_ID": ask.route_id,
        "STEP_RUN_ID": ask.step_run_id,
        "STEP_TASK_ID": ask.task_id,
        "WORKFLOW_TRIGGER_CONTEXT_FILE": policy.CONTEXT_FILE if "context" in inputs else "",
        "WORKFLOW_TRIGGER_INPUT_FILE": policy.TRIGGER_FILE if "trigger" in inputs else "",
    }
    return {name: environment.text(name, value) for name, value in values.items() if value}


def _paths(ask: Ask, packages: dependencies.Environment) -> dict[str, str]:
    folder = f"{policy.CODE}/{ask.step.id}"
    return {
        **environment.FIXED,
        "PYTHONPATH": ":".join((library.INSIDE, folder, policy.CODE, packages.site)),
        "STEP_ID": ask.step.id,
        "WORKFLOW_CODE_DEPS": packages.site,
        "WORKFLOW_DB_ACCESS": ask.step.access.db,
        "WORKFLOW_KB_ACCESS": ask.step.access.knowledgebase,
    }


def _check_environment(env: Mapping[str, str]) -> None:
    foreign = [name for name in env if not environment.allowed(name)]
    if foreign:  # a fault of ours: a name was set that the list of names does not have
        raise AssertionError(f"The environment has names that no list has: {', '.join(sorted(foreign))}.")
    try:
        environment.check_size(env)
    except environment.ValueRefused as refused:
        raise _rejected("environment_too_large", f"{refused} Nothing was started.") from None


def _dependency_environment(ask: Ask) -> dependencies.Environment:
    try:
        return dependencies.ensure(ask.workflow, ask.data, ask.host)
    except dependencies.EnvironmentFailed as failed:
        raise ContractRefused(Outcome.PREFLIGHT_FAILED, "environment_failed", str(failed)) from None


def _refuse_findings(findings: tuple[preflight.Finding, ...]) -> None:
    failing = [finding for finding in findings if not finding.advice]
    if failing:
        detail = " ".join(str(finding) for finding in failing)
        raise ContractRefused(Outcome.PREFLIGHT_FAILED, failing[0].reason, f"{detail} Nothing was started.", findings)


def _argv(ask: Ask, inputs: Mapping[str, str]) -> list[str]:
    return [
        _inside(number, wanted.file) if wanted.path in inputs else ""
        for number, wanted in enumerate(ask.step.context_dependencies)
    ]


def _inside(number: int, file: str) -> str:
    return f"{policy.IN}/{number}/{file.rsplit('/', 1)[-1]}"


def _declared(ask: Ask) -> policy.Declared:
    step = ask.step
    return policy.Declared(
        step_id=step.id,
        grants=policy.standard_grants(step.access.model_dump()),
        hosts=step.network.hosts,
        secrets=tuple(used.name for used in step.secrets),
        variables=tuple(ask.group_values),
        tools=step.tools,
        parameters={name: declared.model_dump(mode="json") for name, declared in step.script_parameters.items()},
        limits=Limits.effective(step.limits.model_dump(), ask.ceiling),
    )


def _sandbox(
    ask: Ask, packages: dependencies.Environment, inputs: Mapping[str, str], env: Mapping[str, str]
) -> policy.Host:
    files = []
    for number, wanted in enumerate(ask.step.context_dependencies):
        if wanted.path in inputs:
            dependency = ask.dependencies[wanted.path]
            source = dependency.places.out / dependency.name
            files.append(policy.InputFile(number, source, wanted.file.rsplit("/", 1)[-1]))
    return policy.Host(
        data_root=ask.data.root,
        runtime=ask.tools_socket.parent if ask.tools_socket else ask.data.root / "runtime",
        workflow=ask.workflow,
        attempt=ask.attempt,
        library=library.install(ask.data.library),
        tools=ask.host,
        deps=packages.root,
        tools_socket=ask.tools_socket,
        trigger=ask.delivery,
        context=ask.thread,
        inputs=tuple(files),
        locked_steps=ask.locked_steps,
        env_names=tuple(env),
        ids={"run_id": ask.run_id, "attempt_id": ask.attempt_id, "workflow_id": ask.workflow_id},
    )


def _rejected(reason: str, detail: str) -> ContractRefused:
    return ContractRefused(Outcome.HARNESS_REJECTED, reason, detail)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{path}.{key}" if path else str(key))
        return found
    return {path: value}
