"""What a step may touch, whole: declared by its author, resolved by the platform, frozen before anything starts.

`Declared` holds names only, never paths. `Host` is what the platform adds for one attempt. `build` resolves both into a
`Policy`: every folder and file is opened once, checked, and mounted later by that very descriptor, so that what was
checked is what the step sees. Destinations are flat: none lies below another that is bound (CVE-2026-87766).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Self

from engine.places import AttemptPlaces, WorkflowPlaces
from engine.sandbox import grants, seccomp
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.host import HostTools
from engine.sandbox.limits import FEWEST_PROCESSES, Limits

CODE, RUN, LIB, DEPS = "/pulse/code", "/pulse/run", "/pulse/lib", "/pulse/deps"
TOOLS_SOCKET = "/run/pulse/tools.sock"
TRIGGER_FILE, CONTEXT_FILE = f"{RUN}/trigger.json", f"{RUN}/context.json"
OUT, IN = f"{RUN}/out", f"{RUN}/in"
SMALLEST_MEMORY_MB = 32
"""An interpreter does not start in less."""


class Store(StrEnum):
    CODE = "code"
    RUN = "run"
    LEARNINGS = "learnings"
    KNOWLEDGEBASE = "knowledgebase"
    ASSETS = "assets"


class Access(StrEnum):
    READ = "read"
    WRITE = "read-write"


@dataclass(frozen=True)
class Grant:
    """One store that a step may use. `scope`: its own part (`step`) or everybody's (`global`)."""

    store: Store
    scope: str
    access: Access
    required: bool = False

    def record(self) -> dict[str, str | bool]:
        return {"store": self.store, "scope": self.scope, "access": self.access, "required": self.required}


@dataclass(frozen=True)
class Declared:
    """What the step's document says, in names. Values never enter it."""

    step_id: str
    grants: tuple[Grant, ...] = ()
    layout_version: int = 1
    hosts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def entry(self) -> str:
        return f"code/{self.step_id}/main.py"

    def record(self) -> dict[str, object]:
        return {
            "step_id": self.step_id,
            "layout_version": self.layout_version,
            "entry": self.entry,
            "grants": [grant.record() for grant in self.grants],
            "network": {"hosts": list(self.hosts)},
            "secrets": sorted(self.secrets),
            "variables": sorted(self.variables),
            "tools": sorted(self.tools),
            "parameters": dict(self.parameters),
        }


@dataclass(frozen=True)
class InputFile:
    """A file of another step's attempt that this one may read, at /pulse/run/in/<number>/<name>."""

    number: int
    source: Path
    name: str

    @property
    def inside(self) -> str:
        return f"{IN}/{self.number}/{self.name}"


@dataclass(frozen=True)
class Host:
    """What the platform adds for one attempt; nothing in it comes from the step, the request or a model."""

    data_root: Path
    runtime: Path
    workflow: WorkflowPlaces
    attempt: AttemptPlaces
    library: Path
    tools: HostTools
    deps: Path | None = None
    tools_socket: Path | None = None
    trigger: Path | None = None
    context: Path | None = None
    inputs: tuple[InputFile, ...] = ()
    locked_steps: frozenset[str] = frozenset()
    env_names: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    create_missing: bool = True


@dataclass(frozen=True)
class Policy:
    """Everything one sandbox is built from. It owns open descriptors: `launch.start` or `close` lets them go."""

    declared: Declared
    host: Host
    mounts: tuple[grants.Mount, ...]
    code_access: Mapping[str, str]

    def declared_record(self) -> dict[str, object]:
        """The part that enters the fingerprint: the same for each attempt of the same step with the same lock."""
        return declared_record(self.declared, self.code_access, self.host.env_names)

    def record(self) -> dict[str, object]:
        """What is stored with the attempt and shown as "what this step could touch". No value of any secret."""
        tools = self.host.tools
        return {
            **self.declared_record(),
            "ids": dict(self.host.ids),
            "runner": {"uid": tools.runner.uid, "gid": tools.runner.gid, "dropped": tools.runner.dropped},
            "bwrap": tools.bwrap.record(),
            "interpreter": tools.interpreter.record(),
            "seccomp": {"profile": seccomp.PROFILE, "sha256": seccomp.digest()},
            "mounts": [mount.record() for mount in self.mounts],
            "sockets": [mount.dest for mount in self.mounts if mount.store == "socket"],
        }

    def close(self) -> None:
        for mount in self.mounts:
            mount.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def standard_grants(access: Mapping[str, str]) -> tuple[Grant, ...]:
    """The grants of a step whose document says `access` {store: none|read|read-write}. One builder for all kinds.

    Code and its own outputs it always has; learnings are always offered to be read.
    """
    learnings = Access.WRITE if access.get("learnings") == Access.WRITE else Access.READ
    found = [
        Grant(Store.CODE, "global", Access.WRITE, required=True),
        Grant(Store.RUN, "step", Access.WRITE, required=True),
        Grant(Store.LEARNINGS, "global", learnings),
        Grant(Store.LEARNINGS, "step", learnings),
    ]
    others = [(store, access.get(store, "none")) for store in (Store.KNOWLEDGEBASE, Store.ASSETS)]
    return (*found, *(Grant(store, "global", Access(wanted)) for store, wanted in others if wanted != "none"))


def code_access(workflow: WorkflowPlaces, locked_steps: frozenset[str]) -> dict[str, str]:
    """Each top-level entry of the code tree and whether steps may write it."""
    try:
        names = sorted(os.listdir(workflow.code))
    except FileNotFoundError:
        names = []
    return {name: str(Access.READ if name in locked_steps else Access.WRITE) for name in names}


def declared_record(
    declared: Declared, access_to_code: Mapping[str, str], env_names: tuple[str, ...]
) -> dict[str, object]:
    return {
        "declared": declared.record(),
        "code_access": dict(access_to_code),
        "env_names": sorted(env_names),
        "limits": declared.limits.record(),
    }


def build(declared: Declared, host: Host) -> Policy:
    """Resolves, creates what the platform owns, opens and checks every grant; SandboxRefused when one will not do."""
    _admit(declared, host)
    access_to_code = code_access(host.workflow, host.locked_steps)
    mounts: list[grants.Mount] = []
    try:
        with grants.Roots(host.data_root, host.tools.runner) as roots:
            for wish in (*_granted(declared, host, access_to_code), *_given(host)):
                mounts += [roots.resolve(wish, create=host.create_missing)]
            check_mounts(mounts, host)
            mounts = _code_as_one(mounts, roots, host)
    except BaseException:
        for mount in mounts:
            mount.close()
        raise
    return Policy(declared, host, tuple(mounts), access_to_code)


def check_mounts(mounts: list[grants.Mount], host: Host) -> None:
    """The rules over all mounts together: flat, without contradiction, and nothing of the platform's own."""
    grants.refuse_nested(mounts)
    grants.refuse_conflicts(mounts)
    closed = (host.data_root / "secrets", host.data_root / "database", host.workflow.database.parent)
    home = Path(os.path.expanduser("~"))  # stays "~" for a uid without an entry in passwd
    homes = (home,) if home.is_absolute() else ()
    kept = (host.data_root, host.workflow.root, host.runtime, host.tools.bwrap.path, *homes)
    grants.refuse_forbidden(mounts, closed, kept)


def _code_as_one(mounts: list[grants.Mount], roots: grants.Roots, host: Host) -> list[grants.Mount]:
    """The code's entries, each found and checked by itself, as one mount where that grants nothing more.

    That is where all of them may be written, and the folder around them belongs to the platform and is closed to the
    runner: its owner and mode then keep steps from adding, replacing and removing entries.
    """
    entries = [mount for mount in mounts if mount.store == Store.CODE]
    if not entries or not all(mount.write for mount in entries):
        return mounts
    whole = roots.resolve(grants.Wish(Store.CODE, host.workflow.root, "code", CODE))
    if not host.tools.runner.is_kept_from(os.fstat(whole.fd)):
        whole.close()
        return mounts
    for mount in entries:
        mount.close()
    return [replace(whole, write=True), *(mount for mount in mounts if mount.store != Store.CODE)]


def _admit(declared: Declared, host: Host) -> None:
    if os.geteuid() == 0 and host.tools.runner.uid == 0:
        raise SandboxRefused(
            Reason.RUNNER_IS_ROOT,
            "The worker is root and has no other uid to run steps as.",
            "Set PULSE_RUNNER_UID, or leave it out and one is allotted.",
        )
    if declared.hosts:
        raise SandboxRefused(
            Reason.EGRESS_UNAVAILABLE,
            f"The step declares hosts ({', '.join(declared.hosts)}), and this release has no network for steps.",
            "Take them out of the step's `network`.",
        )
    seccomp.program()
    limits = declared.limits
    if limits.processes < FEWEST_PROCESSES or limits.memory_mb < SMALLEST_MEMORY_MB or limits.file_mb < 1:
        raise SandboxRefused(
            Reason.SANDBOX_LIMITS_TOO_SMALL,
            f"Limits of {limits.processes} processes, {limits.memory_mb} MB and files of {limits.file_mb} MB are too"
            " small for a sandbox and an interpreter.",
            f"Allow at least {FEWEST_PROCESSES} processes, {SMALLEST_MEMORY_MB} MB and 1 MB.",
        )


def _granted(declared: Declared, host: Host, access_to_code: Mapping[str, str]) -> Iterator[grants.Wish]:
    """What the step was granted."""
    for grant in declared.grants:
        if grant.store is not Store.CODE:
            yield _store_wish(grant, declared.step_id, host)
            continue
        if declared.step_id not in access_to_code:
            locked = declared.step_id in host.locked_steps
            reason = Reason.GRANT_READ_MISSING if locked else Reason.GRANT_WRITE_MISSING
            raise SandboxRefused(reason, f"There is no folder code/{declared.step_id}.", "Write the step's main.py.")
        for name, access in access_to_code.items():
            source = grants.plain(name)
            yield grants.Wish(
                "code", host.workflow.root, f"code/{source}", f"{CODE}/{source}", access == Access.WRITE, "any"
            )


def _given(host: Host) -> Iterator[grants.Wish]:
    """What the platform hands to every step, or to this attempt."""
    root, own = host.workflow.root, host.data_root
    for item in host.inputs:
        yield grants.Wish("input", root, grants.below(root, item.source), item.inside, kind="file", required=True)
    for source, dest in ((host.trigger, TRIGGER_FILE), (host.context, CONTEXT_FILE)):
        if source is not None:
            yield grants.Wish("trigger", root, grants.below(root, source), dest, kind="file", required=True)
    yield grants.Wish("library", own, grants.below(own, host.library), LIB, required=True)
    if host.deps is not None:
        yield grants.Wish("deps", own, grants.below(own, host.deps), DEPS, required=True)
    if host.tools_socket is not None:
        name = grants.below(host.runtime, host.tools_socket)
        yield grants.Wish("socket", host.runtime, name, TOOLS_SOCKET, kind="socket", required=True)


def _store_wish(grant: Grant, step_id: str, host: Host) -> grants.Wish:
    root, write = host.workflow.root, grant.access is Access.WRITE
    if grant.store is Store.RUN:
        relative, dest = grants.below(root, host.attempt.out), OUT
    elif grant.store is Store.LEARNINGS:
        part = step_id if grant.scope == "step" else "_global"
        relative, dest = f"learnings/{part}", f"/pulse/learnings/{part}"
    else:
        dest = "/pulse/kb" if grant.store is Store.KNOWLEDGEBASE else "/pulse/assets"
        relative = str(grant.store)
    return grants.Wish(str(grant.store), root, relative, dest, write, required=grant.required or write)
