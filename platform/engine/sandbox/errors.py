"""Why a sandbox was not built. Each reason stands below an outcome of `engine.outcomes`; none is the script's fault."""

from __future__ import annotations

from enum import StrEnum

SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"


class Reason(StrEnum):
    """The reasons of SandboxRefused, as they are stored, shown and tested."""

    BWRAP_ABSENT = "bwrap_absent"
    BWRAP_UNSUITABLE = "bwrap_unsuitable"
    CANARY_FAILED = "canary_failed"
    EGRESS_UNAVAILABLE = "egress_unavailable"
    GRANT_CHANGED = "grant_changed"
    GRANT_ESCAPES_ROOT = "grant_escapes_root"
    GRANT_READ_MISSING = "grant_read_missing"
    GRANT_SYMLINK = "grant_symlink"
    GRANT_UNREADABLE = "grant_unreadable"
    GRANT_WRITE_MISSING = "grant_write_missing"
    INTERPRETER_UNREACHABLE = "interpreter_unreachable"
    POLICY_CONFLICT = "policy_conflict"
    POLICY_FORBIDDEN_PATH = "policy_forbidden_path"
    POLICY_NESTED_MOUNT = "policy_nested_mount"
    RUNNER_IS_ROOT = "runner_is_root"
    SANDBOX_ARCH_UNSUPPORTED = "sandbox_arch_unsupported"
    SANDBOX_INCOMPLETE = "sandbox_incomplete"
    SANDBOX_LIMITS_TOO_SMALL = "sandbox_limits_too_small"
    SANDBOX_SETUP_FAILED = "sandbox_setup_failed"
    TOOLS_UNAVAILABLE = "tools_unavailable"


class SandboxRefused(Exception):
    """The sandbox could not be built as the policy says, so nothing was started.

    `code` is SANDBOX_UNAVAILABLE for whatever is refused here; `reason` says which rule, `detail` what was
    found, on what, and `cure` what a person can do about it.
    """

    code = SANDBOX_UNAVAILABLE

    def __init__(self, reason: Reason, detail: str, cure: str = "") -> None:
        super().__init__(reason, detail, cure)
        self.reason = reason
        self.detail = detail
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail} Nothing was started.{' ' + self.cure if self.cure else ''}"


class FileRefused(Exception):
    """A file in a folder that a step can write was not opened. `relative` is its name below the root."""

    reason = "file_refused"

    def __init__(self, relative: str, detail: str) -> None:
        super().__init__(relative, detail)
        self.relative = relative
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.relative or '.'}: {self.detail}"


class Absent(FileRefused):
    """There is nothing of that name."""

    reason = "absent"


class NotRegular(FileRefused):
    """It is a link, a folder, a pipe, a socket, a device or a file with several names: only plain files are read."""

    reason = "result_not_regular"


class TooLarge(FileRefused):
    """It is larger than what is allowed here; at most one byte beyond the bound was read."""

    reason = "result_too_large"


class Escapes(FileRefused):
    """The name leads out of its root, or is no name that the platform takes."""

    reason = "result_escapes"
