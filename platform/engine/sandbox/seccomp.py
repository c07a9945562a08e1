"""The system call filter of every sandbox: classic BPF, assembled here, allow by default.

Namespaces do not hide everything: sockets of other families, keyrings, io_uring, ptrace and the ioctls of a terminal
are the kernel's own, and a set-uid file made in a shared folder would outlive the sandbox. The filter refuses those.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
from functools import cache

from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.syscalls import AUDIT_ARCH, NUMBERS

PROFILE = "pulse-2"

DENIED = (
    # other processes, keys
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "add_key", "request_key", "keyctl"),
    # namespaces and mounts
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    # large and young surfaces of the kernel
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms"),
    *("kexec_load", "kexec_file_load", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark"),
    # the machine
    *("swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd", "syslog", "uselib", "personality"),
    *("modify_ldt", "iopl", "ioperm", "vhangup", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("lookup_dcookie", "nfsservctl", "_sysctl", "vmsplice"),
    *("move_pages", "mbind", "set_mempolicy", "get_mempolicy", "migrate_pages", "set_mempolicy_home_node"),
    # memory that belongs to no process, so that no limit of one bounds it: System V segments and queues
    *("shmget", "msgget"),
)
UNKNOWN = ("clone3", "openat2", "memfd_create", "memfd_secret")
"""Said not to be there, ENOSYS, so that libraries fall back. Of the first two the flags lie behind a pointer, where a
filter cannot look. The files of the others are memory that belongs to no process; /dev/shm does the same and is sized.
"""

FAMILIES = (1, 2, 10)  # UNIX, INET, INET6
NEW_NAMESPACES = 0x7E020000
TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: they type into a terminal
SET_ID = 0o6000
CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE: without them the mode register means nothing
MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_Instruction = tuple[int, int, int, int]


@cache
def program(machine: str = "") -> bytes:
    """The filter for this machine (or the named one), as bubblewrap's --seccomp takes it."""
    machine = machine or os.uname().machine
    if machine not in NUMBERS:
        raise SandboxRefused(
            Reason.SANDBOX_ARCH_UNSUPPORTED,
            f"There is no system call filter for {machine}, only for {' and '.join(NUMBERS)}.",
            "Run the worker on one of these.",
        )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _assemble(machine))


@cache
def digest(machine: str = "") -> str:
    return hashlib.sha256(program(machine)).hexdigest()


def _assemble(machine: str) -> list[_Instruction]:
    numbers = NUMBERS[machine]
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, AUDIT_ARCH[machine]),
        (_RET, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, _X32), (_RET, 0, 0, _KILL)]
    for names, number in ((DENIED, errno.EPERM), (UNKNOWN, errno.ENOSYS)):
        for name in names:
            if name in numbers:
                code += _rule(numbers[name], [(_RET, 0, 0, _ERRNO | number)])
    for name, body in _argument_rules().items():
        if name in numbers:
            code += _rule(numbers[name], [*body, (_RET, 0, 0, _ALLOW)])
    return [*code, (_RET, 0, 0, _ALLOW)]


def _rule(number: int, body: list[_Instruction]) -> list[_Instruction]:
    return [(_JEQ, 0, len(body), number), *body]


def _argument_rules() -> dict[str, list[_Instruction]]:
    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    rules = {"clone": [_argument(0), (_JSET, 0, 1, NEW_NAMESPACES), refuse]}
    rules["ioctl"] = [_argument(1)]
    for request in TERMINAL_IOCTLS:
        rules["ioctl"] += [(_JEQ, 0, 1, request), refuse]
    family = [_argument(0)]
    for index, known in enumerate(FAMILIES):
        family.append((_JEQ, len(FAMILIES) - index, 0, known))
    family.append((_RET, 0, 0, _ERRNO | errno.EAFNOSUPPORT))
    rules["socket"] = rules["socketpair"] = family
    for name, mode in MODE_ARGUMENT.items():
        rules[name] = [_argument(mode), (_JSET, 0, 1, SET_ID), refuse]
    for name, (flags, mode) in OPEN_ARGUMENTS.items():
        rules[name] = [_argument(flags), (_JSET, 0, 3, CREATES), _argument(mode), (_JSET, 0, 1, SET_ID), refuse]
    return rules


def _argument(index: int) -> _Instruction:
    """Loads the lower half of an argument: the kernel takes these as 32 bits, whatever lies above."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)
