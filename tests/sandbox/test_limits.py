"""Limits hold inside a real sandbox, and cannot be raised there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine import document
from engine.sandbox.errors import SandboxRefused
from engine.sandbox.limits import Limits
from tests.sandbox.bench import Bench, finish

BOMB = """
import os, sys, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        count += 1
except BlockingIOError:
    pass
print(count, flush=True)
sys.stdin.read()
time.sleep(float(sys.argv[1]) if sys.argv[1:] else 0)
"""


@pytest.mark.sandbox
def test_a_fork_bomb_is_stopped_and_the_next_step_runs(shared_bench: Bench) -> None:
    ended = shared_bench.run(BOMB, limits=Limits(processes=40))
    assert 20 < int(ended.stdout) < 40
    assert shared_bench.run("print('fine')").stdout == "fine\n"


@pytest.mark.sandbox
def test_two_steps_at_once_have_each_their_own_limit(shared_bench: Bench) -> None:
    declared = shared_bench.declared(limits=Limits(processes=60))
    pair = [shared_bench.start(BOMB + "time.sleep(1)", declared=declared) for _ in range(2)]
    counts = [int(finish(sandbox).stdout) for sandbox in pair]
    for sandbox in pair:
        sandbox.close()
    assert min(counts) > 30


@pytest.mark.sandbox
def test_a_busy_loop_ends_by_its_processor_time(shared_bench: Bench) -> None:
    ended = shared_bench.run("while True: pass", limits=Limits(cpu_s=1), timeout=20)
    assert ended.exit.signal == 24


@pytest.mark.sandbox
def test_memory_beyond_the_limit_is_refused_to_the_program(shared_bench: Bench) -> None:
    ended = shared_bench.run("bytearray(300 * 1024 * 1024)", limits=Limits(memory_mb=200))
    assert ended.exit.code == 1
    assert "MemoryError" in ended.stderr


@pytest.mark.sandbox
def test_a_file_cannot_grow_beyond_its_limit(shared_bench: Bench) -> None:
    script = "open('/pulse/run/out/large', 'wb').write(b'0' * 3_000_000)"
    ended = shared_bench.run(script, limits=Limits(file_mb=2))
    assert "File too large" in ended.stderr


@pytest.mark.sandbox
def test_there_is_no_memory_outside_of_every_process(shared_bench: Bench) -> None:
    script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
got = [libc.shmget(0, 1 << 20, 0o1600), libc.msgget(0, 0o1600)]
try:
    got.append(os.memfd_create("m"))
except OSError:
    got.append(-1)
print(got)
"""
    assert shared_bench.run(script).stdout == "[-1, -1, -1]\n"


@pytest.mark.sandbox
def test_what_python_shares_between_processes_still_works(shared_bench: Bench) -> None:
    script = """
import ctypes, mmap, multiprocessing
from multiprocessing.shared_memory import SharedMemory
def work(name, queue):
    mine = SharedMemory(name=name)
    mine.buf[0] = 7
    queue.put("done")
block, queue = SharedMemory(create=True, size=1 << 16), multiprocessing.Queue()
child = multiprocessing.Process(target=work, args=(block.name, queue))
child.start()
print(queue.get(timeout=10), end=" ")
child.join()
mapped = mmap.mmap(-1, 1 << 16)
called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)
print(block.buf[0], multiprocessing.Array("i", 3)[0], len(mapped), called(4))
block.close()
block.unlink()
"""
    ended = shared_bench.run(script)
    assert ended.stdout == "done 7 0 65536 5\n", ended.stderr


@pytest.mark.sandbox
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_temporary_space_is_bounded(shared_bench: Bench, folder: str) -> None:
    script = f"open('{folder}/large', 'wb').write(b'0' * 5_000_000)"
    ended = shared_bench.run(script, limits=Limits(tmp_mb=4, shm_mb=4))
    assert "No space left" in ended.stderr


@pytest.mark.sandbox
def test_with_a_delegated_group_a_sandbox_is_in_it_before_it_runs_anything(bench: Bench, tmp_path: Path) -> None:
    """A plain folder stands for the kernel's: what would be written there is seen, not what the kernel makes of it."""
    bench.tools = dataclasses.replace(bench.tools, cgroup=tmp_path)
    declared = bench.declared(limits=Limits(memory_mb=300, processes=40))
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"
    sandbox = bench.start(script, declared=declared)
    assert finish(sandbox).stdout == "-1\n"
    (group,) = tmp_path.iterdir()
    assert (group / "memory.max").read_text() == f"{300 << 20}\n"
    assert (group / "pids.max").read_text() == "42\n"
    assert (group / "cgroup.procs").read_text() == f"{sandbox.pid}\n"
    assert sandbox.breach() is None
    (group / "memory.events").write_text("oom 1\noom_kill 1\n")
    assert sandbox.breach() == "memory"
    for file in group.iterdir():
        file.unlink()
    sandbox.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sandbox
def test_a_group_that_cannot_be_joined_is_refused(bench: Bench, tmp_path: Path) -> None:
    bench.tools = dataclasses.replace(bench.tools, cgroup=tmp_path / "absent")
    with pytest.raises(SandboxRefused):
        bench.start("print('ran')")


@pytest.mark.sandbox
def test_no_limit_can_be_raised_from_inside(shared_bench: Bench) -> None:
    script = """
import resource
for name in ("NPROC", "NOFILE", "FSIZE", "CORE", "CPU", "AS", "MEMLOCK"):
    kind = getattr(resource, "RLIMIT_" + name)
    soft, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (hard + 1, hard + 1))
        print(name, "raised")
    except (ValueError, PermissionError):
        print(name, soft, hard)
"""
    ended = shared_bench.run(script, limits=Limits(processes=64, open_files=99, file_mb=3, cpu_s=7, memory_mb=300))
    assert ended.stdout.splitlines() == [
        "NPROC 64 64",
        "NOFILE 99 99",
        f"FSIZE {3 << 20} {3 << 20}",
        "CORE 1 1",
        "CPU 7 8",
        f"AS {300 << 20} {300 << 20}",
        "MEMLOCK 0 0",
    ]


def test_what_a_document_leaves_out_is_what_a_sandbox_has() -> None:
    assert Limits.effective(document.Limits().model_dump()) == Limits()


def test_a_step_may_lower_a_limit_and_not_raise_it() -> None:
    operator = Limits(timeout_s=300, memory_mb=512)
    limits = Limits.effective({"timeout_s": 900, "memory_mb": 128, "processes": None, "log_overflow": "fail"}, operator)
    assert (limits.timeout_s, limits.memory_mb, limits.processes, limits.log_overflow) == (300, 128, 128, "fail")


@pytest.mark.parametrize(
    ("declared", "expected"), [({"timeout_s": 60}, 60), ({"timeout_s": 60, "cpu_s": 90}, 90), ({}, 600)]
)
def test_processor_time_follows_the_time_out_unless_it_is_declared(declared: dict[str, int], expected: int) -> None:
    assert Limits.effective(dict(declared)).cpu_s == expected
