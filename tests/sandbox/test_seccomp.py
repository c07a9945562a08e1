"""Each rule of the filter, with arguments that would fail otherwise if the call were let through."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.sandbox import seccomp
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.syscalls import NUMBERS
from tests.sandbox.bench import Bench

MACHINE = os.uname().machine
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"}
# Sets the filter on itself, then makes each call [number, arguments] and prints its errno. All pointers are bad ones.
CALLER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
program = sys.stdin.buffer.read(int(sys.argv[1]))
calls = json.loads(sys.stdin.buffer.read())
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Filter(len(program) // 8, program))) == 0
found = []
for number, arguments in calls:
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(value % 2**64) for value in arguments])
    found.append(ctypes.get_errno())
print(json.dumps(found))
"""
BAD = [-1, -1, -1, -1, -1, -1]
SET_UID, SET_GID, PLAIN = 0o4755, 0o2755, 0o755
CREATE, TEMPORARY, READ = 0o101, 0o20200001, 0


TABLE = """
    ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp add_key request_key keyctl unshare setns mount umount2
    pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr bpf perf_event_open userfaultfd
    io_uring_setup io_uring_enter io_uring_register init_module finit_module delete_module kexec_load kexec_file_load
    open_by_handle_at name_to_handle_at swapon swapoff reboot acct quotactl syslog uselib personality modify_ldt iopl
    ioperm vhangup settimeofday clock_settime adjtimex fanotify_init lookup_dcookie nfsservctl vmsplice move_pages mbind
    set_mempolicy get_mempolicy migrate_pages shmget msgget
"""
REFUSED = tuple(TABLE.split())


def answers(calls: list[tuple[str, list[int]]]) -> list[int]:
    numbers = NUMBERS[MACHINE]
    wire = json.dumps([[numbers[name], arguments] for name, arguments in calls]).encode()
    program = seccomp.program()
    command = [sys.executable, "-I", "-c", CALLER, str(len(program))]
    asked = subprocess.run(command, input=program + wire, capture_output=True, check=False)
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert isinstance(found, list)
    return found


def known(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in NUMBERS[MACHINE]]


def test_every_call_on_the_list_is_refused() -> None:
    names = known(tuple(dict.fromkeys((*REFUSED, *seccomp.DENIED))))
    assert dict(zip(names, answers([(name, BAD) for name in names]), strict=True)) == dict.fromkeys(names, errno.EPERM)


def test_calls_with_flags_behind_a_pointer_and_files_of_memory_are_said_to_be_unknown() -> None:
    names = ("clone3", "openat2", "memfd_create", "memfd_secret")
    assert answers([(name, BAD) for name in names]) == [errno.ENOSYS] * len(names)


def test_cloning_into_a_new_namespace_is_refused() -> None:
    kinds = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]
    assert answers([("clone", [kind | 17, 0, 0, 0, 0]) for kind in kinds]) == [errno.EPERM] * len(kinds)


def test_typing_into_a_terminal_is_refused_whatever_the_upper_half_of_the_request_is() -> None:
    asked = [("ioctl", [-1, request | upper, 0]) for request in (0x5412, 0x541C) for upper in (0, 1 << 32, 7 << 40)]
    assert answers(asked) == [errno.EPERM] * len(asked)
    assert answers([("ioctl", [-1, 0x5413, 0])]) == [errno.EBADF]


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_other_families_are_refused_whatever_the_upper_half_is(call: str) -> None:
    families = [0, 3, 9, 16, 17, 38, 40, 44, 1 << 31, 16 | 1 << 32]
    assert answers([(call, [family, 3, 0, -1]) for family in families]) == [errno.EAFNOSUPPORT] * len(families)
    assert errno.EAFNOSUPPORT not in answers([(call, [family, 99, 0, -1]) for family in (1, 2, 10)])


def mode_call(name: str, mode: int) -> tuple[str, list[int]]:
    arguments = list(BAD)
    arguments[seccomp.MODE_ARGUMENT[name]] = mode
    return name, arguments


@pytest.mark.parametrize("name", known(tuple(seccomp.MODE_ARGUMENT)))
def test_set_uid_and_set_gid_files_cannot_be_made(name: str) -> None:
    refused = answers([mode_call(name, mode) for mode in (SET_UID, SET_GID, 0o104755, 0o6000 | 1 << 40)])
    assert refused == [errno.EPERM] * 4
    assert answers([mode_call(name, mode) for mode in (PLAIN, 0o100644, 0o1777)]).count(errno.EPERM) == 0


@pytest.mark.parametrize("name", known(tuple(seccomp.OPEN_ARGUMENTS)))
def test_opening_looks_at_the_mode_only_where_it_makes_a_file(name: str) -> None:
    flags, mode = seccomp.OPEN_ARGUMENTS[name]

    def call(how: int, bits: int) -> tuple[str, list[int]]:
        arguments = list(BAD)
        arguments[flags], arguments[mode] = how, bits
        return name, arguments

    assert answers([call(CREATE, SET_UID), call(TEMPORARY, SET_GID)]) == [errno.EPERM] * 2
    assert answers([call(READ, SET_UID), call(CREATE, PLAIN)]) == [errno.EFAULT] * 2


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(SandboxRefused) as refused:
        seccomp.program("riscv64")
    assert refused.value.reason is Reason.SANDBOX_ARCH_UNSUPPORTED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_program_fits_the_kernels_bound_and_is_always_the_same(machine: str) -> None:
    assert 0 < len(seccomp.program(machine)) // 8 < 4096
    assert seccomp.digest(machine) == seccomp.digest(machine)


def test_numbers_are_those_of_this_machines_headers() -> None:
    header = Path(HEADERS.get(MACHINE, "/usr/include/asm-generic/unistd.h"))
    if not header.exists():
        pytest.skip("no kernel headers on this machine")
    defined = dict(re.findall(r"#define __NR_(\w+)\s+(\d+)", header.read_text()))
    differing = {
        name: number
        for name, number in NUMBERS[MACHINE].items()
        if defined.get(name, number) != str(number) and name in defined
    }
    assert differing == {}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_numbers_are_those_that_libseccomp_has(machine: str) -> None:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("no libseccomp on this machine")
    resolve = library.seccomp_syscall_resolve_name_arch
    audit = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]
    theirs = {name: resolve(ctypes.c_uint32(audit), name.encode()) for name in NUMBERS[machine]}
    newer = {name for name, number in theirs.items() if number < 0}  # it was released before these calls
    assert newer <= {"fchmodat2", "open_tree_attr", "set_mempolicy_home_node", "query_module"}
    assert {name: number for name, number in theirs.items() if number >= 0} == {
        name: number for name, number in NUMBERS[machine].items() if name not in newer
    }


RAW = """
import ctypes, mmap, sys
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex(sys.argv[1]))
run = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print(run())
"""


@pytest.mark.sandbox
@pytest.mark.skipif(MACHINE != "x86_64", reason="these roads into the kernel exist on x86_64 only")
@pytest.mark.parametrize(
    ("road", "code"),
    [("i386", "b814000000cd80c3"), ("x32", "b8270000400f05c3")],  # getpid by int 0x80, and with the x32 bit set
)
def test_calls_of_another_architecture_kill_the_process(shared_bench: Bench, road: str, code: str) -> None:
    argv = [str(shared_bench.tools.interpreter.path), "-I", "-c", RAW, code]
    ended: Any = shared_bench.run("", argv=argv).exit
    assert ended.command_ran
    assert ended.signal in ({31, 11} if road == "i386" else {31})  # SIGSEGV: a kernel without 32-bit calls
