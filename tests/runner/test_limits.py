"""Time, processor, output and log are bounded, and the ending names the bound."""

from __future__ import annotations

import os
import time

import pytest

from engine.sandbox.limits import MEGABYTE, Limits
from tests.runner.stage import Stage

pytestmark = pytest.mark.sandbox


def test_a_step_that_sleeps_is_timed_out(stage: Stage) -> None:
    began = time.monotonic()
    ran = stage.run("import time\nprint('here')\ntime.sleep(60)\n", step={"limits": {"timeout_s": 1}})
    assert (ran.ending.outcome, ran.ending.reason) == ("timed_out", "timeout"), ran
    assert ran.ending.tree_gone
    assert ran.log == "here\n"
    assert time.monotonic() - began < 10


def test_a_step_that_ignores_every_signal_is_timed_out_too(stage: Stage) -> None:
    code = (
        "import signal, time\nfor n in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(n, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)\n"
    )
    assert stage.run(code, step={"limits": {"timeout_s": 1}}).ending.outcome == "timed_out"


def test_a_busy_loop_ends_at_its_processor_time(stage: Stage) -> None:
    ran = stage.run("while True: pass\n", step={"limits": {"timeout_s": 60, "cpu_s": 1}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "cpu"), ran


def test_who_ignores_the_end_of_its_processor_time_has_exceeded_it_all_the_same(stage: Stage) -> None:
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass\n"
    ran = stage.run(code, step={"limits": {"timeout_s": 60, "cpu_s": 1}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "cpu"), ran


def test_processor_time_counts_for_all_processes_together(stage: Stage) -> None:
    code = (
        "import subprocess, sys\n"
        "spin = [sys.executable, '-c', 'import time\\nwhile time.process_time() < 1.4: pass']\n"
        "for _ in range(20):\n    subprocess.run(spin)\n"
    )
    ran = stage.run(code, step={"limits": {"timeout_s": 60, "cpu_s": 2}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "cpu"), ran
    assert "limits.cpu_s" in ran.ending.detail


def test_a_file_beyond_its_limit_is_a_limit_exceeded(stage: Stage) -> None:
    code = "with open('/tmp/a', 'wb') as file:\n    for _ in range(10): file.write(bytes(1_000_000))\n"
    ran = stage.run(code, step={"limits": {"file_mb": 2}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "disk"), ran
    assert "limits.file_mb" in ran.ending.detail


def test_memory_beyond_the_limit_is_an_error_with_a_hint(stage: Stage) -> None:
    ran = stage.run("x = bytearray(400 * 1024 * 1024)\n", step={"limits": {"memory_mb": 200}})
    assert ran.ending.outcome in {"script_error", "limit_exceeded"}
    assert "memory_mb" in ran.ending.detail


def test_an_output_folder_that_grows_too_large_ends_the_step(stage: Stage) -> None:
    code = (
        "import os, time\npath = os.environ['STEP_OUTPUT_DIR']\n"
        "for n in range(4):\n    open(f'{path}/{n}', 'wb').write(bytes(1024 * 1024))\ntime.sleep(60)\n"
    )
    ran = stage.run(code, step={"limits": {"output_mb": 2, "timeout_s": 50}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "output"), ran


def test_a_sparse_file_takes_no_output(stage: Stage) -> None:
    code = (
        "import os, time\nos.truncate(os.open(os.environ['STEP_OUTPUT_DIR'] + '/x', os.O_CREAT | os.O_RDWR), 10**8)\n"
        "time.sleep(1.5)\n"
    )
    assert stage.run(code, step={"limits": {"output_mb": 2}}).ending.outcome == "succeeded"


WRITES = (
    "import os, time\nos.makedirs(where, exist_ok=True)\nfor n in range(8):\n"
    "    open(f'{where}/{n}', 'wb').write(os.urandom(1024 * 1024))\n"
)
STORES = {
    "code": "/pulse/code/work/more",
    "learnings": "/pulse/learnings/work/more",
    "knowledgebase": "/pulse/kb",
    "assets": "/pulse/assets/a/b",
}


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("then", ["", "time.sleep(50)\n"])
def test_what_is_added_to_a_folder_beside_the_outputs_is_bounded_too(stage: Stage, store: str, then: str) -> None:
    access = {} if store == "code" else {store: "read-write"}
    limits = {"output_mb": 2, "timeout_s": 40}
    ran = stage.run(f"where = {STORES[store]!r}\n{WRITES}{then}", step={"limits": limits, "access": access})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "disk"), ran
    assert "limits.output_mb" in ran.ending.detail


def test_many_small_entries_are_bounded_too(stage: Stage) -> None:
    code = "import os\nfor n in range(500):\n    os.mkdir(f'/pulse/code/work/d{n}')\n"
    assert stage.run(code, ceiling=Limits(output_files=200)).ending.reason == "disk"


def test_what_was_there_before_is_not_counted(stage: Stage) -> None:
    size = 4 * MEGABYTE
    stage.write({"work/large.bin": os.urandom(size), "other/large.bin": os.urandom(size)})
    assets = stage.workflow.root / "assets"
    stage.make(assets)
    (assets / "large.bin").write_bytes(os.urandom(size))
    stage.own(assets / "large.bin", 0o660)
    code = (
        "import os, time\nfor path in ('/pulse/code/work', '/pulse/code/other', '/pulse/assets'):\n"
        "    with open(f'{path}/large.bin', 'ab') as file:\n        file.write(b'x')\n"
        "    os.remove(f'{path}/large.bin')\n    open(f'{path}/new', 'wb').write(os.urandom(4 * 1024 * 1024))\n"
        "time.sleep(1.3)\n"
    )
    step = {"limits": {"output_mb": 2}, "access": {"assets": "read-write"}}
    assert stage.run(code, step=step).ending.outcome == "succeeded"


def test_a_file_that_was_there_counts_by_what_it_grew(stage: Stage) -> None:
    stage.write({"other/large.bin": os.urandom(4 * MEGABYTE)})
    code = "import os\nopen('/pulse/code/other/large.bin', 'ab').write(os.urandom({} * 1024 * 1024))\n"
    step = {"limits": {"output_mb": 8}}
    assert stage.run(code.format(5), step=step).ending.outcome == "succeeded"
    assert stage.run(code.format(10), step=step).ending.reason == "disk"


def test_outputs_of_a_step_that_is_quicker_than_a_look_are_bounded_too(stage: Stage) -> None:
    code = f"import os\nwhere = os.environ['STEP_OUTPUT_DIR']\n{WRITES}"
    assert stage.run(code, step={"limits": {"output_mb": 2}}).ending.reason == "output"


def test_huge_files_in_the_code_do_not_hold_up_the_end(stage: Stage) -> None:
    code = "import os\nfor n in range(40):\n    os.truncate(os.open(f'z{n}', os.O_CREAT | os.O_RDWR), 250_000_000)\n"
    began = time.monotonic()
    ran = stage.run(code)
    assert ran.ending.outcome == "succeeded", ran
    assert ran.ending.code_digest_end not in {"", "unreadable", ran.contract.code_digest}
    assert time.monotonic() - began < 20
    again = stage.resolve()
    assert len(again.record()["code_not_read"]) == 20
    assert "not_read" in {finding.reason for finding in again.findings}


def test_an_endless_printer_is_cut_in_the_middle_and_not_ended(stage: Stage) -> None:
    code = "import sys\nfor n in range(40_000):\n    sys.stdout.write(f'{n:08d} ' + '.' * 90 + chr(10))\n"
    ran = stage.run(code, step={"limits": {"log_mb": 1}})
    assert ran.ending.outcome == "succeeded", ran.ending
    seal = ran.ending.seal
    assert seal is not None
    assert seal["produced"] == {"lines": 40_000, "bytes": 40_000 * 100}
    assert seal["kept"]["bytes"] < 2 * MEGABYTE
    assert "lines were cut here" in ran.log
    assert ran.log.startswith("00000000 ")
    assert ran.log.splitlines()[-1].startswith("00039999 ")


def test_an_endless_printer_fails_when_the_step_says_so(stage: Stage) -> None:
    code = "import os\nwhile True:\n    os.write(1, b'y' * 65536)\n"
    ran = stage.run(code, step={"limits": {"log_mb": 1, "log_overflow": "fail", "timeout_s": 60}})
    assert (ran.ending.outcome, ran.ending.reason) == ("limit_exceeded", "log"), ran.ending


def test_a_fork_bomb_is_the_steps_own_trouble(stage: Stage) -> None:
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    ran = stage.run(code, step={"limits": {"timeout_s": 2, "processes": 30}})
    assert ran.ending.outcome in {"timed_out", "limit_exceeded", "script_error"}
    assert ran.ending.tree_gone
    assert stage.run("print('next')\n").ending.outcome == "succeeded"
