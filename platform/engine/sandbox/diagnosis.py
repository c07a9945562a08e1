"""What bubblewrap's words mean on a host that does not let it work, and what its operator can do."""

from __future__ import annotations

from dataclasses import dataclass

from engine.sandbox.errors import Reason, SandboxRefused


@dataclass(frozen=True)
class Diagnosis:
    text: str
    cause: str
    cure: str
    reason: Reason = Reason.SANDBOX_SETUP_FAILED


TABLE = (
    Diagnosis(
        "No permissions to create new namespace",
        "The kernel, or the container runtime around it, lets nobody make a user namespace"
        " (Docker's default seccomp profile, or kernel.unprivileged_userns_clone=0).",
        "Run the worker on the host or a virtual machine, or give its container a profile that allows clone, unshare,"
        " mount and pivot_root. Do not use --privileged.",
    ),
    Diagnosis(
        "max_*_namespaces exceeded",
        "No more user namespaces are allowed (user.max_user_namespaces is 0), or this already runs inside a sandbox"
        " that forbids another.",
        "Raise the sysctl user.max_user_namespaces; do not nest sandboxes.",
    ),
    Diagnosis(
        "setting up uid map: Permission denied",
        "AppArmor restricts user namespaces (Ubuntu 23.10 and later).",
        "Install the distribution's AppArmor profile for /usr/bin/bwrap (package apparmor-profiles,"
        " bwrap-userns-restrict) and use that bwrap, not the wheel's. Last resort: sysctl"
        " kernel.apparmor_restrict_unprivileged_userns=0.",
    ),
    Diagnosis(
        "Failed RTM_NEWADDR: Operation not permitted",
        "AppArmor restricts what may be done in a user namespace (Ubuntu 23.10 and later).",
        "Install the distribution's AppArmor profile for /usr/bin/bwrap (package apparmor-profiles,"
        " bwrap-userns-restrict) and use that bwrap, not the wheel's. Last resort: sysctl"
        " kernel.apparmor_restrict_unprivileged_userns=0.",
    ),
    Diagnosis(
        "Can't mount proc on",
        "The container has a masked /proc, so no new one can be mounted.",
        "Start the worker's container with systempaths=unconfined, or run the worker on the host. The host's own /proc"
        " is never handed to a step.",
    ),
    Diagnosis(
        "Can't read /proc/sys/kernel/overflowuid",
        "/proc is hidden or masked for the user that runs steps.",
        "Start the worker's container with systempaths=unconfined, or run the worker on the host.",
    ),
    Diagnosis(
        "Resource temporarily unavailable",
        "The limit of processes is too small for bubblewrap itself.",
        "Raise the step's `processes`, or TasksMax and LimitNPROC of the service.",
        Reason.SANDBOX_LIMITS_TOO_SMALL,
    ),
    Diagnosis(
        "Can't find source path",
        "The uid that runs steps cannot enter a folder above something that is to be mounted.",
        "Move the data or the interpreter out of closed folders, or chmod 0711 these.",
    ),
    Diagnosis(
        "prctl(PR_SET_SECCOMP)",
        "The system call filter could not be set.",
        "Use a kernel with CONFIG_SECCOMP_FILTER.",
        Reason.SANDBOX_INCOMPLETE,
    ),
    Diagnosis(
        "prlimit:",
        "A limit could not be set.",
        "Raise the hard limits of the service (LimitNPROC, LimitNOFILE, LimitFSIZE, LimitCPU, LimitAS).",
        Reason.SANDBOX_INCOMPLETE,
    ),
)


def diagnose(said: str) -> Diagnosis:
    """The row of the table that fits what bubblewrap printed; its own words when none does."""
    first = next((line.strip() for line in said.splitlines() if line.strip()), "it said nothing")[:500]
    for row in TABLE:
        if row.text in said:
            return Diagnosis(row.text, f"{row.cause} bubblewrap said: {first}", row.cure, row.reason)
    return Diagnosis("", f"bubblewrap could not build the sandbox: {first}", "Run `manage.py doctor` on this host.")


def refusal(said: str) -> SandboxRefused:
    """For a launch that ended without running its command: what bubblewrap printed, as the refusal it stands for."""
    found = diagnose(said)
    return SandboxRefused(found.reason, found.cause, found.cure)
